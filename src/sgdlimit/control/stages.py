"""Stages: from a tolerance to a solution, each with the steps and samples that the one before it asks for.

A tolerance is relative to the largest value of each curve, and is met when twice its total error is below it, so that
the true error is below it nineteen times in twenty. The first stage is small, and tells how the errors of all sources
stand; the next one takes shorter steps, larger or more marches, each as far as its own error asks. What the user fixes
stays as it is.
"""

import math
import time as clock
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from .. import _machine as machine
from ..dmft.work import REPEATS
from ..errors import reject
from ..estimate.curves import Labelled, Split, label
from ..estimate.marched import Marched
from ..execute.crew import Talk
from ..execute.place import bytes_of
from .marches import WITHIN, Effort, OutOfTime, Stage, climbed, more_functions
from .question import MOST_SAMPLES, Question, in_each
from .sources import LARGEST, MEMORY, ONE_MARCH, SOURCES, Draft, FiniteSamples, MonteCarlo, Review, TimeStep, remedied

DEFAULT_SAMPLES = 16384
"""Of the first stage, times the width."""
LOOSE = 0.02
"""From this tolerance on a first stage of many units is half as large: it mostly is the last."""
SMALL = 4
"""So many marches of the size at hand are better than larger ones, which are compiled."""
LARGEST_MARCH = 2**17
"""As far as one march grows that goes through all grids."""
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


class Reached(NamedTuple):
    """What one stage found, and how long it took."""

    stage: Stage
    found: Marched
    labelled: Labelled
    seconds: float
    """Without compiling."""
    compiling: float = 0.0
    """Seconds of it."""

    @property
    def effort(self) -> Effort:
        """What this stage did."""
        return self.stage.effort

    def worst(self, part: str = "total") -> float:
        """Return the largest relative error of the curves that must meet the tolerance: in all, or from one source."""
        return max((split.total if part == "total" else split.parts[part] for split in self._judged), default=0.0)

    @property
    def step_seen(self) -> float:
        """Return the largest part of these errors that shorter steps could take away."""
        return max((split.step_seen for split in self._judged), default=0.0)

    @property
    def noise(self) -> float:
        """Return the largest part of these errors that more samples take away."""
        return max((split.noise for split in self._judged), default=0.0)

    @property
    def _judged(self) -> list[Split]:
        """The errors of the curves that must meet the tolerance."""
        variables = self.stage.question.goal.variables
        return [split for name, split in self.labelled.errors.items() if name in variables]


class Outcome(NamedTuple):
    """The last stage, and whether it is what was asked for."""

    reached: Reached
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


def foresee(ask: Question) -> Talk[Forecast]:
    """Return what the first stage, once it is done, says that a solution will take."""
    reached = yield from one_stage(Stage(ask, first_effort(ask)))
    tol, done, found = ask.goal.tol, reached.effort, reached.found
    error = WITHIN * reached.worst()
    effort = done if error <= tol or found.diverged else next_effort(ask, reached)
    times = ask.steps(effort.halvings).times
    return Forecast(
        tol, error, float(np.max(np.diff(times))), len(times) - 1, effort.each * effort.repeats * ask.replicas,
        reached.seconds + (seconds_of(effort, reached) if effort != done else 0.0),
        bytes_of(replace(found.system, samples=max(effort.each, found.fed_back[0])), 1),
        reachable=not found.diverged and (error <= tol or effort != done),
    )  # fmt: skip


def first_effort(ask: Question) -> Effort:
    """Return what the first stage does: as the user says, or little."""
    width = ask.problem.width
    pair = width == 2 and ask.samples is None  # the bias is known to matter: they begin with larger marches
    wanted = ask.samples or DEFAULT_SAMPLES * width * (1 + pair)
    if ask.samples is None and width > 2 and ask.goal.tol >= LOOSE:
        wanted //= 2
    each = in_each(wanted, ask.replicas)
    least = min(in_each(max(ask.fewest[0], ask.known), 1), LARGEST_MARCH)
    if ask.samples is None:
        each = max(each, least)
    least = min(each, least)
    if ask.wish.plain:
        return Effort(0, each, 1)
    if ask.algorithm.discrete:  # one grid: few large marches cost no more than many small ones
        each = min(each, max(LARGEST, least))
        return Effort(0, each, max(1, -(-wanted // (each * ask.replicas))))
    fewest = (2 + pair) * ONE_MARCH * width * max(1.0, np.sqrt(wanted / (DEFAULT_SAMPLES * width)))
    count = max(least, min(each, 2 ** int(np.ceil(np.log2(fewest) - 0.5))))
    repeats = max(1, -(-wanted // (count * ask.replicas)))
    return Effort(0, count, repeats, count if repeats <= SMALL else max(count, _large(ask, repeats * count)))


def solve(ask: Question) -> Talk[Outcome]:
    """Return the last stage and how it ended: the tolerance is met, or cannot be met, time is up, or somebody presses
    Ctrl-C."""
    begin, compiling = clock.perf_counter(), 0.0
    effort, best = first_effort(ask), None
    for turn in range(1, STAGES + 1):
        deadline = math.inf if best is None else begin + ask.max_seconds
        try:
            reached = yield from one_stage(Stage(ask, effort, deadline, best and best.found))
        except OutOfTime:
            assert best is not None
            return Outcome(best, turn, compiling, *told(ask, best, "budget"))
        except KeyboardInterrupt:
            if best is None:
                raise
            return Outcome(best, turn - 1, compiling, *told(ask, best, "interrupted"))
        except Exception as error:
            if not machine.ran_out(error):
                raise
            if best is None:
                why = "memory that seemed to be there is not, other work may hold it; set it, or end that work"
                raise reject("max_bytes", f"{ask.place.room.now:.3g}, out of memory", why) from error
            return Outcome(best, turn - 1, compiling, *told(ask, best, "budget", CROWDED))
        best, compiling = reached, compiling + reached.compiling
        if reached.found.diverged or reached.worst() <= ask.goal.tol / WITHIN:
            return Outcome(reached, turn, compiling, "complete", "")
        effort = _cautious(ask, next_effort(ask, reached), reached)
        if effort == reached.effort:
            return Outcome(reached, turn, compiling, *told(ask, reached, "tolerance missed"))
        left = begin + ask.max_seconds - clock.perf_counter()
        if seconds_of(effort, reached) > left:
            if (shorter := _within(effort, reached, left)) is None:
                return Outcome(reached, turn, compiling, *told(ask, reached, "budget"))
            effort = shorter
    assert best is not None
    return Outcome(best, STAGES, compiling, *told(ask, best, "tolerance missed"))


def one_stage(stage: Stage) -> Talk[Reached]:
    """Return what all marches of one stage found, with the errors of every curve."""
    begin, ask, compiling = clock.perf_counter(), stage.question, 0.0
    talk, done = climbed(stage), None
    while True:
        try:
            wanted = next(talk) if done is None else talk.send(done)
        except StopIteration as end:
            found: Marched = end.value
            break
        done = yield wanted
        compiling += done.compiling
    labelled = label(found, SOURCES, ask.extrapolate, ask.place.shared)
    return Reached(stage, found, labelled, clock.perf_counter() - begin - compiling, compiling)


def next_effort(ask: Question, reached: Reached) -> Effort:
    """Return what the errors of a stage ask for; the same again where nothing more can be done."""
    done, found, goal = reached.effort, reached.found, ask.goal.tol / WITHIN
    review = Review(
        Draft(done.halvings, done.each, done.each * done.repeats),
        goal=goal,
        sizes={
            TimeStep.name: math.hypot(reached.step_seen, reached.worst(TimeStep.name)) / math.sqrt(2),
            MonteCarlo.name: reached.noise,
        }
        | {source.name: reached.worst(source.name) for source in (MEMORY, FiniteSamples)},
        marches=done.repeats,
        fed_back=found.fed_back[0],
        free_steps=ask.times.dt is None and len(reached.stage.strides(found.steps)) > 1,
        free_samples=ask.samples is None,
        denser=found.projection is not None and more_functions(found, goal),
    )
    draft = remedied(review)
    if draft == review.draft or not review.free_samples:
        return done._replace(halvings=draft.halvings)
    wanted, each = min(draft.wanted, MOST_SAMPLES / ask.replicas), draft.each
    if ask.wish.plain:
        each = 2 ** math.ceil(math.log2(max(wanted, each)))  # all in one march
    smallest = replace(found.system, samples=done.each)
    each = ask.place.fitting(smallest, min(each, LARGEST_MARCH))
    repeats = 1 if ask.wish.plain else min(max(1, math.ceil(wanted / each)), REPEATS)
    at_hand = max(each, done.large)
    few = not draft.least and wanted <= (1 + SMALL) * at_hand
    large = at_hand if few else max(_large(ask, wanted), min(draft.least, LARGEST), each)
    return Effort(draft.halvings, each, repeats, large)


def _cautious(ask: Question, effort: Effort, reached: Reached) -> Effort:
    """The part of a large piece of work after which to look again; all of it in one march, or of named samples."""
    most = GROWTH * reached.effort.each * reached.effort.repeats
    if ask.wish.plain or ask.samples is not None or effort.each > most:
        return effort
    halvings = min(effort.halvings, reached.effort.halvings + AT_ONCE)
    if effort.each * effort.repeats <= most:
        return effort._replace(halvings=halvings)
    return Effort(halvings, effort.each, most // effort.each, min(effort.large, max(_large(ask, most), effort.each)))


def _large(ask: Question, samples: float) -> int:
    """Of one march where a replica has so many: two or three, and few sizes, since each is compiled.

    On a CPU no larger than the cache holds: beyond it a sample costs twice the time.
    """
    most = LARGER[-1] // ask.problem.width if machine.idle() == 0 else LARGER[-1]
    return max((size for size in LARGER if 2 * size <= samples and size <= most), default=LARGER[0])


def seconds_of(effort: Effort, reached: Reached) -> float:
    """Return the seconds that a stage will take, from what the one before it took."""
    return reached.seconds * _size(effort, reached) / _size(reached.effort, reached)


def _size(effort: Effort, reached: Reached) -> float:
    """Samples times steps, on all grids: as many marches through the finer ones as in the stage before.

    A device that is not busy takes as long for few samples as for more of them, march by march.
    """
    found, strides = reached.found, reached.stage.strides(reached.found.steps)
    share = found.repeats * found.system.samples / max(found.samples, found.system.samples)
    each = 1 / strides[-1] + share * sum(1 / stride for stride in strides[:-1])
    marches = 1 + (effort.repeats - 1) * effort.each / (effort.large or effort.each)
    samples = effort.each * effort.repeats + marches * machine.idle() / reached.stage.question.replicas
    return samples * 2**effort.halvings * each


def _within(effort: Effort, reached: Reached, left: float) -> Effort | None:
    """As many marches as time allows, of the size that is wanted or of that there is; None if it is hardly more."""
    for tried in (effort, reached.effort._replace(halvings=effort.halvings), reached.effort):
        one, two = (seconds_of(tried._replace(repeats=count), reached) for count in (1, 2))
        repeats = min(1 + math.floor((0.8 * left - one) / (two - one)), effort.repeats)
        done = reached.effort.each * reached.effort.repeats
        if repeats * tried.each >= (WORTH * done if tried.halvings == reached.effort.halvings else done):
            return tried._replace(repeats=repeats)
    return None


def told(ask: Question, reached: Reached, status: str, limit: str = "") -> tuple[str, str]:
    """Return status and message: which curve misses the tolerance, by how much, and what would help."""
    if status == "tolerance missed" and not ask.goal.promised:
        return "complete", ""
    name = max(
        (name for name in ask.goal.variables if name in reached.labelled.errors),
        key=lambda name: reached.labelled.errors[name].total,
    )
    error = reached.labelled.errors[name]
    parts = {source.words: error.parts[source.name] for source in SOURCES if source.name in error.parts}
    largest = max(parts, key=lambda part: parts[part])
    text = f"{name} is known to {WITHIN * error.total:.2g} of its largest value, asked for {ask.goal.tol:g}"
    text += f" (most of it: {largest}, {WITHIN * parts[largest]:.2g})"
    if status == "interrupted":
        return status, text
    if status == "budget":
        return status, f"{text}; more does not fit into {limit or f'max_seconds = {ask.max_seconds:g}'}"
    if largest == TimeStep.words and ask.times.dt is not None:
        return status, f"{text}; take a smaller dt, or leave it out"
    if ask.samples is not None:
        return status, f"{text}; take more samples, or leave them out"
    return status, f"{text}; no more steps or samples are taken than this, a larger tol can be met"
