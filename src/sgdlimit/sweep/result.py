"""`Sweep`: all points of a sweep as labelled arrays over its axes."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import MissingError, flag, reject
from ..results.files import destination, replace, source
from ..results.storage import intact, seal
from ..results.variables import meaning, neighbours
from .kept import COMPARED
from .points import Plan, coordinate
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

    `dataset` has the axes of the sweep in the order given (or one axis `point`), then `time` and the units of a
    variable. Beside every x stand its errors, as in a `Solution`; `x_trials` are the runs of a simulation. `status`,
    `reason`, `seconds` and `seed` tell of every point; where it failed, or after it diverged, there is NaN.
    """

    datasets: Mapping[str, "xarray.Dataset"]
    """By kind, in the order asked for."""
    comparison: "xarray.Dataset | None" = None
    """The first kind against each other one: `p_value`, `sigma` and `verdict` of every curve and of all together."""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> "xarray.Dataset":
        """The dataset of the first kind."""
        return next(iter(self.datasets.values()))

    def __getitem__(self, kind: str) -> "xarray.Dataset":
        """The dataset of one kind: 'solve', 'least_squares', 'online' or 'simulate'."""
        if kind not in self.datasets:
            raise reject("kind", repr(kind), f"the sweep has {', '.join(self.datasets)}", MissingError)
        return self.datasets[kind]

    def curve(self, name: str, kind: str | None = None) -> tuple["xarray.DataArray", "xarray.DataArray"]:
        """A variable over the sweep, and everything that is uncertain about it together, as in `Solution.curve`."""
        found = self.dataset if kind is None else self[kind]
        if name not in found:
            raise reject("name", repr(name), neighbours(name, [str(n) for n in found.data_vars]), MissingError)
        return found[name], error_of(found, name)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Points that failed or diverged, of any kind: values along the axes, kind, status and reason."""
        lines = []
        for kind, found in self.datasets.items():
            status = found["status"]
            for place in np.argwhere(np.isin(status.values, ("failed", "diverged"))):
                at = found[["status", "reason"]].isel(dict(zip(status.dims, place, strict=True)))
                where = {str(name): value.item() for name, value in at.coords.items() if value.ndim == 0}
                lines.append({**where, "kind": kind, "status": at["status"].item(), "reason": at["reason"].item()})
        return lines

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write netCDF, whole or not at all: a group for every kind, and `comparison`."""
        target = destination("path", path, flag("overwrite", overwrite))
        groups = dict(self.datasets) | ({} if self.comparison is None else {"comparison": self.comparison})
        import h5netcdf
        from xarray.backends import H5NetCDFStore

        memory = io.BytesIO()
        with h5netcdf.File(memory, "w") as file:
            for group, dataset in groups.items():
                dataset.dump_to_store(H5NetCDFStore(file, group=group, mode="a", autoclose=False))
            file.attrs["title"] = str(self.about.get("title", "a sweep by sgdlimit"))
            file.attrs["kinds"] = " ".join(groups)
        replace(target, seal(memory.getvalue()))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> "Sweep":
        """The sweep that `save` wrote to a file."""
        import h5py
        import xarray

        file = source("path", path)
        if not intact(file):
            raise reject("path", file, "no sweep, or a damaged one; give a file written by Sweep.save")
        with h5py.File(file) as opened:
            groups = [name for name in opened.attrs.get("kinds", "").split() if name in opened]
            title = opened.attrs.get("title", "")
        if not groups:
            raise reject("path", file, "it holds no sweep; a Solution or Runs is read by sl.load")
        found = {name: xarray.load_dataset(file, group=name, engine="h5netcdf") for name in groups}
        about = {name: str(words) for name, words in found[groups[0]].attrs.items() if name != "kind"}
        return cls(found, found.pop("comparison", None), about | {"title": str(title)})

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {size}" for name, size in self.dataset["status"].sizes.items())
        lines = [f"<Sweep over ({sizes})>"]
        for kind, found in self.datasets.items():
            words, counts = np.unique(found["status"].values, return_counts=True)
            said = ", ".join(f"{count} {word}" for word, count in zip(words, counts, strict=True))
            lines.append(f"  {kind}: {said}; {float(found['seconds'].sum()):.3g} s of work")
        if self.comparison is not None:
            verdict = self.comparison["verdict"].sel(variable="all")
            for other in verdict["against"].values:
                words, counts = np.unique(verdict.sel(against=other).values, return_counts=True)
                said = ", ".join(f"{count} {word or 'not compared'}" for word, count in zip(words, counts, strict=True))
                lines.append(f"  {next(iter(self.datasets))} against {other}: {said}")
        lines += [f"  {line['status']}: {line['reason']}" for line in self.failed[:3]]
        return "\n".join(lines)


def assemble(plan: Plan, tasks: Sequence[Task], outcomes: Mapping[str, Outcome], about: Mapping[str, Any]) -> Sweep:
    """All points, each where it belongs."""
    import xarray

    found = [outcomes.get(task.key) for task in tasks]
    kinds = [call.kind for call in tasks[0].calls]
    axes, coords = _axes(plan)
    if not tasks[0].final:
        coords["time"] = ("time", tasks[0].times)
    groups: dict[str, dict[str, Any]] = {kind: {} for kind in (*kinds, "comparison")}
    names = dict.fromkeys(name for outcome in found if outcome is not None for name in outcome.arrays)
    for name in sorted(names, key=lambda name: name.partition("/")[2] in ABOUT_POINTS):  # curves first
        group, _, short = name.partition("/")
        further, array = _gather(name, found)
        words = {"long_name": _meaning(short)}
        groups[group][short] = ((*axes, *further), array.reshape((*plan.shape, *array.shape[1:])), words)
    if "seed" not in plan.names:
        seeds = np.asarray([task.seed for task in tasks]).reshape(plan.shape)
        for kind in kinds:
            groups[kind]["seed"] = (axes, seeds, {"long_name": ABOUT_POINTS["seed"]})
    datasets = {kind: _units(xarray.Dataset(groups[kind], coords, {"kind": kind, **about})) for kind in kinds}
    if len(kinds) == 1:
        return Sweep(datasets, None, about)
    compared = {name: coords[name] for name in coords if name != "time"}
    compared |= {"against": ("against", kinds[1:]), "variable": ("variable", list(COMPARED))}
    return Sweep(datasets, xarray.Dataset(groups["comparison"], compared, dict(about)), about)


def _gather(name: str, outcomes: Sequence[Outcome | None]) -> tuple[tuple[str, ...], np.ndarray]:
    """Further axes of a variable, and its values at all points: as large as the largest needs, elsewhere NaN or ''."""
    present = {row: outcome for row, outcome in enumerate(outcomes) if outcome is not None and name in outcome.arrays}
    arrays = {row: outcome.arrays[name] for row, outcome in present.items()}
    words = any(array.dtype.kind == "U" for array in arrays.values())
    shape = np.max([array.shape for array in arrays.values()], axis=0).astype(int)
    out = np.full((len(outcomes), *shape), "" if words else np.nan, dtype=object if words else float)
    for row, array in arrays.items():
        out[(row, *map(slice, array.shape))] = array
    return next(iter(present.values())).dims[name], out.astype(str) if words else out


def _axes(plan: Plan) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of the axes and the values along them."""
    if plan.axes is not None:
        return plan.names, {name: (name, coordinate(values)) for name, values in plan.axes.items()}
    columns = {name: coordinate(point[name] for point in plan.points) for name in plan.names}
    return ("point",), {name: ("point", values) for name, values in columns.items()}


def _units(dataset: "xarray.Dataset") -> "xarray.Dataset":
    """Numbers of units and trials along their axes."""
    free = [axis for axis in dataset.dims if axis not in dataset.coords and axis != "point"]
    return dataset.assign_coords({axis: np.arange(dataset.sizes[axis]) for axis in free})


def _meaning(name: str) -> str:
    if name.endswith("_trials"):
        return f"independent runs whose mean is {name.removesuffix('_trials')}"
    return ABOUT_POINTS.get(name) or meaning(name)
