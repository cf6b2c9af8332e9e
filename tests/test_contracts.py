"""The contracts of laws, losses, labels, penalties and algorithms: one test runs every implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within

import sgdlimit as sl
from sgdlimit.problem import fields
from sgdlimit.problem.entries import GaussianEntries, RademacherEntries, UniformEntries
from sgdlimit.problem.laws import Categorical, PlusLogistic

LAWS = [
    sl.Normal(1.5),
    sl.Normal(0.0),
    sl.Point(0.7),
    sl.Rademacher(0.5),
    sl.Uniform(0.0, 2.0),
    sl.SparseNormal(0.2, 1.5),
    sl.Law(lambda key, shape: jax.random.exponential(key, shape)),
    PlusLogistic(sl.Normal(0.5)),
    Categorical((0.2, 0.5, 0.3)),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_law(law):
    count = 200_000
    draw = np.asarray(law.sample(jax.random.key(3), (count, 2)), dtype=float)
    mean, second = law.moments(2)
    assert draw.shape == (count, 2)
    # A law known only through its sampler estimates its own moments, from draws.
    products = np.einsum("na,nb->nab", draw, draw)
    assert_within(draw.mean(0) - mean, 1e-6 + 1.4 * draw.std(0) / np.sqrt(count))
    assert_within(products.mean(0) - second, 1e-6 + 1.4 * products.std(0) / np.sqrt(count))
    u = np.random.default_rng(0).uniform(size=(count, 2))
    other = law.spread_out(u, jax.random.key(9))
    assert_within(other.mean() - mean[0], 1e-6 + 1.4 * other.std() / np.sqrt(count))
    assert_within(np.mean(other**2) - second[0, 0], 1e-6 + 1.4 * (other**2).std() / np.sqrt(count))
    levels = np.linspace(0.05, 0.95, 7)
    assert_within(
        np.mean(other[:, None] <= np.quantile(draw[:, 0], levels) + 1e-6, axis=0)
        - np.mean(draw[:, :1] <= np.quantile(draw[:, 0], levels) + 1e-6, axis=0),
        np.sqrt(0.5 / count),
    )


def test_correlated_units_of_a_user_law():
    def fn(key, shape):
        common = jax.random.normal(key, (*shape[:-1], 1))
        return jnp.broadcast_to(common, shape)

    _, second = sl.Law(fn).moments(2)
    np.testing.assert_allclose(second, np.ones((2, 2)), rtol=0.01)


@pytest.mark.parametrize("entries", [GaussianEntries(), RademacherEntries(), UniformEntries(), sl.SparseEntries(0.05)])
def test_entries_have_mean_zero_and_variance_one(entries):
    draw = np.asarray(entries.sample(jax.random.key(0), (100_000,)), dtype=float)
    assert_within(draw.mean(), draw.std() / np.sqrt(draw.size))
    assert_within((draw**2).mean() - 1, max((draw**2).std(), 1e-4) / np.sqrt(draw.size))


DATA = [
    sl.Iid(),
    sl.Spectrum([3.0, 0.5], [0.2, 0.8], [0.5, 1.1]),
    sl.Spectrum([0.0, 2.0, 1.0]),
    sl.PowerLaw(1.2, source=0.6),
    sl.PowerLaw(0.8, groups=5, dim=1000),
    sl.RandomFeatures(jax.nn.relu, 0.5),
    sl.RandomFeatures(jnp.tanh, 3.0),
]


@pytest.mark.parametrize("law", DATA, ids=lambda law: type(law).__name__)
def test_law_of_data(law):
    """Groups with shares of one, variances and hidden parts that are none below zero; counts that add up; a tree."""
    table = law.table()
    assert table.share.shape == table.variance.shape == table.factor.shape
    assert table.share.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(table.share > 0)
    assert np.all(table.variance >= 0)
    assert 0 <= table.unseen < 1
    for dim in (2, 37, 1000):
        counts = table.counts(dim)
        assert counts.sum() == dim
        assert np.all(np.abs(counts - dim * table.share) < 1)
    assert 0 < table.effective_rank <= 1 + 1e-12
    again = jax.tree.map(lambda x: x, law)
    np.testing.assert_array_equal(again.table().variance, table.variance)
    assert law.levels is None or law.levels >= len(table.share)


LOSSES = {
    "square": (sl.Square(), lambda r, y: 0.5 * (r - y) ** 2, True),
    "logistic": (sl.Logistic(), lambda r, y: np.log1p(np.exp(-y * r)), True),
    "huber": (
        sl.Huber(0.7),
        lambda r, y: np.where(abs(r - y) < 0.7, 0.5 * (r - y) ** 2, 0.7 * (abs(r - y) - 0.35)),
        True,
    ),
    "absolute": (sl.Absolute(), lambda r, y: abs(r - y), False),
    "quantile": (sl.Quantile(0.8), lambda r, y: np.maximum(0.8 * (y - r), 0.2 * (r - y)), False),
    "hinge": (sl.Hinge(), lambda r, y: np.maximum(0.0, 1 - y * r), False),
    "smooth hinge": (sl.SmoothHinge(0.3), lambda r, y: 0.3 * np.log1p(np.exp((1 - y * r) / 0.3)), True),
    "exponential": (sl.Exponential(), lambda r, y: np.exp(-y * r), True),
    "user": (sl.Loss(lambda r, y: jnp.cosh(r - y)), lambda r, y: np.cosh(r - y), False),
    "user, a kink": (
        sl.Loss(lambda r, y, a: a * jnp.abs(r - y) ** 3, parameters={"a": 0.2}),
        lambda r, y: 0.2 * abs(r - y) ** 3,
        False,
    ),
    "network": (sl.TwoLayer(jnp.tanh), lambda r, y: 0.5 * (np.tanh(r) - y) ** 2, False),
    "named network": (sl.TwoLayer("leaky_relu"), lambda r, y: 0.5 * (max(r, 0.01 * r) - y) ** 2, False),
}
"""Loss, formula, and whether it declares its gradient continuous."""


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_its_derivatives(name):
    """Values against NumPy; ℓ, ∇ℓ, ∇²ℓ, ∇_{r*}ℓ against finite differences of the NumPy formula."""
    loss, formula, smooth = LOSSES[name]
    assert loss.smooth is smooth
    problem = sl.Problem(loss=loss, labels=sl.Linear(), sample_ratio=2.0, teacher=sl.Normal(1.0))
    h = 1e-3
    with jax.enable_x64(True):
        for r, r_star, z in [(0.3, -0.2, 0.1), (-1.1, 0.6, -0.4), (1.9, 0.5, 0.2)]:
            y = r_star + z
            args = (jnp.array([r]), jnp.array([r_star]), jnp.array(z))
            assert float(fields.loss(problem, *args)) == pytest.approx(float(formula(r, y)), rel=1e-9)
            slope = (formula(r + h, y) - formula(r - h, y)) / (2 * h)
            bend = (formula(r + h, y) - 2 * formula(r, y) + formula(r - h, y)) / h**2
            third = (formula(r + 2 * h, y) - 2 * formula(r + h, y) + 2 * formula(r - h, y) - formula(r - 2 * h, y)) / (
                2 * h**3
            )
            mixed = (formula(r + h, y + h) - formula(r + h, y - h) - formula(r - h, y + h) + formula(r - h, y - h)) / (
                4 * h**2
            )
            assert float(fields.force(problem, 0.0, *args)[0]) == pytest.approx(slope, abs=1e-4)
            assert float(fields.force_r(problem, 0.0, *args)[0, 0]) == pytest.approx(bend, abs=1e-4)
            assert float(fields.force_rr(problem, 0.0, *args)[0, 0, 0]) == pytest.approx(third, abs=1e-3)
            assert float(fields.force_r_star(problem, 0.0, *args)[0, 0]) == pytest.approx(mixed, abs=1e-4)


PENALTIES = {
    "none": (sl.NoPenalty(), lambda x: 0 * x, True, True),
    "ridge": (sl.Ridge(0.3), lambda x: 0.3 * x, True, True),
    "l1": (sl.L1(0.4), lambda x: 0.4 * np.sign(x), False, False),
    "smooth l1": (sl.SmoothL1(0.5, 0.2), lambda x: 0.5 * x / np.sqrt(x**2 + 0.04), True, False),
    "quartic": (sl.Quartic(0.4), lambda x: 0.4 * x**3, True, False),
    "user": (sl.Penalty(lambda x: jnp.sum(jnp.cos(x))), lambda x: -np.sin(x), False, False),
    "field": (sl.VectorField(lambda theta, t: theta**2), lambda x: x**2, False, False),
}
"""Penalty, gradient, and whether it declares its gradient continuous, and linear."""


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", PENALTIES)
def test_penalty_gradient(name, width):
    penalty, gradient, smooth, quadratic = PENALTIES[name]
    assert (penalty.smooth, penalty.quadratic) == (smooth, quadratic)
    loss = sl.Square() if width == 1 else sl.TwoLayer(jnp.tanh)
    problem = sl.Problem(loss=loss, penalty=penalty, sample_ratio=1.0, teacher=sl.Normal(1.0), width=width)
    theta = np.linspace(-1.2, 0.9, width)
    np.testing.assert_allclose(fields.drift(problem, 0.0, jnp.asarray(theta)), gradient(theta), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", [row[0] for row in [*LOSSES.values(), *PENALTIES.values()] if row[0].smooth])
def test_smooth_means_a_continuous_gradient(model):
    """No step of the gradient on a fine grid is larger than its largest slope allows, here below 40."""
    piece = {"penalty": model} if hasattr(model, "quadratic") else {"loss": model}
    problem = sl.Problem(**({"loss": sl.Square(), "sample_ratio": 1.0, "teacher": sl.Normal(1.0)} | piece))
    with jax.enable_x64(True):
        r, one = jnp.linspace(-3.0, 3.0, 6001)[:, None], jnp.ones(1)
        force = jax.vmap(lambda v: fields.force(problem, 0.0, v, one, 0.0) + fields.drift(problem, 0.0, v))(r)
    assert np.max(np.abs(np.diff(force[:, 0]))) < 40 * 1e-3


@pytest.mark.parametrize(
    ("penalty", "linear"),
    [
        (sl.NoPenalty(), True),
        (sl.Ridge(0.2), True),
        (sl.Penalty(lambda x: 0.7 * jnp.sum(x * x)), True),
        (sl.VectorField(lambda theta, t: (1 + t) * theta), True),
        (sl.L1(0.2), False),
        (sl.SmoothL1(0.2), False),
        (sl.Quartic(1e-3), False),
        (sl.Penalty(lambda x: 0.5 * (x - 1.0) ** 2), False),
        (sl.VectorField(lambda theta, t: jnp.sin(theta)), False),
        (sl.VectorField(lambda theta, t: jnp.where(t < 0.2, theta**3, 0 * theta)), False),
    ],
)
def test_linear_penalties_are_detected(penalty, linear):
    problem = sl.Problem(loss=sl.Square(), penalty=penalty, sample_ratio=1.0, teacher=sl.Normal(1.0))
    assert fields.linear_drift(problem, 1.0) is linear


@pytest.mark.parametrize(
    ("labels", "formula"),
    [
        (sl.Linear(), lambda s, z: s + z),
        (sl.Sign(), lambda s, z: np.sign(s + z)),
        (sl.Noise(), lambda s, z: z),
        (sl.TwoLayerLabels(jnp.tanh), lambda s, z: np.tanh(s) + z),
        (sl.TwoLayerLabels("relu", 0.5), lambda s, z: 0.5 * max(s, 0.0) + z),
        (sl.Labels(lambda s, z: s**2 + z), lambda s, z: s**2 + z),
    ],
)
def test_labels(labels, formula):
    problem = sl.Problem(loss=sl.Square(), labels=labels, sample_ratio=1.0, teacher=sl.Normal(1.0))
    for s, z in [(0.4, 0.1), (-0.8, 0.3)]:
        assert float(fields.label(problem, jnp.array([s]), jnp.array(z))) == pytest.approx(formula(s, z), rel=1e-5)


def test_logit_labels_have_the_logistic_probability():
    problem = sl.Problem(loss=sl.Logistic(), labels=sl.Logit(2.0), sample_ratio=1.0, teacher=sl.Normal(1.0))
    count = 100_000
    z = problem.sample_noise(jax.random.key(5), count)
    for r_star in (-0.5, 0.0, 1.0):
        y = np.asarray(jax.vmap(lambda v, s=r_star: fields.label(problem, jnp.array([s]), v))(z))
        p = 1 / (1 + np.exp(-2.0 * r_star))
        assert set(np.unique(y)) == {-1.0, 1.0}
        assert_within((y == 1).mean() - p, np.sqrt(p * (1 - p) / count))


ALGORITHMS = [
    sl.GradientFlow(),
    sl.SGF(0.7),
    sl.SGD(0.7, batch_size=3),
    sl.SGD(0.0),
    sl.SGF(0.3, sl.PowerDecay(1.0, 1.0)),
    sl.SGD(0.3, 5, sl.PowerDecay(1.0, 1.0)),
    sl.ShuffledSGD(0.7, batch_size=3),
    sl.ProportionalSGD(0.3),
    sl.PersistentSGD(0.3, 0.5),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: f"{type(a).__name__}")
def test_increment_law(algorithm):
    """Mean γ and the stated variance over every interval of an uneven grid; independence as declared."""
    delta, count = 1.5, 100_000
    times = np.array([0.0, 0.3, 0.5, 0.9, 2.4, 2.5])
    state = algorithm.start_increments(jax.random.key(1), (count,), delta)
    draws = []
    for i, (t, dt) in enumerate(zip(times[:-1], np.diff(times), strict=True)):
        state, Z = algorithm.increments(state, jax.random.fold_in(jax.random.key(2), i), t, dt, delta)
        Z = np.asarray(Z, dtype=float)
        assert Z.shape == (count,)
        centred = Z - dt
        variance = float(algorithm.variance(t, dt, delta))
        assert_within(centred.mean(), Z.std() / np.sqrt(count) + 1e-6)
        assert_within((centred**2).mean() - variance, (centred**2).std() / np.sqrt(count) + 1e-6)
        assert float(algorithm.mean(t, dt, delta)) == pytest.approx(dt)
        draws.append(centred)
    correlations = np.array([[np.mean(a * b) for b in draws] for a in draws])
    spread = np.array([[np.std(a * b) / np.sqrt(count) for b in draws] for a in draws])
    off = ~np.eye(len(draws), dtype=bool)
    if algorithm.independent:
        assert_within(correlations[off], spread[off] + 1e-6)
    else:
        assert np.max(np.abs(correlations[off]) / spread[off]) > 10


def test_persistent_chain_forgets_at_the_stated_rate():
    algorithm, dt, count = sl.PersistentSGD(0.4, 0.8), 0.2, 200_000
    state = algorithm.start_increments(jax.random.key(0), (count,), 1.0)
    np.testing.assert_allclose(state, 0.4)  # the probability of the first state
    first, member = None, np.zeros(count)
    for i in range(6):
        state, Z = algorithm.increments(state, jax.random.key(10 + i), i * dt, dt, 1.0)
        member = np.asarray(Z, dtype=float) * 0.4 / dt
        first = member if first is None else first
        product = (first - 0.4) * (member - 0.4)
        assert_within(product.mean() - 0.24 * np.exp(-i * dt / 0.8), product.std() / np.sqrt(count))
    # what the state holds is the probability of the next
    assert_within((member - 0.4).mean(), member.std() / np.sqrt(count))
    assert set(np.unique(np.round(np.asarray(state), 5))) == {
        np.float32(round(p, 5)) for p in (1 - 0.6 * -np.expm1(-dt / 0.8), 0.4 * -np.expm1(-dt / 0.8))
    }


def test_poisson_and_gaussian_increments_share_two_moments_only():
    count = 400_000
    third = {}
    for algorithm in (sl.SGF(1.0), sl.SGD(1.0)):
        _, Z = algorithm.increments(jnp.ones(count), jax.random.key(0), 0.0, 0.5, 1.0)
        third[type(algorithm).__name__] = np.mean((np.asarray(Z, dtype=float) - 0.5) ** 3)
    assert third["SGF"] == pytest.approx(0.0, abs=0.02)
    assert third["SGD"] == pytest.approx(0.5, abs=0.02)  # third central moment of a·Poisson(γ/a) is a²γ
