"""Penalties H(θ) on one row of the weights; derivatives come from autodiff (`fields`). The contract: `PenaltyLike`."""

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp

from .._tree import function, leaf, model
from .._types import Array, Scalar
from .laws import LARGEST
from .losses import POSITIVE
from .parameters import given, named


class PenaltyLike(abc.ABC):
    """The contract of a penalty H(θ), which `Problem(penalty=...)` takes. For a function alone there is `Penalty`.

    A penalty is a frozen dataclass that jax knows as a tree (`jax.tree_util.register_dataclass`), with numbers as
    leaves and functions, names and sizes as static fields. All but `__call__` has a default;
    `sgdlimit.testing.check_penalty` tests all of it.

    __call__: H(θ) in jax.numpy, a scalar; θ is the row of one coordinate, a number at width 1, (m,) at width m. It is
        continuous, and its gradient, which autodiff takes, is finite; it may jump.
    smooth: True where the gradient is known to be continuous, which spares a search for its jumps.
    quadratic: True where the gradient is known to be linear in θ.
    prox: a function of (theta, step), the x (m,) that minimises ½|x − θ|² + step·H(x), θ (m,), which is taken in
        place of a search. None where there is no formula.
    """

    smooth: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False
    prox: Any = None

    @abc.abstractmethod
    def __call__(self, theta: Scalar) -> Scalar:
        """H(θ), a scalar."""


STRENGTH: Any = {"least": 0, "most": LARGEST, "why": f"it must be a number λ from 0 to {LARGEST:g}"}


@model
class NoPenalty(PenaltyLike):
    """H = 0: weights are free."""

    smooth = True
    quadratic = True

    def __call__(self, theta: Scalar) -> Scalar:
        """Zero, as an array that autodiff can follow."""
        return 0.0 * jnp.sum(theta)


@model
class Ridge(PenaltyLike):
    """The quadratic penalty ½λ|θ|²."""

    strength: float = leaf(**STRENGTH)
    smooth = True
    quadratic = True

    def __call__(self, theta: Scalar) -> Scalar:
        """½λ|θ|², summed over the units."""
        return 0.5 * self.strength * jnp.sum(theta**2)


@model
class L1(PenaltyLike):
    """λ Σ |θ|: the lasso."""

    strength: float = leaf(**STRENGTH)

    def __call__(self, theta: Scalar) -> Scalar:
        """λ Σ |θ|; at zero its gradient is 0, where that of `jnp.abs` is 1."""
        return self.strength * jnp.sum(theta * jnp.sign(theta))

    def prox(self, theta: Array, step: Scalar) -> Array:
        """The soft threshold: every weight moves towards zero by step·λ, and stays there where it arrives."""
        by = step * self.strength
        return jnp.where(jnp.abs(theta) > by, theta - by * jnp.sign(theta), 0.0)


@model
class SmoothL1(PenaltyLike):
    """λ Σ (sqrt(θ² + s²) − s): the absolute value, rounded over a width `smoothing` = s."""

    strength: float = leaf(**STRENGTH)
    smoothing: float = leaf(default=0.1, above=0, why=POSITIVE)
    smooth = True

    def __call__(self, theta: Scalar) -> Scalar:
        """λ Σ (sqrt(θ² + s²) − s)."""
        return self.strength * jnp.sum(jnp.sqrt(theta**2 + self.smoothing**2) - self.smoothing)


@model
class Quartic(PenaltyLike):
    """The quartic penalty ¼λ Σ θ⁴."""

    strength: float = leaf(**STRENGTH)
    smooth = True

    def __call__(self, theta: Scalar) -> Scalar:
        """¼λ Σ θ⁴, summed over the units."""
        return 0.25 * self.strength * jnp.sum(theta**4)


@model
class Penalty(PenaltyLike):
    """The user's penalty: `fn(theta) -> scalar` in jax.numpy, continuous in `theta`; kinks are allowed.

    `parameters` are numbers that `fn` takes by name, `fn(theta, a=…)`; another value does not compile it again.
    """

    fn: Callable[..., Any] = function("fn(theta) -> scalar in jax.numpy")
    parameters: Mapping[str, Any] = named(1)

    def __call__(self, theta: Scalar) -> Scalar:
        """What the user's function gives at θ, with its parameters."""
        return self.fn(theta, **given(self))
