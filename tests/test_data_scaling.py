"""Published exponents of least squares on power-law spectra."""

import math

import numpy as np
import pytest
from test_gallery import EXAMPLES, module_of

import sgdlimit as sl

straightest = module_of(next(path for path in EXAMPLES if path.stem == "scaling_laws")).straightest


def test_the_straightest_stretch_of_a_curve_is_found():
    """Between a start that is flat and a plateau."""
    x = np.geomspace(1e-3, 1e9, 73)
    exponent, window, level = straightest(x, 3 / (1 + x) ** 0.5 + 1e-5)
    assert exponent == pytest.approx(-0.5, abs=5e-3)
    assert level == pytest.approx(3, rel=0.05)
    assert 1 < x[window][0] < x[window][-1] < 1e7


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
    exponent, *_ = straightest(times, sl.least_squares(case, sl.SGF(tau), times=times)["test_error"])
    published = -min((alpha + beta - 1) / alpha, 2 - 1 / alpha if tau else math.inf)
    assert exponent == pytest.approx(published, rel=0.005)


def test_groups_have_converged():
    curves = [
        sl.least_squares(problem(1.5, 0.5, 1e-3, groups), sl.GradientFlow(), times=np.geomspace(1e-4, 1, 9))
        for groups in (64, 256)
    ]
    np.testing.assert_allclose(curves[0]["test_error"], curves[1]["test_error"], rtol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 0.5), (2.0, 0.4), (1.5, 4.0)])
def test_many_passes_are_the_published_exponent(alpha, beta):
    """n^−min(α+β−1, 2α) at the end of gradient flow on n samples: to one percent."""
    samples, errors = np.geomspace(10, 3000, 11), []
    for n in samples:
        case = problem(alpha, beta, n / 10**6)
        table = case.data.table()
        slowest = np.interp(n, 10**6 * np.cumsum(table.share), table.variance)
        errors.append(sl.least_squares(case, sl.GradientFlow(), times=[1e4 / slowest])["test_error"][0])
    published = -min(alpha + beta - 1, 2 * alpha)
    assert straightest(samples, np.array(errors))[0] == pytest.approx(published, rel=0.01)
