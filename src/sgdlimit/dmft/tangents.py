"""The response from all tangents of every sample: what the regression is tested against, and what kernels come from.

Every sample carries (nm)² numbers, and the force must have a derivative.
"""

from dataclasses import dataclass
from typing import final

import jax.numpy as jnp

from .._types import Array
from ..problem import fields
from .data_side import combine
from .memory import Dense
from .response import Answer, Local, Response, of_samples
from .system import Start, Step, System


def along(matrices: Array, x: Array) -> Array:
    """Return Σ_b matrices[a, b, s] x[b, …, s], sample by sample."""
    m = matrices.shape[1]
    wide = matrices.reshape(*matrices.shape[:2], *[1] * (x.ndim - 2), matrices.shape[-1])
    return sum((wide[:, b] * x[b] for b in range(1, m)), start=wide[:, 0] * x[0])


@final
@dataclass(frozen=True)
class Tangents(Response):
    """𝓡(i,j) = E[∂ℓ_i/∂w_j] (`eq:se_xi`) from all tangents of every sample (`eq:dell_dw_disc`), through their moments.

    q_b = Σ_j (∂r_i/∂w_j) φ_b(i,j) = −(1/δ) Σ_a ρ_a H_ab with H_ab = Σ_k φ_a(i,k) D_k Σ_{j≤k} (∂r_k/∂w_j) φ_b(i,j),
    D_k = Z_k ∇ℓ_k: exact but for the projection of R_w.
    """

    def init(self, system: System) -> Array:
        """Return H, (n, m, n, m, M), of samples that have no tangents yet: zero."""
        _, m, _, M = system.shape
        n = system.memory.size
        return jnp.zeros((n, m, n, m, M), system.dtype)

    def step(
        self, system: System, step: Step, start: Start, state: Array, rho: Array, here: Local
    ) -> tuple[Answer, Array]:
        """Return Γ_i = E[∇ℓ], κ from the moments ξ_b = E[∇ℓ q_b] of 𝓡(i, ·), and the next H."""
        H, memory, m = state, system.memory, system.problem.width
        slope = of_samples(fields.force_r, system.problem, step.t, here.r, start)
        weighted = slope if here.expected is None else here.expected * slope
        delta = jnp.asarray(system.problem.sample_ratio, H.dtype)
        q = combine(-rho.astype(H.dtype) / delta, H)
        xi = jnp.einsum("oas,akcs->koc", weighted, q).astype(jnp.float64) / system.samples
        u = memory.new(step.memory, H.dtype)
        path = memory.shift(step.memory, q, 1) + (u[None, :, None] * jnp.eye(m, dtype=H.dtype)[:, None, :])[..., None]
        pushed = along(here.Z * slope, path)
        if not isinstance(memory, Dense):
            H = memory.shift(step.memory, H, 2)
        gamma = jnp.mean(weighted, axis=-1).astype(jnp.float64)  # eq:Gamma, eq:Gamma_planted
        equal = -jnp.einsum("acs,cbs->ab", slope, slope).astype(jnp.float64) / system.samples
        answer = Answer(gamma, memory.dual(step.memory, xi), equal / system.problem.sample_ratio)
        return answer, memory.push(step.memory, H, pushed)
