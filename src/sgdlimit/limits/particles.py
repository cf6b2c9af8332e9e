"""Infinite data with a nonlinear penalty: the law of θ carried by particles (`eq:dmft_infinite_data_planted`)."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import match, root
from ..algorithms import Algorithm
from ..problem import Problem, fields
from ..progress import Progress
from .averages import PER_REPLICA, Nodes, average, force_moments
from .stability import BOUND


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, PER_REPLICA, 0, 0, None, None, None, None, 0))
def _advance(
    problem: Problem,
    tau: Any,
    scheduled: Algorithm | None,
    nodes: Nodes,
    theta: Any,
    theta_star: Any,
    t: Any,
    h: Any,
    first: Any,
    steps: Any,
    key: Any,
) -> Any:
    """`steps` stochastic Heun steps of size h of every replica; the noise is free of θ, so weak order two.

    `scheduled`: the algorithm, where its temperature changes in time.
    """
    m = theta.shape[1]

    def drift(s: Any, x: Any) -> tuple[Any, Any]:
        """−(h + Γθ + Γ*θ*) and C_ℓ τ(t)/τ; Γ* = (E[ℓ w*ᵀ] − Γc) C_θ(*,*)⁺ also for labels that jump."""
        Q, c = x.T @ x / len(x), x.T @ theta_star / len(x)
        _, with_star, square = force_moments(problem, nodes, s, Q, c)
        gamma = average(nodes, Q, c, lambda w, v, z: fields.force_r(problem, s, w, v, z))
        gamma_star = (with_star - gamma @ c) @ nodes.teacher_inverse
        pull = jax.vmap(lambda v: fields.drift(problem, s, v))(x)
        if scheduled is not None:
            square = square / scheduled.portion(s)
        return -(pull + x @ gamma.T + theta_star @ gamma_star.T), square

    def step(i: Any, x: Any) -> Any:
        s = t + i * h
        normal = jax.random.normal(jax.random.fold_in(key, first + i), (len(x), m))
        slope, square = drift(s, x)
        guess = x + h * slope + jnp.sqrt(tau * h) * normal @ root(square)
        slope_, square_ = drift(s + h, guess)
        return x + h / 2 * (slope + slope_) + jnp.sqrt(tau * h) * normal @ root((square + square_) / 2)

    return jax.lax.fori_loop(0, steps, step, theta)


def march_particles(
    problem: Problem,
    algorithm: Algorithm,
    nodes: Nodes,
    t: np.ndarray,
    replicas: int,
    particles: int,
    dt: float,
    weight_key: Any,
    path_key: Any,
    bar: Progress,
) -> tuple[Any, Any]:
    """C_θ(t,t) and C_θ(t,*) of every replica at the times reached before the norm passes BOUND."""
    m, tau = problem.width, float(algorithm.noise_temperature)
    scheduled = algorithm if algorithm.scheduled else None
    gram = jnp.asarray(problem.gram())

    def draw(key: Any) -> Any:
        theta, theta_star = problem.sample_weights(key, particles)
        return match(jnp.concatenate([theta, theta_star], axis=1).astype(jnp.float64), gram)

    both = jax.vmap(draw)(jax.random.split(weight_key, replicas))
    theta, theta_star = both[..., :m], both[..., m:]
    path_keys = jax.random.split(path_key, replicas)
    now, first = 0.0, 0
    Qs, cs = [], []
    for target in t:
        if target > now:
            steps = max(1, math.ceil((target - now) / dt - 1e-9))
            h = (target - now) / steps
            theta = _advance(problem, tau, scheduled, nodes, theta, theta_star, now, h, first, steps, path_keys)
            bar.phase("")
            bar.advance((target - now) / t[-1])
            now, first = target, first + steps
        Q = jnp.einsum("rna,rnb->rab", theta, theta) / particles
        if not bool(jnp.all(jnp.isfinite(Q)) & (jnp.max(Q) < BOUND)):
            break
        Qs.append(Q)
        cs.append(jnp.einsum("rna,rnb->rab", theta, theta_star) / particles)
    if not Qs:
        return jnp.zeros((0, replicas, m, m)), jnp.zeros((0, replicas, m, problem.k))
    return jnp.stack(Qs), jnp.stack(cs)
