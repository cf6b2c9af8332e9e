"""One trial: its data, its weights, its fresh samples, and what is measured on them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._linalg import root
from .._tree import model, static
from ..algorithms.samples import INTERCEPT, Batch, Data, FreshData, StoredData, Weights, draw_rows, start_weights
from ..problem import Problem, observables, trained
from ..problem.mixture import Place, moved, place
from ..problem.rows import Entries, Layout
from ..problem.sequences import as_read, as_rows
from ..results import metrics
from ..results.metrics import Named


class GaussianTest(NamedTuple):
    """Fresh Gaussian samples: (w, w*) given θ is exactly Gaussian, so no test matrix is needed."""

    normals: jax.Array
    z: jax.Array
    variance: jax.Array | None = None
    """s of every coordinate, (d,); None for iid entries."""


class Handed(NamedTuple):
    """What a trial that goes on from another begins with."""

    theta: jax.Array
    """θ⁰, (d, m)."""
    theta_star: jax.Array
    """θ*, (d, k)."""
    shared: dict[str, jax.Array]
    """Parameters that all samples share, by name; those that the problem does not have are left out."""


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
    problem: Problem, entries: Entries, dim: int, samples: int, fresh: int, key: Any, layout: Layout,
    handed: Handed | None = None,
) -> tuple[Trial, Weights]:  # fmt: skip
    """A trial with its own data, and the weights at t = 0.

    `samples` is n, 0 for infinite data; `fresh` counts the test samples; `layout` is `problem.data.at(dim)`. `handed`:
    where a trial goes on from another; None: drawn.
    """
    data_key, weight_key, noise_key, test_key, test_noise_key = jax.random.split(key, 5)
    theta, theta_star = problem.sample_weights(weight_key, dim) if handed is None else handed[:2]
    rows, tests = layout.draw(weight_key, entries, theta_star, lambda key, count: problem.sample_weights(key, count)[1])
    by_group = None if layout.by_group is None else jnp.asarray(layout.by_group, theta.dtype)
    if samples:
        data: Data = StoredData(problem, *draw_rows(problem, rows, samples, data_key, noise_key), rows.theta_star)
    else:
        data = FreshData(problem, rows)
    if tests.gaussian:
        normals = jax.random.normal(test_key, (fresh, *problem.sample_shape(problem.width + problem.k)))
        test: Any = GaussianTest(normals, problem.sample_noise(test_noise_key, fresh), tests.variance)
    else:
        test = draw_rows(problem, tests, fresh, test_key, test_noise_key)
    weights = start_weights(problem, theta)
    if handed is not None:
        kept = {name: handed.shared.get(name, value) for name, value in weights.shared.items()}
        weights = weights._replace(shared=kept)
    return Trial(data, rows.theta_star, test, by_group), weights


def observe(trial: Trial, weights: Weights) -> dict[str, jax.Array]:
    """Every observable of the problem at these weights, by name."""
    theta, shared = weights
    problem, dim = trained.at(trial.data.problem, shared), len(theta)
    norm = theta.T @ theta / dim
    overlap = theta.T @ trial.theta_star / dim
    out = {"norm": norm} | shared
    if problem.k:
        out |= {name: own for name, own in observables.overlaps(problem, overlap).items() if own.size}
    if trial.by_group is not None:
        out["norm_by_group"] = _by_group(trial.by_group, theta, theta)
        if problem.read:
            out["overlap_by_group"] = _by_group(trial.by_group, theta, trial.theta_star[:, : problem.read])
    chosen = observables.on_samples(problem) | metrics.at(trial.on_samples, shared)
    for name, fn in trial.on_weights:
        out[name] = jnp.mean(jax.vmap(fn)(theta, trial.theta_star[:, : problem.read]))
    if trial.test is not None:
        if isinstance(trial.test, GaussianTest):
            teacher = trial.theta_star.T @ trial.theta_star / dim
            gram = jnp.block([[norm, overlap], [overlap.T, teacher]])
            if trial.test.variance is not None:
                both = jnp.concatenate([theta, trial.theta_star], axis=1)
                gram = both.T @ (trial.test.variance[:, None] * both) / dim
            w = trial.test.normals @ root(gram)
            fresh = (*_read(problem, w, place(problem, overlap, shared.get(INTERCEPT)), trial.test.z), trial.test.z)
        else:
            fresh = (weights.preactivations(trial.test.X), trial.test.r_star, trial.test.z)
        out |= {f"test_{name}": jnp.mean(jax.vmap(fn)(*fresh)) for name, fn in chosen.items()}
    if isinstance(trial.data, StoredData):
        seen = (weights.preactivations(trial.data.X), trial.data.r_star, trial.data.z)
        out |= {f"train_{name}": jnp.mean(jax.vmap(fn)(*seen)) for name, fn in chosen.items()}
    else:
        # With infinite data every training sample is fresh: the two averages are the same.
        out |= {f"train_{name}": out[f"test_{name}"] for name in chosen}
    return out


def _read(problem: Problem, w: jax.Array, at: Place, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """r and r* of samples (…, m+k) of independent rows, as functions of one sample read them."""
    m, r_star = problem.width, w[..., problem.width : problem.width + problem.read]
    if problem.rows == 1:
        return moved(problem, at, z, w[:, :m].T).T, r_star
    lines = w[..., :m].transpose(2, 1, 0).reshape(m, -1)
    return as_read(problem, moved(problem, at, z, lines)).transpose(2, 0, 1), as_rows(problem, r_star)


def _by_group(means: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """Products of weights, averaged over each group's coordinates: (g, ·, ·)."""
    products = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
    return (means @ products).reshape(-1, left.shape[1], right.shape[1])


def snapshot(trial: Trial, weights: Weights) -> dict[str, jax.Array]:
    """Weights and pre-activations of the training samples by name, for comparing distributions."""
    out = {"theta": weights.theta}
    if read := trial.data.problem.read:
        out["theta_star"] = trial.theta_star[:, :read]
    if isinstance(trial.data, StoredData):
        out |= {"r": weights.preactivations(trial.data.X), "z": trial.data.z}
        if read:
            out["r_star"] = trial.data.r_star
    return out
