"""Who is told from whom, and how: colour, line style, marker and name of every result in one picture."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from ..results import Result, Runs
from .axes import valued

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito: distinct for every kind of colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One a colour, so that a grey print tells curves apart."""
INKS = ("#000000", "#882255", "#332288", "#117733")
"""Of theories drawn over runs: dark (Tol), and none of the colours above."""
FLOW = ":"
"""Of the first SGF law."""
Dashes = str | tuple[int, tuple[int, ...]]
"""A style of lines as matplotlib has it."""
STYLES: tuple[Dashes, ...] = ("--", "-.", (0, (9, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (2, 2)), (0, (1, 3)))
"""Of other theories, one a kind."""
MOST_DIFFERENCES = 2
"""Of a problem that are named in a legend."""


class Look(NamedTuple):
    """How one result is drawn."""

    colour: str
    style: Dashes
    """Of the line of a theory."""
    marker: str
    """Of runs."""
    label: str


class Kind(NamedTuple):
    """What tells a result from others: runs, or which law of which method."""

    setting: str
    runs: bool
    law: tuple[str, str, int]
    """Method, algorithm, and how many like it came before."""


def looks(results: Sequence[Result], labels: Sequence[str] | None = None) -> list[Look]:
    """How each result is drawn. No two theories share colour and style, and no two runs a colour and a marker.

    One setting (problem, temperature, schedule of the batch) has one colour. Theories over runs of their own setting
    are in dark inks instead, one a kind, so that one legend entry serves them at every temperature. Theories of a
    single setting, without runs, have a colour a kind.
    """
    kinds: list[Kind] = []
    for result in results:
        where, runs = setting(result), isinstance(result, Runs)
        called = str(result.about.get("method", "theory")), str(_algorithm(result).get("name", ""))
        before = sum((kind.setting, kind.runs, kind.law[:2]) == (where, runs, called) for kind in kinds)
        kinds.append(Kind(where, runs, (*called, before)))
    simulated = {kind.setting for kind in kinds if kind.runs}
    laws = list(dict.fromkeys(kind.law for kind in kinds if not kind.runs))
    flow = next((law for law in laws if law[1] == "SGF"), None)
    rest = cycle(STYLES)
    styles = {law: FLOW if law == flow else next(rest) for law in laws}
    several = len({kind.setting for kind in kinds}) > 1
    slots = [kind if kind.runs else kind.setting if several else kind.law for kind in kinds]
    pairs = zip(slots, kinds, strict=True)
    coloured = list(dict.fromkeys(slot for slot, kind in pairs if kind.runs or kind.setting not in simulated))
    found = []
    for kind, slot, name in zip(kinds, slots, labels or _names(results, kinds, simulated), strict=True):
        if slot in coloured:
            place = coloured.index(slot)
            colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        else:
            colour, marker = INKS[laws.index(kind.law) % len(INKS)], ""
        found.append(Look(colour, "-" if kind.runs else styles[kind.law], marker, name))
    return found


def setting(result: Result) -> str:
    """What results have in common that belong together: problem, temperature and schedule of the batch."""
    # a user's matrix is described in other words by every method
    own = str(result.about.get("method", "")).endswith("data")
    problem = None if own else result.about.get("problem")
    return f"{_algorithm(result).get('temperature')} {_share(result)} {problem}"


def _algorithm(result: Result) -> dict[str, object]:
    return result.about.get("algorithm") or {}


def _share(result: Result) -> object:
    """The batch's schedule, if it has one: then τ is its lowest temperature."""
    share = _algorithm(result).get("batch_share")
    return None if share == {"name": "Constant"} else share


def _names(results: Sequence[Result], kinds: list[Kind], simulated: set[str]) -> Iterator[str]:
    """Method or algorithm of every result, and what of problem, temperature and ending others do not share."""
    # of problems that all have one; own data have none to name
    told = (_words(result) for result in results if result.about.get("method") != "simulation on data")
    problems = [found for found in told if found]
    paths = dict.fromkeys(path for found in problems for path in found)
    differ = [path for path in paths if len({str(found.get(path)) for found in problems}) > 1]
    differing = sorted(differ, key=lambda path: path != "sample_ratio")[:MOST_DIFFERENCES]
    for result, kind in zip(results, kinds, strict=True):
        parts, words = [] if result.success else [str(result.status)], _words(result)
        if kind.runs or kind.setting not in simulated:  # else the runs say it
            tau = _algorithm(result).get("temperature")
            heat = [f"τ {'≥' if _share(result) else '='} {tau:g}"] if isinstance(tau, int | float) else []
            parts = [valued(name, words[name]) for name in differing if name in words] + heat + parts
        suffix = "".join(f", {part}" for part in parts)
        method, algorithm, before = kind.law
        if isinstance(result, Runs):
            dim = result.about.get("options", {}).get("dim")
            size = f" ($d$ = {dim}, {result.trials} trial{'s' * (result.trials != 1)})" if dim else ""
            yield f"{algorithm} simulation{suffix}{size}"
        else:
            # one method for two algorithms: which law it is must be said
            several = len({other.law[1] for other in kinds if not other.runs and other.law[0] == method}) > 1
            law = f", law of {algorithm}" if several and algorithm else ""
            yield method + law + (f" ({before + 1})" if before else "") + suffix


def _words(result: Result) -> dict[str, object]:
    """Numbers and names of the problem by their path: 'sample_ratio', 'penalty.strength', 'loss'."""
    found: dict[str, object] = {}

    def walk(path: str, words: object) -> None:
        if isinstance(words, dict):
            for key, value in words.items():
                walk(path if key in ("name", "function") else f"{path}.{key}".lstrip("."), value)
        elif path and isinstance(words, int | float | str) and "source" not in path:
            found[path] = float(words) if words in ("inf", "-inf") else words

    walk("", result.about.get("problem") or {})
    return found
