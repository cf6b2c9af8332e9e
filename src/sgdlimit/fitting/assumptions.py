"""How far the user's data are from what the limit takes them for: Gaussian rows, many directions, one covariance."""

import numpy as np

from ..problem import Problem
from ..problem.data import FEWEST_COORDINATES
from ..results.quality import Check
from .spectrum import EigenGroups

MISFIT = 0.02  # relative; Gaussian rows have some 1e-4
SPREAD = 0.5  # relative standard deviation of |x|² beyond that of Gaussian rows
KURTOSIS = 1.0  # excess kurtosis: that of a logistic law is 1.2, of a uniform law −1.2
UNLIKE = 0.5  # difference of two covariances, over the root mean square of their norms
ELSEWHERE = 0.25  # relative difference of mean squared norms between train and test


def examine(
    problem: Problem, rows: np.ndarray, groups: EigenGroups, direction: np.ndarray, leading: np.ndarray
) -> list[Check]:
    """What is asked of the rows, less the mean of their class; `direction` is learned, `leading` are principal ones."""
    n, d = rows.shape
    table = problem.data.table()
    squares = np.sum(rows**2, axis=1)
    rank = d * table.effective_rank
    # |x|² of Gaussian rows varies by 2 tr Σ²/(tr Σ)² = 2/rank
    spread = float(np.sqrt(max(squares.var() / squares.mean() ** 2 - 2 / rank, 0.0)))
    towards = [_kurtosis(values) for values in (rows @ leading).T]
    learned = _kurtosis(rows @ direction) if direction.any() else 0.0
    return [
        Check.report("samples", n, f"in {d} dimensions, {n / d:.3g} each"),
        Check.least(
            "effective rank", rank, FEWEST_COORDINATES, f"(tr Σ)²/tr Σ²: coordinates of {d} that share the variance"
        ),
        Check.most("spectrum", groups.misfit, MISFIT, f"misfit of {len(groups.values)} groups to the sample's"),
        Check.most("spread of rows", spread, SPREAD, "relative, of |x|² beyond that of Gaussian rows"),
        Check.report("largest row", squares.max() / squares.mean(), "squared norm over the mean"),
        Check.most("kurtosis", abs(learned), KURTOSIS, "excess, by size, along the direction that is learned"),
        Check.most("leading kurtosis", max(map(abs, towards)), KURTOSIS, f"along {len(towards)} principal axes"),
    ]


def of_classes(rows: np.ndarray, first: np.ndarray) -> list[Check]:
    """Whether two classes have one covariance."""
    one, other = rows[first], rows[~first]
    size = _square_trace(one) + _square_trace(other)
    both = 2 * _product(one, other) / ((len(one) - 1) * (len(other) - 1))
    unlike = float(np.sqrt(max(size - both, 0.0) / (size / 2)))
    return [
        Check.report("smaller class", min(len(one), len(other)), "samples"),
        Check.most("class covariances", unlike, UNLIKE, "their difference over their size, less that of sampling"),
    ]


def of_test(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> list[Check]:
    """Whether a test set is of the same law."""
    ratio = float(np.mean(np.sum(X_test**2, axis=1)) / np.mean(np.sum(X**2, axis=1)))
    # in standard errors of the two sample means
    gap = abs(y_test.mean() - y.mean()) / np.sqrt(y.var() * (1 / len(y) + 1 / len(y_test)))
    words = f"mean squared norm of the test rows is {ratio:.3g} of the training rows'"
    return [
        Check.report("test samples", len(X_test), "the curves are those of fresh samples of the model, not of these"),
        Check.most("test rows", abs(ratio - 1), ELSEWHERE, words),
        Check.most("test labels", gap, 4.0, "difference of the mean label, in standard errors"),
    ]


def _kurtosis(values: np.ndarray) -> float:
    """Excess kurtosis: zero for Gaussian values."""
    values = values - values.mean()
    return float(np.mean(values**4) / np.mean(values**2) ** 2 - 3)


def _product(one: np.ndarray, other: np.ndarray) -> float:
    """tr(AᵀA BᵀB), by the smaller of the two ways."""
    if one.shape[1] <= min(len(one), len(other)):
        return float(np.sum((one.T @ one) * (other.T @ other)))
    return float(np.sum((one @ other.T) ** 2))


def _square_trace(rows: np.ndarray) -> float:
    """tr Σ² of centred Gaussian rows, unbiased."""
    free = len(rows) - 1
    trace = float(np.sum(rows**2)) / free
    return free**2 / ((free - 1) * (free + 2)) * (_product(rows, rows) / free**2 - trace**2 / free)
