"""Points that fill a box of parameters evenly, for `sl.sweep(points=…)`: Latin hypercubes and Sobol points."""

import math
from collections.abc import Mapping
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

    count = whole("count", count, least=1, most=MOST, why=f"it must be a whole number from 1 to {MOST}")
    checked = _checked(ranges)
    return _scaled(
        checked, qmc.LatinHypercube(len(checked), rng=np.random.default_rng(seed_number(seed))).random(count)
    )


def sobol(ranges: Ranges, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Scrambled Sobol points, which also fill every plane evenly; best where `count` is a power of two."""
    from scipy.stats import qmc

    count = whole("count", count, least=1, most=MOST, why=f"it must be a whole number from 1 to {MOST}")
    checked = _checked(ranges)
    engine = qmc.Sobol(len(checked), rng=np.random.default_rng(seed_number(seed)))
    return _scaled(checked, engine.random_base2(math.ceil(math.log2(count)))[:count])


def _checked(ranges: Ranges) -> dict[str, tuple[Any, Any, bool]]:
    """Low and high end of every axis, and whether it is logarithmic."""
    if not isinstance(ranges, Mapping) or not ranges:
        raise reject("ranges", repr(ranges), 'name axes and their ends: {"temperature": (0.1, 1.0)}')
    out = {}
    for name, given in ranges.items():
        where = f"ranges[{name!r}]"
        if not isinstance(given, tuple | list) or len(given) not in (2, 3) or (len(given) == 3 and given[2] != "log"):
            raise reject(where, repr(given), 'it must be (low, high) or (low, high, "log")')
        logarithmic = len(given) == 3
        why = "a logarithmic axis has positive ends" if logarithmic else "it must be a finite number"
        ends = [real(where, end, above=0 if logarithmic else -math.inf, why=why) for end in given[:2]]
        if not ends[0] < ends[1]:
            raise reject(where, repr(given), "the low end must be below the high one")
        whole_numbers = all(isinstance(end, int) for end in given[:2])
        out[name] = (*(given[:2] if whole_numbers else ends), logarithmic)
    return out


def _scaled(ranges: Mapping[str, tuple[Any, Any, bool]], cube: np.ndarray) -> list[dict[str, Any]]:
    """Points of the unit cube, on the axes."""
    columns = {}
    for (name, (low, high, logarithmic)), u in zip(ranges.items(), cube.T, strict=True):
        if isinstance(low, int):  # every whole number from low to high has its share
            first, last = (math.log(low), math.log(high + 1)) if logarithmic else (low, high + 1)
            values = np.floor(np.exp(first + u * (last - first)) if logarithmic else first + u * (last - first))
            columns[name] = [int(value) for value in np.clip(values, low, high)]
        else:
            columns[name] = (low * (high / low) ** u if logarithmic else low + u * (high - low)).tolist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
