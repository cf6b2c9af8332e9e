"""What makes a curve uncertain: Monte Carlo, time step, memory, finite samples. Each is one small class.

A source tells its error at every time, the share that it may have of the error that is allowed, and its remedy: what
the next stage must do for it. A further source is a further class, in `SOURCES`.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol, final

import numpy as np

from ..estimate import curves, errors
from ..estimate.errors import Curve
from ..estimate.marched import Marched
from ..results.variables import over_replicas

LARGEST = 2**14
"""Samples of one march on the coarsest grid alone, at most."""
MARGIN = 1.3
"""More samples than an estimated error asks for: it is uncertain itself."""
LEAST_NOISE = 0.5
"""Monte Carlo may have this share at least: with less, halving steps once more is cheaper."""
HALVINGS = 5
"""How often steps are halved where the user names none and their error is not small."""
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


@dataclass(frozen=True)
class Review:
    """How a stage went, as far as a remedy must know."""

    draft: Draft
    """What it did."""
    goal: float
    """The relative error that is allowed."""
    sizes: dict[str, float]
    """Of the errors of the sources, what each could take away; the largest over all curves that are judged."""
    marches: int
    """Of each replica."""
    fed_back: int
    """Samples of one march on the grid that the level comes from."""
    free_steps: bool
    """Whether steps may be halved: they are neither named nor real."""
    free_samples: bool

    @property
    def samples_do(self) -> float:
        """The part of the error that more samples take away."""
        return math.hypot(self.sizes[MonteCarlo.name], self.sizes[FiniteSamples.name])


class Source(curves.Source, Protocol):
    """Something that makes a curve uncertain, and what can be done about it."""

    words: str
    """In messages."""
    share: float
    """Of the error that is allowed."""

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return what the next stage must do for it, beside what the draft says already."""
        ...


@final
class TimeStep:
    """Steps that are not small: halved."""

    name, beside, words, share = "step", "step_error", "time step", 0.5

    def error(self, curve: Curve) -> np.ndarray:
        """Return what extrapolation leaves of the steps' error."""
        return errors.step(curve)

    def asks(self, curve: Curve, error: np.ndarray) -> np.ndarray:
        """Return what its own noise could not make: the rest falls with more samples."""
        return errors.step_beyond_noise(curve, error)

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return the draft with more halvings: each takes at least a quarter of what is left of two orders, so that at
        a few times the goal one will do."""
        size, goal = review.sizes[self.name], review.goal
        if size > goal and (not review.free_steps or draft.halvings == HALVINGS):
            return replace(draft, hopeless=review.samples_do <= goal)  # more samples do not help a step that was given
        if review.free_steps and size > self.share * goal:
            more = max(1, math.ceil(math.log2(size / (self.share * goal)) / 2 - 0.25))
            return replace(draft, halvings=min(HALVINGS, draft.halvings + more))
        return draft


@final
class FiniteSamples:
    """What a march feeds back to itself: larger ones."""

    name, beside, words, share = "bias", "bias_error", "finite samples", 0.4

    def error(self, curve: Curve) -> np.ndarray:
        """Return the bias of marches of finite size, which no spread tells."""
        return errors.bias(curve)

    def asks(self, curve: Curve, error: np.ndarray) -> np.ndarray:
        """Return all of the error."""
        return error

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
        """Return the distance between two sets of functions."""
        return errors.projection(curve)

    def asks(self, curve: Curve, error: np.ndarray) -> np.ndarray:
        """Return all of the error."""
        return error

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
        """Return the standard error over replicas."""
        return errors.monte_carlo(curve)

    def asks(self, curve: Curve, error: np.ndarray) -> np.ndarray:
        """Return all of the error."""
        return error

    def remedy(self, draft: Draft, review: Review) -> Draft:
        """Return the draft with more samples: the square of the error falls as 1/M."""
        if not review.free_samples:
            return draft
        goal = review.goal
        rest = sum(min(review.sizes[s.name], s.share * goal) ** 2 for s in SOURCES if s is not self)
        allowed = max(math.sqrt(max(goal**2 - rest, 0.0)), LEAST_NOISE * goal)
        factor = max(1.0, MARGIN * (review.sizes[self.name] / allowed) ** 2)
        return replace(draft, wanted=max(draft.wanted, review.draft.wanted * factor))


MEMORY = Memory()
SOURCES: tuple[Source, ...] = (MonteCarlo(), TimeStep(), MEMORY, FiniteSamples())
"""In the order in which they are told."""


def remedied(review: Review) -> Draft:
    """Return what all sources together ask for; what was done where nothing more can be."""
    draft = review.draft
    for source in SOURCES:
        draft = source.remedy(draft, review)
        if draft.hopeless:
            return review.draft
    if review.free_samples and replace(draft, least=0) == review.draft:
        return replace(draft, wanted=1.5 * draft.wanted)  # each part is small enough, their sum is not
    return draft
