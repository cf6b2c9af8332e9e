"""The best time to stop, and what is reached there."""

from typing import TYPE_CHECKING

import numpy as np

from ..errors import reject
from .reading import SECOND, UNIFORM, Diagram, Entry, axes_of, curves, dataset_of

if TYPE_CHECKING:
    import xarray

Stop = tuple[float, float, float, float, float, str]
"""Of one curve, the fields of `best_time` in their order, and at which end the lowest value lies, if at one."""


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


def _stop(t: np.ndarray, value: np.ndarray, error: np.ndarray) -> Stop:
    """The lowest point of one curve; what is missing of it is left out."""
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
