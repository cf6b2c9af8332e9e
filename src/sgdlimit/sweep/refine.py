"""Adaptive refinement of a diagram over two axes: new points where the variable changes fast, or begins to fail."""

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..algorithms import Algorithm
from ..errors import SweepWarning, real, reject, whole
from ..problem import Problem
from ..progress import Progress
from .mesh import Mesh, Square
from .reading import SPREAD, Entry, Time, read, spans_decades

if TYPE_CHECKING:
    from .result import Sweep

EXPLORE = 0.02
"""Part of the whole range that every triangle is taken to change by at least, so that large ones are looked into."""
FAILED = ("failed", "diverged")
"""How points ended whose boundary is refined, whatever values they have."""
DIGITS = 6
"""Of the coordinates of a point: readable, and the same on every machine."""

Evaluate = Callable[[np.ndarray], Sequence[np.ndarray]]
"""(n, 2) values of the axes → the variable and its error at these points."""


class Sampled(NamedTuple):
    """Points of a square and what was found there."""

    unit: np.ndarray
    value: np.ndarray
    """Missing where a point failed."""
    error: np.ndarray


def refine(
    problem: Problem,
    algorithm: Algorithm,
    *,
    over: Mapping[str, Sequence[float | str]],
    variable: str = "test_error",
    points: int = 100,
    time: Time = None,
    entry: Entry = (0, 0),
    start: int = 5,
    batch: int = 8,
    store: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> "Sweep":
    """A sweep over two axes whose points are dense where `variable` changes fast. Returns a `Sweep` along `point`.

    over: two axes with their ends, {"sample_ratio": (0.5, 8.0), "temperature": (0.1, 2.0)}; a range that spans a
    factor of four or more is divided in logarithms, and ("linear", low, high) or ("log", low, high) says otherwise.
    It begins with a grid of `start` by `start` points; then, `batch` points at a time, the triangles whose area times
    change is largest are halved at their longest side, until there are `points`. The change is that beyond the errors,
    relative to the whole range (in logarithms where values span decades). A point that failed or diverged next to one
    that did not counts as a change by the whole range.
    time, entry: as in `sl.critical_line`. store, progress, options: as in `sl.sweep`. With a store an interrupted
    refinement goes on where it was, and more points extend it: the same points are chosen, whatever computes them.
    """
    from .run import sweep

    if not isinstance(over, Mapping) or len(over) != 2:
        given = f"{len(over)} axes" if isinstance(over, Mapping) else repr(over)
        why = 'give two axes with their ends, {"sample_ratio": (0.5, 8), "temperature": (0.1, 2)}'
        raise reject("over", given, why)
    names, square = tuple(over), Square(*zip(*(_ends(*axis) for axis in over.items()), strict=True))
    points = whole("points", points, least=4, why="it must be a whole number ≥ 4")
    why = "it must be a whole number from 2 to 64, points along each axis"
    start = whole("start", start, least=2, most=64, why=why)
    batch = whole("batch", batch, least=1, why="it must be a whole number ≥ 1, points computed together")
    if not isinstance(variable, str):
        raise reject("variable", repr(variable), "it must be the name of a variable, such as 'test_error'")

    with tempfile.TemporaryDirectory() as scratch, Progress("refine", points, progress) as bar:
        # Without a store of the user's the points wait in one of our own until the sweep over all of them reads them.
        kept = Path(scratch) / "points" if store is None else store

        def computed(chosen: np.ndarray) -> "Sweep":
            listed = [dict(zip(names, map(float, point), strict=True)) for point in chosen]
            return sweep(problem, algorithm, points=listed, store=kept, progress=False, **options)

        def evaluate(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            with warnings.catch_warnings(action="ignore", category=SweepWarning):  # the last sweep says it again
                found = computed(chosen)
            bar.advance(len(chosen))
            value, error, _ = read(found, variable, time, entry)
            if time != "best":  # what is lowest along time may come before a point diverged
                value = value.where(~found.dataset["status"].isin(FAILED))
            return np.asarray(value, dtype=float), np.asarray(error, dtype=float)

        result = computed(refined(evaluate, square, points, start, batch))
    for dataset in result.datasets.values():
        for name, log in zip(names, square.log, strict=True):
            dataset[name].attrs["scale"] = "log" if log else "linear"
    return result


def refined(evaluate: Evaluate, square: Square, points: int, start: int, batch: int) -> np.ndarray:
    """(points, 2): values of the axes at which `evaluate` was called, in this order."""
    side = np.linspace(0.0, 1.0, start)
    new = _rounded(square, np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2))[:points]
    chosen, found = np.empty((0, 2)), np.empty((2, 0))
    while len(new):
        found = np.concatenate([found, evaluate(new)], axis=1)
        chosen = np.concatenate([chosen, new])
        if len(chosen) >= points:
            break
        halves = next_points(Sampled(square.unit(chosen), *found), batch)
        # The batch is chosen whole and then cut, so that more points extend fewer.
        new = _rounded(square, halves)[: points - len(chosen)]
        new = new[~(new[:, None] == chosen[None]).all(axis=2).any(axis=1)]
    return chosen


def next_points(sampled: Sampled, count: int) -> np.ndarray:
    """Up to (count, 2) places in the square: middles of the longest sides of the triangles with the largest loss."""
    mesh = Mesh(sampled.unit)
    loss = mesh.areas * (EXPLORE + change(sampled, mesh.triangles))
    # Losses equal but for rounding are in the order of their corners, on every machine.
    corners = np.sort(mesh.triangles, axis=1)
    order = np.lexsort((*corners.T[::-1], -np.round(loss / max(loss.max(), 1e-300), 9)))
    sides = dict.fromkeys(map(tuple, mesh.longest()[order].tolist()))
    return sampled.unit[list(sides)[:count]].mean(axis=1)


def change(sampled: Sampled, triangles: np.ndarray) -> np.ndarray:
    """How much the variable changes over every triangle beyond its errors, relative to the whole range.

    1 where some corners failed and some did not; 0 where all did.
    """
    _, value, error = sampled
    if spans_decades(value):
        value, error = np.log(value), error / value
    finite = np.isfinite(value)
    whole_range = float(np.ptp(value[finite])) if finite.any() else 0.0
    uncertain = np.where(np.isfinite(error), error, 0.0)[triangles].max(axis=1)
    beyond = np.maximum(np.ptp(value[triangles], axis=1) - 2 * uncertain, 0.0) / (whole_range or 1.0)
    known = finite[triangles].sum(axis=1)
    return np.select([known == 3, known > 0], [beyond, 1.0], 0.0)


def _rounded(square: Square, unit: np.ndarray) -> np.ndarray:
    """Values of the axes to a few digits, kept within their ends."""
    digits = np.array([float(f"{value:.{DIGITS}g}") for value in square.values(unit).flat])
    return np.clip(digits.reshape(-1, 2), square.low, square.high)


def _ends(name: object, given: object) -> tuple[float, float, bool]:
    """Low, high, and whether the axis is divided in logarithms."""
    argument, why = f"over[{name}]", 'give two ends, (low, high), or three words, ("log", low, high)'
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) not in (2, 3):
        raise reject(argument, repr(given), why)
    scale = given[0] if len(given) == 3 else None
    if scale not in (None, "log", "linear"):
        raise reject(argument, repr(given), why)
    low, high = (real(argument, end, why=f"{why}; both must be finite numbers") for end in given[-2:])
    if not low < high:
        raise reject(argument, repr(given), "the first end must be below the second")
    if scale == "log" and low <= 0:
        raise reject(argument, repr(given), "a logarithmic range needs positive ends")
    return low, high, scale == "log" or (scale is None and low > 0 and high >= SPREAD * low)
