"""Continuous-time algorithms: gradient flow and stochastic gradient flow."""

from dataclasses import field
from operator import attrgetter

import jax.numpy as jnp

from .._random import normal
from .._tree import leaf, model
from .._types import Array, Key, Scalar, Tree
from ..problem import Constant
from ..problem.schedules import ScheduleLike
from .base import TEMPERATURE, Algorithm, Data, StoredData, Updated, Weighted, drifts, forces, gather, settle_share


@model
class GradientFlow(Algorithm):
    """τ = 0: Z_i = γ_i. Simulated by the classical fourth-order Runge–Kutta step."""

    stable = 2.78
    accurate = 0.5
    noise_temperature = 0.0

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ for every sample; the state stays."""
        return state, dt * state

    def update(self, data: Data, theta: Array, state: Tree, t: Scalar, dt: Scalar, draw: Tree, key: Key) -> Updated:
        """One RK4 step of dθ/dt = −h(θ) − Xᵀℓ/δ."""
        assert isinstance(data, StoredData)
        delta = data.sample_ratio

        def velocity(s: Scalar, x: Array) -> Array:
            ell = forces(data.problem, s, data.X @ x, data)
            return -drifts(data.problem, s, x) - gather(data.X, ell) / delta

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
    noise_temperature = property(attrgetter("temperature"))
    gaussian = True

    def __post_init__(self) -> None:
        settle_share(self)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ + sqrt(τδγ) N(0, 1)."""
        noise = normal(key, state.shape)
        return state, jnp.sqrt(self.variance(t, dt, sample_ratio)) * noise + dt
