"""Bisection towards the place where a function jumps, inside a compiled program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def bisected(
    value: Callable[[Any], Any], change: Callable[[Any, Any, Any], Any], low: Any, high: Any, halvings: int
) -> tuple[Any, Any, Any, Any]:
    """The ends of [low, high], halved so many times towards the half across which a function changes more.

    value: what is known of the function at a point. change: how much it changes between two such, over a width.
    Returns both ends, and what is known there.
    """

    def halve(_: Any, ends: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        low, high, left, right = ends
        width = (high - low) / 2
        middle = low + width
        here = value(middle)
        first = change(left, here, width) > change(here, right, width)
        halves = (low, middle, left, here), (middle, high, here, right)
        return jax.tree.map(lambda a, b: jnp.where(first, a, b), *halves)

    return jax.lax.fori_loop(0, halvings, halve, (low, high, value(low), value(high)))
