"""The simulators: one-step moments, batches, reproducibility, and every algorithm against least squares."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_agrees, assert_within

import sgdlimit as sl
from sgdlimit.algorithms.base import StoredData, Weights
from sgdlimit.algorithms.minibatch import FLOYD_LIMIT, without_replacement

N, D, M = 12, 5, 2


@pytest.fixture(scope="module")
def small():
    """A fixed small system with m = 2, a nonlinear loss, a penalty, and weights away from any symmetry."""
    problem = sl.Problem(
        loss=sl.TwoLayer(jnp.tanh, readout=(1.0, -0.5)),
        penalty=sl.Quartic(0.3),
        sample_ratio=N / D,
        teacher=sl.Normal(1.0),
        width=M,
    )
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(N, D)) / np.sqrt(D), rng.normal(size=(D, M))
    r_star, z = X @ rng.normal(size=(D, M)), rng.normal(size=N)
    data = StoredData(problem, *(jnp.asarray(a, dtype=jnp.float32) for a in (X, r_star, z)))

    def ell(r):
        """∇_r of ½(Σ a tanh(r) − y)², by hand."""
        a = np.array([1.0, -0.5])
        residual = np.tanh(r) @ a - (r_star.sum(axis=1) + z)
        return residual[:, None] * a / np.cosh(r) ** 2

    return data, X, theta, ell(X @ theta), 0.3 * theta**3


def one_step(algorithm, data, theta, dt, count):
    """Many independent single updates from the same θ, flattened to (count, d·m)."""
    start = Weights(jnp.asarray(theta, dtype=jnp.float32), {})

    @jax.jit
    @jax.vmap
    def step(key):
        draw_key, step_key, state_key = jax.random.split(key, 3)
        state = algorithm.start_updates(state_key, data, start)
        draws = algorithm.draws(draw_key, 0, 1, N)
        draw = None if draws is None else draws[0]
        return algorithm.update(data, start, state, 0.0, dt, draw, step_key)[0].theta - start.theta

    return np.asarray(step(jax.random.split(jax.random.key(1), count)), dtype=float).reshape(count, -1)


@pytest.mark.parametrize("batch_size", [1, 4, 11])
def test_sgd_increment_moments(small, batch_size):
    """Mean and covariance of one SGD step: the paper's formulas, the second covariance term with a minus sign."""
    data, X, theta, ell, h = small
    count, tau = 100_000, 0.7
    eta, delta = tau * batch_size, N / D
    steps = one_step(sl.SGD(tau, batch_size=batch_size), data, theta, 0.0, count)
    mean = -eta / D * (h + X.T @ ell / delta)
    single = np.einsum("nd,nm->ndm", X, ell).reshape(N, -1)
    total = single.sum(axis=0)
    factor = eta**2 * (N - batch_size) / (batch_size * N * (N - 1))
    covariance = factor * (single.T @ single - np.outer(total, total) / N)
    check_moments(steps, mean.ravel(), covariance)
    # With the sign as printed the test would fail: the two differ by far more than the errors.
    printed = factor * (single.T @ single + np.outer(total, total) / N)
    deviation = steps - mean.ravel()
    spread = np.std(np.einsum("ni,nj->nij", deviation, deviation), axis=0) / np.sqrt(count)
    assert np.max(np.abs(np.cov(steps.T) - printed) / spread) > 50


@pytest.mark.parametrize(("batch_size", "used"), [(4, 1), (11, 4), (12, 7)])
def test_increment_moments_of_a_batch_used_in_part(small, batch_size, used):
    """Those of a batch of that size, at the learning rate of the whole one."""
    data, X, theta, ell, h = small
    tau, share = 0.4, used / batch_size
    steps = one_step(sl.SGD(tau, batch_size, sl.Schedule(lambda t: share)), data, theta, 0.0, 100_000)
    eta, single = tau * batch_size, np.einsum("nd,nm->ndm", X, ell).reshape(N, -1)
    total = single.sum(axis=0)
    factor = eta**2 * (N - used) / (used * N * (N - 1))
    covariance = factor * (single.T @ single - np.outer(total, total) / N)
    check_moments(steps, (-eta / D * (h + X.T @ ell * D / N)).ravel(), covariance)


@pytest.mark.parametrize("algorithm", [sl.SGF(0.7), sl.ProportionalSGD(0.4), sl.PersistentSGD(0.4, 1.0)])
def test_weighted_increment_moments(small, algorithm):
    """SGF (`eq:sgf_disc`) and proportional batches: mean −γ(h + Xᵀℓ/δ), covariance Var(Z)/δ² Σ x_iℓ_i ⊗ x_iℓ_i."""
    data, X, theta, ell, h = small
    count, dt, delta = 100_000, 0.05, N / D
    steps = one_step(algorithm, data, theta, dt, count)
    mean = -dt * (h + X.T @ ell / delta)
    single = np.einsum("nd,nm->ndm", X, ell).reshape(N, -1)
    covariance = float(algorithm.variance(0.0, dt, delta)) / delta**2 * single.T @ single
    if isinstance(algorithm, sl.SGF):  # the paper writes it as γτ/δ Σ
        np.testing.assert_allclose(covariance, dt * 0.7 / delta * single.T @ single, rtol=1e-6)
    check_moments(steps, mean.ravel(), covariance)


def check_moments(steps, mean, covariance):
    count = len(steps)
    assert_within(steps.mean(axis=0) - mean, steps.std(axis=0) / np.sqrt(count) + 1e-6)
    deviation = steps - mean
    products = np.einsum("ni,nj->nij", deviation, deviation)
    assert_within(products.mean(axis=0) - covariance, products.std(axis=0) / np.sqrt(count) + 1e-6)


@pytest.mark.parametrize(("count", "n"), [(1, 9), (3, 9), (7, 70), (64, 70), (FLOYD_LIMIT + 1, FLOYD_LIMIT + 6)])
def test_batches_are_uniform_subsets(count, n):
    draws = 20_000 if n < 100 else 1000
    rows = np.asarray(without_replacement(jax.random.key(0), draws, n, count))
    assert rows.shape == (draws, count)
    ordered = np.sort(rows, axis=1)
    assert np.all(np.diff(ordered, axis=1) > 0)
    assert ordered.min() >= 0
    assert ordered.max() < n
    member = np.zeros((draws, n))
    np.put_along_axis(member, rows, 1.0, axis=1)
    p = count / n
    assert_within(member.mean(axis=0) - p, np.sqrt(p * (1 - p) / draws))
    if count > 1:
        pair = count * (count - 1) / (n * (n - 1))
        assert_within((member[:, :4].T @ member[:, 4:8] / draws) - pair, np.sqrt(pair * (1 - pair) / draws))


def test_shuffled_epochs_use_every_sample_once():
    algorithm, n = sl.ShuffledSGD(0.5, batch_size=7), 20  # 7 does not divide 20
    key = jax.random.key(3)
    whole = np.asarray(algorithm.draws(key, 0, 60, n)).ravel()
    for epoch in range(60 * 7 // n):
        assert sorted(whole[epoch * n : (epoch + 1) * n]) == list(range(n))
    parts = np.concatenate([np.asarray(algorithm.draws(key, first, 15, n)) for first in (0, 15, 30, 45)])
    np.testing.assert_array_equal(parts.ravel(), whole)
    assert not np.array_equal(whole[:n], whole[n : 2 * n])


def test_same_seed_same_runs_and_recording_changes_nothing(ridge):
    algorithm = sl.SGD(0.5, batch_size=3)
    words = {"dim": 40, "trials": 3, "seed": 4}
    a = sl.simulate(ridge, algorithm, times=np.linspace(0, 2, 21), **words)
    b = sl.simulate(ridge, algorithm, times=np.linspace(0, 2, 21), workers=1, **words)
    for name in a.variables:
        np.testing.assert_array_equal(a[name], b[name])
    c = sl.simulate(ridge, algorithm, times=[0.1, 2.0, 4.0], **words)
    assert c.time[1] == a.time[-1]
    np.testing.assert_array_equal(c["train_error"][:, 1], a["train_error"][:, -1])
    other = sl.simulate(ridge, algorithm, times=[0.1, 2.0, 4.0], **(words | {"seed": 5}))
    assert not np.array_equal(other["train_error"], c["train_error"])


def test_a_trial_does_not_depend_on_how_many_there_are(ridge):
    words = {"dim": 40, "t_max": 1.0, "seed": 1}
    few, many = (sl.simulate(ridge, sl.SGF(0.5), trials=k, **words) for k in (2, 5))
    np.testing.assert_array_equal(few["norm"], many["norm"][:2])


@pytest.mark.parametrize(
    "algorithm", [sl.GradientFlow(), sl.SGF(0.6), sl.SGD(0.6, batch_size=2)], ids=lambda a: type(a).__name__
)
def test_against_least_squares(ridge, algorithm):
    runs = sl.simulate(ridge, algorithm, dim=400, trials=12, times=np.linspace(0, 4, 9), seed=2)
    theory = sl.least_squares(ridge, algorithm, t_max=4.0)
    assert_agrees(sl.compare(runs, theory), trials=12)


def test_float64_agrees_with_float32(ridge):
    """Gradient flow has no noise of its own: only rounding separates the two, given the same data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 40)) / np.sqrt(40)
    y = X @ rng.normal(size=40) + 0.3 * rng.normal(size=80)
    words = {"penalty": sl.Ridge(0.1), "trials": 1, "t_max": 3.0, "dt": 0.05}
    single, double = (sl.simulate_on_data(X, y, sl.GradientFlow(), dtype=d, **words) for d in ("float32", "float64"))
    assert single["theta"].dtype == np.float32
    assert double["theta"].dtype == np.float64
    np.testing.assert_allclose(single["train_error"], double["train_error"], rtol=1e-4)
    exact = sl.least_squares_on_data(X, y, ridge=0.1, times=double.time)
    np.testing.assert_allclose(double["train_error"][0], exact["train_error"], rtol=1e-6)


def test_final_weights_and_predictions_belong_together(ridge):
    runs = sl.simulate(ridge, sl.SGD(0.5), dim=40, trials=2, times=[0.0, 0.5, 1.0], snapshots=[0.5, 1.0])
    theta, r = runs["theta"], runs["r"]
    assert theta.shape == (2, 2, 40, 1)
    assert r.shape == (2, 2, 80, 1)
    np.testing.assert_allclose((theta**2).mean(axis=(2, 3)), runs["norm"][:, 1:, 0, 0], rtol=1e-5)
    y = runs["r_star"][:, :, 0] + runs["z"]
    error = np.mean((r[:, :, :, 0] - y[:, None]) ** 2, axis=2)
    np.testing.assert_allclose(error, runs["train_error"][:, 1:], rtol=1e-5)
    np.testing.assert_allclose(
        runs["overlap"][:, 2, 0, 0], np.mean(theta[:, 1] * runs["theta_star"], axis=(1, 2)), rtol=1e-4
    )


def test_trials_are_independent(ridge):
    runs = sl.simulate(ridge, sl.SGD(0.5), dim=40, trials=3, t_max=0.5)
    for name in ("theta_star", "z", "r_star"):
        flat = runs[name].reshape(3, -1)
        assert np.abs(np.corrcoef(flat) - np.eye(3)).max() < 0.6
    draws = [sl.simulate(ridge, sl.SGD(0.5), dim=40, trials=1, t_max=0.5, seed=s)["z"] for s in (0, 2**32 - 1)]
    assert not np.array_equal(*draws)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "algorithm", [sl.SGD(0.6, batch_size=2), sl.ShuffledSGD(0.6), sl.SGF(0.6), sl.PersistentSGD(0.3, 1.0)]
)
def test_double_precision_runs_without_complaint(ridge, algorithm):
    runs = sl.simulate(ridge, algorithm, dim=40, trials=2, t_max=1.0, dtype="float64")
    assert runs["theta"].dtype == np.float64
    assert runs["train_error"][:, -1].mean() < runs["train_error"][:, 0].mean()


def test_zero_start_counts_as_half_an_error():
    problem = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=2.0, teacher=sl.Normal(1.0))
    runs = sl.simulate(problem, sl.SGD(0.5), dim=50, trials=2, times=[0.0, 0.5])
    np.testing.assert_array_equal(runs["train_error"][:, 0], 0.5)
    np.testing.assert_array_equal(runs["test_error"][:, 0], 0.5)


def test_infinite_data_uses_fresh_samples():
    """One-pass SGD at δ = ∞ against the closed form; shuffled epochs never end, so they are the same."""
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
    theory = sl.online(problem, sl.SGD(0.8), t_max=3.0, samples=256)
    for algorithm in (sl.SGD(0.8, batch_size=2), sl.ShuffledSGD(0.8, batch_size=2)):
        runs = sl.simulate(problem, algorithm, dim=300, trials=12, times=np.linspace(0, 3, 7), seed=3)
        assert_agrees(sl.compare(runs, theory), trials=12)
        np.testing.assert_array_equal(runs["train_loss"], runs["test_loss"])
        assert "r" not in runs


def test_vector_field_simulates_like_the_loss_it_comes_from():
    words = {"sample_ratio": 2.0, "teacher": sl.Normal(1.0), "noise": sl.Normal(0.3)}
    loss = sl.Problem(loss=sl.Square(), penalty=sl.Ridge(0.2), **words)
    field = sl.Problem(
        loss=sl.VectorField(lambda r, r_star, z: r - r_star - z, loss=lambda r, y: 0.5 * (r - y) ** 2),
        penalty=sl.VectorField(lambda theta: 0.2 * theta),
        **words,
    )
    a, b = (sl.simulate(p, sl.SGD(0.5), dim=40, trials=2, t_max=2.0) for p in (loss, field))
    np.testing.assert_allclose(a["train_loss"], b["train_loss"], rtol=1e-4)
    assert "train_error" not in b  # a field does not say what it predicts


def test_wide_student_and_other_teacher():
    problem = sl.Problem(
        loss=sl.TwoLayer(jax.scipy.special.erf),
        labels=sl.TwoLayerLabels(jax.scipy.special.erf),
        sample_ratio=2.0,
        teacher=sl.Rademacher(1.0),
        init=sl.Normal(0.5),
        width=3,
        teacher_width=2,
    )
    runs = sl.simulate(problem, sl.SGD(0.5, batch_size=2), dim=60, trials=2, t_max=1.0)
    assert runs["norm"].shape == (2, 51, 3, 3)
    assert runs["overlap"].shape == (2, 51, 3, 2)
    assert np.all(runs["train_loss"][:, -1] < runs["train_loss"][:, 0])


def test_divergence_keeps_what_it_has_and_says_why(ridge):
    with pytest.warns(sl.DivergenceWarning, match="largest stable temperature") as caught:
        runs = sl.simulate(ridge, sl.SGD(8.0, batch_size=1), dim=100, trials=3, t_max=60.0)
    assert runs.status == "diverged"
    assert "t between" in runs.message
    assert "τ = 8 is above 2.1" in runs.message
    assert len(caught) == 1
    assert 1 <= len(runs.time) < 51
    assert all(np.all(np.isfinite(v.values)) for v in runs.variables.values())


def test_divergence_before_the_first_requested_time(ridge):
    with pytest.warns(sl.DivergenceWarning):
        runs = sl.simulate(ridge, sl.SGD(8.0), dim=40, trials=2, times=[200.0])
    assert len(runs.time) == 0
    assert "diverged" in repr(runs)


def test_no_stable_temperature_is_claimed_where_theory_gives_none():
    words = {"loss": sl.Square(), "sample_ratio": 2.0, "teacher": sl.Normal(1.0)}
    scheduled = sl.Problem(schedule=sl.Schedule(lambda t: 5.0), **words)
    curved = sl.Problem(penalty=sl.SmoothL1(0.1), **words)
    for problem in (scheduled, curved):
        with pytest.warns(sl.DivergenceWarning) as caught:
            sl.simulate(problem, sl.SGD(8.0), dim=50, trials=2, t_max=100.0)
        assert "stable temperature" not in str(caught[0].message)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"dim": 1}, "dim"),
        ({"dim": 10.5}, "dim"),
        ({"dim": 10_000_000}, "dim.*GB"),
        ({"trials": 0}, "trials"),
        ({"t_max": 0.0}, "t_max"),
        ({"t_max": 1e-6}, "t_max"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"t_max": 1e15}, "updates"),
        ({"t_max": "1"}, "t_max"),
        ({"algorithm": sl.SGD(1e-30)}, "updates"),
        ({"algorithm": sl.SGD}, "the class SGD"),
        ({"entries": sl.SparseEntries}, "entries"),
        ({"entries": lambda key, shape: np.random.normal(size=shape)}, "jax.random"),  # noqa: NPY002
        ({"snapshots": "end"}, "snapshots"),
        ({"entries": "cauchy"}, "entries"),
        ({"entries": lambda key, shape: 2 * jax.random.normal(key, shape)}, "variance"),
        ({"dtype": "int8"}, "dtype"),
        ({"dtype": "float128x"}, "dtype"),
        ({"dt": 0.1}, "dt"),
        ({"snapshots": [9.0]}, "snapshots"),
        ({"test_samples": 0}, "test_samples"),
        ({"workers": 0}, "workers"),
        ({"algorithm": sl.SGD(0.5, batch_size=101)}, "batch_size"),
        ({"algorithm": sl.SGD(0.0)}, "temperature"),
        ({"algorithm": sl.SGF(0.5), "dt": -1.0}, "dt"),
        ({"algorithm": "sgd"}, "algorithm"),
    ],
)
def test_bad_input(ridge, change, word):
    words = {"algorithm": sl.SGD(0.5), "dim": 50, "trials": 2, "t_max": 1.0} | change
    with pytest.raises(sl.InputError, match=word) as caught:
        sl.simulate(ridge, **words)
    assert "\n" not in str(caught.value)


def test_flows_need_stored_data():
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    for algorithm in (sl.SGF(0.5), sl.GradientFlow(), sl.ProportionalSGD(0.5)):
        with pytest.raises(sl.InputError, match="sample_ratio"):
            sl.simulate(problem, algorithm, dim=50, t_max=1.0)


def test_second_run_does_not_compile(ridge):
    """Changing τ, λ or the seed reuses everything that was compiled."""
    import logging

    words = {"dim": 44, "trials": 2, "t_max": 1.0}
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("jax._src.dispatch")
    with jax.log_compiles(True):
        logger.addHandler(handler)
        sl.simulate(ridge, sl.SGD(1), **words)
        assert any("XLA compilation of jit(_advance)" in m for m in messages)  # what is looked for does exist
        messages.clear()
        other = sl.Problem(
            loss=sl.Square(), penalty=sl.Ridge(0.2), sample_ratio=2.0, teacher=sl.Normal(2.0), noise=sl.Normal(0.1)
        )
        sl.simulate(other, sl.SGD(0.3), seed=7, **words)
        logger.removeHandler(handler)
    assert [m for m in messages if "XLA compilation" in m] == []


@pytest.mark.parametrize("delta", [0.01, pytest.param(0.2, marks=pytest.mark.slow), 4.0])
def test_default_step_of_flows_follows_the_curvature(delta):
    """Few samples pull with (1 + δ^−½)²: Euler–Maruyama must not lag behind it."""
    problem = sl.Problem(loss=sl.Square(), sample_ratio=delta, teacher=sl.Normal(1.0), noise=sl.Normal(0.3))
    dim, times = round(40 / min(delta, 1.0)), np.array([0.5, 1.0, 2.0]) * min(delta, 1.0)
    runs = sl.simulate(problem, sl.SGF(0.4), dim=dim, trials=24, times=times)
    assert runs.about["options"]["dt"] <= 0.0301 / (1 + delta**-0.5) ** 2
    theory = sl.least_squares(problem, sl.SGF(0.4), times=runs.time)
    mean, error = runs.curve("train_error")
    # beyond the error of 24 trials: a few percent of the step, and of a finite size of n = 40
    assert_within(mean - theory["train_error"], error + 0.02 * theory["train_error"], trials=24)


def test_steps_that_would_grow_are_refused(ridge):
    for algorithm in (sl.SGF(0.3), sl.GradientFlow()):
        with pytest.raises(sl.InputError, match=r"dt.*leave dt out"):
            sl.simulate(ridge, algorithm, dim=50, t_max=2.0, dt=1.5)
    stiff = sl.Problem(loss=sl.Square(), penalty=sl.Ridge(1e8), sample_ratio=2.0, teacher=sl.Normal(1.0))
    with pytest.raises(sl.InputError, match=r"t_max.*curvature of 1e\+08"):
        sl.simulate(stiff, sl.SGF(0.3), dim=50, t_max=1.0)
    with pytest.warns(sl.DivergenceWarning, match=r"slope 1e\+08 is stable up to steps of 2e-08, dt = 0\.006"):
        sl.simulate(stiff, sl.SGD(0.3), dim=50, t_max=1.0, trials=2)


def test_bursts_shorten_the_steps_of_flows():
    schedule = sl.Schedule(lambda t: jnp.where((t > 0.503) & (t < 0.504), 300.0, 0.5))
    problem = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0), schedule=schedule)
    runs = sl.simulate(problem, sl.GradientFlow(), dim=200, trials=8, times=[0.7])
    exact = sl.least_squares(problem, sl.GradientFlow(), times=[0.7])
    assert runs["overlap"].mean() == pytest.approx(exact["overlap"].item(), rel=0.05)


def margin(r, r_star, z):
    return r * (r_star + z)


def test_metrics_are_those_of_solve(ridge):
    """ψ = r(r* + z) on train and test samples, θθ* on weights: the second is the overlap."""
    words = {"metrics": {"margin": margin}, "weight_metrics": {"agreement": lambda theta, star: theta * star}}
    runs = sl.simulate(ridge, sl.SGD(0.5), dim=40, trials=2, times=[0.0, 1.0], snapshots=[1.0], **words)
    np.testing.assert_allclose(runs["agreement"], runs["overlap"][:, :, 0, 0], rtol=1e-5)
    r, y = runs["r"][:, 0, :, 0], runs["r_star"][:, :, 0] + runs["z"]
    np.testing.assert_allclose(runs["train_margin"][:, 1], np.mean(r * y, axis=1), rtol=1e-5)
    assert runs["test_margin"].shape == (2, 2)
    with pytest.raises(sl.InputError, match="metrics"):
        sl.simulate(ridge, sl.SGD(0.5), dim=100, t_max=1.0, metrics={"train_loss": margin})


def test_a_learning_rate_is_a_temperature():
    assert sl.SGD(learning_rate=2.0, batch_size=5) == sl.SGD(0.4, batch_size=5)
    assert sl.ShuffledSGD(learning_rate=2.0, batch_size=5).temperature == 0.4
    assert sl.SGD(0.4, 5).learning_rate == 2.0
    for words in ({"temperature": 0.1, "learning_rate": 0.1}, {}, {"learning_rate": -1.0}):
        with pytest.raises(sl.InputError, match=r"temperature|learning_rate"):
            sl.SGD(batch_size=2, **words)


def test_poisson_numbers_of_large_rates():
    """The first three cumulants of a Poisson number are its rate; those of 1e9 take no longer than those of 300."""
    from sgdlimit.algorithms.minibatch import poisson

    for rate in (300.0, 1e9):
        count = np.asarray(poisson(rate, jax.random.key(0), (200_000,)), dtype=float)
        x = (count - rate) / np.sqrt(rate)
        assert_within(x.mean(), x.std() / np.sqrt(len(x)) + 1e-3)
        assert_within((x**2).mean() - 1, (x**2).std() / np.sqrt(len(x)) + 1e-3)
        assert_within((x**3).mean() - rate**-0.5, (x**3).std() / np.sqrt(len(x)) + 1e-3)


def test_a_loss_that_overflows_is_a_divergence():
    """θ grows at a constant pace, e^{30 r} beyond single precision while θ is small; a metric may be infinite."""
    rising = sl.VectorField(lambda r, r_star, z: -jnp.ones_like(r), loss=lambda r, y: jnp.exp(30 * r))
    problem = sl.Problem(loss=rising, labels=sl.Noise(), sample_ratio=2.0)
    metrics = {"endless": lambda r, r_star, z: 1 / jnp.zeros_like(r)}
    with pytest.warns(sl.DivergenceWarning):
        runs = sl.simulate(problem, sl.GradientFlow(), dim=20, trials=2, t_max=20.0, metrics=metrics)
    assert runs.status == "diverged"
    assert 1 < len(runs.time) < 51
    assert np.all(np.isfinite(runs["train_loss"]))
    assert np.all(np.isfinite(runs["test_loss"]))
    assert np.all(np.isinf(runs["train_endless"]))


def test_more_trials_than_can_be_lined_up_are_refused(ridge):
    with pytest.raises(sl.InputError, match=r"trials.*100000"):
        sl.simulate(ridge, sl.SGD(0.3), dim=20, trials=2**31 - 1, t_max=1.0)


def test_trials_share_the_memory_that_there_is(ridge, monkeypatch):
    """X of 2·20·20 numbers and its copy take 6400 bytes."""
    call = {"dim": 20, "trials": 4, "t_max": 0.1}
    monkeypatch.setattr("sgdlimit.simulation.execute.memory", lambda: 15_000.0)
    assert sl.simulate(ridge, sl.SGD(0.3), **call).about["diagnostics"]["workers"] <= 2
    assert sl.simulate(ridge, sl.SGD(0.3), **call, workers=3).about["diagnostics"]["workers"] == 2
    monkeypatch.setattr("sgdlimit.simulation.execute.memory", lambda: 6_000.0)
    with pytest.raises(sl.InputError, match="dim"):
        sl.simulate(ridge, sl.SGD(0.3), **call)


def test_whoever_watches_sees_every_record_in_order(ridge):
    seen: dict[int, list] = {0: [], 1: [], 2: []}
    call = {"dim": 40, "trials": 3, "t_max": 2.0}
    watch = lambda trial, time, values: seen[trial].append((time, values["train_loss"], values["norm"]))  # noqa: E731
    runs = sl.simulate(ridge, sl.SGD(0.3), **call, watch=watch)
    for trial, rows in seen.items():
        times, losses, norms = zip(*rows, strict=True)
        np.testing.assert_array_equal(times, runs.time)
        np.testing.assert_array_equal(losses, runs["train_loss"][trial])
        np.testing.assert_array_equal(norms, runs["norm"][trial])
    np.testing.assert_array_equal(sl.simulate(ridge, sl.SGD(0.3), **call)["norm"], runs["norm"])


def test_an_error_of_the_watcher_ends_the_runs(ridge):
    def enough(trial, time, values):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sl.simulate(ridge, sl.SGD(0.3), dim=40, trials=3, t_max=2.0, watch=enough)
