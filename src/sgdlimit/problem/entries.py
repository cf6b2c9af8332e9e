"""Laws of the entries of X, before the factor 1/√d: mean 0, variance 1. The limit does not depend on them."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from .._tree import static, tree
from ..errors import real, reject


class Entries(abc.ABC):
    """What every law of the data offers."""

    gaussian: bool = False

    @abc.abstractmethod
    def sample(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """Entries of mean 0 and variance 1."""


@tree
@dataclass(frozen=True)
class GaussianEntries(Entries):
    """Standard normal entries."""

    gaussian = True

    def sample(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """N(0, 1)."""
        return jax.random.normal(key, shape)


@tree
@dataclass(frozen=True)
class RademacherEntries(Entries):
    """±1."""

    def sample(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """Signs."""
        return jax.random.rademacher(key, shape, dtype=jnp.zeros(()).dtype)


@tree
@dataclass(frozen=True)
class UniformEntries(Entries):
    """Uniform on [−√3, √3]."""

    def sample(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """Uniform, variance 1."""
        return jnp.sqrt(3.0) * jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


@tree
@dataclass(frozen=True)
class SparseEntries(Entries):
    """Zero, except with probability `density`: then ±1/√density."""

    density: float = 0.1

    def __post_init__(self) -> None:
        if real("SparseEntries.density", self.density, above=0, why="a fraction in (0, 1]") > 1:
            raise reject("SparseEntries.density", self.density, "a fraction in (0, 1]")

    def sample(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """Sparse signs, variance 1."""
        on, sign = jax.random.split(key)
        signs = jax.random.rademacher(sign, shape, dtype=jnp.zeros(()).dtype)
        return jax.random.bernoulli(on, self.density, shape) * signs / jnp.sqrt(self.density)


@tree
@dataclass(frozen=True)
class CustomEntries(Entries):
    """The user's sampler: `fn(key, shape)` of mean 0 and variance 1."""

    fn: Callable[..., Any] = static()

    def sample(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """The user's function."""
        return jnp.asarray(self.fn(key, shape), dtype=jnp.zeros(()).dtype)


NAMED: dict[str, Entries] = {
    "gaussian": GaussianEntries(),
    "rademacher": RademacherEntries(),
    "uniform": UniformEntries(),
    "sparse": SparseEntries(),
}


def resolve(entries: Any) -> Entries:
    """Entries from a name, an object, or the user's sampler (checked for mean 0 and variance 1)."""
    if isinstance(entries, Entries) and not isinstance(entries, CustomEntries):
        return entries
    if isinstance(entries, str):
        if entries not in NAMED:
            raise reject("entries", repr(entries), f"it must be one of {', '.join(NAMED)}, or fn(key, shape)")
        return NAMED[entries]
    if not isinstance(entries, CustomEntries):
        if not callable(entries):
            raise reject("entries", repr(entries), f"it must be one of {', '.join(NAMED)}, or fn(key, shape)")
        entries = CustomEntries(entries)
    draw = entries.sample(jax.random.key(0), (256, 256))
    if draw.shape != (256, 256):
        raise reject("entries", f"shape {draw.shape}", "fn(key, shape) must return the shape asked for")
    # 65 536 draws: mean and variance of a unit-variance law with kurtosis below 40 lie within these bounds.
    mean, variance = float(jnp.mean(draw)), float(jnp.var(draw))
    if abs(mean) > 0.05 or abs(variance - 1) > 0.1:
        raise reject("entries", f"mean {mean:.3g}, variance {variance:.3g}", "entries must have mean 0 and variance 1")
    return entries
