"""Wasserstein distances W₂: between clouds of points, and between Gaussian laws."""

import numpy as np

from .._linalg import root_of


def between_points(first: np.ndarray, second: np.ndarray) -> float:
    """W₂ of two clouds of equally many points, shape (points, dimension): the optimal assignment, exactly."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    cost = cdist(first, second, "sqeuclidean")
    rows, columns = linear_sum_assignment(cost)
    return float(np.sqrt(cost[rows, columns].mean()))


def between_moments(mean: np.ndarray, covariance: np.ndarray, mean_: np.ndarray, covariance_: np.ndarray) -> float:
    """W₂ of two Gaussian laws (Bures); for any laws with these moments a lower bound (Gelbrich).

    |μ − μ'|² + Tr[C + C' − 2(C^½ C' C^½)^½].
    """
    root = root_of(covariance)
    cross = root_of(root @ covariance_ @ root)
    square = np.sum((mean - mean_) ** 2) + np.trace(covariance + covariance_ - 2 * cross)
    return float(np.sqrt(max(square, 0.0)))
