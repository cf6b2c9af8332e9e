"""Γ and 𝓡 by regression: exact where the force is linear, right on average where it is not, and where it jumps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_paired, assert_within
from problems import logistic, square

import sgdlimit as sl
from sgdlimit.control import question
from sgdlimit.dmft import planning
from sgdlimit.dmft.march import assemble
from sgdlimit.dmft.memory import Moments
from sgdlimit.dmft.noise import draw, off
from sgdlimit.dmft.response import RIDGE, KickRegression, Kicks, Local, Path, Regression, regress
from sgdlimit.dmft.training import of_samples
from sgdlimit.problem import fields

KEPT = Moments((0.2, 1.0, 5.0))
FOUND = 3e-4
"""What a ridge of 1e-5 leaves of regressors that are not collinear."""
MARCHES = 48
"""Of which a mean is taken."""


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def erf(x):
    return jax.scipy.special.erf(x / jnp.sqrt(2.0))


def field(fn, width=1):
    """A problem whose force is fn(r, r*, z), with w_0 = 0 and one teacher."""
    return sl.Problem(
        loss=sl.VectorField(fn, loss=lambda r, y: jnp.sum(r) * 0.0), sample_ratio=2.0, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.5), width=width, teacher_width=1,
    )  # fmt: skip


def sampled(problem, start):
    """The force of every sample and its slope, as functions of pre-activations."""
    return [partial(of_samples, field, problem, 0.0, start) for field in (fields.force, fields.force_r)]


def one_step(problem, samples, seed, towards, past, force=None):
    """`Regression.step` on w = towards·w* + noise, (m, M), with a Gaussian past whose functions are mixed by `past`.

    past: (n·m + m, n·m + m), (W, w) = past · normals + towards·w*. force: of (w, W, start); left out, the problem's.
    """
    system = assemble(problem, sl.SGF(0.5), samples, KEPT, dtype="float64")
    start = jax.tree.map(jnp.asarray, draw(problem, system.groups, samples, seed, "float64", weights=False))
    step = jax.tree.map(lambda part: part[0], planning.level(np.linspace(0, 1, 11), 1, KEPT, "float64").steps)
    n, m = KEPT.size, problem.width
    normals = np.random.default_rng(seed).standard_normal((len(past), samples))
    everything = jnp.asarray(past @ normals) + jnp.asarray(towards)[:, None] * start.r_star[0]
    W, w = everything[: n * m].reshape(n, m, samples), everything[n * m :]
    at, slope = sampled(problem, start)
    ell = at(w) if force is None else force(w, W, start)
    here = Local(w, w, jnp.zeros_like(w), ell, ell, jnp.ones(samples), None, None, at, slope)
    path = Path(W, jnp.einsum("nas,mbs->namb", W, W) / samples, jnp.einsum("nas,bs->nab", W, start.basis) / samples)
    answer, after = Regression().step(system, step, start, path, None, here)
    pushed = KEPT.push(step.memory, W, w)
    np.testing.assert_allclose(after.moments, pushed)
    np.testing.assert_allclose(after.gram, jnp.einsum("nas,mbs->namb", pushed, pushed) / samples, atol=1e-12)
    np.testing.assert_allclose(after.known, jnp.einsum("nas,bs->nab", pushed, start.basis) / samples, atol=1e-12)
    return np.asarray(answer.gamma), np.asarray(answer.kappa)


def mixing(size, seed=0):
    """A well-conditioned square matrix."""
    return np.eye(size) + 0.3 * np.random.default_rng(seed).standard_normal((size, size)) / np.sqrt(size)


@pytest.mark.parametrize("width", [1, 2])
def test_a_linear_force_is_found_to_the_ridge(width):
    rng = np.random.default_rng(1)
    gamma, kappa = rng.standard_normal((width, width)), rng.standard_normal((KEPT.size, width, width))
    problem = field(lambda r, r_star, z: jnp.tanh(r - r_star), width)

    def force(w, W, start):
        known = rng.standard_normal((width, 1)) * start.r_star + 0.3 * start.z + 0.2
        return gamma @ w + jnp.einsum("nab,nbs->as", kappa, W) + known

    size = (KEPT.size + 1) * width
    found = one_step(problem, 256, 2, 0.4 * rng.standard_normal(size), mixing(size), force)
    np.testing.assert_allclose(found[0], gamma, atol=FOUND)
    np.testing.assert_allclose(found[1], kappa, atol=FOUND)


def test_regressors_are_scaled_and_those_that_vanish_stay_out():
    """Units do not matter, a row of zeros has no coefficient, and two equal rows share theirs."""
    x = np.random.default_rng(3).standard_normal((3, 400))
    rows = np.stack([1e-4 * x[0], 1e3 * x[1], 0 * x[0], x[2], x[2]])
    target = (2 * x[0] - x[1] + 3 * x[2])[None]
    found = np.asarray(regress(jnp.asarray(rows @ rows.T / 400), jnp.asarray(rows @ target.T / 400)))[:, 0]
    np.testing.assert_allclose(found, [2e4, -1e-3, 0.0, 1.5, 1.5], rtol=FOUND, atol=1e-12)


def replicas(problem, towards, past, force=None, samples=1024):
    found = [one_step(problem, samples, seed, towards, past, force) for seed in range(MARCHES)]
    return tuple(np.stack(part) for part in zip(*found, strict=True))


def assert_mean(copies, exact):
    spread = copies.std(axis=0, ddof=1) / np.sqrt(len(copies))
    assert_within(copies.mean(axis=0) - exact, spread + FOUND, trials=len(copies))


@pytest.mark.parametrize("count", [5, 64, 65, 140])
def test_few_and_many_coefficients_are_those_of_iterated_ridge(count):
    """By columns up to 64 regressors, by blocks beyond: Σ_{k<8} (ridge·K)^k K b, K = (G + ridge)⁻¹, by LAPACK."""
    rng = np.random.default_rng(count)
    rows = rng.standard_normal((count, count)) @ (
        np.geomspace(1, 1e-3, count)[:, None] * rng.standard_normal((count, 4 * count))
    )
    rows /= np.sqrt(np.mean(rows**2, axis=1, keepdims=True))
    gram, cross = rows @ rows.T / rows.shape[1], rng.standard_normal((count, 3))
    damped = np.linalg.inv(gram + RIDGE * np.eye(count))
    expected = sum(np.linalg.matrix_power(RIDGE * damped, k) for k in range(8)) @ damped @ cross
    np.testing.assert_allclose(
        regress(jnp.asarray(gram), jnp.asarray(cross)), expected, rtol=1e-7, atol=1e-7 * np.max(np.abs(expected))
    )


def test_a_nonlinear_force_has_its_mean_slope():
    """ℓ = erf((w + W_0/2)/√2): E ∇ℓ = √(2/π)/√(1 + s²) with s² the variance of the argument; half of it for W_0."""
    size = KEPT.size + 1
    past, towards = mixing(size), 0.3 * np.ones(size)
    along = np.zeros(size)
    along[0], along[-1] = 0.5, 1.0
    second = along @ (past @ past.T + np.outer(towards, towards)) @ along
    slope = np.sqrt(2 / np.pi) / np.sqrt(1 + second)
    problem = field(lambda r, r_star, z: jnp.tanh(r - r_star))
    gamma, kappa = replicas(problem, towards, past, lambda w, W, start: erf(w + 0.5 * W[0]))
    assert_mean(gamma[:, 0, 0], slope)
    assert_mean(kappa[:, :, 0, 0], np.array([0.5 * slope, 0.0, 0.0]))


JUMPS = {
    "smooth": (lambda r, r_star, z: erf(r - r_star - z), lambda s2: np.sqrt(2 / np.pi) / np.sqrt(1 + s2)),
    "sign": (lambda r, r_star, z: jnp.sign(r - r_star - z), lambda s2: 2 / np.sqrt(2 * np.pi * s2)),
    "hinge": (lambda r, r_star, z: jnp.where(r - r_star - z > 1, 1.0, 0.0), lambda s2: density(1.0, s2)),
}


def density(x, s2):
    return np.exp(-(x**2) / (2 * s2)) / np.sqrt(2 * np.pi * s2)


@pytest.mark.parametrize("name", JUMPS)
def test_a_force_of_the_teacher_and_the_noise_may_jump(name):
    """ℓ(w − w* − z), w correlated with w*: the mean slope, the Gaussian density where ℓ jumps.

    Among the regressors is ℓ at what (w_0, w*) tell of w, a function of (w*, z), which biases nothing.
    """
    fn, slope = JUMPS[name]
    size = KEPT.size + 1
    past, towards = mixing(size), np.array([0.2, -0.1, 0.3, 0.6])
    second = past[-1] @ past[-1] + (towards[-1] - 1) ** 2 + 0.25
    gamma, kappa = replicas(field(fn), towards, past)
    assert_mean(gamma[:, 0, 0], slope(second))
    assert_mean(kappa[:, :, 0, 0], np.zeros(3))


def test_the_force_at_what_is_known_takes_noise_away():
    """Of Γ where w follows the teacher closely: against the same regression without it."""
    problem = field(lambda r, r_star, z: 3.0 * jnp.sign(r_star + z) + erf(r))
    past, towards = 0.3 * mixing(KEPT.size + 1), np.array([0.0, 0.0, 0.0, 1.0])
    with_it, _ = replicas(problem, towards, past)
    # another problem's anchor knows nothing of the labels that jump
    blind = field(lambda r, r_star, z: erf(r))
    without, _ = replicas(
        blind, towards, past, lambda w, W, start: 3.0 * jnp.sign(start.r_star + start.z) + erf(w)
    )  # fmt: skip
    assert with_it.std() < 0.5 * without.std()
    assert_mean(with_it[:, 0, 0], np.sqrt(2 / np.pi) / np.sqrt(1 + past[-1] @ past[-1] + 1.0))


COMMITTEE = sl.Problem(
    loss=sl.TwoLayer(erf), labels=sl.TwoLayerLabels(erf), penalty=sl.Ridge(0.1), sample_ratio=1.5,
    teacher=sl.Normal(1.0), init=sl.Normal(0.6), width=2, teacher_width=2,
)  # fmt: skip
MIXTURE = sl.Problem(
    loss=sl.Logistic(), labels=sl.ByClass([1.0, -1.0]), penalty=sl.Ridge(0.1), sample_ratio=2.0,
    data=sl.Mixture([1.0, -0.5], weights=[0.3, 0.7]), bias=True,
)  # fmt: skip
AGAINST = {
    "logistic": (logistic(), sl.SGF(0.6), ()),
    "committee": (COMMITTEE, sl.SGD(0.4), ()),
    "reshuffled": (logistic(), sl.ShuffledSGD(0.6), ()),
    "mixture": (MIXTURE, sl.SGD(0.4), ("intercept",)),
    "groups": (square(data=sl.Spectrum([0.5, 2.0], [0.7, 0.3])), sl.SGD(0.3), ("norm_by_group",)),
    "particles": (logistic(penalty=sl.SmoothL1(0.3, 0.2), teacher=sl.SparseNormal(0.2, 2.0)), sl.SGD(0.5), ()),
}


@pytest.mark.filterwarnings("ignore::sgdlimit.UnreliableWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in ("reshuffled", "groups") else ()) for n in AGAINST]
)
def test_means_are_those_of_all_tangents(name):
    """Over replicas on the same random numbers, on one grid of ten steps."""
    problem, algorithm, more = AGAINST[name]
    words = {"t_max": 1.0, "dt": 0.1, "samples": 8192 * problem.width, "extrapolate": False, "seed": 1}
    found, whole = (function(problem, algorithm, **words) for function in (sl.solve, sl.references.tangents))
    assert_paired(found, whole, ("train_loss", "test_loss", "norm", "overlap", *more))


def kicked(problem, samples, seed, answers, force):
    """`KickRegression.step` where ℓ = force(Σ_b answers_b V_b, start) and V is Gaussian noise off the basis: κ."""
    system = assemble(problem, sl.SGF(0.5), samples, KEPT, dtype="float64")
    assert system.response == KickRegression()
    start = jax.tree.map(jnp.asarray, draw(problem, system.groups, samples, seed, "float64", weights=False))
    step = jax.tree.map(lambda part: part[0], planning.level(np.linspace(0, 1, 11), 1, KEPT, "float64").steps)
    n, m = KEPT.size, problem.width
    noise = mixing(n * m) @ np.random.default_rng(seed).standard_normal((n * m, samples))
    V = off(start.basis, jnp.asarray(noise)).reshape(n, m, samples)
    w = jnp.einsum("nab,nbs->as", answers, V)
    ell = force(w, start)
    kicks = Kicks(V, jnp.einsum("nas,mbs->namb", V, V) / samples)
    here = Local(w, w, jnp.zeros_like(w), ell, ell, jnp.ones(samples), None, kicks, *sampled(problem, start))
    answer, _ = system.response.step(system, step, start, (), None, here)
    assert answer.gamma is None
    new = off(start.basis, jnp.asarray(np.random.default_rng(seed + 1).standard_normal((m, samples))))
    after, pushed = kicks.pushed(KEPT, step.memory, new), KEPT.push(step.memory, V, new)
    np.testing.assert_allclose(after.moments, pushed)
    np.testing.assert_allclose(after.gram, jnp.einsum("nas,mbs->namb", pushed, pushed) / samples, atol=1e-12)
    return np.asarray(answer.kappa)


@pytest.mark.parametrize("width", [1, 2])
def test_what_a_linear_force_answers_to_kicks_is_found_to_the_ridge(width):
    rng = np.random.default_rng(4)
    answers, gamma = rng.standard_normal((KEPT.size, width, width)), rng.standard_normal((width, width))
    problem = field(lambda r, r_star, z: jnp.tanh(r - r_star), width)
    found = kicked(problem, 256, 2, answers, lambda w, start: gamma @ w + 0.7 * start.r_star + 0.3 * start.z + 0.2)
    np.testing.assert_allclose(found, np.einsum("ab,nbc->nac", gamma, answers), atol=FOUND)


@pytest.mark.parametrize("name", JUMPS)
def test_what_a_force_that_jumps_answers_to_kicks_is_its_mean_slope(name):
    fn, slope = JUMPS[name]
    answers = np.array([0.5, -0.3, 0.4])[:, None, None]
    second = float(np.sum((np.ravel(answers) @ mixing(KEPT.size)) ** 2)) + 1.0 + 0.25
    copies = np.stack([
        kicked(field(fn), 1024, seed, answers, lambda w, start: fn(w, start.r_star, start.z)) for seed in range(MARCHES)
    ])  # fmt: skip
    assert_mean(copies[:, :, 0, 0], slope(second) * np.ravel(answers))


@pytest.mark.filterwarnings("ignore::sgdlimit.UnreliableWarning")
def test_flow_without_a_penalty_does_not_run_away(monkeypatch):
    """Least squares, δ = 1, λ = 0, to t = 1000 in single precision, where a regression on the path of w ends at 600."""
    monkeypatch.setattr(question, "LONG", np.inf)
    problem = sl.Problem(loss=sl.Square(), sample_ratio=1.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
    words = {"times": np.array([1.0, 10.0, 100.0, 300.0, 600.0, 1000.0]), "dt": 0.1}
    found = sl.solve(problem, sl.GradientFlow(), samples=8192, replicas=8, **words)
    exact = sl.least_squares(problem, sl.GradientFlow(), times=words["times"])
    for name in ("train_error", "test_error", "overlap", "norm"):
        value, error = found.curve(name)
        assert_within(value - exact[name], error + 1e-6, trials=8)
