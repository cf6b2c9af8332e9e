"""Ridge regression by Volterra equations: in the limit (`prop:dmft_ridge`; λ = 0: `prop:dmft_linear`), on `eq:mp_law`,
and on the user's own matrix, with its own eigenvalues: homogenised SGD (Paquette et al.)."""

import warnings

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from .. import grid
from ..algorithms import SGD, SGF, Algorithm, GradientFlow
from ..algorithms.base import check_share, require
from ..errors import DOUBLE, DivergenceWarning, InputError, elsewhere, flag, instance, real, reject, words
from ..measure.pace import pace_of
from ..own_data import Matrix, check_scale, read_data, signs
from ..problem import Constant, Linear, Noise, NoPenalty, Problem, Ridge, Square
from ..problem.penalties import PenaltyLike
from ..progress import Progress
from ..results import Solution, provenance
from . import volterra
from .flow import Modes, shrink
from .labels import labelled
from .stability import largest_stable, ridge_of, stable_temperature_of_rows, stable_temperature_on, verdict


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
    if not algorithm.how.plain:
        raise reject(
            "algorithm.step", "parts of a step", "least_squares knows η times the gradient alone; use sl.solve"
        )
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


UNMIXED = 0.1  # share of the noise's feedback τ/τ_max that taking all residuals alike may miss


def least_squares_on_data(
    X: Matrix,
    y: ArrayLike,
    algorithm: Algorithm | float | None = None,
    ridge: float | None = None,
    t_max: float | None = None,
    *,
    penalty: PenaltyLike | None = None,
    temperature: float | None = None,
    X_test: Matrix | None = None,
    y_test: ArrayLike | None = None,
    binary: bool | None = None,
    times: ArrayLike | None = None,
    progress: bool | None = None,
) -> Solution:
    """Learning curves of SGD on ½(Xθ−y)² + ½λ|θ|²/d, from θ = 0, for this very matrix.

    algorithm: SGD(τ), SGF(τ) or GradientFlow(); `temperature=τ` says the same. penalty: Ridge(λ); so does `ridge=λ`.
    Rows of X should have norm about 1 and no row should dominate. The noiseless part is exact; the noise uses the
    average squared residual for every sample, which is exact when residuals are well mixed (large n and d); where they
    are not, `status` says so. Time is t = ηk/d. Train (and, given X_test and y_test, test) error is the mean squared
    residual; for labels ±1 (`binary`, found out where not said) the zero–one error, of Gaussian predictions.
    """
    data = read_data(X, y, X_test, y_test)
    check_scale(data.X)
    if algorithm is not None and temperature is not None:
        raise reject("temperature", temperature, "the algorithm has its own; give one of them")
    if penalty is not None and ridge is not None:
        raise reject("ridge", ridge, "the penalty has its own strength; give one of them")
    given = temperature if algorithm is None else algorithm
    if not isinstance(given, Algorithm):  # a number is the temperature of SGF
        why = "τ = η/B must be a number ≥ 0, or give an algorithm such as sl.SGD(0.4)"
        given = GradientFlow() if given is None else SGF(real("temperature", given, least=0, why=why))
    algorithm, tau = given, temperature_of(given)
    instance("penalty", penalty, (Ridge, NoPenalty, type(None)), "sl.Ridge(λ) or sl.NoPenalty() here")
    lam = ridge_of(penalty or NoPenalty())
    if ridge is not None:
        lam = real("ridge", ridge, least=0, why="λ must be a number ≥ 0")
    assert lam is not None
    binary = signs(data.y, binary)
    t = grid.resolve(t_max, times)
    check_share(algorithm, t)
    n, d = data.X.shape
    delta = n / d
    left, singular, right = np.linalg.svd(data.X, full_matrices=False)
    x = singular**2 / delta  # eigenvalues of A = XᵀX/δ
    target = left.T @ data.y
    outside = max(float(data.y @ data.y - target @ target), 0.0)  # what no θ can fit

    def weights_at(u: np.ndarray) -> np.ndarray:
        """Noiseless θ in the eigenbasis, (times, Q)."""
        return shrink(x, lam, u) * (singular * target / delta)

    def source(u: np.ndarray) -> np.ndarray:
        return (np.sum((weights_at(u) * singular - target) ** 2, axis=1) + outside) / n

    pace = pace_of(Constant(), algorithm, float(t[-1]))
    with Progress("least squares", 1.0, progress) as bar:
        curve = volterra.solve(source, 2 * (x + lam), x**2 / d, tau, t, pace, bar.advance)
    theta = weights_at(t)
    noise = curve.memory * x  # variance of each mode
    norm = (np.sum(theta**2, axis=1) + noise.sum(axis=1)) / d
    values = {"train_loss": curve.train / 2, "train_error": curve.train, "norm": norm[:, None, None]}
    if binary:
        values["train_error"] = _wrong_signs(theta, noise, left * singular, data.y)
    if data.X_test is not None and data.y_test is not None:
        modes = data.X_test @ right.T
        mean = np.mean((theta @ modes.T - data.y_test) ** 2, axis=1)
        # (1/n_test) Tr[X_te Cov X_teᵀ]: the test covariance need not be isotropic.
        values["test_error"] = mean + noise @ np.mean(modes**2, axis=0)
        values["test_loss"] = values["test_error"] / 2
        if binary:
            values["test_error"] = _wrong_signs(theta, noise, modes, data.y_test)
    mixed = stable_temperature_on(x, np.full(len(x), 1 / d), lam)
    limit = None if algorithm.scheduled else stable_temperature_of_rows(left * singular, x, lam, delta)
    keep, status, message = verdict(curve.train, t, tau, None if limit is None else mixed)
    if limit is not None and status == "complete" and tau / limit - tau / mixed > UNMIXED:
        squares = np.sum(data.X**2, axis=1)
        message = f"rows differ: the largest squared norm is {squares.max() / squares.mean():.3g} times the mean, "
        message += f"τ·max|x|² = {tau * squares.max():.3g}; SGD is stable on this matrix up to τ = {limit:.3g}"
        if tau >= limit:
            message += f", and τ = {tau:g} is above: it diverges; this curve, which takes residuals alike, does not"
        else:
            message += (
                f"; the curve takes residuals alike, and its noise is off at τ = {tau:g}: rescale the heaviest rows"
            )
        status = "unreliable"
        warnings.warn(message, DivergenceWarning if tau >= limit else RuntimeWarning, stacklevel=2)
    options = {"samples": n, "dim": d, "ridge": lam, "t_max": float(t[-1])}
    limits = {"stable_temperature": limit, "stable_temperature_if_mixed": mixed}
    about = provenance("least squares on data (homogenised SGD)", None, algorithm, options=options, status=status,
                       message=message, diagnostics=limits)  # fmt: skip
    return Solution(*labelled(values, t[:keep]), about)


def _wrong_signs(theta: np.ndarray, noise: np.ndarray, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """P(sign of a Gaussian prediction is not y), averaged over rows; a half where the prediction is zero."""
    mean, spread = theta @ rows.T * np.sign(y), np.sqrt(np.clip(noise, 0.0, None) @ rows.T**2)
    wrong = np.where(spread > 0, ndtr(-mean / np.where(spread > 0, spread, 1.0)), 0.5 * (1 - np.sign(mean)))
    return np.mean(wrong, axis=1)
