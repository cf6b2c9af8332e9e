"""All marches of one stage: grids of steps γ, 2γ, 4γ on the same noise, more on the coarsest, two memories."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..dmft import memory, planning
from ..dmft.memory import Memory, Moments
from ..dmft.planning import Level
from ..dmft.system import System
from ..dmft.work import Records, Work, mean
from ..estimate import extrapolation
from ..estimate.curves import KEPT
from ..estimate.marched import Marched
from ..execute.crew import Talk, Wanted
from ..results import metrics
from ..results.variables import beyond_noise, over_replicas
from .question import Question
from .sources import HELPS, JUDGED, MEMORY

WITHIN = 2.0
"""Total errors in a tolerance."""
NOISIER = 2.0
"""More functions may have so many times the noise: where a regression cannot tell them apart, marches run away."""
NEAR = 0.8
"""Projection error, over its share of what is allowed, from which on the next stage begins with more functions."""
SAFETY = 4.0
"""The coarsest grid, where functions are compared, feels fast changes less than the finest; seen: 1 to 8 times."""


class OutOfTime(Exception):
    """The deadline has passed, and a march was not begun."""


class Effort(NamedTuple):
    """What one stage does."""

    halvings: int
    each: int
    """Samples of one march, a power of two."""
    repeats: int
    """Marches of each replica on the coarsest grid; on the finer ones as many as it takes."""
    large: int = 0
    """Samples of a march on the coarsest grid alone, or after the first; none: as above."""


@dataclass(frozen=True)
class Stage:
    """One stage: the steps that it takes, and how much it does."""

    question: Question
    effort: Effort
    deadline: float = math.inf
    """By `time.perf_counter`: after it no march is begun; one that runs is finished."""
    before: Marched | None = None
    """What the stage before it found."""

    def strides(self, steps: planning.Steps) -> tuple[int, ...]:
        """Return how many fine steps make a step of each grid, from fine to coarse."""
        ask = self.question
        return planning.strides(ask.algorithm, float(np.max(np.diff(steps.times))), ask.pace.limit)


class Grids(NamedTuple):
    """The grids of a stage under one memory, and the work of a march on them."""

    question: Question
    system: System
    steps: planning.Steps
    strides: tuple[int, ...]
    keep: tuple[int, ...]
    deadline: float

    @property
    def others(self) -> Moments | None:
        """Functions beside those of the memory, to be compared with them."""
        own = self.system.memory
        return memory.shifted(own) if isinstance(own, Moments) else None

    def work(self, stride: int, turn: int, others: Memory | None = None) -> Work:
        """Return the work of marching all replicas once on one grid."""
        ask, keep = self.question, self.keep if stride == 1 and others is None else ()
        drawn = ask.wish.draws or not ask.linear
        return Work(self.system, self.steps.times, stride, ask.seed, range(ask.replicas), turn, others, keep, drawn)

    def wanted(self, strides: Sequence[int], turns: range, others: Memory | None) -> Wanted:
        """Return what is wanted of each turn: marches on these grids, and on the coarsest with the other functions."""
        works = list[Work]()
        for turn in turns:
            works += [self.work(stride, turn) for stride in strides]
            works += [] if others is None else [self.work(strides[-1], turn, others)]
        return Wanted(works, self.question.place, self.deadline)


def climbed(stage: Stage) -> Talk[Marched]:
    """Return what was marched with the first memory whose projection error is small, or with the one before it where
    more functions do not help.

    More functions are closer to each other, and a regression on them has more noise of its own.
    """
    ask, goal = stage.question, stage.question.goal.tol / WITHIN
    steps = ask.steps(stage.effort.halvings)
    keep = tuple(int(i) for i in planning.snapshot_steps(steps.times, ask.wish.snapshots))
    memories = ask.memories(steps)
    first = _first_memory(stage, memories)
    found: Marched | None = None
    for kept in memories[first:]:
        system = ask.system(stage.effort.each, steps, kept)
        grids = Grids(ask, system, steps, stage.strides(steps), keep, stage.deadline)
        before, found = found, (yield from _marched(grids, stage.effort))
        if before is None and first and (found.diverged or _noise(found) > NOISIER * _noise(stage.before)):
            return (yield from climbed(replace(stage, before=None)))
        if before is not None and found.diverged and not before.diverged:
            return before
        if found.projection is None:
            break
        lost, excess = _lost_alone(found), MEMORY.excess(found, goal)
        other = None if before is None or lost or _lost_alone(before) else before
        if other is not None and _noise(found) > NOISIER * _noise(other):
            return other
        if not lost and (found.diverged or excess <= 1.0):
            break
        if other is not None and excess > HELPS * MEMORY.excess(other, goal):
            return other
    assert found is not None
    return found


def _first_memory(stage: Stage, memories: list[Memory]) -> int:
    """Where to begin: where the stage before ended, or with more functions where only its noise allowed so few."""
    found, goal = stage.before, stage.question.goal.tol / WITHIN
    if found is None or found.projection is None:
        return 0
    sizes = [kept.size for kept in memories]
    at = sizes.index(found.system.memory.size)
    return min(at + more_functions(found, goal), len(sizes) - 1)


def more_functions(found: Marched, goal: float) -> bool:
    """Return whether only the noise of a stage allowed so few functions."""
    return MEMORY.excess(found, goal) <= 1.0 and MEMORY.excess(found, goal, noise=0.0) > NEAR


def _marched(grids: Grids, effort: Effort) -> Talk[Marched]:
    """Every replica on all grids; the coarsest once more with other functions; then what more marches there are."""
    ask, system, others = grids.question, grids.system, grids.others
    records, again = yield from _first(grids, others)
    starts = [ask.place.start(piece) for piece in ask.place.cut(grids.work(1, 0))]
    strides = grids.strides[: len(records)]
    levels = [grids.work(stride, 0).level for stride in strides]
    shifted = [again] if again is not None and records[-1].reached else []
    repeats = 1 if any(part.reason for part in records) else effort.repeats
    each = ask.place.fitting(system, effort.large or effort.each)
    alike = each == system.samples
    finer = _finer(grids, repeats, levels, records, alike) if len(levels) > 1 else repeats
    paired, first = [[part] for part in records], 1
    wider = grids._replace(system=replace(system, samples=each))
    count = max(1, int(repeats * system.samples / each + 0.5))
    if finer == repeats > 1 and each > system.samples:  # nothing is left for the coarsest grid alone
        found = yield from _more(wider, strides, range(1, 2), others)
        if found:  # the first marches have told what to do, and are few
            grids, system, first = wider, wider.system, 2
            paired = [[part] for part in found[0][0]]
            repeats = finer = count
            shifted = [found[0][1]] if found[0][1] is not None else []
    for parts, again in (yield from _more(grids, strides, range(first, first + finer - 1), others)):
        for kept, part in zip(paired, parts, strict=True):
            kept.append(part)
        shifted += [again] if again is not None else []
    means = [mean(parts) for parts in paired]
    projection = _distance(shifted, paired[-1]) if shifted else None
    shift, fed_back = {}, (system.samples, len(paired[0]))
    if repeats > finer:
        turns = range(finer, finer - (-(repeats - finer) * system.samples // each))
        more = yield from _more(wider, strides[-1:], turns)
        coarse = [*(paired[-1] if alike else ()), *(parts[0] for parts, _ in more)]
        if more:
            level = mean(coarse).values
            shift = {name: level[name] - values for name, values in means[-1].values.items()}
            fed_back = each, len(coarse)
    return Marched(system, grids.steps, ask.seed, levels, means, shift, projection, starts, len(paired[0]), fed_back)


Both = tuple[list[Records], Records | None]
"""Of one march of every replica: every grid, from fine to coarse, and the coarsest with other functions."""


def _first(grids: Grids, others: Memory | None) -> Talk[Both]:
    """On all grids; coarse ones that go wrong where the finest does not are left out."""
    found = _begun((yield grids.wanted(grids.strides, range(1), others)).records)
    records = found[:1]
    for part in found[1 : len(grids.strides)]:
        if part.reason and not records[0].reason:
            break
        records.append(part)
    again = None if others is None else found[-1]
    if others is not None and len(records) < len(grids.strides):
        work = grids.work(grids.strides[len(records) - 1], 0, others)
        (again,) = _begun((yield Wanted([work], grids.question.place, grids.deadline)).records)
    return _followed(records, grids.strides), again


def _more(grids: Grids, strides: Sequence[int], turns: range, others: Memory | None = None) -> Talk[list[Both]]:
    """Further marches of every replica, as many as are sound and in time before the first that is not."""
    if not turns:
        return []
    done = yield grids.wanted(strides, turns, others)
    size, out = len(strides) + (others is not None), list[Both]()
    for first in range(0, len(done.records), size):
        parts = [part for part in done.records[first : first + size] if part is not None]
        if len(parts) < size or any(part.reason for part in parts[: len(strides)]):
            break
        out.append((_followed(parts[: len(strides)], strides), parts[-1] if others is not None else None))
    return out


def _begun(records: Sequence[Records | None]) -> list[Records]:
    """All of them; it is too late where one was not begun."""
    if any(part is None for part in records):
        raise OutOfTime
    return [part for part in records if part is not None]


def _followed(records: list[Records], strides: Sequence[int]) -> list[Records]:
    """Coarser grids after the finest, where they count what jumps: a zero-one error is the finest one's, and what the
    softened error changes. Between grids few samples change sides, and their number is noise."""
    finest, out = records[0].values, records[:1]
    if metrics.SOFT not in finest:
        return records
    for part, stride in zip(records[1:], strides[1:], strict=False):
        sharp, soft = (finest[name][:, ::stride] for name in ("train_error", metrics.SOFT))
        both = min(part.reached, sharp.shape[1])
        error = part.values["train_error"].copy()
        error[:, :both] = sharp[:, :both] + part.values[metrics.SOFT][:, :both] - soft[:, :both]
        out.append(replace(part, values=part.values | {"train_error": error}))
    return out


def _distance(shifted: list[Records], records: list[Records]) -> dict[str, np.ndarray]:
    """Mean difference over replicas and marches, beyond what its own noise could make; its largest so far."""
    count, out = min(part.reached for part in (*shifted, *records)), {}
    again, usual = ([part.values for part in parts] for parts in (shifted, records))
    for name in again[0]:
        if name not in KEPT:
            here = [
                a[name][:, :count].astype(np.float64) - b[name][:, :count] for a, b in zip(again, usual, strict=False)
            ]
            gap = beyond_noise(np.mean(here, axis=0))
            out[name] = SAFETY * np.maximum.accumulate(gap, axis=0)
    return out


def _noise(found: Marched | None) -> float:
    """The largest standard error of the curves that are judged, relative to them, over all grids."""
    records = [] if found is None else found.records
    parts = [part.values[name] for part in records for name in JUDGED if name in part.values]
    both = [over_replicas(values.astype(np.float64)) for values in parts if values.size]
    return max((float(np.max(error) / np.max(np.abs(mean), initial=1e-30)) for mean, error in both), default=0.0)


def _lost_alone(found: Marched) -> bool:
    """Whether the finest grid diverged long before a coarser one: rounding, not the problem."""
    ends = [level.times[part.reached - 1] if part.reached else 0.0
            for level, part in zip(found.levels, found.records, strict=True)]  # fmt: skip
    return found.diverged and max(ends) > 1.2 * ends[0]


def _finer(grids: Grids, repeats: int, levels: list[Level], records: list[Records], alike: bool) -> int:
    """Of `repeats` marches on the coarsest grid, how many go through the finer ones too: least variance times work.

    alike: whether the others are of the same size, so that all tell the level. Where grids follow each other closely,
    few are enough for their difference; where not, all of them. Of a zero-one error before the coarsest grid's first
    step the finer marches alone tell (`curves._between`); under a tolerance all recorded times must be known alike.
    """
    ask = grids.question
    if repeats == 1:
        return 1
    whole, coarse = sum(len(level.times) for level in levels), len(levels[-1].times)
    times, at = [level.times for level in levels], np.arange(len(levels[0].times))[:: levels[-1].stride]
    best, least, shares = repeats, math.inf, {}
    for name in JUDGED:
        if name in records[0].values and records[0].values[name].size:  # without a teacher there is no overlap
            values = [part.values[name].astype(np.float64) for part in records]
            sharp = extrapolation.limit(values, times, levels[-1].times, at).best
            rough = values[-1]
            parts = (np.var(rough, axis=0).mean(), np.var(sharp - rough, axis=0).mean(), np.var(sharp, axis=0).mean())
            if parts[0] > 0:
                shares[name] = parts
                record = grids.steps.record
                early = record[(record > 0) & (record < levels[-1].stride)]
                if ask.samples is None and name == "train_error" and metrics.SOFT in records[0].values and len(early):
                    shares["early"] = 0.0, np.var(values[0][:, early], axis=0).max(), parts[2]
    for finer in [2**k for k in range(repeats.bit_length()) if 2**k < repeats] + [repeats]:
        rest = repeats - finer
        work, telling = finer * whole + rest * coarse, repeats if alike else rest
        spread = max(((d / finer + v / telling) / s if rest else 1 / finer for v, d, s in shares.values()), default=1.0)
        if work * spread < least:
            best, least = finer, work * spread
    return best
