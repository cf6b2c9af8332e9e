"""Laws of one coordinate: of the teacher θ*, the start θ⁰, the label noise z. The contract is `EntryLaw`."""

import abc
import functools
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from .._fingerprint import Snapshot
from .._tree import function, leaf, model, settle
from .._types import Key
from ..errors import real, reject, traced
from .parameters import finite

MOMENT_ERROR = 0.002
"""Relative standard error of the moments of a law that is known only through its sampler, at most; half is aimed at."""
BLOCK = 2**18  # draws at a time
MOST_BLOCKS = 128
MORE = 16  # draws of a law without a quantile function for each one that is taken of them, as far as BLOCK allows
FALSE = 6.0  # stated moments further than this from those of BLOCK draws, in standard errors, are false
TAIL = 256  # largest draws that tell how a tail falls
LIGHT = 3.5  # where P(|x| > s) falls as s^−α with α below this, a mean of x² has no standard error (in theory below 4)

LARGEST = 1e18  # entries beyond this have squares that single precision does not hold
SCALE: Any = {"least": 0, "most": LARGEST, "why": f"it must be a number from 0 to {LARGEST:g}"}
ENTRY = f"it must be a number between −{LARGEST:g} and {LARGEST:g}"


class EntryLaw(abc.ABC):
    """The contract of a law of one coordinate, of θ*, θ⁰ or z. For a sampler alone there is `Law`.

    A law is a frozen dataclass that jax knows as a tree (`jax.tree_util.register_dataclass`), with numbers as leaves
    and functions, names and sizes as static fields. `sgdlimit.testing.check_law` tests all of it.

    sample: entries of a given shape, drawn with `jax.random` from the key alone; the last axis runs over the units of
        one row.
    moments: mean (size,) and second moments (size, size) of the entries of one row, on the host.
    spread_out: one entry for each row of u (N, 2), uniform on [0, 1]²: by the quantile function at u[:, 0], or drawn
        with the key. Points that are spread evenly give entries that are.
    exact_moments: whether `moments` are exact rather than estimated.
    quantiles: whether `spread_out` is by a quantile function: then few points have nearly the moments of the law.
    rarest: share of the entries that make up the second moment; 1 where all of them do.
    """

    exact_moments: Any = True
    quantiles: Any = True
    rarest: Any = 1.0

    @abc.abstractmethod
    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Entries of the given shape; the last axis runs over the units of one row."""

    @abc.abstractmethod
    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean `(size,)` and second moments `(size, size)` of one row."""

    @abc.abstractmethod
    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """Draws of one entry by its quantile function at uniform points u, (N, 2); `key` where there is no quantile."""


def _iid(mean: float, second: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    moments = np.full((size, size), mean**2)
    np.fill_diagonal(moments, second)
    return np.full(size, mean), moments


@model
class Normal(EntryLaw):
    """N(0, scale²)."""

    scale: float = leaf(default=1.0, **SCALE)

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Gaussian entries of the given shape."""
        return self.scale * jax.random.normal(key, shape)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean 0 and second moment scale², units independent."""
        return _iid(0.0, float(self.scale) ** 2, size)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """The normal quantiles at the points."""
        return float(self.scale) * ndtri(u[:, 0])


@model
class Point(EntryLaw):
    """A fixed value; a sequence gives one value per unit."""

    value: Any = 0.0

    def __post_init__(self) -> None:
        if traced(self.value):
            return
        value = finite("Point.value", self.value, "one number, or one for each unit", axes=(0, 1))
        if np.any(np.abs(value) > LARGEST):
            raise reject("Point.value", self.value, f"{ENTRY}, or one such number per unit")
        settle(self, value=tuple(value.tolist()) if value.ndim else float(value))

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """The value, repeated to the given shape."""
        return jnp.broadcast_to(jnp.asarray(self.value, dtype=jnp.zeros(()).dtype), shape)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The value and its outer product."""
        row = np.broadcast_to(np.asarray(self.value, dtype=float), (size,)).copy()
        return row, np.outer(row, row)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """The value, once for every point."""
        return np.full(len(u), np.asarray(self.value, dtype=float).item())


@model
class Rademacher(EntryLaw):
    """±scale with equal probability."""

    scale: float = leaf(default=1.0, **SCALE)

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Random signs times the scale."""
        return self.scale * jax.random.rademacher(key, shape, dtype=jnp.zeros(()).dtype)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean 0 and second moment scale², units independent."""
        return _iid(0.0, float(self.scale) ** 2, size)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """−scale for points below ½, +scale for the others."""
        return float(self.scale) * np.where(u[:, 0] < 0.5, -1.0, 1.0)


@model
class Uniform(EntryLaw):
    """Uniform on [low, high]."""

    low: float = -math.sqrt(3.0)
    high: float = math.sqrt(3.0)

    def __post_init__(self) -> None:
        low = real("Uniform.low", self.low, least=-LARGEST, most=LARGEST, why=ENTRY)
        settle(self, low=low, high=real("Uniform.high", self.high, above=low, most=LARGEST, why=f"{ENTRY}, above low"))

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Uniform entries of the given shape."""
        return self.low + (self.high - self.low) * jax.random.uniform(key, shape)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the interval; second moment (low² + low·high + high²)/3."""
        return _iid((self.low + self.high) / 2, (self.low**2 + self.low * self.high + self.high**2) / 3, size)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """The points, rescaled from [0, 1] to [low, high]."""
        return self.low + (self.high - self.low) * u[:, 0]


@model
class SparseNormal(EntryLaw):
    """Zero, except with probability `density`: then N(0, scale²)."""

    density: float = leaf(default=0.1, above=0, most=1, why="a fraction in (0, 1]")
    scale: float = leaf(default=1.0, **SCALE)
    rarest = property(attrgetter("density"))

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Gaussian entries at some places, zeros at the others."""
        on, value = jax.random.split(key)
        return jax.random.bernoulli(on, self.density, shape) * (self.scale * jax.random.normal(value, shape))

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean 0, second moment density·scale²."""
        return _iid(0.0, float(self.density) * float(self.scale) ** 2, size)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """Quantiles of the mixture: both tails are Gaussian, the middle is the atom at zero."""
        low, high = u[:, 0] / self.density, (1 - u[:, 0]) / self.density
        tail = np.where(low < 0.5, ndtri(np.clip(low, 1e-300, 0.5)), -ndtri(np.clip(high, 1e-300, 0.5)))
        return self.scale * np.where((low < 0.5) | (high < 0.5), tail, 0.0)


@model
class Law(EntryLaw):
    """The user's law: `fn(key, shape)` draws entries; units of one row (last axis) may depend on each other.

    Give `mean` and `second_moment` of an entry (units independent) where they are known: they are checked against
    draws. Otherwise the theory estimates them from as many draws as a standard error of 0.2 % takes.
    """

    fn: Callable[..., Any] = function("fn(key, shape) -> array")
    mean: float | None = None
    second_moment: float | None = None
    quantiles = False
    exact_moments = property(lambda self: self.mean is not None)  # otherwise they are estimated

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.second_moment is None):
            raise reject("Law.mean", self.mean, "give both mean and second_moment, or neither")
        if self.mean is not None:
            mean = real("Law.mean", self.mean, least=-LARGEST, most=LARGEST, why=ENTRY)
            why = f"it must lie between mean² and {LARGEST**2:g}"
            second = real("Law.second_moment", self.second_moment, least=mean**2, most=LARGEST**2, why=why)
            settle(self, mean=mean, second_moment=second)

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """What the user's function draws, as floats; `Problem` tries it out."""
        return jnp.asarray(self.fn(key, shape), dtype=jnp.zeros(()).dtype)

    @property
    def rarest(self) -> float:
        """3 (E x²)²/E x⁴ of a large draw: 1 for a Gaussian law, the share of the others where most entries are zero."""
        return min(1.0, _summary(Snapshot(self.fn)).share)

    @property
    def heavy(self) -> bool:
        """Whether its tails are so heavy that a mean of squares has no standard error."""
        return not _summary(Snapshot(self.fn)).light

    def many(self, shape: tuple[int, ...], block: int = 0) -> np.ndarray:
        """One of some fixed large draws, the same whatever the precision of the computation around it."""
        with jax.enable_x64(False):
            return np.asarray(self.sample(jax.random.fold_in(jax.random.key(0), block), shape), dtype=np.float64)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """As given, or sample moments of a large draw."""
        if self.mean is not None and self.second_moment is not None:
            return _iid(float(self.mean), float(self.second_moment), size)
        return _estimated(Snapshot(self.fn), size)

    def check(self, argument: str) -> None:
        """Refuse stated moments that the draws contradict; heavy tails contradict nothing."""
        if self.mean is None or self.second_moment is None or traced(self.mean) or traced(self.second_moment):
            return
        found = _summary(Snapshot(self.fn))
        for name, (value, error) in {"mean": found.mean, "second_moment": found.second}.items():
            stated = getattr(self, name)
            if found.light and abs(stated - value) > FALSE * error + 1e-5 * abs(value):
                why = f"that of {BLOCK} draws is {value:.5g} ± {error:.2g}; correct it, or leave both moments out"
                why += "; values that so many draws do not show cannot be followed"
                raise reject(f"{argument}.{name}", f"{stated:g}", why)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """Some of many more draws, at the ranks that the points name; plain draws where tails are heavy.

        Every one of them is as likely as another to be taken, so that means are those of the law, and the shares of its
        values scatter less than those of plain draws. Under heavy tails only the bulk would: then the spread of means
        would say less of the tails, which their error comes from.
        """
        if self.heavy:
            return np.asarray(self.sample(key, (len(u),)), dtype=np.float64)
        count = max(len(u), min(MORE * len(u), BLOCK))
        draws = np.sort(np.asarray(self.sample(key, (count,)), dtype=np.float64))
        return draws[np.minimum((count * u[:, 0]).astype(int), count - 1)]


class Summary(NamedTuple):
    """What a block of draws tells: whether tails are light, 3 (E x²)²/E x⁴, and moments with their standard errors."""

    light: bool
    share: float
    mean: tuple[float, float]
    second: tuple[float, float]


@functools.lru_cache(maxsize=64)
def _summary(fn: Snapshot) -> Summary:
    x = Law(fn.value).many((BLOCK,))
    first, second = ((float(np.mean(v)), float(np.std(v)) / math.sqrt(BLOCK)) for v in (x, x**2))
    fourth = second[1] ** 2 * BLOCK + second[0] ** 2
    return Summary(tail_index(x) >= LIGHT, 3 * second[0] ** 2 / fourth if fourth > 0 else 1.0, first, second)


@functools.lru_cache(maxsize=64)
def _estimated(fn: Snapshot, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and second moments of `size` entries from draws, as many as their standard error asks for."""
    law = Law(fn.value)
    mean, second, error = np.zeros(size), np.zeros((size, size)), math.inf
    count, sums = 0, [np.zeros(size), np.zeros((size, size)), np.zeros((size, size))]
    for block in range(MOST_BLOCKS):
        x = law.many((BLOCK // size, size), block)
        count += len(x)
        for total, part in zip(sums, (x.sum(axis=0), x.T @ x, (x**2).T @ x**2), strict=True):
            total += part
        mean, second, fourth = (total / count for total in sums)
        scale = np.sqrt(np.outer(np.diag(second), np.diag(second)))
        error = float(np.max(np.sqrt(np.clip(fourth - second**2, 0, None) / count) / np.maximum(scale, 1e-300)))
        hopeless = (block + 1) * (error / MOMENT_ERROR) ** 2 > 2 * MOST_BLOCKS or tail_index(x) < LIGHT
        if error <= MOMENT_ERROR / 2 or hopeless:
            break
    if not error <= MOMENT_ERROR:
        known = f"a law whose second moment is known to {100 * error:.2g} % after {count} draws"
        raise reject("Law.fn", known, "its tails are heavy; give mean= and second_moment=")
    mean.flags.writeable = second.flags.writeable = False  # they are kept
    return mean, second


def tail_index(x: np.ndarray) -> float:
    """α of a tail P(|x| > s) ~ s^−α (Hill's estimate from the TAIL largest); infinite where x is bounded."""
    largest = np.sort(np.partition(np.abs(np.ravel(x)), -TAIL)[-TAIL:])
    if not np.all(np.isfinite(largest)):
        return 0.0
    fall = float(np.mean(np.log(largest[1:] / largest[0]))) if largest[0] > 0 else 0.0
    return 1 / fall if fall > 0 else math.inf


@model
class PlusLogistic(EntryLaw):
    """A law plus an independent standard logistic variable: the noise behind logistic label probabilities."""

    base: EntryLaw
    exact_moments = property(attrgetter("base.exact_moments"))
    quantiles = property(attrgetter("base.quantiles"))
    rarest = property(attrgetter("base.rarest"))

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """The sum of two independent draws."""
        first, second = jax.random.split(key)
        return self.base.sample(first, shape) + jax.random.logistic(second, shape)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Those of the base, with π²/3 on the diagonal."""
        mean, second = self.base.moments(size)
        return mean, second + (math.pi**2 / 3) * np.eye(size)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """The base on the second coordinate plus logistic quantiles on the first."""
        return self.base.spread_out(u[:, ::-1], key) + np.log(u[:, 0]) - np.log1p(-u[:, 0])


@model
class Categorical(EntryLaw):
    """0, 1, 2, … with the given probabilities: the class of a sample, as a number."""

    weights: tuple[float, ...]

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Class indices as floats, of the given shape."""
        u = jax.random.uniform(key, shape)
        edges = jnp.cumsum(jnp.asarray(self.weights, u.dtype))[:-1]
        return jnp.sum(u[..., None] >= edges, axis=-1).astype(u.dtype)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Σ w_c c, Σ w_c c²."""
        weights = np.asarray(self.weights, dtype=float)
        index = np.arange(len(weights))
        return _iid(float(weights @ index), float(weights @ index**2), size)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """As many of each class as the points say; rare classes at low points, where `wide` looks for them."""
        order = np.argsort(self.weights, kind="stable")
        edges = np.cumsum(np.asarray(self.weights, dtype=float)[order])[:-1]
        return order[np.searchsorted(edges, u[:, 0], side="right")].astype(float)
