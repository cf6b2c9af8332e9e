"""A Gaussian process drawn row by row: the Cholesky factor of a covariance that grows by one row a step.

The factor is kept as its inverse, which turns standard normals' coordinates into sums (no triangular solves). A new
pivot below a *relative* threshold is set to zero with its whole column, never divided by, and counted.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from . import history

THRESHOLD = {"float64": 1e-7, "float32": 1e-4}
"""Smallest pivot relative to the variance, by the precision of the samples that the covariance is averaged over."""


class Factor(NamedTuple):
    """L⁻¹ of the covariance so far, and what was met on the way."""

    inverse: Any
    """Kernel (blocks, B, blocks, B, m, m)."""
    latest: Any
    """Its last row, not yet written."""
    clipped: Any
    """Pivots set to zero."""
    smallest: Any
    """Smallest pivot seen, relative to its variance; negative if the covariance was not positive semidefinite."""


def start(blocks: int, block: int, m: int) -> Factor:
    """Of no rows."""
    return Factor(
        history.empty_kernel(blocks, block, m),
        history.empty(blocks, block, m, m),
        jnp.zeros((), jnp.int32),
        jnp.ones(()),
    )


def extend(factor: Factor, i: Any, row: Any, corner: Any, scale: Any, threshold: float) -> tuple[Factor, Any]:
    """Add step i: covariances `row` (blocks, B, m, m) with earlier steps, `corner` (m, m) with itself.

    `scale` (m,) are the variances that pivots are compared with. Returns the new row of L, the diagonal included.
    """
    inverse = history.put_previous(factor.inverse, i, factor.latest)
    known = history.apply(inverse, row, i)  # L(i, ·) = Cov(i, ·) L⁻ᵀ
    left = corner - history.inner(known, known, i)
    diagonal, clipped, smallest = _cholesky(left, scale, threshold)
    new = history.put(known, i, diagonal)
    # Row i of L⁻¹ is L_ii⁻¹ (1_i − L(i, ·) L⁻¹), with zero in place of the inverse of a clipped pivot.
    back = _inverse(diagonal)
    inverse_row = -jnp.einsum("ac,xjcb->xjab", back, history.chain(known, inverse, i))
    smallest = jnp.minimum(factor.smallest, smallest)
    return Factor(inverse, history.put(inverse_row, i, back), factor.clipped + clipped, smallest), new


def _cholesky(matrix: Any, scale: Any, threshold: float) -> tuple[Any, Any, Any]:
    """Lower factor of a small matrix, pivot by pivot; how many were clipped, and the smallest relative pivot."""
    m = matrix.shape[0]
    lower = jnp.zeros_like(matrix)
    clipped, smallest = jnp.zeros((), jnp.int32), jnp.ones(())
    for a in range(m):
        pivot = matrix[a, a] - jnp.sum(lower[a] ** 2)
        empty = scale[a] <= 0  # a variance of zero (no force, no start) has nothing to clip
        kept = (pivot > threshold * scale[a]) & ~empty
        root = jnp.where(kept, jnp.sqrt(jnp.where(kept, pivot, 1.0)), 0.0)
        column = (matrix[:, a] - lower @ lower[a]) * jnp.where(kept, 1 / jnp.where(kept, root, 1.0), 0.0)
        lower = lower.at[:, a].set(jnp.where(jnp.arange(m) > a, column, jnp.where(jnp.arange(m) == a, root, 0.0)))
        clipped = clipped + jnp.where(kept | empty, 0, 1)
        smallest = jnp.minimum(smallest, jnp.where(empty, 1.0, pivot / jnp.where(empty, 1.0, scale[a])))
    return lower, clipped, smallest


def _inverse(lower: Any) -> Any:
    """Inverse of a small lower factor; a zero pivot leaves a zero row and column."""
    m = lower.shape[0]
    inverse = jnp.zeros_like(lower)
    for a in range(m):
        live = lower[a, a] > 0
        scale = jnp.where(live, 1 / jnp.where(live, lower[a, a], 1.0), 0.0)
        unit = jnp.zeros(m).at[a].set(1.0)
        inverse = inverse.at[a].set(scale * (unit - lower[a].at[a].set(0.0) @ inverse))
    return inverse
