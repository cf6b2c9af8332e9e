"""Averages over (w, w*, z): one fresh sample's pre-activations and label noise, given the second moments of θ.

Evenly spread points, weighted so that all first and second moments are exact (control variates) and independent in
each replica, so that the spread over replicas is an honest standard error.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from .._linalg import root
from ..problem import Normal, Problem, fields, observables
from ..problem.laws import EntryLaw


class Nodes(NamedTuple):
    """Points that averages are taken over, and the fixed second moments of the teacher."""

    normals: Any
    """(N, m+k), standard normal under the weights."""
    z: Any
    """(N,)."""
    weights: Any
    """(N,), summing to 1."""
    teacher_root: Any
    """(k, k): w* = root · normals."""
    teacher_inverse: Any
    """(k, k): pseudo-inverse of C_θ(*, *)."""

    @classmethod
    def of(cls, normals: Any, z: Any, teacher: Any) -> "Nodes":
        """Points of equal weight, (replicas, N, m+k) and (replicas, N), with the teacher's second moments."""
        inverse = jnp.asarray(np.linalg.pinv(teacher, hermitian=True)) if len(teacher) else jnp.zeros((0, 0))
        weights = jnp.full(z.shape, 1.0 / z.shape[1])
        return cls(jnp.asarray(normals), jnp.asarray(z), weights, root(jnp.asarray(teacher)), inverse)


PER_REPLICA = Nodes(0, 0, 0, None, None)  # type: ignore[arg-type]
"""Which parts differ between replicas, for vmap."""


def evenly(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Points spread evenly over the unit cube, (count, size), shifted at random.

    Multiples of the powers of 1/φ, φ the root of φ^(size+1) = φ + 1 (the golden ratio in one dimension), modulo 1:
    as even as Sobol points in a few dimensions, without the second that their library takes to load.
    """
    phi = 2.0
    for _ in range(64):
        phi = (1 + phi) ** (1 / (size + 1))
    step = (1 / phi) ** np.arange(1, size + 1)
    return (rng.random(size) + np.arange(1, count + 1)[:, None] * step) % 1.0


def _points(samples: int, size: int, law: EntryLaw, seed: int, key: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Even normals, draws of z, and weights near 1/N that make all first and second moments exact."""
    uniform = np.clip(evenly(samples, size + 2, np.random.default_rng(seed)), 1e-15, 1 - 1e-15)
    x, z = ndtri(uniform[:, :size]), law.spread_out(uniform[:, size:], key)
    first, second = np.append(np.zeros(size), 0.0), np.eye(size + 1)
    first[-1], second[-1, -1] = (moment.item() for moment in law.moments(1))
    both = np.column_stack([x, z])
    pairs = np.triu_indices(size + 1)
    monomials = np.column_stack([np.ones(samples), both, both[:, pairs[0]] * both[:, pairs[1]]])
    target = np.concatenate([[1.0], first, second[pairs]])
    if not law.exact_moments:  # estimated moments of z are no better than the sample's own
        known = np.ones(len(target), dtype=bool)
        known[[1 + size, -1]] = False
        monomials, target = monomials[:, known], target[known]
    # The smallest correction of equal weights that meets the targets: the regression estimator of control variates.
    missing = target - monomials.mean(axis=0)
    correction = monomials @ np.linalg.lstsq(monomials.T @ monomials / samples, missing, rcond=1e-12)[0]
    return x, z, (1 + correction) / samples


def _samples(nodes: Nodes, Q: Any, c: Any) -> tuple[Any, Any]:
    """w (N, m) and w* (N, k), jointly Gaussian with E wwᵀ = Q, E ww*ᵀ = c."""
    m = Q.shape[0]
    w_star = nodes.normals[:, m:] @ nodes.teacher_root.T
    slope = c @ nodes.teacher_inverse
    return w_star @ slope.T + nodes.normals[:, :m] @ root(Q - slope @ c.T).T, w_star


def average(nodes: Nodes, Q: Any, c: Any, fn: Any) -> Any:
    """E fn(w, w*, z); fn returns a tree of arrays."""
    values = jax.vmap(fn)(*_samples(nodes, Q, c), nodes.z)
    return jax.tree.map(lambda v: jnp.einsum("n...,n->...", v, nodes.weights), values)


@partial(jax.jit, static_argnames="metrics")
def observe(problem: Problem, nodes: Nodes, Q: Any, c: Any, metrics: Any = ()) -> dict[str, Any]:
    """Every observable, (times, replicas); time by time, so that memory does not grow with their number.

    `metrics` are further pairs (name, ψ(w, w*, z)). Where the error has a closed form, that is used.
    """
    chosen = observables.on_samples(problem) | dict(metrics)

    def one(nodes: Nodes, Q: Any, c: Any) -> dict[str, Any]:
        return average(nodes, Q, c, lambda r, s, z: {name: fn(r, s, z) for name, fn in chosen.items()})

    found = jax.lax.map(lambda moments: jax.vmap(one, in_axes=(PER_REPLICA, 0, 0))(nodes, *moments), (Q, c))
    if observables.sign_of_gaussian(problem) and isinstance(problem.noise, Normal):
        # P(w (w* + z) < 0) for jointly Gaussian w and w* + z; a half where w = 0.
        width = jnp.sqrt(jnp.sum(nodes.teacher_root @ nodes.teacher_root.T) + problem.noise.scale**2)
        size = jnp.sqrt(Q[..., 0, 0])
        cosine = jnp.sum(c[..., 0, :], axis=-1) / (jnp.where(size > 0, size, 1.0) * width)
        found["error"] = jnp.where(size > 0, jnp.arccos(jnp.clip(cosine, -1.0, 1.0)) / jnp.pi, 0.5)
    return found


def force_moments(problem: Problem, nodes: Nodes, t: Any, Q: Any, c: Any) -> tuple[Any, Any, Any]:
    """E[ℓ wᵀ], E[ℓ w*ᵀ] and C_ℓ = E[ℓ ℓᵀ]."""

    def products(w: Any, w_star: Any, z: Any) -> tuple[Any, Any, Any]:
        ell = fields.force(problem, t, w, w_star, z)
        return jnp.outer(ell, w), jnp.outer(ell, w_star), jnp.outer(ell, ell)

    return average(nodes, Q, c, products)


def make_nodes(problem: Problem, samples: int, replicas: int, seed: int, key: Any) -> Nodes:
    """Independent points for every replica; `seed` scrambles, `key` draws where a law has no quantile function."""
    m, k = problem.width, problem.k
    teacher = problem.gram()[m:, m:]
    law = problem.noise_law
    points = [_points(samples, m + k, law, seed * 1_000_003 + i, jax.random.fold_in(key, i)) for i in range(replicas)]
    normals, z, weights = (jnp.asarray(np.stack(part)) for part in zip(*points, strict=True))
    if not k:
        return Nodes(normals, z, weights, jnp.zeros((0, 0)), jnp.zeros((0, 0)))
    inverse = jnp.asarray(np.linalg.pinv(teacher, hermitian=True))
    return Nodes(normals, z, weights, root(jnp.asarray(teacher)), inverse)
