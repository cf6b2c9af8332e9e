"""Uniform numbers at a tenth of the price of the generator that keys belong to.

A key of jax's own generator, folded with the step, gives two words; every sample's counter is hashed with both. On a
CPU the generator itself would take longer than all the rest of a small step.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from ._types import Array, Host, Key


def words(seed: int, count: int) -> Host:
    """Return what independent keys of jax's own generator are made of, (count, 2), seeded on the host: splitting and
    slicing keys takes longer."""
    return np.random.SeedSequence(seed).generate_state(2 * count).reshape(count, 2)


def keys(seed: int, count: int) -> list[Key]:
    """Return independent keys of jax's own generator, as many as asked for."""
    return [jax.random.wrap_key_data(pair) for pair in words(seed, count)]  # type: ignore[arg-type]


def _hash(x: Array) -> Array:
    """A bijection of 32 bits in which every output bit depends on every input bit (xor-shifts and odd multipliers)."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)


def uniform(key: Key, shape: tuple[int, ...]) -> Array:
    """Return uniform numbers in (0, 1) of 23 bits, single precision: with 24 the largest would round to 1."""
    words = jax.random.key_data(key).astype(jnp.uint32).reshape(-1)
    counter = jax.lax.iota(jnp.uint32, math.prod(shape))
    bits = _hash(_hash(counter + words[0]) ^ words[1])
    return ((bits >> 9).astype(jnp.float32) + 0.5).reshape(shape) * jnp.float32(2.0**-23)


ROUNDS = 4  # of the shuffle: after three, numbers half the count apart are still seen to avoid each other


def even(key: Key, shape: tuple[int, ...]) -> Array:
    """Return uniform numbers in (0, 1), one in each of as many equal cells, in random order.

    So every step has its share of them. The order is a random bijection of the counter (odd multipliers, xor-shifts).
    The place in a cell has as many bits as single precision leaves, so that none is rounded into the next. For a count
    that is no power of two these are plain uniform numbers.
    """
    count = math.prod(shape)
    bits = count.bit_length() - 1
    if count != 2**bits or not 6 <= bits <= 22:
        return uniform(key, shape)
    words = jax.random.key_data(key).astype(jnp.uint32).reshape(-1)
    own = _hash(_hash(jax.lax.iota(jnp.uint32, 2 * ROUNDS + 1) + words[0]) ^ words[1])
    x = jax.lax.iota(jnp.uint32, count)
    for turn in range(ROUNDS):
        x = (x * (own[2 * turn] | 1) + own[2 * turn + 1]) & jnp.uint32(count - 1)
        x = x ^ (x >> ((bits + 1) // 2))
    shift = ((own[-1] >> (9 + bits)).astype(jnp.float32) + 0.5) * jnp.float32(2.0 ** (bits - 23))
    return ((x.astype(jnp.float32) + shift) / count).reshape(shape)


def normal(key: Key, shape: tuple[int, ...]) -> Array:
    """Return standard normal numbers in single precision, none of them beyond 5.3."""
    return jnp.float32(math.sqrt(2.0)) * jax.lax.erf_inv(2 * uniform(key, shape) - 1)
