"""Learning-rate schedules s(t): a factor on ℓ and h, relative to the base rate η. Reported losses are untouched."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import jax.numpy as jnp

from .._tree import settle, static, tree
from ..errors import real, reject
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
    """

    fn: Callable[..., Any] = static()
    parameters: Mapping[str, Any] = field(default_factory=Parameters)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise reject("Schedule.fn", repr(self.fn), "it must be a function fn(t) -> factor in jax.numpy")
        settle(self, parameters=checked("Schedule", self.fn, self.parameters, 1))

    def __call__(self, t: Any) -> Any:
        """The user's function."""
        return self.fn(t, **given(self))
