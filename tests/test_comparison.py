"""The test of whole curves: its false-alarm rate and its power, on curves whose law is known."""

import numpy as np
import pytest
from scipy import stats

import sgdlimit as sl
from sgdlimit.results import Runs, Solution, Variable
from sgdlimit.significance import Sample, rotation_test

POINTS = 40
TIME = np.linspace(0.0, 1.0, POINTS)


def curves(rng, count, length):
    """Gaussian curves with unit variance, correlated over `length`."""
    covariance = np.exp(-np.abs(TIME[:, None] - TIME[None, :]) / length)
    return rng.standard_normal((count, POINTS)) @ np.linalg.cholesky(covariance).T


def sample(copies, **more):
    zero = np.zeros(copies.shape[1])
    return Sample(copies.mean(axis=0), copies, more.get("scatter", zero), more.get("shift", zero))


def exact(mean):
    return Sample(mean, None, np.zeros_like(mean), np.zeros_like(mean))


def p_of(first, second, seed=0, rotations=9999):
    points = len(first.mean)
    return rotation_test(first, second, np.full(points, 1e-9), np.zeros(points, dtype=int), seed, rotations)


def test_one_point_is_the_t_test():
    """A single point against an exact value: Student's t, both statistics agreeing, so twice its p-value."""
    rng = np.random.default_rng(0)
    copies = rng.standard_normal((8, 1)) + 0.9
    expected = float(stats.ttest_1samp(copies[:, 0], 0.0)[1])
    found = p_of(sample(copies), exact(np.zeros(1))).together
    assert found == pytest.approx(min(1.0, 2 * expected), abs=6 * np.sqrt(expected / 9999))


@pytest.mark.parametrize("length", [0.03, 10.0], ids=["rough", "smooth"])
@pytest.mark.parametrize("replicas", [0, 16], ids=["exact theory", "replicas"])
def test_false_alarm_rate(length, replicas):
    """Same mean: of 300 tests at 5 %, at most what a binomial of that rate exceeds once in 10⁴ times."""
    rng, alarms, tests = np.random.default_rng(1), 0, 300
    for seed in range(tests):
        trials = sample(curves(rng, 10, length))
        theory = sample(0.5 * curves(rng, replicas, length)) if replicas else exact(np.zeros(POINTS))
        alarms += p_of(trials, theory, seed, rotations=399).together < 0.05
    assert alarms <= stats.binom.isf(1e-4, tests, 0.05)


def test_power():
    """A shift of all points by twice the spread of a trial, or of one point by six spreads, is seen with ten trials."""
    rng = np.random.default_rng(2)
    for shift in (np.full(POINTS, 2.0), 6.0 * (np.arange(POINTS) == 7)):
        assert p_of(sample(curves(rng, 10, 0.1) + shift), exact(np.zeros(POINTS))).together < 0.01


def test_errors_without_copies():
    """A known error, shared by the curve or independent along it, excuses a deviation of its size."""
    mean = np.full(POINTS, 1.0)
    zero = np.zeros(POINTS)
    assert p_of(Sample(mean, None, zero, zero + 1.0), exact(zero)).together > 0.05
    assert p_of(Sample(mean, None, zero + 1.0, zero), exact(zero)).together > 0.05
    assert p_of(Sample(mean, None, zero, zero + 0.1), exact(zero)).together < 0.01


def results(shift=0.0):
    """Runs and a theory with replicas, of two variables."""
    rng = np.random.default_rng(3)
    trials, replicas = curves(rng, 12, 0.2)[:, ::4] + shift, 0.3 * curves(rng, 16, 0.2)
    runs = Runs({"test_error": Variable(("trial", "time"), trials), "train_error": Variable(("trial", "time"), trials)},
                {"time": TIME[::4], "trial": np.arange(12)})  # fmt: skip
    names = ("test_error", "train_error")
    variables = {n: Variable(("time",), replicas.mean(axis=0)) for n in names}
    variables |= {f"{n}_stderr": Variable(("time",), replicas.std(axis=0, ddof=1) / 4) for n in names}
    variables |= {f"{n}_replicas": Variable(("replica", "time"), replicas) for n in names}
    return runs, Solution(variables, {"time": TIME})


def test_report_judges_whole_curves():
    report = sl.compare(*results())
    assert report.agrees(false_alarm=0.01)
    assert set(report.p_values) == {"test_error", "train_error"}
    # Twice the same curve is no more evidence than once.
    assert report.p_value == pytest.approx(report.p_values["test_error"], abs=0.01)
    assert "one test: p = " in repr(report)
    assert not sl.compare(*results(shift=2.0)).agrees(false_alarm=0.01)
    with pytest.raises(sl.InputError, match="false_alarm"):
        report.agrees(false_alarm=2.0)


def test_solutions_keep_their_replicas(tmp_path):
    problem = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0))
    solution = sl.solve(problem, sl.SGF(0.5), t_max=1.0, dt=0.1, samples=512, extrapolate=True)
    again = sl.load(solution.save(tmp_path / "run.nc"))
    for name in ("train_error", "norm"):
        copies = again.copies(name)
        assert copies.shape == (16, *solution[name].shape)
        np.testing.assert_allclose(copies.mean(axis=0), solution[name], rtol=1e-12, atol=1e-15)
    assert sl.least_squares(problem, sl.SGF(0.5), t_max=1.0).copies("norm") is None
