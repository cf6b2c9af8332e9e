"""One training sample in the limit: r, its force, and the averages that drive the weights.

r_i = w_i − (1/δ) Σ_{j<i} R_w(i,j) F_j with F_j = Z_j ℓ_j (`eq:dmft_disc_r`; in continuous time `eq:r`, with a teacher
`eq:r_planted`), for M samples at once, and their averages `eq:dmft_disc_func`. R_w = Σ_q p_q s_q R_θ^q is R_θ for iid
data. Averages carry the mean of Z_i given the past, over γ_i, so that they hold for correlated increments.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp

from ..problem import Law, Problem, fields, observables
from ..problem.shift import Push, push
from ..results.metrics import SOFT
from . import noise
from .memory import Dense
from .system import Start, Step, System

FIRST = 2**31 - 1
"""Folded into the key for the state of the increments; no step has this number."""


class DataState(NamedTuple):
    """The past of M samples."""

    forces: Any
    """Moments of F_j, (n, m, M)."""
    tangents: Any
    increments: Any


class Averages(NamedTuple):
    """What the weights need from step i."""

    gamma: Any
    """Γ_i, (m, m)."""
    response: Any
    """κ: coefficients of 𝓡(i, ·), (n, m, m)."""
    with_basis: Any
    """E[ℓ_i · coordinates of (w_0, w*)], (m, m+k)."""
    force: Any
    """F_i, (m, M): what the noise of the weights is mixed from."""
    push: Push = Push()
    """What moves the means of a mixture and an intercept."""


class Local(NamedTuple):
    """A sample's force and slopes at step i."""

    force: Any
    slope: Any
    """∇ℓ, (m, m, M)."""
    weighted: Any
    """∇ℓ times E[Z_i | past]/γ_i."""
    Z: Any
    bend: Any = None
    """∇²ℓ, (m, m, m, M), where the response needs it."""


def combine(coefficients: Any, past: Any) -> Any:
    """Σ_{n,b} coefficients[n, a, b] past[n, b, …]: one plain matrix product, whatever follows."""
    n, a, b = coefficients.shape
    rows = coefficients.transpose(1, 0, 2).reshape(a, n * b)
    return (rows @ past.reshape(n * b, -1)).reshape(a, *past.shape[2:])


def along(matrices: Any, x: Any) -> Any:
    """Σ_b matrices[a, b, s] x[b, …, s], sample by sample.

    Sums of products, which fuse, where a matrix product for each sample would first bring the samples to the front.
    """
    m = matrices.shape[1]
    wide = matrices.reshape(*matrices.shape[:2], *[1] * (x.ndim - 2), matrices.shape[-1])
    return sum((wide[:, b] * x[b] for b in range(1, m)), start=wide[:, 0] * x[0])


@final
@dataclass(frozen=True)
class Tangents:
    """𝓡(i,j) = E[∂ℓ_i/∂w_j] (`eq:se_xi`) from all tangents of every sample (`eq:dell_dw_disc`), through their moments.

    q_b = Σ_j (∂r_i/∂w_j) φ_b(i,j) = −(1/δ) Σ_a ρ_a H_ab with H_ab = Σ_k φ_a(i,k) D_k Σ_{j≤k} (∂r_k/∂w_j) φ_b(i,j),
    D_k = Z_k ∇ℓ_k: exact but for the projection of R_w.
    """

    bends: ClassVar[bool] = False

    def init(self, system: System) -> Any:
        """No tangents yet: H, (n, m, n, m, M)."""
        _, m, _, M = system.shape
        n = system.memory.size
        return jnp.zeros((n, m, n, m, M), system.dtype)

    def step(self, system: System, step: Step, H: Any, rho: Any, here: Local) -> tuple[Any, Any]:
        """Moments ξ_b = E[∇ℓ q_b] of 𝓡(i, ·), (n, m, m) in double precision, and the next H."""
        memory, m = system.memory, system.problem.width
        delta = jnp.asarray(system.problem.sample_ratio, H.dtype)
        q = combine(-rho.astype(H.dtype) / delta, H)
        xi = jnp.einsum("oas,akcs->koc", here.weighted, q).astype(jnp.float64) / system.samples
        u = memory.new(step.memory, H.dtype)
        path = memory.shift(step.memory, q, 1) + (u[None, :, None] * jnp.eye(m, dtype=H.dtype)[:, None, :])[..., None]
        pushed = along(here.Z * here.slope, path)
        if not isinstance(memory, Dense):
            H = memory.shift(step.memory, H, 2)
        return xi, memory.push(step.memory, H, pushed)


def _each(fn: Any) -> Any:
    """A function of one sample (r, r*, z), applied along the last axis."""
    return jax.vmap(fn, in_axes=(-1, -1, 0), out_axes=-1)


def _mean(problem: Problem, z: Any, values: Any) -> Any:
    """The mean over samples; under a law of the user's with stated moments less what z² has too much (control variate).

    Such noise is drawn, not spread evenly, and may have heavy tails: a squared error then has those of z².
    """
    law = problem.noise_law
    if not isinstance(law, Law) or law.second_moment is None:
        return jnp.mean(values).astype(jnp.float64)
    values, square = values.astype(jnp.float64), z.astype(jnp.float64) ** 2
    mean, centred = jnp.mean(values), square - jnp.mean(square)
    spread = jnp.mean(centred**2)
    slope = jnp.mean(values * centred) / jnp.where(spread > 0, spread, 1.0)
    return mean - slope * (jnp.mean(square) - law.second_moment)


def init(system: System, start: Start) -> DataState:
    """No steps yet."""
    _, m, _, M = system.shape
    key = jax.random.fold_in(start.key, FIRST)
    return DataState(
        forces=jnp.zeros((system.memory.size, m, M), system.dtype),
        tangents=system.tangents.init(system),
        increments=system.algorithm.start_increments(key, (M,), system.problem.sample_ratio),
    )


def step(
    system: System, step: Step, start: Start, state: DataState, rho: Any, w: Any, f: Any
) -> tuple[DataState, Averages, dict[str, Any]]:
    """Step i, given R_w(i,·) by its coefficients ρ, w_i (with what moves its class), and f = Σ_j R_w(i,j) F_j."""
    problem, dtype, (_, m, k, M) = system.problem, system.dtype, system.shape
    delta = jnp.asarray(problem.sample_ratio, dtype)
    r_star, t = start.r_star, step.t
    r = w - f / delta  # eq:dmft_disc_r

    def force_and_slope(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
        def twice(v: Any) -> tuple[Any, Any]:
            value = fields.force(problem, t, v, b, c)
            return value, value

        slope, value = jax.jacfwd(twice, has_aux=True)(a)
        return value, slope

    force, slope = jax.vmap(force_and_slope, in_axes=(-1, -1, 0), out_axes=-1)(r, r_star, start.z)
    force, slope = force.astype(dtype), slope.astype(dtype)
    increments, Z, expected = noise.increments(system, state.increments, start, step)
    weighted, driven = (slope, force) if expected is None else (expected * slope, expected * force)
    bend = None
    if system.tangents.bends:
        bend = _each(lambda a, b, c: fields.force_rr(problem, t, a, b, c))(r, r_star, start.z).astype(dtype)
    here = Local(force, slope, weighted, Z, bend)
    xi, tangents = system.tangents.step(system, step, state.tangents, rho, here)
    gamma = jnp.mean(weighted, axis=-1).astype(jnp.float64)  # eq:Gamma, eq:Gamma_planted
    F = Z * force  # dL of eq:Sigma_ell, eq:Sigma_ell_planted
    averages = Averages(
        gamma=gamma,
        response=system.memory.dual(step.memory, xi),
        with_basis=jnp.einsum("as,bs->ab", driven, start.basis[: m + k]).astype(jnp.float64) / M,
        force=F,
        push=push(problem, start.z, driven),
    )
    chosen = observables.on_samples(problem) | dict(system.metrics)
    seen = {f"train_{name}": _mean(problem, start.z, _each(fn)(r, r_star, start.z)) for name, fn in chosen.items()}
    if (soft := observables.softened(problem, r, r_star, start.z)) is not None:
        seen[SOFT] = soft.astype(jnp.float64)
    size = slope[0, 0] if m == 1 else jnp.sqrt(jnp.sum(slope**2, axis=(0, 1)))
    seen |= {"Gamma": gamma, "steepest": jnp.max(jnp.abs(size)).astype(jnp.float64)}
    if system.kernels:
        square = jnp.einsum("acs,cbs->ab", slope, slope).astype(jnp.float64) / M
        seen |= {"response": averages.response, "equal": -square / problem.sample_ratio}
    forces = system.memory.push(step.memory, state.forces, F)
    return DataState(forces, tangents, increments), averages, seen
