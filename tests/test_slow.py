"""Statistical tests that need minutes: the limits against independent simulation at growing dimension."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_agrees, assert_within
from test_gallery import module_of

import sgdlimit as sl

pytestmark = pytest.mark.slow

SETTINGS = [(2.0, 0.4, 0.1), (0.5, 0.8, 0.3), (1.0, 0.2, 0.0)]


def ridge_problem(delta, ridge):
    return sl.Problem(
        loss=sl.Square(), penalty=sl.Ridge(ridge), sample_ratio=delta, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
    )


@pytest.mark.parametrize(("delta", "tau", "ridge"), SETTINGS)
def test_volterra_against_sgd(delta, tau, ridge):
    """20 trials at d = 2000: every recorded point of every variable within 4 combined standard errors."""
    problem, algorithm = ridge_problem(delta, ridge), sl.SGD(tau, batch_size=4)
    runs = sl.simulate(problem, algorithm, dim=2000, trials=20, t_max=8.0, seed=1)
    report = sl.compare(runs, sl.least_squares(problem, algorithm, t_max=8.0))
    print(report)
    assert report.largest <= 4.0, report


@pytest.mark.parametrize(("delta", "tau", "ridge"), SETTINGS)
def test_difference_to_volterra_shrinks_with_dimension(delta, tau, ridge):
    """The deviation of a single run falls about as 1/√d: a factor 4 from d = 250 to d = 4000."""
    problem, algorithm = ridge_problem(delta, ridge), sl.SGD(tau, batch_size=4)
    gaps = {}
    for dim in (250, 1000, 4000):
        runs = sl.simulate(problem, algorithm, dim=dim, trials=12, t_max=6.0, seed=2)
        theory = sl.least_squares(problem, algorithm, times=runs.time)
        gaps[dim] = np.array(
            [np.sqrt(np.mean((runs[name] - theory[name]) ** 2)) for name in ("train_error", "test_error")]
        )
    print(gaps)
    assert np.all(gaps[250] > gaps[1000])
    assert np.all(gaps[1000] > gaps[4000])
    ratio = gaps[250] / gaps[4000]
    assert np.all((ratio > 2) & (ratio < 8)), ratio


def test_online_logistic_against_one_pass_sgd():
    problem = sl.Problem(
        loss=sl.Logistic(),
        labels=sl.Sign(),
        penalty=sl.Ridge(0.05),
        sample_ratio=math.inf,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.2),
    )
    algorithm = sl.SGD(1.5, batch_size=2)
    runs = sl.simulate(problem, algorithm, dim=1500, trials=16, t_max=5.0, seed=1)
    report = sl.compare(runs, sl.online(problem, algorithm, t_max=5.0))
    print(report)
    assert report.largest <= 4.0, report


def test_online_erf_network_against_one_pass_sgd():
    """Two-layer erf network, m = 2, teacher width 2."""
    erf = jax.scipy.special.erf
    problem = sl.Problem(
        loss=sl.TwoLayer(erf),
        labels=sl.TwoLayerLabels(erf),
        sample_ratio=math.inf,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1),
        init=sl.Normal(0.5),
        width=2,
        teacher_width=2,
    )
    algorithm = sl.SGD(0.5, batch_size=2)
    runs = sl.simulate(problem, algorithm, dim=1500, trials=16, t_max=6.0, seed=1)
    report = sl.compare(runs, sl.online(problem, algorithm, t_max=6.0))
    print(report)
    assert report.largest <= 4.0, report


def test_online_particles_against_one_pass_sgd():
    """A nonlinear penalty and a sparse teacher: the law of θ is not Gaussian."""
    problem = sl.Problem(
        loss=sl.Huber(1.0),
        penalty=sl.SmoothL1(0.2, 0.1),
        sample_ratio=math.inf,
        teacher=sl.SparseNormal(0.2, 2.0),
        noise=sl.Normal(0.5),
    )
    algorithm = sl.SGD(0.8, batch_size=2)
    runs = sl.simulate(problem, algorithm, dim=1500, trials=16, t_max=4.0, seed=1)
    assert_agrees(sl.compare(runs, sl.online(problem, algorithm, t_max=4.0)), trials=16)


@pytest.mark.parametrize("entries", ["gaussian", "rademacher", "uniform", "sparse", "exponential"])
def test_universality_of_least_squares(entries):
    """The entries of X do not matter: every law against the same exact curve."""
    law = (lambda key, shape: jax.random.exponential(key, shape) - 1) if entries == "exponential" else entries
    problem, algorithm = ridge_problem(2.0, 0.1), sl.SGD(0.5, batch_size=4)
    runs = sl.simulate(problem, algorithm, dim=1000, trials=12, t_max=6.0, entries=law, seed=3)
    report = sl.compare(runs, sl.least_squares(problem, algorithm, t_max=6.0))
    print(entries, report)
    assert_agrees(report, trials=12)


@pytest.mark.parametrize("algorithm", [sl.SGD(1.0, batch_size=4), sl.SGF(1.0)], ids=["SGD", "SGF"])
def test_universality_of_logistic_regression(algorithm):
    """No exact curve yet: each law against Gaussian entries."""
    problem = sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.05), sample_ratio=2.0, teacher=sl.Normal(1.0)
    )
    words = {"dim": 600, "trials": 16, "times": np.linspace(0, 4, 9)}
    reference = sl.simulate(problem, algorithm, seed=1, **words)
    for seed, entries in enumerate(("rademacher", "uniform", "sparse")):
        other = sl.simulate(problem, algorithm, seed=10 + seed, entries=entries, **words)
        report = sl.compare(other, reference)
        print(entries, report)
        assert_agrees(report, trials=16)


def test_own_data(tmp_path):
    """Diabetes and digits: theory and SGD on the same matrix within 4 %."""
    module = module_of(Path(__file__).parent.parent / "examples" / "own_data.py")
    for report in module.main(tmp_path / "own_data.png").values():
        train = report["train_loss"]
        assert np.max(np.abs(train.second / train.first - 1)) < 0.04


def test_reshuffled_epochs_differ_from_fresh_draws():
    """Logistic regression at τ = 2, δ = 1.5, t = 6: the overlap is about 9 % larger with reshuffling."""
    problem = sl.Problem(
        loss=sl.Logistic(),
        labels=sl.Sign(),
        penalty=sl.Ridge(0.01),
        sample_ratio=1.5,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1),
    )
    fresh, shuffled = (
        sl.simulate(problem, kind(2.0, batch_size=2), dim=2000, trials=10, times=[0.0, 6.0]).curve("overlap")
        for kind in (sl.SGD, sl.ShuffledSGD)
    )
    ratio = (shuffled[0][1] / fresh[0][1]).item()
    error = ratio * np.hypot(shuffled[1][1] / shuffled[0][1], fresh[1][1] / fresh[0][1]).item()
    print(ratio, error)
    assert_within(ratio - 1.09, error + 0.005, trials=10)
    assert ratio - 5 * error > 1


def test_full_batch_fraction_is_gradient_descent():
    """b = 1 leaves no noise: proportional SGD is gradient descent with step dt, whatever the seed of the batches."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 60)) / np.sqrt(60), rng.normal(size=120)
    runs = sl.simulate_on_data(X, y, sl.ProportionalSGD(1.0), t_max=2.0, dt=0.1, trials=2)
    theta, delta = np.zeros(60), 2.0
    for _ in range(20):
        theta -= 0.1 * X.T @ (X @ theta - y) / delta
    np.testing.assert_allclose(runs["theta"][0, 0, :, 0], theta, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(runs["theta"][0], runs["theta"][1])


def test_schedule_against_simulation():
    problem = sl.Problem(
        loss=sl.Square(),
        penalty=sl.Ridge(0.1),
        sample_ratio=1.5,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.5),
        init=sl.Normal(0.7),
        schedule=sl.Schedule(lambda t: 1 / jnp.sqrt(1 + t)),
    )
    algorithm = sl.SGD(1.0, batch_size=2)
    runs = sl.simulate(problem, algorithm, dim=1000, trials=16, t_max=6.0, seed=5)
    theory = sl.least_squares(problem, algorithm, times=runs.time)
    for name in ("train_error", "test_error", "norm", "overlap"):
        mean, error = runs.curve(name)
        assert_within(mean - theory[name], error + 1e-4, trials=16)
