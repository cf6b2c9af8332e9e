"""What the marches of one stage found, before anything is concluded from it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..dmft.planning import Level, Steps
from ..dmft.system import Start, System
from ..dmft.work import Records


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
    compiling: float
    """Seconds."""

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
