"""Gradient flow on a quadratic: how a mode of eigenvalue x relaxes, and the clock it does so by."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np

from .._tree import tree
from ..algorithms import Algorithm
from ..problem import Constant, Problem
from ..problem.schedules import ScheduleLike, course, factors
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


@final
@tree
@dataclass(frozen=True)
class Heat(ScheduleLike):
    """τ(t)/τ = B/B(t)."""

    algorithm: Algorithm

    @property
    def breaks(self) -> Any:
        """Those of the share."""
        return getattr(self.algorithm.batch_share, "breaks", ())

    def __call__(self, t: Any) -> Any:
        """1 over the share of the batch in use, in whole samples."""
        return 1 / self.algorithm.portion(t)


def heat_of(algorithm: Algorithm) -> list[tuple[str, ScheduleLike]]:
    """By argument what of an algorithm changes in time: its temperature, where the batch does."""
    return [(f"{type(algorithm).__name__}.batch_share", Heat(algorithm))] if algorithm.scheduled else []


class Moving(NamedTuple):
    """What changes in time, as functions of arrays of times; None for 1."""

    speed: Callable[[np.ndarray], np.ndarray] | None
    """s(t)."""
    heat: Callable[[np.ndarray], np.ndarray] | None
    """τ(t)/τ."""
    knots: np.ndarray
    """Times at which either changes."""
    longest: float
    """∫|s|: the largest time of the flow."""


def moving(schedule: ScheduleLike, algorithm: Algorithm, t_max: float) -> Moving:
    """A schedule and the temperature of an algorithm up to t_max."""
    speed = heat = None
    knots, longest = [np.zeros(0)], t_max
    if not isinstance(schedule, Constant):
        t, s, _ = seen = course("schedule", schedule, t_max)
        speed, longest = partial(factors, "schedule", schedule), float(np.trapezoid(np.abs(s), t))
        knots.append(seen.knots())
    for name, own in heat_of(algorithm):
        heat = partial(factors, name, own)
        knots.append(course(name, own, t_max).knots())
    return Moving(speed, heat, np.unique(np.concatenate(knots)), longest)


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
