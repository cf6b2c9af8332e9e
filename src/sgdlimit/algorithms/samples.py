"""What an update works on: rows of data, stored or fresh, the weights of a run, and the fields ℓ and h on them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._types import Array, Key, Scalar
from ..problem import Problem, fields, trained
from ..problem.rows import Rows
from ..problem.sequences import as_rows

INTERCEPT = "intercept"
"""Name of β among the parameters that all samples share."""


class Weights(NamedTuple):
    """All that is trained. Gradients and velocities have the same shapes, and are `Weights` too."""

    theta: Array
    """θ, (d, m)."""
    shared: dict[str, Array]
    """Trained parameters by name, and "intercept" (m,) where the problem has one."""

    def preactivations(self, X: Array) -> Array:
        """r = Xθ + β, (rows, m), or (samples, L, m)."""
        r = X @ self.theta
        return r + self.shared[INTERCEPT] if INTERCEPT in self.shared else r


def start_weights(problem: Problem, theta: Array) -> Weights:
    """The weights of a run at t = 0: θ⁰, trained parameters where they start, β = 0."""
    shared = {name: value.astype(theta.dtype) for name, value in trained.starts(problem).items()}
    if problem.bias:
        shared[INTERCEPT] = jnp.zeros(problem.width, theta.dtype)
    return Weights(theta, shared)


class Batch(NamedTuple):
    """Samples: x (B, d), r* (B, k), z (B,); of L rows each x (B, L, d), r* (B, L, k)."""

    X: Array
    r_star: Array
    z: Array


class StoredData(NamedTuple):
    """A fixed training set (finite δ)."""

    problem: Problem
    X: Array
    r_star: Array
    z: Array
    theta_star: Array | None = None
    """θ* (d, k), which only a rate that reads the overlap needs to know."""

    def batch(self, rows: Array, key: Key) -> Batch:
        """The stored rows of these numbers."""
        return Batch(self.X[rows], self.r_star[rows], self.z[rows])

    @property
    def samples(self) -> int:
        """n, the samples that are stored."""
        return self.X.shape[0]

    @property
    def sample_ratio(self) -> float:
        """n/d."""
        return self.X.shape[0] / self.X.shape[-1]


class FreshData(NamedTuple):
    """Infinite data: every batch is new (δ = ∞)."""

    problem: Problem
    rows: Rows
    samples = 0  # nothing is stored

    def batch(self, rows: Array, key: Key) -> Batch:
        """As many new rows as were asked for."""
        data, noise = jax.random.split(key)
        return draw_rows(self.problem, self.rows, rows.shape[0], data, noise)

    @property
    def theta_star(self) -> Array:
        """θ* (d, k)."""
        return self.rows.theta_star


Data = StoredData | FreshData


def draw_rows(problem: Problem, rows: Rows, count: int, data_key: Key, noise_key: Key) -> Batch:
    """Samples at the mean of their class, or with means and correlations of their rows; r* of the centred rows; z."""
    X, r_star = rows.draw(data_key, count * problem.rows)
    z, dim = problem.sample_noise(noise_key, count), X.shape[1]
    classes, relation = problem.data.classes, problem.data.relation
    if classes is not None:
        X = X + classes.along(z, X.dtype).T @ rows.theta_star.T / dim
    if problem.rows == 1:
        return Batch(X, r_star, z)
    X, r_star = X.reshape(count, problem.rows, dim), r_star[:, : problem.read].reshape(count, problem.rows, -1)
    if relation is not None and relation.means is not None:
        means = jnp.asarray(relation.means, X.dtype)
        X = X + means @ rows.theta_star[:, -means.shape[1] :].T / dim
    return Batch(as_rows(problem, X), as_rows(problem, r_star), z)


def forces(problem: Problem, t: Scalar, r: Array, batch: Batch | StoredData) -> Array:
    """ℓ_t on every sample, in the shape of r."""
    return jax.vmap(lambda a, b, c: fields.force(problem, t, a, b, c))(r, batch.r_star, batch.z)


def pulls(problem: Problem, t: Scalar, r: Array, batch: Batch | StoredData) -> Array:
    """∇_r L on every sample, in the shape of r: the forces without the schedule."""
    return jax.vmap(lambda a, b, c: fields.pull(problem, t, a, b, c))(r, batch.r_star, batch.z)


def drifts(problem: Problem, t: Scalar, theta: Array) -> Array:
    """h_t applied row-wise to θ, shape (d, m)."""
    return jax.vmap(lambda v: fields.drift(problem, t, v))(theta)


def flat(x: Array) -> Array:
    """All rows of all samples one after the other, (rows, ·)."""
    return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])


def gather(X: Array, v: Array) -> Array:
    """Xᵀv for X (rows, d) and v (rows, m), over the rows of all samples."""
    X, v = flat(X), flat(v)
    return (v.T @ X).T  # on a CPU the product with a transposed matrix is not blocked, and some 50 times slower
