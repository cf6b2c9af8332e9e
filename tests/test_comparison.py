"""The test of whole curves: its false-alarm rate and its power, on curves whose law is known."""

import numpy as np
import pytest
from scipy import stats

import sgdlimit as sl
from sgdlimit import comparison
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
    return rotation_test(first, second, np.full(points, 1e-9), np.zeros(points, dtype=int), seed, rotations)[1]


def test_one_point_is_the_t_test():
    """A single point against an exact value: Student's t, both statistics agreeing, so twice its p-value."""
    rng = np.random.default_rng(0)
    copies = rng.standard_normal((8, 1)) + 0.9
    expected = float(stats.ttest_1samp(copies[:, 0], 0.0)[1])
    found = p_of(sample(copies), exact(np.zeros(1)))
    assert found == pytest.approx(min(1.0, 2 * expected), abs=6 * np.sqrt(expected / 9999))


@pytest.mark.parametrize("length", [0.03, 10.0], ids=["rough", "smooth"])
@pytest.mark.parametrize("replicas", [0, 16], ids=["exact theory", "replicas"])
def test_false_alarm_rate(length, replicas):
    """Same mean: of 300 tests at 5 %, at most what a binomial of that rate exceeds once in 10⁴ times."""
    rng, alarms, tests = np.random.default_rng(1), 0, 300
    for seed in range(tests):
        trials = sample(curves(rng, 10, length))
        theory = sample(0.5 * curves(rng, replicas, length)) if replicas else exact(np.zeros(POINTS))
        alarms += p_of(trials, theory, seed, rotations=399) < 0.05
    assert alarms <= stats.binom.isf(1e-4, tests, 0.05)


def test_power():
    """A shift of all points by twice the spread of a trial, or of one point by six spreads, is seen with ten trials."""
    rng = np.random.default_rng(2)
    for shift in (np.full(POINTS, 2.0), 6.0 * (np.arange(POINTS) == 7)):
        assert p_of(sample(curves(rng, 10, 0.1) + shift), exact(np.zeros(POINTS))) < 0.01


def test_errors_without_copies():
    """A known error, shared by the curve or independent along it, excuses a deviation of its size."""
    mean = np.full(POINTS, 1.0)
    zero = np.zeros(POINTS)
    assert p_of(Sample(mean, None, zero, zero + 1.0), exact(zero)) > 0.05
    assert p_of(Sample(mean, None, zero + 1.0, zero), exact(zero)) > 0.05
    assert p_of(Sample(mean, None, zero, zero + 0.1), exact(zero)) < 0.01


def results(shift=0.0, level=20.0):
    """Runs and a theory with replicas about a level, of two variables."""
    rng = np.random.default_rng(3)
    trials, replicas = level + curves(rng, 12, 0.2)[:, ::4] + shift, level + 0.3 * curves(rng, 16, 0.2)
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
    assert report.verdict == "agree"
    assert set(report.p_values) == {"test_error", "train_error"}
    # Twice the same curve is no more evidence than once.
    assert report.p_value == pytest.approx(report.p_values["test_error"], abs=0.01)
    assert "one test: p = " in repr(report)
    other = sl.compare(*results(shift=2.0))
    assert not other.agrees(false_alarm=0.01)
    assert other.verdict == "differ"
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


def flat(level, error, points=21, name="train_error"):
    """A theory with a constant value and error."""
    time = np.linspace(0.0, 1.0, points)
    parts = {name: np.full(points, level), f"{name}_stderr": np.full(points, error)}
    return Solution({n: Variable(("time",), v) for n, v in parts.items()}, {"time": time})


def test_bars_too_wide_cannot_tell():
    """An error of 100 % explains a value twelve times too large, and agrees with nothing."""
    report = sl.compare(flat(12.0, 12.0), flat(1.0, 0.0))
    assert report.p_value > 0.3
    assert report.verdict == report["train_error"].verdict == "cannot tell"
    assert not report.agrees()
    assert not report.agrees(false_alarm=0.01)
    assert report.unresolved == ("train_error",)
    assert "cannot tell (train_error: a difference of 10 % would pass" in repr(report)
    # the Gaussian quantile of 1 %: 2.576 errors are the least difference that is noticed
    assert report["train_error"].resolution == pytest.approx(stats.norm.isf(0.005), rel=1e-6)
    for error, verdict in ((0.038, "agree"), (0.040, "cannot tell")):
        assert sl.compare(flat(1.0, error), flat(1.0, 0.0)).verdict == verdict
    assert sl.compare(flat(2.0, 0.1), flat(1.0, 0.0)).verdict == "differ"


def test_few_trials_resolve_less():
    """Student's quantile: 4 trials notice 5.84 standard errors."""
    values = 1 + 0.02 * np.array([-1.0, 1.0, -1.0, 1.0])[:, None] * np.ones(21)
    runs = Runs(
        {"train_error": Variable(("trial", "time"), values)}, {"time": np.linspace(0, 1, 21), "trial": np.arange(4)}
    )
    found = sl.compare(runs, flat(1.0, 0.0))["train_error"]
    assert found.resolution == pytest.approx(stats.t.isf(0.005, 3) * 0.02 / np.sqrt(3), rel=1e-5)


def test_one_curve_that_cannot_be_judged_is_enough():
    good, wide = flat(1.0, 0.01), flat(1.0, 0.5, name="test_error")
    both = [Solution({**good.variables, **wide.variables}, good.coords)] * 2
    report = sl.compare(*both)
    assert {name: found.verdict for name, found in report.variables.items()} == {
        "train_error": "agree", "test_error": "cannot tell"
    }  # fmt: skip
    assert report.verdict == "cannot tell"
    assert sl.compare(*both, "train_error").agrees()


SHAPES = {
    "decay": lambda t: np.exp(-3 * t),
    "power": lambda t: 1 / (1 + 20 * t),
    "wave": lambda t: 2 + np.sin(9 * t),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("points", [3, 6, 11, 41])
def test_a_coarse_theory_counts_its_interpolation(shape, points):
    """The exact curve, known at few times, is within its error of the curve at others; a fine grid adds little."""
    fn, time = SHAPES[shape], np.linspace(0.0, 1.0, points)
    coarse = Solution({"train_error": Variable(("time",), fn(time))}, {"time": time})
    rng, fine = np.random.default_rng(6), np.linspace(0.013, 0.987, 60)
    trials = fn(fine) + 1e-6 * rng.standard_normal((8, 60))
    runs = Runs({"train_error": Variable(("trial", "time"), trials)}, {"time": fine, "trial": np.arange(8)})
    found = sl.compare(coarse, runs)["train_error"]
    assert found.largest < 2
    assert found.verdict != "differ"
    if points == 41:
        assert np.max(found.stderr) < 0.04 * found.scale
    # at the recorded times there is nothing to be added
    some = Solution({"train_error": Variable(("time",), fn(time[::5]))}, {"time": time[::5]})
    same = sl.compare(some, coarse)["train_error"]
    np.testing.assert_array_equal(same.stderr, same.floor)


@pytest.mark.parametrize("where", ["train_error", "train_error_stderr", "train_error_replicas"])
def test_what_is_no_number_is_refused_by_name(where):
    runs, theory = results()
    values = theory[where].copy()
    values[..., 3] = np.nan
    broken = Solution({**theory.variables, where: Variable(theory.variables[where].dims, values)}, theory.coords)
    for pair in ((runs, broken), (broken, theory)):
        with pytest.raises(sl.InputError, match=r"variables: got train_error; .*not finite.*Solution"):
            sl.compare(*pair)
    assert sl.compare(runs, broken, "test_error").agrees()


def test_variables_are_chosen_by_name():
    runs, theory = results()
    for wrong, words in (([], "name one or more"), (3, "it must be a name"), ([1.0], "it must be a name"),
                         ("tain_error", "did you mean train_error\\? it has test_error, train_error")):  # fmt: skip
        with pytest.raises(sl.InputError, match=f"variables: .*{words}"):
            sl.compare(runs, theory, wrong)


def test_next_to_a_recorded_time_little_is_interpolated():
    """Runs are recorded at steps of their own, a little beside the times of a law in discrete time."""
    time = np.linspace(0.0, 6.0, 8)
    law = Solution({"train_error": Variable(("time",), np.exp(-3 * time))}, {"time": time})
    beside, between = (
        comparison._between(law, "train_error", time[:-1] + share * np.diff(time)) for share in (1e-3, 0.5)
    )
    assert np.all(beside <= 0.01 * between)
    assert np.all(between > 0)
