"""Ridge regression in the limit (`prop:dmft_ridge`; λ = 0: `prop:dmft_linear`): Volterra equations on `eq:mp_law`."""

import numpy as np
from numpy.typing import ArrayLike

from .. import grid
from ..algorithms import SGD, SGF, Algorithm, GradientFlow
from ..algorithms.base import check_share, require
from ..errors import DOUBLE, InputError, elsewhere, flag, reject, words
from ..measure.pace import pace_of
from ..problem import Linear, Noise, Problem, Square
from ..progress import Progress
from ..results import Solution, provenance
from . import volterra
from .flow import Modes
from .labels import labelled
from .stability import largest_stable, ridge_of, verdict


def ridge_strength(problem: Problem) -> float:
    """λ of a square-loss problem, or an error that says which limit does apply."""
    elsewhere = "least_squares covers Square() with Ridge(λ) or NoPenalty(), width 1"
    if not isinstance(problem.loss, Square) or problem.width != 1:
        raise reject("problem.loss", type(problem.loss).__name__, f"{elsewhere}; for other losses use sl.solve")
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
    times: ArrayLike | None = None,
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
    pace = pace_of(problem.schedule, algorithm, float(t[-1]))
    modes = Modes.of(problem, ridge, pace.longest)
    x, weights = modes.rule.nodes, modes.rule.weights
    if tau == 0 and pace.steady:  # no noise to remember
        curve = volterra.Curve(modes.train(t), np.zeros((len(t), len(x))), t)
    else:
        with Progress("least squares", 1.0, progress) as bar:
            curve = volterra.solve(modes.train, 2 * (x + ridge), weights * x**2, tau, t, pace, bar.advance)
    values = modes.one_time(curve) | (modes.two_time(curve, pace.speed(t)) if kernels else {})
    limit = largest_stable(problem, algorithm=algorithm)
    keep, status, message = verdict(curve.train, t, tau, limit, frames=4)
    options = {"t_max": float(t[-1]), "kernels": kernels}
    about = provenance("least squares (Volterra)", problem, algorithm, options=options, status=status, message=message,
                       diagnostics={"stable_temperature": limit, "quadrature_nodes": len(x)})  # fmt: skip
    return Solution(*labelled(values, t[:keep]), about)
