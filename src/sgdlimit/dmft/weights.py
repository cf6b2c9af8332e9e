"""One weight in the limit (`eq:dmft_disc_theta`; in continuous time `eq:theta`, with a teacher `eq:theta_planted`).

    θ_{i+1} = θ_i − γ_i [h_i(θ_i) + Γ_i θ_i + Σ_{j<i} 𝓡(i,j) θ_j + R*_i θ*] + ΔU_i,   Cov(ΔU_i, ΔU_j) = E[F_i F_jᵀ]/δ

`Linear`: h = Λ_t θ, and everything is linear algebra: θ_i = W(i,·)·normals + W⁰(i)·start exactly, so that
C_θ = W Wᵀ + W⁰ W⁰ᵀ. `Particles`: any h, by particles.
"""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from ..problem import Problem, fields
from . import gaussian, history, noise
from .data_side import Averages, Keys
from .noise import Grid
from .response import Here


class Teacher(NamedTuple):
    """Second moments of (θ⁰, θ*)."""

    root: Any
    """(m+k, m+k): (θ⁰, θ*) = root · start, start of unit second moments."""
    inverse: Any
    """(k, k): pseudo-inverse of C_θ(*, *)."""


def teacher_pull(setup: Any, teacher: Teacher, averages: Averages, W_start: Any, history_pull: Any) -> Any:
    """R*_i in the coordinates of `start`, (m, m+k).

    The derivative where labels have one; otherwise Gaussian integration by parts with its equal-time term:
    R*_i C_θ(*,*) = E[ℓ_i w*ᵀ] − Γ_i C_θ(i,*) − Σ_j 𝓡(i,j) C_θ(j,*). It is R_ℓ(t,*) of `eq:R_ell_star_planted`.
    """
    m = W_start.shape[0]
    star = teacher.root[m:]
    if setup.derivative:
        return averages.teacher @ star
    rest = averages.with_start - averages.gamma @ W_start - history_pull
    return rest @ star.T @ teacher.inverse @ star


def _linear_step(kernel: Any, row: Any, dt: Any, stiff: Any, response: Any, i: Any) -> Any:
    """X_{i+1} = X_i − γ_i [(Λ_i + Γ_i) X_i + Σ_{l<i} 𝓡(i,l) X_l], for a kernel X of earlier rows.

    For X = R_θ it is `eq:dmft_disc_rhotheta` on average (`eq:R_theta`); in continuous time `eq:rho_theta`, with a
    teacher `eq:rho_theta_planted`.
    """
    pulled = jnp.einsum("ac,xjcb->xjab", stiff, row) + history.chain(response, kernel, i)
    return row - dt * pulled


class WeightSide(abc.ABC):
    """How θ is marched. Every subclass is final and hashable; its state is its own."""

    @abc.abstractmethod
    def init(self, problem: Problem, setup: Any, teacher: Teacher, keys: Keys) -> Any:
        """θ_0 = θ⁰."""

    @abc.abstractmethod
    def write(self, state: Any, i: Any) -> Any:
        """Put row i into the kernels."""

    @abc.abstractmethod
    def rows(self, state: Any) -> tuple[Any, Any, Any, Any]:
        """W(i,·), W⁰(i) (coordinates of w_i on the standard normals and on (w_0, w*)), R_θ(i,·), and R_θ."""

    @abc.abstractmethod
    def advance(
        self,
        problem: Problem,
        setup: Any,
        grid: Grid,
        teacher: Teacher,
        keys: Keys,
        state: Any,
        averages: Averages,
        i: Any,
    ) -> Any:
        """Row i+1."""

    @abc.abstractmethod
    def moments(self, state: Any, i: Any) -> Any:
        """C_θ(i, i) (`eq:C_theta`)."""

    @abc.abstractmethod
    def draw(self, problem: Problem, setup: Any, teacher: Teacher, keys: Keys, state: Any, at: Any) -> Any:
        """Joint draws of θ at the steps `at` and of θ*: (times, m, N) and (k, N)."""


class Rows(NamedTuple):
    """Row i of R_θ, W and W⁰ on the way to being written."""

    R: Any
    W: Any
    W_start: Any


class LinearState(NamedTuple):
    """Rows so far."""

    R: Any
    W: Any
    W_start: Any
    """(blocks, B, m, m+k)."""
    factor: gaussian.Factor
    latest: "Rows"


@final
@dataclass(frozen=True)
class Linear(WeightSide):
    """h = Λ_t θ: no sampling."""

    def init(self, problem: Problem, setup: Any, teacher: Teacher, keys: Keys) -> LinearState:
        """θ_0 = θ⁰."""
        m, shape = problem.width, (setup.blocks, setup.block)
        kernel, row = history.empty_kernel(*shape, m), history.empty(*shape, m, m)
        start = history.empty(*shape, m, m + problem.k)
        return LinearState(kernel, kernel, start, gaussian.start(*shape, m), Rows(row, row, teacher.root[:m]))

    def write(self, state: LinearState, i: Any) -> LinearState:
        """Row i into the kernels."""
        R, W, W_start = (
            history.put(past, i, new) for past, new in zip((state.R, state.W, state.W_start), state.latest, strict=True)
        )
        return LinearState(R, W, W_start, state.factor, state.latest)

    def rows(self, state: LinearState) -> tuple[Any, Any, Any, Any]:
        """W(i,·), W⁰(i), R_θ(i,·), R_θ."""
        return state.latest.W, state.latest.W_start, state.latest.R, state.R

    def advance(
        self,
        problem: Problem,
        setup: Any,
        grid: Grid,
        teacher: Teacher,
        keys: Keys,
        state: LinearState,
        averages: Averages,
        i: Any,
    ) -> LinearState:
        """Row i+1 of R_θ, W and W⁰."""
        m, dt = problem.width, grid.step(i)
        W_row, W_start, R_row, _ = self.rows(state)
        stiff = fields.drift_theta(problem, grid.time(i), jnp.zeros(m)) + averages.gamma
        scale = jnp.diagonal(averages.force_corner)
        factor, L_row = gaussian.extend(
            state.factor, i, averages.force_row, averages.force_corner, scale, setup.threshold
        )
        pulled = history.combine(averages.response, state.W_start, i)
        pull = teacher_pull(setup, teacher, averages, W_start, pulled)
        R_next = history.put(_linear_step(state.R, R_row, dt, stiff, averages.response, i), i, jnp.eye(m))
        W_next = _linear_step(state.W, W_row, dt, stiff, averages.response, i) + L_row
        start_next = W_start - dt * (stiff @ W_start + pulled + pull)
        return state._replace(factor=factor, latest=Rows(R_next, W_next, start_next))

    def moments(self, state: LinearState, i: Any) -> Any:
        """C_θ(i, i)."""
        _, W, start = state.latest
        return history.inner(W, W, i) + start @ start.T

    def draw(self, problem: Problem, setup: Any, teacher: Teacher, keys: Keys, state: LinearState, at: Any) -> Any:
        """Joint draws of θ at the steps `at` and of θ*: (times, m, N) and (k, N)."""
        m, N, dtype = problem.width, setup.particles, jnp.dtype(setup.dtype)
        start = draw_start(problem, keys.weights, N).astype(dtype)
        row = jax.vmap(lambda past, i: history.get(past, i).astype(dtype), in_axes=(None, 0))
        W, W_start = row(state.W, at), row(state.W_start, at)

        def add(b: Any, theta: Any) -> Any:
            normals = jax.random.normal(jax.random.fold_in(keys.path, b), (setup.block, m, N), dtype)
            return theta + jnp.einsum("ijab,jbs->ias", jnp.take(W, b, axis=1), normals)

        theta = jax.lax.fori_loop(0, setup.blocks, add, jnp.einsum("iab,bs->ias", W_start, start))
        return theta, teacher.root[m:].astype(dtype) @ start


class ParticleState(NamedTuple):
    """Particles and rows so far."""

    R: Any
    """R_θ = E[∂θ_i/∂ΔU_j]."""
    R_mean: Any
    """The same with E∇h in place of ∇h."""
    W: Any
    W_start: Any
    factor: gaussian.Factor
    """Of the covariance of ΔU."""
    factor_C: gaussian.Factor
    """Of C_θ, given (w_0, w*)."""
    basis: Any
    """(m+k+1, N): coordinates of (θ⁰, θ*), and 1."""
    normals: Any
    theta: Any
    response: Any
    latest: Rows
    latest_mean: Any
    latest_theta: Any
    latest_note: Any


@final
@dataclass(frozen=True)
class Particles(WeightSide):
    """Any h with a derivative: N particles, whose start and teacher have exact second moments."""

    def init(self, problem: Problem, setup: Any, teacher: Teacher, keys: Keys) -> ParticleState:
        """θ_0 = θ⁰."""
        m, k, N = problem.width, problem.k, setup.particles
        shape, dtype = (setup.blocks, setup.block), jnp.dtype(setup.dtype)
        coordinates = draw_start(problem, keys.weights, N).astype(dtype)
        kernel, row = history.empty_kernel(*shape, m), history.empty(*shape, m, m)
        return ParticleState(
            R=kernel,
            R_mean=kernel,
            W=kernel,
            W_start=history.empty(*shape, m, m + k),
            factor=gaussian.start(*shape, m),
            factor_C=gaussian.start(*shape, m),
            basis=coordinates,
            normals=history.empty(*shape, m, N, dtype=dtype),
            theta=history.empty(*shape, m, N, dtype=dtype),
            response=setup.weight_response.init(*shape, m, N, dtype),
            latest=Rows(row, row, teacher.root[:m]),
            latest_mean=row,
            latest_theta=teacher.root[:m].astype(dtype) @ coordinates,
            latest_note=setup.weight_response.note(*shape, m, N, dtype),
        )

    def write(self, state: ParticleState, i: Any) -> ParticleState:
        """Row i into the kernels, θ_i into its history."""
        return state._replace(
            R=history.put(state.R, i, state.latest.R),
            R_mean=history.put(state.R_mean, i, state.latest_mean),
            W=history.put(state.W, i, state.latest.W),
            W_start=history.put(state.W_start, i, state.latest.W_start),
            theta=history.put(state.theta, i, state.latest_theta),
        )

    def rows(self, state: ParticleState) -> tuple[Any, Any, Any, Any]:
        """W(i,·), W⁰(i), R_θ(i,·), R_θ."""
        return state.latest.W, state.latest.W_start, state.latest.R, state.R

    def advance(
        self,
        problem: Problem,
        setup: Any,
        grid: Grid,
        teacher: Teacher,
        keys: Keys,
        state: ParticleState,
        averages: Averages,
        i: Any,
    ) -> ParticleState:
        """One step of the particles, then row i+1 of R_θ and of the factor of C_θ."""
        m, N, dt, dtype = problem.width, setup.particles, grid.step(i), jnp.dtype(setup.dtype)
        time, step = grid.time(i).astype(dtype), dt.astype(dtype)
        _, W_start, R_row, _ = self.rows(state)
        mean_row, theta = state.latest_mean, state.latest_theta
        response = setup.weight_response.record(state.response, i, state.latest_note)
        pull = jax.vmap(lambda v: fields.drift(problem, time, v), -1, -1)(theta).astype(dtype)
        slope = jax.vmap(lambda v: fields.drift_theta(problem, time, v), -1, -1)(theta).astype(dtype)
        mean_slope = jnp.mean(slope, axis=-1)
        spread = slope - mean_slope[:, :, None]
        stiff = mean_slope.astype(jnp.float64) + averages.gamma

        here = Here(spread, step * spread)
        uneven, note = setup.weight_response.row(response, i, state.R_mean, mean_row, here, False)
        scale = jnp.diagonal(averages.force_corner)
        factor, L_row = gaussian.extend(
            state.factor, i, averages.force_row, averages.force_corner, scale, setup.threshold
        )
        normals = jax.lax.cond(
            i % setup.block == 0,
            lambda g: noise.draw_block(keys.path, grid, self._fixed(state.basis), g, i),
            lambda g: g,
            state.normals,
        )
        jump = history.combine(L_row, normals, i + 1)
        pulled = history.combine(averages.response, state.W_start, i)
        teacher_row = teacher_pull(setup, teacher, averages, W_start, pulled)
        force = (
            pull
            + averages.gamma.astype(dtype) @ theta
            + history.combine(averages.response, state.theta, i)
            + teacher_row.astype(dtype) @ state.basis
        )
        theta_next = theta - step * force + jump

        R_next = _linear_step(state.R, R_row, dt, stiff, averages.response, i) - dt * uneven
        mean_next = _linear_step(state.R_mean, mean_row, dt, stiff, averages.response, i)
        # C_θ(i+1, ·) given (w_0, w*): what is left after the part along `start`
        start_next = (theta_next @ state.basis.T / N).astype(jnp.float64)
        row = history.correlate(theta_next, state.theta, i + 1)
        row = row - jnp.einsum("ac,xjbc->xjab", start_next, state.W_start)
        corner = (theta_next @ theta_next.T / N).astype(jnp.float64)
        factor_C, W_next = gaussian.extend(
            state.factor_C, i + 1, row, corner - start_next @ start_next.T, jnp.diagonal(corner), setup.threshold
        )
        return state._replace(
            factor=factor,
            factor_C=factor_C,
            normals=normals,
            response=response,
            latest=Rows(history.put(R_next, i, jnp.eye(m)), W_next, start_next),
            latest_mean=history.put(mean_next, i, jnp.eye(m)),
            latest_theta=theta_next,
            latest_note=note,
        )

    def _fixed(self, coordinates: Any) -> Any:
        """What new normals are orthogonal to: (θ⁰, θ*) and 1, made orthonormal."""
        ones = jnp.ones((1, coordinates.shape[1]), coordinates.dtype)
        along = coordinates @ ones.T / coordinates.shape[1]
        left = ones - along.T @ coordinates
        size = jnp.sqrt(jnp.mean(left**2))
        return jnp.concatenate([coordinates, jnp.where(size > 1e-3, left / jnp.maximum(size, 1e-3), 0.0)])

    def moments(self, state: ParticleState, i: Any) -> Any:
        """C_θ(i, i)."""
        theta = state.latest_theta
        return (theta @ theta.T / theta.shape[1]).astype(jnp.float64)

    def draw(self, problem: Problem, setup: Any, teacher: Teacher, keys: Keys, state: ParticleState, at: Any) -> Any:
        """The particles at the steps `at`, and θ*: (times, m, N) and (k, N)."""
        theta = jax.vmap(lambda i: history.get(state.theta, i))(at)
        return theta, teacher.root[problem.width :].astype(theta.dtype) @ state.basis


def draw_start(problem: Problem, key: Any, count: int) -> Any:
    """Coordinates `start` (m+k, N) of drawn (θ⁰, θ*), with exactly unit second moments on the live directions.

    The particles are root · start: their second moments are those of the law, whatever was drawn.
    """
    drawn = jnp.concatenate(problem.sample_weights(key, count), axis=1).astype(jnp.float64)
    values, vectors = jnp.linalg.eigh(drawn.T @ drawn / count)
    kept = values > 1e-12 * jnp.max(jnp.abs(values), initial=1e-300)
    power = jnp.where(kept, jnp.where(kept, values, 1.0) ** -0.5, 0.0)
    return (drawn @ ((vectors * power) @ vectors.T)).T
