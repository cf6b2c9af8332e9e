"""Bisection towards the place where a function jumps, inside a compiled program."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .._types import Array, Tree


def bisected(
    value: Callable[[Array], Tree], change: Callable[[Tree, Tree, Array], Array], low: Array, high: Array, halvings: int
) -> tuple[Array, Array, Tree, Tree]:
    """The ends of [low, high], halved so many times towards the half across which a function changes more, and what is
    known there: its `value` at a point, of which `change` says how much it changes between two, over a width."""

    def halve(_: int, ends: tuple[Array, Array, Tree, Tree]) -> tuple[Array, Array, Tree, Tree]:
        low, high, left, right = ends
        width = (high - low) / 2
        middle = low + width
        here = value(middle)
        first = change(left, here, width) > change(here, right, width)
        halves = (low, middle, left, here), (middle, high, here, right)
        return jax.tree.map(lambda a, b: jnp.where(first, a, b), *halves)

    return jax.lax.fori_loop(0, halvings, halve, (low, high, value(low), value(high)))
