"""One `System`: everything a march is a function of. Numbers are traced, sizes and choices are structure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from .._linalg import root_of
from .._tree import static, tree
from ..algorithms import Algorithm
from ..problem import Problem
from .integrator import Rule
from .memory import Memory


class Groups(NamedTuple):
    """Coordinates of the weights in groups q of equal variance in the data; one group for iid entries."""

    share: Any
    """p_q, (g,), summing to 1."""
    variance: Any
    """s_q, (g,): the data's variance along the group's coordinates, in units of 1/d."""
    root: Any
    """(g, m+k, m+k): (θ⁰, θ*) = root · start, start of unit second moments."""
    live: Any
    """(g, m+k, m+k): projector on the directions of `start` that (θ⁰, θ*) has."""
    teacher_inverse: Any
    """(k, k): pseudo-inverse of C_w(*, *) = Σ_q p_q s_q E[θ* θ*ᵀ]."""


def one_group(problem: Problem) -> Groups:
    """iid entries: all coordinates alike."""
    m = problem.width
    gram = problem.gram()
    root = root_of(gram)
    live = np.linalg.pinv(root, rcond=1e-8, hermitian=True) @ root
    inverse = np.linalg.pinv(gram[m:, m:], hermitian=True) if problem.k else np.zeros((0, 0))
    one = np.ones(1)
    return Groups(one, one, root[None], live[None], inverse)


def groups_of(problem: Problem) -> Groups:
    """The groups of the problem's data; one for iid entries."""
    m, k, table = problem.width, problem.k, problem.data.table()
    ones = np.ones((len(table.share), 1))
    factors = np.concatenate([np.repeat(ones, m, axis=1), np.repeat(table.factor[:, None], k, axis=1)], axis=1)
    root = np.stack([root_of(problem.gram() * np.outer(own, own)) for own in factors])
    live = np.stack([np.linalg.pinv(own, rcond=1e-8, hermitian=True) @ own for own in root])
    inverse = np.linalg.pinv(problem.fresh_gram()[m:, m:], hermitian=True) if k else np.zeros((0, 0))
    return Groups(table.share, table.variance, root, live, inverse)


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
    tangents: Any = static()
    """How responses are found: all tangents, or the paper's processes."""
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
    """(q, M), orthonormal over the samples: coordinates of (w_0, w*) group by group, then 1 and z where it varies."""
    z: Any
    r_star: Any
    """(k, M)."""
    coordinates: Any
    """(g, m+k, M): `start` of drawn weights (θ⁰, θ*) = root · start, unit second moments on the live directions."""
    signs: Any
    """Of the mixings, (roles, g, rounds + 1, M): of fresh samples, of the weights' noise, of draws."""
    key: Any
    """Of the increments."""
