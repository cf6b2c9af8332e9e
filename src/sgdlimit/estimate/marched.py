"""What the marches of one stage found, and one curve of it, replica by replica."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..dmft.planning import Level, Steps
from ..dmft.system import Start, System
from ..dmft.work import Records
from ..results.variables import TWO_TIME, over_replicas
from .extrapolation import Limit


class Large(NamedTuple):
    """Marches of each replica on the coarsest grid alone, which the level of the curves comes from: fewer and larger,
    since what a march of M samples feeds back to itself leaves a bias of 1/M, on all grids alike."""

    each: int
    repeats: int


@dataclass(frozen=True)
class Marched:
    """What came out, every array (replicas, times of its grid, …)."""

    system: System
    steps: Steps
    seed: int
    levels: list[Level]
    records: list[Records]
    """Of every grid that is sound, from fine to coarse."""
    shift: dict[str, np.ndarray]
    """What larger marches on the coarsest grid change there; empty where there are none."""
    projection: dict[str, np.ndarray] | None
    """Distance between two sets of functions, (times of the coarsest grid, …), growing in time."""
    starts: list[Start]
    """What the replicas drew for their first march, slice by slice."""
    repeats: int
    """Marches of each replica on all grids."""
    large: Large

    @property
    def diverged(self) -> bool:
        """Whether the finest grid ended before its last time."""
        return bool(self.records[0].reason)

    @property
    def samples(self) -> int:
        """Samples of each replica on the coarsest grid."""
        return self.large.each * self.large.repeats or self.system.samples * self.repeats

    @property
    def fed_back(self) -> tuple[int, int]:
        """Samples of one march, and marches, on the grid that the level of the curves comes from."""
        return (self.large.each, self.large.repeats) if self.large.repeats else (self.system.samples, self.repeats)


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
