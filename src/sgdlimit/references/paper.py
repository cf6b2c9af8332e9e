"""The paper's own processes for the response R_ℓ: ρ_ℓ, D_ℓ, D_r (`eq:dmft_disc_process`), kept as a reference."""

from dataclasses import dataclass
from typing import NamedTuple, final

import jax.numpy as jnp

from .._types import Array
from ..dmft.response import Answer, Local, Response, of_samples
from ..dmft.system import Start, Step, System
from ..problem import fields


class Processes(NamedTuple):
    """ρ_ℓ, D_ℓ and ∇ℓ·D_r of every earlier step k, times Z_k: (rows, rows, m, …, M); of every step ℓ, ∇ℓ, γ, B(t)/B."""

    rho: Array
    D_ell: Array
    D_r: Array
    force: Array
    force_r: Array
    dt: Array
    portion: Array


@final
@dataclass(frozen=True)
class Paper(Response):
    """R_ℓ = E[ρ_ℓ] + sqrt(τδ) E[D_ℓ] (`eq:R_ell`, `eq:R_ell_planted`, `eq:dmft_disc_func`), discretised. Memory K²M.

    In place of `Tangents`, with the whole past kept and Gaussian increments. With a teacher, ℓ and its derivatives see
    r* as well.
    """

    def init(self, system: System) -> Processes:
        """Return processes of which no row is written: zero, B(t)/B is one."""
        _, m, _, M = system.shape
        rows, dtype = system.memory.size, system.dtype
        pair, one = (rows, rows, m, m, M), (rows, m, M)
        shapes = (pair, pair, (rows, rows, m, M), one, (rows, m, m, M), (rows,), (rows,))
        return Processes(*(jnp.zeros(shape, dtype) for shape in shapes))._replace(portion=jnp.ones(rows, dtype))

    def step(
        self, system: System, step: Step, start: Start, state: Processes, rho: Array, here: Local
    ) -> tuple[Answer, Processes]:
        """Return Γ_i and 𝓡(i, j) = γ_j R_ℓ(i, j), (rows, m, m), and the processes with row i written."""
        slope, bend = (
            of_samples(field, system.problem, step.t, here.r, start) for field in (fields.force_r, fields.force_rr)
        )
        algorithm, dtype = system.algorithm, state.rho.dtype
        delta = jnp.asarray(system.problem.sample_ratio, dtype)
        tau = jnp.asarray(algorithm.noise_temperature, dtype)
        R = rho.astype(dtype)
        # Itô, left point. eq:dmft_disc_rhor (eq:rho_r, eq:rho_r_planted)
        rho_r = -jnp.einsum("kac,kjcbs->jabs", R, state.rho) - jnp.einsum("jac,jcbs->jabs", R, state.force_r)
        rho_r = rho_r / delta
        # eq:dmft_disc_Dr (eq:D_r, eq:D_r_planted)
        D_r = -jnp.einsum("kac,kjcs->jas", R, state.D_r) / delta
        D_r = D_r - jnp.sqrt(tau / delta) * jnp.einsum("jac,jcs->jas", R, state.force)
        bracket = -jnp.einsum("kac,kjcbs->jabs", R, state.D_ell) / delta
        # eq:dmft_disc_rhol (eq:rho_ell, eq:rho_ell_planted), eq:dmft_disc_Drhol (eq:D_ell, eq:D_ell_planted)
        rho_ell = jnp.einsum("acs,jcbs->jabs", slope, rho_r)
        bent = jnp.einsum("abcs,jcs->jabs", bend, D_r)
        D_ell = jnp.einsum("acs,jcbs->jabs", slope, bracket) + jnp.einsum("jacs,jcbs->jabs", bent, rho_r)
        # D_ℓ is linear in the noise of step j, and so is what it multiplies: sqrt(τ(t_j)) twice.
        noisy = D_ell / state.portion[:, None, None, None]
        R_ell = jnp.mean(rho_ell + jnp.sqrt(tau * delta) * noisy, axis=-1)
        response = (state.dt[:, None, None] * R_ell).astype(jnp.float64)
        turned = jnp.einsum("acs,jcs->jas", slope, D_r)
        portion = algorithm.portion(step.t + step.dt / 2) if algorithm.scheduled else 1.0
        new = (here.Z * rho_ell, here.Z * D_ell, here.Z * turned, here.force, slope, step.dt, portion)
        written = (past.at[step.number].set(jnp.asarray(row, dtype)) for past, row in zip(state, new, strict=True))
        gamma = jnp.mean(slope, axis=-1).astype(jnp.float64)
        equal = -jnp.einsum("acs,cbs->ab", slope, slope).astype(jnp.float64) / system.samples
        return Answer(gamma, response, equal / system.problem.sample_ratio), Processes(*written)
