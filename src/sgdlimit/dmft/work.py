"""What is asked of a march, and what comes back: `Work` is one grid of some replicas, `Records` are its numbers."""

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np

from .._types import Host
from ..exact.stability import BOUND
from ..measure.pace import speed_of
from . import noise, planning
from .memory import Memory
from .planning import Level
from .system import Start, System

REPEATS, REPLICAS = 4096, 4096
"""Most of each: every march has a seed of its own."""
CHECKED = (
    "train_loss",
    "train_error",
    "norm",
    "overlap",
    "mean_overlap",
    "intercept",
    "readout",
    "bias",
    "output_bias",
)
"""What must stay finite; a user's own metric may be what it likes."""

Values = dict[str, Host]
"""Numbers by the name of what was recorded."""


@dataclass(frozen=True)
class Work:
    """March these replicas on one grid: all that the numbers depend on, nothing about where or how it is done."""

    system: System
    times: Host = field(repr=False)
    """Of the finest grid."""
    stride: int
    """Fine steps to a step of this one."""
    seed: int
    replicas: range
    turn: int = 0
    """Of the marches of one replica, which."""
    functions: Memory | None = None
    """That it marches with, where they are others than the system's: two sets are compared."""
    keep: tuple[int, ...] = ()
    """Steps whose draws are returned."""
    draws_weights: bool = False
    """Whether (θ⁰, θ*) are drawn."""

    @property
    def name(self) -> str:
        """The name of this work, the same in every process, within one solution; what is long as a digest."""
        memories = self.system.memory, self.functions or self.system.memory
        long = hashlib.sha256(self.times.tobytes() + repr(memories).encode()).hexdigest()[:16]
        place = f"{self.replicas.start} to {self.replicas.stop}"
        return f"{long} stride {self.stride} samples {self.system.samples} turn {self.turn} replicas {place}"

    @property
    def level(self) -> Level:
        """The grid that is marched, with all that its steps need to know."""
        system, functions = self.system, self.functions or self.system.memory
        speed = speed_of(system.problem, self.times)
        return planning.level(self.times, self.stride, functions, system.dtype, system.algorithm.discrete, speed)

    @property
    def steps(self) -> int:
        """Steps of all its replicas together."""
        return -(-len(self.times) // self.stride) * len(self.replicas)

    def cut(self, size: int) -> list["Work"]:
        """Return this work in slices of so many replicas each; the last may have fewer."""
        first, last = self.replicas.start, self.replicas.stop
        return [replace(self, replicas=range(i, min(i + size, last))) for i in range(first, last, size)]

    def draws(self) -> list[Start]:
        """Return what every replica draws before its first step."""
        system = self.system
        numbers = [self.seed * REPEATS * REPLICAS + self.turn * REPLICAS + i for i in self.replicas]
        return [
            noise.draw(system.problem, system.groups, system.samples, number, system.dtype, self.draws_weights)
            for number in numbers
        ]


@dataclass(frozen=True)
class Records:
    """One value a replica and step, (replicas, steps reached, …)."""

    values: Values
    draws: dict[int, Values]
    """By step: draws of the effective processes."""
    reached: int
    """Steps whose numbers are sound."""
    reason: str
    """What is wrong with the next, if anything."""

    def packed(self) -> Values:
        """Return the records as arrays by name, which a file can keep."""
        draws = {f"draw {i} {name}": part for i, own in self.draws.items() for name, part in own.items()}
        values = {f"value {name}": part for name, part in self.values.items()}
        return values | draws | {"end": np.asarray([str(self.reached), self.reason])}

    @classmethod
    def unpacked(cls, arrays: Values) -> "Records":
        """Return the records whose arrays `packed` gave."""
        values = {name.removeprefix("value "): part for name, part in arrays.items() if name.startswith("value ")}
        draws: dict[int, Values] = {}
        for name, part in arrays.items():
            if name.startswith("draw "):
                _, i, own = name.split(" ", 2)
                draws.setdefault(int(i), {})[own] = part
        reached, reason = (str(word) for word in arrays["end"])
        return cls(values, draws, int(reached), reason)


def sound(values: Values, count: int) -> tuple[int, str]:
    """Return how many of the steps are sound, and what is wrong with the next."""
    first, reason = count, ""
    for name in CHECKED:
        if name not in values:
            continue
        here = values[name][:, :count].astype(np.float64)
        here = here.reshape(len(here), here.shape[1], -1)
        bad = ~np.all(np.isfinite(here), axis=(0, 2))
        large = np.any(np.abs(here) > BOUND, axis=(0, 2)) if name == "norm" else np.zeros_like(bad)
        lost = np.flatnonzero(np.logical_or(bad, large))
        if len(lost) and (at := int(lost[0])) < first:
            first, reason = at, f"{name} is not finite" if bad[at] else f"θᵀθ/d beyond {BOUND:g}"
    return first, reason


def in_turn(parts: list[Values]) -> Values:
    """Return the numbers of all chunks of steps, one after the other in time."""
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def joined(parts: list[Records]) -> Records:
    """Return slices of replicas side by side, up to the first step that any of them lost."""
    worst = min(parts, key=lambda part: part.reached)
    reached = worst.reached
    values = {
        name: np.concatenate([part.values[name][:, :reached] for part in parts], axis=0) for name in parts[0].values
    }
    steps = [i for i in parts[0].draws if i < reached]
    draws = {
        i: {name: np.concatenate([part.draws[i][name] for part in parts]) for name in parts[0].draws[i]} for i in steps
    }
    return Records(values, draws, reached, worst.reason)


def mean(parts: list[Records]) -> Records:
    """Return the mean over several marches of each replica; draws are those of the first."""
    first = parts[0]
    if len(parts) == 1:
        return first
    values = {
        name: np.asarray(np.mean([part.values[name] for part in parts], axis=0, dtype=np.float64))
        for name in first.values
    }
    return Records(values, first.draws, first.reached, first.reason)
