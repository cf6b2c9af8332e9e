"""Activations that have a name, the same in Python and in files."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf, ndtr

from .._types import Array
from ..errors import reject


def gelu(x: Array) -> Array:
    """x Φ(x), without approximation."""
    return x * ndtr(x)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "erf": erf,
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "gelu": gelu,
    "silu": jax.nn.silu,
    "elu": jax.nn.elu,
}
"""By name. At its kink relu has slope 0 and leaky_relu slope 1; the latter has slope 0.01 below."""


def activation(argument: str, given: Any) -> Callable[..., Any]:
    """The function that a name stands for, or the function itself."""
    if isinstance(given, str) and given in ACTIVATIONS:
        return ACTIVATIONS[given]
    if not callable(given):
        names = ", ".join(map(repr, ACTIVATIONS))
        raise reject(argument, repr(given), f"it must be a function such as jax.nn.relu, or one of the names {names}")
    return given
