"""Training at finite size: every part of a step beside a loop in plain NumPy, trained parameters, averages, and what is
refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within

import sgdlimit as sl
from sgdlimit.algorithms.base import StoredData, Weights
from sgdlimit.algorithms.samples import start_weights

N, D, B, STEPS = 24, 16, 3, 40
TAU = 0.5
ETA = TAU * B
DT = ETA / D
LAM = 0.3


@pytest.fixture(autouse=True)
def double():
    """All in double precision, so that loops agree to rounding."""
    with jax.enable_x64(True):
        yield


def logistic(**more):
    chosen = {"loss": sl.Logistic(), "labels": sl.Sign(), "penalty": sl.Ridge(LAM), "sample_ratio": N / D}
    return sl.Problem(**(chosen | {"teacher": sl.Normal(1.0)} | more))


def network(**more):
    """Width 2 with a trained readout and output bias, and an intercept."""
    loss = sl.TwoLayer("tanh", readout=sl.Trained([1.0, -0.5], rate=0.7), output_bias=sl.Trained(0.2))
    return logistic(loss=loss, labels=sl.Linear(), width=2, teacher_width=1, bias=True, **more)


class Case:
    """Stored data with the rows of every batch, θ⁰, and gradients written by hand."""

    def __init__(self, problem):
        rng = np.random.default_rng(0)
        self.problem, self.m = problem, problem.width
        self.X = rng.normal(size=(N, D)) / np.sqrt(D)
        self.star = rng.normal(size=(D, 1))
        self.theta = rng.normal(size=(D, self.m))
        self.rows = np.stack([rng.choice(N, B, replace=False) for _ in range(STEPS)])
        self.z = np.zeros(N)
        r_star = self.X @ self.star
        self.y = np.where(r_star[:, 0] > 0, 1.0, -1.0) if self.m == 1 else r_star[:, 0]
        self.data = StoredData(problem, *map(jnp.asarray, (self.X, r_star, self.z, self.star)))

    def run(self, algorithm, seed=0):
        """Weights after every update on the given rows."""
        weights = start_weights(self.problem, jnp.asarray(self.theta))
        state = algorithm.start_updates(jax.random.key(1), self.data, weights)
        draws = jnp.asarray(self.rows) if algorithm.rows else None
        dt = DT if algorithm.rows else 0.05

        def update(carry, k):
            draw = None if draws is None else draws[k]
            key = jax.random.fold_in(jax.random.key(seed), k)
            new = algorithm.update(self.data, *carry, k * dt, dt, draw, key)
            return new, new[0]

        return jax.lax.scan(update, (weights, state), jnp.arange(STEPS))[1]

    def pull(self, theta, rows=slice(None)):
        """∇L of logistic regression at these rows, (rows, 1)."""
        r = self.X[rows] @ theta
        return -self.y[rows, None] / (1 + np.exp(self.y[rows, None] * r))

    def loss(self, theta, rows=slice(None)):
        return np.mean(np.logaddexp(0, -self.y[rows, None] * (self.X[rows] @ theta)))

    def gradient(self, theta, rows, clip=math.inf):
        """Mean gradient of a batch, its samples clipped."""
        ell = self.pull(theta, rows)
        length = np.linalg.norm(self.X[rows], axis=1) * np.linalg.norm(ell, axis=1)
        ell = ell * np.minimum(1, clip / length)[:, None]
        return self.X[rows].T @ ell / len(ell)


@pytest.fixture(scope="module")
def case():
    with jax.enable_x64(True):
        return Case(logistic(schedule=sl.PowerDecay(1.0, 0.5)))


def schedule(k):
    """(1 + t)^(−½) at the time of update k."""
    return (1 + k * DT) ** -0.5


def looped(case, step):
    """θ after every update of a loop `step(k, θ, rows) -> θ`."""
    theta, out = case.theta.copy(), []
    for k, rows in enumerate(case.rows):
        theta = step(k, theta, rows)
        out.append(theta)
    return np.array(out)


def sgd(**parts):
    return sl.SGD(TAU, batch_size=B, step=sl.Step(**parts))


def by_factor(case, factor, clip=math.inf):
    """A loop θ ← θ − η s ρ(G + λθ/d) with ρ = factor(k, θ, rows, G)."""

    def step(k, theta, rows):
        G = case.gradient(theta, rows, clip)
        return theta - ETA * schedule(k) * factor(k, theta, rows, G) * (G + LAM / D * theta)

    return looped(case, step)


def test_clip_of_samples(case):
    """As private SGD does; it differs from the loop without it by far."""
    found = case.run(sgd(clip=0.4)).theta
    np.testing.assert_allclose(found, by_factor(case, lambda *_: 1.0, clip=0.4), rtol=1e-12, atol=1e-13)
    assert np.max(np.abs(found - by_factor(case, lambda *_: 1.0))) > 0.05


def test_clip_of_batches(case):
    """As `torch.nn.utils.clip_grad_norm_` does, without the penalty."""

    def step(k, theta, rows):
        G = case.gradient(theta, rows)
        return theta - ETA * schedule(k) * (G * min(1, 0.2 / np.linalg.norm(G)) + LAM / D * theta)

    found = case.run(sgd(clip=sl.Clip(0.2, per="batch"))).theta
    np.testing.assert_allclose(found, looped(case, step), rtol=1e-12, atol=1e-13)
    assert np.max(np.abs(found - by_factor(case, lambda *_: 1.0))) > 0.05


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_momentum(case, fixed, ahead):
    """A friction as docs/howto/momentum.md writes it, a fixed β as PyTorch does."""
    kind = sl.Nesterov if ahead else sl.HeavyBall
    kappa, beta, state = 0.8, 0.7, {"v": 0.0}

    def step(k, theta, rows):
        g = schedule(k) * (case.gradient(theta, rows) + LAM / D * theta)
        if fixed:
            state["v"] = beta * state["v"] + g
            return theta - ETA * (g + beta * state["v"] if ahead else state["v"])
        keep = 1 - ETA * kappa / D
        state["v"] = keep * state["v"] - ETA * g
        return theta + ETA / D * (keep * state["v"] - ETA * g if ahead else state["v"])

    momentum = kind(beta=beta) if fixed else kind(friction=kappa)
    found = case.run(sgd(momentum=momentum)).theta
    np.testing.assert_allclose(found, looped(case, step), rtol=1e-12, atol=1e-13)


def test_adagrad_norm(case):
    state = {"b": 0.5}

    def factor(k, theta, rows, G):
        rho = 0.7 / state["b"]
        state["b"] = math.sqrt(state["b"] ** 2 + np.sum(G**2) / D)
        return rho

    found = case.run(sgd(rate=sl.AdaGradNorm(0.7, 0.5))).theta
    np.testing.assert_allclose(found, by_factor(case, factor), rtol=1e-12, atol=1e-13)


def test_dog(case):
    state = {"far": 0.01, "sum": 0.01}

    def factor(k, theta, rows, G):
        state["far"] = max(state["far"], np.sum((theta - case.theta) ** 2) / D)
        rho = 1.3 * math.sqrt(state["far"] / state["sum"])
        state["sum"] += np.sum(G**2) / D
        return rho

    found = case.run(sgd(rate=sl.DoG(1.3))).theta
    np.testing.assert_allclose(found, by_factor(case, factor), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("clip", [None, 0.4])
def test_rates_of_the_batch(case, clip):
    """The length that counts is that of the clipped gradient."""
    most = math.inf if clip is None else clip
    normalised = by_factor(case, lambda k, theta, rows, G: 0.3 / (np.linalg.norm(G) + 1e-3), most)
    found = case.run(sgd(rate=sl.Normalised(0.3), clip=clip)).theta
    np.testing.assert_allclose(found, normalised, rtol=1e-12, atol=1e-13)
    polyak = by_factor(
        case, lambda k, theta, rows, G: min(1.0, 0.2 * max(case.loss(theta, rows) - 0.1, 0) / np.sum(G**2)), most
    )
    found = case.run(sgd(rate=sl.StochasticPolyak(0.1, 0.2), clip=clip)).theta
    np.testing.assert_allclose(found, polyak, rtol=1e-12, atol=1e-13)


def force(case, theta):
    """Mean |ℓ|²|x|² over the training set."""
    return np.mean(np.sum(case.X**2, axis=1) * np.sum(case.pull(theta) ** 2, axis=1))


def test_rates_of_the_training_set(case):
    """Steps are longer than 0.005, so that averages are taken at every one."""
    polyak = by_factor(case, lambda k, theta, rows, G: 0.3 * (case.loss(theta) - 0.05) / force(case, theta))
    found = case.run(sgd(rate=sl.Polyak(0.05, 0.3))).theta
    np.testing.assert_allclose(found, polyak, rtol=1e-12, atol=1e-13)

    def fn(time, norm, overlap, distance, train_loss):
        return train_loss / (1 + time + norm + overlap**2 + distance)

    def factor(k, theta, rows, G):
        norm, overlap = np.sum(theta**2) / D, np.sum(theta * case.star) / D
        return fn(k * DT, norm, overlap, np.sum((theta - case.theta) ** 2) / D, case.loss(theta))

    found = case.run(sgd(rate=sl.Rate(fn))).theta
    np.testing.assert_allclose(found, by_factor(case, factor), rtol=1e-12, atol=1e-13)


def test_averages_of_the_training_set_are_renewed():
    """With steps of 0.001 the loss that a rate reads stays the same for five of them."""
    problem = logistic(sample_ratio=2.0)
    seen = []

    def fn(train_loss, norm):
        jax.debug.callback(lambda a, b: seen.append((float(a), float(b))), train_loss, norm, ordered=True)
        return 1.0

    algorithm = sl.SGD(0.1, step=sl.Step(rate=sl.Rate(fn)))
    sl.simulate(problem, algorithm, dim=100, trials=1, times=[0.02], dtype="float64", progress=False)
    jax.effects_barrier()
    losses, norms = zip(*seen, strict=True)
    assert len(set(norms)) == 20
    assert [len(set(losses[i : i + 5])) for i in range(0, 20, 5)] == [1] * 4
    assert len(set(losses)) == 4


def adam(case, beta1, window, decay=0.0, lam=LAM):
    """As the documentation of `torch.optim.Adam` (`AdamW`) writes it; lr = η·scale·s/√d, β₂ = 1 − η/(d·window)."""
    m, v, beta2 = 0.0, 0.0, 1 - DT / window

    def step(k, theta, rows):
        nonlocal m, v
        g = case.gradient(theta, rows) + lam / D * theta
        lr = ETA / math.sqrt(D) * 0.4 * schedule(k)
        moved = theta * (1 - DT * schedule(k) * decay)
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        mean, root = m / (1 - beta1 ** (k + 1)), np.sqrt(v / (1 - beta2 ** (k + 1)))
        return moved - lr * mean / (root + 1e-8)

    return looped(case, step)


def test_adam(case):
    found = case.run(sgd(rate=sl.Adam(0.4, 0.8, 1.5))).theta
    np.testing.assert_allclose(found, adam(case, 0.8, 1.5), rtol=1e-9, atol=1e-10)
    found = case.run(sgd(rate=sl.RMSprop(0.4, 1.5))).theta
    np.testing.assert_allclose(found, adam(case, 0.0, 1.5), rtol=1e-9, atol=1e-10)
    found = case.run(sgd(rate=sl.AdamW(0.2, 0.4, 0.8, 1.5), decay=0.1)).theta
    np.testing.assert_allclose(found, adam(case, 0.8, 1.5, decay=0.3), rtol=1e-9, atol=1e-10)


def test_decoupled_decay(case):
    found = case.run(sgd(rate=sl.AdaGradNorm(), decay=0.6)).theta
    state = {"b": 1.0}

    def step(k, theta, rows):
        G = case.gradient(theta, rows)
        moved = theta - ETA * schedule(k) * ((G + LAM / D * theta) / state["b"] + 0.6 / D * theta)
        state["b"] = math.sqrt(state["b"] ** 2 + np.sum(G**2) / D)
        return moved

    np.testing.assert_allclose(found, looped(case, step), rtol=1e-12, atol=1e-13)


def test_a_batch_that_is_used_in_part():
    """Clipped, with momentum: only the first B(t) rows count, and the mean is over them."""
    case, state = Case(logistic()), {"v": 0.0}
    share = sl.Schedule(lambda t: jnp.where(t < 1.0, 1 / 3, 1.0))

    def step(k, theta, rows):
        g = case.gradient(theta, rows[:1] if k * DT < 1.0 else rows, 0.4) + LAM / D * theta
        state["v"] = 0.5 * state["v"] + g
        return theta - ETA * state["v"]

    how = sl.Step(clip=0.4, momentum=sl.HeavyBall(beta=0.5))
    found = case.run(sl.SGD(TAU, B, share, step=how)).theta
    np.testing.assert_allclose(found, looped(case, step), rtol=1e-12, atol=1e-13)


# --- trained parameters and the intercept ---


def slopes_of_network(case, theta, shared, rows):
    """∇_r L and the slopes in readout, output bias and intercept, a row a sample, without rates."""
    a, b, beta = (np.asarray(shared[name]) for name in ("readout", "output_bias", "intercept"))
    hidden = np.tanh(case.X[rows] @ theta + beta)
    left = hidden @ a + b - case.y[rows]
    ell = left[:, None] * a * (1 - hidden**2)
    return ell, {"readout": left[:, None] * hidden, "output_bias": left, "intercept": ell}


RATES = {"readout": 0.7, "output_bias": 1.0, "intercept": 1.0}


@pytest.mark.parametrize("parts", [{}, {"clip": 0.3, "momentum": True, "rate": True}], ids=["plain", "parts"])
def test_trained_parameters_of_sgd(parts):
    """Clipping a sample shortens its slopes too, the rate acts on them, and each has a velocity; none is penalised."""
    case = Case(network(schedule=sl.PowerDecay(1.0, 0.5)))
    theta = case.theta.copy()
    shared = {"readout": np.array([1.0, -0.5]), "output_bias": np.array(0.2), "intercept": np.zeros(2)}
    kappa, squared = 0.8, 1.0
    velocity, pace = np.zeros_like(theta), {name: np.zeros_like(value) for name, value in shared.items()}
    for k, rows in enumerate(case.rows):
        ell, slopes = slopes_of_network(case, theta, shared, rows)
        s, rho = schedule(k), 1.0
        if parts:
            length = np.linalg.norm(case.X[rows], axis=1) * np.linalg.norm(ell, axis=1)
            short, rho = np.minimum(1, 0.3 / length), 1 / math.sqrt(squared)
            ell = ell * short[:, None]
            slopes = {name: value * short.reshape(-1, *[1] * (value.ndim - 1)) for name, value in slopes.items()}
        G = case.X[rows].T @ ell / B
        squared += np.sum(G**2) / D
        g, moves = s * rho * (G + LAM / D * theta), {
            name: s * rho * RATES[name] * value.mean(axis=0) for name, value in slopes.items()
        }  # fmt: skip
        if not parts:
            theta, shared = theta - ETA * g, {name: shared[name] - ETA / D * move for name, move in moves.items()}
            continue
        velocity = (1 - ETA * kappa / D) * velocity - ETA * g
        pace = {name: (1 - ETA * kappa / D) * pace[name] - ETA / D * move for name, move in moves.items()}
        theta = theta + ETA / D * velocity
        shared = {name: shared[name] + ETA / D * pace[name] for name in shared}
    step = {"clip": 0.3, "momentum": sl.HeavyBall(friction=kappa), "rate": sl.AdaGradNorm()} if parts else {}
    found = case.run(sgd(**step))
    np.testing.assert_allclose(found.theta[-1], theta, rtol=1e-11, atol=1e-12)
    for name, value in shared.items():
        np.testing.assert_allclose(found.shared[name][-1], value, rtol=1e-11, atol=1e-12)


def test_trained_parameters_of_weighted_algorithms():
    """Without noise these are Euler's step of the flow of the mean loss, the velocity first."""
    case = Case(network())
    theta, shared = case.theta.copy(), {"readout": np.array([1.0, -0.5]), "output_bias": 0.2, "intercept": np.zeros(2)}
    velocity, pace, dt, kappa = (
        np.zeros_like(theta),
        {name: 0.0 * np.asarray(v) for name, v in shared.items()},
        0.05,
        0.8,
    )
    for _ in range(STEPS):
        ell, slopes = slopes_of_network(case, theta, shared, slice(None))
        rho = 1 / (1 + np.sum(theta**2) / D)
        velocity = (1 - kappa * dt) * velocity - dt * rho * (case.X.T @ ell * D / N + LAM * theta)
        pace = {
            name: (1 - kappa * dt) * pace[name] - dt * rho * RATES[name] * slopes[name].mean(axis=0) for name in shared
        }
        theta, shared = theta + dt * velocity, {name: shared[name] + dt * pace[name] for name in shared}
    rule = sl.Rate(lambda norm: 1 / (1 + jnp.trace(norm)))
    step = sl.Step(rate=rule, momentum=sl.HeavyBall(friction=kappa))
    for algorithm in (sl.SGF(0.0, step=step), sl.ProportionalSGD(1.0, step=step)):
        found, tol = case.run(algorithm), 1e-6 if algorithm.gaussian else 1e-11  # its increments have single precision
        np.testing.assert_allclose(found.theta[-1], theta, rtol=tol, atol=tol)
        for name, value in shared.items():
            np.testing.assert_allclose(found.shared[name][-1], value, rtol=tol, atol=tol)


def test_flow_with_parts():
    """Halving the steps of SGF at τ = 0 goes to the flow: the error of first order falls by half, and RK4 is there."""
    case = Case(network())
    rule = sl.Rate(lambda train_loss, force, time: train_loss / (force + time))
    step = sl.Step(rate=rule, momentum=sl.HeavyBall(friction=0.8), clip=0.5, decay=0.3)
    weights = start_weights(case.problem, jnp.asarray(case.theta))

    def end(algorithm, dt):
        state = algorithm.start_updates(jax.random.key(0), case.data, weights)

        def update(carry, k):
            return algorithm.update(case.data, *carry, k * dt, dt, None, jax.random.key(0)), None

        return jax.lax.scan(update, (weights, state), jnp.arange(round(2 / dt)))[0][0]

    fine, flow = end(sl.GradientFlow(step=step), 0.01), end(sl.GradientFlow(step=step), 0.1)
    gaps = [np.abs(end(sl.SGF(0.0, step=step), dt).theta - fine.theta).max() for dt in (0.01, 0.005)]
    assert 1.8 < gaps[0] / gaps[1] < 2.2
    assert np.abs(flow.theta - fine.theta).max() < 0.05 * gaps[0]
    for name in fine.shared:
        np.testing.assert_allclose(flow.shared[name], fine.shared[name], atol=2e-4)


def test_intercept_is_the_weight_of_a_constant_feature():
    """A column 1/√d without penalty: θ_c = √d β, on every algorithm; noise of the batches alike."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 20)) / np.sqrt(20), rng.normal(size=60) + 0.5
    wide = np.column_stack([X, np.full(60, 20**-0.5)])
    penalty = sl.NoPenalty()
    for algorithm in (sl.SGD(0.3, 2), sl.SGF(0.2), sl.GradientFlow()):
        kwargs = {"penalty": penalty, "t_max": 2.0, "trials": 1, "dtype": "float64", "progress": False}
        found = sl.simulate_on_data(X, y, algorithm, bias=True, **kwargs)
        assert found["theta"].shape == (1, 1, 20, 1)
        assert found["r"].shape == (1, 1, 60, 1)
        together = np.append(found["theta"][0, -1, :, 0], math.sqrt(20) * found["intercept"][0, -1, 0])
        np.testing.assert_allclose(found["r"][0, -1, :, 0], wide @ together, rtol=1e-10)
        if isinstance(algorithm, sl.GradientFlow):  # dθ/dt = −X̃ᵀ(X̃θ − y) d/n has a closed form
            values, vectors = np.linalg.eigh(wide.T @ wide / 3)
            target = vectors.T @ (wide.T @ y / 3)
            theta = vectors @ (-np.expm1(-values * 2.0) / np.maximum(values, 1e-12) * target)
            np.testing.assert_allclose(together, theta, rtol=1e-6)


def test_curves_of_trained_parameters():
    """Their names, axes, and place in a comparison and in a file."""
    loss = sl.Loss(lambda r, y, a, b: 0.5 * (a * r + b[0] * b[1] - y) ** 2,
                   parameters={"a": sl.Trained(0.5, rate=0.5), "b": sl.Trained([0.1, 0.2])})  # fmt: skip
    problem = logistic(loss=loss, labels=sl.Linear(), sample_ratio=2.0)
    runs = sl.simulate(problem, sl.SGD(0.3), dim=30, trials=3, t_max=1.0, progress=False)
    assert runs.variables["a"].dims == ("trial", "time")
    assert runs.variables["b"].dims == ("trial", "time", "b_0")
    assert np.all(runs["a"][:, 0] == np.float32(0.5))
    assert {"a", "b", "norm"} <= set(sl.compare(runs, runs).variables)
    assert network() == network()
    assert hash(sl.Trained([1.0, 2.0])) == hash(sl.Trained((1.0, 2.0)))
    wide = sl.simulate(network(sample_ratio=2.0), sl.SGD(0.3), dim=30, trials=2, t_max=1.0, progress=False)
    assert wide.variables["readout"].dims == ("trial", "time", "student")
    assert wide.variables["output_bias"].dims == ("trial", "time")


# --- noise ---


def test_weight_noise_is_an_ornstein_uhlenbeck_process():
    """No loss: E|θ|²/d = σ²/(2λ)(1 − e^{−2λt}), for noise of weights, and of gradients under a schedule of one."""
    nothing = sl.Loss(lambda r, y: 0.0 * r * y)
    problem = sl.Problem(loss=nothing, labels=sl.Noise(), noise=sl.Normal(1.0), penalty=sl.Ridge(0.4), sample_ratio=1.0)
    for algorithm in (
        sl.SGD(0.4, step=sl.Step(weight_noise=0.7)),
        sl.SGD(0.4, step=sl.Step(gradient_noise=0.7, clip=1.0)),
        sl.SGF(0.4, step=sl.Step(weight_noise=0.7)),
    ):
        runs = sl.simulate(problem, algorithm, dim=400, trials=8, times=[0.5, 1.0, 2.0], progress=False)
        value, error = runs.curve("norm")
        exact = 0.49 / 0.8 * -np.expm1(-0.8 * runs.time)
        assert_within(value[:, 0, 0] - exact, error[:, 0, 0] + 0.005 * exact, trials=8)


def test_noise_of_a_gradient_takes_part_in_schedule_rate_and_momentum():
    """θ gets s ρ σ √(η/d) ξ a step; with a friction the velocity does."""
    problem = sl.Problem(
        loss=sl.Loss(lambda r, y: 0.0 * r * y), labels=sl.Noise(), sample_ratio=1.0, schedule=sl.Schedule(lambda t: 0.5)
    )
    rate = sl.Rate(lambda time: 3.0)
    for momentum, exact in ((None, lambda t: t), (sl.HeavyBall(friction=1e-3), lambda t: t**3 / 3)):
        algorithm = sl.SGD(0.2, step=sl.Step(gradient_noise=0.8, rate=rate, momentum=momentum))
        runs = sl.simulate(problem, algorithm, dim=400, trials=8, times=[0.5, 1.0, 2.0], progress=False)
        value, error = runs.curve("norm")
        expected = (1.5 * 0.8) ** 2 * exact(runs.time)
        assert_within(value[:, 0, 0] - expected, error[:, 0, 0] + 0.01 * expected, trials=8)


def test_private_sgd(case):
    """Noise of standard deviation noise_multiplier·clip on the sum of the clipped gradients, over B."""
    algorithm = sl.DPSGD(0.6, 0.3, batch_size=B, dim=D, learning_rate=ETA)
    assert algorithm.how.gradient_noise == pytest.approx(0.6 * 0.3 * math.sqrt(TAU * D / B))
    quiet = sl.DPSGD(0.0, 0.3, batch_size=B, dim=D, temperature=TAU)
    first = jax.jit(jax.vmap(lambda seed: case.run(algorithm, seed).theta[0] - case.run(quiet).theta[0]))
    noise = np.asarray(first(jnp.arange(400))) / (ETA / B)
    assert_within(np.mean(noise**2) - 0.18**2, 0.18**2 * math.sqrt(2 / noise.size))
    assert_within(noise.mean(axis=0), 0.18 / math.sqrt(len(noise)))


# --- averages of the iterates ---


def test_averages_are_means_over_all_iterates():
    """Against snapshots after every update: the mean from a time on, and the exponential mean."""
    problem = logistic(sample_ratio=2.0, bias=True)
    dim, algorithm = 30, sl.SGD(0.75, 2)
    dt = 1.5 / dim
    times = np.arange(41) * dt
    averages = {"mean": sl.RunningMean(0.5), "ema": sl.EMA(2.0), "all": sl.RunningMean()}
    options = {"dim": dim, "trials": 2, "times": times, "snapshots": times, "dtype": "float64", "progress": False}
    runs = sl.simulate(problem, algorithm, averages=averages, **options)
    plain = sl.simulate(problem, algorithm, **options)
    np.testing.assert_array_equal(runs["norm"], plain["norm"])
    theta, beta = runs["theta"][0, :, :, 0], runs["intercept"][0, :, 0]
    ema = [theta[0]]
    for new in theta[1:]:
        ema.append(ema[-1] + (1 - math.exp(-2.0 * dt)) * (new - ema[-1]))
    found = {name: runs.averages[name] for name in averages}
    assert all(isinstance(part, sl.Runs) and part["norm"].shape == (2, 41, 1, 1) for part in found.values())
    np.testing.assert_allclose(found["ema"]["norm"][0, :, 0, 0], [np.sum(v**2) / dim for v in ema], rtol=1e-10)
    mean = theta[11:].mean(axis=0)  # updates after t = 0.5
    np.testing.assert_allclose(found["mean"]["norm"][0, -1, 0, 0], np.sum(mean**2) / dim, rtol=1e-10)
    np.testing.assert_allclose(found["mean"]["norm"][0, :11], runs["norm"][0, :11])
    np.testing.assert_allclose(found["mean"]["intercept"][0, -1, 0], beta[11:].mean(), rtol=1e-10)
    np.testing.assert_allclose(found["all"]["norm"][0, -1, 0, 0], np.sum(theta[1:].mean(axis=0) ** 2) / dim, rtol=1e-10)
    overlap = theta[1:].mean(axis=0) @ runs["theta_star"][0, :, 0] / dim
    np.testing.assert_allclose(found["all"]["overlap"][0, -1, 0, 0], overlap, rtol=1e-10)
    assert sl.compare(runs, found["ema"]).variables.keys() >= {"train_loss", "norm", "intercept"}


def test_averages_on_data_and_of_trained_parameters():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 20)) / np.sqrt(20), rng.normal(size=60)
    loss = sl.Loss(lambda r, y, a: 0.5 * (r + a - y) ** 2, parameters={"a": sl.Trained(1.0)})
    runs = sl.simulate_on_data(
        X, y, sl.SGD(0.2), loss=loss, times=np.arange(201) * 0.01, trials=2, dtype="float64",
        averages={"mean": sl.RunningMean()}, progress=False,
    )  # fmt: skip
    mean = np.cumsum(runs["a"][:, 1:], axis=1) / np.arange(1, 201)
    np.testing.assert_allclose(runs.averages["mean"]["a"][:, 1:], mean, rtol=1e-10)
    assert "mean.train_loss" in runs.variables


def test_averages_on_infinite_data_and_after_a_checkpoint(tmp_path):
    """Interrupted or not: the averages are those of the iterates, to the last bit."""
    problem = logistic(sample_ratio=math.inf)
    how = {"dim": 30, "t_max": 1.0, "averages": {"ema": sl.EMA(2.0)}, "progress": False}
    algorithm = sl.SGD(0.3, 2, step=sl.Step(rate=sl.Polyak(scale=0.1), clip=1.0))
    first = sl.simulate(problem, algorithm, trials=2, checkpoint=tmp_path / "runs", **how)
    again = sl.simulate(problem, algorithm, trials=3, checkpoint=tmp_path / "runs", **how)
    np.testing.assert_array_equal(first["ema.test_loss"], again["ema.test_loss"][:2])
    other = how | {"averages": {"ema": sl.EMA(3.0)}}
    with pytest.raises(sl.InputError, match="averages"):
        sl.simulate(problem, algorithm, trials=3, checkpoint=tmp_path / "runs", **other)


# --- what is refused, and what ends a run ---


def simulated(algorithm=None, problem=None, **more):
    given = {"dim": 30, "trials": 1, "t_max": 1.0, "progress": False} | more
    return sl.simulate(logistic() if problem is None else problem, algorithm or sl.SGD(0.3), **given)


@pytest.mark.parametrize(
    ("call", "words"),
    {
        "negative clip": (lambda: sl.Step(clip=-1.0), "Step.clip"),
        "no threshold": (lambda: sl.Clip(0.0), "Clip.threshold"),
        "beta of one": (lambda: sl.HeavyBall(beta=1.0), "HeavyBall.beta"),
        "neither": (lambda: sl.Nesterov(), "Nesterov.friction"),
        "both": (lambda: sl.HeavyBall(friction=1.0, beta=0.5), "HeavyBall.friction"),
        "clip of batches without any": (lambda: sl.SGF(0.1, step=sl.Step(clip=sl.Clip(1.0, per="batch"))), "SGF.step"),
        "rate of batches without any": (lambda: sl.GradientFlow(step=sl.Step(rate=sl.AdaGradNorm())), "AdaGradNorm"),
        "noise of a flow": (lambda: sl.GradientFlow(step=sl.Step(weight_noise=1.0)), "sl.SGF"),
        "fixed beta without steps": (lambda: sl.SGF(0.1, step=sl.Step(momentum=sl.HeavyBall(beta=0.5))), "friction="),
        "an unknown name": (lambda: sl.Rate(lambda loss: loss), "loss.*train_loss"),
        "Adam with momentum": (lambda: sl.Step(rate=sl.Adam(), momentum=sl.HeavyBall(beta=0.5)), "beta1"),
        "negative noise": (lambda: sl.DPSGD(-1.0, 1.0, batch_size=2, dim=10, temperature=1.0), "noise_multiplier"),
        "no size": (lambda: sl.DPSGD(1.0, 1.0, batch_size=2, dim=0, temperature=1.0), "DPSGD.dim"),
        "a long mean": (lambda: simulated(averages={"ema": sl.EMA(0.5)}), "longer than the run"),
        "a late mean": (lambda: simulated(averages={"mean": sl.RunningMean(1.0)}), "start before"),
        "a name that is none": (lambda: simulated(averages={"a b": sl.EMA(5.0)}), "identifier"),
        "no average": (lambda: simulated(averages={"ema": 0.5}), "sl.EMA"),
        "a friction beyond steps": (
            lambda: simulated(sl.SGD(1.0, 10, step=sl.Step(momentum=sl.HeavyBall(friction=4.0)))), "friction 4",
        ),
        "a window beyond steps": (lambda: simulated(sl.SGD(1.0, step=sl.Step(rate=sl.Adam(window=0.01)))), "window"),
        "a rate that is no number": (
            lambda: simulated(sl.SGD(1.0, step=sl.Step(rate=sl.Rate(lambda norm: norm))), network()), "one number",
        ),
        "a rate of a teacher that is none": (
            lambda: simulated(
                sl.SGD(1.0, step=sl.Step(rate=sl.Rate(lambda overlap: overlap))),
                logistic(labels=sl.Noise(), teacher=None, noise=sl.Normal(1.0)),
            ), "teacher",
        ),
        "a rate of a loss that is none": (
            lambda: simulated(
                sl.SGD(1.0, step=sl.Step(rate=sl.Polyak())), logistic(loss=sl.VectorField(lambda r, r_star, z: r))
            ), "VectorField",
        ),
        "a field with trained parameters": (
            lambda: logistic(loss=sl.VectorField(lambda r, r_star, z, a: a * r, parameters={"a": sl.Trained(1.0)})),
            "Trained",
        ),
        "a metric of a parameter's name": (
            lambda: simulated(problem=network(), weight_metrics={"readout": lambda theta, theta_star: theta[0]}),
            "readout",
        ),
    }.values(),
)  # fmt: skip
def test_refused_by_name(call, words):
    with pytest.raises(sl.InputError, match=words):
        call()


@pytest.mark.parametrize("algorithm", [sl.SGD, sl.SGF], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("wrong", [math.nan, -0.25])
def test_a_rate_that_is_none_ends_the_run(algorithm, wrong):
    rule = sl.Rate(lambda time: jnp.where(time < 0.5, 1.0, wrong))
    with pytest.warns(sl.DivergenceWarning, match=f"Rate gave the factor {wrong:g}"):
        runs = simulated(algorithm(0.3, step=sl.Step(rate=rule)), dim=50)
    assert runs.status == "diverged"
    assert 0.4 < runs.time[-1] <= 0.55


def test_a_step_without_parts_is_no_step():
    """The same numbers, and the same state."""
    plain, empty = (simulated(sl.SGD(0.3, 2, step=step)) for step in (None, sl.Step()))
    np.testing.assert_array_equal(plain["theta"], empty["theta"])
    weights = Weights(jnp.zeros((4, 1)), {})
    assert sl.SGD(0.3, step=sl.Step()).start_updates(jax.random.key(0), None, weights) == ()


# --- PyTorch itself ---


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["heavy ball", "nesterov", "friction", "adam", "adamw"])
def test_against_pytorch(kind):
    """lr and momentum translated: η = d·lr on rows of norm 1 for a fixed β, η² = d·lr for a friction; Adam's lr √d."""
    torch = pytest.importorskip("torch")
    case = Case(logistic(penalty=sl.NoPenalty()))
    theta = torch.tensor(case.theta, requires_grad=True)
    X, y = torch.tensor(case.X), torch.tensor(case.y)[:, None]
    beta2 = 1 - DT / 1.5
    optimizer = {
        "heavy ball": lambda: torch.optim.SGD([theta], lr=ETA, momentum=0.7, weight_decay=LAM / D),
        "nesterov": lambda: torch.optim.SGD([theta], lr=ETA, momentum=0.7, nesterov=True, weight_decay=LAM / D),
        "friction": lambda: torch.optim.SGD([theta], lr=ETA**2 / D, momentum=1 - ETA * 0.8 / D, weight_decay=LAM / D),
        "adam": lambda: torch.optim.Adam([theta], 0.4 * ETA / D**0.5, (0.8, beta2), weight_decay=LAM / D),
        "adamw": lambda: torch.optim.AdamW(
            [theta], 0.4 * ETA / D**0.5, (0.8, beta2), weight_decay=0.2 / (0.4 * D**0.5)
        ),
    }[kind]()
    for rows in case.rows:
        optimizer.zero_grad()
        torch.nn.functional.softplus(-y[rows] * (X[rows] @ theta)).mean().backward()
        optimizer.step()
    step = {
        "heavy ball": {"momentum": sl.HeavyBall(beta=0.7)},
        "nesterov": {"momentum": sl.Nesterov(beta=0.7)},
        "friction": {"momentum": sl.HeavyBall(friction=0.8)},
        "adam": {"rate": sl.Adam(0.4, 0.8, 1.5)},
        "adamw": {"rate": sl.AdamW(0.2, 0.4, 0.8, 1.5)},
    }[kind]
    own = Case(logistic(penalty=sl.NoPenalty() if kind == "adamw" else sl.Ridge(LAM)))
    np.testing.assert_allclose(own.run(sgd(**step)).theta[-1], theta.detach().numpy(), rtol=1e-8, atol=1e-9)
