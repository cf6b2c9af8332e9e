"""What is kept of the results of a point: curves at the times of the sweep, and how the results compare."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..comparison import compare
from ..errors import InputError
from ..results import Result, Runs
from ..results.variables import BESIDE, COMPARABLE, Variable

COMPARED = (*COMPARABLE, "all")
"""What a comparison has a p-value of: each curve, and all together."""


def curves(result: Result, times: np.ndarray, own_steps: bool) -> Iterator[tuple[str, Variable]]:
    """Curves with what stands beside them, at these times; NaN beyond a divergence.

    Copies of a theory (`x_replicas`) are not kept; those of a simulation are, as `x_trials`. Where an algorithm has
    steps of its own, `recorded_time` is that of the nearest one.
    """
    there = result.time
    reached = np.full(len(times), len(there) > 0)
    if result.status == "diverged" and len(there):
        reached = times <= there[-1] * (1 + 1e-9)
    places = np.abs(times[reached, None] - there).argmin(axis=1) if reached.any() else np.empty(0, dtype=int)

    def at(axes: tuple[str, ...], values: np.ndarray) -> Variable:
        along = axes.index("time")
        found = np.full((*values.shape[:along], len(times), *values.shape[along + 1 :]), np.nan)
        found[(slice(None),) * along + (reached,)] = np.take(values, places, axis=along)
        return Variable(axes, found)

    if own_steps:
        yield "recorded_time", at(("time",), there)
    for name in result.curves:
        axes = result.variables[name].dims
        if isinstance(result, Runs):
            mean, error = result.curve(name)
            yield name, at(axes[1:], mean)
            yield f"{name}_stderr", at(axes[1:], error)
            yield f"{name}_trials", at(axes, result[name])
        else:
            for beside in (name, *(name + ending for ending in BESIDE if ending != "_replicas")):
                if beside in result.variables:
                    yield beside, at(*result.variables[beside])


def compared(kinds: Sequence[str], results: Mapping[str, Result]) -> dict[str, Variable]:
    """The first kind against every other: p-values, largest deviations as normal deviates, verdicts.

    What could not be compared has no verdict.
    """
    first, *others = kinds
    shape = (len(others), len(COMPARED))
    found = {"p_value": np.full(shape, np.nan), "sigma": np.full(shape, np.nan), "verdict": np.full(shape, "", "U16")}
    for row, other in enumerate(others):
        if not {first, other} <= results.keys():
            continue
        try:
            report = compare(results[first], results[other])
        except InputError:  # one of them diverged at once, or has a single trial
            continue
        for column, name in enumerate(COMPARED):
            part = report if name == "all" else report.variables.get(name)
            if part is not None:
                for what, values in found.items():
                    values[row, column] = getattr(part, what)
    return {name: Variable(("against", "variable"), values) for name, values in found.items()}
