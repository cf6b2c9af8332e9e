"""Ridge regression in the limit (`prop:dmft_ridge`; λ = 0: `prop:dmft_linear`): Volterra equations on `eq:mp_law`."""

from typing import Any

import numpy as np

from .. import grid
from .._vocabulary import DOUBLE, elsewhere, words
from ..algorithms import SGD, SGF, Algorithm, GradientFlow
from ..algorithms.base import check_share, require
from ..errors import InputError, flag, reject
from ..problem import Linear, Noise, Problem, Square
from ..progress import Progress
from ..results import Solution, Variable
from ..results.provenance import provenance
from ..results.variables import dims, ordered
from . import volterra
from .flow import Asked, Found, found, moving, shrink
from .spectrum import Measure, marchenko_pastur
from .stability import largest_stable, ridge_of, verdict
from .structured import on_groups


def ridge_strength(problem: Problem) -> float:
    """λ of a square-loss problem, or an error that says which limit does apply."""
    elsewhere = "least_squares covers Square() with Ridge(λ) or NoPenalty(), width 1"
    if not isinstance(problem.loss, Square) or problem.width != 1:
        raise reject(
            "problem.loss",
            type(problem.loss).__name__,
            f"{elsewhere}; for other losses use sl.solve",
        )
    if problem.bias or problem.data.classes:
        given = "bias=True" if problem.bias else type(problem.data).__name__
        raise reject("problem", given, "least_squares has neither classes nor an intercept; use sl.solve")
    if not isinstance(problem.labels, Linear | Noise):
        raise reject("problem.labels", type(problem.labels).__name__, "least_squares needs Linear() or Noise() labels")
    strength = ridge_of(problem.penalty)
    if strength is None:
        raise reject("problem.penalty", type(problem.penalty).__name__, elsewhere)
    return strength


def temperature_of(algorithm: Algorithm) -> float:
    """τ of an algorithm that least squares covers: only two moments of the increments enter."""
    if not isinstance(algorithm, GradientFlow | SGF | SGD):
        name = type(algorithm).__name__
        raise reject("algorithm", name, "least_squares covers GradientFlow(), SGF(τ) and SGD(τ); use sl.solve")
    return float(algorithm.noise_temperature)


def covers(problem: Problem, algorithm: Algorithm) -> bool:
    """Whether `least_squares` applies."""
    try:
        ridge_strength(problem)
        temperature_of(algorithm)
    except InputError:
        return False
    return True


_LAWS = "it has second moments and no draws; take sl.solve, or sl.simulate"
_EXACT = "tol variables dt samples replicas seed checkpoint max_seconds functions"
_REMEDIES = DOUBLE | words("snapshots metrics weight_metrics test_data", _LAWS)
_REMEDIES |= words(_EXACT, "it is exact, and quick; leave it out")


@elsewhere(_REMEDIES)
def least_squares(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    times: Any = None,
    kernels: bool = False,
    progress: bool | None = None,
) -> Solution:
    """Exact learning curves of SGD, SGF or gradient flow on ridge regression.

    Train and test error, overlap and norm at `times` (default: 51 points up to `t_max`), for any δ, τ, λ, start
    and schedules of learning rate and batch. `kernels=True` adds the two-time functions C_theta, R_theta, R_ell, Gamma.
    """
    require(problem, algorithm)
    ridge, tau = ridge_strength(problem), temperature_of(algorithm)
    t = grid.resolve(t_max, times)
    check_share(algorithm, t)
    flag("kernels", kernels)
    asked = Asked(problem, ridge, tau, t, moving(problem.schedule, algorithm, float(t[-1])), kernels)
    solved = (_on_iid if problem.data.iid else on_groups)(asked, progress)
    values, train = solved.values, solved.values["train_error"]
    coords = {"time": t, "student": np.arange(1), "student_": np.arange(1)}
    if problem.k:
        coords["teacher"] = np.arange(problem.k)
    if kernels:
        coords["earlier"] = t
    limit = largest_stable(problem, algorithm=algorithm)
    keep, status, message = verdict(train, t, tau, limit, frames=4)
    variables, coords = _cut({name: Variable(dims(name), values[name]) for name in ordered(values)}, coords, keep)
    about = provenance(
        "least squares (Volterra)",
        problem,
        algorithm,
        options={"t_max": float(t[-1]), "kernels": kernels},
        status=status,
        message=message,
        diagnostics={"stable_temperature": limit, "quadrature_nodes": solved.nodes},
    )
    return Solution(variables, coords, about)


def _on_iid(asked: Asked, progress: bool | None) -> Found:
    """Curves on iid entries: one spectrum for all coordinates."""
    problem, ridge, tau, t, (speed, heat, knots, longest), _ = asked
    delta = problem.sample_ratio
    mu = marchenko_pastur(delta, longest)
    x = mu.nodes
    gram, noise = _moments(problem)
    start2, mixed, teacher2 = gram[0, 0], gram[0, 1], gram[1, 1]

    def filters(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """θ = keep·θ⁰ + (1 − left)·θ* + …: what is left of start and teacher, and the noise filter."""
        s = shrink(x, ridge, u)
        return np.exp(-np.multiply.outer(u, x + ridge)), 1 - x * s, s

    def spread(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Noiseless part of E(θ−θ*)(θ'−θ*) (`lem:dmft_ridge_solution`)."""
        (keep, left, s), (keep_, left_, s_) = filters(u), filters(v)
        signal = start2 * keep * keep_ - mixed * (keep * left_ + left * keep_) + teacher2 * left * left_
        return (signal + noise / delta * x * s * s_) @ mu.weights

    def source(u: np.ndarray) -> np.ndarray:
        """train₀ (`eq:dmft_ridge_train0`); δ = ∞ leaves σ² whole."""
        keep, left, _ = filters(u)
        signal = start2 * keep**2 - 2 * mixed * keep * left + teacher2 * left**2
        unfitted = noise / delta * left**2
        return (x * signal + unfitted) @ mu.weights + noise * (1 - 1 / delta)

    with Progress("least squares", 1.0, progress) as bar:
        curve = volterra.solve(source, 2 * (x + ridge), mu.weights * x**2, tau, t, speed, bar.advance, heat, knots)
    u = curve.flow_time
    excess = spread(u, u) + curve.memory @ (mu.weights * x)  # E(θ−θ*)²: `eq:dmft_ridge_test0` + τ H₁∗train
    toward, overlap = _overlaps(problem, mu, ridge, u)
    test = excess + noise
    norm = excess + 2 * toward - teacher2
    return found(asked, curve, mu, test, norm, overlap, toward, teacher2, spread)


def _moments(problem: Problem) -> tuple[np.ndarray, float]:
    """Second moments of (θ⁰, teacher as the labels see it), and E z²."""
    gram = problem.gram()
    seen = np.zeros((2, 1 + problem.k))
    seen[0, 0] = 1
    if isinstance(problem.labels, Linear):
        seen[1, 1:] = 1
    return seen @ gram @ seen.T, float(problem.noise_law.moments(1)[1][0, 0])


def _overlaps(problem: Problem, mu: Measure, ridge: float, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[θ·(teacher seen by the labels)] and E[θ θ*_b] for each teacher unit."""
    gram = problem.gram()
    fitted = (mu.nodes * shrink(mu.nodes, ridge, u)) @ mu.weights
    kept = np.exp(-np.multiply.outer(u, mu.nodes + ridge)) @ mu.weights
    seen = np.ones(problem.k) if isinstance(problem.labels, Linear) else np.zeros(problem.k)
    each = np.multiply.outer(fitted, seen @ gram[1:, 1:]) + np.multiply.outer(kept, gram[0, 1:])
    return each @ seen, each


def _cut(
    variables: dict[str, Variable], coords: dict[str, Any], keep: int
) -> tuple[dict[str, Variable], dict[str, Any]]:
    """Only the times before the divergence."""

    def cut(variable: Variable) -> Variable:
        values = variable.values
        for axis, dim in enumerate(variable.dims):
            if dim in ("time", "earlier"):
                values = np.take(values, np.arange(keep), axis=axis)
        return Variable(variable.dims, values)

    shorter = {name: value[:keep] if name in ("time", "earlier") else value for name, value in coords.items()}
    return {name: cut(v) for name, v in variables.items()}, shorter
