"""`Sweep`: all points of a sweep as labelled arrays over its axes."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import MissingError, flag, reject
from ..results.files import destination, replace, source
from ..results.statistics import total_error
from ..results.storage import intact, seal
from ..results.variables import SYSTEMATIC, meaning, neighbours
from .kept import COMPARED
from .packs import Block
from .points import Plan, coordinate
from .tasks import Task

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
        """Of the first kind."""
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
        parts = [found[name + part] for part in ("_stderr", *SYSTEMATIC) if name + part in found]
        return found[name], total_error(found[name] * 0.0, *parts)

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
        """Read what `save` wrote."""
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


def assemble(plan: Plan, tasks: Sequence[Task], blocks: Iterable[Block], about: Mapping[str, Any]) -> Sweep:
    """All points, each where it belongs."""
    import xarray

    where: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        where.setdefault(task.key, []).append(index)
    values, dims = _gather(len(tasks), where, list(blocks))
    kinds = [call.kind for call in tasks[0].calls]
    axes, coords = _axes(plan)
    if not tasks[0].final:
        coords["time"] = ("time", tasks[0].times)
    groups: dict[str, dict[str, Any]] = {kind: {} for kind in (*kinds, "comparison")}
    for name, array in values.items():
        group, _, short = name.partition("/")
        words = {"long_name": _meaning(short)}
        groups[group][short] = ((*axes, *dims[name]), array.reshape((*plan.shape, *array.shape[1:])), words)
    if "seed" not in plan.names:
        seeds = np.asarray([task.seed for task in tasks]).reshape(plan.shape)
        for kind in kinds:
            groups[kind]["seed"] = (axes, seeds, {"long_name": ABOUT_POINTS["seed"]})
    datasets = {kind: xarray.Dataset(_sorted(groups[kind]), coords, {"kind": kind, **about}) for kind in kinds}
    datasets = {kind: _units(found) for kind, found in datasets.items()}
    if len(kinds) == 1:
        return Sweep(datasets, None, about)
    compared = {name: coords[name] for name in coords if name != "time"}
    compared |= {"against": ("against", kinds[1:]), "variable": ("variable", list(COMPARED))}
    return Sweep(datasets, xarray.Dataset(groups["comparison"], compared, dict(about)), about)


def _gather(
    count: int, where: Mapping[str, list[int]], blocks: list[Block]
) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """Arrays over all points, as large as the largest needs; elsewhere NaN, or no word."""
    shapes: dict[str, tuple[int, ...]] = {}
    dims: dict[str, tuple[str, ...]] = {}
    text: set[str] = set()
    for block in blocks:
        for name, array in block.arrays.items():
            known = shapes.get(name)
            shape = array.shape[1:]
            shapes[name] = shape if known is None else tuple(map(max, known, shape))
            dims[name] = block.dims[name]
            if array.dtype.kind == "U":
                text.add(name)
    out = {
        name: np.full((count, *shape), "", dtype=object) if name in text else np.full((count, *shape), np.nan)
        for name, shape in shapes.items()
    }
    for block in blocks:
        pairs = [(place, row) for row, key in enumerate(block.keys) for place in where.get(key, ())]
        if pairs:
            places, rows = (list(part) for part in zip(*pairs, strict=True))
            for name, array in block.arrays.items():
                inside = tuple(slice(size) for size in array.shape[1:])
                out[name][(places, *inside)] = array[rows]
    return {name: array.astype(str) if name in text else array for name, array in out.items()}, dims


def _axes(plan: Plan) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of the axes and the values along them."""
    if plan.axes is not None:
        return plan.names, {name: (name, coordinate(values)) for name, values in plan.axes.items()}
    columns = {name: coordinate(point[name] for point in plan.points) for name in plan.names}
    return ("point",), {name: ("point", values) for name, values in columns.items()}


def _sorted(variables: dict[str, Any]) -> dict[str, Any]:
    """Curves first, then what is known of the points."""
    last = [name for name in variables if name in ABOUT_POINTS]
    return {name: variables[name] for name in [*(n for n in variables if n not in last), *last]}


def _units(dataset: "xarray.Dataset") -> "xarray.Dataset":
    """Numbers of units and trials along their axes."""
    free = [axis for axis in dataset.dims if axis not in dataset.coords and axis != "point"]
    return dataset.assign_coords({axis: np.arange(dataset.sizes[axis]) for axis in free})


def _meaning(name: str) -> str:
    if name.endswith("_trials"):
        return f"independent runs whose mean is {name.removesuffix('_trials')}"
    return ABOUT_POINTS.get(name) or meaning(name)
