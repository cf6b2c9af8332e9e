"""Rows x of finite size, and the teacher's pre-activation r* of each: what a law of data draws at dimension d."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp

from .._tree import static, tree
from .entries import Entries


class Rows(abc.ABC):
    """Where samples come from. Every subclass is final, and a tree: what a trial has drawn once is in its leaves."""

    @abc.abstractmethod
    def draw(self, key: Any, count: int) -> tuple[Any, Any]:
        """x (count, d) and r* (count, k)."""


@final
@tree
@dataclass(frozen=True)
class Scaled(Rows):
    """x = √s u/√d, u with independent entries, and r* = θ*ᵀx."""

    entries: Entries
    theta_star: Any
    """(d, k)."""
    scale: Any = None
    """√s of every coordinate, (d,); None for iid entries."""

    def draw(self, key: Any, count: int) -> tuple[Any, Any]:
        """Entries, and their products with the teacher."""
        dim = self.theta_star.shape[0]
        X = self.entries.sample(key, (count, dim)) / jnp.sqrt(dim)
        X = X if self.scale is None else self.scale * X
        return X, X @ self.theta_star


@final
@tree
@dataclass(frozen=True)
class FeatureMap:
    """d features σ(F u) of D inputs u: σ with its moments κ_0 = E σ, κ_1 = E gσ, κ_*² = E σ² − κ_0² − κ_1²."""

    mean: Any
    """κ_0."""
    linear: Any
    """κ_1."""
    rest: Any
    """κ_*²."""
    activation: Callable[..., Any] = static()
    inputs: int = static()
    """D."""

    def draw(self, key: Any, entries: Entries, dim: int, teacher: Any) -> "Features":
        """F, and the teacher β (D, k) that reads the inputs."""
        return Features(entries, jax.random.normal(key, (self.inputs, dim)), teacher, self)


@final
@tree
@dataclass(frozen=True)
class Features(Rows):
    """x = (σ(F u/√D) − κ_0)/√d, u with independent entries, and r* = βᵀu/√D."""

    entries: Entries
    weights: Any
    """Fᵀ, (D, d)."""
    teacher: Any
    """β, (D, k)."""
    map: FeatureMap

    def draw(self, key: Any, count: int) -> tuple[Any, Any]:
        """Inputs, what is made of them, and what the teacher says of them."""
        inputs, dim = self.weights.shape
        u = self.entries.sample(key, (count, inputs)) / jnp.sqrt(inputs)
        return (self.map.activation(u @ self.weights) - self.map.mean) / jnp.sqrt(dim), u @ self.teacher

    def best(self) -> Any:
        """θ*, (d, k): the best linear predictor of r* from x under Gaussian equivalence (`docs/structured_data.md`)."""
        inputs, dim = self.weights.shape
        covariance = self.map.linear**2 * self.weights.T @ self.weights / inputs + self.map.rest * jnp.eye(dim)
        cross = jnp.sqrt(dim) * self.map.linear / inputs * self.weights.T @ self.teacher
        values, vectors = jnp.linalg.eigh(covariance)
        inverse = jnp.where(values > 1e-6 * values[-1], 1 / jnp.maximum(values, 1e-30), 0.0)
        return vectors @ (inverse[:, None] * (vectors.T @ cross))
