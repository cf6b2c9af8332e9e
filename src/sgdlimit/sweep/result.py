"""`Sweep`: all points of a sweep as labelled arrays over its axes."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import MissingError, flag, reject
from ..results.files import destination, replace, source
from ..results.storage import intact, seal
from ..results.variables import Variable, meaning, neighbours
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
        def counted(words: "xarray.DataArray") -> str:
            return ", ".join(f"{count} {word or 'not compared'}" for word, count in Counter(words.values.flat).items())

        sizes = ", ".join(f"{name}: {size}" for name, size in self.dataset["status"].sizes.items())
        lines = [f"<Sweep over ({sizes})>"]
        for kind, found in self.datasets.items():
            lines.append(f"  {kind}: {counted(found['status'])}; {float(found['seconds'].sum()):.3g} s of work")
        for one in (
            () if self.comparison is None else self.comparison["verdict"].sel(variable="all").transpose("against", ...)
        ):
            lines.append(f"  {next(iter(self.datasets))} against {one['against'].item()}: {counted(one)}")
        return "\n".join([*lines, *(f"  {line['status']}: {line['reason']}" for line in self.failed[:3])])


def assemble(plan: Plan, tasks: Sequence[Task], outcomes: Mapping[str, Outcome], about: Mapping[str, Any]) -> Sweep:
    """All points, each where it belongs."""
    import xarray

    found = [outcomes[task.key].arrays if task.key in outcomes else {} for task in tasks]
    kinds = list(tasks[0].calls)
    if plan.axes is not None:
        axes, shape = plan.names, tuple(map(len, plan.axes.values()))
        coords = {name: (name, coordinate(values)) for name, values in plan.axes.items()}
    else:
        axes, shape = ("point",), (len(tasks),)
        coords = {name: ("point", coordinate(point[name] for point in plan.points)) for name in plan.names}
    recorded = {} if tasks[0].final else {"time": tasks[0].times}
    compared = {"against": kinds[1:], "variable": list(COMPARED)}
    groups: dict[str, dict[str, Any]] = {kind: {} for kind in (*kinds, "comparison")}
    for name in dict.fromkeys(name for arrays in found for name in arrays):
        group, _, short = name.partition("/")
        inner, array = _gather(name, found)
        words = {"long_name": _meaning(short)}
        groups[group][short] = ((*axes, *inner), array.reshape((*shape, *array.shape[1:])), words)
    if "seed" not in plan.names:
        seeds = np.asarray([task.seed for task in tasks]).reshape(shape)
        for kind in kinds:
            groups[kind]["seed"] = (axes, seeds, {"long_name": ABOUT_POINTS["seed"]})

    def labelled(group: str, further: dict[str, Any], **attrs: Any) -> xarray.Dataset:
        curves_first = sorted(groups[group].items(), key=lambda item: item[0] in ABOUT_POINTS)
        dataset = xarray.Dataset(dict(curves_first), {**coords, **further}, attrs)
        if tasks[0].final and "time" in dataset.dims:
            dataset = dataset.isel(time=0)
        free = [axis for axis in dataset.dims if axis not in dataset.coords and axis != "point"]
        return dataset.assign_coords({axis: np.arange(dataset.sizes[axis]) for axis in free})

    datasets = {kind: labelled(kind, recorded, kind=kind, **about) for kind in kinds}
    return Sweep(datasets, labelled("comparison", compared, **about) if len(kinds) > 1 else None, about)


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
