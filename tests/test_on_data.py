"""`least_squares_on_data`: exact parts against direct formulas, the curve against SGD on the same matrix."""

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_agrees, assert_within, threshold
from scipy import sparse
from scipy.linalg import expm

import sgdlimit as sl


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n, d = 300, 100
    scales = np.linspace(0.3, 1.6, d)  # an anisotropic matrix: not Marchenko–Pastur
    X = rng.normal(size=(n, d)) * scales
    X /= np.sqrt(np.mean(np.sum(X**2, axis=1)))
    y = X @ rng.normal(size=d) + 0.4 * rng.normal(size=n)
    X_test = rng.normal(size=(200, d)) * scales / np.sqrt(np.sum(scales**2))
    return X, y, X_test, X_test @ np.ones(d)


def test_gradient_flow_is_the_matrix_exponential(table):
    X, y, X_test, y_test = table
    n, d = X.shape
    ridge, t = 0.2, 1.7
    A, b = X.T @ X * d / n, X.T @ y * d / n
    stiff = A + ridge * np.eye(d)
    theta = np.linalg.solve(stiff, (np.eye(d) - expm(-stiff * t)) @ b)
    solution = sl.least_squares_on_data(X, y, ridge=ridge, times=[0.0, t], X_test=X_test, y_test=y_test)
    assert solution["train_error"][1] == pytest.approx(np.mean((X @ theta - y) ** 2), rel=1e-9)
    assert solution["test_error"][1] == pytest.approx(np.mean((X_test @ theta - y_test) ** 2), rel=1e-9)
    assert solution["norm"][1, 0, 0] == pytest.approx(theta @ theta / d, rel=1e-9)


def test_noise_is_the_homogenised_covariance(table):
    """Second method: march the full covariance Σ' = −(A+λ)Σ − Σ(A+λ) + τA·train with tiny steps."""
    X, y, X_test, y_test = table
    n, d = X.shape
    tau, ridge, steps, t_max = 0.7, 0.1, 4000, 2.0
    A, b = X.T @ X * d / n, X.T @ y * d / n
    stiff, h = A + ridge * np.eye(d), t_max / steps
    theta, sigma = np.zeros(d), np.zeros((d, d))
    for _ in range(steps):
        half = theta + h / 2 * (b - stiff @ theta)
        middle = np.mean((X @ half - y) ** 2) + np.trace(A @ sigma) / d
        drift = -(stiff @ sigma + sigma @ stiff) + tau * middle * A
        guess = sigma + h / 2 * drift
        middle = np.mean((X @ half - y) ** 2) + np.trace(A @ guess) / d
        sigma = sigma + h * (-(stiff @ guess + guess @ stiff) + tau * middle * A)
        theta = theta + h * (b - stiff @ half)
    solution = sl.least_squares_on_data(X, y, tau, ridge, times=[0.0, t_max], X_test=X_test, y_test=y_test)
    train = np.mean((X @ theta - y) ** 2) + np.trace(A @ sigma) / d
    test = np.mean((X_test @ theta - y_test) ** 2) + np.trace(X_test @ sigma @ X_test.T) / len(X_test)
    assert solution["train_error"][1] == pytest.approx(train, rel=1e-5)
    assert solution["test_error"][1] == pytest.approx(test, rel=1e-5)


def test_against_sgd_on_the_same_matrix(table):
    """Small temperature and large enough n: the averaged noise is accurate to a few parts in a thousand."""
    X, y, X_test, y_test = table
    times = np.linspace(0, 4, 9)
    runs = sl.simulate_on_data(
        X, y, sl.SGD(0.2), penalty=sl.Ridge(0.1), X_test=X_test, y_test=y_test, times=times, trials=60
    )
    theory = sl.least_squares_on_data(X, y, 0.2, 0.1, times=runs.time, X_test=X_test, y_test=y_test)
    for name in ("train_error", "test_error"):
        mean, error = runs.curve(name)
        # Beyond the error of 60 trials: 1 % for a matrix of 300 × 100, whose residuals are not perfectly mixed.
        assert_within(mean - theory[name], error + 0.01 / threshold(9, 60) * theory[name], trials=60)


def test_limit_of_a_large_random_matrix():
    """On Gaussian data the matrix's own curve approaches the Marchenko–Pastur curve."""
    problem = sl.Problem(
        loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
    )
    limit = sl.least_squares(problem, sl.SGD(0.8), t_max=5.0)
    rng = np.random.default_rng(1)
    gap = []
    for d in (100, 1600):
        X = rng.normal(size=(2 * d, d)) / np.sqrt(d)
        theta, z = rng.normal(size=d), rng.normal(size=2 * d)
        y = X @ (theta / np.sqrt(np.mean(theta**2))) + 0.5 * z / np.sqrt(np.mean(z**2))
        gap.append(np.max(np.abs(sl.least_squares_on_data(X, y, 0.8, 0.1, 5.0)["train_error"] - limit["train_error"])))
    # One matrix scatters by about sqrt(2/n)·E y² around the limit; four such deviations.
    assert gap[1] < 4 * 1.25 * np.sqrt(2 / 3200)
    assert gap[1] < gap[0]


def test_a_loss_that_is_not_finite_on_the_data_is_refused(table):
    X, y, _, _ = table
    with pytest.raises(sl.InputError, match="loss"):
        sl.simulate_on_data(X, y, sl.SGD(0.1), loss=sl.Loss(lambda r, y: jnp.log(r) * y), t_max=1.0)
    with pytest.raises(sl.InputError, match="±1"):
        sl.simulate_on_data(X, y, sl.SGD(0.1), loss=sl.Logistic(), binary=True, t_max=1.0)


def test_kinds_of_matrix(table):
    import pandas

    X, y, _, _ = table
    reference = sl.least_squares_on_data(X, y, 0.3, t_max=1.0)["train_error"]
    kinds = [pandas.DataFrame(X), sparse.csr_matrix(X), X.tolist()]
    for kind in kinds:
        np.testing.assert_allclose(sl.least_squares_on_data(kind, y, 0.3, t_max=1.0)["train_error"], reference)
    np.testing.assert_allclose(sl.least_squares_on_data(X, y[:, None], 0.3, t_max=1.0)["train_error"], reference)


def test_wide_matrix_and_no_ridge():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 120)) / np.sqrt(120)
    y = rng.normal(size=40)
    solution = sl.least_squares_on_data(X, y, 0.0, t_max=500.0)
    assert solution["train_error"][-1] == pytest.approx(0.0, abs=1e-6)  # more weights than samples: interpolation
    runs = sl.simulate_on_data(X, y, sl.SGD(0.1), t_max=5.0, trials=20)
    theory = sl.least_squares_on_data(X, y, 0.1, times=runs.time)
    assert_agrees(sl.compare(runs, theory, ["train_error"]), trials=20)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"X": lambda X: 30 * X}, r"np\.sqrt\(np\.mean"),
        ({"X": lambda X: 0.01 * X}, "rows must have norm about 1"),
        ({"X": lambda X: np.where(np.arange(len(X))[:, None] == 3, 9 * X, X)}, "row 3"),
        ({"X": lambda X: np.where(2.9 * X.std() < X, np.nan, X)}, "NaN"),
        ({"X": lambda X: X[0]}, "matrix"),
        ({"X": lambda X: np.full(X.shape, "a")}, "numbers"),
        ({"y": lambda y: y[:-1]}, "one entry"),
        ({"temperature": -1.0}, "temperature"),
        ({"ridge": -1.0}, "ridge"),
        ({"t_max": 0.0}, "t_max"),
        ({"X_test": np.ones((3, 100))}, "both"),
        ({"X_test": np.ones((3, 7)), "y_test": np.ones(3)}, "columns"),
    ],
)
def test_bad_input(table, change, word):
    X, y, _, _ = table
    words = {"X": X, "y": y, "temperature": 0.3, "ridge": 0.1, "t_max": 1.0}
    words |= {k: v(words[k]) if callable(v) else v for k, v in change.items()}
    with pytest.raises(sl.InputError, match=word) as caught:
        sl.least_squares_on_data(**words)
    assert "\n" not in str(caught.value)


def test_heavy_rows_have_their_own_stable_temperature():
    """5 % of the rows four times longer: stable up to the true limit of SGD's second moments, found two ways."""
    rng = np.random.default_rng(0)
    n, d = 60, 20
    X = rng.normal(size=(n, d)) / np.sqrt(d)
    X[:3] *= 4
    X /= np.sqrt(np.mean(np.sum(X**2, axis=1)))
    y = X @ rng.normal(size=d)
    with pytest.warns(sl.DivergenceWarning, match=r"τ·max\|x\|² = "):
        hot = sl.least_squares_on_data(X, y, 1.0, t_max=5.0)
    assert hot.status == "unreliable"
    limit = hot.about["diagnostics"]["stable_temperature"]
    assert limit < 0.2 * hot.about["diagnostics"]["stable_temperature_if_mixed"]
    # the generator of E θθᵀ, −AΣ − ΣA + (τ/δ) Σ_i x_i x_iᵀ (x_iᵀ Σ x_i), has a zero eigenvalue at the limit
    A, eye = X.T @ X * d / n, np.eye(d)
    noise = np.einsum("ia,ib,ic,id->abcd", X, X, X, X, optimize=True).reshape(d * d, d * d) * d / n
    flow = np.kron(A, eye) + np.kron(eye, A)
    for factor, grows in ((0.99, False), (1.01, True)):
        assert bool(np.linalg.eigvalsh(factor * limit * noise - flow).max() > 0) is grows
    with pytest.warns(sl.DivergenceWarning, match="largest stable temperature"):
        runs = sl.simulate_on_data(X, y, sl.SGD(1.0), t_max=40.0, trials=2)
    assert f"{limit:.4g}" in runs.message


def test_words_of_both_kinds_say_the_same(table):
    X, y, _, _ = table
    old = sl.least_squares_on_data(X, y, temperature=0.3, ridge=0.1, t_max=2.0)
    for algorithm in (sl.SGD(0.3, batch_size=4), sl.SGF(0.3), 0.3):
        new = sl.least_squares_on_data(X, y, algorithm, penalty=sl.Ridge(0.1), t_max=2.0)
        np.testing.assert_array_equal(new["train_error"], old["train_error"])
    for words in ({"temperature": 0.1}, {"ridge": 0.1, "penalty": sl.Ridge(0.1)}, {"penalty": sl.Quartic(0.1)}):
        with pytest.raises(sl.InputError, match=r"temperature|ridge|penalty"):
            sl.least_squares_on_data(X, y, sl.SGD(0.3), t_max=2.0, **words)
    with pytest.raises(sl.InputError, match="algorithm"):
        sl.least_squares_on_data(X, y, sl.ShuffledSGD(0.3), t_max=2.0)


def test_labels_of_one_and_minus_one_have_a_zero_one_error(table):
    X, y, X_test, y_test = table
    y, y_test = np.sign(y), np.sign(y_test)
    words = {"penalty": sl.Ridge(0.1), "X_test": X_test, "y_test": y_test, "times": [0.0, 1.0, 3.0]}
    runs = sl.simulate_on_data(X, y, sl.SGD(0.2), trials=40, **words)
    theory = sl.least_squares_on_data(X, y, sl.SGD(0.2), **(words | {"times": runs.time}))
    assert theory["train_error"][0] == theory["test_error"][0] == 0.5
    for name in ("train_error", "test_error"):
        mean, error = runs.curve(name)
        # two steps of one row, 1/300, beyond the error of 40 trials
        assert np.all(np.abs(mean - theory[name])[1:] < 4 * error[1:] + 2 / 300)
    squared = sl.least_squares_on_data(X, y, sl.SGD(0.2), binary=False, **words)
    np.testing.assert_allclose(squared["train_error"], 2 * squared["train_loss"])
