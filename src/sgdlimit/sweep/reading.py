"""One number a point, with its error: a variable of a sweep at one time, or at its best time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike

from ..errors import instance, real, reject, whole
from ..results.statistics import total_error
from ..results.variables import AXES, SYSTEMATIC, neighbours, split

if TYPE_CHECKING:
    import xarray

    from .result import Sweep

Diagram: TypeAlias = Union["Sweep", "xarray.Dataset"]
"""A `Sweep`, or one of its datasets."""
Time: TypeAlias = float | str | None
"""At which time a variable is read: a number, "last" (as None is) or "best", where it is lowest."""
Entry: TypeAlias = int | Sequence[int]
"""Of a variable over units: which of them."""
UNITS = ("student", "student_", "teacher")
ERRORS = ("_stderr", *SYSTEMATIC, "_interpolation_error")
"""Endings of the errors that add up, in squares."""
DECADES = 100.0
"""Positive values whose largest and least differ by more are looked at in logarithms."""
SPREAD = 4.0
"""The same of an axis, if its values are also spaced more evenly in logarithms."""
UNIFORM = 12**-0.5
"""Standard deviation of a place that is known to lie within an interval of length 1, and no better."""
SECOND = 1 / 3
"""An error of second order is a third of what doubling the spacing adds to it."""


class Reading(NamedTuple):
    """A variable over the axes of a sweep."""

    value: "xarray.DataArray"
    error: "xarray.DataArray"
    """Everything that is uncertain, together; zero where nothing is."""
    words: str
    """At which time, for a label: 'at t = 4'; empty if there is none."""


def dataset_of(sweep: Diagram) -> "xarray.Dataset":
    """The dataset of a `Sweep`, or the one that was given."""
    import xarray

    dataset: Any = getattr(sweep, "dataset", sweep)
    instance("sweep", dataset, xarray.Dataset, "a Sweep, as sl.sweep returns, or its dataset")
    return dataset


def axes_of(dataset: "xarray.Dataset") -> tuple[str, ...]:
    """The axes of the sweep: dimensions of the points."""
    return tuple(str(dim) for dim in dataset.dims if dim not in AXES)


def axis_named(argument: str, name: str, dataset: "xarray.Dataset") -> str:
    """An axis of the sweep, or an error that names those there are."""
    axes = axes_of(dataset)
    if name not in axes:
        raise reject(argument, repr(name), f"it must be an axis of the sweep; {neighbours(name, axes)}")
    return str(name)


def curves(
    dataset: "xarray.Dataset", variable: str, entry: Entry = (0, 0)
) -> tuple["xarray.DataArray", "xarray.DataArray"]:
    """Value and total error over axes and time; of a matrix over units one entry."""
    held = [str(name) for name in dataset.data_vars if not split(str(name))[1] and dataset[name].dtype.kind in "fiu"]
    if variable not in held:
        raise reject("variable", repr(variable), f"the sweep does not hold it as numbers; {neighbours(variable, held)}")
    value, error = dataset[variable].astype(float), error_of(dataset, variable)
    further = [str(dim) for dim in value.dims if dim in AXES and dim not in ("time", *UNITS)]
    if further:
        raise reject("variable", variable, f"it has {' and '.join(further)} beside the axes of the sweep; reduce it")
    units = [str(dim) for dim in value.dims if dim in UNITS]
    chosen = entry if isinstance(entry, tuple | list) else (entry,)
    if len(chosen) < len(units):
        raise reject("entry", repr(entry), f"give one number for each of {', '.join(units)}")
    at = {}
    for dim, unit in zip(units, chosen, strict=False):
        most = value.sizes[dim] - 1
        at[dim] = whole("entry", unit, least=0, most=most, why=f"{dim} goes from 0 to {most}")
    return value.isel(at), error.isel(at)


def error_of(dataset: "xarray.Dataset", variable: str) -> "xarray.DataArray":
    """Those errors of a variable that the dataset holds, added up."""
    parts = [dataset[variable + ending] for ending in ERRORS if variable + ending in dataset]
    return total_error(0.0 * dataset[variable].astype(float), *parts)


def read(sweep: Diagram, variable: str, time: Time = None, entry: Entry = (0, 0)) -> Reading:
    """One number a point: the variable at the last time, at its best, or at a number between recorded times."""
    value, error = curves(dataset_of(sweep), variable, entry)
    if "time" not in value.dims:
        if time not in (None, "last"):
            raise reject("time", repr(time), f"the sweep keeps {variable} at one time only; leave it out")
        return Reading(value, error, "")
    if isinstance(time, str) and time == "best":
        found = value.notnull().any("time")
        place = value.fillna(np.inf).argmin("time")
        lowest, its_error = (part.isel(time=place).drop_vars("time").where(found) for part in (value, error))
        return Reading(lowest, its_error, "lowest along time")
    if isinstance(time, str) and time != "last":
        raise reject("time", repr(time), 'it must be a number, "last" or "best" (lowest along time)')
    times = np.asarray(value["time"], dtype=float)
    first, at = times[0], times[-1]
    if time not in (None, "last"):
        at = real("time", time, least=first, most=at, why=f"it must lie within {first:g} … {at:g}")
    words, place = f"at t = {at:g}", np.flatnonzero(times == at)
    if len(place):  # between two times both of them count
        return Reading(value.isel(time=place[0], drop=True), error.isel(time=place[0], drop=True), words)
    return Reading(value.interp(time=at).drop_vars("time"), error.interp(time=at).drop_vars("time"), words)


def logarithmic(values: ArrayLike, scale: str | None = None) -> bool:
    """Whether an axis is better looked at in logarithms: positive, wide, and more evenly spaced there.

    scale: "log" or "linear" where that is known already.
    """
    values = np.asarray(values)
    if scale in ("log", "linear") or values.dtype.kind not in "fiu":
        return scale == "log"
    values = np.unique(values)
    if len(values) < 3 or not np.all(np.isfinite(values)) or values[0] <= 0 or values[-1] < SPREAD * values[0]:
        return False
    gaps, ratios = np.diff(values), np.diff(np.log(values))
    return bool(ratios.std() / ratios.mean() < gaps.std() / gaps.mean())


def numbers(argument: str, values: ArrayLike) -> np.ndarray:
    """Finite numbers in a row, or an error."""
    try:
        found = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError):
        raise reject(argument, repr(values), "it must be numbers") from None
    if found.ndim != 1 or not np.all(np.isfinite(found)):
        raise reject(argument, repr(values), "it must be finite numbers")
    return found


def spans_decades(values: ArrayLike) -> bool:
    """Whether numbers are all positive and differ by factors of more than a hundred."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return bool(finite.size and finite.min() > 0 and finite.max() > DECADES * finite.min())
