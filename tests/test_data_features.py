"""Random features: moments and spectrum against draws, limits that are known, and true features against the theory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_agrees

import sgdlimit as sl
from sgdlimit.problem import GaussianEntries
from sgdlimit.problem.random_features import Features
from sgdlimit.simulation.trial import build

relu, erf = jax.nn.relu, jax.scipy.special.erf


def problem(law, **changes):
    words = {"loss": sl.Square(), "penalty": sl.Ridge(0.05), "sample_ratio": 1.5, "teacher": sl.Normal(1.0)}
    return sl.Problem(**words | {"noise": sl.Normal(0.1), "data": law} | changes)


def identity(x):
    return x


def test_moments_of_activations():
    """relu: κ_0 = 1/√2π, κ_1 = ½, E σ² = ½. erf: κ_1 = 2/√(3π), E σ² = (2/π) arcsin ⅔."""
    mean, linear, rest = sl.RandomFeatures(relu, 1.0).moments()
    np.testing.assert_allclose([mean, linear, rest], [1 / np.sqrt(2 * np.pi), 0.5, 0.25 - 0.5 / np.pi], atol=1e-6)
    mean, linear, rest = sl.RandomFeatures(erf, 1.0).moments()
    square = 2 / np.pi * np.arcsin(2 / 3)
    np.testing.assert_allclose([mean, linear, rest], [0.0, 2 / np.sqrt(3 * np.pi), square - 4 / (3 * np.pi)], atol=1e-6)


@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.5])
def test_spectrum_and_teacher(ratio):
    """Eigenvalues of true features at d = 800, and what they tell of the teacher by least squares."""
    law, dim = sl.RandomFeatures(relu, ratio), 800
    table, mapping = law.table(), law.at(dim)
    assert table.share.sum() == pytest.approx(1.0)

    def teacher(key, count):
        return jax.random.normal(key, (count, 16))

    rows, tests = mapping.draw(jax.random.key(0), GaussianEntries(), jnp.zeros((dim, 16)), teacher)
    assert tests is rows
    assert isinstance(rows, Features)
    F = np.asarray(rows.weights)
    _, linear, rest = mapping.moments
    S = linear**2 * F.T @ F / mapping.inputs + rest * np.eye(dim)
    for power in (1, 2, 3):
        assert table.share @ table.variance**power == pytest.approx(
            np.trace(np.linalg.matrix_power(S, power)) / dim, rel=0.02
        )
    X, r_star = (np.asarray(part) for part in rows.draw(jax.random.key(2), 8 * dim))
    assert np.var(X) * dim == pytest.approx(table.share @ table.variance, rel=0.02)
    theta, _, _, _ = np.linalg.lstsq(X[: 6 * dim], r_star[: 6 * dim], rcond=None)
    left = np.mean((r_star - X @ theta)[6 * dim :] ** 2) / np.mean(r_star**2)
    assert left * (1 - 1 / 6) == pytest.approx(table.unseen, rel=0.08, abs=0.01)
    assert np.mean(np.asarray(rows.theta_star) ** 2) == pytest.approx(
        table.share @ table.factor**2 * np.mean(np.asarray(rows.teacher) ** 2), rel=0.15
    )


def test_linear_features_of_many_inputs_are_iid():
    """σ(u) = u and few features of many inputs: S → 1; and no more is seen than the share of directions."""
    table = sl.RandomFeatures(identity, 1e-4).table()
    np.testing.assert_allclose(table.variance, 1.0, atol=0.05)
    for ratio in (0.3, 4.0):
        assert sl.RandomFeatures(identity, ratio).table().unseen == pytest.approx(max(0.0, 1 - ratio), abs=1e-6)


def test_build():
    """r* of a run is the teacher's on the inputs, θ* its best predictor; the same rows in the test."""
    given = problem(sl.RandomFeatures(erf, 0.5))
    trial, _ = build(given, GaussianEntries(), 200, 4000, 4000, jax.random.key(0), given.data.at(200))
    unseen = given.data.table().unseen
    for X, r_star in ((trial.data.X, trial.data.r_star), (trial.test.X, trial.test.r_star)):
        left = np.asarray(r_star - X @ trial.theta_star)
        assert np.mean(left**2) == pytest.approx(unseen, rel=0.15)
        assert np.abs(np.asarray(X).T @ left / len(left)).max() < 0.02


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sl.RandomFeatures(3.0, 1.0), "RandomFeatures.activation"),
        (lambda: sl.RandomFeatures(lambda x: 0.0 * x + 1, 1.0), "RandomFeatures.activation"),
        (lambda: sl.RandomFeatures(lambda x: jnp.sum(x), 1.0), "RandomFeatures.activation"),
        (lambda: sl.RandomFeatures(relu, 0.0), "RandomFeatures.ratio"),
        (lambda: sl.RandomFeatures(relu, 1e-12).at(24), "RandomFeatures.ratio"),
        (lambda: sl.RandomFeatures(relu, 1.0, 1), "RandomFeatures.nodes"),
        (
            lambda: sl.solve(problem(sl.RandomFeatures(relu, 1.0), penalty=sl.SmoothL1(0.1)), sl.SGD(0.4), 1.0),
            "penalty",
        ),
        (lambda: sl.solve(problem(sl.RandomFeatures(relu, 1.0)), sl.SGD(0.4), 1.0, snapshots=[1.0]), "snapshots"),
        (lambda: sl.solve(problem(sl.RandomFeatures(relu, 1.0)), sl.SGD(0.4), 1.0, test_data=sl.Iid()), "test_data"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(sl.InputError, match=f"^{said}"):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.5, 2.0])
@pytest.mark.parametrize("activation", [relu, erf], ids=["relu", "erf"])
def test_theory_and_sgd(activation, ratio):
    """Logistic and square loss, d = 1200 true features, 10 trials, t = 8."""
    times = [1.0, 4.0, 8.0]
    square = problem(sl.RandomFeatures(activation, ratio))
    for given in (square, replace(square, loss=sl.Logistic(), labels=sl.Sign())):
        solution = sl.solve(given, sl.SGD(0.4), times=times, tol=0.01)
        runs = sl.simulate(given, sl.SGD(0.4, batch_size=4), dim=1200, trials=10, times=times)
        assert_agrees(sl.compare(solution, runs), trials=10)
