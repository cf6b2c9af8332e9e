"""Who is told from whom, and how: colour, line style, marker and name of every result in one picture."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from ..results import Result, Runs
from .labels import valued

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito: distinct for every kind of colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One a colour, so that a grey print tells curves apart."""
INKS = ("#000000", "#882255", "#332288", "#117733")
"""Of theories drawn over runs: dark (Tol), and none of the colours above."""
FLOW = ":"
"""Of the first SGF law."""
STYLES: tuple[Any, ...] = ("--", "-.", (0, (9, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (2, 2)), (0, (1, 3)))
"""Of other theories, one a kind."""
MOST_DIFFERENCES = 2
"""Of a problem that are named in a legend."""


class Look(NamedTuple):
    """How one result is drawn."""

    colour: str
    style: Any
    """Of the line of a theory."""
    marker: str
    """Of runs."""
    label: str


def looks(results: Sequence[Result], labels: Sequence[str] | None = None) -> list[Look]:
    """How each result is drawn. No two theories share colour and style, and no two runs a colour and a marker.

    One setting (problem, temperature, schedule of the batch) has one colour. Theories over runs of their own setting
    are in dark inks instead, one a kind, so that one legend entry serves them at every temperature. Theories of a
    single setting, without runs, have a colour a kind.
    """
    settings = [setting(result) for result in results]
    simulated = {key for key, result in zip(settings, results, strict=True) if isinstance(result, Runs)}
    kinds = _numbered([(key, *_kind(result)) for key, result in zip(settings, results, strict=True)])
    theories = _listed(kind[1:] for kind, result in zip(kinds, results, strict=True) if not isinstance(result, Runs))
    styles = _styles(theories)
    several = len(set(settings)) > 1
    slots = _listed(
        (kind if isinstance(result, Runs) else key)
        for key, kind, result in zip(settings, kinds, results, strict=True)
        if isinstance(result, Runs) or key not in simulated
    )
    names = _names(results, settings, simulated, kinds) if labels is None else list(labels)
    found = []
    for key, kind, result, name in zip(settings, kinds, results, names, strict=True):
        if isinstance(result, Runs):
            place = slots.index(kind)
            found.append(Look(COLOURS[place % len(COLOURS)], "-", MARKERS[place % len(MARKERS)], name))
            continue
        theory = theories.index(kind[1:])
        if key in simulated:
            colour = INKS[theory % len(INKS)]
        else:
            colour = COLOURS[(slots.index(key) if several else theory) % len(COLOURS)]
        found.append(Look(colour, styles[theory], "", name))
    return found


def setting(result: Result) -> Hashable:
    """What results have in common that belong together: problem, temperature and schedule of the batch."""
    problem = result.about.get("problem")
    # a user's matrix is described in other words by every method
    own = problem is None or str(result.about.get("method", "")).endswith("data")
    return f"{_temperature(result)} {_share(result)} {'' if own else problem}"


def _temperature(result: Result) -> Any:
    return (result.about.get("algorithm") or {}).get("temperature")


def _share(result: Result) -> Any:
    """The batch's schedule, if it has one: then τ is its lowest temperature."""
    share = (result.about.get("algorithm") or {}).get("batch_share")
    return None if share == {"name": "Constant"} else share


def _algorithm(result: Result) -> str:
    return (result.about.get("algorithm") or {}).get("name", "")


def _method(result: Result) -> str:
    return str(result.about.get("method", "theory"))


def _kind(result: Result) -> tuple[str, str]:
    """Which law of which method, or which runs."""
    return ("runs" if isinstance(result, Runs) else _method(result)), _algorithm(result)


def _numbered(keys: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Every key with how often it came before."""
    return [(*key, keys[:index].count(key)) for index, key in enumerate(keys)]


def _listed(keys: Any) -> list[Any]:
    return list(dict.fromkeys(keys))


def _styles(theories: list[tuple[Any, ...]]) -> list[Any]:
    """Dotted for the first law of SGF, dashed for the first of all others, then one a kind."""
    rest, styles = list(STYLES), []
    flows = 0
    for _, algorithm, _ in theories:
        if algorithm == "SGF" and not flows:
            flows += 1
            styles.append(FLOW)
        else:
            styles.append(rest.pop(0) if rest else STYLES[len(styles) % len(STYLES)])
    return styles


def _names(
    results: Sequence[Result], settings: list[Any], simulated: set[Any], kinds: list[tuple[Any, ...]]
) -> list[str]:
    differing = _differing(results)
    methods = {(kind[1], kind[2]) for kind, result in zip(kinds, results, strict=True) if not isinstance(result, Runs)}
    names = []
    for result, key, kind in zip(results, settings, kinds, strict=True):
        over = key in simulated and not isinstance(result, Runs)
        # one method for two algorithms: which law it is must be said
        law = _algorithm(result) if sum(method == kind[1] for method, _ in methods) > 1 else ""
        names.append(_name(result, kind[-1], "" if isinstance(result, Runs) else law, [] if over else differing, over))
    return names


def _name(result: Result, copy: int, law: str, differing: list[str], over: bool) -> str:
    words = _words(result)
    parts = [valued(name, _number(words[name])) for name in differing if name in words]
    tau = _temperature(result)
    if not over and isinstance(tau, int | float):
        parts.append(f"τ {'≥' if _share(result) else '='} {tau:g}")
    parts += [] if result.success else [result.status]
    suffix = "".join(f", {part}" for part in parts)
    if isinstance(result, Runs):
        dim = result.about.get("options", {}).get("dim")
        trials = f"{result.trials} trial" + ("s" if result.trials != 1 else "")
        return f"{_algorithm(result)} simulation{suffix}" + (f" ($d$ = {dim}, {trials})" if dim else "")
    again = f" ({copy + 1})" if copy else ""
    return _method(result) + (f", law of {law}" if law else "") + again + suffix


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf") else value


def _words(result: Result) -> dict[str, Any]:
    """Numbers and names of the problem by their path: 'sample_ratio', 'penalty.strength', 'loss'."""
    found: dict[str, Any] = {}

    def walk(path: str, words: Any) -> None:
        if isinstance(words, dict):
            for key, value in words.items():
                walk(path if key in ("name", "function") else f"{path}.{key}".lstrip("."), value)
        elif path and isinstance(words, int | float | str) and "source" not in path:
            found[path] = words

    walk("", {k: v for k, v in (result.about.get("problem") or {}).items() if k != "name"})
    return found


def _differing(results: Sequence[Result]) -> list[str]:
    """What of the problems differs between results that all have one; a few at most. Own data have none to name."""
    words = [_words(result) for result in results if result.about.get("method") != "simulation on data"]
    words = [found for found in words if found]
    paths = _listed(path for found in words for path in found)
    differ = [path for path in paths if len({str(found.get(path)) for found in words}) > 1]
    return sorted(differ, key=lambda path: path != "sample_ratio")[:MOST_DIFFERENCES]
