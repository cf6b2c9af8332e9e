"""Draws of the effective weight θ at chosen steps, and averages over them."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..problem import Problem
from .data_side import Keys
from .march import Setup, State
from .weights import Teacher

STEPS_AT_ONCE = 32
"""Steps whose draws are held at the same time."""


@partial(jax.jit, static_argnames="setup")
def weight_draws(problem: Problem, setup: Setup, teacher: Teacher, keys: Any, state: State, at: Any) -> tuple[Any, Any]:
    """θ (replicas, steps, m, N) and θ* (replicas, k, N), joint over the steps."""

    def one(own: Keys, weights: Any) -> tuple[Any, Any]:
        return setup.weights.draw(problem, setup, teacher, own, weights, at)

    return jax.vmap(one)(keys, state.weights)


@partial(jax.jit, static_argnames=("setup", "metrics"))
def _averages(problem: Problem, setup: Setup, teacher: Teacher, keys: Any, state: State, at: Any, metrics: Any) -> Any:
    theta, theta_star = weight_draws(problem, setup, teacher, keys, state, at)

    def mean(fn: Any) -> Any:
        over_draws = jax.vmap(fn, in_axes=(-1, -1))
        over_steps = jax.vmap(lambda x, y: jnp.mean(over_draws(x, y)), in_axes=(0, None))
        return jax.vmap(over_steps)(theta, theta_star)

    return {name: mean(fn) for name, fn in metrics}


def weight_averages(
    problem: Problem, setup: Setup, teacher: Teacher, keys: Any, state: State, at: np.ndarray, metrics: Any
) -> dict[str, np.ndarray]:
    """E ψ(θ_i, θ*) in every replica at the given steps: (replicas, steps)."""
    if not metrics or not len(at):
        return {}
    padded = np.concatenate([at, np.full(-len(at) % STEPS_AT_ONCE, at[-1])])
    parts = [
        _averages(problem, setup, teacher, keys, state, jnp.asarray(some), metrics)
        for some in padded.reshape(-1, STEPS_AT_ONCE)
    ]
    return {name: np.concatenate([np.asarray(p[name]) for p in parts], axis=1)[:, : len(at)] for name, _ in metrics}
