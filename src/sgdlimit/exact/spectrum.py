"""The spectrum of A = XᵀX/δ as a quadrature rule, and what follows from it alone."""

import math
from typing import NamedTuple

import numpy as np

from ..errors import reject

MAX_NODES = 4000
"""Nodes that a dense eigenproblem still gives in seconds."""


class Measure(NamedTuple):
    """A measure on x ≥ 0: integrals are sums `weights @ f(nodes)`."""

    nodes: np.ndarray
    weights: np.ndarray


def upper_edge(sample_ratio: float) -> float:
    """The largest eigenvalue in the limit, λ₊ = (1 + 1/√δ)²."""
    return (1 + 1 / math.sqrt(sample_ratio)) ** 2


def marchenko_pastur(sample_ratio: float, longest: float = 10.0) -> Measure:
    """Gauss rule of the Marchenko–Pastur law (`eq:mp_law`), atom at zero included.

    The law's orthogonal polynomials have the recurrence coefficients α_0 = 1, α_k = 1 + 1/δ, β_k = 1/δ, so that
    Golub–Welsch gives nodes and weights with no end-point to treat, for δ below, at and above 1. Every integrand of
    the theory is an entire function of x of exponential type 2t; its Chebyshev degree at precision 1e-15 is about
    sqrt(70·t·λ₊), and an N-point rule is exact to degree 2N−1. `longest` is the largest t.
    """
    if math.isinf(sample_ratio):
        return Measure(np.ones(1), np.ones(1))
    from scipy.linalg import eigh_tridiagonal

    spread = 1 / sample_ratio
    degree = math.sqrt(70.0 * upper_edge(sample_ratio)) * math.sqrt(longest)
    if 32 + 0.75 * degree > MAX_NODES:
        most = ((MAX_NODES - 32) / 0.75) ** 2 / 70 / upper_edge(sample_ratio)
        raise reject("t_max", f"{longest:.4g}", f"the spectrum at this δ is resolved up to t = {most:.3g}; lower t_max")
    count = 32 + math.ceil(0.75 * degree)
    diagonal = np.full(count, 1 + spread)
    diagonal[0] = 1.0
    nodes, vectors = eigh_tridiagonal(diagonal, np.full(count - 1, math.sqrt(spread)))
    return Measure(np.clip(nodes, 0.0, None), vectors[0] ** 2)


def stieltjes(sample_ratio: float, ridge: float) -> float:
    """∫ dμ(x)/(x+λ), λ > 0: the positive root of λ m²/δ + (λ + 1 − 1/δ) m − 1 = 0 (`eq:R_theta_ridge_freq`, p = 0)."""
    if math.isinf(sample_ratio):
        return 1 / (1 + ridge)
    a, b = ridge / sample_ratio, ridge + 1 - 1 / sample_ratio
    root = math.sqrt(b * b + 4 * a)
    # The stable form of the quadratic formula for either sign of b.
    return 2 / (b + root) if b > 0 else (root - b) / (2 * a)


def stable_temperature(sample_ratio: float, ridge: float) -> float:
    """Largest τ at which least squares stays bounded: `eq:dmft_ridge_errors` with τ∫H₂ = 1, τ = 2/∫ x²/(x+λ) dμ."""
    if ridge == 0:
        return 2.0
    if ridge > 1:  # the closed form below is a small difference of large numbers
        return stable_temperature_on(*marchenko_pastur(sample_ratio, 1.0), ridge)
    return 2 / (1 - ridge + ridge**2 * stieltjes(sample_ratio, ridge))


def stable_temperature_on(nodes: np.ndarray, weights: np.ndarray, ridge: float) -> float:
    """Largest stable τ = 2/∫ x²/(x+λ) of any spectrum, given as nodes and weights; zero eigenvalues add nothing."""
    total = nodes + ridge
    share = np.divide(nodes**2, total, out=np.zeros_like(nodes), where=total > 0)
    return 2 / float(weights @ share)


ITERATION_WORK = 2e11
"""Multiply-adds that the search for an eigenvalue may take: seconds."""


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
