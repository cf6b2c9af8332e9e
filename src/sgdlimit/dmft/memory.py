"""How a march remembers: kernels K(i, j), j < i, in the span of a few functions φ_b(i, j) of the past, or all of it.

The functions obey φ(i+1, ·) = E φ(i, ·) with a small matrix E, and φ(i+1, i) = u, so that a history Σ_j φ_b(i,j) x_j is
a running moment: X ← E X + u x_i. A kernel with moments Y_b = Σ_j K(i,j) φ_b(i,j) is Σ_b ρ_b φ_b(i,j) with ρ = P Y and
P the pseudo-inverse of G_ab = Σ_j φ_a φ_b, its orthogonal projection (`docs/solver.md`).

`Moments`: decaying exponentials, some with alternating sign, some in damped rotating pairs. `Dense`: E = 1, u = e_i,
the whole past, no projection: the same march, exact, at a cost that grows with the past.
"""

import abc
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .._types import Array, Host, Tree
from ..errors import reject

RATIO = 3.0
"""Largest ratio of neighbouring rates. 2: curves to some 1e-5 of their size; 3: to some 1e-4; 4: to 1e-3."""
SLOWEST = 0.5
"""Slowest rate times the length of the march: slower changes look like it."""
FASTEST = 1.0
"""Fastest rate times the step."""
SHORTEST, LENGTHS = 8.0, 4.0
"""Rates serve marches up to 8·4^j: within such a range a longer march repeats a shorter one to the last bit."""
ALTERNATING = (-0.15, -0.5, -0.85)
"""Factors per step of what changes sign every step: algorithms in discrete time whose γ·curvature nears 2."""
CUT = {"float32": 3e-7, "float64": 1e-10}
"""Smallest eigenvalue of G (unit diagonal) that is inverted, by the precision of the samples: below 1e-8 single
precision blows up in long marches, above 1e-5 functions begin to be lost (3e-5: an overlap off by 3e-4 at t = 10⁴)."""
ROUNDED = 512
"""Steps whose rounding this bears; later the smallest eigenvalue grows as the steps that were taken. With the same one
at all times, least squares at δ = 1 without a penalty runs away between t = 4000 and 7000; with 4096 steps, at 8400."""
MOST_PAIRS = 12


class Row(NamedTuple):
    """Moments at one step: E as its diagonal and what a pair exchanges, u, P and G."""

    decay: Array
    turn: Array
    new: Array
    dual: Array
    gram: Array


class Memory(abc.ABC):
    """How the past is kept. Every subclass is final and hashable; the first axis of a history runs over functions."""

    size: int

    @abc.abstractmethod
    def shift(self, row: Tree, x: Array, axis: int = 0) -> Array:
        """Return E x along an axis: the functions as the next step sees them."""

    @abc.abstractmethod
    def new(self, row: Tree, dtype: DTypeLike) -> Array:
        """Return u, (n,): the functions at the newest point."""

    @abc.abstractmethod
    def dual(self, row: Tree, moments: Array) -> Array:
        """Return P Y along the first axis: the coefficients of a kernel from its moments Y."""

    @abc.abstractmethod
    def moments(self, row: Tree, coefficients: Array) -> Array:
        """Return G ρ along the first axis: the moments of a kernel from its coefficients ρ."""

    @abc.abstractmethod
    def push(self, row: Tree, past: Array, value: Array) -> Array:
        """Return E X + u x along the first axis: the moments X of a history with its newest value x."""

    @abc.abstractmethod
    def rows(self, times: Host, dtype: str) -> Tree:
        """Return what every step of the grid needs, stacked, in double precision but rounded once to the samples'."""

    @abc.abstractmethod
    def kernel(self, rows: Tree, coefficients: Host, at: Host) -> Host:
        """Return K(i, j) for the steps i in `at` and all j, from the coefficients (…, len(at), n, m, m)."""


def _wide(v: Array, x: Array, axis: int) -> Array:
    return v.reshape((1,) * axis + (-1,) + (1,) * (x.ndim - axis - 1)).astype(x.dtype)


def _product(matrix: Array, x: Array) -> Array:
    """Over the functions, as a sum of products: it fuses where a small matrix product would be a call of its own."""
    return jnp.sum(matrix.reshape(*matrix.shape, *[1] * (x.ndim - 1)) * x[None], axis=1)


@final
@dataclass(frozen=True)
class Moments(Memory):
    """Exponentials exp(−μ_b (t_i − t_{j+1})), factors per step, and pairs exp(−μ t)(cos ωt, sin ωt), t = t_i − t_j.

    The first two are divided by 1 + γ_j·stiff: what an implicit penalty of that slope leaves of a force in its step.
    """

    rates: tuple[float, ...]
    factors: tuple[float, ...] = ()
    pairs: tuple[tuple[float, float], ...] = ()
    stiff: float = 0.0

    # Rates are data: two ladders of one length share a program.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moments) and self._shape == other._shape

    def __hash__(self) -> int:
        return hash(self._shape)

    @property
    def _shape(self) -> tuple[int, int, int]:
        return len(self.rates), len(self.factors), len(self.pairs)

    @property
    def size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Functions in all, n: a pair counts twice."""
        return len(self.rates) + len(self.factors) + 2 * len(self.pairs)

    @property
    def _partner(self) -> Host:
        """The other member of a pair; itself for a function that stands alone."""
        alone = len(self.rates) + len(self.factors)
        return np.concatenate([np.arange(alone), alone + (np.arange(2 * len(self.pairs)) ^ 1)])

    def shift(self, row: Row, x: Array, axis: int = 0) -> Array:
        """Return every function times its own factor, and what the members of a pair exchange."""
        out = _wide(row.decay, x, axis) * x
        if self.pairs:
            out = out + _wide(row.turn, x, axis) * jnp.take(x, self._partner, axis=axis)
        return out

    def new(self, row: Row, dtype: DTypeLike) -> Array:
        """Return u, which the rows of the grid hold."""
        return row.new.astype(dtype)

    def dual(self, row: Row, moments: Array) -> Array:
        """Return P Y."""
        return _product(row.dual, moments)

    def moments(self, row: Row, coefficients: Array) -> Array:
        """Return G ρ, likewise."""
        return _product(row.gram, coefficients)

    def push(self, row: Row, past: Array, value: Array) -> Array:
        """Return E X + u x, function by function."""
        return self.shift(row, past) + _wide(row.new, past, 0) * value[None]

    def rows(self, times: Host, dtype: str) -> Row:
        """Return E, u, P and G of every step; P and G at step i know the points j < i."""
        return _rows(self.rates, self.factors, self.pairs, self.stiff, times.tobytes(), dtype)

    def kernel(self, rows: Tree, coefficients: Host, at: Host) -> Host:
        """Return Σ_b ρ_b(i) φ_b(i, j), walking along the steps."""
        wanted = {int(i): k for k, i in enumerate(at)}
        steps = int(at[-1]) + 1
        out = np.zeros((*coefficients.shape[:-3], steps, *coefficients.shape[-2:]))
        phi = np.zeros((self.size, steps))
        for i in range(steps):
            if i in wanted:
                k = wanted[i]
                out[..., k, :, :, :] = np.einsum("...nab,nj->...jab", coefficients[..., k, :, :, :], phi)
            phi = rows.decay[i][:, None] * phi + rows.turn[i][:, None] * phi[self._partner]
            phi[:, i] = rows.new[i]
        return out


@lru_cache(maxsize=8)
def _rows(
    rates: tuple[float, ...], factors: tuple[float, ...], pairs: tuple[tuple[float, float], ...], stiff: float,
    stamp: bytes, dtype: str,
) -> Row:  # fmt: skip
    """`Moments.rows`, kept: all points of a sweep have the same steps."""
    kept = Moments(rates, factors, pairs)
    size = kept.size
    gaps = np.diff(np.frombuffer(stamp))[:, None]
    mu = np.asarray(rates)[None, :]
    pair = np.repeat(np.asarray(pairs, dtype=float).reshape(-1, 2), 2, axis=0)
    damping, angle = np.exp(-pair[:, 0] * gaps), pair[:, 1] * gaps
    sign = np.where(np.arange(len(pair)) % 2 == 0, -1.0, 1.0)
    alone = np.concatenate([np.exp(-mu * gaps), np.tile(factors, (len(gaps), 1))], axis=1)
    decay = np.concatenate([alone, damping * np.cos(angle)], axis=1)
    turn = np.concatenate([np.zeros_like(alone), sign * damping * np.sin(angle)], axis=1)
    # The implicit penalty damps a force within its own step, by 1 + γ·stiff, and moves what the force drives, as places
    # by speeds: pairs count their time from t_j. Both show where the step changes.
    first = alone.shape[1]
    new = np.concatenate([np.ones_like(alone) / (1.0 + stiff * gaps), decay[:, first:]], axis=1)
    new[:, first + 1 :: 2] = turn[:, first + 1 :: 2]
    decay, turn, new = (part.astype(dtype).astype(np.float64) for part in (decay, turn, new))
    partner = kept._partner
    G, grams = np.zeros((size, size)), np.zeros((len(gaps), size, size))
    for i in range(len(gaps)):
        grams[i] = G
        half = decay[i][:, None] * G + turn[i][:, None] * G[partner]
        G = decay[i] * half + turn[i] * half[:, partner] + np.outer(new[i], new[i])
    cut = CUT[dtype] * np.maximum(1.0, np.arange(len(gaps)) / ROUNDED)
    numbers: Tree = (decay, turn, new, _pseudo_inverse(grams, cut), grams)
    return Row(*numbers)  # of numpy, until jax traces them


def _pseudo_inverse(grams: Host, cut: Host) -> Host:
    """Of every matrix, scaled to unit diagonal; eigenvalues below its `cut` of the largest count as zero."""
    size = np.sqrt(np.einsum("iaa->ia", grams))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(grams / (size[:, :, None] * size[:, None, :]))
    kept = values > np.maximum(cut[:, None] * values[:, -1:], 1e-300)
    inverse = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
    P = np.einsum("iab,ib,icb->iac", vectors, inverse, vectors)
    return P / (size[:, :, None] * size[:, None, :])


@final
@dataclass(frozen=True)
class Dense(Memory):
    """The whole past, up to `size` steps: no projection."""

    size: int

    def shift(self, row: Tree, x: Array, axis: int = 0) -> Array:
        """Return x as it is: a point of the past stays where it is."""
        return x

    def new(self, row: Tree, dtype: DTypeLike) -> Array:
        """Return the unit vector e_i of the step, (n,)."""
        return (jnp.arange(self.size) == row).astype(dtype)

    def dual(self, row: Tree, moments: Array) -> Array:
        """Return the moments as they are: points are orthonormal."""
        return moments

    def moments(self, row: Tree, coefficients: Array) -> Array:
        """Return the coefficients as they are."""
        return coefficients

    def push(self, row: Tree, past: Array, value: Array) -> Array:
        """Return the past with the newest value written into its own place."""
        return past.at[row].set(value.astype(past.dtype))

    def rows(self, times: Host, dtype: str) -> Host:
        """Return the number of every step, which is all that it needs."""
        return np.arange(len(times) - 1)

    def kernel(self, rows: Tree, coefficients: Host, at: Host) -> Host:
        """Return the coefficients up to the last of the steps: they are the kernel."""
        return coefficients[..., : int(at[-1]) + 1, :, :]


def combine(coefficients: Array, past: Array) -> Array:
    """Return Σ_{n,b} coefficients[n, a, b] past[n, b, …]: one plain matrix product, whatever follows."""
    n, a, b = coefficients.shape
    rows = coefficients.transpose(1, 0, 2).reshape(a, n * b)
    return (rows @ past.reshape(n * b, -1)).reshape(a, *past.shape[2:])


def ladder(length: float, step: float, *, fastest: float = FASTEST) -> tuple[float, ...]:
    """Return rates in constant ratio from slow to fast; an even number of them, so that steps in a range share a
    program."""
    reach = SHORTEST
    while reach < length * (1 - 1e-9):
        reach *= LENGTHS
    low, high = SLOWEST / reach, fastest / step
    count = 2 * math.ceil((math.log(max(high / low, 4.0)) / math.log(RATIO) + 1) / 2 - 1e-9)
    return tuple(np.geomspace(low, high, count))


def shifted(memory: Moments) -> Moments:
    """Return as many functions elsewhere, every rate half a rung down, pairs half a gap up: a second opinion."""
    rates = np.asarray(memory.rates)
    step = math.sqrt(rates[1] / rates[0])
    factors = tuple(np.asarray(memory.factors) * 0.9)
    gap = memory.pairs[1][1] - memory.pairs[0][1] if len(memory.pairs) > 1 else 0.0
    pairs = tuple((mu * 1.2, omega + gap / 2) for mu, omega in memory.pairs)
    return Moments(tuple(rates / step), factors, pairs, memory.stiff)


def resized(memory: Moments, count: int) -> Moments:
    """Return so many functions in all: rates in constant ratio between the same ends, the others as they are."""
    others = memory.size - len(memory.rates)
    if count < others + 2:
        why = f"{others} functions alternate or turn in this problem, and two decay at least; take {others + 2} or more"
        raise reject("functions", count, why)
    return replace(memory, rates=tuple(np.geomspace(memory.rates[0], memory.rates[-1], count - others)))


def denser(memory: Moments) -> Moments:
    """Return about twice as many functions, with rates that are half a rung apart."""
    rates, pairs = np.asarray(memory.rates), np.asarray(memory.pairs).reshape(-1, 2)
    more = np.sort(np.concatenate([rates, np.sqrt(rates[1:] * rates[:-1])]))
    factors = tuple(np.sort(np.concatenate([memory.factors, np.asarray(memory.factors) * 0.7])))
    if count := 2 * len(pairs):
        top = pairs[-1, 1] + (pairs[1, 1] - pairs[0, 1]) / 2 if len(pairs) > 1 else pairs[0, 1]
        pairs = np.stack([np.full(count, pairs[0, 0]), top * (np.arange(count) + 0.5) / count], axis=1)
    return Moments(tuple(more), factors, tuple(map(tuple, pairs)), memory.stiff)
