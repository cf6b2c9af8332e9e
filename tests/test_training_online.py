"""Infinite data with parts of a step, trained parameters and averages of the iterates, against explicit equations.

Least squares in groups of variance s_q: the weights of group q feel −ρ s_q (θ − θ*) and noise τ ρ² s_q R per unit of
time, R = Σ p_q s_q E(θ − θ*)² + σ². NumPy and scipy integrate what follows; nothing of the package is used in it.
"""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from scipy.integrate import quad, solve_ivp
from scipy.special import erf
from scipy.stats import chi2

import sgdlimit as sl
from sgdlimit.errors import InputError
from sgdlimit.exact.training import over_batches
from sgdlimit.results.variables import widening

SHARE, VARIANCE, FACTOR = np.array([0.3, 0.7]), np.array([2.0, 0.4]), np.array([0.5, 1.2])
LENGTH = float(SHARE @ VARIANCE)  # S, the mean of |x|²
NOISE, TAU = 0.5, 0.6
TIMES = np.linspace(0.0, 4.0, 17)
EXACT = dict(rtol=2e-6, atol=1e-8)


def squares(**words):
    given = dict(loss=sl.Square(), sample_ratio=math.inf, teacher=sl.Normal(1.0), noise=sl.Normal(NOISE))
    return sl.Problem(**given | words)


GROUPS = squares(data=sl.Spectrum(VARIANCE.tolist(), SHARE.tolist(), FACTOR.tolist()))


def online(problem, algorithm, **words):
    return sl.online(problem, algorithm, **dict(times=TIMES, samples=512, replicas=2) | words)


def integrated(velocity, start, times=TIMES):
    out = solve_ivp(velocity, (0.0, times[-1]), np.ravel(start), t_eval=times, rtol=1e-10, atol=1e-12, method="DOP853")
    return out.y.T


def loss_of(Q, c):
    """R of moments of both groups."""
    return float(SHARE * VARIANCE @ (Q - 2 * c + FACTOR**2)) + NOISE**2


def in_groups(pace, further=(), noise=0.0):
    """Moments of both groups and further numbers: `pace(t, R, further)` is ρ, or (ρ_q), and their derivatives."""

    def velocity(t, state):
        Q, c, more = state[:2], state[2:4], state[4:]
        R = loss_of(Q, c)
        rho, moved = pace(t, R, more)
        dQ = -2 * rho * VARIANCE * (Q - c) + TAU * rho**2 * VARIANCE * R + noise
        return np.concatenate([dQ, -rho * VARIANCE * (c - FACTOR**2), moved])

    found = integrated(velocity, [0.0] * 4 + list(further))
    errors = np.array([loss_of(state[:2], state[2:4]) for state in found])
    return {"test_error": errors, "norm": found[:, :2] @ SHARE, "overlap": found[:, 2:4] @ SHARE}


def assert_same(solution, exact, **tolerance):
    for name, values in exact.items():
        found = solution[name]
        np.testing.assert_allclose(found.reshape(np.shape(values)), values, **tolerance or EXACT, err_msg=name)


def linear(A, toward, noise):
    """Second moments S of x, and c of x with θ*, for dx = (A x + b θ*) dt + noise, one group of variance 1, from 0."""
    A, size = np.asarray(A, dtype=float), len(A)

    def velocity(t, state):
        S, c = state[: size**2].reshape(size, size), state[size**2 :]
        grown = A @ S + np.outer(toward, c)
        return np.concatenate([(grown + grown.T + noise(S[0, 0] - 2 * c[0] + 1 + NOISE**2)).ravel(), A @ c + toward])

    found = integrated(velocity, np.zeros(size**2 + size))
    return found[:, : size**2].reshape(-1, size, size), found[:, size**2 :]


@pytest.mark.parametrize("kind", [sl.HeavyBall, sl.Nesterov])
def test_momentum_is_the_linear_equation_of_the_pair(kind):
    """x = (θ, v), with a schedule on force and noise but not on friction, and a ridge."""
    kappa, ridge = 0.7, 0.2
    s = lambda t: (1 + t / 2.0) ** -0.5  # noqa: E731
    problem = squares(penalty=sl.Ridge(ridge), schedule=sl.PowerDecay(2.0, 0.5))
    found = online(problem, sl.SGD(TAU, step=sl.Step(momentum=kind(friction=kappa))))

    def velocity(t, state):
        S, c = state[:4].reshape(2, 2), state[4:]
        A, b = np.array([[0.0, 1.0], [-s(t) * (1 + ridge), -kappa]]), np.array([0.0, s(t)])
        R = S[0, 0] - 2 * c[0] + 1 + NOISE**2
        grown = A @ S + np.outer(b, c)
        return np.concatenate([(grown + grown.T + np.diag([0, TAU * s(t) ** 2 * R])).ravel(), A @ c + b])

    state = integrated(velocity, np.zeros(6))
    assert_same(found, {"norm": state[:, 0], "overlap": state[:, 4]})


def test_momentum_is_the_field_of_width_two():
    """The vector field of docs/howto/momentum.md."""
    field = squares(
        loss=sl.VectorField(
            lambda r, r_star, z: jnp.stack([0.0 * r[0], r[0] - r_star - z]),
            loss=lambda r, y: 0.5 * (r[0] - y) ** 2,
            predict=lambda r: r[0],
        ),
        penalty=sl.VectorField(
            lambda theta, friction, ridge: jnp.stack([-theta[1], friction * theta[1] + ridge * theta[0]]),
            parameters={"friction": 1.0, "ridge": 0.05},
        ),
        width=2,
        teacher_width=1,
    )
    pair = online(field, sl.SGD(TAU))
    ball = online(squares(penalty=sl.Ridge(0.05)), sl.SGD(TAU, step=sl.Step(momentum=sl.HeavyBall(friction=1.0))))
    assert_same(ball, {"norm": pair["norm"][:, 0, 0], "overlap": pair["overlap"][:, 0, 0]})
    assert_same(ball, {"train_loss": pair["train_loss"]}, rtol=1e-4)


def test_a_fixed_beta_is_a_larger_learning_rate():
    """SGD with η/(1 − β), whose clock t = ηk/d runs faster by 1/(1 − β); also of trained parameters and noise."""
    beta = 0.6
    loss = sl.Loss(lambda r, y, a: 0.5 * (a * r - y) ** 2, parameters={"a": sl.Trained(0.8)})
    problem = squares(loss=loss, penalty=sl.Ridge(0.1), init=sl.Normal(0.4), bias=True)
    slow = online(problem, sl.SGD(0.3, step=sl.Step(momentum=sl.HeavyBall(beta=beta), gradient_noise=0.2)))
    fast = online(
        problem,
        sl.SGD(0.3 / (1 - beta), step=sl.Step(gradient_noise=0.2 / math.sqrt(1 - beta))),
        times=TIMES / (1 - beta),
    )
    names = ("train_loss", "test_error", "norm", "overlap", "a", "intercept")
    assert_same(slow, {name: fast[name] for name in names}, rtol=1e-6, atol=1e-8)
    limit = 2 * (1 - beta)
    with pytest.warns(sl.DivergenceWarning, match=f"{limit:.4g}"):
        sl.online(squares(), sl.SGD(0.85, step=sl.Step(momentum=sl.HeavyBall(beta=beta))), t_max=1.0, samples=256)


@pytest.mark.parametrize("batch", [1, 4])
def test_adagrad_norm_is_the_published_equation(batch):
    """Collins-Woodfin et al. (2024): db²/dt = E|ℓ|²|x|²/(Bη), ρ = scale/b."""
    rule, eta = sl.AdaGradNorm(scale=0.9, initial=0.5), TAU * batch

    def pace(t, R, more):
        return 0.9 / np.sqrt(more[0]), [LENGTH * R / batch / eta]

    assert_same(online(GROUPS, sl.SGD(TAU, batch, step=sl.Step(rate=rule))), in_groups(pace, [0.25]))


def test_polyak_is_the_published_equation():
    """Collins-Woodfin et al. (2024): ρ = (L − minimum)/E|ℓ|²|x|²."""
    rule, low = sl.Polyak(minimum=NOISE**2 / 2, scale=1.3), NOISE**2 / 2
    exact = in_groups(lambda t, R, more: (1.3 * max(R / 2 - low, 0.0) / (LENGTH * R), []))
    assert_same(online(GROUPS, sl.SGD(TAU, step=sl.Step(rate=rule)), samples=4096), exact, rtol=1e-3, atol=1e-5)


def test_a_rate_of_the_users():
    """Of everything that it may know."""

    def rate(time, train_loss, force, norm, overlap, distance):
        return (1 + train_loss) / (1 + force) + 0.1 * (norm - overlap) + 0.1 * distance / (1 + time)

    def pace(t, R, more):
        Q, c = more
        return (1 + R / 2) / (1 + R) + 0.1 * (Q - c) + 0.1 * Q / (1 + t)

    def velocity(t, state):
        Q, c = state
        R = Q - 2 * c + 1 + NOISE**2
        rho = pace(t, R, state)
        return [-2 * rho * (Q - c) + TAU * rho**2 * R, -rho * (c - 1)]

    state = integrated(velocity, [0.0, 0.0])
    found = online(squares(), sl.SGD(TAU, step=sl.Step(rate=sl.Rate(rate))), samples=4096)
    assert_same(found, {"norm": state[:, 0], "overlap": state[:, 1]}, rtol=1e-3, atol=1e-5)


def test_distance_over_gradients_keeps_the_farthest():
    """With momentum the distance comes back, and the largest so far stays: the equation by small steps."""
    rule, tau, kappa, times = sl.DoG(scale=3.0, initial=0.3, epsilon=0.05), 0.2, 0.3, np.linspace(0.0, 6.0, 13)
    step = sl.Step(rate=rule, momentum=sl.HeavyBall(friction=kappa))
    found = online(squares(), sl.SGD(tau, step=step), times=times, samples=4096)

    def velocity(S, c, farthest, squared):
        rho = 3.0 * math.sqrt(max(farthest, S[0, 0]) / squared)
        A, b, R = np.array([[0.0, 1.0], [-rho, -kappa]]), np.array([0.0, rho]), S[0, 0] - 2 * c[0] + 1 + NOISE**2
        grown = A @ S + np.outer(b, c)
        return grown + grown.T + np.diag([0, tau * rho**2 * R]), A @ c + b, 0.0, R / tau

    state: list = [np.zeros((2, 2)), np.zeros(2), 0.09, 0.05]
    h, norms = 1e-3, [0.0]
    for number in range(6000):
        half = velocity(*(x + h / 2 * v for x, v in zip(state, velocity(*state), strict=True)))
        state = [x + h * v for x, v in zip(state, half, strict=True)]
        state[2] = max(state[2], state[0][0, 0])
        if (number + 1) % 500 == 0:
            norms.append(state[0][0, 0])
    assert max(norms) > 1.3 * norms[-1]
    assert_same(found, {"norm": norms}, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rule", [sl.RMSprop(0.5, 0.8), sl.Adam(0.5, 0.9, 0.8), sl.AdamW(0.0, 0.5, 0.9, 0.8)])
def test_a_rate_of_every_group_is_its_own_equation(rule):
    """P_q = scale/√(s_q v̂/B), v the mean of E ℓ² over the window, over the weights that it has since the start."""
    batch = 3

    def pace(t, R, more):
        mean = more[0] / -np.expm1(-t / 0.8) if t > 0 else R
        return 0.5 / np.sqrt(VARIANCE * mean / batch), [(R - more[0]) / 0.8]

    found = online(GROUPS, sl.SGD(TAU, batch, step=sl.Step(rate=rule)), samples=4096)
    assert_same(found, in_groups(pace, [0.0]), rtol=1e-5, atol=1e-6)


def test_noise_alone_is_an_ornstein_uhlenbeck_process():
    """τ = 0: θ − θ* has the variance e^{−2t} + σ²/2 (1 − e^{−2t}); noise of the gradient knows the schedule."""
    t, sigma = TIMES, 0.4
    found = online(squares(), sl.SGD(0.0, step=sl.Step(weight_noise=sigma)))
    spread = np.exp(-2 * t) + sigma**2 / 2 * (1 - np.exp(-2 * t))
    assert_same(found, {"test_error": spread + NOISE**2, "overlap": 1 - np.exp(-t)})
    halved = online(squares(schedule=sl.Schedule(lambda t: 0.5)), sl.SGD(0.0, step=sl.Step(gradient_noise=sigma)))
    spread = np.exp(-t) + 0.25 * sigma**2 * (1 - np.exp(-t))
    assert_same(halved, {"test_error": spread + NOISE**2})


def test_decoupled_decay_knows_the_schedule_alone():
    """Neither the rate nor momentum acts on it; on least squares with the schedule ½ and a rate of 2."""
    found = online(
        squares(schedule=sl.Schedule(lambda t: 0.5)),
        sl.SGD(TAU, step=sl.Step(decay=0.3, rate=sl.Rate(lambda norm: 2.0 + 0.0 * norm))),
    )

    def velocity(t, state):
        Q, c = state
        return [-2 * (Q - c) - 0.3 * Q + TAU * (Q - 2 * c + 1 + NOISE**2), -(c - 1) - 0.15 * c]

    state = integrated(velocity, [0.0, 0.0])
    assert_same(found, {"norm": state[:, 0], "overlap": state[:, 1]})


def clipped_pair(threshold, batch):
    """E[φ|G|²]/E|G|² and E[φ²|G|²]/E|G|² by R: |G|² = S R χ²_B/B², and directions do not matter to φ."""

    def factor(x, R):
        return min(1.0, threshold / math.sqrt(LENGTH * R * x / batch**2)) if x > 0 else 1.0

    return _pair(factor, batch)


def normalised_pair(scale, epsilon, batch):
    return _pair(lambda x, R: scale / (math.sqrt(LENGTH * R * x) / batch + epsilon), batch)


def _pair(factor, batch):
    law = chi2(batch)
    x = law.ppf((np.arange(4000) + 0.5) / 4000)

    def both(R):
        values = np.array([factor(at, R) for at in x])
        return float(np.mean(values * x) / batch), float(np.mean(values**2 * x) / batch)

    grid = np.linspace(0.2, 2.0, 61)
    table = np.array([both(R) for R in grid])
    return lambda R: (np.interp(R, grid, table[:, 0]), np.interp(R, grid, table[:, 1]))


def shortened(pair):
    """Moments of both groups where gradients are shortened."""

    def velocity(t, state):
        Q, c = state[:2], state[2:]
        R = loss_of(Q, c)
        drift, noise = pair(R)
        return np.concatenate(
            [-2 * drift * VARIANCE * (Q - c) + TAU * noise * VARIANCE * R, -drift * VARIANCE * (c - FACTOR**2)]
        )

    found = integrated(velocity, np.zeros(4))
    return {"norm": found[:, :2] @ SHARE, "overlap": found[:, 2:] @ SHARE}


@pytest.mark.parametrize(("per", "batch"), [("sample", 1), ("batch", 1), ("batch", 4)])
def test_clipping_is_its_own_equation(per, batch):
    """Shortened Gaussian forces; with a batch of 4 by integrals over χ²_4."""
    found = online(GROUPS, sl.SGD(TAU, batch, step=sl.Step(clip=sl.Clip(0.5, per))), samples=2**15, replicas=8)
    exact = shortened(clipped_pair(0.5, batch))
    for name, values in exact.items():
        error = found[f"{name}_stderr"].ravel() / widening(8)
        assert_within(found[name].ravel() - values, error + 2e-4, trials=8)


def test_a_clipped_sample_is_the_closed_form():
    """Γ = P(|ℓ| < c), E ℓ² of the clipped force, of one group."""
    c = 0.7

    def pair(R):
        inside = erf(c / math.sqrt(2 * R))
        square = R * inside - c * math.sqrt(2 * R / math.pi) * math.exp(-(c**2) / (2 * R)) + c**2 * (1 - inside)
        return inside, square

    def velocity(t, state):
        Q, o = state
        inside, square = pair(Q - 2 * o + 1 + NOISE**2)
        return [-2 * inside * (Q - o) + TAU * square, -inside * (o - 1)]

    state = integrated(velocity, [0.0, 0.0])
    found = online(squares(), sl.SGD(TAU, 2, step=sl.Step(clip=c)), samples=2**14, replicas=4)
    assert_same(found, {"norm": state[:, 0], "overlap": state[:, 1]}, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [1, 3])
def test_normalised_gradients_are_their_own_equation(batch):
    rule = sl.Normalised(scale=0.4, epsilon=0.05)
    found = online(GROUPS, sl.SGD(TAU, batch, step=sl.Step(rate=rule)), samples=2**14, replicas=8)
    exact = shortened(normalised_pair(0.4, 0.05, batch))
    for name, values in exact.items():
        error = found[f"{name}_stderr"].ravel() / widening(8)
        assert_within(found[name].ravel() - values, error + 1e-3, trials=8)


def test_stochastic_polyak_without_a_bound_is_plain():
    """½|ℓ|²B/(|ℓ|²S) is a number: SGD with ρ = scale·B/(2S)."""
    rule = sl.StochasticPolyak(scale=0.5, most=100.0)
    found = online(GROUPS, sl.SGD(TAU, 2, step=sl.Step(rate=rule)))
    assert_same(found, in_groups(lambda t, R, more: (0.5 / LENGTH, [])), rtol=1e-4, atol=1e-6)


def test_sums_over_batches():
    """Of a batch of one the number itself; of B all means, and of more than there are points."""
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).exponential(size=256))
        np.testing.assert_array_equal(over_batches(x, 1), x)
        for batch in (2, 7, 255, 256, 1000):
            sums = np.asarray(over_batches(x, batch))
            np.testing.assert_allclose(sums.mean(), batch * x.mean(), rtol=1e-9)
        sums = np.asarray(over_batches(x, 2)) - x
        np.testing.assert_allclose(np.sort(sums), np.sort(x), rtol=1e-9)


def scaled_problem(rate=1.5, **words):
    loss = sl.Loss(lambda r, y, a: 0.5 * (a * r - y) ** 2, parameters={"a": sl.Trained(0.6, rate=rate)})
    return squares(loss=loss, init=sl.Normal(0.5), **words)


def test_a_trained_scale_is_its_own_equation():
    """½(a r − y)²: Γ = a², Γ* = −a, E ℓ² = a² E(a r − y)², da/dt = −rate E[r (a r − y)]."""

    def velocity(t, state):
        Q, c, a = state
        R = a**2 * Q - 2 * a * c + 1 + NOISE**2
        return [-2 * (a**2 * Q - a * c) + TAU * a**2 * R, -(a**2 * c - a), -1.5 * (a * Q - c)]

    state = integrated(velocity, [0.25, 0.0, 0.6])
    found = online(scaled_problem(), sl.SGD(TAU))
    assert found.variables["a"].dims == ("time",)
    assert_same(found, {"norm": state[:, 0], "overlap": state[:, 1], "a": state[:, 2]}, rtol=1e-5, atol=1e-7)
    Q, c, a = state.T
    assert_same(found, {"test_loss": (a**2 * Q - 2 * a * c + 1 + NOISE**2) / 2}, rtol=1e-5)


def test_a_trained_scale_with_friction_and_a_mean():
    """v_a' = −κ v_a − rate E[r (a r − y)], a' = v_a; its exponential mean is that of a."""
    kappa, pace = 0.8, 0.7

    def velocity(t, state):
        S, c, (a, v, mean) = state[:4].reshape(2, 2), state[4:6], state[6:]
        R = a**2 * S[0, 0] - 2 * a * c[0] + 1 + NOISE**2
        A, b = np.array([[0.0, 1.0], [-(a**2), -kappa]]), np.array([0.0, a])
        grown = A @ S + np.outer(b, c)
        dS = grown + grown.T + np.diag([0, TAU * a**2 * R])
        force = 1.5 * (a * S[0, 0] - c[0])
        return np.concatenate([dS.ravel(), A @ c + b, [v, -kappa * v - force, pace * (a - mean)]])

    state = integrated(velocity, [0.25, 0, 0, 0, 0, 0, 0.6, 0.0, 0.6])
    step = sl.Step(momentum=sl.HeavyBall(friction=kappa))
    found = online(scaled_problem(), sl.SGD(TAU, step=step), averages={"ema": sl.EMA(pace)})
    assert_same(found, {"norm": state[:, 0], "overlap": state[:, 4], "a": state[:, 6]}, rtol=1e-5, atol=1e-7)
    assert_same(found.averages["ema"], {"a": state[:, 8]}, rtol=1e-5)


def test_a_trained_bias_is_the_intercept():
    """One unit of a network with the identity: its bias, of rate 1, is the intercept of a line."""
    words = dict(teacher=sl.Uniform(0.0, 2.0), noise=sl.Uniform(0.0, 2.0), penalty=sl.Ridge(0.1))
    network = sl.TwoLayer(lambda x: x, bias=sl.Trained(0.0))
    one, other = online(squares(loss=network, **words), sl.SGD(TAU)), online(squares(bias=True, **words), sl.SGD(TAU))
    np.testing.assert_allclose(one["bias"], other["intercept"][:, 0], rtol=1e-6, atol=1e-9)
    assert_same(one, {name: other[name] for name in ("norm", "overlap", "train_loss")}, rtol=1e-6, atol=1e-9)


def test_means_of_the_iterates_are_their_own_equations():
    """EMA by its linear equation; the mean from 0 on, and from 1 on, by the two-time covariance e^{−(t−s)} V(s)."""
    pace, start, t = 0.7, 1.0, TIMES
    averages = {"ema": sl.EMA(pace), "mean": sl.RunningMean(), "tail": sl.RunningMean(start)}
    plain, found = online(squares(), sl.SGD(TAU)), online(squares(), sl.SGD(TAU), averages=averages)
    assert_same(found, {name: plain[name] for name in ("norm", "overlap", "test_error")}, rtol=1e-7, atol=1e-9)
    S, c = linear([[-1, 0], [pace, -pace]], np.array([1.0, 0.0]), lambda R: np.diag([TAU * R, 0.0]))
    ema = found.averages["ema"]
    error = S[:, 1, 1] - 2 * c[:, 1] + 1 + NOISE**2
    assert_same(ema, {"norm": S[:, 1, 1], "overlap": c[:, 1], "test_error": error, "train_loss": error / 2})

    def variance(s):
        return math.exp(-(2 - TAU) * s) + TAU * NOISE**2 / (2 - TAU) * (1 - math.exp(-(2 - TAU) * s))

    for name, begin in (("mean", 0.0), ("tail", start)):
        since, errors = t - begin, []
        for at, span in zip(t, since, strict=True):
            if span <= 0:
                errors.append(variance(at))
                continue
            total = quad(lambda s, at=at: variance(s) * -math.expm1(-(at - s)), begin, at, epsabs=1e-13)[0]
            errors.append(2 * total / span**2)
        overlap = 1 - np.exp(-t)
        some = since > 0
        overlap[some] = 1 - (math.exp(-begin) - np.exp(-t[some])) / since[some]
        assert_same(found.averages[name], {"test_error": np.array(errors) + NOISE**2, "overlap": overlap})
    assert found.averages["tail"].variables["norm"].dims == ("time", "student", "student_")


def test_a_running_mean_that_has_just_begun():
    """Recorded a millionth after its start it is the weights themselves."""
    times = np.array([0.0, 1e-6, 1e-3, 1.0, 1.0 + 1e-6, 1.001, 2.0])
    found = online(
        squares(init=sl.Normal(0.5)), sl.SGD(TAU), times=times,
        averages={"mean": sl.RunningMean(), "tail": sl.RunningMean(1.0)},
    )  # fmt: skip
    for name, close in (("mean", [0, 1, 2]), ("tail", [0, 1, 2, 3, 4, 5])):
        mean = found.averages[name]
        np.testing.assert_allclose(mean["norm"][close], found["norm"][close], rtol=2e-3)
    np.testing.assert_allclose(found.averages["mean"]["norm"][1], found["norm"][1], rtol=1e-5)


EVERYTHING = sl.Step(
    clip=sl.Clip(0.8, "batch"),
    gradient_noise=0.2,
    momentum=sl.HeavyBall(friction=1.2),
    rate=sl.AdaGradNorm(1.0, 0.7),
    decay=0.1,
)
MEANS = {"ema": sl.EMA(0.5), "mean": sl.RunningMean(0.5)}


@pytest.mark.parametrize("step", [EVERYTHING, sl.Step(rate=sl.AdamW(0.1), gradient_noise=0.1, clip=1.0)])
def test_particles_agree_with_moments(step):
    """A penalty that is quadratic but for what no weight feels."""
    loss = sl.Loss(lambda r, y, a: 0.5 * (a * r - y) ** 2, parameters={"a": sl.Trained(0.6)})
    nearly = sl.Penalty(lambda x: 0.1 * x**2 + 1e-4 * jnp.cos(x))
    words = dict(averages=MEANS, samples=2**11, replicas=2, times=np.linspace(0, 2, 4))
    problem = replace(GROUPS, loss=loss, init=sl.Normal(0.5), penalty=sl.Ridge(0.2), bias=True)
    algorithm = sl.SGD(0.4, 3, step=step)
    moments = sl.online(problem, algorithm, **words)
    particles = sl.online(replace(problem, penalty=nearly), algorithm, particles=1024, dt=0.1, **words)
    assert "particles" in particles.about["method"]
    assert "moment" in moments.about["method"]
    for found, exact in zip(
        (particles, *particles.averages.values()), (moments, *moments.averages.values()), strict=True
    ):
        for name in ("norm", "overlap", "train_loss", "a", "intercept"):
            error = np.hypot(found.curve(name)[1], exact.curve(name)[1])
            np.testing.assert_allclose(found[name], exact[name], rtol=5e-3, atol=4 * error.max() + 1e-3, err_msg=name)


def test_runs_of_a_plain_loop_lie_on_the_curve():
    """Batch clip, noise, AdaGrad-Norm, friction, decay, a trained scale and means, as a user would write them."""
    d, batch, tau, trials, span = 500, 3, 0.4, 16, 2.0
    eta, how, rng = tau * batch, EVERYTHING, np.random.default_rng(1)
    theory = online(
        scaled_problem(1.0, penalty=sl.Ridge(0.2)), sl.SGD(tau, batch, step=how), averages=MEANS, samples=2**14,
        times=[0.0, span], replicas=4,
    )  # fmt: skip
    found = []
    for _ in range(trials):
        theta, star = 0.5 * rng.standard_normal(d), rng.standard_normal(d)
        v, a, v_a, b2, dt = np.zeros(d), 0.6, 0.0, 0.7**2, eta / d
        ema, mean, steps = theta.copy(), theta.copy(), round(span / dt)
        for k in range(steps):
            X = rng.standard_normal((batch, d)) / math.sqrt(d)
            r = X @ theta
            e = a * r - X @ star - NOISE * rng.standard_normal(batch)
            g, g_a = X.T @ (a * e) / batch, np.mean(r * e)
            factor = min(1.0, 0.8 / np.linalg.norm(g))
            g, g_a, rho = factor * g, factor * g_a, 1.0 / math.sqrt(b2)
            b2 += g @ g / d
            kick = rho * 0.2 * math.sqrt(dt) * rng.standard_normal(d)
            v = (1 - how.friction * dt) * v - eta * rho * (g + 0.2 * theta / d) + kick
            v_a = (1 - how.friction * dt) * v_a - dt * rho * g_a
            theta, a = theta + dt * v - dt * 0.1 * theta, a + dt * v_a
            ema += -math.expm1(-0.5 * dt) * (theta - ema)
            since = (k + 1) * dt - 0.5
            mean += (dt / since if since > dt else 1.0) * (theta - mean)
        found.append([theta @ theta / d, theta @ star / d, a, ema @ ema / d, ema @ star / d, mean @ mean / d])
    means = theory.averages
    exact = [theory["norm"], theory["overlap"], theory["a"], means["ema"]["norm"], means["ema"]["overlap"]]
    exact = np.array([np.ravel(values)[-1] for values in (*exact, means["mean"]["norm"])])
    values = np.array(found)
    assert_within(values.mean(axis=0) - exact, values.std(axis=0, ddof=1) / math.sqrt(trials) + 3e-3, trials=trials)


def test_results_of_averages_are_kept(tmp_path):
    """By name in a file, with their errors."""
    found = online(scaled_problem(), sl.SGD(TAU), averages={"ema": sl.EMA(0.5)}, metrics={"size": lambda r, s, z: r**2})
    assert set(found.averages) == {"ema"}
    mean = found.averages["ema"]
    assert {"train_loss", "norm", "a", "train_size", "test_size", "norm_stderr", "norm_replicas"} <= set(mean.variables)
    again = sl.load(found.save(tmp_path / "means.nc"))
    np.testing.assert_array_equal(again.averages["ema"]["norm"], mean["norm"])


@pytest.mark.parametrize(
    ("words", "algorithm", "why"),
    [
        (dict(averages={"ema": sl.EMA(0.01)}), sl.SGD(0.4), "longer than the run"),
        (dict(averages=[sl.EMA(1.0)]), sl.SGD(0.4), "mapping"),
        ({}, sl.SGD(0.4, step=sl.Step(rate=sl.Rate(lambda norm: jnp.nan * norm))), "finite"),
        ({}, sl.SGD(0.4, step=sl.Step(rate=sl.Rate(lambda norm: norm - 1.0))), "≥ 0"),
        ({}, sl.ProportionalSGD(0.3, step=sl.Step(clip=1.0)), "no batch"),
    ],
)
def test_what_means_nothing_is_refused(words, algorithm, why):
    with pytest.raises(InputError, match=why):
        online(squares(), algorithm, **words)


def test_a_rate_that_is_lost_on_the_way_is_told():
    """Finite at the start and not later: the curve ends there, and says so."""
    rate = sl.Rate(lambda time, norm: jnp.where(time > 1.0, jnp.nan, 1.0) + 0.0 * norm)
    with pytest.warns(sl.DivergenceWarning, match="rate is not finite"):
        found = online(squares(), sl.SGD(0.4, step=sl.Step(rate=rate)))
    assert found.status == "diverged"
    assert 0.5 < found.time[-1] <= 1.0


def test_a_field_without_a_loss_has_no_rate_that_reads_it():
    problem = squares(loss=sl.VectorField(lambda r, r_star, z: r - r_star - z))
    with pytest.raises(InputError, match="Polyak"):
        online(problem, sl.SGD(0.4, step=sl.Step(rate=sl.Polyak())))
