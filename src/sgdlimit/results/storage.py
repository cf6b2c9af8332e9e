"""Results on disk: netCDF-4, with everything needed to understand them years later."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, reject
from .result import Result, Runs, Solution, Variable

FORMAT = 1
"""Version of the layout below; readers refuse a later one."""

KINDS = {"solution": Solution, "runs": Runs}


def save(result: Result, path: str | Path) -> Path:
    """Write a result; the file appears whole or not at all."""
    target = Path(path)
    if not target.parent.is_dir():
        raise reject("path", target, f"the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise reject("path", target, "it is a folder; name a file in it, such as run.nc")
    kind = next(name for name, cls in KINDS.items() if isinstance(result, cls))
    dataset = result.dataset.assign_attrs(
        sgdlimit_format=FORMAT,
        sgdlimit_kind=kind,
        sgdlimit_about=json.dumps(result.about, ensure_ascii=False, allow_nan=False),
        sgdlimit_version=str(result.about.get("sgdlimit_version", "")),
        conventions="time is t = ηk/d; x_stderr is the standard error of x",
    )
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    try:
        dataset.to_netcdf(temporary, engine="h5netcdf")
        # mkstemp makes the file private; a result is as readable as any file of the user's.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def load(path: str | Path) -> Any:
    """Read a `Solution` or `Runs` written by `save`."""
    try:
        source = Path(path)
    except TypeError:
        raise reject("path", repr(path), "it must be the name of a file") from None
    if not source.is_file():
        raise reject("path", source, "there is no such file")
    import h5py
    import xarray

    if not h5py.is_hdf5(source):
        raise reject("path", source, "not a netCDF-4 file: truncated, or written by another program")
    try:
        with xarray.open_dataset(source, engine="h5netcdf") as opened:
            dataset = opened.load()
        return _read(dataset, source)
    except InputError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise reject("path", source, f"the file is damaged or truncated ({text[:80]}); write it again") from error


def _read(dataset: Any, source: Path) -> Any:
    """A result from an opened file."""
    kind = dataset.attrs.get("sgdlimit_kind")
    if kind not in KINDS:
        raise reject("path", source, "a netCDF file, but not an sgdlimit result; give one written by .save()")
    if int(dataset.attrs["sgdlimit_format"]) > FORMAT:
        version = dataset.attrs.get("sgdlimit_version", "a later version")
        raise reject("path", source, f"written by sgdlimit {version}; upgrade sgdlimit to read it")
    variables = {str(n): Variable(tuple(map(str, v.dims)), v.values) for n, v in dataset.data_vars.items()}
    coords = {str(n): np.asarray(v.values) for n, v in dataset.coords.items()}
    if "time" not in coords:
        raise reject("path", source, "the file holds no times; write it again")
    return KINDS[kind](variables, coords, json.loads(dataset.attrs["sgdlimit_about"]))
