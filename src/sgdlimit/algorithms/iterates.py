"""Averages of the iterates: a running mean of the weights beside those that are trained."""

import abc
import math
from typing import Any

import jax.numpy as jnp

from .._tree import leaf, model
from .._types import Scalar
from ..errors import real, reject


class IterateAverage(abc.ABC):
    """The contract: θ̄ ← θ̄ + share·(θ − θ̄) after every step, from θ̄ = θ⁰; θ with all that is trained."""

    @abc.abstractmethod
    def share(self, t: Scalar, dt: Scalar) -> Scalar:
        """What the newest weights count after a step of length dt that ends at time t."""


@model
class EMA(IterateAverage):
    """θ̄' = rate·(θ − θ̄), θ̄(0) = θ(0): an exponential mean over a time 1/rate."""

    rate: float = leaf(above=0, why="it must be a positive rate: the mean reaches back by 1/rate in time")

    def share(self, t: Scalar, dt: Scalar) -> Scalar:
        """1 − exp(−rate·dt)."""
        return -jnp.expm1(-self.rate * dt)

    @classmethod
    def from_torch(cls, decay: float, *, learning_rate: float, dim: int) -> "EMA":
        """That of `torch.optim.swa_utils.get_ema_multi_avg_fn(decay)`, taken after every step of learning rate η."""
        decay = real("EMA.decay", decay, above=0, most=1 - 1e-12, why="it must be a number with 0 < decay < 1")
        return cls(-math.log(decay) * dim / learning_rate)


@model
class RunningMean(IterateAverage):
    """The mean of all weights from the time `start` on, as `torch.optim.swa_utils.AveragedModel` takes it after every
    step (Polyak and Ruppert); before it, the weights themselves."""

    start: float = leaf(default=0.0, least=0, why="it must be a time ≥ 0")

    def share(self, t: Scalar, dt: Scalar) -> Scalar:
        """dt over the time since the start."""
        since = t - self.start
        return jnp.where(since > dt, dt / jnp.where(since > dt, since, 1.0), 1.0)


Averages = tuple[tuple[str, IterateAverage], ...]


def named_averages(given: Any, t_max: float) -> Averages:
    """Averages by name, as users give them, checked: pairs in the order of the names."""
    if given is None:
        return ()
    if not hasattr(given, "items"):
        raise reject("averages", repr(given), 'it must be a mapping from names, such as {"ema": sl.EMA(0.5)}')
    for name, average in given.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise reject("averages", repr(name), "a name must be an identifier, such as 'ema'")
        if not isinstance(average, IterateAverage):
            raise reject(f"averages[{name!r}]", repr(average), "it must be sl.EMA(rate) or sl.RunningMean(start)")
        if isinstance(average, EMA) and 1 / average.rate > t_max:
            why = f"it reaches back by {1 / average.rate:.3g}, longer than the run of {t_max:.3g}; raise the rate"
            raise reject(f"averages[{name!r}]", f"EMA(rate={average.rate:g})", why)
        if isinstance(average, RunningMean) and average.start >= t_max:
            raise reject(f"averages[{name!r}]", f"RunningMean(start={average.start:g})", f"start before t = {t_max:g}")
    return tuple(sorted(given.items()))
