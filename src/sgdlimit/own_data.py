"""The user's own matrix and labels: read from whatever holds them, checked, and never changed."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from .errors import flag, reject

SCALE_RANGE = (0.25, 4.0)  # mean squared row norm that counts as 'about 1'
LARGEST_ROW = 25.0
"""A row whose squared norm exceeds the mean by this factor would dominate the noise, which the theory averages."""


class Sparse(Protocol):
    """A matrix of scipy.sparse, or any other that becomes an array when asked."""

    def toarray(self) -> np.ndarray:
        """All entries, zeros included."""
        ...


Matrix = ArrayLike | Sparse
"""What a user's matrix may be: of numpy, pandas or scipy.sparse, lists, or anything with an array interface."""


class OwnData(NamedTuple):
    """The user's training set and, if there is one, test set: (n, d) and (n,) of finite numbers in double precision; of
    samples with L rows (n, L, d), and labels of any shape, (n, …)."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray | None
    y_test: np.ndarray | None


def _numbers(argument: str, given: object, remedy: str = "") -> np.ndarray:
    """A float64 array of finite numbers, or an error that names the argument."""
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise reject(argument, type(given).__name__, f"it must hold numbers only ({error}){remedy}") from None
    if not np.all(np.isfinite(array)):
        raise reject(argument, "NaN or infinite entries", "impute or drop them first")
    return array


def as_matrix(argument: str, X: Matrix) -> np.ndarray:
    """A float64 matrix of finite numbers, at least one row and one column; refused by name where it is none."""
    matrix = _numbers(argument, getattr(X, "toarray", lambda: X)(), "; encode categories first")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise reject(argument, f"shape {matrix.shape}", "it must be a matrix: one row a sample, one column a feature")
    return matrix


def as_samples(argument: str, X: Matrix) -> np.ndarray:
    """`as_matrix`, or an array (n, L, d) of samples with L rows, two at least."""
    array = _numbers(argument, getattr(X, "toarray", lambda: X)(), "; encode categories first")
    if array.ndim != 3:
        if array.ndim == 2:
            return as_matrix(argument, array)
        why = "it must be a matrix, (n, d), or of shape (n, L, d) where a sample has L rows"
        raise reject(argument, f"shape {array.shape}", why)
    if 0 in array.shape or array.shape[1] < 2:
        why = "samples of shape (n, L, d) have two rows or more; else give (n, d)"
        raise reject(argument, f"shape {array.shape}", why)
    return array


def as_labels(argument: str, y: ArrayLike, samples: int) -> np.ndarray:
    """Labels of any shape, one for each sample, (n, …)."""
    array = _numbers(argument, y)
    if array.ndim == 0 or len(array) != samples:
        raise reject(argument, f"shape {array.shape}", f"it must have one label for each of the {samples} samples")
    return as_targets(argument, array, samples) if array.ndim == 1 else array


def as_targets(argument: str, y: ArrayLike, rows: int) -> np.ndarray:
    """A float64 vector of finite numbers with one entry a row; a matrix of one column counts as one."""
    vector = _numbers(argument, y)
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.shape != (rows,):
        raise reject(argument, f"shape {vector.shape}", f"it must have one entry for each of the {rows} rows")
    return vector


def check_scale(X: np.ndarray) -> None:
    """Refuse a matrix whose rows are not of norm about 1, or one of whose rows dominates."""
    squares = np.sum(X**2, axis=1)
    mean = float(squares.mean())
    remedy = "divide X by np.sqrt(np.mean(np.sum(X**2, axis=1)))"
    if not SCALE_RANGE[0] <= mean <= SCALE_RANGE[1]:
        raise reject("X", f"mean squared row norm {mean:.4g}", f"rows must have norm about 1: {remedy}")
    largest = float(squares.max()) / mean
    if largest > LARGEST_ROW:
        given = f"row {int(squares.argmax())} with {largest:.3g} times the mean squared norm"
        raise reject("X", given, "no row may dominate: rescale or drop it")


def read_data(
    X: Matrix, y: ArrayLike, X_test: Matrix | None, y_test: ArrayLike | None, several: bool = False
) -> OwnData:
    """The user's arrays, checked one by one and against each other; `several`: samples may have several rows."""
    sparse = hasattr(X, "toarray")
    if several and not sparse and np.ndim(X) != 2:  # type: ignore[arg-type]
        return _read_samples(X, y, X_test, y_test)
    matrix = as_matrix("X", X)
    targets = as_targets("y", y, len(matrix))
    if X_test is None and y_test is None:
        return OwnData(matrix, targets, None, None)
    if X_test is None or y_test is None:
        raise reject("X_test", "only one of X_test and y_test", "give both or neither")
    tests = as_matrix("X_test", X_test)
    if tests.shape[1] != matrix.shape[1]:
        raise reject("X_test", f"{tests.shape[1]} columns", f"X has {matrix.shape[1]}")
    return OwnData(matrix, targets, tests, as_targets("y_test", y_test, len(tests)))


def _read_samples(X: Matrix, y: ArrayLike, X_test: Matrix | None, y_test: ArrayLike | None) -> OwnData:
    """Samples with several rows, and labels of any shape."""
    samples = as_samples("X", X)
    labels = as_labels("y", y, len(samples))
    if X_test is None and y_test is None:
        return OwnData(samples, labels, None, None)
    if X_test is None or y_test is None:
        raise reject("X_test", "only one of X_test and y_test", "give both or neither")
    tests = as_samples("X_test", X_test)
    if tests.shape[1:] != samples.shape[1:]:
        raise reject("X_test", f"samples of shape {tests.shape[1:]}", f"those of X are of shape {samples.shape[1:]}")
    fresh = as_labels("y_test", y_test, len(tests))
    if fresh.shape[1:] != labels.shape[1:]:
        raise reject("y_test", f"labels of shape {fresh.shape[1:]}", f"those of y are of shape {labels.shape[1:]}")
    return OwnData(samples, labels, tests, fresh)


def signs(y: np.ndarray, binary: bool | None) -> bool:
    """Whether labels are ±1: as the user says, which is checked, or found out where they do not say."""
    alike = bool(np.all(np.abs(y) == 1))
    if binary is None:
        return alike
    if flag("binary", binary) and not alike:
        raise reject("y", y[np.abs(y) != 1][0], "binary labels must be ±1; recode them")
    return binary
