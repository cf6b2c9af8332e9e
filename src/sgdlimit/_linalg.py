"""Square roots of second moments. Matrices are symmetric up to rounding; leading axes are batches."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from ._types import Array, Host

NULL = 1e-12
"""Eigenvalues below this share of the largest are zero up to rounding."""


def root(matrix: Array | Host) -> Array:
    """Return the symmetric square root of a positive semidefinite matrix; rounding below zero counts as zero."""
    return _spectral(matrix, lambda values: jnp.sqrt(jnp.clip(values, 0.0, None)))


def root_of(matrix: Array | Host) -> Host:
    """Return what `root` does, by numpy: in double precision, whatever jax is set to."""
    matrix = np.asarray(matrix, dtype=np.float64)
    values, vectors = np.linalg.eigh((matrix + matrix.mT) / 2)
    return (vectors * np.sqrt(np.clip(values, 0.0, None))[..., None, :]) @ vectors.mT


def power(matrix: Array | Host, exponent: float) -> Array:
    """Return a power of a positive semidefinite matrix; null directions stay null, also for a negative exponent."""

    def of(values: Array) -> Array:
        kept = values > NULL * jnp.max(jnp.abs(values), axis=-1, keepdims=True, initial=1e-300)
        return jnp.where(kept, jnp.where(kept, values, 1.0) ** exponent, 0.0)

    return _spectral(matrix, of)


def power_of(matrix: Array | Host, exponent: float) -> Host:
    """Return what `power` does, by numpy and in double precision."""
    values, vectors = np.linalg.eigh(np.asarray(matrix, dtype=np.float64))
    kept = values > NULL * np.max(np.abs(values), initial=1e-300)
    return (vectors * np.where(kept, np.where(kept, values, 1.0) ** exponent, 0.0)) @ vectors.mT


def match(sample: Array, gram: Array) -> Array:
    """Return rows (N, p) mapped linearly, so that their second moments are `gram`; null directions stay null."""
    observed = sample.T @ sample / len(sample)
    return sample @ (power(gram, 0.5) @ power(observed, -0.5)).T


def _spectral(matrix: Array | Host, function: Callable[[Array], Array]) -> Array:
    """A function of a symmetric matrix."""
    values, vectors = jnp.linalg.eigh(matrix)  # of its symmetric part
    return (vectors * function(values)[..., None, :]) @ vectors.mT
