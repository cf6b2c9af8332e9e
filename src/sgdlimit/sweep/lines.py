"""Lines read off a sweep: where a variable crosses a level, where points begin to fail, the best time to stop."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

from ..errors import real, reject
from .result import Diagram, Entry, Time, axes_of, axis_named, curves, dataset_of, logarithmic, read, spans_decades

if TYPE_CHECKING:
    import xarray

FLAT = 0.1
"""A curve is not believed to be flatter at a crossing than this share of the mean slope between the neighbours."""
JUMP = 3.0
"""A slope so many times that of both neighbours is taken for a jump."""
UNIFORM = 12**-0.5
"""Standard deviation of a place that is known to lie within an interval of length 1, and no better."""
SECOND = 1 / 3
"""An error of second order is a third of what doubling the spacing adds to it."""


class Crossing(NamedTuple):
    """Where one profile crosses zero."""

    place: float = np.nan
    stderr: float = np.nan
    """From the errors of the values."""
    between: float = np.nan
    """From the distance of the points."""
    times: int = 0
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
) -> "xarray.Dataset":
    """Where `variable` crosses `level` along one axis, for every value of the others.

    The place is found by monotone interpolation between points, in the logarithm of an axis whose values are spaced
    geometrically. Its standard error is that of the values over the slope; its interpolation error comes from the same
    profile without every other point, and is that of a uniform law between two neighbours where these are all there is.
    variable "status", level a word such as "diverged": the boundary of the points that ended so.
    time: None or "last", a number, "best" (lowest along time). entry: of a matrix over units. which: the "first" or the
    "last" crossing.
    Returns a dataset over the other axes that holds `along` by name, `…_stderr`, `…_interpolation_error`, `crossings`
    (how many there are) and `reason` (why there is none: the place is then missing).
    """
    import xarray

    dataset = dataset_of(sweep)
    axis = axis_named("along", along, dataset)
    if which not in ("first", "last"):
        raise reject("which", repr(which), "it must be 'first' or 'last'")
    gap, error, words = _gap(dataset, variable, level, time, entry)
    x = np.asarray(gap[axis])
    if x.dtype.kind not in "fiu" or not np.all(np.isfinite(x)) or len(x) < 2 or len(np.unique(x)) < len(x):
        raise reject("along", axis, "its values must be two or more different finite numbers")
    order, log = np.argsort(x), logarithmic(x, gap[axis].attrs.get("scale"))
    u = np.log(x[order]) if log else x[order].astype(float)
    gap = gap.transpose(..., axis)
    rows = (np.asarray(part.transpose(*gap.dims)).reshape(-1, len(x))[:, order] for part in (gap, error))
    found = [_crossing(u, *row, which=which, jumps=variable == "status") for row in zip(*rows, strict=True)]
    others = {dim: gap[dim] for dim in gap.dims[:-1]}
    place, stderr, between, count, reason = (np.reshape(part, gap.shape[:-1]) for part in zip(*found, strict=True))
    value = np.exp(place) if log else place
    scale = value if log else 1.0  # dx = x du
    parts = {
        axis: (value, f"{axis} at {words}"),
        f"{axis}_stderr": (scale * stderr, f"standard error of {axis}"),
        f"{axis}_interpolation_error": (scale * between, f"error of {axis} from the spacing of the points"),
        "crossings": (count, "how often the level is crossed"),
        "reason": (reason, "why there is no crossing"),
    }
    data = {name: (tuple(others), values, {"long_name": meaning}) for name, (values, meaning) in parts.items()}
    data[axis][2]["scale"] = "log" if log else "linear"
    return xarray.Dataset(data, others, {"along": axis, "line": words})


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
    words = f"{variable} = {number:g} {when}".strip()
    if number > 0 and spans_decades(value):
        return np.log(value) - np.log(number), error / value, words
    return value - number, error, words


def _crossing(u: np.ndarray, gap: np.ndarray, error: np.ndarray, *, which: str, jumps: bool) -> Crossing:
    """Where values change sign, zero counted as positive; missing ones are left out. jumps: values are two, ±½."""
    known = np.isfinite(gap)
    u, gap, error = u[known], gap[known], error[known]
    roots = _roots(u, gap)
    if not roots:
        above = len(gap) and gap[0] >= 0
        if jumps:
            return Crossing(reason="all points" if above else "no point")
        where = "" if np.all(known) else " where there are values"
        return Crossing(reason=f"always {'above' if above else 'below'} the level{where}" if len(gap) else "no values")
    i, place = min(roots.items()) if which == "first" else max(roots.items())
    step = u[i + 1] - u[i]
    # The error of the values over the slope. Neighbours have the time step in common and often the seed: their errors
    # are taken to move together.
    slopes = np.abs(np.diff(gap) / np.diff(u))
    slope = max(abs(float(PchipInterpolator(u, gap)(place, 1))), FLAT * slopes[i])
    stderr = float(np.interp(place, u, error) / slope)
    # Where a profile jumps, or has no neighbours, all that is known is that the root is between the two points.
    bound = UNIFORM * step
    beside = [slopes[j] for j in (i - 1, i + 1) if 0 <= j < len(slopes)]
    thinner = [_roots(u[start::2], gap[start::2]).values() for start in (0, 1)]
    moved = [min(abs(root - place) for root in found) for found in thinner if found]
    if moved and not jumps and slopes[i] <= JUMP * max(beside, default=0.0):
        bound = min(bound, SECOND * max(moved))
    return Crossing(place, stderr, float(bound), len(roots))


def _roots(u: np.ndarray, gap: np.ndarray) -> dict[int, float]:
    """By i, the root between points i and i + 1 of the cubic through all points that is monotone between any two."""
    brackets = np.flatnonzero((gap[1:] >= 0) != (gap[:-1] >= 0))
    curve = PchipInterpolator(u, gap) if len(brackets) else None
    return {int(i): float(brentq(lambda at: float(curve(at)), u[i], u[i + 1])) for i in brackets}  # type: ignore


def best_time(sweep: Diagram, variable: str = "test_error", *, entry: Entry = (0, 0)) -> "xarray.Dataset":
    """The time at which `variable` is lowest, and its value there, for every point of a sweep.

    Both from the parabola through the lowest recorded value and its two neighbours. `best_time_stderr` is half the
    span of times whose value exceeds the lowest by no more than its error: any of them is as good, as far as is known;
    `best_time_interpolation_error` comes from the same curve without every other time.
    Returns a dataset over the axes of the sweep, with `status`: that of the point, or "lowest at the last time" where
    the curve still falls (then train longer), or "lowest at the start" where training never helps.
    """
    import xarray

    dataset = dataset_of(sweep)
    value, error = curves(dataset, variable, entry)
    if "time" not in value.dims or value.sizes["time"] < 3:
        raise reject("sweep", f"no curves of {variable}", "three or more times are needed")
    value = value.transpose(..., "time")
    times, dims, shape = np.asarray(value["time"], dtype=float), value.dims[:-1], value.shape[:-1]
    rows = (np.asarray(part).reshape(-1, len(times)) for part in (value, error.transpose(*value.dims)))
    *found, where = zip(*(_stop(times, *row) for row in zip(*rows, strict=True)), strict=True)
    meanings = {
        "best_time": f"time at which {variable} is lowest",
        "best_time_stderr": "half the span of times that are as good, within the error",
        "best_time_interpolation_error": "error from the spacing of recorded times",
        variable: f"lowest {variable} along time",
        f"{variable}_stderr": f"error of {variable}",
    }
    data = {
        name: (dims, np.reshape(column, shape), {"long_name": meaning})
        for (name, meaning), column in zip(meanings.items(), found, strict=True)
    }
    end = np.reshape(where, shape)
    status = np.asarray(dataset["status"].transpose(*dims).astype(str)) if "status" in dataset else "complete"
    words = "how the point ended, or at which end of its curve the lowest value lies"
    data["status"] = dims, np.where((end != "") & (status == "complete"), end, status), {"long_name": words}
    coords = {name: dataset[name] for name in (*axes_of(dataset), *dims) if name in dataset.coords}
    best = xarray.Dataset(data, coords)
    return best.assign(reason=dataset["reason"]) if "reason" in dataset else best


def _stop(t: np.ndarray, value: np.ndarray, error: np.ndarray) -> tuple[float, float, float, float, float, str]:
    """The lowest point of one curve: the fields of `best_time` in their order, and at which end it lies, if at one.

    What is missing of the curve is left out.
    """
    known = np.isfinite(value)
    t, value, error = t[known], value[known], error[known]
    if len(t) < 3:
        return np.nan, np.nan, np.nan, np.nan, np.nan, ""
    i = int(np.argmin(value))
    span = float(np.ptp(t[~(value > value[i] + error[i])])) / 2  # an error that is not known allows all
    if i in (0, len(t) - 1):
        where = "lowest at the start" if i == 0 else "lowest at the last time"
        return t[i], span, 0.0, value[i], error[i], where
    time, low, bend = _vertex(t[i - 1 : i + 2], value[i - 1 : i + 2])
    between = UNIFORM * (t[i + 1] - t[i - 1]) / 2
    if 2 <= i < len(t) - 2:
        between = min(between, SECOND * abs(_vertex(t[i - 2 : i + 3 : 2], value[i - 2 : i + 3 : 2])[0] - time))
    # Within the neighbours the curve is the parabola, which is within the error for |t − time| < √(error/bend).
    span = max(span, float(np.sqrt(error[i] / bend)) if bend > 0 else 0.0)
    return time, span, between, low, float(np.hypot(error[i], value[i] - low)), ""


def _vertex(t: np.ndarray, v: np.ndarray) -> tuple[float, float, float]:
    """Lowest point of the parabola through three points, the middle one the lowest, and its factor of t²."""
    left, right = np.diff(v) / np.diff(t)
    bend = float(right - left) / (t[2] - t[0])
    if bend <= 0:  # all three alike
        return float(t[1]), float(v[1]), 0.0
    slope = left + bend * (t[1] - t[0])  # at the middle point
    return float(t[1] - slope / (2 * bend)), float(v[1] - slope**2 / (4 * bend)), bend
