"""`online` against closed forms, the Saad–Solla integrals, and its own two methods against each other."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from scipy.integrate import solve_ivp

import sgdlimit as sl
from sgdlimit import _machine
from sgdlimit.measure.averages import make_nodes, observe
from sgdlimit.problem.problem import check_tails
from sgdlimit.results.variables import widening

REPLICAS = 8
"""The default of `online`."""


def spread(solution, name):
    """Standard error of a mean of replicas as Student's t takes it: not widened."""
    return solution[f"{name}_stderr"] / widening(REPLICAS)


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.5])
def test_square_loss_is_the_closed_form(tau):
    """Relative error below 1e-6, with label noise and with a start away from zero."""
    s2 = 0.25
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
    solution = sl.online(problem, sl.SGF(tau), t_max=5.0, samples=256)
    t = solution.time
    overlap, fade = 1 - np.exp(-t), np.exp(-(2 - tau) * t)
    norm = 1 - 2 * np.exp(-t) + fade + tau * s2 / (2 - tau) * (1 - fade)
    np.testing.assert_allclose(solution["overlap"][:, 0, 0], overlap, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(solution["norm"][:, 0, 0], norm, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(solution["test_error"], norm - 2 * overlap + 1 + s2, rtol=1e-6)
    assert solution["norm_stderr"].max() < 1e-7


def test_ridge_start_and_schedule_agree_with_volterra():
    problem = sl.Problem(
        loss=sl.Square(),
        penalty=sl.Penalty(lambda x: 0.15 * x**2),
        sample_ratio=math.inf,
        teacher=sl.Uniform(0.0, 2.0),
        noise=sl.Rademacher(0.5),
        init=sl.Normal(0.7),
        schedule=sl.PowerDecay(2.0, 0.7),
    )
    online = sl.online(problem, sl.SGD(0.8), t_max=4.0, samples=256)
    exact = sl.least_squares(
        sl.Problem(
            loss=sl.Square(),
            penalty=sl.Ridge(0.3),
            sample_ratio=math.inf,
            teacher=sl.Uniform(0.0, 2.0),
            noise=sl.Rademacher(0.5),
            init=sl.Normal(0.7),
            schedule=sl.PowerDecay(2.0, 0.7),
        ),
        sl.SGD(0.8),
        t_max=4.0,
    )
    for name in ("train_loss", "test_error", "overlap", "norm"):
        np.testing.assert_allclose(online[name], exact[name], rtol=2e-6, atol=1e-8)


def saad_solla(Q0, R0, T, eta, times):
    """The ODEs of Saad and Solla (1995) for g(x) = erf(x/√2), η the learning rate per unit time, no noise."""
    K, M = R0.shape

    def covariance(Q, R):
        return np.block([[Q, R], [R.T, T]])

    def angles(C, i, j):
        return np.arcsin(C[i, j] / np.sqrt((1 + C[i, i]) * (1 + C[j, j])))

    def i3(C, i, j, k):
        lam = (1 + C[i, i]) * (1 + C[k, k]) - C[i, k] ** 2
        return 2 / np.pi / np.sqrt(lam) * (C[j, k] * (1 + C[i, i]) - C[i, j] * C[i, k]) / (1 + C[i, i])

    def i4(C, i, j, k, l):  # noqa: E741
        lam4 = (1 + C[i, i]) * (1 + C[j, j]) - C[i, j] ** 2
        lam0 = (
            lam4 * C[k, l]
            - C[j, k] * C[j, l] * (1 + C[i, i])
            - C[i, k] * C[i, l] * (1 + C[j, j])
            + C[i, j] * (C[i, k] * C[j, l] + C[i, l] * C[j, k])
        )
        lam1 = (
            lam4 * (1 + C[k, k])
            - C[j, k] ** 2 * (1 + C[i, i])
            - C[i, k] ** 2 * (1 + C[j, j])
            + 2 * C[i, j] * C[i, k] * C[j, k]
        )
        lam2 = (
            lam4 * (1 + C[l, l])
            - C[j, l] ** 2 * (1 + C[i, i])
            - C[i, l] ** 2 * (1 + C[j, j])
            + 2 * C[i, j] * C[i, l] * C[j, l]
        )
        return 4 / np.pi**2 / np.sqrt(lam4) * np.arcsin(lam0 / np.sqrt(lam1 * lam2))

    sign = np.concatenate([-np.ones(K), np.ones(M)])  # student units enter the residual y − ŷ with a minus

    def velocity(t, state):
        Q, R = state[: K * K].reshape(K, K), state[K * K :].reshape(K, M)
        C, n = covariance(Q, R), K + M
        dR = [[sum(sign[j] * i3(C, i, K + m, j) for j in range(n)) for m in range(M)] for i in range(K)]
        dQ = np.zeros((K, K))
        for i in range(K):
            for k in range(K):
                dQ[i, k] = sum(sign[j] * (i3(C, i, k, j) + i3(C, k, i, j)) for j in range(n))
                dQ[i, k] += eta * sum(sign[j] * sign[q] * i4(C, i, k, j, q) for j in range(n) for q in range(n))
        return np.concatenate([dQ.ravel(), np.ravel(dR)])

    out = solve_ivp(velocity, (0, times[-1]), np.concatenate([Q0.ravel(), R0.ravel()]), t_eval=times, rtol=1e-8)
    error = []
    for state in out.y.T:
        C = covariance(state[: K * K].reshape(K, K), state[K * K :].reshape(K, M))
        n = K + M
        error.append(2 / np.pi * sum(sign[i] * sign[j] * angles(C, i, j) for i in range(n) for j in range(n)))
    return out.y.T, np.array(error)


def test_erf_network_is_saad_and_solla():
    """Two-layer erf network, m = 2, teacher width 2: the ODEs of Saad and Solla, from a generic start."""
    rotation = np.array([[0.8, 0.3], [-0.2, 0.7]])

    def init(key, shape):
        return jax.random.normal(key, shape) @ jnp.asarray(rotation.T, dtype=jnp.float32)

    activation = lambda x: jax.scipy.special.erf(x / jnp.sqrt(2.0))  # noqa: E731
    problem = sl.Problem(
        loss=sl.TwoLayer(activation),
        labels=sl.TwoLayerLabels(activation),
        sample_ratio=math.inf,
        teacher=sl.Normal(1.0),
        init=sl.Law(init),
        width=2,
        teacher_width=2,
    )
    tau, times = 0.5, np.linspace(0, 4, 9)
    solution = sl.online(problem, sl.SGD(tau), times=times, samples=32_768)
    gram = problem.gram()
    states, error = saad_solla(gram[:2, :2], gram[:2, 2:], np.eye(2), tau, times)
    for name, exact in (("norm", states[:, :4]), ("overlap", states[:, 4:])):
        assert_within(solution[name].reshape(9, 4) - exact, spread(solution, name).reshape(9, 4) + 1e-5, REPLICAS)
    assert_within(solution["test_error"] - error, spread(solution, "test_error") + 1e-5, REPLICAS)
    assert np.max(np.abs(solution["test_error"] / error - 1)) < 0.01


def test_particles_agree_with_moments():
    """A penalty that is quadratic to 1e-4 takes the particle road; it must give the moment equations' numbers."""
    words = dict(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    nearly = sl.Penalty(lambda x: 0.1 * x**2 + 1e-4 * jnp.cos(x))
    moments = sl.online(sl.Problem(penalty=sl.Ridge(0.2), **words), sl.SGD(1.0), t_max=2.0, samples=8192)
    particles = sl.online(sl.Problem(penalty=nearly, **words), sl.SGD(1.0), t_max=2.0, samples=8192, particles=4096)
    assert moments.about["method"].endswith("(moment equations)")
    assert particles.about["method"].endswith("(particles)")
    for name in ("overlap", "norm", "test_loss"):
        error = np.hypot(spread(particles, name), spread(moments, name))
        assert_within(particles[name] - moments[name], error + 3e-4, REPLICAS)


@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_huber_with_heavy_noise_is_the_closed_form(sigma):
    """Huber's ℓ = clip(x, ±1) of a Gaussian x = w − w* − z: Γ = P(|x| < 1), E ℓ² by hand, moments as an ODE."""
    tau, ridge, start = 0.5, 0.1, 0.25

    def velocity(t, state):
        Q, c = state
        V = Q - 2 * c + 1 + sigma**2
        inside = math.erf(1 / math.sqrt(2 * V))
        density = math.exp(-1 / (2 * V)) / math.sqrt(2 * math.pi * V)
        square = V * (inside - 2 * density) + (1 - inside)
        return [-2 * (ridge * Q + inside * (Q - c)) + tau * square, -(ridge * c + inside * (c - 1))]

    problem = sl.Problem(
        loss=sl.Huber(1.0),
        penalty=sl.Ridge(ridge),
        sample_ratio=math.inf,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(sigma),
        init=sl.Normal(math.sqrt(start)),
    )
    times = np.array([0.0, 1.0, 4.0])
    solution = sl.online(problem, sl.SGD(tau), times=times)
    exact = solve_ivp(velocity, (0, 4), [start, 0.0], t_eval=times, rtol=1e-10, atol=1e-12).y
    assert_within(solution["norm"][:, 0, 0] - exact[0], spread(solution, "norm")[:, 0, 0] + 1e-6, REPLICAS)
    assert_within(solution["overlap"][:, 0, 0] - exact[1], spread(solution, "overlap")[:, 0, 0] + 1e-6, REPLICAS)
    assert solution["overlap_stderr"].max() < 1e-3


def test_particles_with_a_sparse_teacher_at_short_times():
    """A penalty too weak to matter: particles must give the closed form, from the first steps on."""
    words = dict(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.SparseNormal(0.2, 2.0), init=sl.Normal(0.5))
    particles = sl.online(
        sl.Problem(penalty=sl.SmoothL1(1e-7), **words), sl.SGF(0.6), times=[0.02, 0.1, 1.0], samples=4096
    )
    exact = sl.least_squares(sl.Problem(**words), sl.SGF(0.6), times=[0.02, 0.1, 1.0])
    for name in ("overlap", "norm", "test_error"):
        assert_within(particles[name] - exact[name], spread(particles, name) + 1e-4, REPLICAS)


@pytest.mark.parametrize("penalty", [sl.NoPenalty(), sl.SmoothL1(0.1)])
def test_divergence_before_the_first_requested_time(penalty):
    problem = sl.Problem(loss=sl.Square(), penalty=penalty, sample_ratio=math.inf, teacher=sl.Normal(1.0))
    with pytest.warns(sl.DivergenceWarning):
        solution = sl.online(problem, sl.SGF(6.0), times=[50.0], samples=64, particles=64)
    assert len(solution.time) == 0
    assert "diverged" in repr(solution)
    with pytest.raises(sl.InputError, match="diverged"):
        sl.compare(solution, solution)


def test_standard_errors_shrink_and_cover():
    problem = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    fine = sl.online(problem, sl.SGD(1.0), times=[0.0, 1.0, 2.0], samples=131_072, seed=9)
    rough = sl.online(problem, sl.SGD(1.0), times=[0.0, 1.0, 2.0], samples=2048, seed=1)
    assert np.all(fine["norm_stderr"][1:] < rough["norm_stderr"][1:])
    error = np.hypot(spread(fine, "norm"), spread(rough, "norm"))
    assert_within((fine["norm"] - rough["norm"])[1:], error[1:], REPLICAS)


def test_divergence_is_reported_not_returned():
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    with pytest.warns(sl.DivergenceWarning, match="t between"):
        solution = sl.online(problem, sl.SGD(30.0), t_max=10.0, samples=256)
    assert solution.status == "diverged"
    assert 0 < len(solution.time) < 51
    assert all(np.all(np.isfinite(v.values)) for v in solution.variables.values())


def test_bad_input(ridge):
    with pytest.raises(sl.InputError, match="algorithm"):
        sl.online(ridge, sl.ProportionalSGD(0.3), t_max=1.0)
    with pytest.raises(sl.InputError, match="samples"):
        sl.online(ridge, sl.SGD(0.3), t_max=1.0, samples=3)
    with pytest.raises(sl.InputError, match="replicas"):
        sl.online(ridge, sl.SGD(0.3), t_max=1.0, replicas=1)


BURST = sl.Schedule(lambda t: 0.1 + jnp.where((t > 5.03) & (t < 5.031), 1000.0, 0.0))
"""A thousandth of a unit of time that does half of the work up to t = 10."""


def test_a_burst_of_the_schedule_is_not_stepped_over():
    """Moments and particles against Volterra equations cut at the ends of the burst."""
    words = dict(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0), schedule=BURST)
    exact = sl.least_squares(sl.Problem(**words), sl.SGF(1e-5), times=[5.03, 5.031, 10.0])["train_error"][-1]
    moments = sl.online(sl.Problem(**words), sl.SGF(1e-5), times=[10.0], samples=256, replicas=2)
    assert moments["train_error"][0] == pytest.approx(exact, rel=1e-6)
    curved = sl.Problem(penalty=sl.SmoothL1(1e-9), **words)
    particles = sl.online(curved, sl.SGF(1e-5), times=[10.0], samples=256, particles=256, replicas=2, dt=0.1)
    assert particles["train_error"][0] == pytest.approx(exact, rel=0.1)  # without the burst 7 times as large


def test_step_errors_of_particles_cover_at_the_first_of_a_coarse_grid():
    """Steps of 0.5 against the closed form, with so little noise that the step is all: no estimate too small by 3."""
    words = dict(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    times = [0.5, 1.0, 2.0, 4.0]
    coarse = sl.online(
        sl.Problem(penalty=sl.SmoothL1(1e-9), **words), sl.SGF(1e-6), times=times, dt=0.5, samples=256, particles=256
    )
    exact = sl.least_squares(sl.Problem(**words), sl.SGF(1e-6), times=times)
    for name in ("train_error", "overlap", "norm"):
        missed = np.abs(coarse[name] - exact[name])
        assert np.all(missed > 3 * coarse[f"{name}_stderr"])
        assert np.all(missed < 3 * coarse[f"{name}_step_error"])
        assert np.all(coarse[f"{name}_step_error"] < 30 * missed.max())


@pytest.mark.parametrize(
    ("scale", "dt", "status"), [(3, 0.003, "complete"), (2, 0.1, "unreliable"), (3, 0.1, "diverged")]
)
def test_stiff_penalties_ask_for_a_smaller_step(scale, dt, status):
    """Too large, or of an error that is not known since twice as large ones diverge: dt is named, all is finite."""
    problem = sl.Problem(
        loss=sl.Huber(0.05), teacher=sl.Normal(1.0), init=sl.Normal(scale), sample_ratio=math.inf,
        penalty=sl.Penalty(lambda x: (x**2 - 1) ** 2),
    )  # fmt: skip
    words = dict(t_max=1.0, dt=dt, samples=64, particles=64, replicas=2)
    if status == "complete":
        found = sl.online(problem, sl.SGD(0.5), **words)
    else:
        kind = sl.UnreliableWarning if status == "unreliable" else sl.DivergenceWarning
        with pytest.warns(kind, match="dt"):
            found = sl.online(problem, sl.SGD(0.5), **words)
    assert found.status == status
    assert all(np.all(np.isfinite(values)) for _, values in found.variables.values())
    if status == "unreliable":  # an error as large as the curve is not said to be small
        value, error = found.curve("norm")
        assert np.all(error[-1] > 0.9 * value[-1])


def test_samples_are_counted_over_all_replicas():
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    few, many = (sl.online(problem, sl.SGD(0.5), t_max=1.0, samples=2048, replicas=r) for r in (2, 8))
    assert few.about["options"]["samples"] == many.about["options"]["samples"] == 2048
    least = sl.online(problem, sl.SGD(0.5), t_max=1.0, samples=64, replicas=4)
    assert least.about["options"]["samples"] == 4 * 256


@pytest.mark.slow
def test_errors_cover_with_two_replicas():
    """Of 40 seeds none is beyond four errors; two replicas taken as they are would leave 16 % of them there."""
    problem = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    exact = sl.online(problem, sl.SGD(1.0), times=[1.0], samples=2**20, replicas=8)["norm"].item()
    beyond = 0
    for seed in range(40):
        value, error = sl.online(problem, sl.SGD(1.0), times=[1.0], samples=512, replicas=2, seed=seed).curve("norm")
        beyond += abs(value.item() - exact) > 4 * error.item()
    assert beyond == 0


@pytest.mark.parametrize(
    ("change", "t_max", "word"),
    [
        ({}, 1e30, "t_max.*steps"),
        ({"penalty": sl.Ridge(1e8)}, 10.0, "t_max.*steps"),
        ({"penalty": sl.SmoothL1(0.1)}, 1e308, "dt.*steps"),
    ],
)
def test_what_would_never_end_is_refused(change, t_max, word):
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0), **change)
    with pytest.raises(sl.InputError, match=word):
        sl.online(problem, sl.SGD(0.3), t_max=t_max, samples=256)


def test_growth_without_bound_is_a_divergence():
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    with pytest.warns(sl.DivergenceWarning, match="largest stable temperature is 2"):
        solution = sl.online(problem, sl.SGD(2.5), t_max=2.0, samples=256)
    assert solution.status == "diverged"
    assert len(solution.time) == 51


def test_noise_without_a_fourth_moment():
    """Averages of squares do not settle: refused for the force, a warning by name where only the error squares."""
    noise = sl.Law(student, mean=0.0, second_moment=11.0)
    words = dict(sample_ratio=math.inf, teacher=sl.Normal(1.0), noise=noise)
    with pytest.raises(sl.InputError, match=r"noise=Law.*tails.*Huber"):
        sl.online(sl.Problem(loss=sl.Square(), **words), sl.SGD(0.3), t_max=1.0)
    huber = sl.Problem(loss=sl.Huber(1.0), **words)
    with pytest.warns(RuntimeWarning, match="train_error: averages"):
        assert check_tails(huber) == ("train_error",)  # over fresh samples its moments are enough
    assert check_tails(huber, fresh=True) == ()


def student(key, shape):
    """±Pareto with a tail of index 2.2: E x² = 2.2/0.2 = 11, and no fourth moment."""
    u = 2 * jax.random.uniform(key, shape, minval=1e-7) - 1
    return jnp.sign(u) * (1 - jnp.abs(u)) ** (-1 / 2.2)


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({}, {"samples": 2**31 - 1}),
        ({}, {"replicas": 2**31 - 1}),
        ({"penalty": sl.SmoothL1(0.1)}, {"particles": 2**31 - 1}),
    ],
)
def test_what_does_not_fit_is_refused(change, more, monkeypatch):
    monkeypatch.setattr(_machine, "memory", lambda: 64 * 2.0**30)
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0), **change)
    with pytest.raises(sl.InputError, match=next(iter(more))):
        sl.online(problem, sl.SGD(0.3), t_max=1.0, **more)


@pytest.mark.parametrize("overlap", [0.0, 0.6, 1.1])
def test_a_zero_one_error_needs_no_counting(overlap):
    """Labels of the user's own: P(wrong sign) from few points is the arccos of the overlap, far below 1/√points."""
    labels = sl.Labels(lambda r_star, z: jnp.where(r_star + z >= 0, 1.0, -1.0), binary=True)
    problem = sl.Problem(
        loss=sl.Logistic(), labels=labels, sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.3)
    )
    Q, c = np.full((1, 4, 1, 1), 1.5), np.full((1, 4, 1, 1), overlap)
    found = observe(problem, make_nodes(problem, 1024, 4, 0), Q, c)["error"]
    exact = np.arccos(overlap / np.sqrt(1.5 * (1 + 0.3**2))) / np.pi
    assert np.max(np.abs(found - exact)) < 4e-3  # counting errs by 1.2e-2


@pytest.mark.parametrize("penalty", [sl.Ridge(0.1), sl.SmoothL1(0.1, smoothing=0.3)], ids=["moments", "particles"])
def test_metrics_are_averages_over_fresh_samples(penalty):
    """(r − r* − z)² is the error of the square loss and r r* the overlap with a teacher of unit variance: both exactly,
    with the errors that stand beside them, since points of an average have exact second moments."""
    problem = sl.Problem(loss=sl.Square(), penalty=penalty, sample_ratio=math.inf, teacher=sl.Normal(1.0),
                         noise=sl.Normal(0.3))  # fmt: skip
    metrics = {"again": lambda r, r_star, z: (r - r_star - z) ** 2, "toward": lambda r, r_star, z: r * r_star}
    found = sl.online(problem, sl.SGF(0.2), times=[0.0, 0.5, 1.0], samples=4096, particles=1024, metrics=metrics)
    for side in ("train", "test"):
        for ending in ("", "_stderr", *("_step_error",) * isinstance(penalty, sl.SmoothL1)):
            error, overlap = found[f"test_error{ending}"], found[f"overlap{ending}"][:, 0, 0]
            np.testing.assert_allclose(found[f"{side}_again{ending}"], error, atol=1e-9)
            np.testing.assert_allclose(found[f"{side}_toward{ending}"], overlap, atol=1e-9)
