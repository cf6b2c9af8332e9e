"""Structured data: the theory against SGD at finite size, for losses that no closed form serves. Minutes."""

from dataclasses import replace

import jax
import pytest
from agreement import assert_agrees, assert_within

import sgdlimit as sl

pytestmark = pytest.mark.slow

STEEP = sl.PowerLaw(1.2, source=0.6)
TWO = sl.Spectrum([3.0, 0.5], [0.2, 0.8], [0.5, 1.1])
erf = jax.scipy.special.erf

PROBLEMS = {
    "logistic": sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.02), sample_ratio=1.5, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1),
    ),
    "huber": sl.Problem(
        loss=sl.Huber(0.7), penalty=sl.Ridge(0.05), sample_ratio=1.5, teacher=sl.Normal(1.0), noise=sl.Normal(0.5),
        init=sl.Normal(0.5),
    ),
    "committee": sl.Problem(
        loss=sl.TwoLayer(erf), labels=sl.TwoLayerLabels(erf), penalty=sl.Ridge(0.02), sample_ratio=2.0,
        teacher=sl.Normal(1.0), noise=sl.Normal(0.1), init=sl.Normal(0.5), width=2,
    ),
    "sparse": sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.SmoothL1(0.1), sample_ratio=1.5,
        teacher=sl.SparseNormal(0.3, 1.5), noise=sl.Normal(0.1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("data", [STEEP, TWO], ids=["power law", "two levels"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_theory_and_sgd(name, data):
    """d = 1200, 20 trials, t = 6: losses, errors, overlap and norm, in total and by group."""
    problem = replace(PROBLEMS[name], data=data)
    times = [1.0, 2.0, 4.0, 6.0]
    solution = sl.solve(problem, sl.SGD(0.4), times=times, tol=0.01)
    runs = sl.simulate(problem, sl.SGD(0.4, batch_size=4), dim=1200, trials=20, times=times)
    report = sl.compare(solution, runs)
    print(report)
    assert_agrees(report, trials=20)
    for name in ("norm_by_group", "overlap_by_group"):
        value, error = solution.curve(name)
        mean, spread = runs.curve(name)
        assert_within(value - mean, (error**2 + spread**2) ** 0.5, trials=20)
