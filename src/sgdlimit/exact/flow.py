"""Gradient flow on a quadratic: how a mode of eigenvalue x relaxes, and the curves and kernels that follow."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..measure.pace import Moving
from ..problem import Problem
from .volterra import Curve


def shrink(x: np.ndarray, ridge: float, u: Any) -> np.ndarray:
    """(1 − e^{−(x+λ)u})/(x+λ), entire in x: u where x + λ = 0. Axes (times, x)."""
    total = x + ridge
    product = np.multiply.outer(np.asarray(u, dtype=np.float64), total)
    return np.divide(
        -np.expm1(-product),
        total,
        out=np.broadcast_to(np.asarray(u)[..., None], product.shape).astype(float),
        where=total > 0,
    )


class Asked(NamedTuple):
    """Least squares, ready to be solved."""

    problem: Problem
    ridge: float
    tau: float
    t: np.ndarray
    moving: Moving
    kernels: bool


class Found(NamedTuple):
    """Its curves by name, and how many nodes the spectrum took."""

    values: dict[str, np.ndarray]
    nodes: int


def two_time(
    mu: tuple[np.ndarray, np.ndarray],
    ridge: float,
    delta: float,
    u: np.ndarray,
    pace: np.ndarray,
    memory: np.ndarray,
    toward: np.ndarray,
    teacher2: float,
    spread: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> dict[str, np.ndarray]:
    """`lem:dmft_ridge_solution`: R_θ = K_0, R_ℓ = −K_1/δ, C_θ from C*_θ (`eq:C_theta_ridge_sol`).

    Retarded kernels vanish for t < t'. `mu`: nodes and weights of the law of x.
    """
    x, w = mu
    count = len(u)
    correlation, response, ell = np.empty((count, count)), np.zeros((count, count)), np.zeros((count, count))
    for i in range(count):
        past = slice(0, i + 1)
        decay = np.exp(-np.multiply.outer(u[i] - u[past], x + ridge))
        response[i, past] = decay @ w
        ell[i, past] = -pace[i] * pace[past] * (decay @ (w * x)) / delta
        star = spread(np.full(i + 1, u[i]), u[past]) + (decay * memory[past]) @ (w * x)
        correlation[i, past] = correlation[past, i] = star + toward[i] + toward[past] - teacher2
    kernels = {"C_theta": correlation, "R_theta": response, "R_ell": ell, "Gamma": pace}
    return {name: value[..., None, None] for name, value in kernels.items()}


def found(
    asked: Asked,
    curve: Curve,
    mu: tuple[np.ndarray, np.ndarray],
    test: np.ndarray,
    norm: np.ndarray,
    overlap: np.ndarray,
    toward: np.ndarray,
    teacher2: float,
    spread: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Found:
    """All curves by name, from the training error and what a theory makes of it."""
    values = {
        "train_loss": curve.train / 2,
        "test_loss": test / 2,
        "train_error": curve.train,
        "test_error": test,
        "norm": norm[:, None, None],
    }
    if asked.problem.k:
        values["overlap"] = overlap[:, None, :]
    if asked.kernels:
        speed, ratio = asked.moving.speed, float(asked.problem.sample_ratio)
        pace = np.ones(len(asked.t)) if speed is None else speed(asked.t)
        values |= two_time(mu, asked.ridge, ratio, curve.flow_time, pace, curve.memory, toward, teacher2, spread)
    return Found(values, len(mu[0]))
