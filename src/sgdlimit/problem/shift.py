"""What moves the pre-activation of a whole class: r = w + b_c + β − …, and what moves it in turn.

b_c = Σ_j means[c, j] C_θ(t, a_j) for a mixture, β the intercept. Both are averages over all coordinates: they are
numbers, not processes, they change by averages over all samples, and neither a single sample nor a single coordinate
answers to them, so that no response function knows of them.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

if TYPE_CHECKING:
    from .problem import Problem
from .._types import Array


class Place(NamedTuple):
    """Where the classes are; parts that a problem does not have are None."""

    overlap: Array | None = None
    """C_θ(t, a_j) = E[θ a_jᵀ], (m, k), of a mixture."""
    intercept: Array | None = None
    """β, (m,)."""


NOWHERE = Place()
"""Nothing moves."""


class Push(NamedTuple):
    """Averages over the samples that move them; parts that a problem does not have are None."""

    means: Array | None = None
    """E[ℓ means[c, ·]], (m, k): dθ/dt has −Σ_j of it times a_j."""
    level: Array | None = None
    """E ℓ, (m,): dβ/dt = −E ℓ."""

    def rise(self, intercept: Array) -> Array:
        """dβ/dt; where there is none, as empty as it."""
        return intercept if self.level is None else -self.level


def place(problem: "Problem", overlap: Array | None, intercept: Array | None) -> Place:
    """Those of both that move the classes of this problem."""
    return Place(overlap if problem.data.classes else None, intercept if problem.bias else None)


def moved(problem: "Problem", at: Place, z: Array, w: Array) -> Array:
    """w + b_c + β for samples (m, M) of class z (M,)."""
    classes = problem.data.classes
    if classes is not None and at.overlap is not None:
        w = w + at.overlap.astype(w.dtype) @ classes.along(z, w.dtype)
    return w if at.intercept is None else w + at.intercept.astype(w.dtype)[:, None]


def push(problem: "Problem", z: Array, force: Array) -> Push:
    """Means over samples of class z (M,) with forces (m, M), in double precision where there is any."""
    count, dtype = force.shape[-1], jnp.zeros(()).dtype
    means, level, classes = None, None, problem.data.classes
    if classes is not None:
        means = (force @ classes.along(z, force.dtype).T).astype(dtype) / count
    if problem.bias:
        level = jnp.mean(force, axis=-1).astype(dtype)
    return Push(means, level)
