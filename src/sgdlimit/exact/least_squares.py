"""Ridge regression in the limit (`prop:dmft_ridge`; λ = 0: `prop:dmft_linear`): Volterra equations on `eq:mp_law`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .. import grid
from .._vocabulary import DOUBLE, elsewhere, words
from ..algorithms import SGD, SGF, Algorithm, GradientFlow
from ..algorithms.base import check_share, require
from ..errors import InputError, flag, reject
from ..measure.pace import pace_of
from ..problem import Linear, Noise, Problem, Square
from ..progress import Progress
from ..results import Solution, Variable
from ..results.provenance import provenance
from ..results.variables import dims, ordered
from . import volterra
from .flow import Modes, shrink
from .grouped import Grouped, grouped
from .spectrum import marchenko_pastur
from .stability import largest_stable, ridge_of, verdict


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
    pace, table, delta = pace_of(problem.schedule, algorithm, float(t[-1])), problem.data.table(), problem.sample_ratio
    if problem.data.iid:
        one = marchenko_pastur(delta, pace.longest)
        rule = Grouped(one.nodes, one.weights[None])
    else:
        rule = grouped(table, delta, pace.longest)
    start = _start(problem)
    modes = Modes(
        rule, table.variance, ridge, float(delta), np.einsum("qab,qn->abn", start.pair, rule.parts), start.noise
    )
    if tau == 0 and pace.speed is None:  # no noise to remember
        curve = volterra.Curve(modes.train(t), np.zeros((len(t), len(rule.nodes))), t)
    else:
        kernel = 2 * (rule.nodes + ridge), rule.weights * rule.nodes**2
        with Progress("least squares", 1.0, progress) as bar:
            curve = volterra.solve(modes.train, *kernel, tau, t, pace, bar.advance)
    values = _values(problem, modes, start, curve, kernels, pace.at(t))
    limit = largest_stable(problem, algorithm=algorithm)
    keep, status, message = verdict(curve.train, t, tau, limit, frames=4)
    about = provenance(
        "least squares (Volterra)",
        problem,
        algorithm,
        options={"t_max": float(t[-1]), "kernels": kernels},
        status=status,
        message=message,
        diagnostics={"stable_temperature": limit, "quadrature_nodes": len(rule.nodes)},
    )
    return Solution(*labelled(values, t[:keep]), about)


class _Start(NamedTuple):
    """What least squares knows of the weights, group by group, and of the noise."""

    pair: np.ndarray
    """Second moments of (θ⁰, teacher as the labels see it), (g, 2, 2)."""
    cross: np.ndarray
    """E[(θ⁰, teacher seen) θ*], (g, 2, k)."""
    noise: float
    """Variance of the label that no θ explains: E z², and the unseen part of the teacher."""


def _start(problem: Problem) -> _Start:
    table = problem.data.table()
    seen = np.zeros((2, 1 + problem.k))
    seen[0, 0] = 1
    if isinstance(problem.labels, Linear):
        seen[1, 1:] = 1
    gram = table.moments(problem.gram(), 1)
    unseen = table.unseen * float((seen @ problem.gram() @ seen.T)[1, 1])
    noise = float(problem.noise_law.moments(1)[1][0, 0]) + unseen
    return _Start(seen @ gram @ seen.T, (seen @ gram)[:, :, 1:], noise)


def _values(
    problem: Problem, modes: Modes, start: _Start, curve: volterra.Curve, kernels: bool, pace: np.ndarray
) -> dict[str, np.ndarray]:
    """Every variable by name, from the training error and the memory of the noise."""
    x, weights, u = modes.rule.nodes, modes.rule.weights, curve.flow_time
    test = modes.test(u) + curve.memory @ (modes.fresh * x)
    # E[θ θ*ᵀ]: keep·θ⁰ + (1 − left)·teacher, group by group.
    kept, fitted = modes.keep(u) @ modes.rule.parts.T, (x * shrink(x, modes.ridge, u)) @ modes.rule.parts.T
    toward = kept @ start.pair[:, 0, 1] + fitted @ start.pair[:, 1, 1]
    teacher2 = float(problem.data.table().share @ start.pair[:, 1, 1])
    norm = modes.spread(u, u) + curve.memory @ (weights * x) + 2 * toward - teacher2
    values = {
        "train_loss": curve.train / 2,
        "test_loss": test / 2,
        "train_error": curve.train,
        "test_error": test,
        "norm": norm[:, None, None],
    }
    if problem.k:
        values["overlap"] = (kept @ start.cross[:, 0] + fitted @ start.cross[:, 1])[:, None, :]
    return values | (modes.two_time(curve, pace, toward, teacher2) if kernels else {})


def labelled(values: dict[str, np.ndarray], t: np.ndarray) -> tuple[dict[str, Variable], dict[str, np.ndarray]]:
    """Variables and coordinates of a result, at these first of the times that were computed."""
    variables: dict[str, Variable] = {}
    coords = {"time": t, "student": np.arange(1), "student_": np.arange(1)}
    for name in ordered(values):
        both = "earlier" in dims(name)
        variables[name] = Variable(dims(name), values[name][: len(t), : len(t)] if both else values[name][: len(t)])
        coords |= {"earlier": t} if both else {}
    if "overlap" in values:
        coords["teacher"] = np.arange(values["overlap"].shape[2])
    return variables, coords
