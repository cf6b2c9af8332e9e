"""`least_squares` against closed forms, an independent solver, and the exact second moments of a matrix SDE."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from test_spectrum import by_density

import sgdlimit as sl
from sgdlimit.exact import volterra


def make(delta=2.0, ridge=0.1, noise=0.5, **more):
    words = {"teacher": sl.Normal(1.2), "noise": sl.Normal(noise), "penalty": sl.Ridge(ridge)} | more
    return sl.Problem(loss=sl.Square(), sample_ratio=delta, **words)


@pytest.mark.parametrize("delta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_gradient_flow_is_the_closed_form(delta, ridge):
    """τ = 0: train₀ and test₀ of `prop:dmft_ridge`, integrated independently. Relative error below 1e-6."""
    rho2, s2 = 1.44, 0.25
    times = np.array([0.0, 0.3, 2.0, 20.0])
    solution = sl.least_squares(make(delta, ridge), sl.GradientFlow(), times=times)
    for i, t in enumerate(times):

        def left(x, t=t):
            if x + ridge == 0:
                return 1.0
            return (ridge + x * np.exp(-(x + ridge) * t)) / (x + ridge)

        def fitted(x, t=t):
            return 0.0 if x == 0 else x / (x + ridge) ** 2 * (1 - np.exp(-(x + ridge) * t)) ** 2

        train = rho2 * by_density(lambda x, f=left: x * f(x) ** 2, delta)
        train += s2 / delta * by_density(lambda x, f=left: f(x) ** 2, delta) + (delta - 1) / delta * s2
        test = rho2 * by_density(lambda x, f=left: f(x) ** 2, delta) + s2 / delta * by_density(fitted, delta) + s2
        assert solution["train_error"][i] == pytest.approx(train, rel=1e-6, abs=1e-9)
        assert solution["test_error"][i] == pytest.approx(test, rel=1e-6)


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.9, 2.5])
@pytest.mark.parametrize("delta", [math.inf, 1e9])
def test_infinite_data_is_the_closed_form(delta, tau):
    """δ → ∞, λ = 0: THEORY of online least squares, relative error below 1e-6 (δ = 1e9 leaves 1e-9 of its own)."""
    rho2, s2 = 1.44, 0.25
    solution = sl.least_squares(make(delta, 0.0), sl.SGF(tau), t_max=5.0)
    t = solution.time
    overlap = rho2 * (1 - np.exp(-t))
    fade = np.exp(-(2 - tau) * t)
    norm = rho2 * (1 - 2 * np.exp(-t) + fade) + tau * s2 / (2 - tau) * (1 - fade)
    np.testing.assert_allclose(solution["overlap"][:, 0, 0], overlap, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(solution["norm"][:, 0, 0], norm, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(solution["test_error"], norm - 2 * overlap + rho2 + s2, rtol=1e-6)
    np.testing.assert_allclose(solution["train_error"], solution["test_error"], rtol=1e-6)


def exact_moments(problem, tau, times, schedule=lambda t: 1.0, max_step=np.inf):
    """Second method: the ODE of every eigenmode's second moments on quantiles of μ, by an adaptive integrator.

    Modes x carry signal e = θ − θ* and fitted noise, and a variance V with V' = −2s(x+λ)V + τs²x·train.
    """
    from sgdlimit.exact.spectrum import marchenko_pastur

    delta, ridge = problem.sample_ratio, float(problem.penalty.strength)
    gram, s2 = problem.gram(), float(problem.noise.moments(1)[1][0, 0])
    mu = marchenko_pastur(delta, times[-1])
    x, w = mu.nodes, mu.weights

    def velocity(t, state):
        keep, fit, variance = state.reshape(3, -1)
        left = 1 - x * fit
        signal = gram[0, 0] * keep**2 - 2 * gram[0, 1] * keep * left + gram[1, 1] * left**2
        train = w @ (x * (signal + variance) + s2 / delta * left**2) + s2 * (1 - 1 / delta)
        s = schedule(t)
        return np.concatenate(
            [
                -s * (x + ridge) * keep,
                s * (1 - (x + ridge) * fit),
                -2 * s * (x + ridge) * variance + tau * s**2 * x * train,
            ]
        )

    start = np.concatenate([np.ones_like(x), np.zeros_like(x), np.zeros_like(x)])
    out = solve_ivp(
        velocity, (0, times[-1]), start, t_eval=times, rtol=1e-10, atol=1e-12, method="DOP853", max_step=max_step
    )
    keep, fit, variance = out.y.reshape(3, len(x), -1)
    left = 1 - x[:, None] * fit
    signal = gram[0, 0] * keep**2 - 2 * gram[0, 1] * keep * left + gram[1, 1] * left**2
    train = w @ (x[:, None] * (signal + variance) + s2 / delta * left**2) + s2 * (1 - 1 / delta)
    test = w @ (signal + s2 / delta * x[:, None] * fit**2 + variance) + s2
    return train, test


@pytest.mark.parametrize(
    ("delta", "tau", "ridge"), [(2.0, 0.4, 0.1), (0.5, 0.8, 0.3), (1.0, 0.2, 0.0), (2.0, 3.0, 0.1), (0.1, 1.0, 0.01)]
)
def test_volterra_against_an_ode(delta, tau, ridge):
    problem, times = make(delta, ridge), np.linspace(0, 6, 13)
    solution = sl.least_squares(problem, sl.SGD(tau), times=times)
    train, test = exact_moments(problem, tau, times)
    np.testing.assert_allclose(solution["train_error"], train, rtol=1e-7)
    np.testing.assert_allclose(solution["test_error"], test, rtol=1e-7)


def test_schedule_and_random_start_against_an_ode():
    problem = make(1.5, 0.2, init=sl.Normal(0.7), teacher=sl.Uniform(0.0, 2.0), schedule=sl.PowerDecay(2.0, 0.7))
    times = np.linspace(0, 6, 7)
    solution = sl.least_squares(problem, sl.SGF(0.9), times=times)
    train, test = exact_moments(problem, 0.9, times, schedule=lambda t: (1 + t / 2) ** -0.7)
    np.testing.assert_allclose(solution["train_error"], train, rtol=1e-6)
    np.testing.assert_allclose(solution["test_error"], test, rtol=1e-6)


@pytest.mark.parametrize("name", ["stop", "drop", "oscillation", "steep"])
def test_rough_schedules_against_an_ode(name):
    """Jumps and oscillations between recorded times are resolved."""
    schedules = {
        "stop": lambda t: jnp.where(t < 3.3, 1.0, 0.0),
        "drop": lambda t: jnp.where(t < 3.3, 1.0, 0.1),
        "oscillation": lambda t: jnp.sin(20 * t) ** 2,
        "steep": lambda t: (1 + t / 0.01) ** -0.5,
    }
    fn = schedules[name]
    problem = make(1.5, 0.1, schedule=sl.Schedule(fn))
    solution = sl.least_squares(problem, sl.SGD(0.9), times=[10.0])

    def schedule(t):
        return {
            "stop": float(t < 3.3),
            "drop": 1.0 if t < 3.3 else 0.1,
            "oscillation": math.sin(20 * t) ** 2,
            "steep": (1 + t / 0.01) ** -0.5,
        }[name]

    train, test = exact_moments(problem, 0.9, np.array([10.0]), schedule=schedule, max_step=0.005)
    assert solution["train_error"][0] == pytest.approx(train[0], rel=1e-6)
    assert solution["test_error"][0] == pytest.approx(test[0], rel=1e-6)


def test_long_times_keep_the_power_law():
    """δ = 1, λ = 0, no label noise: train error decays as t^{−3/2}, through panels that grow with time."""
    problem = sl.Problem(loss=sl.Square(), sample_ratio=1.0, teacher=sl.Normal(1.0))
    solution = sl.least_squares(problem, sl.SGD(0.5), times=[100.0, 1e3, 2e4])
    scaled = solution["train_error"] * solution.time**1.5
    # At late times the kernel is short: train = train₀ + τ∫H₂·train with ∫H₂ = ½.
    flow = sl.least_squares(problem, sl.GradientFlow(), times=[2e4])["train_error"][0] * 2e4**1.5
    assert scaled[2] == pytest.approx(flow / (1 - 0.25), rel=1e-3)
    assert scaled[1] == pytest.approx(scaled[2], rel=1e-2)
    fine = sl.least_squares(problem, sl.SGD(0.5), times=np.linspace(0, 100, 401))
    assert fine["train_error"][-1] == pytest.approx(solution["train_error"][0], rel=1e-11)
    with pytest.raises(sl.InputError, match="t_max"):
        sl.least_squares(problem, sl.SGD(0.5), t_max=1e7)


def test_growth_far_above_the_stable_temperature_is_resolved():
    """λ = 0, δ = ∞: e^{(τ−2)t} with τ = 60, in one recorded step."""
    solution = sl.least_squares(make(math.inf, 0.0, noise=0.0), sl.SGD(60.0), times=[0.5])
    assert solution["train_error"][0] == pytest.approx(1.44 * math.exp(58 * 0.5), rel=1e-6)


def test_a_schedule_has_no_single_stable_temperature():
    calm = sl.least_squares(make(2.0, 0.0, schedule=sl.PowerDecay(2.0, 1.0)), sl.SGD(3.0), times=[0.0, 10.0, 40.0])
    assert calm.message == ""
    assert calm["train_error"][2] < calm["train_error"][1]


def test_volterra_of_one_exponential():
    """f = 1 + τ∫e^{−a(t−s)}f has f = (a − τe^{−(a−τ)t})/(a − τ)."""
    a, tau, times = 3.0, 1.2, np.array([0.0, 0.1, 1.0, 7.0])
    curve = volterra.solve(np.ones_like, np.array([a]), np.array([1.0]), tau, times)
    np.testing.assert_allclose(curve.train, (a - tau * np.exp(-(a - tau) * times)) / (a - tau), rtol=1e-12)


def test_recorded_times_do_not_change_the_solution(ridge):
    """Prefix and refinement: the same numbers wherever the panels are cut."""
    coarse = sl.least_squares(ridge, sl.SGD(0.5), times=[0.0, 3.0])
    fine = sl.least_squares(ridge, sl.SGD(0.5), times=np.linspace(0, 6, 61))
    assert fine["train_error"][30] == pytest.approx(coarse["train_error"][1], rel=1e-12)


def test_kernels_are_those_of_the_paper(ridge):
    """R_θ = K_0, R_ℓ = −K_1/δ, equal times of C_θ are the norm; C_θ is positive semidefinite, R retarded."""
    solution = sl.least_squares(ridge, sl.SGF(0.6), t_max=4.0, kernels=True)
    t, i, j = solution.time, 40, 11
    lag = t[i] - t[j]
    K0 = by_density(lambda x: np.exp(-(x + 0.1) * lag), 2.0)
    K1 = by_density(lambda x: x * np.exp(-(x + 0.1) * lag), 2.0)
    assert solution["R_theta"][i, j, 0, 0] == pytest.approx(K0, rel=1e-9)
    assert solution["R_ell"][i, j, 0, 0] == pytest.approx(-K1 / 2, rel=1e-9)
    C = solution["C_theta"][:, :, 0, 0]
    np.testing.assert_allclose(np.diag(C), solution["norm"][:, 0, 0], atol=1e-12)
    assert np.linalg.eigvalsh(C).min() > -1e-10
    assert np.all(solution["R_theta"][:, :, 0, 0][np.triu_indices(51, 1)] == 0)
    np.testing.assert_array_equal(solution["Gamma"][:, 0, 0], 1.0)


def test_response_equations_of_the_paper(ridge):
    """`eq:R_ell_closed`: R_ℓ = −(1/δ)∫R_θ R_ℓ − R_θ/δ, on a fine grid (trapezoid, error O(h²))."""
    solution = sl.least_squares(ridge, sl.GradientFlow(), times=np.linspace(0, 2, 401), kernels=True)
    Rt, Rl, h = solution["R_theta"][:, 0, 0, 0], solution["R_ell"][:, 0, 0, 0], 2 / 400
    i = 300
    convolution = h * (np.dot(Rt[i::-1], Rl[: i + 1]) - 0.5 * (Rt[i] * Rl[0] + Rt[0] * Rl[i]))
    assert Rl[i] == pytest.approx(-(convolution + Rt[i]) / 2, abs=1e-5)


def test_only_two_moments_enter(ridge):
    a, b = (sl.least_squares(ridge, algorithm, t_max=3.0) for algorithm in (sl.SGD(0.5, batch_size=7), sl.SGF(0.5)))
    np.testing.assert_array_equal(a["train_error"], b["train_error"])


def test_several_teacher_units_add_up():
    one = make(2.0, 0.1, teacher=sl.Normal(math.sqrt(2)))
    two = make(2.0, 0.1, teacher=sl.Normal(1.0), teacher_width=2)
    a, b = (sl.least_squares(p, sl.SGD(0.5), t_max=3.0) for p in (one, two))
    np.testing.assert_allclose(a["test_error"], b["test_error"], rtol=1e-12)
    np.testing.assert_allclose(a["overlap"][:, 0, 0], b["overlap"].sum(axis=2)[:, 0], rtol=1e-12)


def test_unplanted_labels_are_pure_noise():
    problem = sl.Problem(loss=sl.Square(), labels=sl.Noise(), sample_ratio=2.0, noise=sl.Normal(1.0))
    solution = sl.least_squares(problem, sl.GradientFlow(), t_max=200.0)
    # Fitting pure noise leaves (n−d)/n of it on the training set and adds d/(n−d) on fresh samples.
    assert solution["train_error"][-1] == pytest.approx(0.5, rel=1e-6)
    assert solution["test_error"][-1] == pytest.approx(2.0, rel=1e-6)
    assert "overlap" not in solution


def test_growth_above_the_stable_temperature():
    problem = make(2.0, 0.1)
    limit = sl.least_squares(problem, sl.SGD(0.1), t_max=1.0).about["diagnostics"]["stable_temperature"]
    times = [0.0, 50.0, 100.0]
    below = sl.least_squares(problem, sl.SGD(0.97 * limit), times=times)["train_error"]
    above = sl.least_squares(problem, sl.SGD(1.03 * limit), times=times)
    assert below[2] < 1.2 * below[1]
    assert above["train_error"][2] > 1.2 * above["train_error"][1]
    assert "largest stable temperature" in above.message
    with pytest.warns(sl.DivergenceWarning, match="diverged"):
        far = sl.least_squares(problem, sl.SGD(50.0), times=[0.0, 1.0, 1000.0])
    assert far.status == "diverged"
    assert len(far.time) == 2
    assert np.all(np.isfinite(far["train_error"]))


@pytest.mark.parametrize(
    ("problem", "algorithm", "word"),
    [
        ({"loss": sl.Logistic()}, sl.SGD(0.1), "loss"),
        ({"labels": sl.Sign()}, sl.SGD(0.1), "labels"),
        ({"penalty": sl.Quartic(0.1)}, sl.SGD(0.1), "penalty"),
        ({}, sl.ShuffledSGD(0.1), "algorithm"),
        ({}, sl.ProportionalSGD(0.1), "algorithm"),
    ],
)
def test_what_least_squares_does_not_cover(problem, algorithm, word):
    words = {"loss": sl.Square(), "sample_ratio": 2.0, "teacher": sl.Normal(1.0)} | problem
    with pytest.raises(sl.InputError, match=word):
        sl.least_squares(sl.Problem(**words), algorithm, t_max=1.0)


def test_a_burst_between_two_recorded_times():
    """A hundredth of a unit of time in a hundred, found by looking; a millionth of that, declared."""
    found = sl.Schedule(lambda t: 0.01 + jnp.where((t > 50.3) & (t < 50.31), 100.0, 0.0))
    told = sl.Schedule(lambda t: 0.01 + jnp.where((t > 50.3) & (t < 50.30000001), 1e8, 0.0), breaks=[50.3, 50.30000001])
    for schedule, ends in ((found, [50.3, 50.31]), (told, [50.3, 50.30000001])):
        problem = make(math.inf, 0.0, schedule=schedule)
        once = sl.least_squares(problem, sl.SGD(1e-3 if schedule is found else 1e-9), times=[100.0])
        # u = ∫s = 1 + 1: θ − θ* has shrunk by e^−2, and the noise is small
        assert once["overlap"][0, 0, 0] == pytest.approx(1.44 * (1 - math.exp(-2.0)), rel=1e-6)
        cut = sl.least_squares(problem, sl.SGD(1e-9), times=[*ends, 100.0])
        assert cut["overlap"][-1, 0, 0] == pytest.approx(once["overlap"][0, 0, 0], rel=1e-6)


def test_a_schedule_rough_everywhere_is_refused():
    with pytest.raises(sl.InputError, match="schedule"):
        sl.least_squares(make(2.0, 0.1, schedule=sl.Schedule(lambda t: 1 + jnp.sin(1e6 * t))), sl.SGD(0.1), times=[9.0])


@pytest.mark.parametrize(
    ("change", "tau", "t_max"),
    [({}, 0.3, 1e308), ({"sample_ratio": math.inf}, 2.0, 1e308), ({"schedule": sl.PowerDecay()}, 0.3, 1e308)],
)
def test_times_beyond_all_bounds_are_refused(change, tau, t_max):
    words = {"delta": change.pop("sample_ratio", 2.0), "ridge": 0.0} | change
    with pytest.raises(sl.InputError, match="t_max"):
        sl.least_squares(make(**words), sl.SGD(tau), t_max=t_max)


@pytest.mark.parametrize("ridge", [1e15, 1e30, 1e300])
@pytest.mark.parametrize("schedule", [sl.Constant(), sl.CosineDecay(3.0)])
@pytest.mark.parametrize("delta", [2.0, math.inf])
def test_penalties_beyond_all_bounds_are_refused(ridge, schedule, delta):
    with pytest.raises(sl.InputError, match=r"t_max.*penalty|Ridge.strength.*from 0 to"):
        sl.least_squares(make(delta, ridge, schedule=schedule), sl.SGF(0.3), t_max=2.0, kernels=True)


def test_many_panels_are_counted_over_all_times():
    """Each stretch between two times needs few enough; all together would take an hour."""
    with pytest.raises(sl.InputError, match=r"t_max.*7.*e\+07 steps"):
        sl.least_squares(make(2.0, 1e8, schedule=sl.CosineDecay(3.0)), sl.SGF(0.3), t_max=2.0)


def test_a_fast_decay_is_cheap_however_long():
    problem = make(math.inf, 0.0, schedule=sl.PowerDecay(1.0, 1.0))
    assert sl.least_squares(problem, sl.SGD(0.3), times=[1e9]).status == "complete"


def test_a_huge_ridge():
    """τ_max = 2/∫x²/(x+λ) → 2λ/E x², E x² = 1 + 1/δ; and nothing is learned."""
    solution = sl.least_squares(make(2.0, 1e8), sl.SGD(0.3), t_max=10.0)
    assert solution.about["diagnostics"]["stable_temperature"] == pytest.approx(2e8 / 1.5, rel=1e-6)
    np.testing.assert_allclose(solution["train_error"], 1.44 + 0.25, rtol=1e-6)
    close = [sl.least_squares(make(0.7, r), sl.SGD(0.1), t_max=1.0).about["diagnostics"] for r in (1.0, 1 + 1e-9)]
    assert close[0]["stable_temperature"] == pytest.approx(close[1]["stable_temperature"], rel=1e-8)


def test_growth_is_a_status():
    with pytest.warns(sl.DivergenceWarning, match="grows without bound"):
        solution = sl.least_squares(make(2.0, 0.1), sl.SGD(3.0), t_max=2.0)
    assert solution.status == "diverged"
    assert len(solution.time) == 51
