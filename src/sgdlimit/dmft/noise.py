"""What is random: the samples' own draws, the increments, and the Gaussian noise, by mixing the samples.

`draw`: coordinates of (w_0, w*) and z, evenly spread, with exact second moments. `increments` live on the finest grid;
a coarser one adds them up, so that grids of different steps see the same noise. `mix` is a fixed orthogonal map Q of
the samples: ΔU = Q F/√δ has exactly the sample covariance of F at all pairs of times, is Gaussian since every entry is
a sum over all samples, and needs no factor of a covariance. Only Q is applied, never Qᵀ: no reaction term appears.
Groups of coordinates have independent noise: Q_q = Q S_q with random signs S_q of their own.
"""

import math
from types import ModuleType
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import power
from .._random import words
from .._types import Array, Host, Key, Tree
from ..measure.averages import quickly
from ..problem import Normal, Problem
from .system import Groups, Start, Step, System, moments

A = TypeVar("A", Array, Host)

STRIDES = 4
"""Most fine steps in one step of a march."""
ROLES = 3
"""Independent mixings: of fresh samples, of the weights' noise, of draws."""
ROUNDS = 2
"""Signs, then cosines along rows and columns of the samples; after two rounds entries of Q are Gaussian to 1/√M."""


def draw(problem: Problem, groups: Groups, samples: int, seed: int, dtype: str, weights: bool) -> Start:
    """Return one replica's draws, on the host: even points (w_0, w*, z), signs, (θ⁰, θ*) where asked for, words of a
    key."""
    from scipy.special import ndtri

    m, k, g = problem.width, problem.k, len(groups.share)
    lines, size = problem.rows * samples, problem.rows * (m + k + groups.unseen.shape[1])
    rng = np.random.default_rng(seed)
    uniform = np.clip(quickly(samples, size + 2, rng), 1e-12, 1 - 1e-12)
    own, for_weights, for_noise = words(seed, 3)
    noise_key = jax.random.wrap_key_data(for_noise)
    z = np.asarray(problem.noise_law.spread_out(uniform[:, size:], noise_key), dtype=np.float64)
    basis, z = orthonormal_basis(problem, ndtri(uniform[:, :size]).T, z, np)
    signs = 1.0 - 2.0 * rng.integers(0, 2, (ROLES, g + ROUNDS, lines), dtype=np.int8)
    within = 1.0 - 2.0 * rng.integers(0, 2, (rows_within(groups), lines), dtype=np.int8)
    start = np.zeros((g, m + k, lines if weights else 0))
    if weights:
        keys = jax.random.split(jax.random.wrap_key_data(for_weights), g)
        start = np.stack([coordinates(problem, key, lines, np) for key in keys])
    r_star = read_teacher(problem, groups, basis, np)
    numbers: Tree = (part.astype(dtype) for part in (basis, z, r_star, start, signs, within))
    return Start(*numbers, key=own)  # of numpy, until jax traces them


def rows_within(groups: Groups) -> int:
    """Return how many rows `Start.within` has: none where there is one group."""
    return len(groups.seen) if len(groups.share) > 1 else 0


def read_teacher(problem: Problem, groups: Groups, basis: A, xp: ModuleType) -> A:
    """Return r* of the samples as functions of one read it, from the basis: the teacher's units of w*."""
    m, size = problem.width, problem.width + problem.k + groups.unseen.shape[1]
    w_star = xp.concatenate([groups.seen[m:], groups.unseen], axis=1) @ basis[:size]
    if problem.rows == 1:
        return w_star
    lines = problem.rows, basis.shape[1] // problem.rows
    apart = w_star[: problem.read].reshape(problem.read, *lines).swapaxes(0, 1)
    relation = problem.data.relation
    return (
        apart
        if relation is None or relation.root is None
        else xp.einsum("lk,kms->lms", xp.asarray(relation.root), apart)
    )


def coordinates(problem: Problem, key: Key, count: int, xp: ModuleType) -> Array | Host:
    """Return `start` (m+k, M) of drawn (θ⁰, θ*): root · start are draws whose second moments are those of the law."""
    if xp is jnp:
        sample = xp.concatenate(problem.sample_weights(key, count), axis=1).astype(xp.float64)
    else:
        sample = problem.spread_weights(key, count)
    return (sample @ power(sample.T @ sample / count, -0.5, xp)).T


def orthonormal_basis(problem: Problem, raw: A, z: A, xp: ModuleType) -> tuple[A, A]:
    """Return the basis, normals orthonormal over the samples and to 1 and z, then 1 and z themselves; and z.

    A Gaussian z is given exact moments. Of samples with L rows `raw` are the normals of the first row, then those of
    the second; all are orthonormal, and the basis has them side by side, (q, L·M).
    """
    count = z.shape[0]
    centred = z - xp.mean(z)
    size = xp.sqrt(xp.mean(centred**2))
    live = size > 1e-6 * (xp.abs(xp.mean(z)) + 1e-30)
    unit = xp.where(live, centred / xp.where(live, size, 1.0), 0.0)
    if isinstance(problem.noise_law, Normal):
        z = problem.noise_law.scale * unit
    known = xp.stack([xp.ones_like(z), unit])
    for _ in range(2):  # twice, for rounding
        raw = raw - (raw @ known.T / count) @ known
        lower = xp.linalg.cholesky(raw @ raw.T / count)
        raw = xp.linalg.solve(lower, raw)
    if (rows := problem.rows) > 1:
        raw = raw.reshape(rows, -1, count).swapaxes(0, 1).reshape(-1, rows * count)
        known = xp.concatenate([known] * rows, axis=1)
    return xp.concatenate([raw, known]), z


def _cosines(size: int) -> Host:
    """The orthonormal cosine transform; no entry is zero where size is a power of two."""
    j, k = np.meshgrid(np.arange(size), np.arange(size))
    table = np.sqrt(2.0 / size) * np.cos(np.pi * (2 * j + 1) * k / (2 * size))
    table[0] /= np.sqrt(2.0)
    return table


def mix(signs: Array, x: Array) -> Array:
    """Return Q_q x_q along the last axis for every group, (g, m, M); x may be one for all of them, (1, m, M)."""
    groups = len(signs) - ROUNDS
    return jax.vmap(lambda one: _spread(signs[groups:], one))(signs[:groups, None] * x)


def mix_together(signs: Array, x: Array) -> Array:
    """Return Σ_q Q_q x_q, (m, M), at the price of one mixing: the Q_q differ in their first signs alone."""
    groups = len(signs) - ROUNDS
    signed = signs[:groups, None] * x
    # a product with ones: a plain sum over the first axis would stride through memory
    total = signed[0] if groups == 1 else jnp.einsum("g,gas->as", jnp.ones(groups, x.dtype), signed)
    return _spread(signs[groups:], total)


FUSED = 64
"""Terms that are written out one by one: their sum fuses into one pass, at half the time of a reduction."""


def mix_combined(signs: Array, coefficients: Array, vectors: Array) -> Array:
    """Return Σ_q Q_q Σ_v coefficients[q, :, v] vectors[v], (m, M): `mix_together` of what few vectors combine to.

    The signs of the groups are combined in place of the vectors, so that nothing has the size of all groups.
    """
    g, m, count = coefficients.shape
    combined = (coefficients.transpose(1, 2, 0).reshape(m * count, g) @ signs[:g]).reshape(m, count, -1)
    if count > FUSED:
        return _spread(signs[g:], jnp.sum(combined * vectors, axis=1))
    return _spread(signs[g:], cast("Array", sum(combined[:, v] * vectors[v] for v in range(count))))


def _spread(signs: Array, x: Array) -> Array:
    """Cosines along rows and columns of the samples, then signs; ROUNDS times."""
    samples = x.shape[-1]
    rows = 2 ** (int(math.log2(samples)) // 2)  # of which a march of a sample with several rows has a multiple
    columns = samples // rows
    left, right = (jnp.asarray(_cosines(size), x.dtype) for size in (rows, columns))
    for turn in range(ROUNDS):
        square = x.reshape(*x.shape[:-1], rows, columns)
        x = jnp.einsum("...ij,lj->...il", jnp.einsum("ki,...ij->...kj", left, square), right).reshape(x.shape)
        x = x * signs[turn].astype(x.dtype)
    return x


def off(basis: Array, x: Array, rows: int = 1) -> Array:
    """Return x without its part along orthonormal rows (or zero ones); what this takes of a random vector is given
    back."""
    own = _of_samples(basis, rows)
    lost = jnp.sum(jnp.mean(own**2, axis=1)) / own.shape[1]
    return (x - known(basis, x, rows)) / jnp.sqrt(1 - lost)


def known(basis: Array, x: Array, rows: int = 1) -> Array:
    """Return the part of x, (m, M), along the orthonormal rows of the basis; of lines (m, L·M) what the whole sample
    tells of each, not its own row alone."""
    own = _of_samples(basis, rows)
    apart = x if rows == 1 else x.reshape(-1, own.shape[1])
    along = moments(apart, own).astype(x.dtype) @ own
    return along if rows == 1 else along.reshape(x.shape)


def _of_samples(basis: Array, rows: int) -> Array:
    """What is known of samples, orthonormal over them, (·, M), from the basis over lines."""
    if rows == 1:
        return basis
    samples = basis.shape[1] // rows
    return jnp.concatenate([basis[:-2].reshape(-1, samples), basis[-2:, :samples]])


def increments(system: System, state: Tree, start: Start, step: Step) -> tuple[Tree, Array, Array | None]:
    """Return the next state, Z_i of every sample, and its mean given the past over γ_i; None where that is 1."""
    algorithm, delta = system.algorithm, system.problem.sample_ratio
    expected = None
    if not algorithm.independent:
        expected = algorithm.expected(state, step.t, step.dt, delta) / step.dt

    def add(s: Array, carry: tuple[Tree, Array]) -> tuple[Tree, Array]:
        state, total = carry
        own = jax.random.fold_in(start.key, step.first + s)
        state, Z = algorithm.increments(state, own, step.fine_t[s], step.fine_dt[s], delta)
        return state, total + Z.astype(total.dtype)

    state, Z = jax.lax.fori_loop(0, step.stride, add, (state, jnp.zeros(system.samples, system.dtype)))
    return state, Z, expected if expected is None else cast("Array", expected).astype(system.dtype)
