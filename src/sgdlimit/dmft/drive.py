"""All marches of one solution: grids of steps γ, 2γ, 4γ on the same noise, more on the coarsest, two memories."""

import math
import time as clock
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ..progress import Progress
from . import extrapolation, kernels, memory, noise, plan, run
from .checks import check_memory
from .memory import Memory, Moments
from .plan import Level
from .run import Records
from .system import Start, System
from .weight_side import Particles

JUDGED = ("train_loss", "train_error", "overlap", "norm")
"""Curves that decide how much is done."""
_COMPILED: set[Any] = set()
"""Shapes of marches that this process has compiled, for the record of time spent on it."""


class OutOfTime(Exception):
    """The deadline has passed before the first march of every replica was done."""


SAFETY = 4.0
"""The coarsest grid, where functions are compared, feels fast changes less than the finest; seen: 1 to 8 times."""


@dataclass(frozen=True)
class Job:
    """What the marches of one solution have in common."""

    system: System
    steps: plan.Steps
    strides: tuple[int, ...]
    """Fine steps to a step of each grid, from fine to coarse."""
    seed: int
    replicas: int
    repeats: int
    """Marches on the coarsest grid that each replica averages; on the finer ones as many as it takes."""
    snapshots: np.ndarray
    """Steps of the finest grid whose draws are kept."""
    draws_weights: bool
    """Whether (θ⁰, θ*) are drawn."""
    projection: float
    """A projection error below this share of the curve is small."""
    max_bytes: float = math.inf
    deadline: float = math.inf
    """By `time.perf_counter`: after it no further march is begun, nor one finished."""


@dataclass(frozen=True)
class Marched:
    """What came out, every array (replicas, times of its grid, …)."""

    system: System
    levels: list[Level]
    records: list[Records]
    """Of every grid that is sound, from fine to coarse."""
    shift: dict[str, np.ndarray]
    """What more marches on the coarsest grid change there; empty where there are none."""
    projection: dict[str, np.ndarray] | None
    """Distance between two sets of functions, (times of the coarsest grid, …), growing in time."""
    starts: list[Start]
    repeats: tuple[int, int]
    """Marches of each replica on the finer grids, and on the coarsest."""
    compiling: float


def march(job: Job, memories: list[Memory], progress: bool | None) -> Marched:
    """With the first memory whose projection error is small, or the last."""
    found: Marched | None = None
    for kept in memories:
        found = _march(replace(job, system=replace(job.system, memory=kept)), progress)
        if found.projection is None or (not _lost_alone(found) and (found.records[0].reason or small(job, found))):
            break
    assert found is not None
    return found


def _march(job: Job, progress: bool | None) -> Marched:
    """Every replica on all grids; the coarsest once more with other functions; then what more marches there are."""
    system, none = job.system, job.snapshots[:0]
    levels = [plan.level(job.steps.times, stride, system.memory, system.dtype) for stride in job.strides]
    size = plan.tile(system.problem, system.memory, isinstance(system.weights, Particles), system.samples, job.replicas)
    steps = sum(len(level.times) for level in levels) + (job.repeats - 1) * len(levels[-1].times)
    with Progress("solve", job.replicas * steps, progress) as bar:
        bar.phase("compiling")
        compiling, shape = 0.0, (jax.tree.structure(system), size)
        if shape not in _COMPILED:
            check_memory(system, size, job.max_bytes)
        starts = _starts(job, 0, size)
        if shape not in _COMPILED:  # one step, so that compiling is timed apart
            begin = clock.perf_counter()
            run.along(system, starts[0], levels[-1]._replace(times=levels[-1].times[:1]), none, bar)
            compiling = clock.perf_counter() - begin
            _COMPILED.add(shape)
        records = _all_grids(job, levels, starts, job.snapshots, bar)
        levels = levels[: len(records)]
        projection = None
        if isinstance(system.memory, Moments) and records[-1].reached:
            other = plan.level(
                job.steps.times, job.strides[len(levels) - 1], memory.shifted(system.memory), system.dtype
            )
            projection = _distance(run.along(system, starts[0], other, none, bar), records[-1])
        repeats = 1 if any(part.reason for part in records) else job.repeats
        finer = _finer(repeats, levels, records) if len(levels) > 1 else repeats
        paired, coarsest = [[part] for part in records], [records[-1]]
        for turn in range(1, repeats):
            try:
                more = _all_grids(job, levels if turn < finer else levels[-1:], _starts(job, turn, size), none, bar)
            except OutOfTime:
                break
            if any(part.reason for part in more) or len(more) < (len(levels) if turn < finer else 1):
                break  # a march that went wrong is not averaged, and no more are begun
            coarsest.append(more[-1])
            if turn < finer:
                for kept, part in zip(paired, more, strict=True):
                    kept.append(part)
    means = [run.mean(parts) for parts in paired]
    shift = {}
    if len(coarsest) > len(paired[-1]):
        everything = run.mean(coarsest).values
        shift = {name: everything[name] - values for name, values in means[-1].values.items()}
    done = (len(paired[0]), len(coarsest))
    return Marched(system, levels, means, shift, projection, starts, done, compiling)


def _all_grids(job: Job, levels: list[Level], starts: list[Start], keep: np.ndarray, bar: Progress) -> list[Records]:
    """From fine to coarse; coarse ones that go wrong where the finest does not are left out."""
    records: list[Records] = []
    for depth, level in enumerate(levels):
        parts = []
        for start in starts:
            if clock.perf_counter() > job.deadline:
                raise OutOfTime
            parts.append(run.along(job.system, start, level, keep if depth == 0 else keep[:0], bar))
        here = run.joined(parts)
        if depth > 0 and here.reason and not records[0].reason:
            break
        records.append(here)
    return records


def _distance(again: Records, records: Records) -> dict[str, np.ndarray]:
    """Mean difference over the replicas that both have, its largest so far."""
    count, out = min(again.reached, records.reached), {}
    for name, values in again.values.items():
        if name not in kernels.KEPT:
            gap = (values[:, :count] - records.values[name][: len(values), :count]).astype(np.float64)
            out[name] = SAFETY * np.maximum.accumulate(np.abs(gap.mean(axis=0)), axis=0)
    return out


def _lost_alone(found: Marched) -> bool:
    """Whether the finest grid diverged long before a coarser one: rounding, not the problem."""
    ends = [level.times[part.reached - 1] if part.reached else 0.0
            for level, part in zip(found.levels, found.records, strict=True)]  # fmt: skip
    return bool(found.records[0].reason) and max(ends) > 1.2 * ends[0]


def small(job: Job, found: Marched) -> bool:
    """Whether the projection error is small."""
    assert found.projection is not None
    for name in JUDGED:
        if name != "train_error" and name in found.projection and found.projection[name].size:  # errors jump
            gap = found.projection[name]
            value = found.records[-1].values[name][:, : len(gap)].mean(axis=0)
            if np.max(gap) > job.projection * np.max(np.abs(value), initial=1e-30):
                return False
    return True


def _finer(repeats: int, levels: list[Level], records: list[Records]) -> int:
    """Of `repeats` marches on the coarsest grid, how many go through the finer ones too: least variance times work.

    Where grids follow each other closely, few are enough for their difference; where not, all of them.
    """
    if repeats == 1:
        return 1
    whole, coarse = sum(len(level.times) for level in levels), len(levels[-1].times)
    grids, at = [level.times for level in levels], np.arange(len(levels[0].times))[:: levels[-1].stride]
    best, least, shares = repeats, math.inf, {}
    for name in JUDGED:
        if name in records[0].values:
            values = [part.values[name].astype(np.float64) for part in records]
            sharp = extrapolation.limit(values, grids, levels[-1].times, at).best
            rough = values[-1]
            parts = (np.var(rough, axis=0).mean(), np.var(sharp - rough, axis=0).mean(), np.var(sharp, axis=0).mean())
            if parts[0] > 0:
                shares[name] = parts
    for finer in [2**k for k in range(repeats.bit_length()) if 2**k < repeats] + [repeats]:
        work = finer * whole + (repeats - finer) * coarse
        spread = max(
            (v + d * repeats / finer + (s - v - d)) / s for v, d, s in shares.values()
        ) if shares else 1.0  # fmt: skip
        if work * spread < least:
            best, least = finer, work * spread
    return best


def _starts(job: Job, turn: int, size: int) -> list[Start]:
    """Draws of all replicas, in batches of `size`, on the device; spread over all devices where there are several."""
    system = job.system
    first = (job.seed * REPEATS + turn) * REPLICAS
    draws = [
        noise.draw(system.problem, system.groups, system.samples, first + i, system.dtype, job.draws_weights)
        for i in range(job.replicas)
    ]
    return [run.stack(draws[i : i + size]) for i in range(0, job.replicas, size)]


REPEATS, REPLICAS = 4096, 4096
"""Most of each: every march has a seed of its own."""
