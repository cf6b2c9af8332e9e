"""Points that fill a box of parameters evenly, for `sl.sweep(points=…)`: Latin hypercubes and Sobol points."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import real, reject, seed_number, whole

Ranges = Mapping[str, tuple[Any, ...]]
"""By name of an axis: (low, high), or (low, high, "log"); two whole numbers give whole numbers."""
MOST = 1_000_000
"""Points of one design."""


def latin(ranges: Ranges, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """A Latin hypercube: along every axis the `count` points are spread evenly, in random order.

    latin({"sample_ratio": (0.5, 8.0, "log"), "temperature": (0.1, 1.0)}, count=64)
    """
    from scipy.stats import qmc

    return _filled(ranges, count, lambda axes: qmc.LatinHypercube(axes, rng=_generator(seed)).random(count))


def sobol(ranges: Ranges, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Scrambled Sobol points, which also fill every plane evenly; best where `count` is a power of two."""
    from scipy.stats import qmc

    return _filled(
        ranges, count, lambda axes: qmc.Sobol(axes, rng=_generator(seed)).random_base2(math.ceil(math.log2(count)))
    )


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed_number(seed))


def _filled(ranges: Ranges, count: int, cube: Callable[[int], np.ndarray]) -> list[dict[str, Any]]:
    """The first points of a cube of so many axes, on the ranges."""
    whole("count", count, least=1, most=MOST, why=f"it must be a whole number from 1 to {MOST}")
    if not isinstance(ranges, Mapping) or not ranges:
        raise reject("ranges", repr(ranges), 'name axes and their ends: {"temperature": (0.1, 1.0)}')
    ends = {name: _ends(f"ranges[{name!r}]", given) for name, given in ranges.items()}
    columns = {name: _scaled(*ends[name], u) for name, u in zip(ends, cube(len(ends))[:count].T, strict=True)}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _ends(where: str, given: Any) -> tuple[Any, Any, bool]:
    """Low and high end of an axis, and whether it is logarithmic."""
    if not isinstance(given, tuple | list) or len(given) not in (2, 3) or (len(given) == 3 and given[2] != "log"):
        raise reject(where, repr(given), 'it must be (low, high) or (low, high, "log")')
    logarithmic = len(given) == 3
    why = "a logarithmic axis has positive ends" if logarithmic else "it must be a finite number"
    low, high = (real(where, end, above=0 if logarithmic else -math.inf, why=why) for end in given[:2])
    if not low < high:
        raise reject(where, repr(given), "the low end must be below the high one")
    return (*(given[:2] if all(isinstance(end, int) for end in given[:2]) else (low, high)), logarithmic)


def _scaled(low: Any, high: Any, logarithmic: bool, u: np.ndarray) -> list[Any]:
    """Places of [0, 1] on an axis; of whole numbers every one from low to high has its share."""
    counted = isinstance(low, int)
    end = high + 1 if counted else high
    values = low * (end / low) ** u if logarithmic else low + u * (end - low)
    return [int(value) for value in np.clip(np.floor(values), low, high)] if counted else values.tolist()
