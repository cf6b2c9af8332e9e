"""What makes arrays and words a result: asked before it is written and after it is read."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .result import Result, Runs
from .variables import BESIDE, TABLE, dims, split

NUMBERS = "iuf"
"""Kinds of numbers that a result holds: numpy's letters for integers and reals."""
INCREASING = ("time", "earlier", "snapshot")
"""Axes along which a clock runs."""
DEEPEST = 32
"""Levels of tables within tables: a problem has five."""
WHOLE = 2**63
"""Whole numbers in a file have 64 bits, as TOML and netCDF have it."""


def fault(result: Result) -> str | None:
    """The first thing that does not fit, in words; None: everything does."""
    return next(_faults(result), None)


def _faults(result: Result) -> Iterator[str]:
    yield from _about(result.about)
    runs = isinstance(result, Runs)
    for axis in ("time", *("trial",) * runs):
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
        yield from _place(name, axes, ("trial",) if runs else ())
        base, ending = split(name)
        if ending in BESIDE and base in result.variables:
            beside = values.shape[ending == "_replicas" :]
            if beside != result.variables[base].values.shape:
                yield f"{name} has the shape {values.shape}, which is not that of {base}"
            if ending != "_replicas" and np.any(values < 0):
                yield f"{name} is negative"


def _place(name: str, axes: tuple[str, ...], lead: tuple[str, ...]) -> Iterator[str]:
    """Axes of known variables are those of the table; time comes first in all others, after trial or replica."""
    known = (*lead, *dims(name))
    if split(name)[0] in TABLE:
        if axes != known:
            yield f"{name} lies along {axes}, not {known}"
    elif axes[: len(lead)] != lead or ("time" in axes and axes[: len(known)] != known):
        yield f"{name} lies along {axes}, which should begin with {known}"


def _about(about: Mapping[str, Any]) -> Iterator[str]:
    """The words of a result: those that summaries and plots read."""
    if not hasattr(about, "get"):
        yield "what it is about is not a table"
    for key in ("method", "status", "message"):
        if not isinstance(about.get(key, ""), str):
            yield f"{key} is not a word"
    for key, missing in {"problem": None, "algorithm": None, "options": {}, "diagnostics": {}}.items():
        if not isinstance(about.get(key, missing), dict | type(missing)):
            yield f"{key} is not a table"
    yield from (f"{where}: {why}" for where, _, why in oddities(about))


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
