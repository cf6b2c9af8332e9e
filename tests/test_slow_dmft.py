"""The solver against independent simulation at large dimension, and the coverage of its error bars: minutes."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from problems import CURVES, logistic, square
from scipy import stats

import sgdlimit as sl

pytestmark = pytest.mark.slow


def assert_report(report, within):
    print(report)
    assert report.agrees(within), report


@pytest.mark.parametrize(
    ("delta", "tau", "ridge", "dt"), [(2.0, 0.4, 0.1, 0.04), (0.5, 0.8, 0.3, 0.02), (4.0, 0.0, 0.0, 0.05)]
)
def test_ridge_to_three_in_a_thousand(delta, tau, ridge, dt):
    """t = 8, 10⁵ samples, extrapolated: within 3 reported errors everywhere, and below 3e-3 relative."""
    problem, algorithm = square(delta, ridge), sl.SGF(tau)
    solution = sl.solve(problem, algorithm, t_max=8.0, dt=dt, samples=100_000, extrapolate=True, kernels=True)
    exact = sl.least_squares(problem, algorithm, times=solution.time, kernels=True)
    for name in (*CURVES, "R_theta", "R_ell"):
        value, error = solution.curve(name)
        keep = np.ones(value.shape, dtype=bool)
        if name.startswith("R"):
            keep &= np.tril(np.ones(value.shape[:2], dtype=bool))[:, :, None, None]
        gap = np.abs(value - exact[name])[keep]
        scale = np.max(np.abs(exact[name]))
        pointwise = np.max(gap / np.maximum(np.abs(exact[name][keep]), 1e-2 * scale))
        print(f"{name:12s} max |z| {np.max(gap / (error[keep] + 1e-9)):.2f}, of the largest {gap.max() / scale:.1e}, "
              f"pointwise {pointwise:.1e}")  # fmt: skip
        assert np.max(gap / (error[keep] + 1e-9)) < 3
        assert gap.max() / scale < 3e-3


@pytest.mark.parametrize(("algorithm", "value"), [(sl.SGD(4.0, batch_size=2), 0.167), (sl.SGF(4.0), 0.139)])
def test_logistic_at_high_temperature(algorithm, value):
    """τ = 4: the Poisson law is that of SGD, the Gaussian law that of SGF; d = 4096."""
    problem = logistic()
    solution = sl.solve(problem, algorithm, t_max=5.0, dt=0.05, samples=65536, extrapolate=True)
    step = {} if isinstance(algorithm, sl.SGD) else {"dt": 0.0125}
    runs = sl.simulate(problem, algorithm, dim=4096, trials=14, times=np.linspace(0.5, 5, 10), seed=16, **step)
    print(solution["train_error"][-1], solution["train_error_stderr"][-1], runs["train_error"][:, -1].mean())
    assert_report(sl.compare(solution, runs, CURVES), 3.0)
    assert_within(solution["train_error"][-1] - value, np.hypot(solution["train_error_stderr"][-1], 0.001))


@pytest.mark.parametrize("problem", [square(), logistic()], ids=["square", "logistic"])
@pytest.mark.parametrize(
    "algorithm",
    [sl.ProportionalSGD(0.3), sl.PersistentSGD(0.3, 1.0), sl.ShuffledSGD(1.0, batch_size=4)],
    ids=["proportional", "persistent", "shuffled"],
)
def test_other_algorithms(problem, algorithm):
    """Their simulators at d = 2000."""
    own = algorithm.rows is not None
    solution = sl.solve(problem, algorithm, t_max=5.0, dt=0.05 if own else 0.1, samples=65536, extrapolate=own)
    step = {} if own else {"dt": 0.1}
    runs = sl.simulate(problem, algorithm, dim=2000, trials=10, times=np.linspace(0.5, 5, 10), seed=2, **step)
    assert_report(sl.compare(solution, runs, CURVES), 4.0)


def test_reshuffling_differs_from_fresh_draws():
    """τ = 2, δ = 1.5: nine percent more overlap at t = 6, in theory and at d = 2000."""
    overlap = {}
    for algorithm in (sl.ShuffledSGD(2.0, batch_size=2), sl.SGD(2.0, batch_size=2)):
        solution = sl.solve(logistic(1.5), algorithm, t_max=6.0, dt=0.05, samples=65536, extrapolate=True)
        runs = sl.simulate(logistic(1.5), algorithm, dim=2000, trials=10, times=[3.0, 6.0], seed=3)
        assert_report(sl.compare(solution, runs, CURVES), 4.0)
        overlap[type(algorithm)] = solution["overlap"][-1, 0, 0], runs["overlap"][:, -1].mean()
    theory, simulated = (overlap[sl.ShuffledSGD][k] / overlap[sl.SGD][k] for k in (0, 1))
    print(overlap, theory, simulated)
    assert abs(theory - 1.09) < 0.01
    assert abs(theory - simulated) < 0.02


def test_nonlinear_penalty_and_sparse_teacher():
    """SGF at d = 4000: curves, and the histogram of θ (Wasserstein-1 below 0.02)."""
    problem = logistic(penalty=sl.SmoothL1(0.1, 0.1), teacher=sl.SparseNormal(0.2, 2.0))
    algorithm = sl.SGF(0.5)
    solution = sl.solve(problem, algorithm, t_max=4.0, dt=0.05, samples=65536, extrapolate=True, snapshots=[4.0])
    runs = sl.simulate(problem, algorithm, dim=4000, trials=6, times=np.linspace(0.4, 4, 10), dt=0.0125, seed=4)
    assert_report(sl.compare(solution, runs, CURVES), 4.0)
    distance = stats.wasserstein_distance(solution["theta"].ravel(), runs["theta"][:, -1].ravel())
    print("Wasserstein-1", distance)
    assert distance < 0.02


def erf(x):
    return jax.scipy.special.erf(x / jnp.sqrt(2.0))


@pytest.mark.parametrize(("width", "teacher_width"), [(2, 2), (3, 3), (3, 2)])
def test_committees(width, teacher_width):
    """Planted erf committees against SGD at d = 2000, the last with a teacher of another width."""
    problem = sl.Problem(
        loss=sl.TwoLayer(erf), labels=sl.TwoLayerLabels(erf), sample_ratio=3.0, teacher=sl.Normal(1.0),
        init=sl.Normal(0.5), noise=sl.Normal(0.1), width=width, teacher_width=teacher_width,
    )  # fmt: skip
    algorithm = sl.SGD(0.5, batch_size=2)
    solution = sl.solve(problem, algorithm, t_max=3.0, dt=0.05, samples=65536, extrapolate=True)
    runs = sl.simulate(problem, algorithm, dim=2000, trials=30, times=np.linspace(0.3, 3, 10), seed=15)
    assert_report(sl.compare(solution, runs, CURVES), 4.0)


def test_schedule():
    problem = logistic(schedule=sl.CosineDecay(4.0, 0.1))
    algorithm = sl.SGD(1.0, batch_size=4)
    solution = sl.solve(problem, algorithm, t_max=4.0, dt=0.05, samples=65536, extrapolate=True)
    runs = sl.simulate(problem, algorithm, dim=2000, trials=12, times=np.linspace(0.4, 4, 10), seed=6)
    assert_report(sl.compare(solution, runs, CURVES), 4.0)


def test_paper_setting_of_the_fixed_point_is_fifty_times_slower():
    """Logistic, t = 10, γ = 0.05, M = 8000 (8192): both methods agree; times without compiling, in one run."""
    arguments = {"t_max": 10.0, "dt": 0.05, "samples": 8000}
    sl.solve(logistic(), sl.SGF(0.2), dtype="float32", **arguments)
    begin = time.perf_counter()
    march = sl.solve(logistic(), sl.SGF(0.2), dtype="float32", seed=1, **arguments)
    quick = time.perf_counter() - begin
    iterated = sl.solve(logistic(), sl.SGF(0.2), method="fixed-point", **arguments)
    slow = iterated.about["diagnostics"]["seconds"]
    print(f"march {quick:.2f} s, fixed point {slow:.1f} s in {iterated.about['diagnostics']['iterations']} iterations")
    for name in CURVES:
        (a, e), (b, f) = march.curve(name), iterated.curve(name)
        assert_within((a - b)[::10], np.hypot(e, f)[::10] + 2e-3)
    assert slow / quick > 50


def test_coverage_of_the_error_bars():
    """200 random ridge problems with a known answer: ±1.96 errors cover it between 90 and 99 percent of the time."""
    rng, hits = np.random.default_rng(7), {name: [] for name in CURVES}
    for seed in range(200):
        delta, tau, ridge = rng.uniform(0.5, 4), rng.uniform(0.1, 1.0), rng.uniform(0.0, 0.5)
        problem = square(delta, ridge, noise=sl.Normal(rng.uniform(0.1, 1.0)), teacher=sl.Normal(rng.uniform(0.5, 2)))
        algorithm = sl.SGF(tau)
        times = np.linspace(0, rng.uniform(0.8, 1.6), 25)
        solution = sl.solve(problem, algorithm, times=times, samples=4096, extrapolate=True, seed=seed)
        exact = sl.least_squares(problem, algorithm, times=times[-1:])
        for name in CURVES:
            value, error = solution.curve(name)
            hits[name].append(abs(value.ravel()[-1] - exact[name].ravel()[-1]) <= 1.96 * error.ravel()[-1])
    rates = {name: np.mean(found) for name, found in hits.items()}
    print(rates)
    for name in CURVES:
        assert 0.90 <= rates[name] <= 0.99, rates
