"""Averages of products over the samples of a march: small matrices from long rows."""

from typing import Any

import jax
import jax.numpy as jnp

PIECE = 512
"""Samples that one part of a GPU adds up: a small product of long rows would else keep a single part of it busy."""


def moments(a: Any, b: Any) -> Any:
    """E[a bᵀ] over samples, (…, p, q) from (…, p, M) and (…, q, M), in double precision."""
    count = a.shape[-1]
    if jax.default_backend() == "cpu" or count <= PIECE or count % PIECE:
        total = jnp.einsum("...as,...bs->...ab", a, b)
    else:
        pieces = (x.reshape(*x.shape[:-1], count // PIECE, PIECE) for x in (a, b))
        total = jnp.einsum("...acs,...bcs->...cab", *pieces).sum(axis=-3)
    return total.astype(jnp.float64) / count
