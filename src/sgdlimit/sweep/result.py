"""`Sweep`: all points of a sweep as labelled arrays over its axes; one number a point, read off it with its error."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union, final

import numpy as np
from numpy.typing import ArrayLike

from ..errors import MissingError, flag, instance, real, reject, whole
from ..results.files import destination, replace, source
from ..results.storage import intact, written
from ..results.storage import read as read_file
from ..results.variables import AXES, SYSTEMATIC, Variable, meaning, neighbours, split, total_error
from .points import coordinate
from .tasks import Outcome, Task

if TYPE_CHECKING:
    import xarray

ABOUT_POINTS = {
    "status": "how the computation of the point ended",
    "reason": "why, in words",
    "seconds": "that it took",
    "seed": "of the point: the single call with it gives the same numbers",
    "recorded_time": "t of the update nearest to the time",
}
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


@final
@dataclass(frozen=True, repr=False, eq=False)
class Sweep:
    """What a sweep found.

    `dataset` has the axes of the sweep in the order given, then `time` and the units of a variable. Beside every x
    stand its errors, as in a `Solution`; `x_trials` are the runs of a simulation. `status`, `reason`, `seconds` and
    `seed` tell of every point; where it failed, or after it diverged, there is NaN.
    """

    dataset: "xarray.Dataset"

    @property
    def about(self) -> Mapping[str, Any]:
        """Where it comes from, in words: kind, problem, algorithm, options, versions."""
        return dict(self.dataset.attrs)

    def curve(self, name: str) -> tuple["xarray.DataArray", "xarray.DataArray"]:
        """A variable over the sweep, and everything that is uncertain about it together, as in `Solution.curve`."""
        if name not in self.dataset:
            names = [str(n) for n in self.dataset.data_vars]
            raise reject("name", repr(name), neighbours(name, names), MissingError)
        return self.dataset[name], error_of(self.dataset, name)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Points that failed or diverged: values along the axes, status and reason."""
        told: Any = self.dataset[["status", "reason"]].to_dataframe().reset_index()
        return told[told["status"].isin(["failed", "diverged"])].to_dict("records")

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write netCDF, whole or not at all."""
        target = destination("path", path, flag("overwrite", overwrite))
        replace(target, written(self.dataset))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> "Sweep":
        """The sweep that `save` wrote to a file."""
        file = source("path", path)
        if not intact(file):
            raise reject("path", file, "no sweep, or a damaged one; give a file written by Sweep.save")
        dataset = read_file(file)
        if dataset.attrs.get("sgdlimit_kind") != "sweep":
            raise reject("path", file, "it holds no sweep; a Solution or Runs is read by sl.load")
        return cls(dataset)

    def __repr__(self) -> str:
        status = self.dataset["status"]
        sizes = ", ".join(f"{name}: {size}" for name, size in status.sizes.items())
        ended = ", ".join(f"{count} {word}" for word, count in Counter(status.values.flat).items())
        work = f"{ended}; {float(self.dataset['seconds'].sum()):.3g} s of work"
        lines = [f"<Sweep over ({sizes})>", f"  {self.dataset.attrs.get('kind', 'points')}: {work}"]
        return "\n".join([*lines, *(f"  {line['status']}: {line['reason']}" for line in self.failed[:3])])


def assemble(
    axes: Mapping[str, Sequence[object]],
    tasks: Sequence[Task],
    outcomes: Mapping[str, Outcome],
    about: Mapping[str, Any],
) -> Sweep:
    """All points, each where it belongs."""
    import xarray

    found = [outcomes[task.key].arrays if task.key in outcomes else {} for task in tasks]
    shape = tuple(map(len, axes.values()))
    coords: dict[str, Any] = {name: (name, coordinate(values)) for name, values in axes.items()}
    variables: dict[str, Any] = {}
    for name in dict.fromkeys(name for arrays in found for name in arrays):
        inner, array = _gather(name, found)
        runs_of = f"independent runs whose mean is {name.removesuffix('_trials')}" if name.endswith("_trials") else ""
        words = {"long_name": runs_of or ABOUT_POINTS.get(name) or meaning(name)}
        variables[name] = ((*axes, *inner), array.reshape((*shape, *array.shape[1:])), words)
    if "seed" not in axes:
        seeds = np.asarray([task.seed for task in tasks]).reshape(shape)
        variables["seed"] = (tuple(axes), seeds, {"long_name": ABOUT_POINTS["seed"]})
    coords["time"] = tasks[0].times
    curves_first = sorted(variables.items(), key=lambda item: item[0] in ABOUT_POINTS)
    dataset = xarray.Dataset(dict(curves_first), coords, about)
    free = [axis for axis in dataset.dims if axis not in dataset.coords]
    return Sweep(dataset.assign_coords({axis: np.arange(dataset.sizes[axis]) for axis in free}))


def _gather(name: str, points: Sequence[Mapping[str, Variable]]) -> tuple[tuple[str, ...], np.ndarray]:
    """Further axes of a variable, and its values at all points: as large as the largest needs, elsewhere NaN or ''."""
    present = {row: arrays[name] for row, arrays in enumerate(points) if name in arrays}
    words = any(found.values.dtype.kind == "U" for found in present.values())
    shape = np.max([found.values.shape for found in present.values()], axis=0).astype(int)
    out = np.full((len(points), *shape), "" if words else np.nan, dtype=object if words else float)
    for row, found in present.items():
        out[(row, *map(slice, found.values.shape))] = found.values
    return next(iter(present.values())).dims, out.astype(str) if words else out


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


def read(
    sweep: Diagram, variable: str, time: Time = None, entry: Entry = (0, 0)
) -> tuple["xarray.DataArray", "xarray.DataArray", str]:
    """One number a point: the variable at the last time, at its best, or at a number between recorded times.

    Value, total error, and at which time, for a label: 'at t = 4'; empty if there is none.
    """
    value, error = curves(dataset_of(sweep), variable, entry)
    if "time" not in value.dims:
        if time not in (None, "last"):
            raise reject("time", repr(time), f"the sweep keeps {variable} at one time only; leave it out")
        return value, error, ""
    if isinstance(time, str) and time == "best":
        found = value.notnull().any("time")
        place = value.fillna(np.inf).argmin("time")
        lowest, its_error = (part.isel(time=place).drop_vars("time").where(found) for part in (value, error))
        return lowest, its_error, "lowest along time"
    if isinstance(time, str) and time != "last":
        raise reject("time", repr(time), 'it must be a number, "last" or "best" (lowest along time)')
    times = np.asarray(value["time"], dtype=float)
    first, at = times[0], times[-1]
    if time not in (None, "last"):
        at = real("time", time, least=first, most=at, why=f"it must lie within {first:g} … {at:g}")
    words, place = f"at t = {at:g}", np.flatnonzero(times == at)
    if len(place):  # between two times both of them count
        return value.isel(time=place[0], drop=True), error.isel(time=place[0], drop=True), words
    return value.interp(time=at).drop_vars("time"), error.interp(time=at).drop_vars("time"), words


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


def spans_decades(values: ArrayLike) -> bool:
    """Whether numbers are all positive and differ by factors of more than a hundred."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return bool(finite.size and finite.min() > 0 and finite.max() > DECADES * finite.min())
