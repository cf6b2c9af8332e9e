"""Starts that know the teacher: θ⁰ and θ* are drawn together.

A coordinate of θ⁰ is A times that of the teacher plus an independent Gaussian part, A E[θ*θ*ᵀ] = E[θ⁰θ*ᵀ]. In the limit
of a quadratic penalty nothing but second moments of (θ⁰, θ*) enters.
"""

from dataclasses import field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.typing import ArrayLike

from .._linalg import root_of
from .._tree import model, settle
from ..errors import reject, traced
from .laws import LARGEST
from .parameters import finite

if TYPE_CHECKING:
    from .problem import Problem

ROUNDING = 1e-9  # of a squared scale
MATRIX = "a number, or a matrix with a row for each unit and a column for each unit of the teacher"
SCALES = f"a number from 0 to {LARGEST:g}, or one such number for each unit"
NORM = "a matrix of one row and one column for each unit, symmetric and with eigenvalues ≥ 0"


def _hidden() -> Any:
    return field(init=False, default=None, repr=False, compare=False)


@model
class Towards:
    """A start that leans towards the teacher, `init=Towards(overlap, scale)`: θ⁰ᵀθ*/d = overlap and |θ⁰|²/d = scale².

    θ⁰ is a multiple of θ* plus an independent Gaussian part.

    overlap: θ⁰ᵀθ*/d, a number or a matrix (units, units of the teacher). At larger widths one number stands for the
        diagonal: unit a has it with unit a of the teacher, and none with the others.
    scale: |θ⁰|/√d, a number or one for each unit. Units are correlated with each other only through the teacher.
    norm: in the place of `scale` the whole matrix θ⁰ᵀθ⁰/d, (units, units), as `solution.end()` gives it.

    On structured data the coordinates of the teacher's law are what θ⁰ is a multiple of, before the factors of the
    groups, and the overlap over all groups is the one asked for. In a mixture θ* are the directions of the means.
    """

    overlap: Any
    scale: Any = None
    norm: Any = None
    lean: Any = _hidden()  # A, (m, k)
    rest: Any = _hidden()  # root of the independent part, (m, m)
    rarest = 1.0
    """Share of the entries that make up the second moment, as of any law."""

    def __post_init__(self) -> None:
        if any(traced(part) for part in jax.tree.leaves((self.overlap, self.scale, self.norm))):
            return
        settle(self, overlap=_numbers("Towards.overlap", self.overlap, MATRIX, (0, 2)))
        if (self.scale is None) == (self.norm is None):
            given = "neither" if self.scale is None else "both"
            raise reject("Towards.scale", given, "give scale, |θ⁰|/√d, or norm, the matrix θ⁰ᵀθ⁰/d")
        if self.scale is not None:
            settle(self, scale=_numbers("Towards.scale", self.scale, SCALES, (0, 1)))
            if np.min(self.scale) < 0:
                raise reject("Towards.scale", self.scale, f"it must be {SCALES}")
            return
        norm = finite("Towards.norm", self.norm, NORM, axes=(2,))
        if norm.shape[0] != norm.shape[1] or not np.allclose(norm, norm.T, rtol=1e-4, atol=1e-6 * np.max(np.abs(norm))):
            raise reject("Towards.norm", self.norm, f"it must be {NORM}")
        settle(self, norm=_numbers("Towards.norm", (norm + norm.T) / 2, NORM, (2,)))

    def bound(self, problem: "Problem") -> "Towards":
        """The same start with the numbers that belong to this problem's teacher, or an error that says what hinders."""
        m, k = problem.width, problem.k
        if not k:
            raise reject("init", "Towards", "there is no teacher to lean towards; give one, or init=sl.Normal(scale)")
        if problem.data.rotated:
            name = type(problem.data).__name__
            why = f"{name} has directions of its own, along which no start is aligned; take init=sl.Normal(scale)"
            raise reject("init", "Towards", why)
        overlap = np.asarray(self.overlap, dtype=float)
        if overlap.ndim and overlap.shape != (m, k):
            raise reject("Towards.overlap", f"shape {overlap.shape}", f"it must be a number, or of shape ({m}, {k})")
        overlap = overlap if overlap.ndim else overlap * np.eye(m, k)
        teacher, table = problem.star.moments(k)[1], problem.data.table()
        factor = float(table.share @ table.factor)  # θ* is the factor of its group times a draw of its law
        if abs(factor) <= ROUNDING * np.max(np.abs(table.factor)) and np.any(overlap):
            given, why = "factors on the teacher that cancel", "a start has no overlap with it; change the factors"
            raise reject("Towards.overlap", given, why)
        with_law = overlap / factor if np.any(overlap) else overlap
        lean = with_law @ np.linalg.pinv(teacher, hermitian=True)
        if not np.allclose(lean @ teacher, with_law, rtol=1e-6, atol=1e-9 * max(1.0, np.max(np.abs(with_law)))):
            why = "units of the teacher depend on each other, and no start has these overlaps with all of them"
            raise reject("Towards.overlap", self.overlap, why)
        known = lean @ teacher @ lean.T
        found = object.__new__(Towards)
        settle(found, overlap=self.overlap, scale=self.scale, norm=self.norm)
        settle(found, lean=_fixed(lean), rest=_fixed(root_of(self._left(known))))
        return found

    def _left(self, known: np.ndarray) -> np.ndarray:
        """Second moments of the independent part, where the teacher's part has those given."""
        m = len(known)
        if self.norm is not None:
            norm = np.asarray(self.norm)
            if norm.shape != (m, m):
                raise reject("Towards.norm", f"shape {norm.shape}", f"it must be of shape ({m}, {m})")
            left = norm - known
            if np.linalg.eigvalsh(left)[0] < -ROUNDING * max(np.trace(norm), 1e-300):
                why = f"the overlap alone makes θ⁰ᵀθ⁰/d as large as {np.round(known, 6).tolist()}; lower it"
                raise reject("Towards.overlap", self.overlap, why)
            return left
        if np.ndim(self.scale) and np.shape(self.scale) != (m,):
            raise reject("Towards.scale", f"{np.size(self.scale)} numbers", f"give one, or one for each of {m} units")
        scale = np.broadcast_to(np.asarray(self.scale, dtype=float), (m,))
        least = np.sqrt(np.diag(known))
        if np.any(scale**2 - least**2 < -ROUNDING * np.maximum(least**2, 1e-300)):
            unit = int(np.argmax(least - scale))
            of = f" of unit {unit}" * (m > 1)
            why = f"with this teacher it takes a scale{of} of at least {least[unit]:.6g}, not {scale[unit]:g}"
            raise reject("Towards.overlap", self.overlap, f"{why}; raise the scale, or lower the overlap")
        return np.diag(np.clip(scale**2 - least**2, 0.0, None))

    def beside(self, theta_star: Any, normals: Any) -> Any:
        """θ⁰, (count, m), beside rows of θ* (count, k), from standard normal numbers (count, m)."""
        lean, rest = (part.astype(theta_star.dtype) for part in (self.lean, self.rest))
        return theta_star @ lean.T + normals @ rest.T

    def moments(self, teacher: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E θ⁰θ⁰ᵀ, (m, m), and E θ⁰θ*ᵀ, (m, k), from those of the teacher's law."""
        lean, rest = np.asarray(self.lean), np.asarray(self.rest)
        return lean @ teacher @ lean.T + rest @ rest.T, lean @ teacher


def _fixed(array: np.ndarray) -> np.ndarray:
    array = np.array(array, dtype=float)
    array.flags.writeable = False
    return array


def _numbers(argument: str, given: ArrayLike, why: str, axes: tuple[int, ...]) -> Any:
    """A float, or rows of floats as tuples; or an error that says what it must be."""
    array = finite(argument, given, why, axes=axes)
    if np.any(np.abs(array) > LARGEST) or not array.size:
        raise reject(argument, given, f"it must be {why}")
    rows = array.tolist()
    return tuple(tuple(row) if isinstance(row, list) else row for row in rows) if array.ndim else float(array)
