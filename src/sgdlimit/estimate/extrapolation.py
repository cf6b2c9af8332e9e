"""From grids of steps γ, 2γ, 4γ on the same noise to the limit of small steps, with an estimate of what is left.

Euler's error is c₁γ + c₂γ² + …. T₁ = 2f(γ) − f(2γ) has no first order, T₂ = (8f(γ) − 6f(2γ) + f(4γ))/3 no second. The
value is T₂. Each order takes away about the same share of what the one before it left, so that |T₂ − T₁|²/|T₁ − f| is
an estimate of what is still left; it is taken as no less than half of |T₂ − T₁|, and no more than all of it. All
replica by replica. Differences of grids are smooth in time: between their common times they are interpolated.
"""

from typing import NamedTuple

import numpy as np

from ..results.variables import over_replicas


class Limit(NamedTuple):
    """Replicas of the value, (replicas, times, …), of one order less, and of the finest grid itself."""

    best: np.ndarray
    lower: np.ndarray
    plain: np.ndarray


def onto(gap: np.ndarray, own: np.ndarray, times: np.ndarray, straight: bool = False) -> np.ndarray:
    """Return a difference of grids, known on its own times, at others: monotone between points, no overshoot; or
    straight."""
    place = np.minimum(np.searchsorted(own, times), len(own) - 1)
    if np.array_equal(own[place], times):
        return gap[:, place]
    if len(own) < 2:
        return np.repeat(gap, len(times), axis=1)
    inside = np.clip(times, own[0], own[-1])
    right = np.clip(np.searchsorted(own, inside), 1, len(own) - 1)
    left, shape = right - 1, (-1, *[1] * (gap.ndim - 2))
    width = np.diff(own)
    u, h = (part.reshape(shape) for part in ((inside - own[left]) / width[left], width[left]))
    line = (1 - u) * gap[:, left] + u * gap[:, right]
    if straight or len(own) == 2:
        return line
    (rising, falling), chord = _slopes(gap, width.reshape(shape)), (gap[:, right] - gap[:, left]) / h
    bend = (1 - u) * (rising[:, left] - chord) - u * (falling[:, left] - chord)
    return line + h * u * (1 - u) * bend


OTHER = 1.5
"""Ratio of neighbouring steps from which on a difference of grids has a kink between them: it grows as the steps."""


def _slopes(values: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a monotone cubic through the values along axis 1 (Fritsch and Butland), where every interval begins and ends:
    zero where neighbouring chords differ in sign, else their weighted harmonic mean; at both ends, and on either side
    of a kink, of the parabola through the next three points, kept monotone.

    As `scipy.interpolate.PchipInterpolator`, whose import takes longer than a small solution.
    """
    chord = np.diff(values, axis=1) / width
    before, after, a, b = chord[:, :-1], chord[:, 1:], width[:-1], width[1:]
    same = before * after > 0
    one = np.where(same, before, 1.0), np.where(same, after, 1.0)
    inner = np.where(same, 3 * (a + b) / ((2 * b + a) / one[0] + (b + 2 * a) / one[1]), 0.0)

    def end(near: np.ndarray, far: np.ndarray, h: np.ndarray, g: np.ndarray) -> np.ndarray:
        slope = ((2 * h + g) * near - h * far) / (h + g)
        slope = np.where((near * far <= 0) & (np.abs(slope) > 3 * np.abs(near)), 3 * near, slope)
        return np.where(slope * near > 0, slope, 0.0)

    kink = np.maximum(a, b) >= OTHER * np.minimum(a, b)
    none = np.ones_like(kink[:1])
    first, last = end(before, after, a, b), end(after, before, b, a)  # where there is no kink within three points
    later = np.concatenate([first[:, 1:], after[:, -1:]], axis=1)
    earlier = np.concatenate([before[:, :1], last[:, :-1]], axis=1)
    begins = np.where(np.concatenate([kink[1:], none]), after, later)
    ends = np.where(np.concatenate([none, kink[:-1]]), before, earlier)
    begins, ends = np.where(kink, begins, inner), np.where(kink, ends, inner)
    first, last = np.where(kink[:1], before[:, :1], first[:, :1]), np.where(kink[-1:], after[:, -1:], last[:, -1:])
    return np.concatenate([first, begins], axis=1), np.concatenate([ends, last], axis=1)


def limit(values: list[np.ndarray], grids: list[np.ndarray], times: np.ndarray, at: np.ndarray) -> Limit:
    """Return the limit of values of one to three grids, (replicas, its times, …) each, at `times` = grids[0][at].

    With one grid nothing is known about its steps: both are its values.
    """
    plain = values[0][:, at]
    if len(values) == 1:
        return Limit(plain, plain, plain)
    gap = _common(values[0], values[1])
    own = grids[1][: gap.shape[1]]
    first, straight = onto(gap, own, times), onto(gap, own, times, straight=True)
    if len(values) == 2:
        return Limit(plain + first, plain, plain)
    gap = _common(values[1], values[2])
    second = onto(gap, grids[2][: gap.shape[1]], times)
    # of the lower order corrections are carried straight: what the interpolation leaves is counted as well
    return Limit(plain + (5 * first - second) / 3, plain + straight, plain)


def _common(fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """f(γ) − f(2γ) at the times of the coarser grid that both reached."""
    count = min((fine.shape[1] + 1) // 2, coarse.shape[1])
    return fine[:, : 2 * count : 2] - coarse[:, :count]


LEAST = 0.5
"""Share of the last correction that is always counted as left."""


def step_error(
    found: Limit, extrapolate: bool = True, time_axes: int = 1, early: np.ndarray | None = None
) -> np.ndarray:
    """Return what is left of the steps' error, on average over replicas and nearby times: corrections may cross zero.

    Without extrapolation the value is that of the finest grid, and all corrections together are its error; so too at
    `early` times, where the coarsest grid has taken too few steps for its order to show.
    """

    def size(gap: np.ndarray) -> np.ndarray:
        # the noise of a mean correction is in the standard error already: its square is taken off
        mean = gap.mean(axis=0) ** 2
        square = np.maximum(mean - gap.var(axis=0, ddof=1) / len(gap), LEAST**2 * mean)
        for axis in range(time_axes):
            square = nearby(square.swapaxes(0, axis)).swapaxes(0, axis)
        return np.sqrt(np.clip(square, 0.0, None))

    whole = size(found.best - found.plain)
    if not extrapolate:
        return whole
    last, first = size(found.best - found.lower), size(found.lower - found.plain)
    if np.any(first):
        last = last * np.clip(last / np.where(first > 0, first, np.inf), LEAST, 1.0)
    if early is not None:
        for axis in range(time_axes):
            here = early.reshape(*[1] * axis, -1, *[1] * (last.ndim - 1 - axis))
            last = np.where(here, np.maximum(last, whole), last)
    return last


def standing_out(found: Limit, extrapolate: bool, error: np.ndarray) -> np.ndarray:
    """Return what of the steps' error stands out from the noise of the corrections, which more samples take away."""
    _, noise = over_replicas(found.best - (found.lower if extrapolate else found.plain))
    unit = np.max(error, initial=1e-30)  # squares of what diverges would overflow
    return unit * np.sqrt(np.maximum((error / unit) ** 2 - (2 * noise / unit) ** 2, 0.0))


def nearby(values: np.ndarray) -> np.ndarray:
    """Return means over a window along the first axis, which is shorter at the ends."""
    reach = 1 + len(values) // 24
    total = np.cumsum(np.concatenate([np.zeros_like(values[:1]), values]), axis=0)
    place = np.arange(len(values))
    low, high = np.maximum(place - reach, 0), np.minimum(place + reach + 1, len(values))
    return (total[high] - total[low]) / (high - low).reshape(-1, *[1] * (values.ndim - 1))
