"""The exact limits on grouped coordinates: spectra, least squares and infinite data against independent methods."""

import math
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from scipy.integrate import solve_ivp
from test_online import REPLICAS, spread
from test_spectrum import RATIOS, by_density, closed_form

import sgdlimit as sl
from sgdlimit._tree import tree
from sgdlimit.exact import volterra
from sgdlimit.exact.flow import shrink
from sgdlimit.exact.spectrum import Law, grouped
from sgdlimit.exact.stability import stable_temperature, stable_temperature_on
from sgdlimit.measure.pace import edge
from sgdlimit.problem import DataLaw

LEVELS = sl.Spectrum([3.0, 0.5, 0.0], [0.2, 0.6, 0.2], [0.5, 1.1, 1.0])
AGAINST = sl.Spectrum([2.5, 0.2], teacher=[0.3, 2.0])
POWER = sl.PowerLaw(1.2, 0.6, groups=8)
STEEP = sl.PowerLaw(1.5, 0.5, groups=64, dim=10**6)
SPECTRA = {"levels": LEVELS, "against": AGAINST, "power": POWER}


@tree
@dataclass(frozen=True)
class Hidden(DataLaw):
    """A teacher of whom no coordinate of x tells a part."""

    def table(self):
        return AGAINST.table()._replace(unseen=0.3)


def make(delta=1.5, ridge=0.1, data=LEVELS, **more):
    words = {"teacher": sl.Normal(1.0), "noise": sl.Normal(0.5), "penalty": sl.Ridge(ridge)} | more
    return sl.Problem(loss=sl.Square(), sample_ratio=delta, data=data, **words)


# The spectrum


@pytest.mark.parametrize("delta", RATIOS)
def test_one_group_is_marchenko_pastur(delta):
    for longest in (1.0, 100.0):
        rule = grouped(sl.Spectrum([1.0]).table(), delta, longest)
        for power in (0, 1, 2):
            for t in (0.0, longest):
                exact = by_density(lambda x, p=power, t=t: x**p * np.exp(-2 * x * t), delta)
                found = rule.weights @ (rule.nodes**power * np.exp(-2 * rule.nodes * t))
                assert found == pytest.approx(exact, rel=1e-11, abs=2e-12)


@pytest.mark.parametrize("delta", [0.01, 0.5, 0.8, 1.0, 2.0, 30.0])
@pytest.mark.parametrize("data", [LEVELS, POWER, STEEP])
def test_moments_of_every_group(data, delta):
    """E[A]_kk = s_k, E[A²]_kk = s_k² + s_k Σps/δ, whatever the other groups."""
    table = data.table()
    share, s = table.share, table.variance
    rule = grouped(table, delta, 1e4)
    np.testing.assert_allclose(rule.parts.sum(axis=1), share, rtol=1e-12)
    np.testing.assert_allclose(rule.parts @ rule.nodes, share * s, rtol=1e-12)
    np.testing.assert_allclose(rule.parts @ rule.nodes**2, share * (s**2 + s * (share @ s) / delta), rtol=1e-8)


def test_resolvents_of_every_group():
    """1/(x + λ) against κ/(λ(κ + s_q)), κ by bisection of Silverstein's equation."""
    table, delta, ridge = LEVELS.table(), 0.6, 0.7
    low, high = ridge, ridge + table.share @ table.variance / delta
    kappa = high
    for _ in range(200):
        kappa = (low + high) / 2
        excess = kappa - ridge - kappa / delta * np.sum(table.share * table.variance / (kappa + table.variance))
        low, high = (low, kappa) if excess > 0 else (kappa, high)
    rule = grouped(table, delta, 100.0)
    exact = table.share * kappa / (ridge * (kappa + table.variance))
    np.testing.assert_allclose(rule.parts @ (1 / (rule.nodes + ridge)), exact, rtol=1e-12)


@pytest.mark.parametrize("delta", [0.3, 1.0, 4.0])
def test_a_matrix_drawn_from_the_law(delta):
    """The part of e^{−2A} that each group sees, d = 600; traces of a matrix fluctuate by O(1/d)."""
    rng, table, d = np.random.default_rng(1), AGAINST.table(), 600
    s = np.repeat(table.variance, table.counts(d))
    X = rng.standard_normal((round(delta * d), d)) * np.sqrt(s / d)
    x, vectors = np.linalg.eigh(X.T @ X / delta)
    diagonal = vectors**2 @ np.exp(-2 * x)
    rule = grouped(table, delta)
    expected = rule.parts @ np.exp(-2 * rule.nodes) / table.share
    np.testing.assert_allclose(diagonal.reshape(2, -1).mean(axis=1), expected, atol=4 / d)


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.1, 2.0, 1e4])
@pytest.mark.parametrize("delta", [0.5, 1.0, 2.0, math.inf])
def test_stable_temperature(delta, ridge):
    one = sl.Spectrum([1.0]).table()
    assert stable_temperature(one, delta, ridge) == pytest.approx(closed_form(delta, ridge), rel=1e-12)
    rule = grouped(POWER.table(), delta, 1e5)
    by_rule = stable_temperature_on(rule.nodes, rule.weights, ridge)
    assert stable_temperature(POWER.table(), delta, ridge) == pytest.approx(by_rule, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-30, 1e-9, 1e-3, 0.4])
def test_far_more_coordinates_than_samples(delta):
    """Two groups, one of them without variance: the equation of the other has the root κ = s (p/δ − 1)."""
    table = sl.Spectrum([0.0, 0.8], weights=[0.25, 0.75]).table()
    variance = table.variance.max()
    assert stable_temperature(table, delta, 0.0) == pytest.approx(2 / (0.75 * variance), rel=1e-9)
    kappa = Law(np.array([0.75]), np.array([variance]), delta).at(0.0)
    assert kappa == pytest.approx(variance * (0.75 / delta - 1), rel=1e-12)


@pytest.mark.parametrize("more", [2.3e-16, 1e-12, 1e-9, 1e-5, 0.1])
def test_hardly_more_coordinates_than_samples(more):
    """κ vanishes like Σp − δ; the rounding of a sum of shares must not end the search for it."""
    share, variance = np.array([0.3, 0.2, 0.5]), np.array([0.4, 1.0, 2.5])
    law = Law(share, variance, float(share.sum()) - more)
    kappa, left = law.at(0.0), law.more
    assert left > 0
    assert float(share @ (kappa / (kappa + variance))) == pytest.approx(left, rel=1e-12)
    assert law.at(1e-50) == pytest.approx(kappa, rel=1e-9)


def test_a_clock_that_runs_away_meets_no_eigenvalue_at_zero():
    """Times beyond all scales: the rule is that of a late one, and nothing is divided by zero."""
    table = sl.Spectrum([1.0, 0.2]).table()
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        late, never = (grouped(table, 1.0, longest) for longest in (1e30, 1e300))
    for rule in (late, never):
        assert rule.weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert rule.weights @ rule.nodes == pytest.approx(0.6, rel=1e-12)


@pytest.mark.parametrize("away", [0.0, 1e-15, -1e-15, 1e-12, -1e-12])
def test_as_many_features_as_samples(away):
    """The peak of double descent, where the law reaches down to zero: curves are continuous there."""

    def curve(ratio):
        data = sl.RandomFeatures(jnp.tanh, ratio)
        chosen = {"penalty": sl.Ridge(1e-3), "teacher": sl.Normal(1.0), "data": data}
        problem = sl.Problem(loss=sl.Square(), sample_ratio=1.5 / ratio, **chosen)
        return sl.least_squares(problem, sl.GradientFlow(), times=[0.0, 1.0, 1e3])["test_error"]

    np.testing.assert_allclose(curve(1.5 * (1 + away)), curve(1.5 * (1 + 1e-7)), rtol=1e-5)


@pytest.mark.parametrize("delta", [0.5, 2.0, math.inf])
def test_largest_curvature(delta):
    """Alike curvatures: the largest eigenvalue of the law, from above; one group of variance s: s times that of iid."""
    J = np.random.default_rng(0).random(512)
    alike, thrice = sl.Spectrum([1.0]).table(), sl.Spectrum([3.0]).table()
    assert edge(J, delta, alike) == pytest.approx(edge(J, delta), rel=1e-12)
    assert edge(J, delta, thrice) == pytest.approx(3 * edge(J, delta), rel=1e-12)
    if math.isinf(delta):
        assert edge(J, 1e30, POWER.table()) == pytest.approx(edge(J, delta, POWER.table()), rel=0.03)  # no rounding
        return
    d, table = 1200, POWER.table()
    s = np.repeat(table.variance, table.counts(d))
    X = np.random.default_rng(2).standard_normal((round(delta * d), d)) * np.sqrt(s)
    weights = np.resize(J, len(X))
    largest = np.linalg.eigvalsh(X.T @ (weights[:, None] * X) / len(X))[-1]
    assert 0.97 * largest < edge(J, delta, table) < 1.06 * largest


# Least squares


@pytest.mark.parametrize("delta", [0.3, 1.0, 2.0, math.inf])
def test_one_group_is_iid(delta):
    kinds = (
        {},
        {"ridge": 0.0, "init": sl.Uniform(0.0, 1.0), "teacher": sl.Uniform(0.0, 2.0), "teacher_width": 2},
        {"schedule": sl.PowerDecay(2.0, 0.7), "labels": sl.Noise()},
    )
    for more in kinds:
        iid = sl.least_squares(make(delta, data=sl.Iid(), **more), sl.SGD(0.6), t_max=8.0, kernels=True)
        one = sl.least_squares(make(delta, data=sl.Spectrum([1.0]), **more), sl.SGD(0.6), t_max=8.0, kernels=True)
        for name in iid.variables:
            np.testing.assert_allclose(one[name], iid[name], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("s", [0.3, 4.0])
def test_one_variance_is_a_rescaled_problem(s):
    """x → √s x is θ → θ√s, t → st, λ → λ/s, with the noise of SGD s²τ·dt/s²: τ → sτ."""
    times, root = np.linspace(0, 5, 11), math.sqrt(s)
    ours = sl.least_squares(make(data=sl.Spectrum([s]), init=sl.Normal(0.4)), sl.SGD(0.3), times=times)
    words = {"data": sl.Iid(), "init": sl.Normal(0.4 * root), "teacher": sl.Normal(root)}
    theirs = sl.least_squares(make(ridge=0.1 / s, **words), sl.SGD(0.3 * s), times=times * s)
    for name, scale in (("train_error", 1.0), ("test_error", 1.0), ("overlap", s), ("norm", s)):
        np.testing.assert_allclose(ours[name] * scale, theirs[name], rtol=1e-10, atol=1e-12)
    assert ours.about["diagnostics"]["stable_temperature"] == pytest.approx(
        theirs.about["diagnostics"]["stable_temperature"] / s
    )


def on_matrix(problem, tau, times, d, seed):
    """Train and test error, norm and overlap on one drawn matrix, averaged over θ⁰, θ* and labels: homogenised SGD."""
    table, delta, ridge = problem.data.table(), problem.sample_ratio, float(problem.penalty.strength)
    counts = table.counts(d)
    s = np.repeat(table.variance, counts)
    rng, n = np.random.default_rng(seed), round(delta * d)
    X = rng.standard_normal((n, d)) * np.sqrt(s / d)
    x, V = np.linalg.eigh(X.T @ X / delta)
    x = np.clip(x, 0, None)
    start, mixed, teacher = (
        V.T @ (np.repeat(part, counts)[:, None] * V)
        for part in np.moveaxis(table.moments(problem.gram(), 1), 0, -1)[[0, 0, 1], [0, 1, 1]]
    )
    covariance, noise = V.T @ (s[:, None] * V), problem.noise.moments(1)[1].item()

    def error(u, middle):
        """Sum of `middle` times the second moments of keep·θ⁰ − left·θ*, over d."""
        keep, left = np.exp(-(x + ridge) * u), 1 - x * shrink(x, ridge, np.array([u]))[0]
        product = np.outer(keep, keep) * start - np.outer(keep, left) * mixed - np.outer(left, keep) * mixed.T
        return np.sum(middle * (product + np.outer(left, left) * teacher)) / d

    def source(us):
        keep, left = np.exp(-np.outer(us, x + ridge)), 1 - x * shrink(x, ridge, us)
        a, b, c = (np.diag(part) for part in (start, mixed, teacher))
        fit = (keep**2 * a - 2 * keep * left * b + left**2 * c) @ x / d
        return fit + noise * (np.sum(left**2, axis=1) / n + 1 - d / n)

    curve = volterra.solve(source, 2 * (x + ridge), x**2 / d, tau, times)
    noisy = x * shrink(x, ridge, times) ** 2 * noise / n + curve.memory * x / d
    test = np.array([error(u, covariance) for u in times]) + noise + noisy @ np.diag(covariance)
    keep, fitted = np.exp(-np.outer(times, x + ridge)), x * shrink(x, ridge, times)
    overlap = (keep @ np.diag(mixed) + fitted @ np.diag(teacher)) / d
    norm = np.array([error(u, np.eye(d)) for u in times]) + noisy.sum(axis=1)
    return np.stack([curve.train, test, norm + 2 * overlap - np.trace(teacher) / d, overlap])


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize(("delta", "tau", "ridge"), [(0.5, 0.6, 0.1), (1.5, 0.8, 0.0)])
def test_matrices_drawn_from_the_law_approach_it(name, delta, tau, ridge):
    """Every curve within 5 standard errors plus the bias, which is below 3/d and so falls as 1/d."""
    times = np.array([0.0, 1.0, 4.0, 12.0])
    words = {"init": sl.Uniform(-0.2, 1.0), "teacher": sl.Uniform(0.0, 2.0)}
    problem = make(delta, ridge, SPECTRA[name], **words)
    solution = sl.least_squares(problem, sl.SGD(tau), times=times)
    exact = np.stack([solution[key].reshape(len(times)) for key in ("train_error", "test_error", "norm", "overlap")])
    for d, trials in ((100, 24), (400, 6)):
        found = np.array([on_matrix(problem, tau, times, d, seed) for seed in range(trials)])
        error = found.std(axis=0, ddof=1) / math.sqrt(trials)
        assert np.all(np.abs(found.mean(axis=0) - exact) <= 5 * error + 3 / d * np.abs(exact))


def test_one_matrix_of_the_law():
    """The same on one matrix, quickly: d = 300, one draw fluctuates by a few percent."""
    times = np.array([0.5, 4.0])
    problem = make(1.5, 0.1, AGAINST, init=sl.Uniform(-0.2, 1.0), teacher=sl.Uniform(0.0, 2.0))
    solution = sl.least_squares(problem, sl.SGD(0.6), times=times)
    exact = np.stack([solution[key].reshape(2) for key in ("train_error", "test_error", "norm", "overlap")])
    np.testing.assert_allclose(on_matrix(problem, 0.6, times, 300, 0), exact, rtol=0.05)


def test_label_noise_on_fresh_samples_by_the_reaction():
    """Pure noise: the test error by tr Σf(A) against residuals with the reaction put back, in Laplace space.

    Ridge regression at rest: test = noise/(1 − (1/n) tr[Σ²(Σ + κ)⁻²]), known since Hastie et al. (2022).
    """
    ridge, delta, table = 0.3, 0.8, POWER.table()
    solution = sl.least_squares(make(delta, ridge, POWER, labels=sl.Noise()), sl.GradientFlow(), times=[0.0, 300.0])
    kappa = 2 * ridge
    for _ in range(2000):
        kappa = ridge + kappa / delta * np.sum(table.share * table.variance / (kappa + table.variance))
    factor = 1 / (1 - np.sum(table.share * (table.variance / (kappa + table.variance)) ** 2) / delta)
    assert solution["test_error"][1] == pytest.approx(0.25 * factor, rel=1e-10)


def test_signal_at_rest_is_the_known_formula():
    """No noise, at rest: test = κ² θ*ᵀΣ(Σ+κ)⁻²θ*/d / (1 − (1/n) tr[Σ²(Σ+κ)⁻²]), train = (λ/κ)² test."""
    ridge, delta, table = 0.05, 0.8, LEVELS.table()
    problem = make(delta, ridge, LEVELS, noise=sl.Point(0.0))
    solution = sl.least_squares(problem, sl.GradientFlow(), times=[1000.0])
    kappa = 2 * ridge
    for _ in range(20_000):
        kappa = ridge + kappa / delta * np.sum(table.share * table.variance / (kappa + table.variance))
    share = table.variance / (kappa + table.variance)
    bias = kappa**2 * np.sum(table.share * table.factor**2 * table.variance / (kappa + table.variance) ** 2)
    test = bias / (1 - np.sum(table.share * share**2) / delta)
    assert solution["test_error"][0] == pytest.approx(test, rel=1e-10)
    assert solution["train_error"][0] == pytest.approx((ridge / kappa) ** 2 * test, rel=1e-9)


def test_many_samples_are_infinite_data():
    """δ = 1e7 leaves corrections of order 1e-7."""
    many, all_ = (
        sl.least_squares(make(delta, init=sl.Normal(0.5)), sl.SGD(0.5), t_max=6.0) for delta in (1e7, math.inf)
    )
    for name in all_.variables:
        np.testing.assert_allclose(many[name], all_[name], rtol=1e-5, atol=1e-7)


def test_groups_that_are_alike_may_be_put_together():
    split = sl.Spectrum([2.0, 2.0, 0.5], [0.1, 0.2, 0.7], [0.5, 0.5, 1.0])
    whole = sl.Spectrum([2.0, 0.5], [0.3, 0.7], [0.5, 1.0])
    a, b = (sl.least_squares(make(data=data), sl.SGD(0.5), t_max=6.0) for data in (split, whole))
    for name in a.variables:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-11, atol=1e-13)


def test_rates_and_times_of_a_steep_spectrum():
    """Eigenvalues over nine decades, to t = 1e4: the same numbers where panels and nodes lie elsewhere."""
    steep = sl.PowerLaw(1.5, 0.5, groups=16, dim=10**6)
    problem = make(0.01, 0.0, steep, noise=sl.Point(0.0))
    far = sl.least_squares(problem, sl.GradientFlow(), times=[0.0, 1e-3, 1.0, 1e4])
    near = sl.least_squares(problem, sl.GradientFlow(), times=[0.0, 1e-3, 1.0])
    for name in near.variables:
        np.testing.assert_allclose(far[name][:3], near[name], rtol=1e-9, atol=1e-11)
    assert np.all(np.diff(far["test_error"]) < 0)


def test_the_unseen_part_of_the_teacher_is_noise():
    """r* = θ*ᵀx + √unseen·e: as label noise of that variance, for every curve."""

    hidden = make(data=Hidden(), teacher=sl.Normal(1.2))
    noisy = make(data=AGAINST, teacher=sl.Normal(1.2), noise=sl.Normal(math.sqrt(0.25 + 0.3 * 1.44)))
    a, b = (sl.least_squares(problem, sl.SGD(0.5), t_max=4.0) for problem in (hidden, noisy))
    for name in a.variables:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-12)


def test_growth_above_the_stable_temperature():
    problem, times = make(data=POWER), [0.0, 50.0, 100.0]
    limit = stable_temperature(POWER.table(), 1.5, 0.1)
    below = sl.least_squares(problem, sl.SGD(0.95 * limit), times=times)
    assert below["train_error"][2] < 1.2 * below["train_error"][1]
    with pytest.warns(sl.DivergenceWarning, match="largest stable"):
        above = sl.least_squares(problem, sl.SGD(1.05 * limit), times=times)
    assert above["train_error"][2] > 1.2 * above["train_error"][1]


# Infinite data


def test_one_group_online_is_iid():
    """To rounding, for a committee as well."""
    words = dict(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    problem = sl.Problem(penalty=sl.Ridge(0.2), init=sl.Normal(0.3), noise=sl.Normal(0.2), **words)
    iid, one = (
        sl.online(replace(problem, data=data), sl.SGD(0.6), t_max=2.0, samples=4096)
        for data in (sl.Iid(), sl.Spectrum([1.0]))
    )
    for name in iid.variables:
        np.testing.assert_allclose(one[name], iid[name], rtol=1e-8, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", SPECTRA)
def test_online_square_loss_is_volterra(name):
    words = {"init": sl.Normal(0.7), "teacher": sl.Uniform(0.0, 2.0), "schedule": sl.PowerDecay(2.0, 0.7)}
    problem = make(math.inf, 0.1, SPECTRA[name], **words)
    online = sl.online(problem, sl.SGD(0.6), t_max=3.0, samples=256)
    exact = sl.least_squares(problem, sl.SGD(0.6), t_max=3.0)
    for key in exact.variables:
        np.testing.assert_allclose(online[key], exact[key], rtol=2e-6, atol=1e-8)


def test_online_huber_is_the_closed_form():
    """Γ and E ℓ² of Huber by hand, two moments a group as an ODE."""
    tau, ridge, sigma, table = 0.5, 0.1, 0.5, LEVELS.table()
    share, s, f = table.share, table.variance, table.factor

    def velocity(t, state):
        Q, c = state.reshape(2, -1)
        V = np.sum(share * s * (Q - 2 * c + f**2)) + sigma**2
        inside = math.erf(1 / math.sqrt(2 * V))
        square = V * (inside - 2 * math.exp(-1 / (2 * V)) / math.sqrt(2 * math.pi * V)) + 1 - inside
        dQ = -2 * (ridge * Q + s * inside * (Q - c)) + tau * s * square
        return np.concatenate([dQ, -(ridge * c + s * inside * (c - f**2))])

    problem = sl.Problem(
        loss=sl.Huber(1.0),
        penalty=sl.Ridge(ridge),
        sample_ratio=math.inf,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(sigma),
        init=sl.Normal(0.5),
        data=LEVELS,
    )
    times = np.array([0.0, 1.0, 4.0])
    solution = sl.online(problem, sl.SGD(tau), times=times)
    start = np.concatenate([np.full(3, 0.25), np.zeros(3)])
    Q, c = solve_ivp(velocity, (0, 4), start, t_eval=times, rtol=1e-10, atol=1e-12).y.reshape(2, 3, -1)
    for name, exact in (("norm", share @ Q), ("overlap", share @ c)):
        assert_within(solution[name].ravel() - exact, spread(solution, name).ravel() + 1e-6, REPLICAS)
    assert solution["overlap_stderr"].max() < 1e-3


@pytest.mark.slow
def test_particles_in_groups_agree_with_moments():
    """A penalty that is quadratic to 1e-4 takes the particle road."""
    words = dict(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=math.inf, teacher=sl.Normal(1.0), data=LEVELS)
    nearly = sl.Penalty(lambda x: 0.1 * x**2 + 1e-4 * jnp.cos(x))
    moments = sl.online(sl.Problem(penalty=sl.Ridge(0.2), **words), sl.SGD(1.0), t_max=2.0, samples=8192)
    particles = sl.online(sl.Problem(penalty=nearly, **words), sl.SGD(1.0), t_max=2.0, samples=8192)
    assert particles.about["method"].endswith("(particles)")
    for name in ("overlap", "norm", "test_loss"):
        error = np.hypot(spread(particles, name), spread(moments, name))
        assert_within(particles[name] - moments[name], error + 3e-4, REPLICAS)
