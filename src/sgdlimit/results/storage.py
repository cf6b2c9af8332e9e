"""Results on disk: netCDF-4, with everything needed to understand them years later.

After the netCDF comes a checksum of all of it, which other readers do not see: damage is told before HDF5, which may
hang or crash on it, reads a byte. It tells damage, not malice. A file never runs code: a function of the user's is
stored as its source, and comes back only if the caller passes it.
"""

import dataclasses
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, flag, reject
from .checks import fault
from .files import destination, replace, source
from .result import Result, Runs, Solution, Variable
from .variables import meaning

FORMAT = 1
"""Version of the layout below; readers refuse a later one."""

KINDS = {"solution": Solution, "runs": Runs}

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""How an HDF5 file begins."""
MARK = b"sgdlimit:sha256:"
"""What stands before the checksum, a SHA-256 in hexadecimal digits."""
TAIL = len(MARK) + 64
EXPANSION = 1000
"""Arrays larger than so many times their file are damage: compression does no better."""


def save(result: Result, path: str | Path, overwrite: bool = False) -> Path:
    """Write a result; the file appears whole or not at all. One that is there is kept unless `overwrite`."""
    target = destination("path", path, flag("overwrite", overwrite))
    if wrong := fault(result):
        raise reject("result", result.title(), f"it cannot be written: {wrong}")
    replace(target, seal(_netcdf(result)))
    return Path(path)


def seal(content: bytes) -> bytes:
    """A netCDF file with its checksum after it."""
    return content + MARK + hashlib.sha256(content).hexdigest().encode()


def _netcdf(result: Result) -> bytes:
    """The file in memory: HDF5 does not survive a disk that fills up under it."""
    import h5netcdf

    try:
        about = json.dumps(dict(result.about), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise reject("about", f"{type(error).__name__}: {error}", "it must hold numbers, text, lists, tables") from None
    variables = {name: Variable((name,), values) for name, values in result.coords.items()} | dict(result.variables)
    memory = io.BytesIO()
    with h5netcdf.File(memory, "w") as file:
        for dims, values in variables.values():
            file.dimensions.update({d: n for d, n in zip(dims, values.shape, strict=True) if d not in file.dimensions})
        for name, (dims, values) in variables.items():
            file.create_variable(name, dims, data=values).attrs["long_name"] = meaning(name)
        file.attrs["title"] = result.title()
        file.attrs["sgdlimit_format"] = FORMAT
        file.attrs["sgdlimit_kind"] = next(name for name, cls in KINDS.items() if isinstance(result, cls))
        file.attrs["sgdlimit_about"] = about
        file.attrs["sgdlimit_version"] = str(result.about.get("sgdlimit_version", ""))
        file.attrs["conventions"] = "time is t = ηk/d; x_stderr is the standard error of x"
    return memory.getvalue()


def load(path: str | Path, functions: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """Read a `Solution` or `Runs` written by `save`.

    functions: the user's own functions, with which `.problem` and `.algorithm` are rebuilt: by the name under which the
    file has them, {"tukey": tukey}, or by their place, {"loss.fn": tukey}. Nothing in the file is ever run.
    """
    file = source("path", path)
    if intact(file) is False:
        raise reject("path", file, "the file is damaged: its checksum is another; write it again, or take a copy of it")
    try:
        result = _result(file, *_arrays(file))
        return dataclasses.replace(result, functions=_known(result.about, dict(functions or {})))
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


def _arrays(file: Path) -> tuple[dict[str, Variable], dict[str, np.ndarray], dict[str, Any]]:
    """Variables, coordinates and attributes, as they stand in the file."""
    import h5netcdf

    with h5netcdf.File(file, "r", decode_vlen_strings=True) as opened:
        found = dict(opened.variables)
        size = sum(int(np.prod(v.shape, dtype=float)) * v.dtype.itemsize for v in found.values())
        if size > EXPANSION * file.stat().st_size:
            raise reject("path", file, f"the file is damaged: it claims to hold {size:.1e} bytes; write it again")
        read = {str(n): Variable(tuple(map(str, v.dimensions)), np.asarray(v[...])) for n, v in found.items()}
        coords = {name: values for name, (dims, values) in read.items() if dims == (name,)}
        return {n: v for n, v in read.items() if n not in coords}, coords, dict(opened.attrs)


def _result(
    file: Path, variables: dict[str, Variable], coords: dict[str, np.ndarray], attributes: dict[str, Any]
) -> Solution | Runs:
    """A result from what stands in a file."""
    kind = attributes.get("sgdlimit_kind")
    if not isinstance(kind, str) or kind not in KINDS:
        if "kinds" in attributes:
            raise reject("path", file, "it holds a sweep; read it with sl.Sweep.load")
        raise reject("path", file, "a netCDF file, but not an sgdlimit result; give one written by .save()")
    if int(attributes["sgdlimit_format"]) > FORMAT:
        version = attributes.get("sgdlimit_version", "a later version")
        raise reject("path", file, f"written by sgdlimit {version}; upgrade sgdlimit to read it")
    try:
        result = KINDS[kind](variables, coords, json.loads(attributes["sgdlimit_about"]))
    except InputError as error:
        raise reject("path", file, f"the file is damaged ({str(error)[:80]}); write it again") from None
    if wrong := fault(result):
        raise reject("path", file, f"the file is damaged: {wrong}; write it again")
    return result


def _known(about: Mapping[str, Any], functions: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The caller's functions, each of which must stand somewhere in the file."""
    stored = dict(_functions({**(about.get("problem") or {}), "algorithm": about.get("algorithm")}, ""))
    for name, fn in functions.items():
        if not callable(fn):
            raise reject("functions", f"{name}={fn!r}", "it must be a table of functions by name")
        if name not in stored and name not in stored.values():
            there = ", ".join(f"{place} ({word})" for place, word in stored.items()) or "none"
            raise reject("functions", name, f"the file has no function of this name or place; it has {there}")
    return functions


def _functions(words: object, place: str) -> Iterator[tuple[str, object]]:
    """Place and name of every function of the user's in stored words."""
    if isinstance(words, dict):
        if "function" in words:
            yield place, words["function"]
        for key, inner in words.items():
            yield from _functions(inner, f"{place}.{key}".lstrip("."))
