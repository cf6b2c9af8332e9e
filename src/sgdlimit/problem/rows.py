"""Rows x of finite size, and the teacher's pre-activation r* of each: what a law of data draws at dimension d.

Entries of X, before the factor 1/√d, have mean 0 and variance 1 (`ass:data`); the limit does not see more.
"""

import abc
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._machine import refuse_orphans
from .._tree import function, leaf, model
from .._types import Array, Host, Key
from ..errors import reject


class Entries(abc.ABC):
    """The contract of a law of the entries of √d·x: mean 0 and variance 1, `gaussian` where they are normal."""

    gaussian: bool = False

    @abc.abstractmethod
    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Entries of mean 0 and variance 1."""


@model
class GaussianEntries(Entries):
    """Entries with the standard normal law."""

    gaussian = True

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Draws of N(0, 1), of the given shape."""
        return jax.random.normal(key, shape)


@model
class RademacherEntries(Entries):
    """Entries that are +1 or −1 with equal probability."""

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Random signs, of the given shape."""
        return jax.random.rademacher(key, shape, dtype=jnp.zeros(()).dtype)


@model
class UniformEntries(Entries):
    """Entries that are uniform on [−√3, √3]."""

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Uniform draws of variance 1, of the given shape."""
        return jnp.sqrt(3.0) * jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


@model
class SparseEntries(Entries):
    """Zero, except with probability `density`: then ±1/√density."""

    density: float = leaf(default=0.1, above=0, most=1, why="a fraction in (0, 1]")

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Random signs at some places and zeros at the others, of variance 1."""
        on, sign = jax.random.split(key)
        signs = jax.random.rademacher(sign, shape, dtype=jnp.zeros(()).dtype)
        return jax.random.bernoulli(on, self.density, shape) * signs / jnp.sqrt(self.density)


@model
class CustomEntries(Entries):
    """The user's sampler: `fn(key, shape)` of mean 0 and variance 1."""

    fn: Callable[..., Any] = function("fn(key, shape) -> array")

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """What the user's function draws, as floats."""
        return jnp.asarray(self.fn(key, shape), dtype=jnp.zeros(()).dtype)


def check_sampler(argument: str, sample: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """Refuse a sampler that fails, returns another shape, or does not draw from the key it is given."""
    refuse_orphans()
    try:
        first, again, other = (np.asarray(sample(jax.random.key(seed), shape)) for seed in (0, 0, 1))
    except Exception as error:
        raise reject(argument, f"{type(error).__name__}: {error}", "fn(key, shape) must use jax.random") from error
    if first.shape != shape:
        raise reject(argument, f"shape {first.shape}", f"fn(key, shape) must return the shape asked for, {shape}")
    constant = np.ptp(first) == 0
    if not np.array_equal(first, again) or (np.array_equal(first, other) and not constant):
        raise reject(argument, "draws that do not depend on the key alone", "fn(key, shape) must use jax.random")


NAMED: dict[str, Entries] = dict(
    gaussian=GaussianEntries(), rademacher=RademacherEntries(), uniform=UniformEntries(), sparse=SparseEntries()
)


def resolve_entries(entries: Any) -> Entries:
    """Entries from a name, an object, or the user's sampler (checked for mean 0 and variance 1)."""
    if isinstance(entries, Entries) and not isinstance(entries, CustomEntries):
        return entries
    if isinstance(entries, str) and entries in NAMED:
        return NAMED[entries]
    if isinstance(entries, str | type) or not callable(getattr(entries, "fn", entries)):
        raise reject("entries", repr(entries), f"it must be one of {', '.join(NAMED)}, or fn(key, shape)")
    entries = entries if isinstance(entries, CustomEntries) else CustomEntries(entries)
    check_sampler("entries", entries.sample, (16, 16))
    draw = entries.sample(jax.random.key(0), (256, 256))
    # 65 536 draws: mean and variance of a unit-variance law with kurtosis below 40 lie within these bounds.
    mean, variance = float(jnp.mean(draw)), float(jnp.var(draw))
    if abs(mean) > 0.05 or abs(variance - 1) > 0.1:
        raise reject("entries", f"mean {mean:.3g}, variance {variance:.3g}", "entries must have mean 0 and variance 1")
    return entries


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


Teacher = Callable[[Key, int], Array]  # draws rows of the teacher's law, so many with this key


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

    variance: Array | Host | None = None  # s, (d,)
    factor: Array | Host | None = None  # on θ*, (d,)
    tested: Array | Host | None = None  # s of the fresh samples of a test, (d,)
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
