"""The largest stable temperature of least squares, and the words for a curve that grew beyond it."""

import math
import warnings

import numpy as np

from ..algorithms import Algorithm
from ..errors import DivergenceWarning
from ..problem import Constant, NoPenalty, Problem, Ridge, Square, VectorField
from ..problem.penalties import PenaltyLike
from .grouped import stable_temperature_of
from .spectrum import stable_temperature, stable_temperature_of_rows

BOUND = 1e10
"""A norm θᵀθ/d beyond this counts as divergence; single precision still holds it."""


def ridge_of(penalty: PenaltyLike | VectorField) -> float | None:
    """λ of a penalty ½λ|θ|²; None for any other."""
    return 0.0 if isinstance(penalty, NoPenalty) else float(penalty.strength) if isinstance(penalty, Ridge) else None


def largest_stable(
    problem: Problem,
    sample_ratio: float | None = None,
    matrix: np.ndarray | None = None,
    algorithm: Algorithm | None = None,
) -> float | None:
    """The largest stable τ where theory gives one: least squares on one class without schedules (τ(t)s(t)²).

    On the limit law at the problem's δ (or the one given), or on the rows of the user's matrix.
    """
    if problem.data.classes or (algorithm is not None and algorithm.scheduled):
        return None
    ridge = ridge_of(problem.penalty)
    if ridge is None or not isinstance(problem.loss, Square) or not isinstance(problem.schedule, Constant):
        return None
    if matrix is None:
        delta = problem.sample_ratio if sample_ratio is None else sample_ratio
        if problem.data.iid:
            return stable_temperature(delta, ridge)
        return stable_temperature_of(problem.data.table(), delta, ridge)
    left, singular, _ = np.linalg.svd(matrix, full_matrices=False)
    delta = matrix.shape[0] / matrix.shape[1]
    return stable_temperature_of_rows(left * singular, singular**2 / delta, ridge, delta)


def divergence_words(tau: float | None, limit: float | None, when: str) -> str:
    """One sentence: when it diverged, and the largest stable temperature where it is known."""
    words = f"diverged at {when}"
    if tau is not None and limit is not None:
        side = "above" if tau > limit else "below"
        words += f"; τ = {tau:g} is {side} {limit:.4g}, the largest stable temperature of this least-squares problem"
        if tau <= limit:
            words += ": take smaller steps (batch_size or dt)"
    return words


def verdict(train: np.ndarray, t: np.ndarray, tau: float, limit: float | None, frames: int = 3) -> tuple[int, str, str]:
    """Times to keep, status and message of a computed curve; warns, so many frames up, where it grows without bound."""
    keep, words = len(t), ""
    if not np.all(np.isfinite(train)):
        keep = int(np.argmin(np.isfinite(train)))
        words = divergence_words(tau, limit, f"t = {t[keep]:.4g}")
    elif limit is not None and tau >= limit and math.isfinite(limit):
        words = f"diverged: it grows without bound, τ = {tau:g}; the largest stable temperature is {limit:.4g}"
    if words:
        warnings.warn(words, DivergenceWarning, stacklevel=frames)
    return keep, "diverged" if words else "complete", words
