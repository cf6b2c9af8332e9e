"""Algorithms whose steps see every sample: gradient flow, stochastic gradient flow, and batches that are a fraction of
the data, in discrete time, where `dt` is the step."""

from collections.abc import Callable
from dataclasses import field
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp

from .._random import normal
from .._tree import leaf, model
from .._types import Array, Key, Scalar, Tree
from ..problem import Constant, fields
from ..problem.schedules import ScheduleLike
from .base import TEMPERATURE, Algorithm, Updated, Weighted, settle_share, settle_step
from .samples import Data, StoredData, Weights, drifts, gather
from .step import PLAIN
from .training import Parts, gradients, leans, rated, renewed


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

    def update(self, data: Data, weights: Weights, state: Tree, t: Scalar, dt: Scalar, draw: Tree, key: Key) -> Updated:
        """One RK4 step of dθ/dt = −h(θ) − Xᵀℓ/δ, with all that is trained; with parts of a step see `_velocity`."""
        assert isinstance(data, StoredData)
        if self.how.plain:
            return _rk4(lambda s, x: _plain_velocity(data, s, x), weights, t, dt), state
        parts = renewed(data, self.how, t, weights, state, jnp.inf, key)
        _, after = rated(self.how, data, weights, parts, dt, time=t, learning_rate=1.0)
        moving = (weights, parts.get("velocity"))
        weights, velocity = _rk4(lambda s, x: self._velocity(data, parts, s, x, key), moving, t, dt)
        return weights, after if velocity is None else after | {"velocity": velocity}

    def _velocity(self, data: StoredData, parts: Parts, t: Scalar, moving: Tree, key: Key) -> Tree:
        """d/dt of the weights and of u = −v, where there is a friction κ: −sρU, or −u and −κu + sρU; −sλθ beside it."""
        weights, velocity = moving
        how, s = self.how, fields.factor(data.problem, t, weights.theta.dtype)
        found = gradients(data.problem, how, t, weights, data)
        pull = gather(data.X, found.ell) / data.sample_ratio + leans(data.problem, t, weights.theta)
        here = renewed(data, how, t, weights, parts, jnp.inf, key)
        rho, _ = rated(how, data, weights, here, 0.0, time=t, learning_rate=1.0)
        drift = jax.tree.map(lambda v: rho * s * v, Weights(pull, found.means(data.samples)))
        course = drift if velocity is None else velocity
        if velocity is not None:
            velocity = jax.tree.map(lambda u, v: v - how.friction * u, velocity, drift)
        if (decay := how.decayed) is not None:
            course = course._replace(theta=course.theta + s * decay * weights.theta)
        return jax.tree.map(jnp.negative, course), velocity


def _plain_velocity(data: StoredData, t: Scalar, weights: Weights) -> Weights:
    """d/dt of the weights without parts of a step."""
    found = gradients(data.problem, PLAIN, t, weights, data)
    theta = -drifts(data.problem, t, weights.theta) - gather(data.X, found.ell) / data.sample_ratio
    return Weights(theta, jax.tree.map(jnp.negative, found.means(data.samples)))


def _rk4(velocity: Callable[[Scalar, Tree], Tree], x: Tree, t: Scalar, dt: Scalar) -> Tree:
    """The classical step of dx/dt = velocity(t, x) over [t, t + dt]."""

    def ahead(step: Scalar, slope: Tree) -> Tree:
        return jax.tree.map(lambda v, k: v + step * k, x, slope)

    k1 = velocity(t, x)
    k2 = velocity(t + dt / 2, ahead(dt / 2, k1))
    k3 = velocity(t + dt / 2, ahead(dt / 2, k2))
    k4 = velocity(t + dt, ahead(dt, k3))
    return jax.tree.map(lambda v, *k: v + dt / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3]), x, k1, k2, k3, k4)


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
