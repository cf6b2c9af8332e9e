"""Points scattered over two axes, joined to triangles in a square where both axes count alike."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import ArrayLike

from ..errors import reject
from .reading import axes_of, logarithmic, numbers

if TYPE_CHECKING:
    import xarray
    from scipy.spatial import Delaunay

FLAT = 1e-10
"""Triangles of a smaller share of the square are rounding, not area."""


@final
@dataclass(frozen=True)
class Square:
    """Two axes mapped to [0, 1], by their logarithms where they are looked at so."""

    low: tuple[float, float]
    high: tuple[float, float]
    log: tuple[bool, bool]

    def unit(self, values: ArrayLike) -> np.ndarray:
        """(points, 2) of values → the same in the square."""
        columns = np.asarray(values, dtype=float).T
        return np.stack([self._unit(axis, column) for axis, column in enumerate(columns)], axis=-1)

    def _unit(self, axis: int, column: np.ndarray) -> np.ndarray:
        low, high = self.low[axis], self.high[axis]
        if self.log[axis]:
            column, low, high = np.log(column), np.log(low), np.log(high)
        return (column - low) / (high - low)

    def values(self, unit: np.ndarray) -> np.ndarray:
        """(points, 2) of places in the square → values of the axes there."""
        return np.stack([self.along(axis, column) for axis, column in enumerate(np.asarray(unit).T)], axis=-1)

    def along(self, axis: int, unit: ArrayLike) -> np.ndarray:
        """Values of one axis at places of [0, 1]."""
        low, high = self.low[axis], self.high[axis]
        if self.log[axis]:
            return np.exp(np.log(low) + np.asarray(unit) * (np.log(high) - np.log(low)))
        return low + np.asarray(unit) * (high - low)


@final
@dataclass(frozen=True, eq=False)
class Mesh:
    """Points of a square and the Delaunay triangles between them."""

    unit: np.ndarray

    @cached_property
    def delaunay(self) -> "Delaunay":
        """The triangulation that scipy makes of the points."""
        from scipy.spatial import Delaunay

        return Delaunay(self.unit)

    @cached_property
    def triangles(self) -> np.ndarray:
        """(triangles, 3): indices of their corners, slivers on a straight side left out."""
        corners = self.delaunay.simplices
        return corners[_areas(self.unit[corners]) > FLAT]

    @cached_property
    def areas(self) -> np.ndarray:
        """(triangles,): their shares of the square."""
        return _areas(self.unit[self.triangles])

    @cached_property
    def longest(self) -> np.ndarray:
        """(triangles, 2): the ends of the longest side of each, the lesser index first."""
        corners = self.triangles
        sides = np.stack([corners[:, [1, 2]], corners[:, [2, 0]], corners[:, [0, 1]]], axis=1)
        lengths = np.linalg.norm(self.unit[sides[..., 0]] - self.unit[sides[..., 1]], axis=-1)
        # Equal but for rounding: the first side, on every machine.
        place = np.argmax(lengths > lengths.max(axis=1, keepdims=True) - 1e-9, axis=1)
        return np.sort(sides[np.arange(len(corners)), place], axis=1)


def _areas(corners: np.ndarray) -> np.ndarray:
    a, b = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    return np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]) / 2


def scattered(dataset: "xarray.Dataset", x: str | None = None, y: str | None = None) -> tuple[str, str, Square, Mesh]:
    """The two axes of a dataset along `point`, in their order or the one asked for, and its points in their square."""
    axes = axes_of(dataset)
    if len(axes) != 2:
        raise reject("sweep", f"points over {len(axes)} axes ({', '.join(axes)})", "triangles need points over two")
    x = x or next(axis for axis in axes if axis != y)
    y = y or next(axis for axis in axes if axis != x)
    values = np.stack([numbers(axis, dataset[axis]) for axis in (x, y)], axis=-1)
    low, high = values.min(axis=0), values.max(axis=0)
    if len(np.unique(values, axis=0)) < 3 or np.any(high <= low):
        raise reject("sweep", f"{len(values)} points on a line", "give three or more points that span both axes")
    log = tuple(logarithmic(dataset[axis], dataset[axis].attrs.get("scale")) for axis in (x, y))
    square = Square(tuple(low), tuple(high), log)  # type: ignore[arg-type]
    return x, y, square, Mesh(square.unit(values))
