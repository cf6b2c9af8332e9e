"""Marchenko–Pastur quadrature against an independent integration of the density, and its moments."""

import math

import numpy as np
import pytest
from scipy import integrate

import sgdlimit as sl
from sgdlimit.exact.spectrum import marchenko_pastur
from sgdlimit.exact.stability import stable_temperature, stable_temperature_on

RATIOS = [0.05, 0.5, 0.999, 1.0, 1.001, 2.0, 50.0]


def by_density(fn, delta):
    """∫ fn dμ with x = 1 + 1/δ + (2/√δ) cos φ, which removes the square roots at both edges (`eq:mp_law`)."""

    def integrand(phi):
        x = 1 + 1 / delta + 2 / np.sqrt(delta) * np.cos(phi)
        return fn(x) * 2 * np.sin(phi) ** 2 / (np.pi * x) if x > 0 else 0.0

    continuous = integrate.quad(integrand, 0, np.pi, limit=2000, epsabs=1e-13, epsrel=1e-13)[0]
    return continuous + max(0.0, 1 - delta) * fn(0.0)


@pytest.mark.parametrize("delta", RATIOS)
def test_moments(delta):
    """E x = 1, E x² = 1 + 1/δ, E x³ = 1 + 3/δ + 1/δ²."""
    mu = marchenko_pastur(delta)
    for power, expected in ((0, 1), (1, 1), (2, 1 + 1 / delta), (3, 1 + 3 / delta + 1 / delta**2)):
        assert mu.weights @ mu.nodes**power == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("delta", RATIOS)
@pytest.mark.parametrize("t", [0.1, 3.0, 100.0])
def test_exponentials(delta, t):
    mu = marchenko_pastur(delta, t)
    for power in (0, 1, 2):
        exact = by_density(lambda x, p=power: x**p * np.exp(-2 * x * t), delta)
        assert mu.weights @ (mu.nodes**power * np.exp(-2 * mu.nodes * t)) == pytest.approx(exact, rel=1e-7, abs=1e-11)


def test_atom_below_one():
    mu = marchenko_pastur(0.3)
    assert mu.weights[mu.nodes < 1e-10].sum() == pytest.approx(0.7, rel=1e-10)


IID = sl.Iid().table()


def stieltjes(delta, ridge):
    """∫ dμ(x)/(x+λ), λ > 0: the positive root of λ m²/δ + (λ + 1 − 1/δ) m − 1 = 0 (`eq:R_theta_ridge_freq`, p = 0)."""
    if math.isinf(delta):
        return 1 / (1 + ridge)
    a, b = ridge / delta, ridge + 1 - 1 / delta
    root = math.sqrt(b * b + 4 * a)
    return 2 / (b + root) if b > 0 else (root - b) / (2 * a)


def closed_form(delta, ridge):
    """2/∫ x²/(x+λ) dμ of iid entries."""
    if ridge > 1:  # the closed form is a small difference of large numbers
        mu = marchenko_pastur(delta, 1.0)
        return stable_temperature_on(mu.nodes, mu.weights, ridge)
    return 2 / (1 - ridge + ridge**2 * stieltjes(delta, ridge)) if ridge else 2.0


@pytest.mark.parametrize("delta", RATIOS)
@pytest.mark.parametrize("ridge", [1e-3, 0.1, 2.0])
def test_stable_temperature(delta, ridge):
    exact = 2 / by_density(lambda x: x**2 / (x + ridge), delta)
    assert closed_form(delta, ridge) == pytest.approx(exact, rel=1e-7)
    assert stable_temperature(IID, delta, ridge) == pytest.approx(closed_form(delta, ridge), rel=1e-12)


def test_stable_temperature_without_ridge_is_two():
    assert stable_temperature(IID, 0.7, 0.0) == 2.0
    mu = marchenko_pastur(0.7)
    assert stable_temperature_on(mu.nodes, mu.weights, 0.0) == pytest.approx(2.0)
    assert stable_temperature(IID, np.inf, 0.3) == pytest.approx(2.6)
