"""Several rows a sample: x_1 … x_L share the weights and meet in one loss, and labels read all of r*_1 … r*_L.

Rows of `Iid`, `Spectrum` and other laws are independent and of mean zero. `Sequence` gives each its own mean and
correlates them: row l is x_l = μ_l + Σ_j K_lj u_j, u_j independent rows of a law, K Kᵀ the given correlation, and
μ_l = Σ_j positions[l, j] a_j/d along directions a_j. A mean moves the pre-activation by positions · (θᵀa/d), a number.

The limit follows the independent rows u: r_x = K r_u, where the loss reads r_x, and ∂L/∂r_u = Kᵀ ∂L/∂r_x. With the
force times L and L times the samples per dimension, L rows are as many samples of one row, which share labels and
increments: averages over samples, noise and reaction are then those of `dmft` as they stand (`docs/rows.md`). Arrays
have these lines side by side: first row 1 of all samples, then row 2 of all.
"""

from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import root_of
from .._tree import model, settle, static
from .._types import Array, Key, Tree
from ..errors import flag, instance, reject, traced
from .data import DataLaw, Iid, Table
from .laws import LARGEST, EntryLaw, Normal
from .parameters import finite
from .rows import Layout

if TYPE_CHECKING:
    from .problem import Problem

MOST = 64
"""Rows of a sample, and directions of their means."""
SINGULAR = 1e-6
"""Smallest eigenvalue of a correlation, over its largest, that is told from zero."""
POSITIONS = f"numbers within ±{LARGEST:g}, (rows, directions), at most {MOST} of each, or a flat list for one direction"
MATRIX = "a symmetric matrix with a row for each row of a sample, and eigenvalues above 0"


class Relation(NamedTuple):
    """What rows of a sample have to do with each other; parts that a law does not have are None."""

    rows: int
    """L."""
    means: Any = None
    """K⁻¹ positions, (L, directions): means of the independent rows."""
    level: Any = None
    """K⁻¹ 1, (L,): what an intercept adds to the independent rows; None where that is 1."""
    root: Any = None
    """K, (L, L)."""
    directions: EntryLaw | None = None
    """The law of directions of the means beside the teacher's units; None where they are the teacher's units."""


def _hidden() -> Any:
    return static(init=False, default=None, repr=False, compare=False)


@model
class Sequence(DataLaw):
    """Rows of a sample that have means of their own, or are correlated: tokens at positions, patches of one image.

    data: law of one row; iid entries unless said otherwise.
    positions: the mean of row l is Σ_j positions[l, j] a_j/d along directions a_j: (rows, directions), a flat list for
        one direction.
    directions: law of a coordinate of a_j, N(0, 1) by default; their overlaps with the weights stand behind those of
        the teacher's units in `overlap`. sl.Point(1.0) is the direction of all ones.
    toward_teacher: the means lie along the teacher's units instead. Labels read r* without the mean.
    correlation: E[x_l x_m] over that of one row of the law, (rows, rows).
    """

    data: DataLaw = field(default_factory=Iid)
    positions: Any = static(default=None)
    directions: EntryLaw = field(default_factory=Normal)
    toward_teacher: bool = static(default=False)
    correlation: Any = static(default=None)
    root: Any = _hidden()
    means: Any = _hidden()
    level: Any = _hidden()
    levels = property(attrgetter("data.levels"))
    rotated = property(attrgetter("data.rotated"))

    def __post_init__(self) -> None:
        if any(map(traced, jax.tree.leaves((self.directions, self.data)))):
            return
        instance("Sequence.data", self.data, DataLaw, "a law of one row such as sl.Spectrum([3.0, 0.5], [0.2, 0.8])")
        instance("Sequence.directions", self.directions, EntryLaw, "the law of a coordinate, such as sl.Normal(1.0)")
        flag("Sequence.toward_teacher", self.toward_teacher)
        if self.data.classes is not None or self.data.relation is not None:
            given, why = type(self.data).__name__, "it must be the law of one row: sl.Iid, sl.Spectrum or sl.PowerLaw"
            raise reject("Sequence.data", given, why)
        if self.positions is None and self.correlation is None:
            raise reject("Sequence", "neither positions nor correlation", "leave Sequence out: rows are independent")
        positions, correlation = self._checked()
        rows = len(cast("np.ndarray", correlation if positions is None else positions))
        if rows < 2:
            raise reject(
                "Sequence", "one row", "a sequence has two rows or more; one row alone is a law such as sl.Spectrum"
            )
        root = None if correlation is None else root_of(correlation)
        unit = np.eye(rows) if root is None else np.linalg.inv(root)
        settle(self, positions=_words(positions), correlation=_words(correlation), root=_words(root))
        settle(self, means=None if positions is None else _words(unit @ positions))
        settle(self, level=None if root is None else _words(unit.sum(axis=1)))

    def _checked(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Positions, (L, directions), and the correlation, as arrays."""
        positions = correlation = None
        if self.positions is not None:
            positions = finite("Sequence.positions", self.positions, POSITIONS, axes=(1, 2))
            positions = positions[:, None] if positions.ndim == 1 else positions
            if not (min(positions.shape) >= 1 and max(positions.shape) <= MOST) or np.max(np.abs(positions)) > LARGEST:
                raise reject("Sequence.positions", self.positions, f"it must be {POSITIONS}")
            if self.data.rotated:
                given, why = type(self.data).__name__, "its features have directions of their own; leave positions out"
                raise reject("Sequence.data", given, why)
        if self.correlation is not None:
            correlation = finite("Sequence.correlation", self.correlation, MATRIX, axes=(2,))
            square = correlation.shape[0] == correlation.shape[1] <= MOST
            if not square or not np.allclose(correlation, correlation.T, rtol=1e-6, atol=1e-9):
                raise reject("Sequence.correlation", self.correlation, f"it must be {MATRIX}")
            values = np.linalg.eigvalsh(correlation)
            if not values[0] > SINGULAR * values[-1]:
                why = f"it must be {MATRIX}; rows that tell the same can be one row"
                raise reject("Sequence.correlation", f"a smallest eigenvalue of {values[0]:.3g}", why)
        if positions is not None and correlation is not None and len(positions) != len(correlation):
            why = f"correlation is for {len(correlation)} rows; give as many positions"
            raise reject("Sequence.positions", f"{len(positions)} rows", why)
        return positions, correlation

    @property
    def relation(self) -> Relation:
        """How many rows there are, their means and how they are mixed."""
        own = None if self.toward_teacher else self.directions
        rows = len(self.correlation if self.positions is None else self.positions)
        return Relation(rows, self.means, self.level, self.root, own if self.positions is not None else None)

    def table(self) -> Table:
        """The groups of coordinates of one row."""
        return self.data.table()

    def at(self, dim: int, tested: Table | None = None) -> Layout:
        """What independent rows of dimension `dim` are drawn from."""
        return self.data.at(dim, tested)


def _words(array: np.ndarray | None) -> Any:
    """Numbers as tuples, which can be compared and hashed."""
    if array is None:
        return None
    return tuple(array.tolist()) if array.ndim == 1 else tuple(map(tuple, array.tolist()))


@model
class Beside(EntryLaw):
    """Rows of a teacher's units, then of further directions, which are independent of them."""

    first: EntryLaw
    others: EntryLaw
    count: int = static()
    """Units of the first law."""
    exact_moments = property(lambda self: self.first.exact_moments and self.others.exact_moments)
    quantiles = property(lambda self: self.first.quantiles and self.others.quantiles)
    rarest = property(lambda self: min(self.first.rarest, self.others.rarest))

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Entries of both laws; the last axis runs over the units, then over the directions."""
        one, two = jax.random.split(key)
        rest = shape[-1] - self.count
        parts = self.first.sample(one, (*shape[:-1], self.count)), self.others.sample(two, (*shape[:-1], rest))
        return jnp.concatenate(parts, axis=-1)

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Means of both laws; blocks of second moments, and products of means beside them."""
        (a, A), (b, B) = self.first.moments(self.count), self.others.moments(size - self.count)
        return np.concatenate([a, b]), np.block([[A, np.outer(a, b)], [np.outer(b, a), B]])

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """Refused: the laws differ, and `problem.spread` takes each by itself."""
        raise TypeError("two laws side by side have no common quantiles")


def check_rows(problem: "Problem") -> None:
    """Refuse a law of rows that speaks of another number of them, or means along a teacher that there is not."""
    relation, name = problem.data.relation, type(problem.data).__name__
    if problem.rows > 1 and problem.data.classes is not None:
        why = "classes of single rows; for rows of a sample with means of their own take data=sl.Sequence(positions=…)"
        raise reject("data", name, why)
    if relation is None:
        return
    if relation.rows != problem.rows:
        raise reject("rows", problem.rows, f"data={name} tells of {relation.rows} rows; set rows={relation.rows}")
    if relation.means is not None and relation.directions is None:
        directions, units = len(relation.means[0]), problem.read
        if directions != units:
            why = f"means toward the teacher need one column for each of its {units} units"
            raise reject("Sequence.positions", f"{directions} columns", why)


# --- arrays over samples: lines (…, L·M) of independent rows ↔ what functions of one sample read, (L, …, M) ---


def tiled(problem: "Problem", x: Array) -> Array:
    """Return numbers of samples (…, M) as those of all their lines, (…, L·M)."""
    return x if problem.rows == 1 else jnp.concatenate([x] * problem.rows, axis=-1)


def as_read(problem: "Problem", x: Array) -> Array:
    """Return lines (m, L·M) as functions of one sample read them, (L, m, M), each row with its share of the others; of
    one row as they are."""
    if problem.rows == 1:
        return x
    apart, root = x.reshape(x.shape[0], problem.rows, -1).swapaxes(0, 1), root_like(problem, x)
    return apart if root is None else jnp.tensordot(root, apart, 1)


def as_lines(problem: "Problem", ell: Array) -> Array:
    """Return forces on what was read, (L, m, M), as L times the forces on the independent rows, (m, L·M)."""
    if problem.rows == 1:
        return ell
    return problem.rows * unmixed(problem, ell).swapaxes(0, 1).reshape(ell.shape[1], -1)


def unmixed(problem: "Problem", ell: Array) -> Array:
    """Return forces on what was read, (L, …), as those on the independent rows, Kᵀℓ."""
    root = root_like(problem, ell)
    return ell if root is None else jnp.tensordot(root.T, ell, 1)


def as_rows(problem: "Problem", x: Tree) -> Tree:
    """Return independent rows of samples, (N, L, ·), as they are read."""
    root = None if problem.rows == 1 else root_like(problem, x)
    return x if root is None else jnp.einsum("lk,nkm->nlm", root, x)


def root_like(problem: "Problem", x: Array) -> Array | None:
    """Return K in the precision of x; None where rows are not correlated."""
    relation = problem.data.relation
    return None if relation is None or relation.root is None else jnp.asarray(relation.root, x.dtype)
