"""Critical lines: where a variable of a sweep crosses a level, or where points begin to fail."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import real, reject
from .mesh import Square, scattered
from .reading import (
    SECOND,
    UNIFORM,
    Diagram,
    Entry,
    Time,
    axis_named,
    dataset_of,
    logarithmic,
    numbers,
    read,
    spans_decades,
)

if TYPE_CHECKING:
    import xarray
    from scipy.interpolate import PchipInterpolator

VALUES = 33
"""Of the other axis, at which a line through scattered points is looked for."""
FLAT = 0.1
"""A curve is not believed to be flatter at a crossing than this share of the mean slope between the neighbours."""
JUMP = 3.0
"""A slope so many times that of both neighbours is taken for a jump."""
STEPS = 1025
"""Places along the axis at which triangles are cut."""


class Crossing(NamedTuple):
    """Where one profile crosses zero."""

    place: float
    stderr: float
    """From the errors of the values."""
    between: float
    """From the distance of the points."""
    times: int
    """How often it crosses."""
    reason: str = ""
    """Why there is no place."""


def critical_line(
    sweep: Diagram,
    variable: str,
    level: float | str,
    *,
    along: str,
    time: Time = None,
    entry: Entry = (0, 0),
    which: str = "first",
    at: ArrayLike | None = None,
) -> "xarray.Dataset":
    """Where `variable` crosses `level` along one axis, for every value of the others.

    The place is found by monotone interpolation between points, in the logarithm of an axis whose values are spaced
    geometrically. Its standard error is that of the values over the slope; its interpolation error comes from the same
    profile without every other point, and is that of a uniform law between two neighbours where these are all there is.
    variable "status", level a word such as "diverged": the boundary of the points that ended so.
    time: None or "last", a number, "best" (lowest along time). entry: of a matrix over units. which: the "first" or the
    "last" crossing. at: of points that are scattered over two axes, values of the other axis (33 by default); the
    profile is then that of the triangles between points.
    Returns a dataset over the other axes that holds `along` by name, `…_stderr`, `…_interpolation_error`, `crossings`
    (how many there are) and `reason` (why there is none: the place is then missing).
    """
    dataset = dataset_of(sweep)
    axis = axis_named("along", along, dataset)
    if which not in ("first", "last"):
        raise reject("which", repr(which), "it must be 'first' or 'last'")
    gap, error, words = _gap(dataset, variable, level, time, entry)
    if "point" in dataset.dims:
        return _through_triangles(dataset, axis, gap, error, words, which, at)
    if at is not None:
        raise reject("at", repr(at), "points on a grid have their own values; leave it out")
    x = np.asarray(dataset[axis])
    if x.dtype.kind not in "fiu" or not np.all(np.isfinite(x)) or len(x) < 2 or len(np.unique(x)) < len(x):
        raise reject("along", axis, "its values must be two or more different finite numbers")
    order, log = np.argsort(x), logarithmic(x, dataset[axis].attrs.get("scale"))
    u = np.log(x[order]) if log else x[order].astype(float)
    gap = gap.transpose(..., axis)
    rows = (np.asarray(part).reshape(-1, len(x))[:, order] for part in (gap, error.transpose(*gap.dims)))
    one = _boundary if variable == "status" else _crossing
    found = [one(u, values, errors, which) for values, errors in zip(*rows, strict=True)]
    return _dataset(axis, found, log, words, {dim: dataset[dim] for dim in gap.dims if dim != axis})


def _gap(
    dataset: "xarray.Dataset", variable: str, level: float | str, time: Time, entry: Entry
) -> tuple["xarray.DataArray", "xarray.DataArray", str]:
    """What is to cross zero, its error, and the line in words."""
    if variable == "status":
        if "status" not in dataset:
            raise reject("variable", "status", "the dataset does not say how its points ended")
        gap = (dataset["status"].astype(str) == str(level)) - 0.5
        return gap, 0.0 * gap, f"status {level}"
    number = real("level", level, why='it must be a number (or a word such as "diverged", with variable="status")')
    value, error, when = read(dataset, variable, time, entry)
    if number > 0 and spans_decades(value):
        return np.log(value) - np.log(number), error / value, f"{variable} = {number:g} {when}".strip()
    return value - number, error, f"{variable} = {number:g} {when}".strip()


def _dataset(
    axis: str, found: list[Crossing], log: bool, words: str, others: "dict[Hashable, xarray.DataArray]"
) -> "xarray.Dataset":
    """Crossings as a labelled line."""
    import xarray

    dims, shape = tuple(others), tuple(len(values) for values in others.values())
    place, stderr, between, count, reason = (np.array(column).reshape(shape) for column in zip(*found, strict=True))
    value = np.exp(place) if log else place
    scale = value if log else 1.0  # dx = x du
    parts = {
        axis: (value, f"{axis} at {words}"),
        f"{axis}_stderr": (scale * stderr, f"standard error of {axis}"),
        f"{axis}_interpolation_error": (scale * between, f"error of {axis} from the spacing of the points"),
        "crossings": (count, "how often the level is crossed"),
        "reason": (reason, "why there is no crossing"),
    }
    data = {name: (dims, values, {"long_name": meaning}) for name, (values, meaning) in parts.items()}
    data[axis][2]["scale"] = "log" if log else "linear"
    return xarray.Dataset(data, others, {"along": axis, "line": words})


def _crossing(u: np.ndarray, gap: np.ndarray, error: np.ndarray, which: str) -> Crossing:
    """Where values change sign; missing ones are left out."""
    known = np.isfinite(gap)
    u, gap, error = u[known], gap[known], error[known]
    brackets = _brackets(gap)
    if not len(brackets):
        return _none(gap, bool(np.all(known)))
    i = int(brackets[0 if which == "first" else -1])
    place = _root(u, gap, i)
    return Crossing(place, _propagated(place, u, gap, error, i), _between(place, u, gap, i), len(brackets))


def _between(place: float, u: np.ndarray, gap: np.ndarray, i: int) -> float:
    """How far a root may be off because it lies between points: what leaving out every other point says.

    Where a profile jumps, or has no neighbours, all that is known is that the root is between the two.
    """
    bound = float(UNIFORM * (u[i + 1] - u[i]))
    slopes = np.abs(np.diff(gap) / np.diff(u))
    beside = [slopes[j] for j in (i - 1, i + 1) if 0 <= j < len(slopes)]
    if slopes[i] > JUMP * max(beside, default=0.0):
        return bound
    thinner = [_nearest_root(u[start::2], gap[start::2], place) for start in (0, 1)]
    moved = [abs(other - place) for other in thinner if np.isfinite(other)]
    return min(bound, SECOND * max(moved)) if moved else bound


def _none(gap: np.ndarray, complete: bool) -> Crossing:
    """No place, and why nothing crosses."""
    side = "above" if len(gap) and gap[0] >= 0 else "below"
    reason = f"always {side} the level" + ("" if complete else " where there are values")
    return Crossing(np.nan, np.nan, np.nan, 0, reason if len(gap) else "no values")


def _brackets(gap: np.ndarray) -> np.ndarray:
    """Indices i with a change of sign between i and i + 1; zero counts as positive."""
    return np.flatnonzero((gap[1:] >= 0) != (gap[:-1] >= 0))


def _propagated(place: float, u: np.ndarray, gap: np.ndarray, error: np.ndarray, i: int) -> float:
    """The error of the values at a root over the slope there.

    Neighbours have the time step in common and often the seed: their errors are taken to move together.
    """
    width = u[i + 1] - u[i]
    share = (place - u[i]) / width
    secant = abs(gap[i + 1] - gap[i]) / width
    slope = max(abs(float(_curve(u, gap)(place, 1))), FLAT * secant)
    return float(((1 - share) * error[i] + share * error[i + 1]) / slope)


def _curve(u: np.ndarray, gap: np.ndarray) -> "PchipInterpolator":
    """The cubic through all points that is monotone between any two; with two points a straight line."""
    from scipy.interpolate import PchipInterpolator

    return PchipInterpolator(u, gap)


def _root(u: np.ndarray, gap: np.ndarray, i: int) -> float:
    """The root of that curve between points i and i + 1."""
    from scipy.optimize import brentq

    curve = _curve(u, gap)
    return float(brentq(lambda at: float(curve(at)), u[i], u[i + 1]))  # type: ignore[arg-type]


def _nearest_root(u: np.ndarray, gap: np.ndarray, to: float) -> float:
    """That root of a profile which is closest to a place; nan without one."""
    roots = [_root(u, gap, int(i)) for i in _brackets(gap)]
    return min(roots, key=lambda root: abs(root - to), default=np.nan)


def _boundary(u: np.ndarray, gap: np.ndarray, error: np.ndarray, which: str) -> Crossing:
    """Halfway between the two points where a property begins or ends to hold."""
    brackets = _brackets(gap)
    if not len(brackets):
        return Crossing(np.nan, np.nan, np.nan, 0, "all points" if gap[0] > 0 else "no point")
    i = int(brackets[0 if which == "first" else -1])
    width = u[i + 1] - u[i]
    return Crossing(float(u[i] + width / 2), 0.0, float(UNIFORM * width), len(brackets))


def _through_triangles(
    dataset: "xarray.Dataset",
    axis: str,
    gap: "xarray.DataArray",
    error: "xarray.DataArray",
    words: str,
    which: str,
    at: ArrayLike | None,
) -> "xarray.Dataset":
    """The line through scattered points, of functions that are linear on the triangles between them."""
    import xarray
    from scipy.interpolate import LinearNDInterpolator

    other, _, square, mesh = scattered(dataset, y=axis)
    places = np.linspace(0.0, 1.0, VALUES) if at is None else _places(square, at)
    u = np.linspace(0.0, 1.0, STEPS)
    corners = mesh.unit[mesh.delaunay.simplices]
    heights = np.ptp(corners[:, :, 1], axis=1)
    surfaces = [LinearNDInterpolator(mesh.delaunay, np.asarray(part, dtype=float)) for part in (gap, error)]
    found = []
    for place in places:
        line = np.stack([np.full_like(u, place), u], axis=-1)
        values, errors = (surface(line) for surface in surfaces)
        crossing = _crossing(u, values, errors, which)
        if crossing.times:
            triangle = int(mesh.delaunay.find_simplex([[place, crossing.place]])[0])
            crossing = crossing._replace(between=max(crossing.between, float(UNIFORM * heights[triangle])))
        found.append(crossing)
    span = np.log(square.high[1] / square.low[1]) if square.log[1] else square.high[1] - square.low[1]
    start = np.log(square.low[1]) if square.log[1] else square.low[1]
    found = [c._replace(place=start + span * c.place, stderr=span * c.stderr, between=span * c.between) for c in found]
    values = xarray.DataArray(square.along(0, places), dims=other, attrs=dataset[other].attrs)
    return _dataset(axis, found, square.log[1], words, {other: values})


def _places(square: Square, at: ArrayLike) -> np.ndarray:
    """Values of the first axis as places in the square."""
    values = numbers("at", at)
    low, high = square.low[0], square.high[0]
    if not np.all((values >= low) & (values <= high)):
        raise reject("at", at, f"the points lie between {low:g} and {high:g}")
    return square.unit(np.stack([values, np.full_like(values, square.low[1])], axis=-1))[:, 0]
