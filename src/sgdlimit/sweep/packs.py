"""The files of a store: loose points, and packs of many."""

import io
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..results.storage import intact
from .tasks import Outcome, numerical_version


class Block(NamedTuple):
    """Points whose arrays have equal names and shapes; the first axis of every array runs over the points."""

    keys: list[str]
    arrays: dict[str, np.ndarray]
    dims: dict[str, tuple[str, ...]]
    """Names of the further axes."""


def block(key: str, outcome: "Outcome | Loose") -> Block:
    """One point alone."""
    return Block([key], {name: array[None] for name, array in outcome.arrays.items()}, outcome.dims)


class Loose(NamedTuple):
    """A loose point."""

    arrays: dict[str, np.ndarray]
    dims: dict[str, tuple[str, ...]]
    labels: dict[str, Any]
    inputs: dict[str, Any]

    @property
    def layout(self) -> Any:
        """Points of one layout can be packed together."""
        shapes = tuple((n, a.shape, a.dtype.kind, self.dims[n]) for n, a in sorted(self.arrays.items()))
        return shapes, tuple((name, isinstance(value, str)) for name, value in self.labels.items())


def write_loose(inputs: dict[str, Any], labels: dict[str, Any], outcome: Outcome) -> bytes:
    """The file of a loose point: all numbers end to end, and JSON that says what they are."""
    words = {name: array.tolist() for name, array in outcome.arrays.items() if array.dtype.kind == "U"}
    numbers = {name: array for name, array in outcome.arrays.items() if name not in words}
    about = {
        "inputs": inputs, "labels": labels, "dims": outcome.dims, "words": words,
        "shapes": {name: array.shape for name, array in numbers.items()},
    }  # fmt: skip
    flat = np.concatenate([np.zeros(0), *(np.ravel(array) for array in numbers.values())])
    content = io.BytesIO()
    np.savez(content, about=np.frombuffer(json.dumps(about, default=str).encode(), np.uint8), numbers=flat)
    return content.getvalue()


def read_loose(path: Path) -> Loose | None:
    """A loose point; None if it is gone, packed by another, or damaged: then it goes, and is computed again."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            about, flat = json.loads(stored["about"].tobytes()), stored["numbers"]
        arrays = {name: np.asarray(words) for name, words in about["words"].items()}
        begin = 0
        for name, shape in about["shapes"].items():
            end = begin + math.prod(shape)
            arrays[name] = flat[begin:end].reshape(shape)
            begin = end
        dims = {name: tuple(axes) for name, axes in about["dims"].items()}
        if {*dims} == {*arrays}:
            return Loose(arrays, dims, about["labels"], about["inputs"])
    except Exception:  # whatever numpy and zip raise on damaged bytes
        pass
    path.unlink(missing_ok=True)
    return None


def netcdf(keys: list[str], points: list[Loose]) -> bytes:
    """Points of one layout as a netCDF file in memory: HDF5 does not survive a disk that fills up under it."""
    import h5netcdf
    import h5py

    first, memory = points[0], io.BytesIO()
    text = h5py.string_dtype()
    with h5netcdf.File(memory, "w") as file:
        file.attrs["title"] = "points of sweeps by sgdlimit"
        file.attrs["numerical_version"] = numerical_version()
        file.attrs["axes"] = json.dumps(first.dims)
        sizes = {axis: size for name, axes in first.dims.items()
                 for axis, size in zip(axes, first.arrays[name].shape, strict=True)}  # fmt: skip
        file.dimensions = {"point": len(points), **sizes}

        def write(name: str, values: np.ndarray, *axes: str) -> None:
            written = values.astype(object) if values.dtype.kind == "U" else values
            kind = text if values.dtype.kind == "U" else values.dtype
            file.create_variable(name, ("point", *axes), kind)[...] = written

        write("key", np.asarray(keys))
        write("inputs", np.asarray([json.dumps(point.inputs) for point in points]))
        for axis in first.labels:
            write(axis, np.asarray([point.labels[axis] for point in points]))
        for name, axes in first.dims.items():
            write(name, np.stack([point.arrays[name] for point in points]), *axes)
    return memory.getvalue()


def read_pack(path: Path, rows: list[int]) -> Block:
    """Some points of a pack. Read as plain HDF5, which it is: h5netcdf looks up every dimension, many times."""
    import h5py

    with h5py.File(path, "r") as file:
        pack: Any = file
        dims = {name: tuple(axes) for name, axes in json.loads(pack.attrs["axes"]).items()}
        keys = _strings(pack["key"])[rows].tolist()
        text = {name for name in dims if h5py.check_string_dtype(pack[name].dtype) is not None}
        arrays = {name: (_strings(pack[name]) if name in text else pack[name][...])[rows] for name in dims}
    return Block(keys, arrays, dims)


def keys_of(path: Path) -> list[str]:
    """Hashes of the points of a pack."""
    import h5py

    with h5py.File(path, "r") as pack:
        return _strings(pack["key"]).tolist()


def _strings(dataset: Any) -> np.ndarray:
    return np.asarray(dataset.asstr()[...], dtype=np.str_)


def whole(path: Path) -> bool:
    """Whether the checksum of a pack is right: HDF5 may hang or crash on damaged bytes."""
    try:
        return intact(path) is True
    except InputError:
        return False
