"""The largest stable temperature of least squares, and the words for a curve that grew beyond it."""

import math
import warnings

import numpy as np

from ..algorithms import Algorithm
from ..algorithms.step import PLAIN
from ..errors import DivergenceWarning
from ..problem import Constant, NoPenalty, Problem, Ridge, Square, Table, VectorField
from ..problem.penalties import PenaltyLike
from .spectrum import Law

BOUND = 1e10  # a norm θᵀθ/d beyond this counts as divergence; single precision still holds it
ITERATION_WORK = 2e11  # multiply-adds that the search for an eigenvalue may take: seconds


def ridge_of(penalty: PenaltyLike | VectorField) -> float | None:
    """λ of a penalty ½λ|θ|²; None for any other."""
    return 0.0 if isinstance(penalty, NoPenalty) else float(penalty.strength) if isinstance(penalty, Ridge) else None


def stable_temperature(table: Table, sample_ratio: float, ridge: float) -> float:
    """Largest τ at which least squares stays bounded: `eq:dmft_ridge_errors` with τ∫H₂ = 1, τ = 2/∫ x²/(x+λ) dμ.

    The integral is Σ p s (s + κ − λ)/(s + κ) at z = −λ; of iid entries `eq:R_theta_ridge_freq` at p = 0 is κ/(λ + λκ).
    """
    some = table.variance > 0
    share, s = table.share[some], table.variance[some]
    kappa, less = ridge, 0.0  # κ − λ vanishes at infinite data, and drops out at λ = 0
    if ridge > 0 and not math.isinf(sample_ratio):
        kappa = Law(share, s, sample_ratio).at(ridge)
        less = kappa / sample_ratio * float(share @ (s / (kappa + s)))
    return 2 / float(share @ (s * (s + less) / (s + kappa)))


def stable_temperature_on(nodes: np.ndarray, weights: np.ndarray, ridge: float) -> float:
    """Largest stable τ = 2/∫ x²/(x+λ) of any spectrum, given as nodes and weights; zero eigenvalues add nothing."""
    total = nodes + ridge
    share = np.divide(nodes**2, total, out=np.zeros_like(nodes), where=total > 0)
    return 2 / float(weights @ share)


def stable_temperature_of_rows(rows: np.ndarray, nodes: np.ndarray, ridge: float, sample_ratio: float) -> float:
    """Largest τ at which second moments of SGF's residuals stay bounded on these very rows, given in A's eigenbasis.

    E r_i² = … + (τ/δ) Σ_j ∫(x_iᵀ e^{−(A+λ)u} x_j)² E r_j² closes exactly: τ = δ/ρ, ρ the largest eigenvalue of the
    integrated kernel. A row alone gives τ|x|² = 2; rows whose residuals are alike give `stable_temperature_on`.
    """
    rates = nodes[:, None] + nodes + 2 * ridge
    inverse = np.divide(1.0, rates, out=np.zeros_like(rates), where=rates > 0)
    turns = int(np.clip(ITERATION_WORK / (2 * rows.size * len(nodes)), 4, 200))
    v, size = np.sum(rows**2, axis=1) ** 2, 0.0
    for _ in range(turns):  # powers of a symmetric matrix without negative entries
        v = v / np.linalg.norm(v)
        v = np.sum((rows @ ((rows.T * v) @ rows * inverse)) * rows, axis=1)
        before, size = size, float(np.linalg.norm(v))
        if size - before <= 1e-4 * size:
            break
    return sample_ratio / size if size > 0 else math.inf


def largest_stable(
    problem: Problem,
    sample_ratio: float | None = None,
    matrix: np.ndarray | None = None,
    algorithm: Algorithm | None = None,
) -> float | None:
    """The largest stable τ where theory gives one: least squares on one class without schedules (τ(t)s(t)²).

    On the limit law at the problem's δ (or the one given), or on the rows of the user's matrix. Noise does not change
    it, and a fixed β is a learning rate of η/(1 − β); of other parts of a step it is not known.
    """
    ridge = ridge_of(problem.penalty)
    how = PLAIN if algorithm is None else algorithm.how
    if how.friction is not None or any(part is not None for part in (how.clip, how.rate, how.decay)):
        return None
    moves = not isinstance(problem.schedule, Constant) or (algorithm is not None and algorithm.scheduled)
    if problem.data.classes or moves or ridge is None or not isinstance(problem.loss, Square):
        return None
    if matrix is None:
        delta = problem.sample_ratio if sample_ratio is None else sample_ratio
        return stable_temperature(problem.data.table(), delta, ridge) / float(how.boost)
    left, singular, _ = np.linalg.svd(matrix, full_matrices=False)
    delta = matrix.shape[0] / matrix.shape[1]
    return stable_temperature_of_rows(left * singular, singular**2 / delta, ridge, delta) / float(how.boost)


def divergence_words(tau: float | None, limit: float | None, when: str) -> str:
    """One sentence: when it diverged, and the largest stable temperature where it is known."""
    words = f"diverged at {when}"
    if tau is not None and limit is not None:
        side = "above" if tau > limit else "below"
        words += f"; τ = {tau:g} is {side} {limit:.4g}, the largest stable temperature of this least-squares problem"
        if tau <= limit:
            words += ": take smaller steps (batch_size or dt)"
    return words


def ending(tau: float, limit: float | None, when: str) -> tuple[str, str]:
    """Status and message: diverged, at a time or, where there is none, since theory says that it grows for ever."""
    if when:
        return "diverged", divergence_words(tau, limit, when)
    if limit is None or tau < limit or math.isinf(limit):
        return "complete", ""
    return "diverged", f"diverged: it grows without bound, τ = {tau:g}; the largest stable temperature is {limit:.4g}"


def verdict(train: np.ndarray, t: np.ndarray, tau: float, limit: float | None, frames: int = 3) -> tuple[int, str, str]:
    """Times to keep, status and message of a computed curve; warns, so many frames up, where it grows without bound."""
    keep = int(np.argmin(np.append(np.isfinite(train), False)))
    status, words = ending(tau, limit, f"t = {t[keep]:.4g}" if keep < len(t) else "")
    if words:
        warnings.warn(words, DivergenceWarning, stacklevel=frames)
    return keep, status, words
