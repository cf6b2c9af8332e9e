"""Rates that know how training goes: factors on η, from averages that have no noise in the limit.

A rule has a state of a few numbers, a factor that it gives the next step, and a rule by which the state moves. Both are
functions of what is `Seen` at a step: a run puts there what it measures, the theory what the averages of the limit are.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from .._tree import function, leaf, model
from .._types import Array, Scalar
from ..errors import reject
from ..problem.parameters import signature

SCALE = dict(above=0, why="it must be a positive number")
State = dict[str, Any]
"""Numbers of a rule by name."""


class Seen(NamedTuple):
    """What a rule may know of a step; a run measures only what the rule asks for in `needs`."""

    time: Scalar
    learning_rate: Scalar
    """η; of algorithms without batches 1."""
    gradient: Scalar = 0.0
    """|G|², the squared length of the batch's gradient of the loss in θ, clipped, without schedule or rate; in the
    limit E|ℓ|²|x|²/B."""
    force: Scalar = 0.0
    """E|ℓ|²|x|² over training samples: the mean squared length of a sample's gradient."""
    train_loss: Scalar = 0.0
    norm: Any = 0.0
    """θᵀθ/d, (m, m)."""
    overlap: Any = 0.0
    """θᵀθ*/d, (m, k)."""
    distance: Scalar = 0.0
    """|θ − θ⁰|²/d, summed over units."""


class RateRule(abc.ABC):
    """The contract of a rate: a dataclass of jax whose fields are numbers and functions.

    The factor multiplies η, and with it loss, penalty and trained parameters.

    needs: names of `Seen` that it reads, beside time and learning rate.
    by_batch: whether the factor is a function of the gradient of the very batch that is drawn, so that steps differ.
    by_coordinate: whether every coordinate has a rate of its own (`Adam`).
    of_batches: whether it means something only where an update reads a batch of a few samples.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    by_batch: ClassVar[bool] = False
    by_coordinate: ClassVar[bool] = False
    of_batches: ClassVar[bool] = True

    def start(self) -> State:
        """The state before the first step; here none."""
        return {}

    @abc.abstractmethod
    def factor(self, state: State, seen: Seen) -> Scalar:
        """The factor of the next step."""

    def after(self, state: State, seen: Seen, dt: Scalar) -> State:
        """The state after a step of length dt in time, which is η/d; here as it was."""
        return state


@model
class AdaGradNorm(RateRule):
    """η_k = scale·η/b_k with b²_{k+1} = b²_k + |G_k|²/d and b_0 = `initial`."""

    scale: float = leaf(default=1.0, **SCALE)
    initial: float = leaf(default=1.0, **SCALE)
    needs = ("gradient",)

    def start(self) -> State:
        """b²."""
        return {"squared": self.initial**2}

    def factor(self, state: State, seen: Seen) -> Scalar:
        """scale/b."""
        return self.scale / jnp.sqrt(state["squared"])

    def after(self, state: State, seen: Seen, dt: Scalar) -> State:
        """b² + |G|²·dt/η."""
        return {"squared": state["squared"] + seen.gradient * dt / seen.learning_rate}


@model
class Polyak(RateRule):
    """η_k = scale·η·(L − minimum)/|gradient|², Polyak's step.

    L is the mean loss over the training set and |gradient|² the mean over its samples, both known in the limit; of the
    batch that is drawn they are in `StochasticPolyak`. A published rule is the factor with η = 1. Runs of SGD measure
    both on all samples every 0.005 in time; on infinite data they do so on 1024 fresh ones.
    """

    minimum: float = leaf(default=0.0, why="the smallest loss must be a finite number")
    scale: float = leaf(default=1.0, **SCALE)
    needs = ("force", "train_loss")
    of_batches = False

    def factor(self, state: State, seen: Seen) -> Scalar:
        """scale·(L − minimum)/E|ℓ|², no less than zero."""
        gap = jnp.maximum(seen.train_loss - self.minimum, 0.0)
        return self.scale * gap / jnp.maximum(seen.force, 1e-30)


@model
class StochasticPolyak(RateRule):
    """η_k = scale·η·(L_B − minimum)/|G_k|², with the loss and the gradient of the batch that is drawn.

    most: largest factor, which bounds the steps of samples that are nearly fitted.
    """

    minimum: float = leaf(default=0.0, why="the smallest loss must be a finite number")
    scale: float = leaf(default=1.0, **SCALE)
    most: float = leaf(default=1.0, **SCALE)
    needs = ("gradient", "train_loss")
    by_batch = True

    def factor(self, state: State, seen: Seen) -> Scalar:
        """scale·(L_B − minimum)/|G|², within 0 and `most`; L_B stands for the training loss."""
        gap = jnp.maximum(seen.train_loss - self.minimum, 0.0)
        return jnp.minimum(self.scale * gap / jnp.maximum(seen.gradient, 1e-30), self.most)


@model
class Normalised(RateRule):
    """η_k = scale·η/(|G_k| + epsilon): every step has the same length."""

    scale: float = leaf(default=1.0, **SCALE)
    epsilon: float = leaf(default=1e-3, **SCALE)
    needs = ("gradient",)
    by_batch = True

    def factor(self, state: State, seen: Seen) -> Scalar:
        """scale/(|G| + epsilon)."""
        squared = seen.gradient
        length = jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
        return self.scale / (length + self.epsilon)


@model
class DoG(RateRule):
    """Distance over gradients: η_k = scale·η·(largest |θ_i − θ⁰| so far, at least initial·√d)/√(Σ_{i≤k} |G_i|²).

    The published rule is the factor with η = 1. The first gradient is counted as `epsilon`·d beside the sum.
    """

    scale: float = leaf(default=1.0, **SCALE)
    initial: float = leaf(default=0.1, **SCALE)
    epsilon: float = leaf(default=0.01, **SCALE)
    needs = ("gradient", "distance")

    def start(self) -> State:
        """Largest |θ − θ⁰|²/d, and Σ|G|²/d."""
        return {"farthest": self.initial**2, "squared": self.epsilon}

    def factor(self, state: State, seen: Seen) -> Scalar:
        """scale·√(farthest/squared)."""
        return self.scale * jnp.sqrt(jnp.maximum(state["farthest"], seen.distance) / state["squared"])

    def after(self, state: State, seen: Seen, dt: Scalar) -> State:
        """The larger distance, and the sum with this gradient."""
        squared = state["squared"] + seen.gradient * dt / seen.learning_rate
        return {"farthest": jnp.maximum(state["farthest"], seen.distance), "squared": squared}


KNOWN = ("time", "train_loss", "force", "norm", "overlap", "distance")
"""What a user's rate may take by name."""


@model
class Rate(RateRule):
    """The user's factor on η: a function of what training shows, by name.

    `fn` takes any of time, train_loss, force (E|ℓ|²|x|², the mean squared length of a sample's gradient), norm (θᵀθ/d),
    overlap (θᵀθ*/d) and distance (|θ − θ⁰|²/d); with one unit these are numbers. It must stay finite and ≥ 0: otherwise
    a run ends as diverged. Runs of SGD measure train_loss and force on all samples every 0.005 in time, on infinite
    data on 1024 fresh ones; the others at every step.
    """

    fn: Callable[..., Any] = function(f"of {', '.join(KNOWN)}, or some of them, in jax.numpy")
    of_batches = False

    def __post_init__(self) -> None:
        for name in self._names:
            if name not in KNOWN:
                raise reject("Rate.fn", name, f"what a rate may know is {', '.join(KNOWN)}")

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(signature(self.fn) or ())

    @property
    def needs(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the function takes by name."""
        return tuple(name for name in self._names if name != "time")

    def factor(self, state: State, seen: Seen) -> Scalar:
        """What the function gives."""
        values = {name: getattr(seen, name) for name in self._names}
        return jnp.asarray(self.fn(**{name: v[0, 0] if jnp.shape(v) == (1, 1) else v for name, v in values.items()}))


class ByCoordinate(RateRule):
    """A rate for every coordinate, from a running mean of its squared gradient; see `Adam`."""

    scale: Any
    window: Any
    beta1: Any = 0.0
    decay: Any = None
    """λ of the decoupled decay that belongs to the rule."""
    needs = ("gradient",)
    by_coordinate = True

    def factor(self, state: State, seen: Seen) -> Scalar:
        """1: it is not one factor for all."""
        return 1.0

    def gain(self, squared: Array) -> Array:
        """scale/√v of coordinates whose gradient has the mean square v/d; one that no gradient reaches stays."""
        return jnp.where(squared > 0, self.scale / jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)


BETA = dict(least=0.0, most=1.0 - 1e-9, why="β must be a number with 0 ≤ β < 1")
WINDOW = dict(above=0, why="it must be a positive time, η/(d(1 − β₂))")


@model
class Adam(ByCoordinate):
    """θ_j ← θ_j − (η/√d)·scale·m̂_j/√v̂_j, with running means m of the gradient and v of its square, as in PyTorch.

    beta1: of m; a fixed one changes nothing in the limit. window: how long v remembers, in time: 1 − β₂ = η/(d·window),
    so that v averages over a number of steps that grows with d and has no noise; that is the scaling in which the limit
    is exact. In the limit v_j is s_q E|ℓ_a|²/(Bd) for a coordinate of variance s_q: one rate for every unit a and every
    group q of coordinates. On iid data that is one number for each unit. Trained parameters keep their own rate.
    """

    scale: float = leaf(default=1.0, **SCALE)
    beta1: float = leaf(default=0.9, **BETA)
    window: float = leaf(default=0.5, **WINDOW)


@model
class RMSprop(ByCoordinate):
    """`Adam` without a mean of the gradient; v̂ is the mean of squares since the start, as in `Adam`."""

    scale: float = leaf(default=1.0, **SCALE)
    window: float = leaf(default=0.5, **WINDOW)


@model
class AdamW(ByCoordinate):
    """`Adam` with a decoupled decay, θ ← θ − (η s/d) decay θ, which the rates of the coordinates do not touch."""

    decay: float = leaf(default=0.01, least=0, why="it must be a number ≥ 0")
    scale: float = leaf(default=1.0, **SCALE)
    beta1: float = leaf(default=0.9, **BETA)
    window: float = leaf(default=0.5, **WINDOW)
