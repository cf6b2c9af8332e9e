"""What a step of an algorithm does beside η times the gradient: clipping, noise, momentum, an adaptive rate, decay.

`Step` is an argument of every algorithm; its parts combine. They are used by theory and simulation alike, each in its
own way: a run applies them to the gradient of the batch that it draws; in the limit |x|² of a row is its mean, the
squared gradient of a batch is Σ|ℓ|²/B², and what is averaged over d/η steps has no noise.
"""

import abc
from typing import Any, ClassVar

import jax.numpy as jnp

from .._tree import leaf, model, settle, static
from .._types import Scalar
from ..errors import instance, real, reject
from .rates import RateRule


@model
class Clip:
    """Gradients of the loss in θ are shortened to at most `threshold`, those of a sample or that of the batch.

    threshold: in units of the gradient x ℓᵀ of one sample, whose length is |x||ℓ| with |x|² → 1 for iid data.
    per: "sample", as private SGD does, or "batch", as `torch.nn.utils.clip_grad_norm_` does. The penalty is not
        clipped; what shortens a sample's gradient in θ shortens its gradient in trained parameters as well.
    """

    threshold: float = leaf(above=0, why="a gradient is shortened to a positive length")
    per: str = static(default="sample")

    def __post_init__(self) -> None:
        if self.per not in ("sample", "batch"):
            raise reject("Clip.per", repr(self.per), 'it must be "sample" or "batch"')

    def factor(self, squared: Scalar) -> Scalar:
        """What a gradient of this squared length is multiplied by, min(1, threshold/length)."""
        long = squared > self.threshold**2
        return jnp.where(long, self.threshold / jnp.sqrt(jnp.where(long, squared, 1.0)), 1.0)


class Momentum(abc.ABC):
    """The contract of momentum: a velocity with a friction, or a fixed β.

    friction: κ. v ← (1 − ηκ/d) v − η·gradient, θ ← θ + (η/d) v: a memory of 1/κ in time t = ηk/d, in which momentum
        changes the limit. In PyTorch's words lr = η²/d and 1 − β = ηκ/d.
    beta: a fixed β. b ← β b + gradient, θ ← θ − η b forgets within a few steps: in the limit it is SGD with the
        learning rate η/(1 − β).

    A schedule and a rate act on the gradient, before it enters the velocity. v and b start at zero; trained parameters
    have velocities of their own by the same rule.
    """

    friction: Any
    beta: Any
    ahead: ClassVar[bool] = False
    """Whether the gradient of the step itself is added to its velocity once more, as Nesterov does."""

    def _settle(self) -> None:
        name = type(self).__name__
        if (self.friction is None) == (self.beta is None):
            given = "neither" if self.friction is None else f"friction {self.friction} and beta {self.beta}"
            raise reject(f"{name}.friction", given, "give either the friction κ, or a fixed beta")
        if self.friction is not None:
            why = "the friction κ must be a positive number, (1 − β)·d/η; a fixed β is beta="
            settle(self, friction=real(f"{name}.friction", self.friction, above=0, why=why))
        else:
            why = "β must be a number with 0 ≤ β < 1: from 1 on the velocity never forgets"
            settle(self, beta=real(f"{name}.beta", self.beta, least=0, why=why))
            if not self.beta < 1:
                raise reject(f"{name}.beta", self.beta, why)

    @property
    def boost(self) -> Scalar:
        """What a fixed β multiplies the learning rate by in the limit, 1/(1 − β); 1 where there is a friction."""
        return 1.0 if self.beta is None else 1.0 / (1.0 - self.beta)


@model
class HeavyBall(Momentum):
    """Polyak's momentum, by a friction κ or a fixed β: see `Momentum` for both scalings."""

    friction: Any = None
    beta: Any = None

    def __post_init__(self) -> None:
        self._settle()


@model
class Nesterov(Momentum):
    """Nesterov's momentum as PyTorch has it: θ also moves by the newest gradient itself.

    That one is smaller than the velocity by 1 − β, so that with a friction the limit is that of `HeavyBall`; and so it
    is with a fixed β, where both are SGD with the rate η/(1 − β).
    """

    friction: Any = None
    beta: Any = None
    ahead = True

    def __post_init__(self) -> None:
        self._settle()


@model
class Step:
    """Parts of a step, all of which may be left out; they combine.

    clip: a number, the largest length of a sample's gradient, or `Clip(threshold, per="batch")`.
    weight_noise: σ_w; every step adds σ_w √(η/d) ξ to θ, ξ standard normal (Langevin), whatever the rate is.
    gradient_noise: σ_g; the same as a part of the gradient: schedule, rate and momentum act on it.
    momentum: `HeavyBall` or `Nesterov`.
    rate: a factor on η that knows how training goes, such as `AdaGradNorm`, `Rate(fn)`, or one for every coordinate,
        `Adam`.
    decay: λ of a decoupled decay, θ ← θ − (η s/d) λ θ with the schedule s: neither rate nor momentum acts on it.
    """

    clip: Any = None
    weight_noise: Any = None
    gradient_noise: Any = None
    momentum: Any = None
    rate: Any = None
    decay: Any = None

    def __post_init__(self) -> None:
        if self.clip is not None and not isinstance(self.clip, Clip):
            why = "it must be a positive length, or sl.Clip(length, per='batch')"
            settle(self, clip=Clip(real("Step.clip", self.clip, above=0, why=why)))
        for name in ("weight_noise", "gradient_noise", "decay"):
            if (value := getattr(self, name)) is not None:
                settle(self, **{name: real(f"Step.{name}", value, least=0, why="it must be a number ≥ 0, or None")})
        if self.momentum is not None:
            instance("Step.momentum", self.momentum, Momentum, "sl.HeavyBall(...) or sl.Nesterov(...)")
        if self.rate is not None:
            instance("Step.rate", self.rate, RateRule, "a rule such as sl.AdaGradNorm(), sl.Rate(fn) or sl.Adam()")
        if self.weight_noise is not None and self.friction is not None:
            why = "with a friction noise enters through the velocity; give gradient_noise"
            raise reject("Step.weight_noise", self.weight_noise, why)
        if self.rate is not None and self.rate.by_coordinate and self.momentum is not None:
            why = "Adam has a momentum of its own, beta1; leave momentum out"
            raise reject("Step.momentum", type(self.momentum).__name__, why)

    @property
    def plain(self) -> bool:
        """Whether a step is η times the gradient, and nothing else."""
        parts = (self.clip, self.weight_noise, self.gradient_noise, self.momentum, self.rate, self.decay)
        return all(part is None for part in parts)

    @property
    def friction(self) -> Any:
        """κ, where there is a velocity that the limit sees; else None."""
        return None if self.momentum is None else self.momentum.friction

    @property
    def boost(self) -> Scalar:
        """1/(1 − β) of a fixed β, a factor on the learning rate; else 1."""
        return 1.0 if self.momentum is None else self.momentum.boost

    @property
    def by_batch(self) -> bool:
        """Whether something is a function of the gradient of the very batch that is drawn."""
        of_batch = self.clip is not None and self.clip.per == "batch"
        return of_batch or (self.rate is not None and self.rate.by_batch)

    @property
    def bounded(self) -> bool:
        """Whether no sample can pull without bound: one of B under a threshold for the batch pulls with B times it."""
        return self.clip is not None

    @property
    def decayed(self) -> Any:
        """λ of the decoupled decay, of the step and of its rate together; None where there is none."""
        parts = [part for part in (self.decay, getattr(self.rate, "decay", None)) if part is not None]
        return sum(parts) if parts else None

    @property
    def noisy(self) -> bool:
        """Whether noise is added to weights or gradients."""
        return self.weight_noise is not None or self.gradient_noise is not None

    def noise(self, scale: Scalar) -> Scalar:
        """σ of the noise of a step over √(η/d), where the gradient is multiplied by `scale`."""
        parts = self.weight_noise, None if self.gradient_noise is None else scale * self.gradient_noise
        return jnp.sqrt(sum((jnp.square(part) for part in parts if part is not None), start=jnp.zeros(())))


PLAIN = Step()
"""η times the gradient, and nothing else."""
