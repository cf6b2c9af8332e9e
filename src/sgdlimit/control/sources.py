"""What makes a curve uncertain: Monte Carlo, time step, memory, finite samples. Each is one small class.

A source tells its error at every time, the share that it may have of the error that is allowed, and its remedy: what
the next stage must do for it. A further source is a further class, in `SOURCES`.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol, final

import numpy as np

from ..estimate import curves, extrapolation
from ..estimate.marched import Curve, Marched
from ..problem.observables import error_kind
from ..results.variables import over_replicas

BIAS = 0.35
"""Of one march over the standard error of 16, at ONE_MARCH samples: seen, not derived."""
ONE_MARCH = 512
"""Samples of one march, times the width, where few are taken; where more are, M grows as the root of all."""
NOISE = 4.0
"""Below so many of its standard errors an overlap is taken for zero."""
LARGEST = 2**14
"""Samples of one march on the coarsest grid alone, at most."""
MARGIN = 1.3
"""More samples than an estimated error asks for: it is uncertain itself, and a solution that stops at the first of many
looks at which it is small enough believes in too small ones (with 1.1: coverage of a norm .91 for .95)."""
LEAST_NOISE = 0.5
"""Monte Carlo may have this share at least: with less, halving steps once more is cheaper."""
HALVINGS = 5
"""How often steps are halved where the user names none and their error is not small."""
DENSER = 0.3
"""What twice as many functions leave of the projection error, where nothing else is known; seen: 0.1 to 0.3."""
HELPS = 0.7
"""Twice as many functions must leave less than this of the projection error, or are not taken."""
JUDGED = ("train_loss", "train_error", "overlap", "norm")
"""Curves that decide how much is done."""


@dataclass(frozen=True)
class Draft:
    """What the next stage shall do, before it is rounded to sizes that exist."""

    halvings: int
    each: int
    """Samples of one march."""
    wanted: float
    """Samples of each replica on the coarsest grid."""
    least: int = 0
    """Samples that a large march must have; none: as it comes."""
    hopeless: bool = False
    """Whether nothing more can be done."""

    @property
    def work(self) -> float:
        """Samples times steps, in those of one march on the coarsest steps."""
        return self.wanted * 2**self.halvings


@dataclass(frozen=True)
class Review:
    """How a stage went, as far as a remedy must know."""

    draft: Draft
    """What it did."""
    goal: float
    """The relative error that is allowed."""
    sizes: dict[str, float]
    """Of the errors of the sources, what each could take away, noise being Monte Carlo's; the largest over all curves
    that are judged."""
    marches: int
    """Of each replica."""
    fed_back: int
    """Samples of one march on the grid that the level comes from."""
    free_steps: bool
    """Whether steps may be halved: they are neither named nor real."""
    free_samples: bool
    denser: bool = False
    """Whether the next stage begins with more functions of the past."""

    @property
    def samples_do(self) -> float:
        """The part of the error that more samples take away."""
        return math.hypot(self.sizes[MonteCarlo.name], self.sizes[FiniteSamples.name])


class Source(curves.Source, Protocol):
    """Something that makes a curve uncertain, and what can be done about it."""

    words: str
    """In messages."""
    share: float
    """Of the error that is allowed, which its own remedy sees to; no more than it is reckoned with by the others."""

    def left(self, draft: Draft, review: Review) -> float:
        """Return what will be left of its error after the draft."""
        ...

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return what the next stage must do for it, beside what the draft says already."""
        ...


@final
class TimeStep:
    """Steps that are not small: halved."""

    name, beside, words, share = "step", "step_error", "time step", 1.0

    def error(self, curve: Curve) -> np.ndarray:
        """Return what is left of the steps' error at every time."""
        return extrapolation.step_error(curve.limit, curve.extrapolate, 1 + curve.two_time, curve.early)

    def left(self, draft: Draft, review: Review) -> float:
        """Return a quarter for each halving: two orders are taken off, at least."""
        return review.sizes[self.name] / 4.0 ** (draft.halvings - review.draft.halvings)

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return the draft as it is, hopeless where steps are too long and stay so: how far they are halved is a
        question of the least work (`remedied`)."""
        stuck = not review.free_steps or review.draft.halvings == HALVINGS
        if stuck and review.sizes[self.name] > review.goal:
            return replace(draft, hopeless=review.samples_do <= review.goal)  # more samples do not help
        return draft


@final
class FiniteSamples:
    """What a march feeds back to itself: larger ones."""

    name, beside, words, share = "bias", "bias_error", "finite samples", 0.4

    def error(self, curve: Curve) -> np.ndarray:
        """Return what a march of M samples feeds back to itself, however many are averaged: it falls as 1/M.

        No spread tells it. Seen over many seeds on hard problems: no more than this share of the standard error of 16
        marches of 512 samples and unit of width.
        """
        each, marches = curve.found.fed_back
        one = curve.copies.std(axis=0, ddof=1) * np.sqrt(marches)
        return BIAS * one / 4 * np.sqrt(ONE_MARCH * curve.found.system.problem.width / each)

    def left(self, draft: Draft, review: Review) -> float:
        """Return the error over how much larger marches become."""
        return review.sizes[self.name] * min(1.0, review.fed_back / max(draft.least, 1))

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return the draft with larger marches: the bias falls as 1/M."""
        size, allowed = review.sizes[self.name], self.share * review.goal
        if not review.free_samples or size <= allowed:
            return draft
        least = 2 ** math.ceil(math.log2(size / allowed) - 0.25) * review.fed_back
        # beyond the largest, marches on the coarsest grid alone do not help
        each = least if review.marches > 1 and least > LARGEST else draft.each
        return replace(draft, each=each, least=least, wanted=max(draft.wanted, least))


@final
class Memory:
    """The past, projected on functions: more of them, taken while a stage is marched (`marches.climbed`)."""

    name, beside, words, share = "projection", "projection_error", "memory", 0.6

    def error(self, curve: Curve) -> np.ndarray | None:
        """Return the distance between two sets of functions; for test averages that of the weights' second moments,
        relative to them."""
        found, name, time, value = curve.found, curve.name, curve.time, curve.value
        if curve.two_time:
            return None
        if found.projection is None or not value.size:
            return np.zeros_like(value)
        own = found.levels[-1].times

        def at(gap: np.ndarray) -> np.ndarray:
            return gap[np.clip(np.searchsorted(own, time - 1e-12), 0, len(gap) - 1)]

        if name == "train_error" and "train_loss" in found.projection:  # of an error that jumps only noise would show
            size = np.max(np.abs(found.records[-1].values["train_loss"].mean(axis=0)), initial=1e-30)
            return np.abs(value) * at(found.projection["train_loss"]) / size
        if name in found.projection:
            return at(found.projection[name])
        relative = np.zeros(len(time))
        for part in ("norm", "overlap"):
            mean, error = over_replicas(found.records[-1].values[part])
            size = np.max(np.abs(mean), initial=0.0)
            if size > NOISE * np.max(error, initial=0.0):  # an overlap that vanishes moves nothing
                gap = found.projection[part].reshape(len(found.projection[part]), -1).max(axis=1, initial=0.0)
                relative = np.maximum(relative, at(gap) / size)
        return np.abs(value) * relative.reshape(-1, *[1] * (value.ndim - 1))

    def left(self, draft: Draft, review: Review) -> float:
        """Return the error, or what twice as many functions leave of it."""
        return review.sizes[self.name] * (DENSER if review.denser else 1.0)

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return the draft as it is, hopeless where memory alone is too much and the others are small: all functions
        that help were taken within the stage."""
        alone = review.sizes[self.name] > review.goal and review.samples_do <= review.goal
        return replace(draft, hopeless=True) if alone else draft

    def excess(self, found: Marched, goal: float, noise: float = 1.0) -> float:
        """Return the largest error over what counts as small: its share of what is allowed, or so many times the noise
        of Monte Carlo."""
        assert found.projection is not None
        most = 0.0
        for name in JUDGED:
            if name != "train_error" and name in found.projection and found.projection[name].size:  # errors jump
                gap = found.projection[name]
                value, error = over_replicas(found.records[-1].values[name][:, : len(gap)])
                allowed = np.maximum(noise * error, self.share * goal * np.max(np.abs(value), initial=1e-30))
                most = max(most, float(np.max(gap / allowed)))
        return most


@final
class MonteCarlo:
    """Few samples: more of them, for what the others leave of the error that is allowed."""

    name, beside, words, share = "monte_carlo", "stderr", "Monte Carlo", 1.0

    def error(self, curve: Curve) -> np.ndarray:
        """Return the standard error over replicas; of a zero-one error no less than one sample that nobody saw."""
        problem = curve.found.system.problem
        if curve.name != "train_error" or error_kind(problem) != "zero-one":
            return curve.spread
        return np.maximum(curve.spread, 1 / (len(curve.limit.best) * curve.found.system.samples))

    def left(self, draft: Draft, review: Review) -> float:
        """Return the error over the root of how many more samples there are."""
        return review.sizes[self.name] * math.sqrt(review.draft.wanted / draft.wanted)

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return the draft with more samples: the square of the error falls as 1/M."""
        if not review.free_samples:
            return draft
        allowed = max(room(draft, review), LEAST_NOISE * review.goal)
        factor = max(1.0, MARGIN * (self.left(review.draft, review) / allowed) ** 2)
        return replace(draft, wanted=max(draft.wanted, review.draft.wanted * factor))


MEMORY = Memory()
SOURCES: tuple[Source, ...] = (TimeStep(), MEMORY, FiniteSamples(), MonteCarlo())
"""In the order of their remedies: Monte Carlo has what the others leave."""


def room(draft: Draft, review: Review) -> float:
    """Return what the other sources leave Monte Carlo of the error that is allowed, once the draft is done."""
    others = [source for source in SOURCES if source.name != MonteCarlo.name]
    left = [min(source.left(draft, review), source.share * review.goal) for source in others]
    return math.sqrt(max(review.goal**2 - sum(size**2 for size in left), 0.0))


def remedied(review: Review) -> Draft:
    """Return the least work that all sources together ask for; what was done where nothing more can be.

    Shorter steps leave more of the error to Monte Carlo, and cost twice as much: as long as they leave it its least
    share, the cheaper of both is taken.
    """
    done, best = review.draft, None
    last = HALVINGS if review.free_steps else done.halvings
    for halvings in range(done.halvings, last + 1):
        draft = replace(done, halvings=halvings)
        for source in SOURCES:
            draft = source.remedy(draft, review)
        if draft.hopeless:
            return done
        enough = halvings == last or room(draft, review) >= LEAST_NOISE * review.goal
        if enough and (best is None or draft.work < best.work):
            best = draft
    assert best is not None
    if review.free_samples and replace(best, least=0) == done:
        return replace(best, wanted=1.5 * best.wanted)  # each part is small enough, their sum is not
    return best
