"""Algorithms whose steps see every sample: gradient flow, stochastic gradient flow, and batches that are a fraction of
the data, in discrete time, where `dt` is the step."""

from dataclasses import field
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp

from .._random import normal
from .._tree import leaf, model
from .._types import Array, Key, Scalar, Tree
from ..problem import Constant
from ..problem.schedules import ScheduleLike
from .base import (
    TEMPERATURE,
    Algorithm,
    Data,
    StoredData,
    Updated,
    Weighted,
    drifts,
    forces,
    gather,
    settle_share,
    settle_step,
)


@model
class GradientFlow(Algorithm):
    """τ = 0: Z_i = γ_i. Simulated by the classical fourth-order Runge–Kutta step."""

    step: Any = None
    stable = 2.78
    accurate = 0.5
    noise_temperature = 0.0

    def __post_init__(self) -> None:
        settle_step(self)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ for every sample; the state stays."""
        return state, dt * state

    def update(self, data: Data, theta: Array, state: Tree, t: Scalar, dt: Scalar, draw: Tree, key: Key) -> Updated:
        """One RK4 step of dθ/dt = −h(θ) − Xᵀℓ/δ."""
        assert isinstance(data, StoredData)
        delta = data.sample_ratio

        def velocity(s: Scalar, x: Array) -> Array:
            return -drifts(data.problem, s, x) - gather(data.X, forces(data.problem, s, data.X @ x, data)) / delta

        k1 = velocity(t, theta)
        k2 = velocity(t + dt / 2, theta + dt / 2 * k1)
        k3 = velocity(t + dt / 2, theta + dt / 2 * k2)
        k4 = velocity(t + dt, theta + dt * k3)
        return theta + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), state


@model
class SGF(Weighted):
    """Stochastic gradient flow at temperature τ (`eq:sgf`): Z_i = γ_i + sqrt(τδγ_i) N(0, 1). Euler–Maruyama.

    With a teacher it is `eq:sgf_planted`, at square loss `eq:sgf_lin`, with a ridge `eq:sgf_ridge`.
    `batch_share`, a schedule with values in (0, 1], makes the temperature τ(t) = τ/share(t).
    """

    temperature: float = leaf(least=0, why=TEMPERATURE)
    batch_share: ScheduleLike = field(default_factory=Constant)
    step: Any = None
    noise_temperature = property(attrgetter("temperature"))
    gaussian = True

    def __post_init__(self) -> None:
        settle_share(self)
        settle_step(self)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ + sqrt(τδγ) N(0, 1)."""
        return state, jnp.sqrt(self.variance(t, dt, sample_ratio)) * normal(key, state.shape) + dt


FRACTION = "b must be a fraction in (0, 1]"


class Proportional(Weighted):
    """An algorithm whose batch holds a share b of all samples; it has no diffusion limit."""

    discrete = True
    multi_pass_only = True
    batch_fraction: float

    def variance(self, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """γ²(1/b − 1), that of a Bernoulli number over b."""
        return dt**2 * (1 / self.batch_fraction - 1)


@model
class ProportionalSGD(Proportional):
    """Every sample joins every batch with probability b: Z_i = γ_i·Bernoulli(b)/b (Mignacco et al. 2020)."""

    batch_fraction: float = leaf(above=0, most=1, why=FRACTION)
    step: Any = None

    def __post_init__(self) -> None:
        settle_step(self)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ·Bernoulli(b)/b, a fresh draw for every sample; the state stays."""
        chosen = jax.random.bernoulli(key, self.batch_fraction, state.shape)
        return state, chosen * dt / self.batch_fraction


@model
class PersistentSGD(Proportional):
    """Proportional batches whose members stay: Z_i = γ_i·s_i/b, s a 0/1 Markov chain of mean b.

    Over a step γ: P(0→1) = b(1−e^{−γ/τ_p}), P(1→0) = (1−b)(1−e^{−γ/τ_p}); τ_p is the correlation time.
    """

    batch_fraction: float = leaf(above=0, most=1, why=FRACTION)
    correlation_time: float = leaf(above=0, why="τ_p must be a positive time")
    step: Any = None
    independent = False

    def __post_init__(self) -> None:
        settle_step(self)

    def start_increments(self, key: Key, shape: tuple[int, ...], sample_ratio: Scalar) -> Tree:
        """The probability b that a sample is in the first batch: the chain is stationary."""
        return jnp.full(shape, self.batch_fraction)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ s/b, s drawn with the probability that the last s left, then one move of the chain over γ."""
        b = self.batch_fraction
        member = jax.random.bernoulli(key, state)
        refresh = -jnp.expm1(-dt / self.correlation_time)
        to_one = jnp.where(member, 1 - (1 - b) * refresh, b * refresh)
        return to_one.astype(state.dtype), member * dt / b

    def expected(self, state: Tree, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """E[Z | draws so far] = γ P(s = 1)/b."""
        return dt * state / self.batch_fraction
