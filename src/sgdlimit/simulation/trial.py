"""One trial: its data, its weights, its fresh samples, and what is measured on them."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from .._linalg import root
from .._tree import static, tree
from ..algorithms.base import Data, FreshData, StoredData
from ..problem import Problem, observables
from ..problem.entries import Entries


class GaussianTest(NamedTuple):
    """Fresh Gaussian samples: (w, w*) given θ is exactly Gaussian, so no test matrix is needed."""

    normals: Any
    z: Any


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


class Trial(NamedTuple):
    """Everything a run reads and never changes."""

    data: Data
    theta_star: Any
    test: GaussianTest | RowsTest | None
    extra: Extra = Extra()


@partial(jax.jit, static_argnums=(2, 3, 4))
def build(problem: Problem, entries: Entries, dim: int, samples: int, fresh: int, key: Any) -> tuple[Trial, Any]:
    """A trial with its own data, and θ⁰. `samples` is n, 0 for infinite data; `fresh` counts the test samples."""
    data_key, weight_key, noise_key, test_key, test_noise_key = jax.random.split(key, 5)
    theta, theta_star = problem.sample_weights(weight_key, dim)
    if samples:
        X = entries.sample(data_key, (samples, dim)) / jnp.sqrt(dim)
        data: Data = StoredData(problem, X, X @ theta_star, problem.sample_noise(noise_key, samples))
    else:
        data = FreshData(problem, entries, theta_star)
    z = problem.sample_noise(test_noise_key, fresh)
    if entries.gaussian:
        test: Any = GaussianTest(jax.random.normal(test_key, (fresh, problem.width + problem.k)), z)
    else:
        rows = entries.sample(test_key, (fresh, dim)) / jnp.sqrt(dim)
        test = RowsTest(rows, rows @ theta_star, z)
    return Trial(data, theta_star, test), theta


def observe(trial: Trial, theta: Any) -> dict[str, Any]:
    """Every observable of the problem at θ."""
    problem, (dim, m) = trial.data.problem, theta.shape
    norm = theta.T @ theta / dim
    overlap = theta.T @ trial.theta_star / dim
    out = {"norm": norm}
    if problem.k:
        out["overlap"] = overlap
    chosen = observables.on_samples(problem) | dict(trial.extra.on_samples)
    for name, fn in trial.extra.on_weights:
        out[name] = jnp.mean(jax.vmap(fn)(theta, trial.theta_star))
    if trial.test is not None:
        if isinstance(trial.test, GaussianTest):
            teacher = trial.theta_star.T @ trial.theta_star / dim
            w = trial.test.normals @ root(jnp.block([[norm, overlap], [overlap.T, teacher]]))
            fresh = (w[:, :m], w[:, m:], trial.test.z)
        else:
            fresh = (trial.test.X @ theta, trial.test.r_star, trial.test.z)
        out |= {f"test_{name}": jnp.mean(jax.vmap(fn)(*fresh)) for name, fn in chosen.items()}
    if isinstance(trial.data, StoredData):
        seen = (trial.data.X @ theta, trial.data.r_star, trial.data.z)
        out |= {f"train_{name}": jnp.mean(jax.vmap(fn)(*seen)) for name, fn in chosen.items()}
    else:
        # With infinite data every training sample is fresh: the two averages are the same.
        out |= {f"train_{name}": out[f"test_{name}"] for name in chosen}
    return out


def snapshot(trial: Trial, theta: Any) -> dict[str, Any]:
    """Weights and pre-activations, for comparing distributions."""
    out = {"theta": theta}
    if trial.data.problem.k:
        out["theta_star"] = trial.theta_star
    if isinstance(trial.data, StoredData):
        out |= {"r": trial.data.X @ theta, "z": trial.data.z}
        if trial.data.problem.k:
            out["r_star"] = trial.data.r_star
    return out
