"""One `System`: everything a march is a function of. Numbers are traced, sizes and choices are structure.

All samples of a march lie along the last axis of an array: `each` is a function of every one of them, `moments` are
averages of their products. Of samples with L rows that axis holds L·M lines (`problem.sequences`): paths of w and
forces are those of lines, `System.ratio` of them per dimension; losses, labels and increments belong to samples.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import root_of
from .._tree import model, static
from .._types import Array, Key, Scalar, Tree
from ..algorithms import Algorithm, IterateAverage
from ..problem import Problem
from ..problem.data import Table
from ..results.metrics import Named
from .integrator import Rule
from .memory import Memory

if TYPE_CHECKING:
    from .response import Response
    from .weight_side import WeightSide


class Groups(NamedTuple):
    """Coordinates of the weights in groups q of equal variance in the data; one group for iid entries.

    A sample reads group q through unit normals n_q: (w_0, w*) = Σ_q √(p_q s_q) root_q n_q, but for what no x tells.
    """

    share: Array
    """p_q, (g,), summing to 1."""
    variance: Array
    """s_q, (g,): the data's variance along the group's coordinates, in units of 1/d."""
    root: Array
    """(g, m+k, m+k): (θ⁰, θ*) = root · start, start of unit second moments."""
    seen: Array
    """(m+k, m+k): (w_0, w*) = seen · coordinates, which are unit normals too, but for what no x tells."""
    across: Array
    """(g, m+k, m+k): coordinates = Σ_q across_q n_q; of one group, the projector on the directions that it has."""
    unseen: Array
    """(k, u): what no x tells of w* is unseen · unit normals; u = 0 where there is nothing."""
    teacher_inverse: Array
    """(k, k): pseudo-inverse of C_w(*, *) = Σ_q p_q s_q E[θ* θ*ᵀ]."""
    tested: Array
    """(g,): variance of the fresh samples of a test along the group's coordinates; s_q unless said otherwise."""
    test_teacher: Array
    """(k, k): second moments of w* of those samples."""


def groups_of(problem: Problem, tested: Table | None = None) -> Groups:
    """Return the groups of the problem's law of data; `tested`: of a test's samples, where their law is another."""
    m, table = problem.width, problem.data.table()
    tested = table if tested is None else tested
    size = np.sqrt(table.share * table.variance)[:, None, None]
    factor = np.ones((len(size), m + problem.k, 1))
    factor[:, m:] = table.factor[:, None, None]
    root = factor * root_of(problem.gram())
    gram = problem.sample_gram(table._replace(unseen=0.0))
    seen = root_of(gram)
    across = size * (np.linalg.pinv(seen, rcond=1e-8, hermitian=True) @ root)
    inverse = np.linalg.pinv(gram[m:, m:], hermitian=True) if problem.k else np.zeros((0, 0))
    unseen = np.zeros((problem.k, 0))
    if table.unseen and problem.k:
        unseen = np.sqrt(table.unseen) * root_of(problem.gram()[m:, m:])
    test_teacher = problem.sample_gram(tested)[m:, m:]
    numbers: Tree = (table.share, table.variance, root, seen, across, unseen, inverse, tested.variance, test_teacher)
    return Groups(*numbers)  # of numpy, until jax traces them


@model
class System:
    """What is marched: the problem and its algorithm, the groups of coordinates, and how numbers are held."""

    problem: Problem
    algorithm: Algorithm
    groups: Groups
    samples: int = static()
    """M: samples, and particles, of one replica; a power of two."""
    memory: Memory = static()
    """How the past is kept: exponential moments, or all of it."""
    weights: "WeightSide" = static()
    """The weight side: linear algebra for h = Λθ, particles for any other h."""
    response: "Response" = static()
    """How Γ and 𝓡 are found: by regression, or as a reference finds them."""
    rule: Rule = static()
    """How a step treats the penalty."""
    dtype: str = static(default="float32")
    """Precision of samples and particles; small arrays are float64."""
    metrics: Named = static(default=())
    weight_metrics: Named = static(default=())
    kernels: bool = static(default=False)
    averages: dict[str, IterateAverage] = dataclasses.field(default_factory=dict)
    """Of the iterates, by name."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Numbers of groups g, student units m, columns k of θ*, and lines L·M."""
        return self.groups.share.shape[0], self.problem.width, self.problem.k, self.problem.rows * self.samples

    @property
    def ratio(self) -> Scalar:
        """Lines per dimension, L·δ."""
        rows, ratio = self.problem.rows, self.problem.sample_ratio
        return ratio if rows == 1 else rows * ratio


class Step(NamedTuple):
    """One step [t, t + γ] of a march, and the finer steps whose noise it adds up."""

    number: Array
    t: Array
    dt: Array
    stride: Array
    """Fine steps in it."""
    first: Array
    """Number of the first fine step: what the noise is keyed by."""
    fine_t: Array
    """(STRIDES,) starts of the fine steps."""
    fine_dt: Array
    memory: Tree
    """What the memory needs to know about the step."""


class Start(NamedTuple):
    """What one replica draws before its first step, and keeps."""

    basis: Array
    """(q, L·M), orthonormal over the samples, row by row: coordinates of (w_0, w*), of what no x tells, then 1 and z if
    it varies."""
    z: Array
    r_star: Array
    """As functions of one sample read it, (k, M) or (L, k, M)."""
    coordinates: Array
    """(g, m+k, L·M): `start` of drawn weights (θ⁰, θ*) = root · start, unit second moments on the live directions."""
    signs: Array
    """Of the mixings, (roles, g + rounds, L·M): of fresh samples, of the weights' noise, of draws. A group has its own
    first signs, the rest is common."""
    within: Array
    """(m+k, L·M): signs; mixed with those of a group, the unit normals n_q through which samples read it, beside
    `coordinates`. None, (0, L·M), for one group, which has no others."""
    key: Key
    """Of the increments."""


PIECE = 512
"""Samples that one part of a GPU adds up: a small product of long rows would else keep a single part of it busy."""


def each(fn: Callable[..., Tree]) -> Callable[[Array, Array, Array], Array]:
    """Return a function of one sample (r, r*, z) as one of all samples, which lie along the last axis."""
    return jax.vmap(fn, in_axes=(-1, -1, 0), out_axes=-1)


def moments(a: Array, b: Array) -> Array:
    """Return E[a bᵀ] over samples, (…, p, q) from (…, p, M) and (…, q, M), in double precision."""
    count = a.shape[-1]
    if jax.default_backend() == "cpu" or count <= PIECE or count % PIECE:
        total = jnp.einsum("...as,...bs->...ab", a, b)
    else:
        pieces = (x.reshape(*x.shape[:-1], count // PIECE, PIECE) for x in (a, b))
        total = jnp.einsum("...acs,...bcs->...cab", *pieces).sum(axis=-3)
    return total.astype(jnp.float64) / count
