"""The user's own matrix and labels: read from whatever holds them, checked, and never changed."""

from typing import Any

import numpy as np

from .errors import flag, reject

SCALE_RANGE = (0.25, 4.0)
"""Mean squared row norm that counts as 'about 1'."""
LARGEST_ROW = 25.0
"""A row whose squared norm exceeds the mean by this factor would dominate the noise, which the theory averages."""


def as_matrix(argument: str, X: Any) -> np.ndarray:
    """A float64 matrix from numpy, pandas, scipy.sparse, or anything with an array interface."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    try:
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise reject(
            argument, type(X).__name__, f"it must hold numbers only ({error}); encode categories first"
        ) from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise reject(argument, f"shape {matrix.shape}", "it must be a matrix: one row a sample, one column a feature")
    if not np.all(np.isfinite(matrix)):
        raise reject(argument, "NaN or infinite entries", "impute or drop them first")
    return matrix


def as_targets(argument: str, y: Any, rows: int) -> np.ndarray:
    """A float64 vector with one entry a row."""
    try:
        vector = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise reject(argument, type(y).__name__, f"it must hold numbers only ({error})") from None
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.shape != (rows,):
        raise reject(argument, f"shape {vector.shape}", f"it must have one entry for each of the {rows} rows")
    if not np.all(np.isfinite(vector)):
        raise reject(argument, "NaN or infinite entries", "impute or drop them first")
    return vector


def check_scale(X: np.ndarray) -> None:
    """Rows of norm about 1, none that dominates."""
    squares = np.sum(X**2, axis=1)
    mean = float(squares.mean())
    remedy = "divide X by np.sqrt(np.mean(np.sum(X**2, axis=1)))"
    if not SCALE_RANGE[0] <= mean <= SCALE_RANGE[1]:
        raise reject("X", f"mean squared row norm {mean:.4g}", f"rows must have norm about 1: {remedy}")
    largest = float(squares.max()) / mean
    if largest > LARGEST_ROW:
        row = int(squares.argmax())
        raise reject(
            "X",
            f"row {row} with {largest:.3g} times the mean squared norm",
            "no row may dominate: rescale or drop it",
        )


def read_data(X: Any, y: Any, X_test: Any, y_test: Any) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """The user's training and test arrays, checked; `None, None` where there is no test set."""
    X = as_matrix("X", X)
    y = as_targets("y", y, len(X))
    if (X_test is None) != (y_test is None):
        raise reject("X_test", "only one of X_test and y_test", "give both or neither")
    if X_test is None:
        return X, y, None, None
    X_test = as_matrix("X_test", X_test)
    if X_test.shape[1] != X.shape[1]:
        raise reject("X_test", f"{X_test.shape[1]} columns", f"X has {X.shape[1]}")
    return X, y, X_test, as_targets("y_test", y_test, len(X_test))


def signs(y: np.ndarray, binary: bool | None) -> bool:
    """Whether labels are ±1: as the user says, or found out."""
    alike = bool(np.all(np.abs(y) == 1))
    if binary is None:
        return alike
    if flag("binary", binary) and not alike:
        raise reject("y", y[np.abs(y) != 1][0], "binary labels must be ±1; recode them")
    return binary
