"""Which steps a march takes: the user's grid, refined and coarsened for extrapolation, and padded to a few shapes."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .. import grid
from ..algorithms import Algorithm
from ..errors import real, reject

DEFAULT_STEP = 0.05
"""γ where the user names none: as in the paper's experiment."""
MOST_STEPS = 1e5
LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of blocks that histories are allocated for; a march of another length need not compile anew."""


class Steps(NamedTuple):
    """Times of the march, and which of them are recorded."""

    times: np.ndarray
    record: np.ndarray


def steps(algorithm: Algorithm, t_max: Any, times: Any, dt: Any, even: bool) -> Steps:
    """The march's grid: uniform steps ≤ dt up to t_max; or through `times`, refined to steps ≤ dt if dt is given."""
    if dt is not None:
        dt = real("dt", dt, above=0, why="it must be a positive time step")
    if times is None:
        last = grid.resolve(t_max)[-1]
        dt = DEFAULT_STEP if dt is None else dt
        if last / dt > MOST_STEPS:
            raise reject(
                "dt", dt, f"that is {last / dt:.2g} steps up to t = {last:g}; at most {MOST_STEPS:g} are possible"
            )
        if algorithm.discrete:  # whole updates of the given length
            count = round(last / dt)
            if count < 1:
                raise reject("t_max", last, f"it is shorter than one update of dt = {dt:g}")
            return Steps(np.arange(count + 1) * dt, np.arange(count + 1))
        count = math.ceil(last / dt - 1e-9)
        count += count % 2 if even else 0
        return Steps(np.linspace(0.0, last, count + 1), np.arange(count + 1))
    wanted = grid.resolve(t_max, times)
    if algorithm.discrete:  # times are when to record; the step is the algorithm's own
        dt = DEFAULT_STEP if dt is None else dt
        record = np.unique(np.round(wanted / dt).astype(int))
        if record[-1] < 1:
            raise reject("times", wanted, f"the last lies before the first update, at dt = {dt:g}")
        return Steps(np.arange(record[-1] + 1) * dt, record)
    knots = np.unique(np.concatenate([[0.0], wanted]))
    if dt is None:
        full = knots
    elif knots[-1] / dt > MOST_STEPS:
        raise reject("dt", dt, f"that is {knots[-1] / dt:.2g} steps; at most {MOST_STEPS:g} are possible")
    else:
        parts = [np.linspace(a, b, math.ceil((b - a) / dt - 1e-9) + 1)[:-1] for a, b in pairwise(knots)]
        full = np.concatenate([*parts, knots[-1:]])
    return Steps(full, np.searchsorted(full, wanted))


class Level(NamedTuple):
    """One march: every `stride`-th of the fine times."""

    stride: int
    steps: int
    record: np.ndarray
    """Indices of the recorded times; of those that the level does not hold, −1."""


def halved(times: np.ndarray) -> np.ndarray:
    """Every interval cut in two."""
    return np.sort(np.concatenate([times, (times[1:] + times[:-1]) / 2]))


def levels(base: Steps, extrapolate: bool, doubled: bool) -> tuple[np.ndarray, list[Level]]:
    """Fine times, and the marches: the grid itself, or its half, itself and (if steps pair up and may) its double."""
    count = len(base.times) - 1
    if not extrapolate:
        return base.times, [Level(1, count, base.record)]
    out = [Level(1, 2 * count, 2 * base.record), Level(2, count, base.record)]
    if doubled and count % 2 == 0:
        out.append(Level(4, count // 2, np.where(base.record % 2 == 0, base.record // 2, -1)))
    return halved(base.times), out


def padded(fine: np.ndarray, rows: int) -> np.ndarray:
    """Fine times continued, so that every index that a padded march may read exists; four fine steps to a row."""
    last = fine[-1] - fine[-2]
    missing = 4 * (rows + 1) + 1 - len(fine)
    return np.concatenate([fine, fine[-1] + last * np.arange(1, max(missing, 0) + 1)])


def blocks_for(rows: int, block: int) -> int:
    """Blocks to allocate."""
    needed = -(-rows // block)
    return next((size for size in LADDER if size >= needed), needed)
