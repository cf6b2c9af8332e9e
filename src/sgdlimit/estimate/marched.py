"""What the marches of one stage found, and one curve of it, replica by replica."""

import math
from dataclasses import dataclass, replace

import numpy as np

from ..dmft.planning import Level, Steps
from ..dmft.system import Start, System
from ..dmft.work import Records
from ..results.variables import OF, TWO_TIME
from .extrapolation import Limit


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
    fed_back: tuple[int, int]
    """Samples of one march, and marches of each replica, on the grid that the level of the curves comes from: fewer and
    larger than through all grids, since what a march of M samples feeds back to itself leaves a bias of 1/M."""

    def of(self, average: str) -> "Marched":
        """Return what was found of one average of the iterates, under the names of its variables; "": of the iterates
        themselves."""
        if not self.system.averages:
            return self

        def own(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            parts = ((name.rpartition(OF), value) for name, value in values.items())
            return {name: value for (head, _, name), value in parts if head == average}

        records = [replace(part, values=own(part.values)) for part in self.records]
        projection = None if self.projection is None else own(self.projection)
        return replace(self, records=records, shift=own(self.shift), projection=projection)

    @property
    def diverged(self) -> bool:
        """Whether the finest grid ended before its last time."""
        return bool(self.records[0].reason)

    @property
    def samples(self) -> int:
        """Samples of each replica on the coarsest grid."""
        return math.prod(self.fed_back)


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
    copies: np.ndarray
    """Values (replicas, times, …) in the limit of small steps, or on the finest grid."""
    value: np.ndarray
    """Their mean."""
    spread: np.ndarray
    """Its standard error."""

    @property
    def two_time(self) -> bool:
        """Whether it is a kernel, with an earlier time beside its own."""
        return self.name in TWO_TIME
