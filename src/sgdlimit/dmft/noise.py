"""What drives a replica: standard normals and increments, step by step, coupled between grids.

Randomness belongs to the steps of the finest grid; a coarser grid, `stride` fine steps to one of its own, adds it up.
So grids of different steps see the same noise, and a longer march repeats a shorter one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from . import history


class Grid(NamedTuple):
    """Fine times t_0 < t_1 < …, and how many of their steps make one step of the march."""

    fine: Any
    stride: Any

    def time(self, i: Any) -> Any:
        """t_i of the march."""
        return self.fine[i * self.stride]

    def step(self, i: Any) -> Any:
        """γ_i = t_{i+1} − t_i."""
        return self.fine[(i + 1) * self.stride] - self.fine[i * self.stride]


def whitener(gram: Any) -> Any:
    """L⁻¹ of a positive definite matrix L Lᵀ, row by row; a batched triangular solve takes a second to compile."""
    lower = jnp.linalg.cholesky(gram)

    def row(a: Any, inverse: Any) -> Any:
        unit = (jnp.arange(len(gram)) == a).astype(gram.dtype)
        return inverse.at[a].set((unit - lower[a] @ inverse) / lower[a, a])

    return jax.lax.fori_loop(0, len(gram), row, jnp.zeros_like(gram))


def orthonormal(rows: Any) -> Any:
    """Rows with unit second moment and no correlation over the samples; twice, for rounding."""

    def once(_: Any, rows: Any) -> Any:
        gram = (rows @ rows.T / rows.shape[1]).astype(jnp.float64)
        return whitener(gram).astype(rows.dtype) @ rows

    return jax.lax.fori_loop(0, 2, once, rows)


def draw_block(key: Any, grid: Grid, basis: Any, normals: Any, i: Any) -> Any:
    """The history `normals` (blocks, B, m, M) with the block of step i drawn.

    Sample means are zero and sample covariances exact: rows are orthogonal to `basis` (q, M), to all earlier rows and
    to each other. This costs one matrix product a block and takes away the sampling error of second moments.
    """
    _, B, m, M = normals.shape
    block = i // B

    def row(j: Any) -> Any:
        def add(s: Any, total: Any) -> Any:
            # single precision: half the cost, and its rounding is far below one sample's weight
            return total + jax.random.normal(jax.random.fold_in(key, (i + j) * grid.stride + s), (m, M), jnp.float32)

        total = jax.lax.fori_loop(0, grid.stride, add, jnp.zeros((m, M), jnp.float32))
        return total / jnp.sqrt(grid.stride).astype(jnp.float32)

    new = jax.vmap(row)(jnp.arange(B)).reshape(B * m, M).astype(normals.dtype)
    new = new - (new @ basis.T / M) @ basis

    def project(b: Any, rows: Any) -> Any:
        old = history.at(normals, b).reshape(B * m, M)
        return rows - (rows @ old.T / M) @ old

    new = orthonormal(jax.lax.fori_loop(0, block, project, new))
    return jax.lax.dynamic_update_index_in_dim(normals, new.reshape(B, m, M), block, 0)


def increments(algorithm: Any, state: Any, key: Any, grid: Grid, i: Any, sample_ratio: Any) -> tuple[Any, Any]:
    """Z_i of every sample over [t_i, t_{i+1}], and the state that the next one needs."""

    def add(s: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, total = carry
        j = i * grid.stride + s
        t, dt = grid.fine[j], grid.fine[j + 1] - grid.fine[j]
        state, Z = algorithm.increments(state, jax.random.fold_in(key, j), t, dt, sample_ratio)
        return state, total + Z

    shape = jax.eval_shape(
        lambda s: algorithm.increments(s, key, grid.fine[0], grid.fine[1], sample_ratio)[1], state
    ).shape
    return jax.lax.fori_loop(0, grid.stride, add, (state, jnp.zeros(shape)))
