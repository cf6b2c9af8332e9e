"""How far a curve can be off: the four errors that stand beside it, each from what the marches tell."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..problem.observables import error_kind
from ..results.variables import TWO_TIME, over_replicas
from . import extrapolation
from .extrapolation import Limit
from .marched import Marched

BIAS = 0.35
"""Of one march over the standard error of 16, at ONE_MARCH samples: seen, not derived."""
ONE_MARCH = 512
"""Samples of one march, times the width, where few are taken; where more are, M grows as the root of all."""
NOISE = 4.0
"""Below so many of its standard errors an overlap is taken for zero."""


@dataclass(frozen=True)
class Curve:
    """One variable at the recorded times, replica by replica."""

    name: str
    found: Marched
    limit: Limit
    extrapolate: bool
    time: np.ndarray
    early: np.ndarray
    """Which times lie before the first step of the coarsest grid."""

    @property
    def two_time(self) -> bool:
        """Whether it is a kernel, with an earlier time beside its own."""
        return self.name in TWO_TIME

    @property
    def copies(self) -> np.ndarray:
        """Values (replicas, times, …) in the limit of small steps, or on the finest grid."""
        return self.limit.best if self.extrapolate else self.limit.plain

    @cached_property
    def _mean(self) -> tuple[np.ndarray, np.ndarray]:
        return over_replicas(self.copies)

    @property
    def value(self) -> np.ndarray:
        """The mean over replicas."""
        return self._mean[0]

    @property
    def spread(self) -> np.ndarray:
        """The standard error of the mean over replicas."""
        return self._mean[1]


def monte_carlo(curve: Curve) -> np.ndarray:
    """Return the standard error over replicas; of a zero-one error no less than one sample that nobody saw."""
    problem = curve.found.system.problem
    if curve.name != "train_error" or error_kind(problem) != "zero-one":
        return curve.spread
    return np.maximum(curve.spread, 1 / (len(curve.limit.best) * curve.found.system.samples))


def step(curve: Curve) -> np.ndarray:
    """Return what is left of the steps' error at every time."""
    return extrapolation.step_error(curve.limit, curve.extrapolate, 1 + curve.two_time, curve.early)


def step_beyond_noise(curve: Curve, error: np.ndarray) -> np.ndarray:
    """Return what of the steps' error stands out from the noise of the corrections, which more samples take away."""
    lower = curve.limit.lower if curve.extrapolate else curve.limit.plain
    _, noise = over_replicas(curve.limit.best - lower)
    unit = np.max(error, initial=1e-30)  # squares of what diverges would overflow
    return unit * np.sqrt(np.maximum((error / unit) ** 2 - (2 * noise / unit) ** 2, 0.0))


def bias(curve: Curve) -> np.ndarray:
    """Return what a march of M samples feeds back to itself, however many are averaged: it falls as 1/M.

    No spread tells it. Seen over many seeds on hard problems: no more than this share of the standard error of 16
    marches of 512 samples and unit of width.
    """
    each, marches = curve.found.fed_back
    one = curve.copies.std(axis=0, ddof=1) * np.sqrt(marches)
    return BIAS * one / 4 * np.sqrt(ONE_MARCH * curve.found.system.problem.width / each)


def projection(curve: Curve) -> np.ndarray | None:
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
