"""The time integrator: one step of θ' = −h(θ) − pull, with noise ΔU, and of everything that is linear in θ.

The pull of the data is explicit (left point, Itô). The penalty is implicit: x + γ h_{t+γ}(x) = θ − γ pull + ΔU, so that
a stiff penalty sets no limit to the step. Algorithms that live in discrete time take the step that they really take,
θ − γ h_t(θ) − γ pull + ΔU. Both are of first order; grids are combined to a higher one in `extrapolation`.
"""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from ..problem import Problem, fields

NEWTON = 5
"""Iterations for the implicit penalty: from a step away, its quadratic convergence reaches single precision in four."""


class LinearStep(NamedTuple):
    """X_{i+1} = after · (before · X_i − γ pull + ΔU); all (m, m), or one for every particle (m, m, M)."""

    before: Any
    after: Any


class Rule(abc.ABC):
    """How a step treats the penalty. Every subclass is final and hashable."""

    @abc.abstractmethod
    def linear(self, problem: Problem, t: Any, dt: Any) -> LinearStep:
        """For h = Λ_t θ."""

    @abc.abstractmethod
    def move(self, problem: Problem, t: Any, dt: Any, theta: Any, change: Any) -> tuple[Any, LinearStep]:
        """Particles (m, M) after −γ pull + ΔU = change, and the linear step of their tangents."""


def _slopes(problem: Problem, t: Any, theta: Any) -> Any:
    return jax.vmap(lambda v: fields.drift_theta(problem, t, v), -1, -1)(theta).astype(theta.dtype)


def _pulls(problem: Problem, t: Any, theta: Any) -> Any:
    return jax.vmap(lambda v: fields.drift(problem, t, v), -1, -1)(theta).astype(theta.dtype)


def _inverse(matrices: Any) -> Any:
    """Of small matrices (m, m, …)."""
    if matrices.shape[0] == 1:
        return 1.0 / matrices
    return jnp.moveaxis(jnp.linalg.inv(jnp.moveaxis(matrices, (0, 1), (-2, -1))), (-2, -1), (0, 1))


@final
@dataclass(frozen=True)
class Explicit(Rule):
    """The step that a discrete algorithm really takes."""

    def linear(self, problem: Problem, t: Any, dt: Any) -> LinearStep:
        """1 − γΛ_t, then nothing."""
        one = jnp.eye(problem.width)
        return LinearStep(one - dt * fields.drift_theta(problem, t, jnp.zeros(problem.width)), one)

    def move(self, problem: Problem, t: Any, dt: Any, theta: Any, change: Any) -> tuple[Any, LinearStep]:
        """θ − γ h(θ) + change."""
        one = jnp.eye(problem.width, dtype=theta.dtype)[:, :, None]
        step = LinearStep(one - dt * _slopes(problem, t, theta), one)
        return theta - dt * _pulls(problem, t, theta) + change, step


@final
@dataclass(frozen=True)
class Implicit(Rule):
    """x + γ h(x) = θ + change, h at the end of the step."""

    def linear(self, problem: Problem, t: Any, dt: Any) -> LinearStep:
        """Nothing, then (1 + γΛ_{t+γ})⁻¹."""
        one = jnp.eye(problem.width)
        stiff = fields.drift_theta(problem, t + dt, jnp.zeros(problem.width))
        return LinearStep(one, _inverse(one + dt * stiff))

    def move(self, problem: Problem, t: Any, dt: Any, theta: Any, change: Any) -> tuple[Any, LinearStep]:
        """Newton from where an explicit step without penalty leads."""
        one = jnp.eye(problem.width, dtype=theta.dtype)[:, :, None]
        target = theta + change

        def inverse(x: Any) -> Any:
            return _inverse(one + dt * _slopes(problem, t + dt, x))

        def newton(_: Any, x: Any) -> Any:
            miss = x + dt * _pulls(problem, t + dt, x) - target
            return x - jnp.einsum("abs,bs->as", inverse(x), miss)

        x = jax.lax.fori_loop(0, NEWTON, newton, theta)
        return x, LinearStep(one, inverse(x))
