"""Rows x of finite size, and the teacher's pre-activation r* of each: what a law of data draws at dimension d."""

import abc
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._tree import model, static
from .._types import Array, Host, Key
from .entries import Entries


class Rows(abc.ABC):
    """Where samples come from. Every subclass is final, and a tree: what a trial has drawn once is in its leaves."""

    theta_star: Array
    """(d, k): θ*, or what of it a linear function of x can tell."""
    variance: Array | None
    """s of every coordinate, (d,); None where all are 1, or where coordinates are not independent."""
    gaussian: Any = False
    """Whether (θᵀx, r*) of a fresh row is Gaussian, with the second moments that `variance` says."""

    @abc.abstractmethod
    def draw(self, key: Key, count: int) -> tuple[Array, Array]:
        """Rows x (count, d) of mean zero, and the teacher's r* (count, k) of each."""


Teacher = Callable[[Key, int], Array]
"""Draws rows of the teacher's law, so many with this key."""


class Layout(abc.ABC):
    """What a law of data is at dimension d, before a trial draws anything: a tree, and every subclass is final."""

    by_group: Array | Host | None = None
    """(g, d): weights of the mean over each group's coordinates, where there are several groups."""

    @abc.abstractmethod
    def draw(self, key: Key, entries: Entries, theta_star: Array, teacher: Teacher) -> tuple[Rows, Rows]:
        """Rows of the training set and of a test; `theta_star` (d, k) has the teacher's law, as all of `teacher`."""


@model
class Scaled(Rows):
    """x = √s u/√d, u with independent entries, and r* = θ*ᵀx."""

    entries: Entries
    theta_star: Array
    variance: Array | None = None
    gaussian = property(attrgetter("entries.gaussian"))

    def draw(self, key: Key, count: int) -> tuple[Array, Array]:
        """Entries times their scales, and their products with the teacher."""
        dim = self.theta_star.shape[0]
        X = self.entries.sample(key, (count, dim)) / jnp.sqrt(dim)
        X = X if self.variance is None else jnp.sqrt(self.variance) * X
        return X, X @ self.theta_star


@model
class Coordinates(Layout):
    """Independent coordinates, each with its own variance and factor on θ*; all of them 1 where nothing is given."""

    variance: Array | Host | None = None
    """s, (d,)."""
    factor: Array | Host | None = None
    """On θ*, (d,)."""
    tested: Array | Host | None = None
    """s of the fresh samples of a test, (d,)."""
    by_group: Array | Host | None = None

    def draw(self, key: Key, entries: Entries, theta_star: Array, teacher: Teacher) -> tuple[Rows, Rows]:
        """Rows that differ in their variances only."""
        if self.variance is None:
            rows = Scaled(entries, theta_star)
            return rows, rows
        parts = (self.variance, self.factor, self.tested)
        variance, factor, tested = (jnp.asarray(part, theta_star.dtype) for part in parts)
        theta_star = factor[:, None] * theta_star
        return Scaled(entries, theta_star, variance), Scaled(entries, theta_star, tested)


class Moments(NamedTuple):
    """Of an activation σ at a standard normal g: κ_0 = E σ(g), κ_1 = E g σ(g), κ_*² = E σ² − κ_0² − κ_1²."""

    mean: float
    linear: float
    rest: float


@model
class FeatureMap(Layout):
    """d features σ(F u) of D inputs u."""

    moments: Moments
    activation: Callable[..., Any] = static()
    inputs: int = static()
    """D."""

    def draw(self, key: Key, entries: Entries, theta_star: Array, teacher: Teacher) -> tuple[Rows, Rows]:
        """Features by one F, of inputs that the teacher β (D, k) reads."""
        features, reads = jax.random.split(jax.random.fold_in(key, 1))
        F, beta = jax.random.normal(features, (self.inputs, len(theta_star))), teacher(reads, self.inputs)
        rows = Features(entries, F, beta, self, self._best(F, beta))
        return rows, rows

    def _best(self, weights: Array, teacher: Array) -> Array:
        """θ*, (d, k): the best linear predictor of r* from x under Gaussian equivalence (`docs/structured_data.md`)."""
        inputs, dim = weights.shape
        _, linear, rest = self.moments
        covariance = linear**2 * weights.T @ weights / inputs + rest * jnp.eye(dim)
        cross = jnp.sqrt(dim) * linear / inputs * weights.T @ teacher
        values, vectors = jnp.linalg.eigh(covariance)
        inverse = jnp.where(values > 1e-6 * values[-1], 1 / jnp.maximum(values, 1e-30), 0.0)
        return vectors @ (inverse[:, None] * (vectors.T @ cross))


@model
class Features(Rows):
    """x = (σ(F u/√D) − κ_0)/√d, u with independent entries, and r* = βᵀu/√D."""

    entries: Entries
    weights: Array
    """Fᵀ, (D, d)."""
    teacher: Array
    """β, (D, k)."""
    map: FeatureMap
    theta_star: Array
    variance: Array | None = None

    def draw(self, key: Key, count: int) -> tuple[Array, Array]:
        """Inputs, what is made of them, and what the teacher says of them."""
        inputs, dim = self.weights.shape
        u = self.entries.sample(key, (count, inputs)) / jnp.sqrt(inputs)
        return (self.map.activation(u @ self.weights) - self.map.moments.mean) / jnp.sqrt(dim), u @ self.teacher
