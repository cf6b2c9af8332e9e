"""The time integrator: one step of θ' = −h(θ) − pull, with noise ΔU, and of everything that is linear in θ.

The pull of the data is explicit (left point, Itô). The penalty is implicit: x + γ h_{t+γ}(x) = θ − γ pull + ΔU, so that
a stiff penalty sets no limit to the step. At a kink of the penalty, where h jumps past the right side, x is the kink
itself: the proximal step of the penalty where it has a formula (`L1`), otherwise a search. Algorithms that live in
discrete time take the step that they really take, θ − γ h_t(θ) − γ pull + ΔU. Both are of first order; grids are
combined to a higher one in `extrapolation`.
"""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from ..problem import Problem, fields

NEWTON = 5
"""Iterations for the implicit penalty: from a step away, its quadratic convergence reaches single precision in four."""
SETTLED = 1e-4
"""A miss of x + γh(x) = target, over the sizes of both sides, below which the equation holds; above it x is a kink."""
SWEEPS = 2
"""Of the search over the units, one at a time: one is enough where the penalty is a sum over units."""
WIDER = 8
"""Doublings of the interval in which the search begins: none is needed where h is monotone."""


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
        """The proximal step where there is a formula, otherwise Newton from θ; where that has not settled and the
        penalty may have kinks, a search.

        The slope of tangents is ∂x/∂target: (1 + γ∇h)⁻¹, and 0 at a kink, where x stays.
        """
        one = jnp.eye(problem.width, dtype=theta.dtype)[:, :, None]
        target = theta + change
        if problem.penalty.prox is not None:

            def prox(v: Any) -> Any:
                return fields.prox(problem, t + dt, dt, v).astype(theta.dtype)

            return jax.vmap(prox, -1, -1)(target), LinearStep(one, jax.vmap(jax.jacfwd(prox), -1, -1)(target))

        def inverse(x: Any) -> Any:
            return _inverse(one + dt * _slopes(problem, t + dt, x))

        def newton(_: Any, x: Any) -> Any:
            miss = x + dt * _pulls(problem, t + dt, x) - target
            return x - jnp.einsum("abs,bs->as", inverse(x), miss)

        x = jax.lax.fori_loop(0, NEWTON, newton, theta)
        if problem.penalty.smooth:
            return x, LinearStep(one, inverse(x))
        return _settled(problem, t + dt, dt, x, target)


def _settled(problem: Problem, t: Any, dt: Any, x: Any, target: Any) -> tuple[Any, LinearStep]:
    """x + γh(x) = target from a guess, for penalties that may have kinks; and the linear step of tangents.

    Where the guess does not solve it, every unit in turn is bisected. Derivatives come from one more step of Newton.
    """
    m = problem.width
    one = jnp.eye(m, dtype=x.dtype)[:, :, None]

    def settles(x: Any) -> tuple[Any, Any, Any]:
        """By unit; with the miss and 1 + γ∇h."""
        stiff, miss = one + dt * _slopes(problem, t, x), x + dt * _pulls(problem, t, x) - target
        size = jnp.max(jnp.abs(stiff), axis=1) * (jnp.max(jnp.abs(x), axis=0) + jnp.max(jnp.abs(target), axis=0))
        return jnp.abs(miss) <= SETTLED * size, miss, stiff

    searched = jax.lax.fori_loop(
        0,
        1 if m == 1 else SWEEPS,
        lambda _, x: _sweep(problem, t, dt, x, target),
        jnp.where(jnp.isfinite(x), x, target),
    )
    x = jax.lax.stop_gradient(jnp.where(jnp.all(settles(x)[0], axis=0), x, searched))
    holds, miss, stiff = settles(x)
    free = holds.astype(x.dtype)
    both = free[:, None] * free[None, :]
    after = both * _inverse(both * stiff + (1 - free)[:, None] * one)
    return x - jnp.einsum("abs,bs->as", after, miss), LinearStep(one, after)


def _sweep(problem: Problem, t: Any, dt: Any, x: Any, target: Any) -> Any:
    """Every unit in turn to the root of its own equation, the others held; as it was where no sign changes."""
    bits = jnp.finfo(x.dtype).nmant + WIDER

    def unit(a: Any, x: Any) -> Any:
        def miss(v: Any) -> Any:
            return v + dt * _pulls(problem, t, x.at[a].set(v))[a] - target[a]

        centre, width = target[a], jnp.abs(miss(target[a])) * (1 + 1e-3) + 1e-30

        def widen(_: Any, width: Any) -> Any:
            within = (miss(centre - width) <= 0) & (miss(centre + width) >= 0)
            return jnp.where(within, width, 2 * width)

        def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = ends
            middle = (low + high) / 2
            below = miss(middle) < 0
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        width = jax.lax.fori_loop(0, WIDER, widen, width)
        found = (miss(centre - width) <= 0) & (miss(centre + width) >= 0)
        low, high = jax.lax.fori_loop(0, bits, halve, (centre - width, centre + width))
        return x.at[a].set(jnp.where(found, (low + high) / 2, x[a]))

    return jax.lax.fori_loop(0, problem.width, unit, x)
