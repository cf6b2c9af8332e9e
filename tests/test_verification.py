"""Distances, rates, and the theorems of the paper at small size; the full reach is among the slow tests."""

import numpy as np
import pytest

from sgdlimit.verification import FULL, Scaling, discretisation, distances, strong_error, verify
from sgdlimit.verification.everything import logistic, ridge
from sgdlimit.verification.laws import SAMPLING, between_moments, between_points, universality


def test_distance_between_points():
    """In one dimension sorting is optimal; a shift costs its length; a permutation nothing."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((60, 1)), rng.exponential(size=(60, 1))
    assert between_points(a, b) == pytest.approx(np.sqrt(np.mean((np.sort(a, axis=0) - np.sort(b, axis=0)) ** 2)))
    cloud = rng.standard_normal((60, 3))
    assert between_points(cloud, cloud[::-1] + np.array([0.3, 0.0, 0.4])) == pytest.approx(0.5)


def test_distance_between_moments():
    """Closed form for commuting covariances, and a lower bound for any clouds with these moments."""
    one, zero = np.diag([1.0, 4.0]), np.zeros(2)
    assert between_moments(zero, one, np.array([3.0, 0.0]), np.diag([9.0, 1.0])) == pytest.approx(np.sqrt(9 + 4 + 1))
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((80, 3)), rng.exponential(size=(80, 3)) @ rng.standard_normal((3, 3))
    moments = [(c.mean(axis=0), np.cov(c.T, bias=True)) for c in (a, b)]
    assert between_moments(*moments[0], *moments[1]) <= between_points(a, b)


def test_fitted_power():
    at = np.array([1.0, 2.0, 4.0, 8.0])
    curve = Scaling("x", "d", at, 3 * at**-0.5, 0.01 * at**-0.5)
    assert curve.power.exponent == pytest.approx(-0.5)
    assert curve.power.prefactor == pytest.approx(3.0)
    assert curve.falls
    assert not Scaling("x", "d", at, 3 * at**0.5, 0.01 * at).falls
    assert Scaling("x", "γ", at, 3 * at**0.5, 0.01 * at).falls


def test_strong_error_is_of_order_gamma():
    """`lem:sgf_discrete` at high temperature: the mean square error falls as γ, for weights and samples alike."""
    for curve in strong_error(logistic(), 2.0, dim=48, t_max=1.0, steps=1024, strides=(8, 16, 32, 64), trials=8):
        assert abs(curve.power.exponent - 1) < 0.2
        assert curve.falls


def test_strong_error_of_a_known_process():
    """Without forces (a flat loss), θ' = −λθ: Euler's error against the fine path has a closed form."""
    import sgdlimit as sl

    flat = sl.Problem(loss=sl.Loss(lambda r, y: 0.0 * r), labels=sl.Noise(), penalty=sl.Ridge(1.0), sample_ratio=1.0,
                      init=sl.Point(1.0))  # fmt: skip
    curve = strong_error(flat, 1.0, dim=4, t_max=1.0, steps=64, strides=(8, 16), trials=2)[0]
    for gamma, value in zip(curve.at, curve.value, strict=True):
        k = np.arange(1, round(1 / gamma) + 1)
        expected = np.max(((1 - gamma) ** k - (1 - 1 / 64) ** (k * round(64 * gamma))) ** 2)
        assert value == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_whole_verification():
    """Every statement of `sgdlimit verify`, at full reach."""
    result = verify(FULL)
    print(result.table())
    weights, samples, strong, discrete = result.panels
    for panel in (weights, samples):
        floor = next(c for c in panel.curves if c.label == SAMPLING)
        for curve in panel.curves:
            assert curve.falls, curve.row()
            # as good as independent draws: the same rate
            assert abs(curve.power.exponent - floor.power.exponent) < 4 * np.hypot(curve.power.error, floor.power.error)
        assert universality([c for c in panel.curves if c.label.startswith("SGF")]) < 4
    for curve in strong.curves:
        assert abs(curve.power.exponent - 1) < 0.15, curve.row()
    for curve in discrete.curves:
        assert curve.power.exponent > 0.8, curve.row()


@pytest.mark.filterwarnings("ignore::sgdlimit.UnreliableWarning")  # few samples, or a law that grows
@pytest.mark.slow
def test_parts_take_other_problems():
    """The pieces at small size, away from the defaults."""
    import sgdlimit as sl

    teacher = sl.SparseNormal(0.3, 1.5)
    sparse = sl.Problem(loss=sl.Huber(), penalty=sl.SmoothL1(0.1, 0.3), sample_ratio=1.5, teacher=teacher)
    found = distances(sparse, sl.SGF(0.5), dims=(32, 128, 512), trials=(12, 12, 12), times=(0.5, 1.0), dt=0.1)
    for side in ("theta", "r"):
        assert all(curve.falls for curve in found[side])
    rates = [c.power.exponent for c in discretisation(ridge(), 0.5, gammas=(0.25, 0.125), samples=2**14)]
    assert rates[0] > 0.8
