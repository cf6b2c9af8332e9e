"""Where a solution ended, as the start of a new problem."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..describe import from_words, nowhere
from ..errors import InputError, instance, reject
from ..problem import DataLaw, EntryLaw, Normal, Towards
from ..problem.parameters import finite
from .quality import Status

if TYPE_CHECKING:
    from .result import Solution

UNKNOWN = 0.05
"""Share of θᵀθ/d by which the errors of a solution may leave it short of what its overlap asks for."""
CORRELATION = "a correlation from −1 to 1, or a matrix of them (old units of the teacher, new units)"


def end_of(solution: "Solution", teacher_overlap: ArrayLike | None, teacher: EntryLaw | None) -> Towards:
    """A start with the second moments that a solution has at its last time; see `Solution.end`."""
    if solution.status == Status.DIVERGED or not len(solution.time):
        raise reject("end", f"a solution that is {solution.status}", "it has no end to start from")
    if "intercept" in solution:
        raise reject("end", "a problem with bias=True", "an intercept starts from 0, and would lose where it ended")
    words = solution.about.get("problem") or {}
    data = _model("data", words.get("data") or {"name": "Iid"})
    if not isinstance(data, DataLaw) or data.rotated or len(data.table().share) > 1:
        name = (words.get("data") or {}).get("name", "data")
        why = "its groups of coordinates ended with moments of their own, which a start does not have"
        raise reject("end", f"a problem with data={name}", why)
    norm = np.asarray(solution["norm"][-1], dtype=np.float64)
    if "overlap" not in solution:
        return Towards(0.0, norm=_whole(norm, np.zeros_like(norm)))
    overlap = np.asarray(solution["overlap"][-1], dtype=np.float64)
    k = overlap.shape[1]
    old = Normal(1.0) if data.classes is not None else _model("law", words.get("teacher"))
    if not isinstance(old, EntryLaw):
        if teacher_overlap is not None:
            why = "its law is a function of the user's, whose moments no result holds; leave teacher_overlap out"
            raise reject("teacher_overlap", "a solution whose teacher is unknown", why)
        return Towards(overlap, norm=(norm + norm.T) / 2)
    moments = old.moments(k)[1] * float(data.table().factor[0]) ** 2
    start = start_of(norm, overlap, moments)
    if teacher_overlap is None:
        return start
    if teacher is not None:
        instance("teacher", teacher, EntryLaw, "the law of the new teacher, such as sl.Normal(1.0)")
    between = joint_moments(moments, teacher_overlap, old if teacher is None else teacher)[:k, k:]
    return Towards(overlap @ np.linalg.pinv(moments, hermitian=True) @ between, norm=start.norm)


def start_of(norm: ArrayLike, overlap: ArrayLike, moments: np.ndarray) -> Towards:
    """The start with θᵀθ/d and θᵀθ*/d as a solution has them, whose errors may leave it short of what is possible."""
    norm, overlap = (np.asarray(part, dtype=np.float64) for part in (norm, overlap))
    inverse = np.linalg.pinv(moments, hermitian=True)
    overlap = overlap @ inverse @ moments  # teachers that depend on each other have overlaps that do
    return Towards(overlap, norm=_whole(norm, overlap @ inverse @ overlap.T))


def joint_moments(moments: np.ndarray, correlation: ArrayLike, teacher: EntryLaw) -> np.ndarray:
    """Second moments (k + k', k + k') of an old teacher, whose own are given, and a new one of such a correlation."""
    k = len(moments)
    given = finite("teacher_overlap", correlation, CORRELATION, axes=(0, 2))
    given = given if given.ndim else given * np.eye(k)
    if len(given) != k:
        raise reject("teacher_overlap", f"shape {given.shape}", f"it must be {CORRELATION}, with {k} rows")
    new = teacher.moments(given.shape[1])[1]
    between = np.sqrt(np.outer(np.diag(moments), np.diag(new))) * given
    both = np.block([[moments, between], [between.T, new]])
    if np.linalg.eigvalsh(both)[0] < -1e-9 * np.trace(both):
        raise reject("teacher_overlap", correlation, f"no teachers have it; it must be {CORRELATION} that go together")
    return both


def _model(room: str, words: Any) -> Any:
    """What stands in the words of a result; None where there is nothing, or a function of the user's."""
    try:
        return None if words is None else from_words(room, words, room, nowhere)
    except InputError:
        return None


def _whole(norm: np.ndarray, known: np.ndarray) -> np.ndarray:
    """θᵀθ/d, raised to what the overlaps alone make of it where errors of the solution left it short."""
    values, vectors = np.linalg.eigh((norm + norm.T) / 2 - known)
    if values[0] < -UNKNOWN * np.trace(norm):
        raise reject("end", "moments that no weights have", "the errors of the solution are too large; lower tol")
    return known + (vectors * np.clip(values, 0.0, None)) @ vectors.T
