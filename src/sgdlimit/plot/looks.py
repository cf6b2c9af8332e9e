"""Who is told from whom, and how: colour, line style, marker and name of every result in one picture."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ..results import Result, Runs
from .panels import valued

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

    setting: Hashable
    method: str
    """'runs' for runs."""
    algorithm: str
    copy: int
    """How many like it came before."""

    @property
    def runs(self) -> bool:
        """Whether it is runs, not a theory."""
        return self.method == "runs"


def looks(results: Sequence[Result], labels: Sequence[str] | None = None) -> list[Look]:
    """How each result is drawn. No two theories share colour and style, and no two runs a colour and a marker.

    One setting (problem, temperature, schedule of the batch) has one colour. Theories over runs of their own setting
    are in dark inks instead, one a kind, so that one legend entry serves them at every temperature. Theories of a
    single setting, without runs, have a colour a kind.
    """
    kinds = _kinds(results)
    simulated = {kind.setting for kind in kinds if kind.runs}
    theories = _listed(kind[1:] for kind in kinds if not kind.runs)
    styles = _styles([algorithm for _, algorithm, _ in theories])
    several = len({kind.setting for kind in kinds}) > 1
    slots = _listed(kind if kind.runs else kind.setting for kind in kinds if kind.runs or kind.setting not in simulated)
    names = _names(results, kinds, simulated) if labels is None else labels
    found = []
    for kind, name in zip(kinds, names, strict=True):
        if kind.runs:
            place = slots.index(kind)
            found.append(Look(COLOURS[place % len(COLOURS)], "-", MARKERS[place % len(MARKERS)], name))
            continue
        theory = theories.index(kind[1:])
        if kind.setting in simulated:
            colour = INKS[theory % len(INKS)]
        else:
            colour = COLOURS[(slots.index(kind.setting) if several else theory) % len(COLOURS)]
        found.append(Look(colour, styles[theory], "", name))
    return found


def setting(result: Result) -> Hashable:
    """What results have in common that belong together: problem, temperature and schedule of the batch."""
    problem = result.about.get("problem")
    # a user's matrix is described in other words by every method
    own = problem is None or str(result.about.get("method", "")).endswith("data")
    return f"{_algorithm(result).get('temperature')} {_share(result)} {'' if own else problem}"


def run_size(runs: Runs) -> str:
    """' ($d$ = 100, 5 trials)', for a legend; nothing where the dimension is not known."""
    dim = runs.about.get("options", {}).get("dim")
    return f" ($d$ = {dim}, {runs.trials} trial{'s' * (runs.trials != 1)})" if dim else ""


def _algorithm(result: Result) -> dict[str, object]:
    return result.about.get("algorithm") or {}


def _share(result: Result) -> object:
    """The batch's schedule, if it has one: then τ is its lowest temperature."""
    share = _algorithm(result).get("batch_share")
    return None if share == {"name": "Constant"} else share


def _kinds(results: Sequence[Result]) -> list[Kind]:
    keys: list[tuple[Hashable, str, str]] = []
    for result in results:
        method = "runs" if isinstance(result, Runs) else str(result.about.get("method", "theory"))
        keys.append((setting(result), method, str(_algorithm(result).get("name", ""))))
    return [Kind(*key, keys[:index].count(key)) for index, key in enumerate(keys)]


T = TypeVar("T")


def _listed(keys: Iterable[T]) -> list[T]:
    """Every key once, in the order in which they come."""
    return list(dict.fromkeys(keys))


def _styles(algorithms: Sequence[str]) -> list[Dashes]:
    """Dotted for the first law of SGF, dashed for the first of all others, then one a kind."""
    rest, styles = list(STYLES), []
    for algorithm in algorithms:
        if algorithm == "SGF" and FLOW not in styles:
            styles.append(FLOW)
        else:
            styles.append(rest.pop(0) if rest else STYLES[len(styles) % len(STYLES)])
    return styles


def _names(results: Sequence[Result], kinds: list[Kind], simulated: set[Hashable]) -> Iterator[str]:
    """Method or algorithm of every result, and what of problem, temperature and ending others do not share."""
    differing = _differing(results)
    laws = _listed((kind.method, kind.algorithm) for kind in kinds if not kind.runs)
    for result, kind in zip(results, kinds, strict=True):
        parts, words = [] if result.success else [str(result.status)], _words(result)
        if kind.runs or kind.setting not in simulated:  # else the runs say it
            tau = _algorithm(result).get("temperature")
            heat = [f"τ {'≥' if _share(result) else '='} {tau:g}"] if isinstance(tau, int | float) else []
            parts = [valued(name, words[name]) for name in differing if name in words] + heat + parts
        suffix = "".join(f", {part}" for part in parts)
        if isinstance(result, Runs):
            yield f"{kind.algorithm} simulation{suffix}{run_size(result)}"
        else:
            # one method for two algorithms: which law it is must be said
            several = sum(method == kind.method for method, _ in laws) > 1
            law = f", law of {kind.algorithm}" if several and kind.algorithm else ""
            yield kind.method + law + (f" ({kind.copy + 1})" if kind.copy else "") + suffix


def _words(result: Result) -> dict[str, object]:
    """Numbers and names of the problem by their path: 'sample_ratio', 'penalty.strength', 'loss'."""
    found: dict[str, object] = {}

    def walk(path: str, words: object) -> None:
        if isinstance(words, dict):
            for key, value in words.items():
                walk(path if key in ("name", "function") else f"{path}.{key}".lstrip("."), value)
        elif path and isinstance(words, int | float | str) and "source" not in path:
            found[path] = float(words) if words in ("inf", "-inf") else words

    walk("", {k: v for k, v in (result.about.get("problem") or {}).items() if k != "name"})
    return found


def _differing(results: Sequence[Result]) -> list[str]:
    """What of the problems differs between results that all have one; a few at most. Own data have none to name."""
    words = [_words(result) for result in results if result.about.get("method") != "simulation on data"]
    words = [found for found in words if found]
    paths = _listed(path for found in words for path in found)
    differ = [path for path in paths if len({str(found.get(path)) for found in words}) > 1]
    return sorted(differ, key=lambda path: path != "sample_ratio")[:MOST_DIFFERENCES]
