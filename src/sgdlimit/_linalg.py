"""Square roots of second moments. Matrices are symmetric up to rounding; leading axes are batches."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ._types import Array, Host

NULL = 1e-12  # eigenvalues below this share of the largest are zero up to rounding


def root(matrix: Array | Host) -> Array:
    """Return the symmetric square root of a positive semidefinite matrix; rounding below zero counts as zero."""
    values, vectors = jnp.linalg.eigh(matrix)  # of its symmetric part
    return (vectors * jnp.sqrt(jnp.clip(values, 0.0, None))[..., None, :]) @ vectors.mT


def root_of(matrix: Array | Host) -> Host:
    """Return what `root` does, by numpy: in double precision, whatever jax is set to."""
    matrix = np.asarray(matrix, dtype=np.float64)
    values, vectors = np.linalg.eigh((matrix + matrix.mT) / 2)
    return (vectors * np.sqrt(np.clip(values, 0.0, None))[..., None, :]) @ vectors.mT


def power(matrix: Any, exponent: float, xp: Any = jnp) -> Any:
    """Return a power of a positive semidefinite matrix, by jax or by numpy as `xp`; null directions stay null, also
    for a negative exponent."""
    values, vectors = xp.linalg.eigh(matrix)
    kept = values > NULL * xp.max(xp.abs(values), axis=-1, keepdims=True, initial=1e-300)
    return (vectors * xp.where(kept, xp.where(kept, values, 1.0) ** exponent, 0.0)[..., None, :]) @ vectors.mT


def match(sample: Array, gram: Array) -> Array:
    """Return rows (N, p) mapped linearly, so that their second moments are `gram`; null directions stay null."""
    observed = sample.T @ sample / len(sample)
    return sample @ (power(gram, 0.5) @ power(observed, -0.5)).T
