"""The contracts of laws, losses, labels, penalties and algorithms: `sl.testing` runs every implementation.

Beside it formulas of the built-in classes, and classes that break one promise each.
"""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within

import sgdlimit as sl
from sgdlimit.problem import fields
from sgdlimit.problem.data import Classes
from sgdlimit.problem.laws import Categorical, PlusLogistic
from sgdlimit.problem.rows import GaussianEntries, RademacherEntries, UniformEntries

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
    sl.testing.check_law(law)


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
    sl.Mixture([[1.0, 0.2], [-1.0, 0.3]], sl.Spectrum([2.0, 1.0]), [0.3, 0.7]),
    sl.Sequence(sl.Spectrum([2.0, 1.0]), positions=[1.0, -1.0], correlation=[[1.0, 0.5], [0.5, 2.0]]),
]


@pytest.mark.parametrize("law", DATA, ids=lambda law: type(law).__name__)
def test_law_of_data(law):
    """The contract; and counts that add up, at an effective rank of at most 1."""
    sl.testing.check_data(law)
    table = law.table()
    for dim in (2, 37, 1000):
        counts = table.counts(dim)
        assert counts.sum() == dim
        assert np.all(np.abs(counts - dim * table.share) < 1)
    assert 0 < table.effective_rank <= 1 + 1e-12


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
def test_loss(name):
    sl.testing.check_loss(LOSSES[name][0])


OF_ROWS = {
    "attention": (sl.Attention(inverse_temperature=1.5), 2, 3, (-1.0, 1.0)),
    "two heads": (sl.Attention(sl.Huber(0.5), heads=2, readout=[1.0, -0.5], output_bias=0.1), 4, 2, (-1.0, 1.0)),
    "pairs": (sl.PairwiseRanking(), 1, 2, (-1.0, 1.0)),
    "pairs, network": (sl.PairwiseRanking("tanh", readout=[1.0, 2.0]), 2, 2, (-1.0, 1.0)),
    "list": (sl.ListwiseRanking(), 1, 4, (0.0, 3.0)),
    "contrastive": (sl.Contrastive(1.5), 2, 2, (-1.0, 1.0)),
    "mean": (sl.MeanPool("tanh", readout=[1.0, -1.0]), 2, 3, (-1.0, 1.0)),
    "max": (sl.MaxPool("relu"), 1, 3, (-1.0, 1.0)),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_loss_of_several_rows(name):
    loss, width, rows, labels = OF_ROWS[name]
    sl.testing.check_loss(loss, labels=labels, width=width, rows=rows)


LABELS_OF_ROWS = {
    "attention": (sl.AttentionLabels(1.5, heads=2), 4, 3),
    "tied": (sl.AttentionLabels(tied=True), 2, 3),
    "pairs": (sl.PairwiseLabels(), 1, 2),
    "list": (sl.ListwiseLabels(), 1, 4),
    "drawn": (sl.ListwiseLabels(slope=2.0, activation="tanh"), 2, 4),
    "same side": (sl.SameSide(), 1, 2),
    "pool": (sl.PoolLabels("relu", "max"), 2, 3),
}


@pytest.mark.parametrize("name", LABELS_OF_ROWS)
def test_labels_of_several_rows(name):
    rule, units, rows = LABELS_OF_ROWS[name]
    sl.testing.check_labels(rule, units=units, rows=rows)


def test_softmax_cross_entropy():
    """−log of the probability of the class y, and mistakes of the largest score; biases shift the scores."""
    bias = [0.3, -0.1, 0.2]
    for loss, shift in ((sl.MultiClass(3), np.zeros(3)), (sl.MultiClass(3, output_bias=bias), np.array(bias))):
        sl.testing.check_loss(loss, labels=(0.0, 1.0, 2.0), width=3)
        assert loss.smooth
        r = np.array([0.4, -1.2, 0.9])
        chance = np.exp(r + shift) / np.exp(r + shift).sum()
        for y in range(3):
            assert float(loss(jnp.asarray(r), jnp.asarray(float(y)))) == pytest.approx(-np.log(chance[y]), rel=1e-5)
            assert float(loss.error(loss.predict(jnp.asarray(r)), float(y))) == (y != np.argmax(chance))
    trained = sl.MultiClass(3, output_bias=sl.Trained(bias))
    assert float(trained(jnp.asarray(r), jnp.asarray(1.0))) == pytest.approx(-np.log(chance[1]), rel=1e-5)


def test_largest_unit_of_the_teacher():
    """The class of the largest r*, and the next one for a share of the samples."""
    rule = sl.ArgMax(wrong=0.2)
    sl.testing.check_labels(rule)
    assert [float(rule(jnp.array([0.1, 0.3, 0.9]), jnp.asarray(z))) for z in (0.1, 0.3)] == [0.0, 2.0]
    assert rule.noise(sl.Point(0.0)) == sl.Uniform(0.0, 1.0)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_its_derivatives(name):
    """Values against NumPy; ℓ, ∇ℓ, ∇²ℓ against finite differences of the NumPy formula."""
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
            assert float(fields.force(problem, 0.0, *args)[0]) == pytest.approx(slope, abs=1e-4)
            assert float(fields.force_r(problem, 0.0, *args)[0, 0]) == pytest.approx(bend, abs=1e-4)
            assert float(fields.force_rr(problem, 0.0, *args)[0, 0, 0]) == pytest.approx(third, abs=1e-3)


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


@pytest.mark.parametrize("name", [name for name in PENALTIES if name != "field"])
def test_penalty(name):
    sl.testing.check_penalty(PENALTIES[name][0], width=2 if name == "l1" else 1)


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
    sl.testing.check_labels(labels)


@pytest.mark.parametrize(
    ("labels", "noise"),
    [
        (sl.Logit(2.0), None),
        (sl.Noise(binary=True), sl.Rademacher()),
        (sl.ByClass((1.0, -1.0)), Categorical((0.2, 0.8))),
    ],
)
def test_labels_with_noise_of_their_own(labels, noise):
    sl.testing.check_labels(labels, noise=noise)


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
def test_algorithm(algorithm):
    sl.testing.check_algorithm(algorithm)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if not a.independent], ids=lambda a: type(a).__name__)
def test_dependent_increments_are_correlated(algorithm):
    delta, count = 1.5, 100_000
    state = algorithm.start_increments(jax.random.key(1), (count,), delta)
    state, first = algorithm.increments(state, jax.random.key(2), 0.0, 0.3, delta)
    _, second = algorithm.increments(state, jax.random.key(3), 0.3, 0.2, delta)
    product = (np.asarray(first, dtype=float) - 0.3) * (np.asarray(second, dtype=float) - 0.2)
    assert abs(product.mean()) > 10 * product.std() / np.sqrt(count)


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


def model(cls):
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(cls))


def broken(base, **parts):
    """An object of a class that differs from a built-in one in one promise."""
    cls = type(base)
    fields_of = {f.name: getattr(base, f.name) for f in dataclasses.fields(cls)}
    contract = cls.__mro__[1]
    kept = {name: part for name, part in vars(cls).items() if not name.startswith("__") or name == "__call__"}
    body = {name: part for name, part in kept.items() if name not in fields_of} | parts
    annotations = {f.name: f.type for f in dataclasses.fields(cls)}
    own = type("Own", (contract,), body | {"__annotations__": annotations})
    return model(own)(**fields_of)


@jax.custom_jvp
def steeper(r, y):
    return 0.5 * (r - y) ** 2


@steeper.defjvp
def _(primals, tangents):
    """A gradient that is not that of the value."""
    (r, y), (dr, dy) = primals, tangents
    return 0.5 * (r - y) ** 2, 2 * (r - y) * (dr - dy)


def wider(self, state, key, t, dt, sample_ratio):
    """Increments of more noise than is stated."""
    return state, dt + 1.1 * jnp.sqrt(self.variance(t, dt, sample_ratio)) * jax.random.normal(key, state.shape)


def late(self, state, key, t, dt, sample_ratio):
    return state, 1.02 * dt + jnp.sqrt(self.variance(t, dt, sample_ratio)) * jax.random.normal(key, state.shape)


def one_draw(self, state, key, t, dt, sample_ratio):
    """The same noise over every interval."""
    noise = jax.random.normal(jax.random.key(0), state.shape)
    return state, dt + jnp.sqrt(self.variance(t, dt, sample_ratio)) * noise


def signs(self, state, key, t, dt, sample_ratio):
    return state, dt + jnp.sqrt(self.variance(t, dt, sample_ratio)) * jax.random.rademacher(key, state.shape)


def half_step(self, data, weights, state, t, dt, draw, key):
    new, state = sl.Weighted.update(self, data, weights, state, t, dt, draw, key)
    return jax.tree.map(lambda old, moved: old + 0.5 * (moved - old), weights, new), state


def other_noise(self, data, weights, state, t, dt, draw, key):
    return sl.SGF(0.2).update(data, weights, state, t, dt, draw, key)


class Unknown(sl.PenaltyLike):
    """No tree of jax."""

    def __call__(self, theta):
        return 0.5 * jnp.sum(theta**2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Unequal(sl.LossLike):
    def __call__(self, r, y):
        return 0.5 * (r - y) ** 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Named(sl.LossLike):
    name: str = "square"

    def __call__(self, r, y):
        return 0.5 * (r - y) ** 2


GROUPS = sl.Spectrum([3.0, 0.5], [0.2, 0.8], [0.5, 1.1])
NORMAL = sl.Normal(1.5)
SGF, PERSISTENT = sl.SGF(0.7), sl.PersistentSGD(0.3, 0.5)
BROKEN = {
    "loss, class": ("loss", lambda: 3.0, "subclass of sl.LossLike"),
    "loss, equality": ("loss", Unequal, "a copy of it is equal"),
    "loss, leaves": ("loss", Named, "its leaves are numbers"),
    "loss, shape": ("loss", lambda: broken(sl.Square(), __call__=lambda s, r, y: jnp.ones(2) * r), "scalar"),
    "loss, numpy": ("loss", lambda: broken(sl.Square(), __call__=lambda s, r, y: np.square(float(r))), "jax.numpy"),
    "loss, gradient": ("loss", lambda: broken(sl.Square(), __call__=lambda s, r, y: steeper(r, y)), "of its value"),
    "loss, jump": ("loss", lambda: broken(sl.Square(), __call__=lambda s, r, y: jnp.floor(r) * 1.0), "is continuous"),
    "loss, smooth": ("loss", lambda: broken(sl.Hinge(), smooth=True), "smooth says"),
    "loss, root": ("loss", lambda: broken(sl.Hinge(), __call__=lambda s, r, y: jnp.sqrt(r**2)), "finite at kinks"),
    "loss, predict": ("loss", lambda: broken(sl.Square(), predict=lambda s, r: jnp.ones(3)), "a Problem takes it"),
    "penalty, tree": ("penalty", Unknown, "jax knows it as a tree"),
    "penalty, quadratic": ("penalty", lambda: broken(sl.Quartic(1.0), quadratic=True), "quadratic says"),
    "penalty, smooth": ("penalty", lambda: broken(sl.L1(0.4), smooth=True), "smooth says"),
    "penalty, prox": ("penalty", lambda: broken(sl.L1(0.4), prox=lambda s, theta, step: theta), "prox"),
    "labels, binary": ("labels", lambda: broken(sl.Linear(), binary=True), "binary says"),
    "labels, noise": ("labels", lambda: broken(sl.Linear(), noise=lambda s, law: 1.0), "law of entries"),
    "law, shape": ("law", lambda: broken(NORMAL, sample=lambda s, key, shape: jnp.ones(3)), "of that shape"),
    "law, mean": ("law", lambda: broken(NORMAL, sample=lambda s, key, shape: NORMAL.sample(key, shape) + 0.03), "mean"),
    "law, second": ("law", lambda: broken(NORMAL, moments=lambda s, size: sl.Normal(1.52).moments(size)), "second"),
    "law, spread": (
        "law",
        lambda: broken(NORMAL, spread_out=lambda s, u, key: 1.5 * np.sqrt(12) * (u[:, 0] - 0.5)),
        "u, key",
    ),
    "data, shares": ("data", lambda: broken(GROUPS, table=lambda s: table(share=[0.2, 0.7])), "sum to 1"),
    "data, variances": (
        "data",
        lambda: broken(GROUPS, table=lambda s: table(variance=[0.2, -0.1])),
        "variances of the",
    ),
    "data, shapes": ("data", lambda: broken(GROUPS, table=lambda s: table(factor=[1.0])), "one shape"),
    "data, unseen": ("data", lambda: broken(GROUPS, table=lambda s: table(unseen=1.5)), "unseen lies"),
    "data, iid": ("data", lambda: broken(GROUPS, iid=True), "iid says"),
    "data, levels": ("data", lambda: broken(GROUPS, levels=1), "levels is at least"),
    "data, classes": ("data", lambda: broken(GROUPS, classes=Classes([[1.0], [2.0]], [0.5, 0.6])), "priors"),
    "data, rows": ("data", lambda: broken(GROUPS, at=lambda s, dim, tested=None: sl.Iid().at(dim)), "of the table"),
    "algorithm, flag": ("algorithm", lambda: broken(SGF, discrete=None), "discrete is declared"),
    "algorithm, mean": ("algorithm", lambda: broken(SGF, increments=late), "Z has mean dt"),
    "algorithm, variance": ("algorithm", lambda: broken(SGF, increments=wider), "Z has the variance"),
    "algorithm, independent": ("algorithm", lambda: broken(SGF, increments=one_draw), "are uncorrelated"),
    "algorithm, gaussian": ("algorithm", lambda: broken(SGF, increments=signs), "gaussian says"),
    "algorithm, jumps": ("algorithm", lambda: broken(SGF, jumps=True), "jumps says"),
    "algorithm, temperature": (
        "algorithm",
        lambda: broken(SGF, noise_temperature=0.3, variance=lambda s, t, dt, ratio: 0.7 * ratio * dt),
        "noise_temperature",
    ),
    "algorithm, expected": (
        "algorithm",
        lambda: broken(PERSISTENT, expected=lambda s, state, t, dt, r: dt),
        "the past",
    ),
    "algorithm, drift": ("algorithm", lambda: broken(SGF, update=half_step), "by the penalty"),
    "algorithm, update": ("algorithm", lambda: broken(SGF, update=other_noise), "updates have the variance"),
}
"""What is checked, an object that breaks one promise, and words of that promise."""


def table(**parts):
    return GROUPS.table()._replace(**{name: np.asarray(part) for name, part in parts.items()})


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name):
    kind, make, said = BROKEN[name]
    thing = make()
    with pytest.raises(AssertionError, match=said) as caught:
        getattr(sl.testing, f"check_{kind}")(thing)
    assert str(caught.value).startswith(type(thing).__name__)


@pytest.mark.parametrize(
    "base", [sl.Square(), sl.L1(0.4), sl.Linear(), NORMAL, GROUPS, SGF], ids=lambda b: type(b).__name__
)
def test_what_breaks_nothing_passes(base):
    """The classes above differ from these in one part alone."""
    kind = {
        sl.LossLike: "loss",
        sl.PenaltyLike: "penalty",
        sl.LabelRule: "labels",
        sl.EntryLaw: "law",
        sl.DataLaw: "data",
    }
    getattr(sl.testing, f"check_{kind.get(type(base).__mro__[1], 'algorithm')}")(broken(base))


def test_own_classes_take_the_same_road():
    """An algorithm and a law of rows that the package does not know: theory and simulation agree."""
    data, algorithm = broken(GROUPS), broken(SGF)
    given = {"loss": sl.Square(), "sample_ratio": 2.0, "teacher": sl.Normal(1.0), "noise": sl.Normal(0.3)}
    theory = sl.solve(sl.Problem(**given, data=data), algorithm, t_max=1.0, tol=5e-2, seed=1)
    known = sl.least_squares(sl.Problem(**given, data=GROUPS), SGF, t_max=1.0)
    value, error = theory.curve("train_error")
    exact = np.interp(theory.time, known.time, known["train_error"])
    assert_within(value - exact, error + 1e-3 * exact)
    runs = sl.simulate(sl.Problem(**given, data=data), algorithm, dim=200, trials=4, t_max=1.0, seed=2)
    built_in = sl.simulate(sl.Problem(**given, data=GROUPS), SGF, dim=200, trials=4, t_max=1.0, seed=2)
    np.testing.assert_array_equal(runs["train_error"], built_in["train_error"])
    assert runs.about["algorithm"]["name"] == "Own"
