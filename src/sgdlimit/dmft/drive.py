"""All marches of one solution: grids of steps γ, 2γ, 4γ on the same noise, more on the coarsest, two memories."""

import hashlib
import math
import time as clock
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _machine as machine
from .._together import held, shared, side_by_side, values_of
from ..progress import Progress
from ..results import metrics, statistics
from ..results.checkpoint import Checkpoint
from . import extrapolation, joint, kernels, memory, noise, planning, run
from .checks import Room, at_once, bytes_of, check_memory, fitting
from .memory import Memory, Moments
from .planning import Level
from .run import Records
from .system import Start, System

JUDGED = ("train_loss", "train_error", "overlap", "norm")
"""Curves that decide how much is done."""
_COMPILED: set[Any] = set()
"""Shapes of marches that this process has compiled, for the record of time spent on it."""


class Large(NamedTuple):
    """Marches of each replica on the coarsest grid alone, which the level of the curves comes from: fewer and larger,
    since what a march of M samples feeds back to itself leaves a bias of 1/M, on all grids alike."""

    each: int
    repeats: int


LARGEST = 2**14
"""Samples of one of them at most."""


class OutOfTime(Exception):
    """The deadline has passed, and a march is not begun."""


HELPS = 0.7
"""Twice as many functions must leave less than this of the projection error, or are not taken."""
SAFETY = 4.0
"""The coarsest grid, where functions are compared, feels fast changes less than the finest; seen: 1 to 8 times."""


@dataclass(frozen=True)
class Job:
    """What the marches of one solution have in common."""

    system: System
    steps: planning.Steps
    strides: tuple[int, ...]
    """Fine steps to a step of each grid, from fine to coarse."""
    seed: int
    replicas: int
    repeats: int
    """Marches on the coarsest grid that each replica averages; on the finer ones as many as it takes."""
    large: int
    """Samples of one march on the coarsest grid alone, or on all grids after the first, where none are for that."""
    snapshots: np.ndarray
    """Steps of the finest grid whose draws are kept."""
    draws_weights: bool
    """Whether (θ⁰, θ*) are drawn."""
    projection: float
    """A projection error below this share of the curve is small."""
    kept: Checkpoint
    """What earlier stages, or an earlier process, have done."""
    room: Room
    everywhere: bool = False
    """Whether all recorded times must be known alike: under a tolerance the worst one decides."""
    deadline: float = math.inf
    """By `time.perf_counter`: after it no march of a batch of replicas is begun; one that runs is finished."""


@dataclass(frozen=True)
class Piece:
    """One march among all of a solution, whichever stage it belongs to: what its numbers depend on, beside what is the
    same for all of them and stands in the checkpoint's owner."""

    times: bytes
    """Of the finest grid."""
    stride: int
    memory: Memory
    functions: Memory
    """That it marches with; another than its memory where two are compared."""
    samples: int
    turn: int
    replicas: range

    @classmethod
    def of(
        cls, job: Job, system: System, level: Level, turn: int, replicas: range, others: Memory | None = None
    ) -> "Piece":
        """A march of these replicas on one grid, with other functions where some are given."""
        own = system.memory
        return cls(job.steps.times.tobytes(), level.stride, own, others or own, system.samples, turn, replicas)

    @property
    def name(self) -> str:
        """The same in every process; what is long as a digest."""
        long = hashlib.sha256(self.times + repr((self.memory, self.functions)).encode()).hexdigest()[:16]
        place = f"{self.replicas.start} to {self.replicas.stop}"
        return f"{long} stride {self.stride} samples {self.samples} turn {self.turn} replicas {place}"


@dataclass(frozen=True)
class Marched:
    """What came out, every array (replicas, times of its grid, …)."""

    system: System
    levels: list[Level]
    records: list[Records]
    """Of every grid that is sound, from fine to coarse."""
    shift: dict[str, np.ndarray]
    """What larger marches on the coarsest grid change there; empty where there are none."""
    projection: dict[str, np.ndarray] | None
    """Distance between two sets of functions, (times of the coarsest grid, …), growing in time."""
    starts: list[Start]
    repeats: int
    """Marches of each replica on all grids."""
    large: "Large"
    compiling: float

    @property
    def samples(self) -> int:
        """Of each replica, on the coarsest grid."""
        return self.large.each * self.large.repeats or self.system.samples * self.repeats

    @property
    def fed_back(self) -> tuple[int, int]:
        """Samples of one march, and marches, on the grid that the level of the curves comes from."""
        return (self.large.each, self.large.repeats) if self.large.repeats else (self.system.samples, self.repeats)


def march(job: Job, memories: list[Memory], progress: bool | None) -> Marched:
    """With the first memory whose projection error is small, or the one before it where more functions do not help.

    More functions are closer to each other, and a regression on them has more noise of its own.
    """
    found: Marched | None = None
    for kept in memories:
        before, found = found, _march(replace(job, system=replace(job.system, memory=kept)), progress)
        if before is not None and found.records[0].reason and not before.records[0].reason:
            return before
        if found.projection is None:
            break
        lost, excess = _lost_alone(found), _excess(job, found)
        if not lost and (found.records[0].reason or excess <= 1.0):
            break
        if before is not None and not lost and not _lost_alone(before) and excess > HELPS * _excess(job, before):
            return before
    assert found is not None
    return found


def _march(job: Job, progress: bool | None) -> Marched:
    """Every replica on all grids; the coarsest once more with other functions; then what more marches there are."""
    system = job.system
    levels = [_level(job, system, stride, system.memory) for stride in job.strides]
    steps = sum(len(level.times) for level in levels) + (job.repeats - 1) * len(levels[-1].times)
    with Progress("solve", job.replicas * steps, progress) as bar:
        bar.phase("compiling")
        size, compiling = _compiled(job, system, levels[-1], 0, bar)
        starts = _starts(job, system, 0, size)
        others = memory.shifted(system.memory) if isinstance(system.memory, Moments) else None
        records, again = _all_grids(job, system, levels, 0, starts, job.snapshots, bar, others)
        levels = levels[: len(records)]
        shifted = [again] if again is not None and records[-1].reached else []
        repeats = 1 if any(part.reason for part in records) else job.repeats
        each = fitting(system, job.large, job.room)
        alike = each == system.samples
        finer = _finer(job, repeats, levels, records, alike) if len(levels) > 1 else repeats
        paired, first = [[part] for part in records], 1
        wider, count = replace(system, samples=each), max(1, int(repeats * system.samples / each + 0.5))
        if finer == repeats > 1 and each > system.samples:  # nothing is left for the coarsest grid alone
            size, more_compiling = _compiled(job, wider, levels[-1], 1, bar)
            compiling += more_compiling
            more, again = _more(job, wider, levels, 1, size, bar, others)
            if more:  # the first marches have told what to do, and are few
                system, paired, first = wider, [[part] for part in more], 2
                repeats = finer = count
                shifted = [again] if again is not None else []
        for turn in range(first, first + finer - 1):
            more, again = _more(job, system, levels, turn, size, bar, others)
            if not more:
                break  # a march that went wrong is not averaged, and no more are begun
            for kept, part in zip(paired, more, strict=True):
                kept.append(part)
            shifted += [again] if again is not None else []
        means = [run.mean(parts) for parts in paired]
        projection = _distance(shifted, paired[-1]) if shifted else None
        shift, large = {}, Large(0, 0)
        if repeats > finer:
            size, more_compiling = _compiled(job, wider, levels[-1], finer, bar)
            compiling += more_compiling
            found = list(paired[-1]) if alike else []
            for turn in range(-(-(repeats - finer) * system.samples // each)):
                more, _ = _more(job, wider, levels[-1:], finer + turn, size, bar)
                if not more:
                    break
                found += more
            if len(found) > alike * len(paired[-1]):
                level = run.mean(found).values
                shift = {name: level[name] - values for name, values in means[-1].values.items()}
                large = Large(each, len(found))
    return Marched(system, levels, means, shift, projection, starts, len(paired[0]), large, compiling)


def _compiled(job: Job, system: System, level: Level, turn: int, bar: Progress) -> tuple[int, float]:
    """Replicas in one compiled call, and the seconds that compiling took: one step, so that it is timed apart.

    Nothing is compiled for work that is there already.
    """
    size = at_once(system, job.replicas, planning.tile(system, job.replicas), job.room)
    shape = (jax.tree.structure(system), size)
    if job.kept.get(Piece.of(job, system, level, turn, range(size)).name) is not None:
        return size, 0.0
    check_memory(system, size, job.room)
    if shape in _COMPILED or held() is not None:  # with others, another program
        return size, 0.0
    begin = clock.perf_counter()
    start = run.stack([_draw(job, system, i) for i in range(size)])
    nothing = Checkpoint(None, {})
    run.along(system, start, level._replace(times=level.times[:1]), job.snapshots[:0], bar, nothing, "")
    _COMPILED.add(shape)
    return size, clock.perf_counter() - begin


def _more(
    job: Job, system: System, levels: list[Level], turn: int, size: int, bar: Progress, others: Moments | None = None
) -> tuple[list[Records], Records | None]:
    """One more march of every replica on these grids, and with other functions; nothing where one goes wrong, or time
    is up."""
    try:
        starts = _starts(job, system, turn, size)
        more, again = _all_grids(job, system, levels, turn, starts, job.snapshots[:0], bar, others)
    except OutOfTime:
        return [], None
    sound = len(more) == len(levels) and not any(part.reason for part in more)
    return (more, again) if sound else ([], None)


def _all_grids(
    job: Job, system: System, levels: list[Level], turn: int, starts: list[Start], keep: np.ndarray, bar: Progress,
    others: Moments | None = None,
) -> tuple[list[Records], Records | None]:  # fmt: skip
    """From fine to coarse; coarse ones that go wrong where the finest does not are left out.

    With other functions, too, on the coarsest grid that is left.
    """

    def one(level: Level, batch: int, keep: np.ndarray, compared_with: Memory | None = None) -> Records:
        if clock.perf_counter() > job.deadline:
            raise OutOfTime
        size = len(starts[batch].z)
        piece = Piece.of(job, system, level, turn, range(batch * size, (batch + 1) * size), compared_with)
        if job.kept.get(piece.name) is None:
            check_memory(system, size, job.room)
        return joint.along(system, starts[batch], level, keep, bar, job.kept, piece.name)

    def compared(level: Level, batch: int) -> Records:
        assert others is not None
        return one(_level(job, system, level.stride, others), batch, keep[:0], others)

    tasks = [
        partial(one, level, batch, keep[: None if depth == 0 else 0])
        for depth, level in enumerate(levels)
        for batch in range(len(starts))
    ]
    if others is not None:
        tasks += [partial(compared, levels[-1], batch) for batch in range(len(starts))]
    found = side_by_side(tasks, _workers(job, system, len(starts[0].z)))
    records: list[Records] = []
    for depth in range(len(levels)):
        here = run.joined(found[depth * len(starts) : (depth + 1) * len(starts)])
        if depth > 0 and here.reason and not records[0].reason:
            break
        records.append(here)
    again = None
    if others is not None and len(records) == len(levels):
        again = run.joined(found[-len(starts) :])
    elif others is not None:
        again = run.joined([compared(levels[len(records) - 1], batch) for batch in range(len(starts))])
    records[1:] = [_softly(part, records[0], level) for part, level in zip(records[1:], levels[1:], strict=False)]
    return records, again


def _workers(job: Job, system: System, size: int) -> int:
    """Batches of replicas that are marched at once: as many as there are cores, and memory for."""
    most = machine.cores()
    while most > 1 and machine.lack(most * bytes_of(system, size), job.room.now):
        most -= 1
    return most


def _softly(records: Records, finest: Records, level: Level) -> Records:
    """A zero-one error on a coarser grid: the finest one's, and what the softened error changes. Between grids few
    samples change sides, and their number is noise."""
    if metrics.SOFT not in records.values:
        return records
    sharp, soft = (finest.values[name][:, :: level.stride] for name in ("train_error", metrics.SOFT))
    both = min(records.reached, sharp.shape[1])
    error = records.values["train_error"].copy()
    error[:, :both] = sharp[:, :both] + records.values[metrics.SOFT][:, :both] - soft[:, :both]
    return replace(records, values=records.values | {"train_error": error})


def _level(job: Job, system: System, stride: int, kept: Memory) -> Level:
    return planning.level(job.steps.times, stride, kept, system.dtype, system.algorithm.discrete)


def _distance(shifted: list[Records], records: list[Records]) -> dict[str, np.ndarray]:
    """Mean difference over replicas and marches, beyond what its own noise could make; its largest so far."""
    count, out = min(part.reached for part in (*shifted, *records)), {}
    again, usual = ([part.values for part in parts] for parts in (shifted, records))
    for name in again[0]:
        if name not in kernels.KEPT:
            here = [
                a[name][:, :count].astype(np.float64) - b[name][:, :count] for a, b in zip(again, usual, strict=False)
            ]
            gap = statistics.beyond_noise(np.mean(here, axis=0))
            out[name] = SAFETY * np.maximum.accumulate(gap, axis=0)
    return out


def _lost_alone(found: Marched) -> bool:
    """Whether the finest grid diverged long before a coarser one: rounding, not the problem."""
    ends = [level.times[part.reached - 1] if part.reached else 0.0
            for level, part in zip(found.levels, found.records, strict=True)]  # fmt: skip
    return bool(found.records[0].reason) and max(ends) > 1.2 * ends[0]


def _excess(job: Job, found: Marched) -> float:
    """The largest projection error over what counts as small: its share of the tolerance, or the Monte Carlo error."""
    assert found.projection is not None
    most = 0.0
    for name in JUDGED:
        if name != "train_error" and name in found.projection and found.projection[name].size:  # errors jump
            gap = found.projection[name]
            value, error = statistics.over_replicas(found.records[-1].values[name][:, : len(gap)])
            allowed = np.maximum(error, job.projection * np.max(np.abs(value), initial=1e-30))
            most = max(most, float(np.max(gap / allowed)))
    return most


def _finer(job: Job, repeats: int, levels: list[Level], records: list[Records], alike: bool) -> int:
    """Of `repeats` marches on the coarsest grid, how many go through the finer ones too: least variance times work.

    alike: whether the others are of the same size, so that all tell the level. Where grids follow each other closely,
    few are enough for their difference; where not, all of them. Of a zero-one error before the coarsest grid's first
    step the finer marches alone tell (`estimate._between`).
    """
    if repeats == 1:
        return 1
    whole, coarse = sum(len(level.times) for level in levels), len(levels[-1].times)
    grids, at = [level.times for level in levels], np.arange(len(levels[0].times))[:: levels[-1].stride]
    best, least, shares = repeats, math.inf, {}
    for name in JUDGED:
        if name in records[0].values and records[0].values[name].size:  # without a teacher there is no overlap
            values = [part.values[name].astype(np.float64) for part in records]
            sharp = extrapolation.limit(values, grids, levels[-1].times, at).best
            rough = values[-1]
            parts = (np.var(rough, axis=0).mean(), np.var(sharp - rough, axis=0).mean(), np.var(sharp, axis=0).mean())
            if parts[0] > 0:
                shares[name] = parts
                early = job.steps.record[(job.steps.record > 0) & (job.steps.record < levels[-1].stride)]
                if job.everywhere and name == "train_error" and metrics.SOFT in records[0].values and len(early):
                    shares["early"] = 0.0, np.var(values[0][:, early], axis=0).max(), parts[2]
    for finer in [2**k for k in range(repeats.bit_length()) if 2**k < repeats] + [repeats]:
        rest = repeats - finer
        work, telling = finer * whole + rest * coarse, repeats if alike else rest
        spread = max(((d / finer + v / telling) / s if rest else 1 / finer for v, d, s in shares.values()), default=1.0)
        if work * spread < least:
            best, least = finer, work * spread
    return best


def _starts(job: Job, system: System, turn: int, size: int) -> list[Start]:
    """Draws of all replicas, in batches of `size`, on the device; spread over all devices where there are several."""

    def make() -> list[Start]:
        draws = [_draw(job, system, turn * REPLICAS + i) for i in range(job.replicas)]
        return [run.stack(draws[i : i + size]) for i in range(0, job.replicas, size)]

    return shared(lambda: _key(job, system, turn, size), make)


def _key(job: Job, system: System, turn: int, size: int) -> Hashable:
    """All that the draws depend on."""
    problem = system.problem
    laws = (problem.noise_law, problem.init, problem.star) if job.draws_weights else problem.noise_law
    sizes = (problem.width, problem.k, system.samples, system.dtype, job.replicas, size)
    return "starts", sizes, job.seed, turn, job.draws_weights, values_of((laws, system.groups))


def _draw(job: Job, system: System, number: int) -> Start:
    seed = job.seed * REPEATS * REPLICAS + number
    return noise.draw(system.problem, system.groups, system.samples, seed, system.dtype, job.draws_weights)


REPEATS, REPLICAS = 4096, 4096
"""Most of each: every march has a seed of its own."""
