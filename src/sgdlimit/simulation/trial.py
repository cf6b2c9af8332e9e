"""One trial: its data, its weights, its fresh samples, and what is measured on them."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import root
from .._tree import static, tree
from ..algorithms.base import Data, FreshData, StoredData, dimension, draw_rows
from ..problem import Iid, Problem, observables
from ..problem.entries import Entries
from ..problem.shift import moved, place


class GaussianTest(NamedTuple):
    """Fresh Gaussian samples: (w, w*) given θ is exactly Gaussian, so no test matrix is needed."""

    normals: Any
    z: Any
    scale: Any = None
    """√s of every coordinate; None: 1."""


class RowsTest(NamedTuple):
    """Fresh samples as rows, for entries that are not Gaussian and for the user's data."""

    X: Any
    r_star: Any
    z: Any


@final
@tree
@dataclass(frozen=True)
class Extra:
    """The user's own averages: pairs of a name and ψ(r, r*, z), or ψ(θ, θ*)."""

    on_samples: Any = static(default=())
    on_weights: Any = static(default=())


class Coordinates(NamedTuple):
    """The groups of the data, coordinate by coordinate; None for iid entries."""

    scale: Any
    """√s, (d,)."""
    factor: Any
    """Of θ*, (d,)."""

    @classmethod
    def of(cls, problem: Problem, dim: int) -> "Coordinates | None":
        """On the host."""
        if isinstance(problem.data, Iid):
            return None
        table = problem.data.table()
        counts = table.counts(dim)
        return cls(np.repeat(np.sqrt(table.variance), counts), np.repeat(table.factor, counts))


class Trial(NamedTuple):
    """Everything a run reads and never changes."""

    data: Data
    theta_star: Any
    test: GaussianTest | RowsTest | None
    extra: Extra = Extra()


@partial(jax.jit, static_argnums=(2, 3, 4))
def build(
    problem: Problem, entries: Entries, dim: int, samples: int, fresh: int, key: Any, own: Coordinates | None = None
) -> tuple[Trial, Any]:
    """A trial with its own data, and θ⁰. `samples` is n, 0 for infinite data; `fresh` counts the test samples.

    The weights of a student with an intercept have one more row, √d β: that of its constant feature.
    """
    data_key, weight_key, noise_key, test_key, test_noise_key = jax.random.split(key, 5)
    theta, theta_star = problem.sample_weights(weight_key, dim)
    scale = None
    if own is not None:
        theta_star = theta_star * jnp.asarray(own.factor, theta_star.dtype)[:, None]
        scale = jnp.asarray(own.scale, theta_star.dtype)
    if problem.bias:
        theta = jnp.concatenate([theta, jnp.zeros((1, problem.width), theta.dtype)])
    if samples:
        data: Data = StoredData(problem, *draw_rows(problem, entries, theta_star, scale, samples, data_key, noise_key))
    else:
        data = FreshData(problem, entries, theta_star, scale)
    if entries.gaussian:
        z = problem.sample_noise(test_noise_key, fresh)
        test: Any = GaussianTest(jax.random.normal(test_key, (fresh, problem.width + problem.k)), z, scale)
    else:
        test = RowsTest(*draw_rows(problem, entries, theta_star, scale, fresh, test_key, test_noise_key))
    return Trial(data, theta_star, test), theta


def observe(trial: Trial, theta: Any) -> dict[str, Any]:
    """Every observable of the problem at θ."""
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
    chosen = observables.on_samples(problem) | dict(trial.extra.on_samples)
    for name, fn in trial.extra.on_weights:
        out[name] = jnp.mean(jax.vmap(fn)(theta, trial.theta_star))
    if trial.test is not None:
        if isinstance(trial.test, GaussianTest):
            w = trial.test.normals @ root(_fresh_gram(trial.test, theta, trial.theta_star))
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


def _fresh_gram(test: GaussianTest, theta: Any, theta_star: Any) -> Any:
    """Second moments of (w, w*) given the weights."""
    dim = len(theta)
    if test.scale is not None:
        theta, theta_star = (test.scale[:, None] * part for part in (theta, theta_star))
    norm, overlap = theta.T @ theta / dim, theta.T @ theta_star / dim
    return jnp.block([[norm, overlap], [overlap.T, theta_star.T @ theta_star / dim]])


def snapshot(trial: Trial, theta: Any) -> dict[str, Any]:
    """Weights and pre-activations, for comparing distributions."""
    out = {"theta": theta[: dimension(trial.data.problem, len(theta))]}
    if trial.data.problem.k:
        out["theta_star"] = trial.theta_star
    if isinstance(trial.data, StoredData):
        out |= {"r": trial.data.X @ theta, "z": trial.data.z}
        if trial.data.problem.k:
            out["r_star"] = trial.data.r_star
    return out
