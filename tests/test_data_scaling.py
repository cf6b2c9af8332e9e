"""`fit_exponent` on known power laws, and published exponents of least squares on power-law spectra."""

import math

import numpy as np
import pytest

import sgdlimit as sl


def test_an_exact_power_law():
    x = np.geomspace(0.1, 1e4, 30)
    fit = sl.fit_exponent(x, 3.0 * x**-0.7)
    assert fit.exponent == pytest.approx(-0.7, abs=1e-10)
    assert fit.prefactor == pytest.approx(3.0, rel=1e-9)
    assert fit.error < 1e-9
    np.testing.assert_allclose(fit.slopes, -0.7, atol=1e-9)


def test_the_error_covers_the_noise():
    """500 noisy curves on a given window: the error of the fit is the spread of the exponents, to 10 %."""
    rng, x = np.random.default_rng(0), np.geomspace(1, 100, 12)
    fits = []
    for _ in range(500):
        y = x**-1.0
        error = 0.05 * y * np.linspace(0.5, 1.5, 12)
        fits.append(sl.fit_exponent(x, y + error * rng.standard_normal(12), error, window=(1, 100)))
    spread = np.std([fit.exponent for fit in fits])
    assert np.mean([fit.exponent for fit in fits]) == pytest.approx(-1.0, abs=4 * spread / math.sqrt(500) + 2e-3)
    # the error is widened where points scatter beyond theirs: never below, on average a little above
    assert 0.95 * spread < np.mean([fit.fit_error for fit in fits]) < 1.25 * spread


def test_the_window_leaves_out_a_plateau_and_a_start():
    x = np.geomspace(1e-3, 1e9, 73)
    y = 1 / (1 + x) ** 0.5 + 1e-4
    fit = sl.fit_exponent(x, y)
    assert 1 < fit.window[0] < fit.window[1] < 1e7
    assert fit.agrees(-0.5, slack=0.01)
    forced = sl.fit_exponent(x, y, window=(1e6, 1e9))
    assert forced.exponent > -0.45
    assert forced.error > 10 * fit.error


def test_the_error_tells_of_a_bend():
    """A sum of two powers: any window has an exponent between them, and an error that says that it bends."""
    x = np.geomspace(1, 100, 21)
    fit = sl.fit_exponent(x, x**-0.5 + x**-1.0)
    assert -1 < fit.exponent < -0.5
    assert fit.error > 0.01


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"x": [0.0, 1, 2, 3, 40]}, "x"),
        ({"x": [1, 2, 4, 3, 40]}, "x"),
        ({"x": [1, 2, 3]}, "y"),
        ({"x": [1, 2, 3, 4, 5]}, "span"),
        ({"y": [1, 2, -3, 4, 5]}, "positive"),
        ({"y": "curve"}, "y"),
        ({"y_error": [-1, 1, 1, 1, 1]}, "y_error"),
        ({"window": (1.0, 2.0)}, "window"),
        ({"window": 3.0}, "window"),
        ({"span": 0.5}, "span"),
    ],
)
def test_what_is_refused(change, word):
    words = {"x": [1, 2, 4, 8, 40], "y": [5, 4, 3, 2, 1]} | change
    with pytest.raises(sl.InputError, match=word):
        sl.fit_exponent(words.pop("x"), words.pop("y"), **words)


def problem(alpha, beta, delta, groups=64):
    data = sl.PowerLaw(alpha, beta, groups=groups, dim=10**6)
    return sl.Problem(loss=sl.Square(), sample_ratio=delta, teacher=sl.Normal(1.0), data=data)


@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 0.5), (2.0, 0.4), (1.5, 2.5)])
@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_one_pass_is_the_published_exponent(alpha, beta, tau):
    """(α+β−1)/α, and 2 − 1/α where the noise of SGD decays more slowly: to half a percent."""
    case = problem(alpha, beta, math.inf)
    s = case.data.table().variance
    times = np.geomspace(10 / s.max(), 0.02 / s.min(), 41)
    fit = sl.fit_exponent(times, sl.least_squares(case, sl.SGF(tau), times=times)["test_error"])
    published = -min((alpha + beta - 1) / alpha, 2 - 1 / alpha if tau else math.inf)
    assert fit.agrees(published, slack=0.005 * abs(published))


def test_groups_have_converged():
    curves = [
        sl.least_squares(problem(1.5, 0.5, 1e-3, groups), sl.GradientFlow(), times=np.geomspace(1e-4, 1, 9))
        for groups in (64, 256)
    ]
    np.testing.assert_allclose(curves[0]["test_error"], curves[1]["test_error"], rtol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 0.5), (2.0, 0.4), (1.5, 4.0)])
def test_many_passes_are_the_published_exponent(alpha, beta):
    """n^−min(α+β−1, 2α) at the end of gradient flow on n samples: to half a percent."""
    samples, errors = np.geomspace(10, 3000, 11), []
    for n in samples:
        case = problem(alpha, beta, n / 10**6)
        table = case.data.table()
        slowest = np.interp(n, 10**6 * np.cumsum(table.share), table.variance)
        errors.append(sl.least_squares(case, sl.GradientFlow(), times=[1e4 / slowest])["test_error"][0])
    published = -min(alpha + beta - 1, 2 * alpha)
    assert sl.fit_exponent(samples, errors).agrees(published, slack=0.005 * abs(published))
