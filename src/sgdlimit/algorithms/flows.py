"""Continuous-time algorithms: gradient flow and stochastic gradient flow."""

from dataclasses import dataclass, field
from typing import ClassVar, final

import jax.numpy as jnp

from .._random import normal
from .._tree import tree
from .._types import Array, Key, Scalar, Tree
from ..problem import Constant, Problem
from ..problem.schedules import ScheduleLike
from .base import (
    Algorithm,
    Data,
    StoredData,
    Weighted,
    drifts,
    forces,
    gather,
    needs_data,
    settle_share,
    settle_temperature,
)


@final
@tree
@dataclass(frozen=True)
class GradientFlow(Algorithm):
    """τ = 0: Z_i = γ_i. Simulated by the classical fourth-order Runge–Kutta step."""

    independent: ClassVar[bool] = True
    gaussian: ClassVar[bool] = False
    discrete: ClassVar[bool] = False
    multi_pass_only: ClassVar[bool] = False
    stable: ClassVar[float] = 2.78
    accurate: ClassVar[float] = 0.5

    def start_increments(self, key: Key, shape: tuple[int, ...], sample_ratio: Scalar) -> Tree:
        """Ones, which keep the shape alone."""
        return jnp.ones(shape)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ for every sample; the state stays."""
        return state, dt * state

    def variance(self, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """0, since increments are not random."""
        return 0.0 * dt

    @property
    def noise_temperature(self) -> float:
        """τ = 0: a flow has no noise."""
        return 0.0

    @property
    def rows(self) -> int | None:
        """None, since every update reads all samples."""
        return None

    def step_time(self, dim: int, dt: float) -> float:
        """dt itself, the step of the integrator."""
        return dt

    def draws(self, key: Key, first: Array | int, count: int, samples: int) -> Tree:
        """None, since nothing is drawn."""
        return None

    def start_updates(self, key: Key, data: Data) -> Tree:
        """An empty state: updates share nothing."""
        return ()

    def update(
        self, data: Data, theta: Array, state: Tree, t: Scalar, dt: Scalar, draw: Tree, key: Key
    ) -> tuple[Array, Tree]:
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

    def check_simulation(self, problem: Problem, samples: int) -> None:
        """A flow on the population has no finite-size simulation here."""
        needs_data("GradientFlow", problem)

    latex = r"\frac{d\theta}{dt} = -d\,\nabla F(\theta)"


@final
@tree
@dataclass(frozen=True)
class SGF(Weighted):
    """Stochastic gradient flow at temperature τ (`eq:sgf`): Z_i = γ_i + sqrt(τδγ_i) N(0, 1). Euler–Maruyama.

    With a teacher it is `eq:sgf_planted`, at square loss `eq:sgf_lin`, with a ridge `eq:sgf_ridge`.
    `batch_share`, a schedule with values in (0, 1], makes the temperature τ(t) = τ/share(t).
    """

    temperature: float
    batch_share: ScheduleLike = field(default_factory=Constant)

    independent: ClassVar[bool] = True
    gaussian: ClassVar[bool] = True
    discrete: ClassVar[bool] = False
    multi_pass_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settle_temperature(self)
        settle_share(self)

    def start_increments(self, key: Key, shape: tuple[int, ...], sample_ratio: Scalar) -> Tree:
        """Ones, which keep the shape alone."""
        return jnp.ones(shape)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ + sqrt(τδγ) N(0, 1)."""
        noise = normal(key, state.shape)
        return state, jnp.sqrt(self.variance(t, dt, sample_ratio)) * noise + dt

    def variance(self, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """τδγ, with τ at the middle of the interval."""
        return self.temperature_at(t + dt / 2) * sample_ratio * dt

    @property
    def noise_temperature(self) -> float:
        """τ of the full batch."""
        return self.temperature

    latex = (
        r"d\theta = -d\,\nabla F(\theta)\,dt - \sqrt{\tau / \delta}\,\sum_{i=1}^{n} x_i \ell_i\,dW_i"
        r",\quad \tau = <temperature>"
    )
