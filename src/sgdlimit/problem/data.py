"""Laws of the rows x: iid entries, or coordinates in groups, each with its own variance and its own share of θ*.

In the eigenbasis of the covariance a coordinate of group q has variance s_q/d; the group holds a share p_q of all
coordinates, and θ* there is the teacher's law times a factor. The limit sees no more than this table (`Table`); a
finite row is drawn from it coordinate by coordinate.

The contract is `DataLaw`; `sgdlimit.testing.check_data` runs it on any law.
"""

import abc
import warnings
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .._tree import leaf, model, settle, static
from .._types import Array
from ..errors import UnreliableWarning, instance, reject, traced, whole
from .parameters import finite
from .rows import Coordinates, Layout

MOST_GROUPS = 1024
STEEPEST = 10.0
MOST_LEVELS = 2**24
LEAST_SHARE = 1e-9  # weights that sum to one up to rounding
FEWEST_COORDINATES = 30  # coordinates that share the variance, below which rows are far from the limit of many
RELEVANT = 0.1  # share of the variance that makes a group count by itself


class Table(NamedTuple):
    """Coordinates in groups q: share, variance and factor on θ* of each, and what no coordinate tells of r*."""

    share: np.ndarray
    """p_q, (g,), summing to 1."""
    variance: np.ndarray
    """s_q, (g,): variance of an entry of x, in units of 1/d."""
    factor: np.ndarray
    """(g,): θ* in group q is this times a draw of the teacher's law."""
    unseen: float = 0.0
    """r* = θ*ᵀx + √unseen · e, e with the second moments of the teacher's law: what no coordinate of x tells."""

    def counts(self, dim: int) -> np.ndarray:
        """Coordinates of each group among `dim`, by largest remainder."""
        exact = self.share * dim
        counts = np.floor(exact).astype(int)
        rest = np.argsort(-(exact - counts), kind="stable")[: dim - int(counts.sum())]
        counts[rest] += 1
        return counts

    def moments(self, gram: np.ndarray, width: int) -> np.ndarray:
        """Second moments of (θ⁰, θ*) in every group, (g, m+k, m+k), from those of their laws; θ⁰ has `width`."""
        scale = np.ones((len(self.share), len(gram)))
        scale[:, width:] = self.factor[:, None]
        return scale[:, :, None] * gram * scale[:, None, :]

    def seen(self, gram: np.ndarray, width: int) -> np.ndarray:
        """Second moments of (θ⁰ᵀx, r*), (m+k, m+k): Σ p s of the groups, and what no coordinate of x tells."""
        total = np.einsum("q,qab->ab", self.share * self.variance, self.moments(gram, width))
        total[width:, width:] += self.unseen * gram[width:, width:]
        return total

    @property
    def effective_rank(self) -> float:
        """(Σ p s)² / Σ p s², over the number of coordinates: 1 for iid entries."""
        return float((self.share @ self.variance) ** 2 / (self.share @ self.variance**2))

    def effective(self, dim: int) -> float:
        """Coordinates among `dim` that share the variance: by the effective rank, or of the smallest group that has a
        relevant part of it."""
        part = self.share * self.variance
        counts = self.counts(dim)[part > RELEVANT * part.sum()]
        return min([dim * self.effective_rank, *counts.tolist()])


class Classes(NamedTuple):
    """Classes c of rows: class c has the mean Σ_j means[c, j] a_j / d along directions a_j that stand where θ* does."""

    means: Any
    """(classes, directions)."""
    weights: Any
    """Priors, (classes,), summing to 1."""

    def along(self, z: Array, dtype: DTypeLike) -> Array:
        """means[c, ·] of samples of class z (M,): (directions, M)."""
        member = z[None, :] == jnp.arange(len(self.means), dtype=z.dtype)[:, None]
        return jnp.asarray(self.means, dtype).T @ member.astype(dtype)


class DataLaw(abc.ABC):
    """The contract of a law of the rows x, which `Problem(data=...)` takes.

    A law is a frozen dataclass that jax knows as a tree (`jax.tree_util.register_dataclass`), with numbers as leaves
    and functions, names and sizes as static fields. All but `table` has a default, for independent coordinates in
    groups; `sgdlimit.testing.check_data` tests all of it.

    table: the groups of coordinates on the host, a `Table`: shares > 0 that sum to 1, variances ≥ 0 that are not all 0,
        factors on θ*, each (groups,), and `unseen` in [0, 1). The limit knows no more of the rows than this.
    at: the `Layout` that rows of dimension d are drawn from. As d → ∞ they have the second moments of the table, and r*
        those of θ* = factor times the teacher's law, with `unseen` beside them.
    classes: means and priors, `Classes`, where rows have classes; None where they have none.
    relation: what rows of one sample have to do with each other, a `sequences.Relation`; None where they are
        independent and of mean zero, or where a sample is one row.
    levels: the dimension that the law itself speaks of, at least the number of its groups; None for a limit.
    iid: whether the table is one group of variance and factor 1, so that formulas for iid entries hold.
    rotated: whether the groups are of directions that are not those of the weights' coordinates: only their second
        moments are then known along them.
    """

    iid: ClassVar[bool] = False
    rotated: Any = False
    classes: Any = None
    relation: Any = None
    levels: Any = None

    @abc.abstractmethod
    def table(self) -> Table:
        """The groups of coordinates, on the host."""

    def at(self, dim: int, tested: Table | None = None) -> Layout:
        """What rows of dimension `dim`, and those of a test, are drawn from: here the groups one after the other."""
        if self.iid and tested is None:
            return Coordinates()
        table = self.table()
        counts = table.counts(dim)
        group = np.repeat(np.arange(len(counts)), counts)
        by_group = None
        if len(counts) > 1:
            by_group = (group == np.arange(len(counts))[:, None]) / np.where(counts > 0, counts, np.nan)[:, None]
        test = (table if tested is None else tested).variance[group]
        return Coordinates(table.variance[group], table.factor[group], test, by_group)


@model
class Iid(DataLaw):
    """Independent entries of variance 1/d: one group."""

    iid = True

    def table(self) -> Table:
        """One group that holds all coordinates, of variance and factor 1."""
        return Table(np.ones(1), np.ones(1), np.ones(1))


@model
class Spectrum(DataLaw):
    """Eigenvalues of the covariance, the share of coordinates that has each, and factors on the teacher's scale.

    values: s_q, not all zero. weights: p_q, summing to one; equal shares by default. teacher: factor on θ* in each
    group; 1 by default. Values are taken as they are: iid entries of unit variance are `values=[1]`.
    """

    values: Any
    weights: Any = None
    teacher: Any = None

    def __post_init__(self) -> None:
        if any(traced(part) for part in jax.tree.leaves((self.values, self.weights, self.teacher))):
            return
        values = numbers("Spectrum.values", self.values, "a list of numbers ≥ 0, not all zero")
        if np.any(values < 0) or not np.any(values > 0):
            raise reject("Spectrum.values", self.values, "eigenvalues of a covariance are ≥ 0, and not all zero")
        count = len(values)
        weights = shares("Spectrum.weights", self.weights, f"{count} shares ≥ 0 that sum to 1", count)
        teacher = np.ones(count)
        if self.teacher is not None:
            teacher = numbers("Spectrum.teacher", self.teacher, f"{count} factors on the teacher's scale", count)
        settle(self, values=tuple(values.tolist()), weights=tuple(weights.tolist()), teacher=tuple(teacher.tolist()))

    def table(self) -> Table:
        """As given, without groups that hold no coordinates."""
        share, variance, factor = (np.asarray(part, dtype=float) for part in (self.weights, self.values, self.teacher))
        some = share > 0
        return Table(share[some], variance[some], factor[some])


@model
class PowerLaw(DataLaw):
    """s_k ∝ (k − ½)^−exponent for k = 1, …, dim, and teacher variances ∝ (k − ½)^−source in the same order.

    Normalised: Σ p s = 1, and r* has the second moment of the teacher's law. `dim` levels, by default as many as
    groups; more levels than groups are collected into groups of neighbours whose edges are in geometric progression,
    and keep their mean variance and their part of r*. An exponent of 1 or more has no limit without `dim`: the largest
    eigenvalues carry a finite share of the trace.
    """

    exponent: float = leaf(least=0, most=STEEPEST, why=f"it must be a number from 0 to {STEEPEST:g}")
    source: float = leaf(default=0.0, least=-STEEPEST, most=STEEPEST, why=f"a number within ±{STEEPEST:g}")
    groups: int = static(partial(whole, least=1, most=MOST_GROUPS, why=f"at least 1, at most {MOST_GROUPS}"), default=8)
    dim: int | None = static(default=None)
    levels = property(attrgetter("dim"))

    def __post_init__(self) -> None:
        if self.dim is not None:
            why = f"a whole number of levels, at least the {self.groups} groups"
            whole("PowerLaw.dim", self.dim, least=self.groups, most=MOST_LEVELS, why=why)

    def table(self) -> Table:
        """Levels, collected where there are more of them than groups."""
        levels = self.groups if self.dim is None else self.dim
        rank = np.arange(levels) + 0.5
        variance, teacher = rank**-self.exponent, rank**-self.source
        edges = _geometric(levels, self.groups)
        share = np.diff(edges) / levels
        total, seen = (np.add.reduceat(part, edges[:-1]) / levels for part in (variance, variance * teacher))
        power = total.sum()
        return Table(share, total / share / power, np.sqrt(seen / seen.sum() * power / total))


def tested(law: DataLaw, test: Any) -> Table | None:
    """Groups of a test whose law is another: its variances, for the same coordinates and weights; None without one."""
    if test is None:
        return None
    instance("test_data", test, DataLaw, "a law of rows such as sl.Spectrum([1.0, 1.0], [0.2, 0.8])")
    name = type(test).__name__
    if test.classes:
        why = "its classes are those of the data; give another covariance alone, such as sl.Spectrum([2.0])"
        raise reject("test_data", name, why)
    if law.rotated or test.rotated:
        raise reject("test_data", name, "features of shifted inputs are another law of features; leave test_data out")
    here, there = law.table(), test.table()
    if len(here.share) != len(there.share) or not np.allclose(here.share, there.share, rtol=0, atol=1e-6):
        why = f"its groups must be the {len(here.share)} of the data, with the same shares, and other variances"
        raise reject("test_data", f"{name} with {len(there.share)} groups", why)
    return here._replace(variance=there.variance)


def warn_of_rank(law: DataLaw, dim: int | None, level: int = 3) -> None:
    """Warn where so few coordinates carry the variance that the limit of many means little, so many frames up."""
    if dim is None:
        return
    table = law.table()
    # along rotated directions the groups are points of a rule for a spectrum without gaps
    count = dim * table.effective_rank if law.rotated else table.effective(dim)
    if count < FEWEST_COORDINATES:
        words = f"data: {count:.3g} of {dim} coordinates carry the variance of {type(law).__name__} (effective rank); "
        words += "the limit takes every group for many coordinates, and may be off where they are fewer than "
        words += f"{FEWEST_COORDINATES}: take a flatter spectrum or a larger dimension"
        warnings.warn(words, UnreliableWarning, stacklevel=level)


def _geometric(levels: int, groups: int) -> np.ndarray:
    """Edges 0 = e_0 < … < e_groups = levels of groups of neighbours, as nearly in geometric progression as can be."""
    edges = [0]
    for left in range(groups, 0, -1):
        last = edges[-1]
        following = round(max(last, 1) * (levels / max(last, 1)) ** (1 / left))
        edges.append(min(max(last + 1, following), levels - left + 1))
    return np.array(edges)


def numbers(argument: str, given: Any, why: str, count: int | None = None) -> np.ndarray:
    """A list of finite numbers, `count` of them where that is known."""
    values = finite(argument, given, why, axes=(1,))
    if not 1 <= len(values) <= MOST_GROUPS or len(values) != (count or len(values)):
        raise reject(argument, f"{len(values)} numbers", f"it must be {why}, at most {MOST_GROUPS}")
    return values


def shares(argument: str, given: Any, why: str, count: int) -> np.ndarray:
    """So many numbers ≥ 0 that sum to 1, all equal where none are given."""
    if given is None:
        return np.full(count, 1 / count)
    values = numbers(argument, given, why, count)
    if np.any(values < 0) or abs(values.sum() - 1) > LEAST_SHARE * count:
        raise reject(argument, given, f"it must be {why}; theirs is {values.sum():.6g}")
    return values
