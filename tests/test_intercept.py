"""An intercept: closed forms at square loss, symmetries, and runs at finite size."""

import math

import numpy as np
import pytest
from agreement import assert_agrees, assert_within
from scipy.integrate import solve_ivp

import sgdlimit as sl
from sgdlimit.exact.spectrum import marchenko_pastur

UNEVEN = sl.Uniform(0.2, 1.8)
"""Of mean 1."""


def noisy(noise=UNEVEN, **more):
    """Labels that are noise alone."""
    chosen = {"loss": sl.Square(), "labels": sl.Noise(), "penalty": sl.Ridge(0.2), "sample_ratio": 1.5, "bias": True}
    return sl.Problem(noise=noise, **(chosen | more))


def planted(**more):
    chosen = {"loss": sl.Logistic(), "labels": sl.Sign(), "penalty": sl.Ridge(0.05), "sample_ratio": 2.0}
    return sl.Problem(teacher=sl.Normal(1.0), noise=sl.Uniform(0.1, 0.9), bias=True, **(chosen | more))


def intercept_of_noise(times, mean, lam, delta, s=1.0):
    """β(t) of least squares on labels of this mean: β' = q − ∫K(t − s) q(s) ds with q = mean − β.

    The mean of the samples is one direction of sample space, u₁, and K(t) = u₁ᵀX exp(−(λ + XᵀX/δ)t)Xᵀu₁/δ is a trace.
    """
    law = marchenko_pastur(delta, 1.0)
    x, weight = s * np.asarray(law.nodes), np.asarray(law.weights) / delta

    def velocity(_, state):
        beta, parts = state[0], state[1:]
        return np.concatenate([[mean - beta - weight @ parts], x * (mean - beta) - (lam + x) * parts])

    start = np.zeros(1 + len(x))
    return solve_ivp(velocity, (0, times[-1]), start, t_eval=times, rtol=1e-9, atol=1e-11, method="LSODA").y[0]


@pytest.mark.parametrize(
    "algorithm", [sl.GradientFlow(), sl.SGD(0.5), sl.SGF(0.5)], ids=lambda algorithm: type(algorithm).__name__
)
def test_square_loss_has_a_closed_form(algorithm):
    """The noise of batches leaves a mean that is linear in the weights as it is."""
    times = np.linspace(0.5, 6.0, 12)
    solution = sl.solve(noisy(), algorithm, times=times, samples=16384, dt=0.1)
    value, error = solution.curve("intercept")
    assert_within(value[:, 0] - intercept_of_noise(times, 1.0, 0.2, 1.5), error[:, 0] + 1e-5)


def test_spectrum_of_one_level():
    """Entries of variance s: the closed form with a spectrum s times as wide."""
    times = np.linspace(0.5, 4.0, 8)
    solution = sl.solve(noisy(data=sl.Spectrum([2.0])), sl.GradientFlow(), times=times, samples=16384, dt=0.1)
    value, error = solution.curve("intercept")
    assert_within(value[:, 0] - intercept_of_noise(times, 1.0, 0.2, 1.5, 2.0), error[:, 0] + 1e-5)


def test_labels_of_one_value_are_learned_by_the_intercept_alone():
    """y = 1: at long times β = 1, θ = 0, and no loss is left."""
    solution = sl.solve(noisy(sl.Point(1.0)), sl.GradientFlow(), t_max=40.0, tol=0.02)
    assert abs(solution["intercept"][-1, 0] - 1.0) < 2e-2
    assert solution["test_loss"][-1] < 1e-3


@pytest.mark.parametrize(
    "algorithm", [sl.GradientFlow(), sl.SGD(0.1), pytest.param(sl.SGF(0.001), marks=pytest.mark.slow)], ids=str
)
def test_equal_labels_do_not_run_away(algorithm):
    """y = 1 without a penalty: the force is the same for all samples at first, as the constant among the regressors."""
    solution = sl.solve(noisy(sl.Point(1.0), penalty=sl.NoPenalty(), sample_ratio=2.0), algorithm, t_max=4.0, tol=0.05)
    assert solution.status == "complete"
    value, error = solution.curve("intercept")
    exact = intercept_of_noise(solution.time, 1.0, 0.0, 2.0)
    assert_within((value[:, 0] - exact)[1:], error[1:, 0] + 2e-3)


def test_equal_labels_under_a_force_that_jumps():
    """A hinge pulls all samples alike until the first of them pass its kink."""
    problem = noisy(sl.Point(1.0), loss=sl.Hinge(), penalty=sl.Ridge(0.1), sample_ratio=2.0)
    solution = sl.solve(problem, sl.SGD(0.2), t_max=3.0, tol=0.05)
    assert solution.status == "complete"
    early = solution.time < 0.2
    np.testing.assert_allclose(solution["intercept"][early, 0], solution.time[early], atol=1e-3)


def test_one_pass_has_a_closed_form():
    """dβ/dt = −(β − E y)."""
    solution = sl.online(noisy(sample_ratio=math.inf), sl.SGD(0.5), t_max=4.0, samples=4096)
    np.testing.assert_allclose(solution["intercept"][:, 0], -np.expm1(-solution.time), atol=1e-7)


def test_schedule_moves_the_intercept_too():
    """One pass at a rate s(t): β = 1 − exp(−∫s)."""
    problem = noisy(sample_ratio=math.inf, schedule=sl.PowerDecay(1.0, 1.0))
    solution = sl.online(problem, sl.GradientFlow(), t_max=4.0, samples=4096)
    np.testing.assert_allclose(solution["intercept"][:, 0], 1 - 1 / (1 + solution.time), atol=1e-6)


def test_an_intercept_that_vanishes_by_symmetry():
    """Balanced classes: β is zero up to its error, the other curves are those without it, and tol is met."""
    more = {"loss": sl.Logistic(), "labels": sl.ByClass(), "sample_ratio": 1.5, "penalty": sl.Ridge(0.05)}
    data = sl.Mixture([1.2, -1.2], 0.8)
    solution = sl.solve(sl.Problem(data=data, bias=True, **more), sl.SGD(0.5), t_max=2.0, tol=0.05)
    plain = sl.solve(sl.Problem(data=data, **more), sl.SGD(0.5), t_max=2.0, tol=0.05, seed=1)
    assert solution.status == "complete"
    value, error = solution.curve("intercept")
    assert_within(value[1:], error[1:] + 1e-9)
    for name in ("train_loss", "test_loss", "norm"):
        (a, da), (b, db) = solution.curve(name), plain.curve(name)
        assert_within(a - b, np.hypot(da, db) + 1e-9)


CASES = {
    "planted": (planted(), sl.SGD(0.5, batch_size=4)),
    "proportional": (planted(), sl.ProportionalSGD(0.3)),
    "persistent": (planted(), sl.PersistentSGD(0.3, 1.0)),
    "shuffled": (planted(), sl.ShuffledSGD(1.0, batch_size=4)),
    "particles": (planted(penalty=sl.SmoothL1(0.1, 0.3)), sl.SGF(0.3)),
    "flow": (planted(data=sl.Spectrum([2.0, 0.5])), sl.GradientFlow()),
    "mixture": (
        sl.Problem(
            loss=sl.Logistic(), labels=sl.ByClass(), penalty=sl.Ridge(0.05), sample_ratio=2.0, bias=True,
            data=sl.Mixture([1.2, -0.4], 0.8, [0.8, 0.2]),
        ),
        sl.SGD(0.5, batch_size=4),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [case if case == "planted" else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_against_runs(case):
    problem, algorithm = CASES[case]
    times = np.linspace(0.0, 2.0, 5)
    steps = {"dt": 0.1} if algorithm.discrete else {}
    solution = sl.solve(problem, algorithm, times=times, samples=8192, dt=0.1)
    runs = sl.simulate(problem, algorithm, dim=400, trials=8, times=times, seed=3, **steps)
    assert runs["theta"].shape[-2:] == (400, 1)  # the constant feature is none of the coordinates
    assert_agrees(sl.compare(solution, runs), 8)


def test_update_is_that_of_a_constant_feature():
    """One step of SGD by hand: β moves by −(η/(B d)) Σ ℓ, without penalty."""
    problem = noisy(penalty=sl.Ridge(50.0))
    runs = sl.simulate(problem, sl.SGD(0.5, batch_size=45), dim=30, trials=1, times=[0.75], dtype="float64")  # B = n
    z = runs["z"][0]
    np.testing.assert_allclose(runs["intercept"][0, -1, 0], 22.5 / 30 * z.mean(), rtol=1e-12)


def test_refused_by_name():
    with pytest.raises(sl.InputError, match="bias"):
        noisy(bias="yes")
    with pytest.raises(sl.InputError, match="intercept"):
        sl.least_squares(noisy(), sl.SGF(0.1), t_max=1.0)
    with pytest.raises(sl.InputError, match="intercept"):
        sl.references.fixed_point(noisy(), sl.SGF(0.1), t_max=1.0)
