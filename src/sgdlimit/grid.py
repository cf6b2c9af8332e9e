"""Increasing times: uniform, geometric, or the user's own."""

from typing import Any

import numpy as np

from .errors import real, reject, whole

DEFAULT_POINTS = 51  # recorded times when the user names none: enough for a smooth curve, few enough to cost nothing


def linear(t_max: float, points: int = DEFAULT_POINTS) -> np.ndarray:
    """Equally spaced times from 0 to `t_max`, both included."""
    t_max = real("t_max", t_max, above=0, why="it must be a positive time (t = ηk/d)")
    points = whole("points", points, least=2, why="a grid needs at least 2 points")
    return np.linspace(0.0, t_max, points)


def geometric(t_max: float, first: float, points: int = DEFAULT_POINTS) -> np.ndarray:
    """Time 0, then `points − 1` times from `first` to `t_max` in constant ratio."""
    t_max = real("t_max", t_max, above=0, why="it must be a positive time (t = ηk/d)")
    first = real("first", first, above=0, why="it must be positive and below t_max")
    if first >= t_max:
        raise reject("first", first, f"it must be below t_max = {t_max:g}")
    points = whole("points", points, least=3, why="a geometric grid needs at least 3 points")
    return np.concatenate([[0.0], np.geomspace(first, t_max, points - 1)])


def increasing(argument: str, times: Any) -> np.ndarray:
    """The user's own times, checked."""
    try:
        grid = np.atleast_1d(np.asarray(times))
        grid = grid.astype(np.float64) if grid.dtype.kind in "iuf" else None
    except ValueError:
        grid = None
    if grid is None:
        raise reject(argument, repr(times), "it must be an increasing array of numbers")
    if grid.ndim != 1 or grid.size < 1 or not np.all(np.isfinite(grid)):
        raise reject(argument, f"shape {grid.shape}", "it must be a one-dimensional array of finite numbers")
    if grid[0] < 0 or np.any(np.diff(grid) <= 0):
        raise reject(argument, grid, "it must increase strictly and start at 0 or later; sort it with np.unique")
    return grid


def resolve(t_max: Any = None, times: Any = None) -> np.ndarray:
    """The times to record: the user's `times`, or a linear grid up to `t_max`."""
    if times is None:
        if t_max is None:
            raise reject("t_max", None, "give t_max (a positive time) or times (an increasing array)")
        return linear(t_max)
    grid = increasing("times", times)
    if t_max is not None:
        t_max = real("t_max", t_max, above=0, why="it must be a positive time (t = ηk/d)")
        if grid[-1] > t_max:
            raise reject("times", grid[-1], f"the last time lies beyond t_max = {t_max:g}; drop t_max or raise it")
    if grid[-1] <= 0:
        raise reject("times", grid, "the last time must be positive")
    return grid
