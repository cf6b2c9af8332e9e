"""From a tolerance to a solution: stages of marches, each with the steps and samples that the one before it asks for.

A tolerance is relative to the largest value of each curve, and is met when twice its total error is below it, so that
the true error is below it nineteen times in twenty. The first stage is small, and tells how the errors of Monte Carlo,
time step, memory and finite samples stand; the next one takes shorter steps, larger or more marches, each as far as its
own error asks. What the user fixes stays as it is.
"""

import math
import time as clock
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from .. import _machine as machine
from ..algorithms import Algorithm
from ..algorithms.base import check_share
from ..errors import reject
from ..problem import Problem
from ..problem.data import Table
from ..problem.problem import FEWEST_RARE
from ..results.checkpoint import Checkpoint
from . import drive, estimate, memory, planning
from .assemble import assemble
from .checks import PART, Pace, Room, bytes_of, check_draws, check_step, fitting
from .drive import Job, Marched
from .estimate import Labelled
from .memory import Memory
from .response import Response
from .system import System

DEFAULT_TOLERANCE = 1e-2
WITHIN = 2.0
"""Total errors in a tolerance."""
STEP_SHARE, PROJECTION_SHARE, BIAS_SHARE = 0.5, 0.5, 0.4
"""What each may have of the error that is allowed; the squares of what is left are for Monte Carlo."""
LEAST_NOISE = 0.5
"""Monte Carlo may have this share at least: with less, halving steps once more is cheaper."""
MARGIN = 1.3
"""More samples than an estimated error asks for: it is uncertain itself."""
DEFAULT_SAMPLES = 16384
"""Of the first stage, times the width."""
SMALL = 4
"""So many marches of the size at hand are better than larger ones, which are compiled."""
MOST_SAMPLES = 2**26
"""As far as samples grow, and may be asked for."""
FEWEST = 256
"""Samples of one march at least: its averages are what everything else feeds on."""
LARGEST_MARCH = 2**17
"""As far as one march grows that goes through all grids."""
HALVINGS = 5
"""How often steps are halved where the user names none and their error is not small."""
LARGER = (2**11, 2**12, 2**13, 2**14)
"""Samples of a march after the first."""
STAGES = 12
GROWTH, AT_ONCE = 5, 2
"""Samples of a stage, over those of the one before, and halvings, at most: what a small stage tells of either is
uncertain, near the largest stable temperature above all, where small marches scatter more than larger ones."""
CROWDED = "the memory that is there"
"""What a stage does not fit into where others hold memory: the end of a message, and another time it may fit."""
WORTH = 1.5
"""A stage that a budget cuts short begins only if it has so many times the samples of the one before."""


@dataclass(frozen=True)
class Ask:
    """What is asked for, checked."""

    problem: Problem
    algorithm: Algorithm
    t_max: Any
    times: Any
    dt: float | None
    samples: int | None
    seed: int
    replicas: int
    extrapolate: bool
    functions: int | None
    """Of the past, where the user fixes how many."""
    dtype: str
    response: Response
    """How Γ and 𝓡 are found."""
    dense: bool
    """Whether all of the past is kept, step by step."""
    kernels: bool
    tested: Table | None
    """Groups of the fresh samples of a test, where their law is another."""
    snapshots: Any
    metrics: Any
    weight_metrics: Any
    pace: Pace
    linear: bool
    tol: float
    promised: bool
    """Whether a tolerance that is missed is told: not where the user fixed steps or samples and named none."""
    variables: tuple[str, ...]
    """Curves that must meet it."""
    max_seconds: float
    room: Room
    kept: Checkpoint
    progress: bool | None
    fewest: tuple[int, str] = (1, "")
    """Samples that a march must have to see the rare events that an average rests on, and which average."""
    heavy: tuple[str, ...] = ()
    """Curves whose averages do not settle under the noise."""

    def steps(self, halvings: int) -> planning.Steps:
        """Of the finest grid, halved so often."""
        limit = self.pace.limit / PART
        gentle = self.extrapolate and not self.kernels
        steps = planning.steps(
            self.algorithm, self.t_max, self.times, self.dt, limit, self.kernels, halvings, gentle, self.pace.moving
        )
        check_step(self.algorithm, steps.times, self.pace.limit)
        check_share(self.algorithm, steps.times)
        return steps

    def system(self, count: int, steps: planning.Steps) -> System:
        """One march of so many samples."""
        check_draws(self.algorithm, self.problem, count, steps.times)
        self._check_rare(count)
        return assemble(
            self.problem, self.algorithm, count, planning.dense(steps.times), linear=self.linear,
            response=self.response, tested=self.tested, dtype=self.dtype, metrics=self.metrics,
            weight_metrics=self.weight_metrics, kernels=self.kernels,
        )  # fmt: skip

    def _check_rare(self, count: int) -> None:
        """Refuse a march in which too few of the rare events happen that its averages rest on."""
        need, which = self.fewest
        if count >= need:
            return
        why = f"a march must hold {need} samples to see {FEWEST_RARE} of the rare events that the {which} rests on"
        enough = in_each(need, 1) * self.replicas
        why += f"; take samples={enough} or more" * (enough <= MOST_SAMPLES)
        why += "; make them less rare, or (for a square loss) use sl.least_squares, which needs moments alone"
        if self.samples is not None:
            raise reject("samples", self.samples, f"{count} samples a march; {why}")
        raise reject("noise, labels, teacher", f"events once in {need / FEWEST_RARE:.2g} samples", why)

    @property
    def plain(self) -> bool:
        """Whether draws or kernels are wanted, which are not averaged over marches."""
        return self.kernels or self.snapshots is not None or bool(self.weight_metrics)

    def memories(self, steps: planning.Steps) -> list[Memory]:
        """What is tried in turn: functions, twice as many, four times as many; or what the user fixes."""
        if self.dense:
            return [planning.dense(steps.times)]
        few = planning.functions(self.problem, self.algorithm, steps.times, self.pace.slopes)
        if self.functions is not None:
            return [memory.resized(few, self.functions)]
        more = memory.denser(few)
        return [few, more, memory.denser(more)]


class Work(NamedTuple):
    """What one stage does."""

    halvings: int
    each: int
    """Samples of one march, a power of two."""
    repeats: int
    """Marches of each replica on the coarsest grid."""
    large: int = 0
    """Samples of a march on the coarsest grid alone, or after the first; none: as above."""


class Stage(NamedTuple):
    """What one stage found, and how long it took."""

    work: Work
    job: Job
    found: Marched
    labelled: Labelled
    seconds: float
    """Without compiling."""

    @property
    def diverged(self) -> bool:
        """Whether it ended before its last time."""
        return bool(self.found.records[0].reason)


class Outcome(NamedTuple):
    """The last stage, and whether it is what was asked for."""

    stage: Stage
    stages: int
    compiling: float
    status: str
    message: str


@final
@dataclass(frozen=True)
class Forecast:
    """What a solution will take; all but the errors of the first stage is an estimate."""

    tol: float
    error: float
    """Of the first stage: twice the largest total error, relative to its curve."""
    dt: float
    steps: int
    samples: int
    seconds: float
    """Beside compiling, on this machine."""
    memory: float
    """Bytes that a march holds."""
    reachable: bool

    def __repr__(self) -> str:
        words = (
            f"<Forecast for tol = {self.tol:g}: about {self.seconds:.2g} s, {self.samples} samples, {self.steps} steps"
            f" of {self.dt:.3g}, {self.memory / 2**20:.3g} MiB; known to {self.error:.2g} after the first stage"
        )
        return words + (">" if self.reachable else "; out of reach>")


def foresee(ask: Ask) -> Forecast:
    """The first stage, and what it asks for."""
    stage = one_stage(ask, first_work(ask))
    error = WITHIN * worst(ask, stage.labelled)
    work = stage.work if error <= ask.tol or stage.diverged else next_work(ask, stage)
    times = ask.steps(work.halvings).times
    return Forecast(
        ask.tol, error, float(np.max(np.diff(times))), len(times) - 1, work.each * work.repeats * ask.replicas,
        stage.seconds + (seconds_of(work, stage) if work != stage.work else 0.0),
        bytes_of(replace(stage.found.system, samples=max(work.each, stage.found.fed_back[0])), 1),
        reachable=not stage.diverged and (error <= ask.tol or work != stage.work),
    )  # fmt: skip


def in_each(samples: int, replicas: int) -> int:
    """Of so many samples, those of one replica: a power of two."""
    return 2 ** (max(-(-samples // replicas), FEWEST) - 1).bit_length()


def first_work(ask: Ask) -> Work:
    """As the user says, or a small one."""
    width = ask.problem.width
    wanted = ask.samples or DEFAULT_SAMPLES * width
    each, least = in_each(wanted, ask.replicas), min(in_each(ask.fewest[0], 1), LARGEST_MARCH)
    if ask.samples is None:
        each = max(each, least)
    least = min(each, least)
    if ask.plain:
        return Work(0, each, 1)
    if ask.algorithm.discrete:  # one grid: few large marches cost no more than many small ones
        each = min(each, max(drive.LARGEST, least))
        return Work(0, each, max(1, -(-wanted // (each * ask.replicas))))
    fewest = 2 * estimate.ONE_MARCH * width * max(1.0, np.sqrt(wanted / (DEFAULT_SAMPLES * width)))
    count = max(least, min(each, 2 ** int(np.ceil(np.log2(fewest) - 0.5))))
    repeats = max(1, -(-wanted // (count * ask.replicas)))
    return Work(0, count, repeats, count if repeats <= SMALL else max(count, _large(ask, repeats * count)))


def solve(ask: Ask) -> Outcome:
    """Stage by stage, until the tolerance is met, cannot be met, time is up, or somebody presses Ctrl-C."""
    begin, compiling = clock.perf_counter(), 0.0
    work, best = first_work(ask), None
    for turn in range(1, STAGES + 1):
        deadline = math.inf if best is None else begin + ask.max_seconds
        try:
            stage = one_stage(ask, work, deadline)
        except drive.OutOfTime:
            assert best is not None
            return Outcome(best, turn, compiling, *_told(ask, best, "budget"))
        except KeyboardInterrupt:
            if best is None:
                raise
            return Outcome(best, turn - 1, compiling, *_told(ask, best, "interrupted"))
        except Exception as error:
            if not machine.ran_out(error):
                raise
            if best is None:
                why = "memory that seemed to be there is not, other work may hold it; set it, or end that work"
                raise reject("max_bytes", f"{ask.room.now:.3g}, out of memory", why) from error
            return Outcome(best, turn - 1, compiling, *_told(ask, best, "budget", CROWDED))
        compiling += stage.found.compiling
        if stage.diverged:
            return Outcome(stage, turn, compiling, "complete", "")
        best = stage
        if worst(ask, stage.labelled) <= ask.tol / WITHIN:
            return Outcome(stage, turn, compiling, "complete", "")
        work = _cautious(ask, next_work(ask, stage), stage)
        if work == stage.work:
            return Outcome(stage, turn, compiling, *_told(ask, stage, "tolerance missed"))
        left = begin + ask.max_seconds - clock.perf_counter()
        if seconds_of(work, stage) > left:
            shorter = _within(work, stage, left)
            if shorter is None:
                return Outcome(stage, turn, compiling, *_told(ask, stage, "budget"))
            work = shorter
    assert best is not None
    return Outcome(best, STAGES, compiling, *_told(ask, best, "tolerance missed"))


def one_stage(ask: Ask, work: Work, deadline: float = math.inf) -> Stage:
    """All marches of one stage."""
    begin = clock.perf_counter()
    steps = ask.steps(work.halvings)
    strides = planning.strides(ask.algorithm, float(np.max(np.diff(steps.times))), ask.pace.limit)
    keep = planning.snapshot_steps(steps.times, ask.snapshots)
    drawn = bool(ask.weight_metrics) or len(keep) > 0 or not ask.linear
    job = Job(
        ask.system(work.each, steps), steps, strides, ask.seed, ask.replicas, work.repeats,
        work.large or work.each, keep, drawn,
        PROJECTION_SHARE * ask.tol / WITHIN, ask.kept, ask.room, ask.samples is None, deadline,
    )  # fmt: skip
    found = drive.march(job, ask.memories(steps), ask.progress)
    labelled = estimate.label(job, found, ask.extrapolate)
    return Stage(work, job, found, labelled, clock.perf_counter() - begin - found.compiling)


def worst(ask: Ask, labelled: Labelled, part: str = "total") -> float:
    """The largest error, relative, of the curves that must meet the tolerance."""
    return max((getattr(labelled.errors[name], part) for name in ask.variables if name in labelled.errors), default=0.0)


def next_work(ask: Ask, stage: Stage) -> Work:
    """What the errors of a stage ask for; the same work again where nothing more can be done."""
    goal, work, labelled = ask.tol / WITHIN, stage.work, stage.labelled
    # of the steps' error what its own noise could not make: the rest falls with more samples
    step, bias, noise = (worst(ask, labelled, part) for part in ("step_seen", "bias", "monte_carlo"))
    halvings = work.halvings
    if step > goal and (ask.dt is not None or len(stage.job.strides) == 1 or halvings == HALVINGS):
        if math.hypot(noise, bias) <= goal:
            return work  # more samples do not help a step that was given
    elif ask.dt is None and len(stage.job.strides) > 1 and step > STEP_SHARE * goal:
        # each halving takes at least a quarter of what is left of two orders; at a few times the goal one will do
        more = max(1, math.ceil(math.log2(step / (STEP_SHARE * goal)) / 2 - 0.25))
        halvings = min(HALVINGS, halvings + more)
    if ask.samples is not None:
        return work._replace(halvings=halvings)
    shared = min(step, STEP_SHARE * goal) ** 2 + min(bias, BIAS_SHARE * goal) ** 2
    shared += min(worst(ask, labelled, "projection"), PROJECTION_SHARE * goal) ** 2
    allowed = max(math.sqrt(max(goal**2 - shared, 0.0)), LEAST_NOISE * goal)
    samples = work.each * work.repeats
    wanted = samples * max(1.0, MARGIN * (noise / allowed) ** 2)
    each, least = work.each, 0
    if bias > BIAS_SHARE * goal:
        least = 2 ** math.ceil(math.log2(bias / (BIAS_SHARE * goal)) - 0.25) * stage.found.fed_back[0]
        if work.repeats > 1 and least > drive.LARGEST:
            each = least  # marches on the coarsest grid alone do not help
        wanted = max(wanted, least)
    if halvings == work.halvings and each == work.each and wanted == samples:
        wanted *= 1.5  # each part is small enough, their sum is not
    wanted = min(wanted, MOST_SAMPLES / ask.replicas)
    if ask.plain:
        each = 2 ** math.ceil(math.log2(max(wanted, each)))  # all in one march
    each = fitting(stage.job.system, min(each, LARGEST_MARCH), ask.room)
    repeats = 1 if ask.plain else min(max(1, math.ceil(wanted / each)), drive.REPEATS)
    at_hand = max(each, stage.work.large)
    few = not least and wanted <= (1 + SMALL) * at_hand
    return Work(halvings, each, repeats, at_hand if few else max(_large(ask, wanted), min(least, drive.LARGEST), each))


def _cautious(ask: Ask, work: Work, stage: Stage) -> Work:
    """The part of a large piece of work after which to look again; all of it in one march, or of named samples."""
    most = GROWTH * stage.work.each * stage.work.repeats
    if ask.plain or ask.samples is not None or work.each > most:
        return work
    halvings = min(work.halvings, stage.work.halvings + AT_ONCE)
    if work.each * work.repeats <= most:
        return work._replace(halvings=halvings)
    return Work(halvings, work.each, most // work.each, min(work.large, max(_large(ask, most), work.each)))


def _large(ask: Ask, samples: float) -> int:
    """Of one march where a replica has so many: two or three, and few sizes, since each is compiled.

    On a CPU no larger than the cache holds: beyond it a sample costs twice the time.
    """
    most = LARGER[-1] // ask.problem.width if machine.idle() == 0 else LARGER[-1]
    return max((size for size in LARGER if 2 * size <= samples and size <= most), default=LARGER[0])


def seconds_of(work: Work, stage: Stage) -> float:
    """What a stage will take, from what the one before it took."""
    return stage.seconds * _size(work, stage) / _size(stage.work, stage)


def _size(work: Work, stage: Stage) -> float:
    """Samples times steps, on all grids: as many marches through the finer ones as in the stage before.

    A device that is not busy takes as long for few samples as for more of them, march by march.
    """
    share = stage.found.repeats * stage.found.system.samples / max(stage.found.samples, stage.found.system.samples)
    grids = sum(1 / stride for stride in stage.job.strides)
    each = 1 / stage.job.strides[-1] + share * (grids - 1 / stage.job.strides[-1])
    marches = 1 + (work.repeats - 1) * work.each / (work.large or work.each)
    samples = work.each * work.repeats + marches * machine.idle() / stage.job.replicas
    return samples * 2**work.halvings * each


def _within(work: Work, stage: Stage, left: float) -> Work | None:
    """As many marches as time allows, of the size that is wanted or of that there is; None if it is hardly more."""
    for tried in (work, stage.work._replace(halvings=work.halvings), stage.work):
        one, two = (seconds_of(tried._replace(repeats=count), stage) for count in (1, 2))
        repeats = min(1 + math.floor((0.8 * left - one) / (two - one)), work.repeats)
        done = stage.work.each * stage.work.repeats
        if repeats * tried.each >= (WORTH * done if tried.halvings == stage.work.halvings else done):
            return tried._replace(repeats=repeats)
    return None


def _told(ask: Ask, stage: Stage, status: str, limit: str = "") -> tuple[str, str]:
    """Status and message: which curve misses the tolerance, by how much, and what would help."""
    if status == "tolerance missed" and not ask.promised:
        return "complete", ""
    name = max(
        (name for name in ask.variables if name in stage.labelled.errors),
        key=lambda name: stage.labelled.errors[name].total,
    )
    error = stage.labelled.errors[name]
    parts = {"Monte Carlo": error.monte_carlo, "time step": error.step, "memory": error.projection,
             "finite samples": error.bias}  # fmt: skip
    largest = max(parts, key=lambda part: parts[part])
    text = f"{name} is known to {WITHIN * error.total:.2g} of its largest value, asked for {ask.tol:g}"
    text += f" (most of it: {largest}, {WITHIN * parts[largest]:.2g})"
    if status == "interrupted":
        return status, text
    if status == "budget":
        return status, f"{text}; more does not fit into {limit or f'max_seconds = {ask.max_seconds:g}'}"
    if largest == "time step" and ask.dt is not None:
        return status, f"{text}; take a smaller dt, or leave it out"
    if ask.samples is not None:
        return status, f"{text}; take more samples, or leave them out"
    return status, f"{text}; no more steps or samples are taken than this, a larger tol can be met"
