"""Results on disk: netCDF-4, with everything needed to understand them years later.

After the netCDF comes a checksum of all of it, which other readers do not see: damage is told before HDF5, which may
hang or crash on it, reads a byte. It tells damage, not malice. A file never runs code: a function of the user's is
stored as its source.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, flag, reject
from .files import destination, replace, source
from .result import Result, Runs, Solution, Variable
from .variables import BESIDE, OF_SAMPLES, PARAMETERS, TABLE, bare, dims, split

if TYPE_CHECKING:
    import xarray

FORMAT = 1
"""Version of the layout below; readers refuse a later one."""

KINDS = {"solution": Solution, "runs": Runs}

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""How an HDF5 file begins."""
MARK = b"sgdlimit:sha256:"
"""What stands before the checksum, a SHA-256 in hexadecimal digits."""
TAIL = len(MARK) + 64
PATIENCE = 30.0
"""Seconds that a file without a checksum may take, and one more for every 20 MB."""
EXPANSION = 1000
"""Arrays larger than so many times their file are damage: compression does no better."""

NUMBERS = "iuf"
"""Kinds of numbers that a result holds: numpy's letters for integers and reals."""
INCREASING = ("time", "earlier", "snapshot")
"""Axes along which a clock runs."""
DEEPEST = 32
"""Levels of tables within tables: a problem has five."""
WHOLE = 2**63
"""Whole numbers in a file have 64 bits, as TOML and netCDF have it."""


def save(result: Result, path: str | Path, overwrite: bool = False) -> Path:
    """Write a result; the file appears whole or not at all. One that is there is kept unless `overwrite`."""
    target = destination("path", path, flag("overwrite", overwrite))
    if wrong := next(faults(result), None):
        raise reject("result", result.title(), f"it cannot be written: {wrong}")
    replace(target, netcdf(result))
    return Path(path)


def netcdf(result: Result) -> bytes:
    """The file of a result, in memory."""
    try:
        about = json.dumps(dict(result.about), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise reject("about", f"{type(error).__name__}: {error}", "it must hold numbers, text, lists, tables") from None
    kind = next(name for name, cls in KINDS.items() if isinstance(result, cls))
    version = str(result.about.get("sgdlimit_version", ""))
    words = {"format": FORMAT, "kind": kind, "about": about, "version": version}
    about_time = {"conventions": "time is t = ηk/d; x_stderr is the standard error of x"}
    return written(result.dataset.assign_attrs({f"sgdlimit_{key}": word for key, word in words.items()} | about_time))


def written(dataset: "xarray.Dataset") -> bytes:
    """A netCDF file with its checksum after it, made in memory: HDF5 does not survive a disk that fills up under it."""
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    memory = io.BytesIO()
    with h5netcdf.File(memory, "w") as file:
        dataset.dump_to_store(H5NetCDFStore(file, mode="a", autoclose=False))
    content = memory.getvalue()
    return content + MARK + hashlib.sha256(content).hexdigest().encode()


def load(path: str | Path) -> Any:
    """Read a `Solution` or `Runs` written by `save`. Nothing in the file is ever run."""
    file = source("path", path)
    whole = intact(file)
    if whole is False:
        raise reject("path", file, "the file is damaged: its checksum is another; write it again, or take a copy of it")
    if whole is None:
        _rehearse(file)
    try:
        return _result(file, read(file))
    except InputError:
        raise
    except Exception as error:  # whatever HDF5 and its readers raise on damaged bytes
        text = " ".join(str(error).split()) or type(error).__name__
        raise reject("path", file, f"the file is damaged or truncated ({text[:80]}); write it again") from None


def intact(file: Path) -> bool | None:
    """Whether the checksum is right; None: there is none, as in files of other programs and of before it came."""
    content = file.read_bytes()
    if not content.startswith(SIGNATURE):
        raise reject("path", file, "not a netCDF-4 file: truncated, or written by another program")
    if not content[-TAIL:].startswith(MARK):
        return None
    return content[-64:] == hashlib.sha256(memoryview(content)[:-TAIL]).hexdigest().encode()


def _rehearse(file: Path) -> None:
    """Read a file without a checksum in a process of its own first: on damaged bytes HDF5 may hang, or crash."""
    limit = PATIENCE + file.stat().st_size / 2e7
    code = f"import sys, pathlib; from {__name__} import read; read(pathlib.Path(sys.argv[1]))"
    words = [sys.executable, "-P", "-c", code, str(file.absolute())]
    world = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(words, env=world, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        why = f"the file is damaged: reading it takes more than {limit:.0f} s; write it again"
        raise reject("path", file, why) from None
    if done.returncode < 0:
        raise reject("path", file, "the file is damaged: HDF5 crashes on it; write it again")


def read(file: Path) -> "xarray.Dataset":
    """The labelled arrays of a file."""
    import xarray

    with xarray.open_dataset(file, engine="h5netcdf") as opened:
        if opened.nbytes > EXPANSION * file.stat().st_size:
            why = f"the file is damaged: it claims to hold {opened.nbytes:.1e} bytes; write it again"
            raise reject("path", file, why)
        return opened.load()


def _result(file: Path, dataset: "xarray.Dataset") -> Solution | Runs:
    """A result from what stands in a file."""
    kind = dataset.attrs.get("sgdlimit_kind")
    if not isinstance(kind, str) or kind not in KINDS:
        if kind == "sweep":
            raise reject("path", file, "it holds a sweep; read it with sl.Sweep.load")
        raise reject("path", file, "a netCDF file, but not an sgdlimit result; give one written by .save()")
    if int(dataset.attrs["sgdlimit_format"]) > FORMAT:
        version = dataset.attrs.get("sgdlimit_version", "a later version")
        raise reject("path", file, f"written by sgdlimit {version}; upgrade sgdlimit to read it")
    variables = {str(n): Variable(tuple(map(str, v.dims)), v.values) for n, v in dataset.data_vars.items()}
    coords = {str(name): coord.values for name, coord in dataset.coords.items()}
    try:
        result = KINDS[kind](variables, coords, json.loads(dataset.attrs["sgdlimit_about"]))
        wrong = next(faults(result), None)
    except InputError as error:
        raise reject("path", file, f"the file is damaged ({str(error)[:80]}); write it again") from None
    if wrong:
        raise reject("path", file, f"the file is damaged: {wrong}; write it again")
    return result


def faults(result: Result) -> Iterator[str]:
    """What of arrays and words does not make a result: asked before it is written and after it is read."""
    about, lead = result.about, ("trial",) if isinstance(result, Runs) else ()
    if not hasattr(about, "get"):
        yield "what it is about is not a table"
    for key in ("method", "status", "message"):
        if not isinstance(about.get(key, ""), str):
            yield f"{key} is not a word"
    for key, missing in {"problem": None, "algorithm": None, "options": {}, "diagnostics": {}}.items():
        if not isinstance(about.get(key, missing), dict | type(missing)):
            yield f"{key} is not a table"
    yield from (f"{where}: {why}" for where, _, why in oddities(about))
    for axis in ("time", *lead):
        if axis not in result.coords:
            yield f"there is no axis {axis}"
    sizes = {}
    for name, values in result.coords.items():
        if values.ndim != 1 or values.dtype.kind not in NUMBERS or not np.all(np.isfinite(values)):
            yield f"{name} is not a row of finite numbers"
        if name in INCREASING and np.any(np.diff(values) <= 0):
            yield f"{name} does not increase"
        sizes[name] = len(values)
    for name, (axes, values) in result.variables.items():
        if values.dtype.kind not in NUMBERS:
            yield f"{name} does not hold numbers"
        if len(axes) != values.ndim or len(set(axes)) != len(axes):
            yield f"{name} has {values.ndim} axes, named {axes}"
        for axis, size in zip(axes, values.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                yield f"{name} has {size} entries along {axis}, not {sizes[axis]}"
        base, ending = split(name)
        count = values.ndim - len(lead) if bare(base) in (*PARAMETERS, *OF_SAMPLES) else None
        known = (*lead, *dims(name, count))
        if base in TABLE:
            if axes != known:
                yield f"{name} lies along {axes}, not {known}"
        elif axes[: len(lead)] != lead or ("time" in axes and axes[: len(known)] != known):
            yield f"{name} lies along {axes}, which should begin with {known}"
        if ending in BESIDE and base in result.variables:
            beside = values.shape[ending == "_replicas" :]
            if beside != result.variables[base].values.shape:
                yield f"{name} has the shape {values.shape}, which is not that of {base}"
            if ending != "_replicas" and np.any(values < 0):
                yield f"{name} is negative"


def oddities(words: object) -> Iterator[tuple[str, object, str]]:
    """Where words from a file go too deep, hold numbers too large or text that is none: place, value, reason."""
    rest: list[tuple[str, object, int]] = [("", words, 0)]
    while rest:
        where, value, depth = rest.pop()
        if depth > DEEPEST:
            yield where, "…", f"tables and lists go at most {DEEPEST} deep"
        elif isinstance(value, dict):
            rest += [(f"{where}.{key}".lstrip("."), inner, depth + 1) for key, inner in value.items()]
            rest += [(where, key, depth + 1) for key in value]
        elif isinstance(value, list | tuple):
            rest += [(where, inner, depth + 1) for inner in value]
        elif isinstance(value, int) and not -WHOLE <= value < WHOLE:
            yield where, f"a number of {value.bit_length()} bits", "whole numbers have at most 64"
        elif isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            yield where, ascii(value), "that is not text"
