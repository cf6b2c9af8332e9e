"""Own data: what is estimated against what was drawn, curves against the true problem and against SGD on the matrix."""

import numpy as np
import pytest
from agreement import assert_within
from scipy.linalg import expm

import sgdlimit as sl
from sgdlimit.fitting.spectrum import along, population, sample_of, taught

LEVELS = np.array([4.0, 0.6, 0.1]) / 1.1133333333333333
SHARES = np.array([0.2, 7 / 15, 1 / 3])


def variances(d):
    """Eigenvalues of three levels with mean one, in random order."""
    return np.random.default_rng(7).permutation(np.repeat(LEVELS, np.round(SHARES * d).astype(int)))


def distance(values, counts, true):
    """Mean distance between quantiles of √σ: Wasserstein's."""
    at = (np.arange(2000) + 0.5) / 2000
    quantile = np.sqrt(values)[np.minimum(np.searchsorted(np.cumsum(counts) / np.sum(counts), at), len(values) - 1)]
    return np.mean(np.abs(quantile - np.sqrt(np.quantile(true, at, method="inverted_cdf"))))


@pytest.mark.parametrize("ratio", [0.5, 2, 10])
def test_spectrum_of_the_population(ratio):
    d = 300
    s, n = variances(d), int(ratio * d)
    rows = np.random.default_rng(0).normal(size=(n, d)) * np.sqrt(s)
    sample, _, _ = sample_of(rows, n)
    groups = population(sample)
    assert groups.counts.sum() == pytest.approx(d)
    assert groups.misfit < 2e-3
    found = distance(groups.values, groups.counts, s)
    naive = distance(np.sort(np.append(sample.values, np.zeros(d - len(sample.values)))), np.ones(d), s)
    assert found < (0.1 if ratio < 1 else 0.02)  # small eigenvalues of more dimensions than samples are hardly seen
    assert naive > 4 * found  # the sample's own eigenvalues
    # trace and trace of the square, to their fluctuations of √(2/(nd)) and some
    assert groups.values @ groups.counts == pytest.approx(s.sum(), rel=0.02)
    assert groups.values**2 @ groups.counts == pytest.approx(np.sum(s**2), rel=0.06)


def test_many_samples_give_the_sample_back():
    """n ≫ d: groups that are far apart are the sample's own eigenvalues."""
    s = np.array([8.0, 4.0, 2.0, 1.0, 0.5, 0.25])
    rows = np.random.default_rng(1).normal(size=(60_000, 6)) * np.sqrt(s)
    sample, _, _ = sample_of(rows, len(rows))
    groups = population(sample)
    np.testing.assert_allclose(groups.counts, 1.0, atol=0.02)
    np.testing.assert_allclose(groups.values[::-1], sample.values, rtol=0.01)


@pytest.mark.parametrize("ratio", [2, 10])
def test_projections_are_unbiased(ratio):
    """Norms of v and θ, and with the weights of the spectrum, over 24 draws: their bias within its standard error."""
    rng, d = np.random.default_rng(2), 60
    s, n = variances(d) / d, ratio * d
    noise, out = 6 / n, []
    for _ in range(24):
        rows = rng.normal(size=(n, d)) * np.sqrt(s)
        v, theta = rng.choice([-1.0, 1.0], (2, d)) * (np.sqrt(s), 1.0)[1]
        v = v * np.sqrt(s)
        seen = v + rng.normal(size=d) * np.sqrt(noise * s)
        y = rows @ theta + 0.7 * rng.normal(size=n)
        sample, left, vectors = sample_of(rows, n)
        groups = population(sample)
        size = along(sample, groups, seen @ seen, (vectors.T @ seen) ** 2, noise)
        told, rest = taught(sample, groups, y @ y / n, (left.T @ y) ** 2 / n)
        true = v @ v, v**2 @ s, theta**2 @ s, theta**2 @ s**2
        found = size.sum(), size @ groups.values, told.sum(), told @ groups.values
        out.append([*np.divide(found, true), rest / 0.49])
    out = np.array(out)
    assert_within(out.mean(axis=0) - 1, out.std(axis=0, ddof=1) / np.sqrt(len(out)), trials=len(out))
    assert np.all(out.std(axis=0) < 0.5)


def classes(d, n, seed=0, gap=1.5, prior=0.5, s=None):
    """Two classes of `sl.Mixture([gap, -gap], Spectrum(LEVELS, SHARES), [prior, 1 - prior])`."""
    rng = np.random.default_rng(seed)
    s = variances(d) if s is None else s
    v = np.random.default_rng(99).normal(size=d)
    v *= gap / np.sqrt(np.mean(v**2)) / d
    first = np.arange(n) < round(prior * n)
    return np.where(first[:, None], v, -v) + rng.normal(size=(n, d)) * np.sqrt(s / d), np.where(first, 1.0, -1.0)


def taught_data(d, n, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.sqrt(variances(d) / d)
    theta = rng.normal(size=d)
    y = X @ (theta / np.sqrt(np.mean(theta**2))) + noise * rng.normal(size=n)
    return X - X.mean(axis=0), y - y.mean()


def true_classes(n, d, gap=1.5, prior=0.5, **words):
    law = sl.Mixture([gap, -gap], sl.Spectrum(LEVELS, SHARES), [prior, 1 - prior])
    return sl.Problem(sample_ratio=n / d, data=law, labels=sl.ByClass(), **words)


@pytest.mark.parametrize("prior", [0.5, 0.3])
def test_classes_are_recovered(prior):
    """Priors, means with their common part, and the difference of means; its square is known to √(4·2/n)."""
    d, n = 300, 1500
    X, y = classes(d, n, prior=prior)
    law = sl.model_of_data(X, y, loss=sl.Logistic()).problem.data
    assert isinstance(law, sl.Mixture)
    assert law.weights == pytest.approx((prior, 1 - prior))
    table = law.table()
    size = float(table.share @ table.factor**2)  # |v|² = Σ p factor²/d
    assert size == pytest.approx((2 * 1.5) ** 2, rel=0.1)
    np.testing.assert_allclose(np.ravel(law.means) * np.sqrt(size), [1.5, -1.5], rtol=0.1)
    assert table.share @ table.variance == pytest.approx(1.0, rel=0.02)
    assert distance(table.variance, table.share, variances(d)) < 0.08


def test_teacher_is_recovered():
    d, n = 300, 1500
    problem = sl.model_of_data(*taught_data(d, n)).problem
    table = problem.data.table()
    assert isinstance(problem.noise, sl.Normal)
    assert problem.noise.scale == pytest.approx(0.5, rel=0.1)
    assert table.share @ (table.variance * table.factor**2) == pytest.approx(1.0, rel=0.15)
    assert isinstance(problem.labels, sl.Linear)


def test_labels_that_know_no_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 200)) / np.sqrt(200)
    y = rng.normal(size=400)
    table = (problem := sl.model_of_data(X, y).problem).data.table()
    explained = 0.0 if problem.teacher is None else table.share @ (table.variance * table.factor**2)
    assert explained < 0.2
    assert isinstance(problem.noise, sl.Normal)
    assert problem.noise.scale == pytest.approx(1.0, rel=0.15)


def test_rotation_and_scale():
    X, y = classes(100, 400)
    Q = np.linalg.qr(np.random.default_rng(4).normal(size=(100, 100)))[0]
    real = taught_data(100, 400)
    for data, power in (((X, y), 1), (real, -1)):
        table = sl.model_of_data(*data).problem.data.table()
        turned = sl.model_of_data(data[0] @ Q, data[1]).problem.data.table()
        scaled = sl.model_of_data(1.5 * data[0], data[1]).problem.data.table()
        for found, wanted in ((turned, table), (scaled, table)):
            np.testing.assert_allclose(found.share, wanted.share, rtol=1e-6)
        np.testing.assert_allclose(turned.variance, table.variance, rtol=1e-6)
        np.testing.assert_allclose(turned.factor, table.factor, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(scaled.variance, 1.5**2 * table.variance, rtol=1e-6)
        np.testing.assert_allclose(scaled.factor, 1.5**power * table.factor, rtol=1e-6, atol=1e-6)


SHORT = {"loss": sl.Logistic(), "penalty": sl.Ridge(0.1), "t_max": 1.0, "samples": 1024, "dt": 0.1}


@pytest.fixture(scope="module")
def solved():
    X, y = classes(60, 300)
    with pytest.warns(sl.UnreliableWarning, match=r"effective rank \d+ \(limit 30\)"):
        return X, y, sl.solve_on_data(X, y, sl.SGD(0.4), X_test=X, y_test=y, **SHORT)


def test_curves_do_not_know_the_basis(solved):
    X, y, plain = solved
    Q = np.linalg.qr(np.random.default_rng(4).normal(size=(60, 60)))[0]
    with pytest.warns(sl.UnreliableWarning, match="effective rank"):
        turned = sl.solve_on_data(X @ Q, y, sl.SGD(0.4), **SHORT)
    for name in ("train_loss", "test_error", "norm"):
        np.testing.assert_allclose(turned[name], plain[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_against_the_true_problem_and_sgd(bias):
    """Logistic loss, d = 400, n = 1000: curves of the model, of the true law, and of SGD on the matrix.

    Within 5 % of a curve's largest value: |v|² is known from n samples to √(8/n)·(d/n + …) = 4 %, and one matrix
    scatters about the limit by 1/√d. Train curves, which saw the same samples, within 2.5 %.
    """
    d, n = 400, 1000
    X, y = classes(d, n, prior=0.4)
    X_test, y_test = classes(d, 8000, seed=1, prior=0.4)
    words = {"loss": sl.Logistic(), "penalty": sl.Ridge(0.05), "bias": bias}
    on = {"times": np.linspace(0, 6, 13)}
    runs = sl.simulate_on_data(X, y, sl.SGD(0.5), X_test=X_test, y_test=y_test, trials=20, **words, **on)
    theory = sl.solve_on_data(X, y, sl.SGD(0.5), X_test=X_test, y_test=y_test, **words, **on)
    true = sl.solve(true_classes(n, d, prior=0.4, **words), sl.SGD(0.5), **on)
    assert theory.status == "complete"
    for name in ("train_loss", "test_loss", "train_error", "test_error", "norm"):
        value, size = theory[name].ravel(), np.max(np.abs(true[name]))
        others = {"true": np.ravel(true[name]), "SGD": np.ravel(runs.curve(name)[0])}
        gaps = {other: np.max(np.abs(value - curve)) / size for other, curve in others.items()}
        print(name, gaps)
        assert gaps["true"] < 0.05
        assert gaps["SGD"] < (0.025 if name.startswith("train") else 0.05)


@pytest.mark.slow
def test_square_loss_against_homogenised_sgd():
    """Real labels: the same matrix's own eigenvalues, by `least_squares_on_data`; one matrix scatters by 1/√d."""
    d, n = 300, 900
    X, y = taught_data(d, n)
    words = {"penalty": sl.Ridge(0.1), "times": np.linspace(0, 6, 13)}
    exact = sl.least_squares_on_data(X, y, sl.SGD(0.4), **words)
    theory = sl.solve_on_data(X, y, sl.SGD(0.4), **words)
    assert isinstance(theory.problem.loss, sl.Square)
    for name in ("train_loss", "norm"):
        assert np.max(np.abs(theory[name] - exact[name])) < 0.03 * np.max(exact[name])


@pytest.mark.slow
def test_huber_against_sgd():
    """Real labels, another loss: train curves within 3 %, test curves, known as well as the teacher, within 6 %."""
    d, n = 300, 900
    X, y = taught_data(d, n + 3000)
    X, X_test, y, y_test = X[:n], X[n:], y[:n], y[n:]
    words = {"loss": sl.Huber(0.5), "penalty": sl.Ridge(0.05), "X_test": X_test, "y_test": y_test}
    words["times"] = np.linspace(0, 6, 13)
    runs = sl.simulate_on_data(X, y, sl.SGD(0.4), trials=20, **words)
    theory = sl.solve_on_data(X, y, sl.SGD(0.4), **words)
    for name, most in (("train_loss", 0.03), ("test_loss", 0.06), ("norm", 0.06)):
        mean = runs.curve(name)[0]
        assert np.max(np.abs(theory[name] - mean)) < most * np.max(mean), name


def test_an_intercept_of_runs_is_a_constant_feature():
    """Gradient flow with an intercept: the exponential of the matrix of rows and 1/√d, the last without ridge."""
    rng = np.random.default_rng(5)
    n, d, ridge, t = 120, 30, 0.3, 1.3
    X = rng.normal(size=(n, d)) / np.sqrt(d)
    y = X @ rng.normal(size=d) + 0.8
    wide = np.column_stack([X, np.full(n, d**-0.5)])
    stiff = wide.T @ wide * d / n + ridge * np.diag(np.append(np.ones(d), 0.0))
    theta = np.linalg.solve(stiff, (np.eye(d + 1) - expm(-stiff * t)) @ (wide.T @ y * d / n))
    runs = sl.simulate_on_data(
        X, y, sl.GradientFlow(), penalty=sl.Ridge(ridge), bias=True, times=[0.0, t], trials=1, dt=1e-3, dtype="float64",
        X_test=X, y_test=y,
    )  # fmt: skip
    assert runs["intercept"][0, -1, 0] == pytest.approx(theta[-1] / np.sqrt(d), rel=1e-3)
    assert runs["norm"][0, -1, 0, 0] == pytest.approx(theta[:-1] @ theta[:-1] / d, rel=1e-3)
    loss = np.mean((wide @ theta - y) ** 2) / 2
    assert runs["train_loss"][0, -1] == pytest.approx(loss, rel=1e-3)
    assert runs["test_loss"][0, -1] == pytest.approx(loss, rel=1e-3)


def test_assumptions_have_numbers():
    """Gaussian rows pass; heavy rows, other covariances and a heavy direction are told by the number that is theirs."""
    d, n = 100, 2000
    flat = np.ones(d)
    X, y = classes(d, n, s=flat)
    X = X - X.mean(axis=0)
    plain = sl.model_of_data(X, y)
    assert plain.assumptions.passed
    assert plain.assumptions.named("effective rank").value == pytest.approx(d, rel=0.05)
    assert plain.assumptions.named("class covariances").value < 0.15
    assert "coordinates  eigenvalue" in repr(plain)
    assert "effective rank" in repr(plain)
    rng = np.random.default_rng(6)
    length = np.exp(0.3 * rng.normal(size=(n, 1)))
    heavy = X * length / np.sqrt(np.mean(length**2))
    # |x|² is a log-normal of shape 0.6 times one of relative variance 2/d
    spread = sl.model_of_data(heavy - heavy.mean(axis=0), y).assumptions.named("spread of rows")
    assert spread.value == pytest.approx(np.sqrt(np.expm1(0.36)), rel=0.1)
    assert not spread.passed
    wide = np.where(y[:, None] > 0, 1.0, 2.0) * rng.normal(size=(n, d)) / np.sqrt(2.5 * d)
    unlike = sl.model_of_data(wide - wide.mean(axis=0), y).assumptions.named("class covariances")
    assert unlike.value == pytest.approx(3 / np.sqrt(17 / 2), rel=0.05)  # |Σ − 4Σ| over √((1 + 16)/2) |Σ|
    few = X.copy()
    few[:, 0] = 3 * rng.laplace(size=n) / np.sqrt(2 * d)  # excess 3
    assert sl.model_of_data(few - few.mean(axis=0), y).assumptions.named("leading kurtosis").value == pytest.approx(
        3, abs=1
    )


def test_what_is_told_is_kept(solved, tmp_path):
    X, y, solution = solved
    again = sl.load(solution.save(tmp_path / "own.nc"))
    told = {part["name"]: part for part in again.about["diagnostics"]["assumptions"]}
    assert told["samples"]["value"] == 300
    assert told["test rows"]["value"] == pytest.approx(0.0, abs=1e-12)
    assert again.problem == sl.model_of_data(X, y, loss=sl.Logistic(), penalty=sl.Ridge(0.1)).problem
    assert again.about["options"]["dim"] == 60


def _few(y):
    return np.where(np.arange(len(y)) < 4, 1.0, -1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": lambda X: np.column_stack([X, np.ones(len(X))])}, ["X", "constant", "column", "60", "bias=True"]),
        ({"X": lambda X: X + 0.5 / np.sqrt(60)}, ["X", "X.mean(axis=0)"]),
        ({"X": lambda X: np.where(3 * X.std() < X, np.nan, X)}, ["X", "NaN"]),
        ({"X": lambda X: X[:-1]}, ["y", "one entry"]),
        ({"X": lambda X: 30 * X}, ["X", "norm about 1"]),
        ({"X": lambda X: X[:, :1] * 8}, ["X", "one column"]),
        ({"y": _few}, ["y", "4 samples of class 1", "at least 10"]),
        ({"y": lambda y: np.arange(len(y)) % 10.0}, ["y", "±1", "one class against the rest", "np.where"]),
        ({"y": lambda y: (y + 1) / 2}, ["y", "±1"]),
        ({"y": lambda y: np.ones(len(y))}, ["y", "must differ"]),
        ({"X_test": np.ones((3, 60))}, ["X_test", "both"]),
        ({"X_test": np.ones((3, 7)), "y_test": np.ones(3)}, ["X_test", "columns"]),
        ({"X_test": np.ones((3, 60)), "y_test": np.zeros(3)}, ["y_test", "classes"]),
        ({"loss": "logistic"}, ["loss"]),
        ({"bias": 1}, ["bias"]),
        ({"penalty": 0.1}, ["penalty"]),
    ],
)
def test_refused_by_name(change, words):
    X, y = classes(60, 300)
    given = {"X": X, "y": y, "loss": sl.Logistic()}
    given |= {name: part(given[name]) if callable(part) else part for name, part in change.items()}
    with pytest.raises(sl.InputError) as error:
        sl.solve_on_data(algorithm=sl.SGD(0.4), t_max=1.0, **given)
    for word in words:
        assert word in str(error.value)


def test_real_labels_are_centred():
    X, y = taught_data(60, 300)
    with pytest.raises(sl.InputError, match=r"y - y\.mean\(\)"):
        sl.model_of_data(X, y + 1.0)


def test_columns_that_repeat_others():
    """Warned of; the spectrum has as many zeros."""
    X, y = classes(60, 600)
    X = np.column_stack([X, X[:, :20]])
    with pytest.warns(RuntimeWarning, match="20 columns repeat others"):
        table = sl.model_of_data(X, y).problem.data.table()
    assert table.variance[0] == 0
    assert table.share[0] * 80 == pytest.approx(20, abs=0.5)


def test_two_other_values_with_the_square_loss():
    X, y = classes(60, 600)
    problem = sl.model_of_data(X, np.where(y > 0, 3.0, 0.0)).problem
    assert problem.labels == sl.ByClass((3.0, 0.0))
    assert isinstance(problem.data, sl.Mixture)


@pytest.mark.slow
def test_tables_of_scikit_learn():
    """Diabetes, above or below the median: the train loss within 2 %, the test loss within the error of its rows."""
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_diabetes

    X, y = map(np.asarray, load_diabetes(return_X_y=True))
    X = (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(X.shape[1])
    y = np.where(y > np.median(y), 1.0, -1.0)
    words = {"loss": sl.Logistic(), "penalty": sl.Ridge(0.1), "bias": True, "times": np.linspace(0, 6, 13)}
    runs = sl.simulate_on_data(X, y, sl.SGD(0.1), trials=20, **words)
    with pytest.warns(sl.UnreliableWarning, match="effective rank"):
        theory = sl.solve_on_data(X, y, sl.SGD(0.1), **words)
    mean, _ = runs.curve("train_loss")
    assert np.max(np.abs(theory["train_loss"] / mean - 1)) < 0.02
