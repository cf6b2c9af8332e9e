"""From grids of steps γ, 2γ, 4γ on the same noise to the limit of small steps, with an estimate of what is left.

Euler's error is c₁γ + c₂γ² + …. T₁ = 2f(γ) − f(2γ) has no first order, T₂ = (8f(γ) − 6f(2γ) + f(4γ))/3 no second. The
value is T₂, and its distance to T₁ the estimate of the error: T₁ has it, T₂ less. All replica by replica.
Differences of grids are smooth in time: between their common times they are interpolated.
"""

from typing import NamedTuple

import numpy as np


class Limit(NamedTuple):
    """Replicas of the value, (replicas, times, …), and of one order less: their distance is the step error."""

    best: np.ndarray
    lower: np.ndarray


def onto(gap: np.ndarray, own: np.ndarray, times: np.ndarray) -> np.ndarray:
    """A difference of grids on its own times, carried to others: monotone between points, no overshoot."""
    from scipy.interpolate import PchipInterpolator

    if len(own) == len(times) and np.array_equal(own, times):
        return gap
    if len(own) < 2:
        return np.repeat(gap, len(times), axis=1)
    return PchipInterpolator(own, gap, axis=1)(np.clip(times, own[0], own[-1]))


def limit(values: list[np.ndarray], grids: list[np.ndarray], times: np.ndarray, at: np.ndarray) -> Limit:
    """Values of one, two or three grids, each (replicas, its times, …), at `times`, which are grids[0][at].

    With one grid nothing is known about its steps: both are its values.
    """
    plain = values[0][:, at]
    if len(values) == 1:
        return Limit(plain, plain)
    gap = _common(values[0], values[1])
    first = onto(gap, grids[1][: gap.shape[1]], times)
    if len(values) == 2:
        return Limit(plain + first, plain)
    gap = _common(values[1], values[2])
    second = onto(gap, grids[2][: gap.shape[1]], times)
    return Limit(plain + (5 * first - second) / 3, plain + first)


def _common(fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """f(γ) − f(2γ) at the times of the coarser grid that both reached."""
    count = min((fine.shape[1] + 1) // 2, coarse.shape[1])
    return fine[:, : 2 * count : 2] - coarse[:, :count]


def step_error(found: Limit, time_axes: int = 1) -> np.ndarray:
    """The distance on average over replicas, the largest nearby: where the two happen to cross it is not zero."""
    gap = np.abs((found.best - found.lower).mean(axis=0))
    for axis in range(time_axes):
        gap = np.moveaxis(_widest(np.moveaxis(gap, axis, 0)), 0, axis)
    return gap


def _widest(gap: np.ndarray) -> np.ndarray:
    """The largest nearby, along the first axis."""
    out = gap.copy()
    for shift in range(1, 2 + len(gap) // 24):
        out[shift:] = np.maximum(out[shift:], gap[:-shift])
        out[:-shift] = np.maximum(out[:-shift], gap[shift:])
    return out
