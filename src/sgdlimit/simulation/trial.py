"""One trial: its data, its weights, its fresh samples, and what is measured on them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._linalg import root
from .._tree import model, static
from ..algorithms.base import Batch, Data, FreshData, StoredData, dimension, draw_rows
from ..problem import Problem, observables
from ..problem.mixture import moved, place
from ..problem.rows import Entries, Layout
from ..results.metrics import Named


class GaussianTest(NamedTuple):
    """Fresh Gaussian samples: (w, w*) given θ is exactly Gaussian, so no test matrix is needed."""

    normals: jax.Array
    z: jax.Array
    variance: jax.Array | None = None
    """s of every coordinate, (d,); None for iid entries."""


@model
class Trial:
    """Everything a run reads and never changes."""

    data: Data
    theta_star: jax.Array
    test: GaussianTest | Batch | None
    """Fresh samples; as rows where entries are not Gaussian, and of the user's data."""
    by_group: jax.Array | None = None
    """(g, d): the mean over each group's coordinates, where there are several groups."""
    on_samples: Named = static(default=())
    """The user's own averages: pairs of a name and ψ(r, r*, z)."""
    on_weights: Named = static(default=())
    """Of ψ(θ, θ*)."""


@partial(jax.jit, static_argnums=(2, 3, 4))
def build(
    problem: Problem, entries: Entries, dim: int, samples: int, fresh: int, key: Any, layout: Layout, handed: Any = None
) -> tuple[Trial, Any]:
    """A trial with its own data, and θ⁰. `samples` is n, 0 for infinite data; `fresh` counts the test samples.

    `layout`: `problem.data.at(dim)`. `handed`: θ⁰ and θ* of a trial that goes on from another; None: drawn. The weights
    of a student with an intercept have one more row, √d β: that of its constant feature.
    """
    data_key, weight_key, noise_key, test_key, test_noise_key = jax.random.split(key, 5)
    theta, theta_star = problem.sample_weights(weight_key, dim) if handed is None else handed
    rows, tests = layout.draw(weight_key, entries, theta_star, lambda key, count: problem.sample_weights(key, count)[1])
    by_group = None if layout.by_group is None else jnp.asarray(layout.by_group, theta.dtype)
    if problem.bias:
        theta = jnp.concatenate([theta, jnp.zeros((1, problem.width), theta.dtype)])
    if samples:
        data: Data = StoredData(problem, *draw_rows(problem, rows, samples, data_key, noise_key))
    else:
        data = FreshData(problem, rows)
    if tests.gaussian:
        normals = jax.random.normal(test_key, (fresh, problem.width + problem.k))
        test: Any = GaussianTest(normals, problem.sample_noise(test_noise_key, fresh), tests.variance)
    else:
        test = draw_rows(problem, tests, fresh, test_key, test_noise_key)
    return Trial(data, rows.theta_star, test, by_group), theta


def observe(trial: Trial, theta: jax.Array) -> dict[str, jax.Array]:
    """Every observable of the problem at θ, by name."""
    problem, full, m = trial.data.problem, theta, theta.shape[1]
    dim = dimension(problem, len(full))
    theta = full[:dim]
    norm = theta.T @ theta / dim
    overlap = theta.T @ trial.theta_star / dim
    out = {"norm": norm}
    intercept = None
    if problem.bias:
        out["intercept"] = intercept = full[dim] / jnp.sqrt(dim)
    if problem.k:
        out["overlap"] = overlap
    if trial.by_group is not None:
        out["norm_by_group"] = _by_group(trial.by_group, theta, theta)
        if problem.k:
            out["overlap_by_group"] = _by_group(trial.by_group, theta, trial.theta_star)
    chosen = observables.on_samples(problem) | dict(trial.on_samples)
    for name, fn in trial.on_weights:
        out[name] = jnp.mean(jax.vmap(fn)(theta, trial.theta_star))
    if trial.test is not None:
        if isinstance(trial.test, GaussianTest):
            teacher = trial.theta_star.T @ trial.theta_star / dim
            gram = jnp.block([[norm, overlap], [overlap.T, teacher]])
            if trial.test.variance is not None:
                both = jnp.concatenate([theta, trial.theta_star], axis=1)
                gram = both.T @ (trial.test.variance[:, None] * both) / dim
            w = trial.test.normals @ root(gram)
            r = moved(problem, place(problem, overlap, intercept), trial.test.z, w[:, :m].T).T
            fresh = (r, w[:, m:], trial.test.z)
        else:
            fresh = (trial.test.X @ full, trial.test.r_star, trial.test.z)
        out |= {f"test_{name}": jnp.mean(jax.vmap(fn)(*fresh)) for name, fn in chosen.items()}
    if isinstance(trial.data, StoredData):
        seen = (trial.data.X @ full, trial.data.r_star, trial.data.z)
        out |= {f"train_{name}": jnp.mean(jax.vmap(fn)(*seen)) for name, fn in chosen.items()}
    else:
        # With infinite data every training sample is fresh: the two averages are the same.
        out |= {f"train_{name}": out[f"test_{name}"] for name in chosen}
    return out


def _by_group(means: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """Products of weights, averaged over each group's coordinates: (g, ·, ·)."""
    products = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
    return (means @ products).reshape(-1, left.shape[1], right.shape[1])


def snapshot(trial: Trial, theta: jax.Array) -> dict[str, jax.Array]:
    """Weights and pre-activations of the training samples by name, for comparing distributions."""
    out = {"theta": theta[: dimension(trial.data.problem, len(theta))]}
    if trial.data.problem.k:
        out["theta_star"] = trial.theta_star
    if isinstance(trial.data, StoredData):
        out |= {"r": trial.data.X @ theta, "z": trial.data.z}
        if trial.data.problem.k:
            out["r_star"] = trial.data.r_star
    return out
