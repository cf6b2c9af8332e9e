"""Gaussian mixtures: rows of several classes, each with its own mean and all with one covariance.

A row of class c is x = μ_c + Σ^½ u, u with iid entries of variance 1/d, and μ_c = Σ_j means[c, j] a_j / d along
directions a_j with iid N(0, 1) coordinates, so that θᵀμ_c = Σ_j means[c, j] (θᵀa_j/d) is of order one. The directions
take the place of the teacher, r* = aᵀ(x − μ_c), and the class takes that of the label noise: z = c.

What moves the pre-activation of a whole class, r = w + b_c + β − …, is a `Place`: b_c = Σ_j means[c, j] C_θ(t, a_j) and
the intercept β; what moves it in turn is a `Push`. All are averages over all coordinates or samples: numbers, not
processes, to which neither a single sample nor a single coordinate answers, so that no response function knows of them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .._tree import model, settle
from .._types import Array
from ..errors import real, reject, traced
from .data import Classes, DataLaw, Table, shares
from .labels import ByClass
from .laws import LARGEST, Normal, Point
from .parameters import finite
from .trained import trained_of

if TYPE_CHECKING:
    from .problem import Problem

MOST = 64  # classes, and directions of their means
MEANS = f"numbers within ±{LARGEST:g}, (classes, directions), at most {MOST} of each, or a flat list for one direction"


@model
class Mixture(DataLaw):
    """Gaussian classes: class c has mean Σ_j means[c, j] a_j / d, a_j with iid N(0, 1) coordinates.

    means: (classes, directions), a flat list for one direction. covariance: s, the variance of an entry in units of
    1/d, or sl.Spectrum / sl.PowerLaw, whose factors on the teacher then stand on the directions. weights: priors of
    the classes, equal by default.
    Give no teacher and no noise: labels=sl.ByClass(), or sl.Labels(fn) where fn gets the class as z.
    """

    means: Any
    covariance: Any = 1.0
    weights: Any = None
    classes = property(lambda self: Classes(self.means, self.weights))
    levels = property(lambda self: getattr(self.covariance, "levels", None))  # a number speaks of no dimension

    def __post_init__(self) -> None:
        if any(traced(part) for part in jax.tree.leaves((self.means, self.covariance, self.weights))):
            return
        means = finite("Mixture.means", self.means, MEANS, axes=(1, 2))
        means = means[:, None] if means.ndim == 1 else means
        if not (1 <= means.shape[0] <= MOST and 1 <= means.shape[1] <= MOST) or np.max(np.abs(means)) > LARGEST:
            raise reject("Mixture.means", self.means, f"it must be {MEANS}")
        why = f"{len(means)} priors > 0 that sum to 1, one for each class"
        weights = shares("Mixture.weights", self.weights, why, len(means))
        if np.any(weights == 0):
            raise reject("Mixture.weights", self.weights, f"it must be {why}")
        if isinstance(self.covariance, DataLaw):
            if self.covariance.classes is not None or self.covariance.table().unseen:
                name = type(self.covariance).__name__
                raise reject("Mixture.covariance", name, "it must be a number s > 0, sl.Spectrum or sl.PowerLaw")
        else:
            why = "s, the variance of an entry, is a positive number; or give sl.Spectrum or sl.PowerLaw"
            settle(self, covariance=real("Mixture.covariance", self.covariance, above=0, most=LARGEST, why=why))
        settle(self, means=tuple(map(tuple, means.tolist())), weights=tuple(weights.tolist()))

    def table(self) -> Table:
        """The groups of the covariance, which all classes share."""
        if isinstance(self.covariance, DataLaw):
            return self.covariance.table()
        return Table(np.ones(1), np.full(1, float(self.covariance)), np.ones(1))


DIRECTION = Normal(1.0)  # law of a coordinate of a_j


def settle_classes(problem: "Problem") -> None:
    """Refuse what does not go with classes, or needs them; tell `ByClass` how many there are."""
    if problem.data.classes is None:
        if isinstance(problem.labels, ByClass):
            raise reject("labels", "ByClass", "labels by class need classes: data=sl.Mixture(means)")
        return
    if problem.teacher is not None or problem.teacher_width is not None:
        given = type(problem.teacher).__name__ if problem.teacher is not None else f"width {problem.teacher_width}"
        why = "the directions of a mixture's means take its place; leave teacher and teacher_width out"
        raise reject("teacher", given, why)
    if problem.noise != Point(0.0):
        why = "the class takes its place; leave it out, and write noisy labels with sl.Labels"
        raise reject("noise", type(problem.noise).__name__, why)
    if problem.labels.planted:
        why = "a mixture has no teacher; use sl.ByClass(), or sl.Labels(fn) with z the class"
        raise reject("labels", type(problem.labels).__name__, why)
    if isinstance(problem.labels, ByClass):
        settle(problem, labels=problem.labels.among(len(problem.data.classes.means)))


class Place(NamedTuple):
    """Where the classes are, or the rows of a sequence; parts that a problem does not have are None."""

    overlap: Array | None = None  # C_θ(t, a_j) = E[θ a_jᵀ], (m, k), where means lie along a_j
    intercept: Array | None = None  # β, (m,)
    shared: Mapping[str, Array] | None = None  # values of trained parameters by name


NOWHERE = Place()  # nothing moves


class Push(NamedTuple):
    """Averages over the samples that move them; parts that a problem does not have are None."""

    means: Array | None = None  # E[ℓ means[c, ·]], (m, k): dθ/dt has −Σ_j of it times a_j
    level: Array | None = None  # E ℓ, (m,): dβ/dt = −E ℓ

    def rise(self, intercept: Array) -> Array:
        """dβ/dt; where there is none, as empty as it."""
        return intercept if self.level is None else -self.level


def place(
    problem: "Problem", overlap: Array | None, intercept: Array | None, shared: Mapping[str, Array] | None = None
) -> Place:
    """Those of them that this problem has; `shared` may hold the intercept too."""
    values = {name: shared[name] for name in trained_of(problem)} if shared else None
    return Place(overlap if has_means(problem) else None, intercept if problem.bias else None, values or None)


def has_means(problem: "Problem") -> bool:
    """Whether rows have means along columns of θ*: of their class, or of their place in a sequence."""
    relation = problem.data.relation
    return problem.data.classes is not None or (relation is not None and relation.means is not None)


def _along(problem: "Problem", z: Array, lines: int, dtype: DTypeLike) -> Array | None:
    """How far the mean of every line lies along each column of θ*, (k, lines), lines those of samples of class z (M,);
    None where all have mean zero."""
    if problem.data.classes is not None:
        return problem.data.classes.along(z, dtype)
    if not has_means(problem):
        return None
    means = np.asarray(problem.data.relation.means).T  # of the last columns
    own = np.concatenate([np.zeros((problem.k - len(means), problem.rows)), means])
    return jnp.repeat(jnp.asarray(own, dtype), lines // problem.rows, axis=1)


def _level(problem: "Problem", lines: int, dtype: DTypeLike) -> Array | float:
    """What an intercept adds to every line, over its value: K⁻¹ 1 of correlated rows."""
    relation = problem.data.relation
    if relation is None or relation.level is None:
        return 1.0
    return jnp.repeat(jnp.asarray(relation.level, dtype), lines // problem.rows)


def moved(problem: "Problem", at: Place, z: Array, w: Array) -> Array:
    """w + b + β for lines (m, L·M) of samples of class z (M,)."""
    if at.overlap is not None and (along := _along(problem, z, w.shape[-1], w.dtype)) is not None:
        w = w + at.overlap.astype(w.dtype) @ along
    if at.intercept is None:
        return w
    level = at.intercept.astype(w.dtype)[:, None]
    return w + (level if problem.rows == 1 else _level(problem, w.shape[-1], w.dtype) * level)


def push(problem: "Problem", z: Array, force: Array) -> Push:
    """Means over lines of samples of class z (M,) with forces (m, L·M), in double precision where there is any."""
    count, dtype = force.shape[-1], jnp.zeros(()).dtype
    means, level = None, None
    if (along := _along(problem, z, count, force.dtype)) is not None:
        means = (force @ along.T).astype(dtype) / count
    if problem.bias:
        own = force if problem.rows == 1 else _level(problem, count, force.dtype) * force
        level = jnp.mean(own, axis=-1).astype(dtype)
    return Push(means, level)
