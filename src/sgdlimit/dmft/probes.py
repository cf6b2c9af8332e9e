"""Signs ±1 that probe a response: row j·m + a of a Walsh matrix over the samples.

Over any 2⁸ = 256 successive samples two rows of the same group of 256 are exactly orthogonal, so that a probe's noise
comes only from what differs between samples; rows of different groups are told apart by pseudo-random signs. The
samples themselves are exchangeable, so a fixed pattern is as good as a random one.
"""

from typing import Any

import jax
import jax.numpy as jnp

GROUP_BITS = 8
GROUP = 2**GROUP_BITS
"""The number of samples must be a multiple of this."""


def signs(first: Any, count: int, samples: int, dtype: Any) -> Any:
    """Rows first … first+count−1: shape (count, samples)."""
    row = (first + jnp.arange(count)).astype(jnp.uint32)[:, None]
    sample = jnp.arange(samples, dtype=jnp.uint32)[None, :]
    walsh = jax.lax.population_count(row & sample & (GROUP - 1))
    flip = _scramble((row >> GROUP_BITS) * jnp.uint32(0x9E3779B9) ^ sample)
    return (1 - 2 * ((walsh + flip) & 1).astype(jnp.int32)).astype(dtype)


def _scramble(x: Any) -> Any:
    """A hash of 32 bits (the finaliser of MurmurHash3): neighbouring inputs give unrelated parities."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)
