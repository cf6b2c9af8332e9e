"""Learning-rate schedules s(t): a factor on ℓ and h, relative to the base rate η. Reported losses are untouched."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import settle, static, tree
from ..errors import real, reject, traced
from .parameters import Parameters, checked, given


class ScheduleLike(abc.ABC):
    """What every schedule offers."""

    @abc.abstractmethod
    def __call__(self, t: Any) -> Any:
        """s(t), a scalar."""


@final
@tree
@dataclass(frozen=True)
class Constant(ScheduleLike):
    """s = 1: no schedule."""

    def __call__(self, t: Any) -> Any:
        """1."""
        return 1.0


@final
@tree
@dataclass(frozen=True)
class PowerDecay(ScheduleLike):
    """s(t) = (1 + t/scale)^(−exponent)."""

    scale: float = 1.0
    exponent: float = 0.5

    def __post_init__(self) -> None:
        settle(self, scale=real("PowerDecay.scale", self.scale, above=0, why="it must be a positive time"))
        settle(self, exponent=real("PowerDecay.exponent", self.exponent, least=0, why="it must be a number ≥ 0"))

    def __call__(self, t: Any) -> Any:
        """(1 + t/scale)^(−exponent)."""
        return (1.0 + t / self.scale) ** (-self.exponent)


@final
@tree
@dataclass(frozen=True)
class CosineDecay(ScheduleLike):
    """Half a cosine from 1 at t=0 to `final` at t=duration, constant after."""

    duration: float
    final: float = 0.0

    def __post_init__(self) -> None:
        settle(self, duration=real("CosineDecay.duration", self.duration, above=0, why="it must be a positive time"))
        settle(self, final=real("CosineDecay.final", self.final, least=0, why="it must be a number ≥ 0"))

    def __call__(self, t: Any) -> Any:
        """final + (1−final)(1 + cos(πt/duration))/2."""
        u = jnp.clip(t / self.duration, 0.0, 1.0)
        return self.final + (1.0 - self.final) * 0.5 * (1.0 + jnp.cos(jnp.pi * u))


@final
@tree
@dataclass(frozen=True)
class Schedule(ScheduleLike):
    """The user's schedule: `fn(t) -> factor` in jax.numpy.

    `parameters` are numbers that `fn` takes by name, `fn(t, a=…)`; another value does not compile it again.
    `breaks` are times at which it jumps. They are found where they lie apart by a millionth of the run or more; name
    those of a shorter burst.
    """

    fn: Callable[..., Any] = static()
    parameters: Mapping[str, Any] = field(default_factory=Parameters)
    breaks: Any = static(default=())

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise reject("Schedule.fn", repr(self.fn), "it must be a function fn(t) -> factor in jax.numpy")
        breaks = self.breaks if isinstance(self.breaks, list | tuple) else (self.breaks,)
        why = "it must be a sequence of times ≥ 0"
        settle(self, breaks=tuple(sorted(real("Schedule.breaks", at, least=0, why=why) for at in breaks)))
        settle(self, parameters=checked("Schedule", self.fn, self.parameters, 1))

    def __call__(self, t: Any) -> Any:
        """The user's function."""
        return self.fn(t, **given(self))


LOOKS = 2**20
"""Times at which a schedule is looked at before any work."""
EARLY = 1e-12
"""The first of them, as a share of the run: warm-ups may be short."""
FACTOR = 1.6
"""Between two knots a schedule changes by less than this factor."""
FLOOR = 0.01
"""Factors below this share of the mean count as zero."""
RESOLVED = 0.01
"""Steps resolve a schedule whose sums over them are the integrals of s and s² to this share."""


class Course(NamedTuple):
    """A schedule along a run."""

    t: np.ndarray
    s: np.ndarray

    def knots(self) -> np.ndarray:
        """Times of the run between which |s| changes by less than FACTOR: a burst has some within it."""
        size = np.abs(self.s)
        height = np.log(size + FLOOR * np.mean(size) + 1e-300)
        level = np.floor(np.cumsum(np.abs(np.diff(height, prepend=height[0]))) / np.log(FACTOR))
        rises = np.flatnonzero(np.diff(level))
        return self.t[np.union1d(rises, rises + 1)]


@jax.jit
@partial(jax.vmap, in_axes=(None, 0))
def _factors(schedule: Any, t: Any) -> Any:
    return schedule(t) * jnp.ones(())


def values_at(schedule: ScheduleLike, t: Any) -> np.ndarray:
    """s at an array of times."""
    with jax.enable_x64(True):
        return np.asarray(_factors(schedule, np.asarray(t, dtype=np.float64)), dtype=np.float64)


def factors(argument: str, schedule: ScheduleLike, t: Any) -> np.ndarray:
    """s at an array of times, refused where it is not finite."""
    values = values_at(schedule, t)
    if not np.all(np.isfinite(values)):
        bad = np.asarray(t)[~np.isfinite(values)][0]
        raise reject(argument, f"a factor that is not finite at t = {bad:.4g}", "it must be finite at all times")
    return values


def course(argument: str, schedule: ScheduleLike, t_max: float) -> Course:
    """The schedule at many times up to t_max: one in each of LOOKS cells, small ones, and around declared breaks."""
    cell = np.arange(LOOKS)
    # places within the cells as multiples of the golden ratio, so that no period of s hides between them
    t = [(cell + cell * 0.6180339887498949 % 1.0) / LOOKS * t_max, t_max * np.geomspace(EARLY, 1 / LOOKS, 1024)]
    declared = np.asarray(getattr(schedule, "breaks", ()), dtype=np.float64)
    if np.any(declared < t_max):
        ends = np.unique(np.concatenate([[0.0], declared[declared < t_max], [t_max]]))
        t.append(np.linspace(ends[:-1], ends[1:], 17).ravel())
    every = np.unique(np.concatenate([[0.0], *t, [t_max]]))
    return Course(every, factors(argument, schedule, every))


def resolving_step(argument: str, schedule: ScheduleLike, t_max: float, step: float) -> float:
    """The step, halved until sums over uniform steps see all that the schedule does."""
    known = isinstance(schedule, Constant) or any(traced(leaf) for leaf in jax.tree.leaves(schedule))
    if known or t_max / step > LOOKS:  # finer than what is looked at
        return step
    t, s = course(argument, schedule, t_max)
    whole = np.array([np.trapezoid(np.abs(s) ** power, t) for power in (1, 2)])
    while t_max / step <= LOOKS:
        at = np.linspace(0.0, t_max, int(np.ceil(t_max / step)) + 1)
        values = factors(argument, schedule, at)
        sums = np.array([np.trapezoid(np.abs(values) ** power, at) for power in (1, 2)])
        if np.all(np.abs(sums - whole) <= RESOLVED * whole):
            return step
        step /= 2
    why = f"steps of {step:.2g} would be needed up to t = {t_max:g}; lower t_max, or make its bursts longer"
    raise reject(argument, "a schedule with short bursts", why)
