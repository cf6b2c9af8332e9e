"""The best time to stop, and what is reached there."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import reject
from .reading import SECOND, UNIFORM, Diagram, Entry, axes_of, curves, dataset_of

if TYPE_CHECKING:
    import xarray


class Stop(NamedTuple):
    """The lowest point of one curve."""

    time: float
    span: float
    """Half the stretch of times that are as good, within the error of the value."""
    between: float
    """Error of the time from the distance of recorded times."""
    value: float
    error: float
    where: str = ""
    """At which end of the curve it lies, if at one."""


NOWHERE = Stop(np.nan, np.nan, np.nan, np.nan, np.nan)


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
        raise reject("sweep", f"no curves of {variable}", 'three or more times are needed; sweep with keep="curves"')
    value = value.transpose(..., "time")
    times, dims, shape = np.asarray(value["time"], dtype=float), value.dims[:-1], value.shape[:-1]
    rows = (np.asarray(part).reshape(-1, len(times)) for part in (value, error.transpose(*value.dims)))
    stops = [_stop(times, *row) for row in zip(*rows, strict=True)]
    found = {name: np.array([getattr(stop, name) for stop in stops]).reshape(shape) for name in Stop._fields}
    status = np.full(shape, "complete")
    if "status" in dataset:
        status = np.asarray(dataset["status"].transpose(*dims).astype(str))
    status = np.where((found["where"] != "") & (status == "complete"), found["where"], status)

    def labelled(values: np.ndarray, meaning: str) -> tuple[tuple[Hashable, ...], np.ndarray, dict[str, str]]:
        return dims, values, {"long_name": meaning}

    best = xarray.Dataset(
        {
            "best_time": labelled(found["time"], f"time at which {variable} is lowest"),
            "best_time_stderr": labelled(found["span"], "half the span of times that are as good, within the error"),
            "best_time_interpolation_error": labelled(found["between"], "error from the spacing of recorded times"),
            variable: labelled(found["value"], f"lowest {variable} along time"),
            f"{variable}_stderr": labelled(found["error"], f"error of {variable}"),
            "status": labelled(status, "how the point ended, or at which end of its curve the lowest value lies"),
        },
        {name: dataset[name] for name in (*axes_of(dataset), *dims) if name in dataset.coords},
    )
    return best.assign(reason=dataset["reason"]) if "reason" in dataset else best


def _stop(t: np.ndarray, value: np.ndarray, error: np.ndarray) -> Stop:
    """The lowest point of one curve; what is missing of it is left out."""
    known = np.isfinite(value)
    t, value, error = t[known], value[known], error[known]
    if len(t) < 3:
        return NOWHERE
    i = int(np.argmin(value))
    if i in (0, len(t) - 1):
        span = _span(t, value, value[i] + error[i])
        return Stop(t[i], span, 0.0, value[i], error[i], "lowest at the start" if i == 0 else "lowest at the last time")
    time, low, bend = _vertex(t[i - 1 : i + 2], value[i - 1 : i + 2])
    between = UNIFORM * (t[i + 1] - t[i - 1]) / 2
    if 2 <= i < len(t) - 2:
        between = min(between, SECOND * abs(_vertex(t[i - 2 : i + 3 : 2], value[i - 2 : i + 3 : 2])[0] - time))
    # Within the neighbours the curve is the parabola, which is within the error for |t − time| < √(error/bend).
    span = max(_span(t, value, low + error[i]), float(np.sqrt(error[i] / bend)) if bend > 0 else 0.0)
    return Stop(time, span, between, low, float(np.hypot(error[i], value[i] - low)))


def _vertex(t: np.ndarray, v: np.ndarray) -> tuple[float, float, float]:
    """Lowest point of the parabola through three points, the middle one the lowest, and its factor of t²."""
    left, right = np.diff(v) / np.diff(t)
    bend = float(right - left) / (t[2] - t[0])
    if bend <= 0:  # all three alike
        return float(t[1]), float(v[1]), 0.0
    slope = left + bend * (t[1] - t[0])  # at the middle point
    return float(t[1] - slope / (2 * bend)), float(v[1] - slope**2 / (4 * bend)), bend


def _span(t: np.ndarray, value: np.ndarray, below: float) -> float:
    """Half the stretch around the lowest value on which the curve stays below a bound."""
    lowest = int(np.argmin(value))
    ends = []
    for step in (-1, 1):
        i = lowest
        while 0 <= i + step < len(t) and value[i + step] <= below:
            i += step
        end = t[i]
        if 0 <= i + step < len(t):
            end += max(below - value[i], 0.0) / (value[i + step] - value[i]) * (t[i + step] - t[i])
        ends.append(end)
    return float(ends[1] - ends[0]) / 2
