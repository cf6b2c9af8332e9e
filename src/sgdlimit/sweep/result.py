"""`Sweep`: all points of a sweep as labelled arrays over its axes."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import MissingError, flag, reject
from ..results.files import destination, replace, source
from ..results.storage import intact, seal
from ..results.variables import Variable, meaning, neighbours
from .points import coordinate
from .reading import error_of
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
        status, lines = self.dataset["status"], []
        for place in np.argwhere(np.isin(status.values, ("failed", "diverged"))):
            at = self.dataset[["status", "reason"]].isel(dict(zip(status.dims, place, strict=True)))
            where = {str(name): value.item() for name, value in at.coords.items() if value.ndim == 0}
            lines.append({**where, "status": at["status"].item(), "reason": at["reason"].item()})
        return lines

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write netCDF, whole or not at all."""
        target = destination("path", path, flag("overwrite", overwrite))
        import h5netcdf
        from xarray.backends import H5NetCDFStore

        memory = io.BytesIO()
        with h5netcdf.File(memory, "w") as file:
            self.dataset.dump_to_store(H5NetCDFStore(file, mode="a", autoclose=False))
        replace(target, seal(memory.getvalue()))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> "Sweep":
        """The sweep that `save` wrote to a file."""
        import xarray

        file = source("path", path)
        if not intact(file):
            raise reject("path", file, "no sweep, or a damaged one; give a file written by Sweep.save")
        dataset = xarray.load_dataset(file, engine="h5netcdf")
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
        words = {"long_name": _meaning(name)}
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


def _meaning(name: str) -> str:
    if name.endswith("_trials"):
        return f"independent runs whose mean is {name.removesuffix('_trials')}"
    return ABOUT_POINTS.get(name) or meaning(name)
