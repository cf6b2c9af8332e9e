"""One training sample in the limit: r, its force, and the averages that drive the weights.

r_i = w_i − (1/δ) Σ_{j<i} R_θ(i,j) F_j with F_j = Z_j ℓ_j (`eq:dmft_disc_r`; in continuous time `eq:r`, with a teacher
`eq:r_planted`), for M samples at once, and their averages `eq:dmft_disc_func`. All averages are
written through F, so that they hold for correlated increments; where increments are independent of the past, Z_i is
averaged out by hand.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..problem import Normal, Problem, fields, observables
from . import history, noise
from .noise import Grid
from .response import Details, Here


class DataSide(NamedTuple):
    """The past of M samples."""

    basis: Any
    """(q, M): orthonormal over the samples: first the coordinates of (w_0, w*), then 1 and z."""
    z: Any
    normals: Any
    forces: Any
    """F_j."""
    teacher_pull: Any
    """Z_j dℓ_j/dw*, total derivative: (blocks, B, m·k, M); of width 0 where the labels are not smooth."""
    increments: Any
    response: Any
    r: Any
    """(m, M): the latest pre-activations."""
    latest: Any
    """F, Z dℓ/dw* and the note on the response of the latest step, not yet written."""


class Averages(NamedTuple):
    """What the weights need from step i."""

    gamma: Any
    """Γ_i, (m, m)."""
    response: Any
    """𝓡(i, ·), a row."""
    with_start: Any
    """E[ℓ_i · coordinates of (w_0, w*)], (m, m+k)."""
    teacher: Any
    """E[dℓ_i/dw*], (m, k); meaningless where the labels are not smooth."""
    force_row: Any
    """E[F_i F_jᵀ]/δ for j < i, a row."""
    force_corner: Any
    """E[F_i F_iᵀ]/δ."""
    equal: Any
    """R_ℓ(t, t') as t' → t: −E[∇ℓ_i ∇ℓ_i]/δ."""


class Keys(NamedTuple):
    """Random streams of one replica."""

    sample: Any
    normals: Any
    start: Any
    increments: Any
    weights: Any
    path: Any


def init(problem: Problem, algorithm: Any, setup: Any, keys: Keys) -> DataSide:
    """No steps yet: w_0, w*, z and the state of the increments."""
    m, k, M, dtype = problem.width, problem.k, setup.samples, jnp.dtype(setup.dtype)
    noise_key, normal_key = jax.random.split(keys.sample)
    z = problem.sample_noise(noise_key, M).astype(dtype)
    raw = jax.random.normal(normal_key, (m + k, M), dtype)
    # 1 and the part of z that is not constant, made orthonormal; a constant z leaves an empty row.
    centred = z - jnp.mean(z)
    size = jnp.sqrt(jnp.mean(centred**2))
    if isinstance(problem.noise_law, Normal):  # both moments made exact
        centred = (problem.noise_law.scale * centred / jnp.where(size > 0, size, 1.0)).astype(dtype)
        z, size = centred, jnp.sqrt(jnp.mean(centred**2))
    live = size > 1e-6 * (jnp.abs(jnp.mean(z)) + 1e-30)
    known = jnp.stack([jnp.ones(M, dtype), jnp.where(live, centred / jnp.where(live, size, 1.0), 0.0)])
    raw = raw - (raw @ known.T / M) @ known
    shape = (setup.blocks, setup.block)
    k_smooth = k if setup.derivative else 0
    return DataSide(
        basis=jnp.concatenate([noise.orthonormal(raw), known]),
        z=z,
        normals=history.empty(*shape, m, M, dtype=dtype),
        forces=history.empty(*shape, m, M, dtype=dtype),
        teacher_pull=history.empty(*shape, m * k_smooth, M, dtype=dtype),
        increments=algorithm.start_increments(keys.start, (M,), problem.sample_ratio),
        response=setup.response.init(*shape, m, M, dtype),
        r=jnp.zeros((m, M), dtype),
        latest=(
            jnp.zeros((m, M), dtype),
            jnp.zeros((m * k_smooth, M), dtype),
            setup.response.note(*shape, m, M, dtype),
        ),
    )


def _each(fn: Any) -> Any:
    """A function of one sample (r, r*, z), applied along the last axis."""
    return jax.vmap(fn, in_axes=(-1, -1, 0), out_axes=-1)


def _match(Z: Any, mean: Any, ell: Any, w: Any, basis: Any) -> Any:
    """Gaussian increments whose noise e = Z − γ has no sample correlation with what the samples know.

    For independent increments E[e ℓ φ] = 0 for every φ known at step i. Imposed on the samples for φ = ℓ, w, the
    coordinates of (w_0, w*), 1 and z, this removes most of the sampling error that the noise brings into E[F_i F_jᵀ].
    A projection takes the fraction `leverage` of a sample's variance; it is given back. Not for laws that jump: there
    the size of a jump matters, and this would change it.
    """
    M = Z.shape[0]
    known = jnp.concatenate([ell, w, basis])
    features = (ell[:, None, :] * known[None, :, :]).reshape(-1, M)
    size = jnp.sqrt(jnp.mean(features**2, axis=1, keepdims=True))
    features = (features / jnp.where(size > 0, size, 1.0)).astype(jnp.float64)
    white = noise.whitener(features @ features.T / M + 1e-6 * jnp.eye(len(features))) @ features
    leverage = jnp.minimum(jnp.sum(white**2, axis=0) / M, 0.9)
    e = (Z - mean).astype(jnp.float64)
    e = (e - (white @ e / M) @ white) / jnp.sqrt(1 - leverage)
    return mean + e.astype(Z.dtype)


def step(
    problem: Problem, algorithm: Any, setup: Any, grid: Grid, keys: Keys, root: Any, side: DataSide, i: Any, rows: Any
) -> tuple[DataSide, Averages, dict[str, Any]]:
    """Step i, given the rows W(i,·), W⁰(i), R_θ(i,·) and the kernel R_θ: new past, averages, training observables."""
    m, k, M, dtype = problem.width, problem.k, setup.samples, jnp.dtype(setup.dtype)
    delta, (t, dt) = problem.sample_ratio, (grid.time(i), grid.step(i))
    W_row, W_start, R_row, R = rows
    F_last, pull_last, note_last = side.latest
    forces = history.put_previous(side.forces, i, F_last)
    pull = history.put_previous(side.teacher_pull, i, pull_last)
    response = setup.response.record(side.response, i, note_last)
    normals = jax.lax.cond(
        i % setup.block == 0,
        lambda g: noise.draw_block(keys.normals, grid, side.basis, g, i),
        lambda g: g,
        side.normals,
    )
    start, r_star = side.basis[: m + k], (root[m:].astype(dtype) @ side.basis[: m + k])
    w = history.combine(W_row, normals, i) + W_start.astype(dtype) @ start
    r = w - history.combine(R_row / delta, forces, i)  # eq:dmft_disc_r

    time = t.astype(dtype)
    ell = _each(lambda a, b, c: fields.force(problem, time, a, b, c))(r, r_star, side.z).astype(dtype)
    slope = _each(lambda a, b, c: fields.force_r(problem, time, a, b, c))(r, r_star, side.z).astype(dtype)
    increments, Z = noise.increments(algorithm, side.increments, keys.increments, grid, i, delta)
    Z = Z.astype(dtype)
    if algorithm.gaussian:
        Z = _match(Z, dt.astype(dtype), ell, w, side.basis)
    seen = {
        f"train_{name}": jnp.mean(_each(fn)(r, r_star, side.z)).astype(jnp.float64)
        for name, fn in (observables.on_samples(problem) | dict(setup.metrics)).items()
    }

    weight = jnp.ones((), dtype) if algorithm.independent else Z / dt.astype(dtype)
    x, N = weight * ell, weight * slope
    details = None
    if setup.needs_details:
        bend = _each(lambda a, b, c: fields.force_rr(problem, time, a, b, c))(r, r_star, side.z).astype(dtype)
        portion = algorithm.portion(t + dt / 2) if algorithm.scheduled else None
        details = Details(ell, slope, bend, Z, dt, algorithm.noise_temperature, delta, portion)
    gamma = jnp.mean(N, axis=-1).astype(jnp.float64)  # eq:Gamma, eq:Gamma_planted
    here = Here(N, (Z * slope / delta).astype(dtype), gamma, (Z / delta).astype(dtype), dt / delta, details)
    minus_response, note = setup.response.row(response, i, R, R_row, here, True)

    F = Z * ell  # dL of eq:Sigma_ell, eq:Sigma_ell_planted: E[F_i F_jᵀ] is the increment of Σ_ℓ
    # The plain average of F_i F_jᵀ: positive semidefinite whatever the number of samples. Averaging Z_i out by hand
    # has less noise, but with few samples a step it loses positivity, and the march with it.
    row = history.correlate(F, forces, i)
    corner = (F @ F.T / M).astype(jnp.float64)
    teacher, pulled = jnp.zeros((m, k)), pull_last
    if setup.derivative:
        # eq:R_ell_star_planted as one total derivative:
        # dr_i/dw* = −(1/δ) Σ_j R_θ(i,j) Z_j dℓ_j/dw*, and dℓ_i/dw* = ∂ℓ_i/∂r* + ∇ℓ_i dr_i/dw*
        wide = jnp.einsum("xjab,cd->xjacbd", R_row / delta, jnp.eye(k)).reshape(*R_row.shape[:2], m * k, m * k)
        moved = -history.combine(wide, pull, i).reshape(m, k, M)
        direct = _each(lambda a, b, c: fields.force_r_star(problem, time, a, b, c))(r, r_star, side.z).astype(dtype)
        total = direct + jnp.einsum("acs,cks->aks", slope, moved)
        teacher = jnp.mean(weight * total, axis=-1).astype(jnp.float64)
        pulled = (Z * total).reshape(m * k, M)
    averages = Averages(
        gamma=gamma,
        response=-minus_response,
        with_start=(x @ start.T / M).astype(jnp.float64),
        teacher=teacher,
        force_row=row / delta,
        force_corner=corner / delta,
        equal=-jnp.mean(jnp.einsum("acs,cbs->abs", slope, slope), axis=-1).astype(jnp.float64) / delta,
    )
    side = side._replace(
        normals=normals,
        forces=forces,
        teacher_pull=pull,
        increments=increments,
        response=response,
        r=r,
        latest=(F, pulled, note),
    )
    return side, averages, seen
