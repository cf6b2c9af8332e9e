"""What is kept of the results of a point: curves at the times of the sweep, and how the results compare."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..comparison import compare
from ..errors import InputError
from ..results import Result, Runs
from ..results.variables import BESIDE, COMPARABLE

COMPARED = (*COMPARABLE, "all")
"""What a comparison has a p-value of: each curve, and all together."""

Labelled = tuple[str, tuple[str, ...], np.ndarray]
"""Name, names of the axes, values."""


def curves(result: Result, times: np.ndarray, final: bool, own_steps: bool) -> Iterator[Labelled]:
    """Curves with what stands beside them, at these times, or at the last alone.

    Copies of a theory (`x_replicas`) are not kept; those of a simulation are, as `x_trials`. Where an algorithm has
    steps of its own, `recorded_time` is that of the nearest one.
    """
    places = _places(times, result)[-1:] if final else _places(times, result)
    if own_steps:
        yield _at(places, "recorded_time", ("time",), result.time, final)
    for name in result.curves:
        if isinstance(result, Runs):
            axes = result.variables[name].dims
            mean, error = result.curve(name)
            yield _at(places, name, axes[1:], mean, final)
            yield _at(places, f"{name}_stderr", axes[1:], error, final)
            yield _at(places, f"{name}_trials", axes, result[name], final)
        else:
            for ending in ("", *BESIDE):
                found = result.variables.get(name + ending)
                if found is not None and ending != "_replicas":
                    yield _at(places, name + ending, *found, final)


def _places(times: np.ndarray, result: Result) -> np.ndarray:
    """Where each time is recorded; −1 beyond a divergence."""
    there = result.time
    if not len(there):
        return np.full(len(times), -1)
    places = np.abs(times[:, None] - there).argmin(axis=1)
    beyond = (result.status == "diverged") & (times > there[-1] * (1 + 1e-9))
    return np.where(beyond, -1, places)


def _at(places: np.ndarray, name: str, axes: tuple[str, ...], values: np.ndarray, final: bool) -> Labelled:
    """Values at these places along time, NaN where there is none; without the axis if `final`."""
    along = axes.index("time")
    before, after = values.shape[:along], values.shape[along + 1 :]
    found = np.full((*before, len(places), *after), np.nan)
    reached = places >= 0
    found[(slice(None),) * along + (reached,)] = np.take(values, places[reached], axis=along)
    if final:
        return name, tuple(axis for axis in axes if axis != "time"), np.take(found, 0, axis=along)
    return name, axes, found


def compared(kinds: Sequence[str], results: Mapping[str, Result]) -> dict[str, np.ndarray]:
    """The first kind against every other: p-values, largest deviations as normal deviates, verdicts.

    Axes: against, variable. What could not be compared has no verdict.
    """
    first, *others = kinds
    shape = (len(others), len(COMPARED))
    p_value, sigma, verdict = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, "", dtype="U16")
    for row, other in enumerate(others):
        if first not in results or other not in results:
            continue
        try:
            report = compare(results[first], results[other])
        except InputError:  # one of them diverged at once, or has a single trial
            continue
        for column, name in enumerate(COMPARED):
            part = report if name == "all" else report.variables.get(name)
            if part is not None:
                p_value[row, column], sigma[row, column] = part.p_value, part.sigma
                verdict[row, column] = part.verdict
    return {"p_value": p_value, "sigma": sigma, "verdict": verdict}
