"""Points scattered over two axes, joined to triangles in a square where both axes count alike."""

from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from ..errors import reject
from .reading import axes_of, logarithmic, numbers

if TYPE_CHECKING:
    import xarray

FLAT = 1e-10
"""Triangles of a smaller share of the square are rounding, not area."""


class Square(NamedTuple):
    """Two axes mapped to [0, 1], by their logarithms where they are looked at so."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    log: tuple[bool, ...]

    def unit(self, values: ArrayLike) -> np.ndarray:
        """(points, 2) of values → the same in the square."""
        columns = zip(np.asarray(values, dtype=float).T, *self, strict=True)
        places = [
            np.log(column / low) / np.log(high / low) if log else (column - low) / (high - low)
            for column, low, high, log in columns
        ]
        return np.stack(places, axis=-1).clip(0.0, 1.0)

    def values(self, unit: np.ndarray) -> np.ndarray:
        """(points, 2) of places in the square → values of the axes there."""
        return np.stack([self.along(axis, column) for axis, column in enumerate(unit.T)], axis=-1)

    def along(self, axis: int, unit: ArrayLike) -> np.ndarray:
        """Values of one axis at places of [0, 1]."""
        low, high, at = self.low[axis], self.high[axis], np.asarray(unit)
        return (low * (high / low) ** at if self.log[axis] else low + at * (high - low)).clip(low, high)


@final
class Mesh:
    """Points of a square and the Delaunay triangles between them."""

    def __init__(self, unit: np.ndarray) -> None:
        from scipy.spatial import Delaunay

        self.unit, self.delaunay = unit, Delaunay(unit)
        corners = self.delaunay.simplices
        areas = np.abs(np.linalg.det(np.diff(unit[corners], axis=1))) / 2
        self.triangles = corners[areas > FLAT]
        """(triangles, 3): indices of their corners, slivers on a straight side left out."""
        self.areas = areas[areas > FLAT]
        """(triangles,): their shares of the square."""

    def longest(self) -> np.ndarray:
        """(triangles, 2): the ends of the longest side of each, the lesser index first."""
        sides = np.sort(self.triangles[:, [[1, 2], [2, 0], [0, 1]]], axis=2)
        lengths = np.linalg.norm(self.unit[sides[..., 0]] - self.unit[sides[..., 1]], axis=-1)
        # Equal but for rounding: the first side, on every machine.
        place = np.argmax(lengths > lengths.max(axis=1, keepdims=True) - 1e-9, axis=1)
        return sides[np.arange(len(sides)), place]


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
    square = Square(tuple(low), tuple(high), log)
    return x, y, square, Mesh(square.unit(values))
