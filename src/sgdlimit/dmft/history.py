"""Arrays over all earlier steps, read block by block.

A history has shape (blocks, B, …): step j lies at [j // B, j % B]. Loops run over the blocks that are filled, so that
shapes are static, padding is never read, and every sum is taken in the same order however long the march will be.
A row over the history, such as R_θ(i, ·), has shape (blocks, B, a, b); a two-time kernel is a history of rows.

What step i adds is carried beside the history and written at the start of step i+1 (`put_previous`): a step then
writes before it reads, and the compiler never copies a history.
"""

from typing import Any

import jax
import jax.numpy as jnp


def empty(blocks: int, block: int, *shape: int, dtype: Any = jnp.float64) -> Any:
    """A history of zeros."""
    return jnp.zeros((blocks, block, *shape), dtype)


def empty_kernel(blocks: int, block: int, m: int, n: int | None = None) -> Any:
    """A two-time kernel of zeros, in double precision."""
    return jnp.zeros((blocks, block, blocks, block, m, m if n is None else n), jnp.float64)


def filled(history: Any, rows: Any) -> Any:
    """Blocks that hold the first `rows` steps."""
    return (rows + history.shape[1] - 1) // history.shape[1]


def put(history: Any, i: Any, value: Any) -> Any:
    """The history with step i set."""
    block = history.shape[1]
    start = (i // block, i % block) + (0,) * (history.ndim - 2)
    return jax.lax.dynamic_update_slice(history, value[None, None].astype(history.dtype), start)


def put_previous(history: Any, i: Any, value: Any) -> Any:
    """The history with step i−1 set; before step 0 there is nothing to set, and `value` is zero."""
    return put(history, jnp.maximum(i - 1, 0), value)


def get(history: Any, i: Any) -> Any:
    """Step i of the history."""
    block = history.shape[1]
    return jax.lax.dynamic_slice(
        history, (i // block, i % block) + (0,) * (history.ndim - 2), (1, 1, *history.shape[2:])
    )[0, 0]


def at(history: Any, b: Any) -> Any:
    """Block b."""
    return jax.lax.dynamic_index_in_dim(history, b, keepdims=False)


def tile(kernel: Any, b: Any, c: Any) -> Any:
    """K(l, j) for l in block b and j in block c: shape (B, B, …)."""
    _, B, _, _, *rest = kernel.shape
    zeros = (0,) * len(rest)
    return jax.lax.dynamic_slice(kernel, (b, 0, c, 0, *zeros), (1, B, 1, B, *rest))[0, :, 0]


def combine(row: Any, history: Any, rows: Any) -> Any:
    """Σ_{j<rows} row(j) · history(j): (a, b) on (b, s) gives (a, s)."""
    row = row.astype(history.dtype)

    def add(b: Any, total: Any) -> Any:
        return total + jnp.einsum("jab,jbs->as", at(row, b), at(history, b))

    start = jnp.zeros((row.shape[2], history.shape[-1]), history.dtype)
    return jax.lax.fori_loop(0, filled(history, rows), add, start)


def correlate(x: Any, history: Any, rows: Any) -> Any:
    """Sample averages E[x_a history(j)_b] for j < rows: a row in double precision."""
    blocks, B, width, samples = history.shape
    x = (x / samples).astype(history.dtype)

    def fill(b: Any, row: Any) -> Any:
        products = jnp.einsum("jbs,as->jba", at(history, b), x)  # this order of axes streams four times faster
        return jax.lax.dynamic_update_index_in_dim(row, jnp.swapaxes(products, 1, 2).astype(row.dtype), b, 0)

    start = jnp.zeros((blocks, B, x.shape[0], width), jnp.float64)
    return jax.lax.fori_loop(0, filled(history, rows), fill, start)


def inner(first: Any, second: Any, rows: Any) -> Any:
    """Σ_{j<rows} first(j) second(j)ᵀ of two rows."""

    def add(b: Any, total: Any) -> Any:
        return total + jnp.einsum("jab,jcb->ac", at(first, b), at(second, b))

    return jax.lax.fori_loop(0, filled(first, rows), add, jnp.zeros((first.shape[2], second.shape[2]), jnp.float64))


def chain(row: Any, kernel: Any, rows: Any) -> Any:
    """Σ_{l<rows} row(l) K(l, ·) for a kernel that vanishes above its diagonal: a row."""
    count = filled(row, rows)

    def column(c: Any, out: Any) -> Any:
        def add(b: Any, total: Any) -> Any:
            return total + jnp.einsum("lac,ljcb->jab", at(row, b), tile(kernel, b, c))

        start = jnp.zeros((row.shape[1], row.shape[2], kernel.shape[-1]), jnp.float64)
        return jax.lax.dynamic_update_index_in_dim(out, jax.lax.fori_loop(c, count, add, start), c, 0)

    blocks, B, a, _ = row.shape
    return jax.lax.fori_loop(0, count, column, jnp.zeros((blocks, B, a, kernel.shape[-1]), jnp.float64))


def apply(kernel: Any, row: Any, rows: Any) -> Any:
    """Σ_{l≤j} row(l) K(j, l)ᵀ for every j < rows, K vanishing above its diagonal: a row."""
    count = filled(row, rows)

    def one(b: Any, out: Any) -> Any:
        def add(c: Any, total: Any) -> Any:
            return total + jnp.einsum("lac,jlbc->jab", at(row, c), tile(kernel, b, c))

        start = jnp.zeros((row.shape[1], row.shape[2], kernel.shape[-2]), jnp.float64)
        return jax.lax.dynamic_update_index_in_dim(out, jax.lax.fori_loop(0, b + 1, add, start), b, 0)

    blocks, B, a, _ = row.shape
    return jax.lax.fori_loop(0, count, one, jnp.zeros((blocks, B, a, kernel.shape[-2]), jnp.float64))
