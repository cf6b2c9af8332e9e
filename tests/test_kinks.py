"""Losses, penalties and activations with kinks: what is accepted, what is refused, and what comes out."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from scipy.integrate import solve_ivp
from scipy.special import ndtr

import sgdlimit as sl
from sgdlimit.comparison import FALSE_ALARM
from sgdlimit.control.checks import look
from sgdlimit.dmft.integrator import Implicit
from sgdlimit.measure.pace import curvature, start_samples
from sgdlimit.problem.losses import ACTIVATIONS
from sgdlimit.results.variables import widening

WORDS = {"sample_ratio": 2.0, "teacher": sl.Normal(1.0), "noise": sl.Normal(0.5)}
SIGNS = WORDS | {"labels": sl.Sign()}


def regression(**changes):
    return sl.Problem(**({"loss": sl.Absolute()} | WORDS | changes))


# --- what is accepted and what is refused ---

KINKED = {
    "hinge": sl.Problem(loss=sl.Hinge(), **SIGNS),
    "absolute": regression(),
    "quantile": regression(loss=sl.Quantile(0.9)),
    "perceptron": sl.Problem(loss=sl.Loss(lambda r, y: jnp.maximum(0.0, -y * r)), **SIGNS),
    "own": regression(loss=sl.Loss(lambda r, y: 0.5 * r**2 + 1e-2 * jnp.abs(r - y))),
    "field": regression(loss=sl.VectorField(lambda r, r_star, z, t: t * jnp.sign(r - r_star))),
    "relu": regression(loss=sl.TwoLayer("relu"), labels=sl.TwoLayerLabels("relu"), init=sl.Normal(0.5), width=2),
    "L1": regression(loss=sl.Square(), penalty=sl.L1(0.3)),
    "own penalty": regression(loss=sl.Square(), penalty=sl.Penalty(jnp.abs)),
}


@pytest.mark.parametrize("name", KINKED)
def test_kinks_pass_and_have_a_pace(name):
    """A step is limited also where autodiff sees no slope at all."""
    pace = look(KINKED[name], sl.SGF(0.4), 1.0)
    assert 0.05 < pace.limit < 20


REFUSED = {
    "a step": (
        {"loss": sl.Loss(lambda r, y: 0.5 * (r - y) ** 2 + 1e-3 * (r > 1.0))},
        "loss.*value that jumps, near 1;",
    ),
    "zero-one": ({"loss": sl.Loss(lambda r, y: jnp.where(y * r > 0, 0.0, 1.0))}, "loss.*value that jumps"),
    "a root": ({"loss": sl.Loss(lambda r, y: jnp.sqrt((r - y) ** 2))}, "loss.*gradient that is not finite"),
    "a logarithm": ({"loss": sl.Loss(lambda r, y: jnp.log(3.0 + r))}, "loss.*value that is not finite"),
    "a pole": (
        {"loss": sl.VectorField(lambda r, r_star, z: 1 / r), "init": sl.Normal(1.0)},
        "loss.*field that is not finite",
    ),
    "an activation": ({"loss": sl.TwoLayer(jnp.sign)}, "loss.*value that jumps"),
    "hard penalty": (
        {"penalty": sl.Penalty(lambda x: jnp.where(jnp.abs(x) > 0.5, 1.0, 0.0))},
        r"penalty.*value that jumps, near -?0\.5;",
    ),
    "root penalty": (
        {"penalty": sl.Penalty(lambda x: jnp.sqrt(x**2)), "init": sl.Normal(1.0)},
        "penalty.*gradient that is not finite",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_jump_and_gradients_that_are_not_finite_are_refused(name):
    changes, words = REFUSED[name]
    with pytest.raises(sl.InputError, match=words):
        sl.solve(regression(**({"loss": sl.Square()} | changes)), sl.SGF(0.5), t_max=1.0)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (sl.references.fixed_point, {}),
        (sl.references.processes, {}),
        (sl.references.tangents, {}),
        (sl.solve, {"kernels": True}),
    ],
)
def test_what_takes_derivatives_refuses_kinks(function, words):
    with pytest.raises(sl.InputError, match=r"loss.*gradient that jumps"):
        function(KINKED["hinge"], sl.SGF(0.5), t_max=1.0, **words)


@pytest.mark.parametrize("loss", [sl.Hinge(), sl.Absolute(), sl.Quantile(0.3)])
def test_gradients_are_finite_at_the_kink(loss):
    """Between the slopes to its left and to its right, in either precision; that of L1 at zero is zero."""
    assert float(jax.grad(sl.L1(0.3))(0.0)) == 0.0
    place = 1.0 if isinstance(loss, sl.Hinge) else 0.5
    y = 1.0 if isinstance(loss, sl.Hinge) else 0.5
    for double in (False, True):
        with jax.enable_x64(double):
            left, at, right = (float(jax.grad(loss)(place + by, y)) for by in (-0.1, 0.0, 0.1))
        assert left <= at <= right


def test_quantile_is_swept():
    """Its level q is a number as any other. An intercept alone follows dβ/dt = q − Φ(β) to the quantile."""
    levels, times = [0.3, 0.9], [1.0, 5.0]
    diagram = sl.sweep(
        sl.Problem(loss=sl.Quantile(0.5), labels=sl.Noise(), sample_ratio=math.inf, noise=sl.Normal(1.0), bias=True),
        sl.SGF(0.0), over={"loss.level": levels}, times=times, kind="online", samples=8192, progress=False,
    )  # fmt: skip
    for level in levels:
        found = diagram.dataset.sel({"loss.level": level})
        exact = solve_ivp(lambda t, b, q=level: q - ndtr(b), (0.0, 5.0), [0.0], t_eval=times, rtol=1e-9).y[0]
        error = np.hypot(found["intercept_stderr"].values.ravel() / widening(8), 0.2 / 1024)
        assert_within(found["intercept"].values.ravel() - exact, error, trials=8)


# --- activations ---


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_names_of_activations(name, tmp_path):
    """A name is the function, in Python, in TOML and in saved files."""
    from sgdlimit import describe
    from sgdlimit.cli.specification import read

    loss, labels = sl.TwoLayer(name, readout=0.5), sl.TwoLayerLabels(name)
    assert loss == sl.TwoLayer(ACTIVATIONS[name], readout=0.5)
    problem = regression(loss=loss, labels=labels, init=sl.Normal(0.5), width=2)
    assert describe.problem_from_words(describe.to_words(problem)) == problem
    x = np.array([-1.3, 0.2])
    known = {
        "erf": np.vectorize(math.erf), "relu": lambda x: np.maximum(x, 0), "tanh": np.tanh,
        "leaky_relu": lambda x: np.maximum(x, 0.01 * x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "softplus": lambda x: np.log1p(np.exp(x)), "silu": lambda x: x / (1 + np.exp(-x)),
        "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
        "elu": lambda x: np.where(x > 0, x, np.expm1(x)), "quadratic": np.square,
    }  # fmt: skip
    np.testing.assert_allclose(loss.predict(x), 0.5 * np.sum(known[name](x)), rtol=1e-5)
    file = tmp_path / "problem.toml"
    file.write_text(
        f'[problem]\nloss = {{ name = "TwoLayer", activation = "{name}" }}\nsample_ratio = 2.0\nteacher = "Normal"\n'
        f'labels = {{ name = "TwoLayerLabels", activation = "{name}" }}\n[algorithm]\nname = "SGD"\ntemperature = 0.4\n'
    )
    assert read(file).problem.loss == sl.TwoLayer(name)
    with pytest.raises(sl.InputError, match=r"TwoLayer\.activation.*'relu'"):
        sl.TwoLayer("rely")


# --- the implicit step ---

THETA = np.random.default_rng(0).normal(size=(2, 80))


def brute(penalty, v, by):
    """The minimiser of ½(x−v)² + by·penalty(x) on a fine grid, one number at a time."""
    x = np.linspace(-6, 6, 240_001)
    cost = by * penalty(x)
    return np.array([x[np.argmin(0.5 * (x - one) ** 2 + cost)] for one in np.ravel(v)]).reshape(v.shape)


STEPS = {
    "L1": (sl.L1(0.7), lambda x: 0.7 * np.abs(x)),
    "own": (sl.Penalty(lambda x: 0.7 * jnp.sum(jnp.abs(x))), lambda x: 0.7 * np.abs(x)),
    "field": (sl.VectorField(lambda theta: 0.7 * jnp.sign(theta)), lambda x: 0.7 * np.abs(x)),
    "elastic net": (
        sl.Penalty(lambda x: jnp.sum(0.7 * jnp.abs(x) + 0.9 * x**2)),
        lambda x: 0.7 * np.abs(x) + 0.9 * x**2,
    ),
    "off zero": (sl.Penalty(lambda x: jnp.sum(jnp.maximum(x - 0.2, 0.3 * (0.2 - x)))),
                 lambda x: np.maximum(x - 0.2, 0.3 * (0.2 - x))),
    "smooth": (sl.Penalty(lambda x: jnp.sum(0.25 * x**4)), lambda x: 0.25 * x**4),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *((name, 1) for name in STEPS),
        *(pytest.param(n, 2, marks=() if n in ("L1", "own") else pytest.mark.slow) for n in STEPS),
    ],
)
def test_the_implicit_step_is_the_proximal_one(name, width):
    """Against a search by NumPy, with the schedule of the end of the step; its slope against differences."""
    penalty, formula = STEPS[name]
    loss = sl.Square() if width == 1 else sl.TwoLayer("tanh")
    schedule = sl.Schedule(lambda t: 1.0 + t)
    problem = sl.Problem(**(WORDS | {"loss": loss, "penalty": penalty, "width": width, "schedule": schedule}))
    theta, gamma, t = THETA[:width], 0.5, 0.3
    change = 0.1 * THETA[:width, ::-1]
    step = jax.jit(lambda theta, change: Implicit().move(problem, t, gamma, theta, change))
    with jax.enable_x64(True):

        def move(change):
            return step(jnp.asarray(theta), jnp.asarray(change))

        moved, linear = move(change)
        expected = brute(formula, theta + change, gamma * (1 + t + gamma))
        np.testing.assert_allclose(moved, expected, atol=6e-5)  # of the grid
        by = 1e-6
        for a in range(width):
            shift = np.zeros_like(change)
            shift[a] = by
            difference = (np.asarray(move(change + shift)[0]) - np.asarray(move(change - shift)[0])) / (2 * by)
            np.testing.assert_allclose(np.asarray(linear.after)[:, a], difference, atol=1e-4)
    single, _ = step(jnp.asarray(theta), jnp.asarray(change))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=7e-5)


def test_group_lasso_is_solved_up_to_its_own_kink():
    """x + γλx/|x| = v: v(1 − γλ/|v|), or 0; the search by units comes within the threshold there."""
    problem = sl.Problem(**(WORDS | {
        "loss": sl.TwoLayer("tanh"), "penalty": sl.Penalty(lambda x: 0.6 * jnp.sqrt(jnp.sum(x**2) + 1e-30)), "width": 2,
        "init": sl.Normal(1.0),
    }))  # fmt: skip
    with jax.enable_x64(True):
        step = jax.jit(lambda theta: Implicit().move(problem, 0.0, 0.5, theta, jnp.zeros_like(theta)))
        moved, _ = step(jnp.asarray(THETA))
    length = np.linalg.norm(THETA, axis=0)
    expected = THETA * np.maximum(0.0, 1 - 0.3 / length)
    free = length > 0.32
    np.testing.assert_allclose(np.asarray(moved)[:, free], expected[:, free], atol=1e-6)
    assert np.max(np.abs(np.asarray(moved)[:, ~free] - expected[:, ~free])) < 0.3


def test_the_step_of_a_kinked_penalty_is_differentiated():
    """d/dλ of Σx after a soft threshold: −γ sign(x) where it is not zero, for the formula and the search alike."""
    theta = jnp.asarray(THETA[:1])

    def total(strength, make):
        problem = sl.Problem(loss=sl.Square(), penalty=make(strength), **WORDS)
        return jnp.sum(Implicit().move(problem, 0.0, 0.5, theta, jnp.zeros_like(theta))[0])

    def own(strength):
        return sl.Penalty(lambda x, a: a * jnp.sum(jnp.abs(x)), parameters={"a": strength})

    expected = -0.5 * np.sum(np.sign(THETA[0]) * (np.abs(THETA[0]) > 0.35))
    for make in (sl.L1, own):
        assert float(jax.jit(jax.grad(total), static_argnums=1)(0.7, make)) == pytest.approx(expected, rel=1e-4)


# --- curvature ---


def test_the_pace_of_a_jump_is_the_slope_of_the_mean_force():
    """E sign(x − y) over ±Δ for Gaussian y, and what it adds to the slopes that autodiff sees."""
    s = math.sqrt(1.25)
    found = curvature(regression(), 1.0, *start_samples(regression()))
    slope = math.erf(0.55 / math.sqrt(2)) / (0.55 * s)
    assert float(found.slopes[0][0, 0]) == pytest.approx(slope, rel=0.05)  # 1024 samples
    assert found.data == pytest.approx(slope * (1 + 2**-0.5) ** 2, rel=0.05)
    both = regression(loss=sl.Loss(lambda r, y: 0.5 * (r - y) ** 2 + jnp.abs(r - y)))
    assert float(curvature(both, 1.0, *start_samples(both)).slopes[0][0, 0]) == pytest.approx(1 + slope, rel=0.05)
    for loss in (sl.Loss(lambda r, y: 0.5 * (r - y) ** 2), sl.Loss(lambda r, y: jnp.log(jnp.cosh(3 * (r - y))))):
        smooth = regression(loss=loss)
        w, z = start_samples(smooth)
        autodiff = jnp.mean(jax.vmap(lambda y, loss=loss: jax.grad(jax.grad(loss))(0.0, y))(w[:, 1] + z))
        assert float(curvature(smooth, 1.0, w, z).slopes[0][0, 0]) == pytest.approx(float(autodiff), rel=1e-4)
    penalty = regression(loss=sl.Square(), penalty=sl.L1(0.3))
    assert curvature(penalty, 1.0, *start_samples(penalty)).penalty == pytest.approx(0.3 / (0.55 * s), rel=0.05)


# --- infinite data ---


def absolute_online(tau, sigma, ridge, times):
    """The closed ODEs of |u|, u = r − y Gaussian of variance V: E[sign(u) x] = √(2/π) E[ux]/√V, E ℓ² = 1."""

    def velocity(t, state):
        Q, c = state
        V = Q - 2 * c + 1 + sigma**2
        slope = math.sqrt(2 / (math.pi * V))
        return [-2 * (slope * (Q - c) + ridge * Q) + tau, -(slope * (c - 1) + ridge * c)]

    return solve_ivp(velocity, (0.0, times[-1]), [0.0, 0.0], t_eval=times, rtol=1e-10, atol=1e-12).y


def test_absolute_loss_online_is_the_closed_form():
    times = [0.5, 1.0, 3.0]
    norm, overlap = absolute_online(0.4, 0.5, 0.1, times)
    problem = regression(penalty=sl.Ridge(0.1), sample_ratio=math.inf)
    found = sl.online(problem, sl.SGF(0.4), times=times, samples=32_768, seed=3)
    for name, exact in (("norm", norm), ("overlap", overlap)):
        error = np.hypot(found[f"{name}_stderr"].ravel() / widening(8), 0.2 / 4096)  # tolerance of the equations
        assert_within(found[name].ravel() - exact, error, trials=8)


def test_absolute_loss_online_with_particles():
    """A penalty that is next to none: Γ by integration by parts, where autodiff would have called it zero."""
    times = [0.5, 1.0]
    norm, overlap = absolute_online(0.4, 0.5, 0.0, times)
    problem = regression(penalty=sl.L1(1e-9), sample_ratio=math.inf)
    found = sl.online(problem, sl.SGF(0.4), times=times, samples=8192, particles=2048, dt=0.05, seed=3)
    for name, exact in (("norm", norm), ("overlap", overlap)):
        value, error = found.curve(name)
        assert np.all(np.abs(value.ravel() - exact) < 4 * error.ravel()), name


def test_L1_online_against_its_own_smoothing():
    words = {"loss": sl.Square(), "sample_ratio": math.inf, "teacher": sl.SparseNormal(0.3, 1.5)}
    own = {"times": [0.5, 1.5], "samples": 4096, "particles": 2048, "dt": 0.02, "seed": 1}
    sharp = sl.online(sl.Problem(penalty=sl.L1(0.3), **words), sl.SGF(0.3), **own)
    smooth = sl.online(sl.Problem(penalty=sl.SmoothL1(0.3, 0.01), **words), sl.SGF(0.3), **own)
    for name in ("norm", "overlap", "test_error"):
        (value, error), (other, more) = sharp.curve(name), smooth.curve(name)
        assert np.all(np.abs(value - other) < 4 * np.hypot(error, more) + 0.3 * 0.01), name  # λs of the smoothing


def test_a_strong_L1_online_holds_the_weights():
    """|force| < λ with infinite data and no noise: nothing leaves zero."""
    problem = regression(penalty=sl.L1(20.0), sample_ratio=math.inf)
    found = sl.online(problem, sl.GradientFlow(), t_max=1.0, samples=2048, particles=256, dt=0.1)
    assert np.all(found["norm"] == 0)


# --- simulation ---


@pytest.mark.parametrize("name", ["hinge", "absolute", "quantile", "L1"])
def test_runs_against_numpy(name):
    """Explicit steps on the user's own matrix are sums of gradients that NumPy takes as well."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 20)) / np.sqrt(20)
    y = np.sign(rng.normal(size=40)) if name == "hinge" else rng.normal(size=40)
    loss = {"hinge": sl.Hinge(), "absolute": sl.Absolute(), "quantile": sl.Quantile(0.8), "L1": sl.Square()}[name]
    force = {
        "hinge": lambda r: np.where(y * r < 1, -y, 0.0), "absolute": lambda r: np.sign(r - y),
        "quantile": lambda r: np.where(r < y, -0.8, 0.2), "L1": lambda r: r - y,
    }[name]  # fmt: skip
    strength, dt, steps = (0.3 if name == "L1" else 0.0), 0.01, 20
    runs = sl.simulate_on_data(
        X,
        y,
        sl.ProportionalSGD(1.0),
        loss=loss,
        penalty=sl.L1(strength),
        t_max=dt * steps,
        dt=dt,
        trials=1,
        dtype="float64",
    )
    theta = np.zeros(20)
    for _ in range(steps):
        theta = theta - dt * (strength * np.sign(theta) + X.T @ force(X @ theta) * 20 / 40)
    assert runs["norm"].ravel()[-1] == pytest.approx(theta @ theta / 20, rel=1e-9)


# --- finite data: theory ---


def test_a_strong_L1_holds_the_weights():
    """The pull of the data is far below λ: every weight is exactly zero, and the train loss that of the labels."""
    problem = sl.Problem(loss=sl.Square(), penalty=sl.L1(20.0), **WORDS)
    solution = sl.solve(problem, sl.GradientFlow(), t_max=0.5, dt=0.1, samples=4096, seed=1)
    assert np.all(solution["norm"] == 0)
    value, error = solution.curve("train_error")
    assert np.all(np.abs(value - 1.25) < 4 * error + 1e-6)


def test_L1_and_its_own_smoothing():
    """Both through particles, the one by its formula and the other by Newton; the rounding is below the errors."""
    words = WORDS | {"loss": sl.Square(), "teacher": sl.SparseNormal(0.3, 1.5)}
    own = {"times": [0.25, 0.5, 1.0], "dt": 0.05, "samples": 8192, "seed": 2}
    sharp = sl.solve(sl.Problem(penalty=sl.L1(0.3), **words), sl.SGF(0.3), **own)
    smooth = sl.solve(sl.Problem(penalty=sl.SmoothL1(0.3, 0.01), **words), sl.SGF(0.3), **own)
    for name in ("norm", "overlap", "train_error"):
        (value, error), (other, more) = sharp.curve(name), smooth.curve(name)
        assert np.all(np.abs(value - other) < 3 * np.hypot(error, more)), name


COMPARED = {
    "hinge": sl.Problem(loss=sl.Hinge(), penalty=sl.Ridge(0.05), **SIGNS),
    "absolute": regression(penalty=sl.Ridge(0.05)),
    "quantile": regression(loss=sl.Quantile(0.8), penalty=sl.Ridge(0.05)),
    "relu": regression(
        loss=sl.TwoLayer("relu", readout=(1.0, 0.5)), labels=sl.TwoLayerLabels("relu", readout=(1.0, 0.5)), width=2,
        init=sl.Normal(0.5),
    ),
    "L1": regression(loss=sl.Square(), penalty=sl.L1(0.3), teacher=sl.SparseNormal(0.3, 1.5)),
    "own penalty": regression(
        loss=sl.Square(), penalty=sl.Penalty(lambda x: 0.3 * jnp.abs(x) + 0.1 * x**2), teacher=sl.SparseNormal(0.3, 1.5)
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_theory_and_sgd(name):
    """SGD at d = 1000 within the errors of both, by one test of all curves: few samples, hot, so that a response that
    misses the jumps shows."""
    problem, times = dataclasses.replace(COMPARED[name], sample_ratio=1.0), [1.0, 2.0, 4.0]
    solution = sl.solve(problem, sl.SGD(1.0, batch_size=2), times=times, samples=2**16, seed=5)
    runs = sl.simulate(problem, sl.SGD(1.0, batch_size=2), dim=1000, trials=16, times=times, seed=6)
    report = sl.compare(solution, runs)
    assert report.p_value > FALSE_ALARM, report
