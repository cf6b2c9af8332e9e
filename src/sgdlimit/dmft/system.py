"""One `System`: everything a march is a function of. Numbers are traced, sizes and choices are structure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from .._linalg import root_of
from .._tree import static, tree
from ..algorithms import Algorithm
from ..problem import Problem
from ..problem.data import Table
from .integrator import Rule
from .memory import Memory


class Groups(NamedTuple):
    """Coordinates of the weights in groups q of equal variance in the data; one group for iid entries.

    A sample reads group q through unit normals n_q: (w_0, w*) = Σ_q √(p_q s_q) root_q n_q, but for what no x tells.
    """

    share: Any
    """p_q, (g,), summing to 1."""
    variance: Any
    """s_q, (g,): the data's variance along the group's coordinates, in units of 1/d."""
    root: Any
    """(g, m+k, m+k): (θ⁰, θ*) = root · start, start of unit second moments."""
    seen: Any
    """(m+k, m+k): (w_0, w*) = seen · coordinates, which are unit normals too, but for what no x tells."""
    across: Any
    """(g, m+k, m+k): coordinates = Σ_q across_q n_q; of one group, the projector on the directions that it has."""
    unseen: Any
    """(k, u): what no x tells of w* is unseen · unit normals; u = 0 where there is nothing."""
    teacher_inverse: Any
    """(k, k): pseudo-inverse of C_w(*, *) = Σ_q p_q s_q E[θ* θ*ᵀ]."""
    tested: Any
    """(g,): variance of the fresh samples of a test along the group's coordinates; s_q unless said otherwise."""
    test_teacher: Any
    """(k, k): second moments of w* of those samples."""


def groups_of(problem: Problem, tested: Table | None = None) -> Groups:
    """The groups of the problem's law of data; `tested`: of the samples of a test, where their law is another."""
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
    return Groups(
        table.share, table.variance, root, seen, across, unseen, inverse,
        tested.variance, problem.sample_gram(tested)[m:, m:],
    )  # fmt: skip


@final
@tree
@dataclass(frozen=True)
class System:
    """What is marched: the problem and its algorithm, the groups of coordinates, and how numbers are held."""

    problem: Problem
    algorithm: Algorithm
    groups: Groups
    samples: int = static()
    """M: samples, and particles, of one replica; a power of two."""
    memory: Memory = static()
    """How the past is kept: exponential moments, or all of it."""
    weights: Any = static()
    """The weight side: linear algebra for h = Λθ, particles for any other h."""
    response: Any = static()
    """How Γ and 𝓡 are found: by regression, or as a reference finds them."""
    rule: Rule = static()
    """How a step treats the penalty."""
    dtype: str = static(default="float32")
    """Precision of samples and particles; small arrays are float64."""
    metrics: tuple[tuple[str, Callable[..., Any]], ...] = static(default=())
    weight_metrics: tuple[tuple[str, Callable[..., Any]], ...] = static(default=())
    kernels: bool = static(default=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """g, m, k, M."""
        return self.groups.share.shape[0], self.problem.width, self.problem.k, self.samples


class Step(NamedTuple):
    """One step [t, t + γ] of a march, and the finer steps whose noise it adds up."""

    index: Any
    t: Any
    dt: Any
    stride: Any
    """Fine steps in it."""
    first: Any
    """Number of the first fine step: what the noise is keyed by."""
    fine_t: Any
    """(STRIDES,) starts of the fine steps."""
    fine_dt: Any
    memory: Any
    """What the memory needs to know about the step."""


class Start(NamedTuple):
    """What one replica draws before its first step, and keeps."""

    basis: Any
    """(q, M), orthonormal over the samples: coordinates of (w_0, w*), of what no x tells, then 1 and z if it varies."""
    z: Any
    r_star: Any
    """(k, M)."""
    coordinates: Any
    """(g, m+k, M): `start` of drawn weights (θ⁰, θ*) = root · start, unit second moments on the live directions."""
    signs: Any
    """Of the mixings, (roles, g + rounds, M): of fresh samples, of the weights' noise, of draws. A group has its own
    first signs, the rest is common."""
    within: Any
    """(m+k, M): signs; mixed with those of a group, the unit normals n_q through which samples read it, beside
    `coordinates`. None, (0, M), for one group, which has no others."""
    key: Any
    """Of the increments."""
