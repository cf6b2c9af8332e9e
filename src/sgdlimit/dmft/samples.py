"""All samples of a march at once: a function of each of them, and averages of their products."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .._types import Array, Tree

PIECE = 512
"""Samples that one part of a GPU adds up: a small product of long rows would else keep a single part of it busy."""


def each(fn: Callable[..., Tree]) -> Callable[[Array, Array, Array], Array]:
    """Return a function of one sample (r, r*, z) as one of all samples, which lie along the last axis."""
    return jax.vmap(fn, in_axes=(-1, -1, 0), out_axes=-1)


def moments(a: Array, b: Array) -> Array:
    """Return E[a bᵀ] over samples, (…, p, q) from (…, p, M) and (…, q, M), in double precision."""
    count = a.shape[-1]
    if jax.default_backend() == "cpu" or count <= PIECE or count % PIECE:
        total = jnp.einsum("...as,...bs->...ab", a, b)
    else:
        pieces = (x.reshape(*x.shape[:-1], count // PIECE, PIECE) for x in (a, b))
        total = jnp.einsum("...acs,...bcs->...cab", *pieces).sum(axis=-3)
    return total.astype(jnp.float64) / count
