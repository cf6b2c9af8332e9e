"""Weights under a penalty that is no ridge: particles, each marched by the recursion of `weight_side`.

That is `eq:dmft_disc_theta`; in continuous time `eq:theta`, with a teacher `eq:theta_planted`. R_θ is what a regression
of the particles on the noise that drives them finds, in place of `eq:dmft_disc_rhotheta` (`eq:R_theta`; in continuous
time `eq:rho_theta`, `eq:rho_theta_planted`). w is mixed from them, with C_θ (`eq:C_theta`).
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from .._types import Array
from . import noise
from .integrator import LinearStep, pulls, slopes
from .memory import combine
from .system import Start, Step, System, moments
from .training import Drive, normals
from .weight_side import (
    Averages,
    Linear,
    LinearState,
    Paced,
    View,
    WeightSide,
    fresh,
    known_along,
    over_groups,
    paced,
    responded,
    teachers,
)

NEGLIGIBLE = 1e-8
"""Share of the noise below which a direction of it is left to what is known. Larger ones bias: 1/M by some percent."""


class ParticleState(NamedTuple):
    """Particles, and the moments of their past and of their noise."""

    theta: Array
    """(g, m, M)."""
    past: Array
    """Moments of θ_j, (g, n, m, M)."""
    noise: Array
    """Moments of ΔU_j, (g, n, m, M)."""
    mean: LinearState
    """The response of weights that all have the mean slope E∇h; `along` is not used."""
    speed: Array | None = None
    """Velocities, (g, m, M), where there is a friction."""


@final
@dataclass(frozen=True)
class Particles(WeightSide):
    """Array h with a derivative: particles whose start and teacher have exact second moments.

    R_θ(i,j) = E[∂θ_i/∂ΔU_j] is what a regression of θ_i on the noise finds, by Gaussian integration by parts:
    E[θ_i ΔU_kᵀ] = Σ_j R_θ(i,j) E[ΔU_j ΔU_kᵀ]. Tangents of particles would do, but where h has several wells they are
    rare and huge; the regression's error is bounded by the spread of θ itself, and none is left where h is linear. It
    corrects the response of weights with the mean slope, which stands alone along directions without noise.
    """

    def init(self, system: System, start: Start) -> ParticleState:
        """Return particles at θ_0 = θ⁰, which have neither a past nor noise."""
        (g, m, _, M), n, dtype = system.shape, system.memory.size, system.dtype
        root = system.groups.root[:, :m].astype(dtype)
        return ParticleState(
            theta=jnp.einsum("gab,gbs->gas", root, start.coordinates),
            past=jnp.zeros((g, n, m, M), dtype),
            noise=jnp.zeros((g, n, m, M), dtype),
            mean=Linear().init(system, start)._replace(jumps=None),
            speed=None if system.algorithm.how.friction is None else jnp.zeros((g, m, M), dtype),
        )

    def view(self, system: System, step: Step, start: Start, state: ParticleState, forces: Array) -> View:
        """Return R_θ by the regression, and w with the particles' second moments at all pairs of times."""
        groups, dtype = system.groups, system.dtype
        theta = state.theta
        along = moments(theta, start.coordinates)
        norm = moments(theta, theta)
        rest = theta - jnp.einsum("gab,gbs->gas", along.astype(dtype), start.coordinates)
        known = jax.vmap(lambda Y: system.memory.dual(step.memory, Y))(state.mean.Y)
        rho = jax.vmap(self._regress)(known, rest, state.noise)
        past = jax.vmap(combine, in_axes=(0, None))(rho.astype(dtype), forces)
        w = fresh(system, start, along, rest)
        f = jnp.einsum("g,gas->as", (groups.share * groups.variance).astype(dtype), past)
        return View(over_groups(system, rho), rho, rest, w, f, norm, along)

    def _regress(self, known: Array, theta: Array, noise: Array) -> Array:
        """known + the coefficients of what it leaves of θ on the moments of the noise, (n, m, m).

        In double precision: directions that the noise hardly excites matter to the tangents of the samples.
        """
        n, m, M = noise.shape
        flat = noise.reshape(n * m, M).astype(jnp.float64)
        gram = moments(flat, flat)
        left = theta - combine(known.astype(theta.dtype), noise)
        size = jnp.sqrt(jnp.diagonal(gram))
        size = jnp.where(size > 0, size, 1.0)
        unit = gram / (size[:, None] * size[None, :]) + NEGLIGIBLE * jnp.eye(n * m)
        cross = moments(left.astype(jnp.float64), flat) / size
        more = jnp.linalg.solve(unit, cross.T).T / size
        return known + more.reshape(m, n, m).transpose(1, 0, 2)

    def advance(
        self, system: System, step: Step, start: Start, state: ParticleState, view: View, averages: Averages
    ) -> ParticleState:
        """Return every particle after the recursion, and the response at the mean slope."""
        memory, groups, dtype, dt = system.memory, system.groups, system.dtype, step.dt.astype(system.dtype)
        drive = averages.drive
        gamma, kappa = (part.astype(dtype) for part in averages.answer.apart)
        remembered = jax.vmap(combine, in_axes=(None, 0))(kappa, state.past)
        pull = jnp.einsum("oa,gas->gos", gamma, state.theta) + remembered
        pull = pull + self._start_pull(system, start, averages, view, remembered)
        size = jnp.sqrt(groups.variance / system.ratio).astype(dtype)[:, None, None]
        jump = size * noise.mix(start.signs[1], averages.force[None])
        if drive.sigma is not None:
            jump = jump + drive.sigma.astype(dtype) * normals(start, step, state.theta.shape, system.dtype)
        jump = jax.vmap(noise.off)(self._fixed(start.coordinates), jump)
        variance = groups.variance.astype(dtype)[:, None, None]
        pull = variance * pull
        if (means := averages.push.means) is not None:
            pull = pull + jnp.einsum("ok,gks->gos", means.astype(dtype), teachers(system, start))
        theta, speed, pace = self._moved(system, step, state, drive, jump - dt * pull)
        push = jax.vmap(lambda past, new: memory.push(step.memory, past, new))
        mean = responded(system, step, state.mean, averages, pace)
        return ParticleState(theta, push(state.past, state.theta), push(state.noise, jump), mean, speed)

    def _moved(
        self, system: System, step: Step, state: ParticleState, drive: Drive, change: Array
    ) -> tuple[Array, Array | None, Paced]:
        """Particles and their velocities after the step, and the step of what is linear in them, at the mean slope."""
        problem, dt = system.problem, step.dt.astype(system.dtype)
        scale = drive.penalty if isinstance(drive.penalty, float) else drive.penalty.astype(system.dtype)
        if state.speed is None:
            move = jax.vmap(lambda theta, change: system.rule.move(problem, step.t, dt, theta, change, scale))
            theta, linear = move(state.theta, change)
            linear = LinearStep(*(jnp.mean(part, axis=-1).astype(jnp.float64) for part in linear))
            pace = paced(system, step, drive, linear)
            left = jnp.ones(()) if drive.decay is None else 1.0 / (1.0 + step.dt * drive.decay)
            return left.astype(system.dtype) * theta, None, pace
        pull, slope = (jax.vmap(lambda theta, f=f: f(problem, step.t, theta))(state.theta) for f in (pulls, slopes))
        pace = paced(system, step, drive, stiff=drive.penalty * jnp.mean(slope, axis=-1).astype(jnp.float64))
        damp = jnp.asarray(pace.damp, system.dtype)
        speed = damp * (state.speed + change - dt * scale * pull)
        return jnp.einsum("goa,gas->gos", pace.after.astype(system.dtype), state.theta + dt * speed), speed, pace

    def _start_pull(self, system: System, start: Start, averages: Averages, view: View, remembered: Array) -> Array:
        """What (θ⁰, θ*) pull with in every group, (g, m, M), by Gaussian integration by parts.

        R C(coordinates) = E[ℓ coordinatesᵀ] − Γ E[w_i coordinatesᵀ] − Σ_j 𝓡(i,j) E[w_j coordinatesᵀ], with the
        equal-time term (`eq:R_ell_star_planted`; labels may jump). θ⁰ has its part where Γ cannot be told from it.
        """
        groups = system.groups
        before = moments(remembered, start.coordinates)
        left = (
            averages.with_basis
            - averages.answer.apart[0] @ known_along(system, view.along)
            - known_along(system, before)
        )
        size = jnp.sqrt(groups.share * groups.variance)[:, None, None]
        pull = jnp.einsum("ab,gbc->gac", left, groups.across) / jnp.where(size > 0, size, 1.0)
        return jnp.einsum("gab,gbs->gas", pull.astype(system.dtype), start.coordinates)

    def _fixed(self, coordinates: Array) -> Array:
        """What new noise is orthogonal to: (θ⁰, θ*) and 1, made orthonormal."""

        def one(rows: Array) -> Array:
            ones = jnp.ones((1, rows.shape[1]), rows.dtype)
            left = ones - (ones @ rows.T / rows.shape[1]) @ rows
            size = jnp.sqrt(jnp.mean(left**2))
            return jnp.concatenate([rows, jnp.where(size > 1e-3, left / jnp.maximum(size, 1e-3), 0.0)])

        return jax.vmap(one)(coordinates)

    def draw(self, system: System, start: Start, state: ParticleState, view: View) -> tuple[Array, Array]:
        """Return the particles themselves, and their teachers."""
        return state.theta, teachers(system, start)[:, : system.problem.read]
