"""The time integrator: one step of θ' = −h(θ) − pull, with noise ΔU, and of everything that is linear in θ.

The pull of the data is explicit (left point, Itô). The penalty is implicit: x + γ h_{t+γ}(x) = θ − γ pull + ΔU, so that
a stiff penalty sets no limit to the step. At a kink of the penalty, where h jumps past the right side, x is the kink
itself: the proximal step of the penalty where it has a formula (`L1`), otherwise a search. Algorithms that live in
discrete time take the step that they really take, θ − γ h_t(θ) − γ pull + ΔU. Both are of first order; grids are
combined to a higher one in `extrapolation`.
"""

import abc
from dataclasses import dataclass
from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from .._types import Array, Scalar
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

    before: Array
    after: Array


class Rule(abc.ABC):
    """How a step treats the penalty. Every subclass is final and hashable."""

    @abc.abstractmethod
    def linear(self, problem: Problem, t: Scalar, dt: Scalar, scale: Scalar = 1.0) -> LinearStep:
        """Return the step of everything that is linear in θ, for h = scale·Λ_t θ; a scale may be one of every unit."""

    @abc.abstractmethod
    def move(
        self, problem: Problem, t: Scalar, dt: Scalar, theta: Array, change: Array, scale: Scalar = 1.0
    ) -> tuple[Array, LinearStep]:
        """Return particles (m, M) after −γ pull + ΔU = change, and the linear step of their tangents; the penalty is
        multiplied by `scale`."""


def slopes(problem: Problem, t: Scalar, theta: Array) -> Array:
    """Return ∇h_t of every particle, (m, m, M)."""
    return jax.vmap(lambda v: fields.drift_theta(problem, t, v), -1, -1)(theta).astype(theta.dtype)


def pulls(problem: Problem, t: Scalar, theta: Array) -> Array:
    """Return h_t of every particle, (m, M)."""
    return jax.vmap(lambda v: fields.drift(problem, t, v), -1, -1)(theta).astype(theta.dtype)


def stiffness(problem: Problem, t: Scalar, scale: Scalar = 1.0) -> Array:
    """Return scale·Λ_t, (m, m), of h = Λ_t θ."""
    stiff = fields.drift_theta(problem, t, jnp.zeros(problem.width))
    return stiff if isinstance(scale, float) and scale == 1.0 else jnp.reshape(scale, (-1, 1)) * stiff


def _inverse(matrices: Array) -> Array:
    """Of small matrices (m, m, …)."""
    if matrices.shape[0] == 1:
        return 1.0 / matrices
    return jnp.moveaxis(jnp.linalg.inv(jnp.moveaxis(matrices, (0, 1), (-2, -1))), (-2, -1), (0, 1))


@final
@dataclass(frozen=True)
class Explicit(Rule):
    """The step that a discrete algorithm really takes."""

    def linear(self, problem: Problem, t: Scalar, dt: Scalar, scale: Scalar = 1.0) -> LinearStep:
        """Return the step that multiplies by 1 − γΛ_t before the change, and by nothing after it."""
        one = jnp.eye(problem.width)
        return LinearStep(one - dt * stiffness(problem, t, scale), one)

    def move(
        self, problem: Problem, t: Scalar, dt: Scalar, theta: Array, change: Array, scale: Scalar = 1.0
    ) -> tuple[Array, LinearStep]:
        """Return θ − γ h(θ) + change of every particle, and 1 − γ∇h, which its tangents are multiplied by."""
        one, dt = jnp.eye(problem.width, dtype=theta.dtype)[:, :, None], dt * scale
        step = LinearStep(one - dt * slopes(problem, t, theta), one)
        return theta - dt * pulls(problem, t, theta) + change, step


@final
@dataclass(frozen=True)
class Implicit(Rule):
    """x + γ h(x) = θ + change, h at the end of the step."""

    def linear(self, problem: Problem, t: Scalar, dt: Scalar, scale: Scalar = 1.0) -> LinearStep:
        """Return the step that multiplies by nothing before the change, and by (1 + γΛ_{t+γ})⁻¹ after it."""
        one = jnp.eye(problem.width)
        return LinearStep(one, _inverse(one + dt * stiffness(problem, t + dt, scale)))

    def move(
        self, problem: Problem, t: Scalar, dt: Scalar, theta: Array, change: Array, scale: Scalar = 1.0
    ) -> tuple[Array, LinearStep]:
        """Return x of every particle: by the proximal step where there is a formula, otherwise by Newton from θ; where
        that has not settled and the penalty may have kinks, by a search.

        The slope of tangents is ∂x/∂target: (1 + γ∇h)⁻¹, and 0 at a kink, where x stays.
        """
        one = jnp.eye(problem.width, dtype=theta.dtype)[:, :, None]
        target, later, dt = theta + change, t + dt, dt * scale
        if problem.penalty.prox is not None:

            def prox(v: Array) -> Array:
                return fields.prox(problem, later, dt, v).astype(theta.dtype)

            return jax.vmap(prox, -1, -1)(target), LinearStep(one, jax.vmap(jax.jacfwd(prox), -1, -1)(target))

        def inverse(x: Array) -> Array:
            return _inverse(one + dt * slopes(problem, later, x))

        def newton(_: Scalar, x: Array) -> Array:
            miss = x + dt * pulls(problem, later, x) - target
            return x - jnp.einsum("abs,bs->as", inverse(x), miss)

        x = jax.lax.fori_loop(0, NEWTON, newton, theta)
        if problem.penalty.smooth:
            return x, LinearStep(one, inverse(x))
        return _settled(problem, later, dt, x, target)


def _settled(problem: Problem, t: Scalar, dt: Scalar, x: Array, target: Array) -> tuple[Array, LinearStep]:
    """x + γh(x) = target from a guess, for penalties that may have kinks; and the linear step of tangents.

    Where the guess does not solve it, every unit in turn is bisected. Derivatives come from one more step of Newton.
    """
    m = problem.width
    one = jnp.eye(m, dtype=x.dtype)[:, :, None]

    def settles(x: Array) -> tuple[Array, Array, Array]:
        """By unit; with the miss and 1 + γ∇h."""
        stiff, miss = one + dt * slopes(problem, t, x), x + dt * pulls(problem, t, x) - target
        size = jnp.max(jnp.abs(stiff), axis=1) * (jnp.max(jnp.abs(x), axis=0) + jnp.max(jnp.abs(target), axis=0))
        return jnp.abs(miss) <= SETTLED * size, miss, stiff

    sweep, sound = lambda _, x: _sweep(problem, t, dt, x, target), jnp.where(jnp.isfinite(x), x, target)
    searched = jax.lax.fori_loop(0, 1 if m == 1 else SWEEPS, sweep, sound)
    x = jax.lax.stop_gradient(jnp.where(jnp.all(settles(x)[0], axis=0), x, searched))
    holds, miss, stiff = settles(x)
    free = holds.astype(x.dtype)
    both = free[:, None] * free[None, :]
    after = both * _inverse(both * stiff + (1 - free)[:, None] * one)
    return x - jnp.einsum("abs,bs->as", after, miss), LinearStep(one, after)


def _sweep(problem: Problem, t: Scalar, dt: Scalar, x: Array, target: Array) -> Array:
    """Every unit in turn to the root of its own equation, the others held; as it was where no sign changes."""
    bits = jnp.finfo(x.dtype).nmant + WIDER

    def unit(a: Array, x: Array) -> Array:
        def miss(v: Array) -> Array:
            return v + dt * pulls(problem, t, x.at[a].set(v))[a] - target[a]

        centre, width = target[a], jnp.abs(miss(target[a])) * (1 + 1e-3) + 1e-30

        def widen(_: Scalar, width: Array) -> Array:
            within = (miss(centre - width) <= 0) & (miss(centre + width) >= 0)
            return jnp.where(within, width, 2 * width)

        def halve(_: Scalar, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            below = miss(middle) < 0
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        width = jax.lax.fori_loop(0, WIDER, widen, width)
        found = (miss(centre - width) <= 0) & (miss(centre + width) >= 0)
        low, high = jax.lax.fori_loop(0, bits, halve, (centre - width, centre + width))
        return x.at[a].set(jnp.where(found, (low + high) / 2, x[a]))

    return jax.lax.fori_loop(0, problem.width, unit, x)
