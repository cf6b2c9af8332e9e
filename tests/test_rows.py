"""Several rows a sample.

A loss that reads its rows through one combination Σ_l c_l r_l sees one row of variance cᵀSc and mean Σ_l c_l μ_l, S the
correlation of the rows: whatever the package knows of one row is an oracle for several. A sum of losses is as many
samples. Attention and its like stand beside runs in `test_rows_slow`.
"""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_paired, assert_within

import sgdlimit as sl
from sgdlimit.algorithms.samples import StoredData, Weights, draw_rows
from sgdlimit.errors import InputError
from sgdlimit.problem.rows import resolve_entries

C = (1.0, -0.7, 0.4)
SQUARES = float(np.sum(np.square(C)))
CORRELATION = ((1.0, 0.4, 0.0), (0.4, 1.0, -0.3), (0.0, -0.3, 0.8))
MIXED = float(np.array(C) @ np.array(CORRELATION) @ np.array(C))
CURVES = ("train_loss", "test_loss", "overlap", "norm")
SIZE = {"samples": 16384, "dt": 0.1, "t_max": 2.0}


def combined(r):
    """Σ_l c_l r_l, of every unit."""
    r = jnp.asarray(r)
    return jnp.tensordot(jnp.asarray(C, r.dtype), r, 1)


def soft(r, y):
    return jax.nn.softplus(-y * r)


def soft_of_rows(r, y):
    return soft(combined(r), y)


def side(s, z):
    return jnp.where(s + z >= 0, 1.0, -1.0)


def side_of_rows(s, z):
    return side(combined(s), z)


def pair(variance=SQUARES, rows=None, one=None, **words):
    """The problem of three rows, and that of the one row that it sees of them."""
    shared = dict(sample_ratio=1.5, teacher=sl.Normal(1.0), noise=sl.Normal(0.3), penalty=sl.Ridge(0.1)) | words
    several = sl.Problem(
        loss=sl.Loss(soft_of_rows, predict=combined), labels=sl.Labels(side_of_rows, binary=True), rows=3,
        **shared | (rows or {}),
    )  # fmt: skip
    single = sl.Problem(
        loss=sl.Loss(soft),
        labels=sl.Labels(side, binary=True),
        **shared | {"data": sl.Spectrum([variance])} | (one or {}),
    )
    return several, single


def alike(one, other, names=CURVES):
    """Two solutions agree at all times, within their errors."""
    for name in names:
        (a, da), (b, db) = one.curve(name), other.curve(name)
        size = np.max(np.abs(a))
        assert_within((a - b)[::4], np.hypot(da, db)[::4] + 1e-6 * size)


ALGORITHMS = {
    "flow": sl.GradientFlow(),
    "SGF": sl.SGF(0.5),
    "SGD": sl.SGD(0.5, batch_size=2),
    "reshuffled": sl.ShuffledSGD(0.5, batch_size=2),
    "proportional": sl.ProportionalSGD(0.3),
    "persistent": sl.PersistentSGD(0.3, 1.0),
    "clip a sample": sl.SGD(0.5, batch_size=2, step=sl.Step(clip=0.3, weight_noise=0.2)),
    "clip a batch": sl.SGD(0.5, batch_size=3, step=sl.Step(clip=sl.Clip(0.3, "batch"), decay=0.1)),
    "momentum": sl.SGD(0.4, batch_size=2, step=sl.Step(momentum=sl.HeavyBall(1.0))),
    "adaptive": sl.SGD(0.5, batch_size=2, step=sl.Step(rate=sl.AdaGradNorm(0.5, 0.5))),
    "Adam": sl.SGD(0.5, batch_size=2, step=sl.Step(rate=sl.Adam(0.3))),
    "Polyak": sl.SGD(0.5, batch_size=2, step=sl.Step(rate=sl.Polyak(0.0, 1.0))),
}


SLOW = ("SGF", "proportional", "persistent", "clip a sample", "adaptive", "Adam", "Polyak", "start", "schedule", "flow")
"""Each compiles two programs of its own; what the fast ones share with them is tested there."""


def some_slow(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]


@pytest.mark.parametrize("name", some_slow(ALGORITHMS))
def test_a_combination_of_rows_is_one_row(name):
    several, single = pair()
    one = sl.solve(several, ALGORITHMS[name], seed=1, **SIZE)
    alike(one, sl.solve(single, ALGORITHMS[name], seed=2, **SIZE))


ON_STRUCTURE = {
    "spectrum": (
        {"data": sl.Spectrum([2.0, 0.5], [0.3, 0.7], [0.6, 1.2])},
        {"data": sl.Spectrum([2.0 * SQUARES, 0.5 * SQUARES], [0.3, 0.7], [0.6, 1.2])},
        {},
    ),
    "correlated": ({"data": sl.Sequence(correlation=CORRELATION)}, {"data": sl.Spectrum([MIXED])}, {}),
    "particles": ({"penalty": sl.SmoothL1(0.2, 0.2)}, {"penalty": sl.SmoothL1(0.2, 0.2)}, {}),
    "start": ({"init": sl.Normal(0.5)}, {"init": sl.Normal(0.5)}, {}),
    "schedule": ({"schedule": sl.PowerDecay(1.0)}, {"schedule": sl.PowerDecay(1.0)}, {}),
}


@pytest.mark.parametrize("name", some_slow(ON_STRUCTURE))
def test_a_combination_of_rows_is_one_row_on(name):
    rows, one, words = ON_STRUCTURE[name]
    several, single = pair(rows=rows, one=one, **words)
    alike(sl.solve(several, sl.SGD(0.5), seed=1, **SIZE), sl.solve(single, sl.SGD(0.5), seed=2, **SIZE))


@pytest.mark.parametrize("correlation", [None, CORRELATION])
def test_positions_are_the_mean_of_the_one_row(correlation):
    """Σ_l c_l μ_l = m a/d along one direction: a mixture of one class; the intercept β of every row adds β Σ c."""
    positions = (0.8, -0.5, 0.3)
    level, variance = float(np.dot(C, positions)), SQUARES if correlation is None else MIXED
    labels = sl.Labels(lambda s, z: 0.0 * z - 1.0)
    shared = dict(sample_ratio=1.5, penalty=sl.Ridge(0.1), init=sl.Normal(0.3))
    sequence = sl.Sequence(positions=positions, correlation=correlation)
    several = sl.Problem(loss=sl.Loss(soft_of_rows), labels=labels, rows=3, data=sequence, **shared)
    mixture = sl.Mixture([[level]], variance, [1.0])
    single = sl.Problem(loss=sl.Loss(soft), labels=labels, data=mixture, **shared)
    one, other = (sl.solve(p, sl.SGD(0.5), seed=s, **SIZE) for s, p in enumerate((several, single)))
    alike(one, other, ("train_loss", "test_loss", "norm"))
    (a, da), (b, db) = one.curve("mean_overlap"), other.curve("overlap")
    assert_within((a - b)[::4], np.hypot(da, db)[::4] + 1e-6)


def test_an_intercept_is_that_of_all_rows():
    """β of every row of a sample moves Σ_l c_l r_l by β Σ c, and feels Σ_l c_l ℓ: with rates alike, the same path."""
    correlation, total = sl.Sequence(correlation=CORRELATION), float(np.sum(C))
    for data, variance in ((sl.Iid(), SQUARES), (correlation, MIXED)):
        several, single = pair(rows={"data": data}, one={"data": sl.Spectrum([variance])})
        several = replace(several, bias=True)
        shifted = sl.Loss(lambda r, y, b: soft(r + total * b, y), parameters={"b": sl.Trained(0.0)})
        tilted = sl.Labels(lambda s, z: jnp.where(s + z >= 0.4, 1.0, -1.0), binary=True)
        of_rows = sl.Labels(lambda s, z: jnp.where(combined(s) + z >= 0.4, 1.0, -1.0), binary=True)
        one = sl.solve(replace(several, labels=of_rows), sl.SGD(0.5), seed=1, **SIZE)
        other = sl.solve(replace(single, labels=tilted, loss=shifted), sl.SGD(0.5), seed=2, **SIZE)
        alike(one, other)
        (a, da), (b, db) = one.curve("intercept"), other.curve("b")
        assert_within((a[:, 0] - b)[1::4], np.hypot(da[:, 0], db)[1::4])


@pytest.mark.slow
def test_positions_toward_the_teacher_are_a_shift_of_the_pre_activation():
    """μ_l = p_l θ*/d moves r_l by p_l times the overlap; with p = 0 nothing moves. Against runs of the same problem."""
    several, _ = pair(rows={"data": sl.Sequence(positions=(0.8, -0.5, 0.3), toward_teacher=True)})
    theory = sl.solve(several, sl.SGD(0.5, batch_size=2), t_max=2.0, tol=1e-2)
    runs = sl.simulate(several, sl.SGD(0.5, batch_size=2), dim=500, trials=16, t_max=2.0, seed=4)
    assert "mean_overlap" not in theory
    assert sl.compare(runs, theory).p_value > 1e-3
    still, _ = pair(rows={"data": sl.Sequence(positions=(0.0, 0.0, 0.0), toward_teacher=True)})
    plain, _ = pair()
    alike(sl.solve(still, sl.SGD(0.5), seed=1, **SIZE), sl.solve(plain, sl.SGD(0.5), seed=2, **SIZE))


def test_least_squares_of_a_combination_is_volterra():
    for data, variance in ((sl.Iid(), SQUARES), (sl.Sequence(correlation=CORRELATION), MIXED)):
        shared = dict(sample_ratio=1.5, teacher=sl.Normal(1.0), noise=sl.Normal(0.3), penalty=sl.Ridge(0.1))
        loss, labels = sl.Loss(lambda r, y: 0.5 * (combined(r) - y) ** 2), sl.Labels(lambda s, z: combined(s) + z)
        solved = sl.solve(sl.Problem(loss=loss, labels=labels, rows=3, data=data, **shared), sl.SGD(0.3), **SIZE)
        exact = sl.least_squares(
            sl.Problem(loss=sl.Square(), data=sl.Spectrum([variance]), **shared), sl.SGD(0.3), times=solved.time
        )
        for name in CURVES:
            value, error = solved.curve(name)
            assert_within((value - exact[name])[::4], error[::4] + 1e-6)


@pytest.mark.parametrize(
    "algorithm",
    [sl.SGF(0.6), sl.SGD(0.6, batch_size=2, step=sl.Step(clip=0.4)), sl.SGD(0.6, step=sl.Step(rate=sl.Adam(0.3)))],
    ids=["plain", "clip", "Adam"],
)
def test_infinite_data(algorithm):
    rows, one = {"data": sl.Sequence(correlation=CORRELATION)}, {"data": sl.Spectrum([MIXED])}
    several, single = (replace(p, sample_ratio=math.inf) for p in pair(rows=rows, one=one))
    alike(*(sl.online(p, algorithm, t_max=2.0, samples=16384, seed=s) for s, p in enumerate((several, single))))


def test_infinite_data_is_the_limit_of_much_data():
    several, _ = pair(rows={"data": sl.Sequence(positions=(0.8, -0.5, 0.3), correlation=CORRELATION), "bias": True})
    solved = sl.solve(replace(several, sample_ratio=3e4), sl.SGF(0.5), **SIZE)
    online = sl.online(several, sl.SGF(0.5), times=solved.time, samples=16384)
    alike(solved, online, ("test_loss", "overlap", "norm", "mean_overlap", "intercept"))


@pytest.mark.parametrize("algorithm", some_slow(["flow", "SGF", "SGD", "reshuffled", "proportional", "persistent"]))
def test_rows_that_do_not_talk_are_as_many_samples(algorithm):
    """A sum of losses over L rows: L·δ samples per dimension, a force L times as large, a draw for all L."""
    rows, shared = 3, dict(teacher=sl.Normal(1.0), penalty=sl.Ridge(0.1))
    made = ALGORITHMS[algorithm]
    fewer = replace(made, temperature=made.temperature / rows) if hasattr(made, "temperature") else made
    single = sl.Problem(
        loss=sl.Loss(lambda r, y: rows * soft(r, y)), labels=sl.Sign(), sample_ratio=1.2 * rows, **shared
    )
    several = sl.Problem(
        loss=sl.Loss(lambda r, y: jnp.sum(soft(r, y))), labels=sl.Labels(lambda s, z: side(s, 0.0)), sample_ratio=1.2,
        rows=rows, **shared,
    )  # fmt: skip
    alike(sl.solve(several, made, seed=1, **SIZE), sl.solve(single, fewer, seed=2, **SIZE))


EXACT = {
    "pairs": (dict(loss=sl.PairwiseRanking(), labels=sl.PairwiseLabels(), noise=sl.Normal(0.3), rows=2), sl.SGD(0.5)),
    "correlated": (
        dict(loss=sl.PairwiseRanking(), labels=sl.PairwiseLabels(), rows=2, bias=True, init=sl.Normal(0.5),
             data=sl.Sequence(positions=[1.0, -0.5], correlation=[[1.0, 0.5], [0.5, 2.0]])), sl.ShuffledSGD(0.5)),
    "tokens": (
        dict(loss=sl.Attention(inverse_temperature=1.5), labels=sl.AttentionLabels(1.5), init=sl.Normal(0.5), width=2,
             rows=3), sl.SGD(0.4, batch_size=2, step=sl.Step(clip=0.5))),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "pairs")) for name in EXACT])
def test_regression_beside_exact_tangents(name):
    """On the same draws, with the whole past and derivatives of every sample, over all rows."""
    words, algorithm = EXACT[name]
    problem = sl.Problem(**dict(sample_ratio=1.5, teacher=sl.Normal(1.0), penalty=sl.Ridge(0.1)) | words)
    size = dict(t_max=1.0, dt=0.125, samples=8192, seed=2)
    found, exact = sl.solve(problem, algorithm, **size), sl.references.tangents(problem, algorithm, **size)
    assert_paired(found, exact, floor=1e-3)


@pytest.mark.slow
def test_kernels_of_several_rows():
    """C_θ and R_θ of a combination of rows are those of the one row."""
    several, single = pair()
    words = dict(t_max=1.0, dt=0.125, samples=16384, kernels=True)
    one, other = (sl.solve(p, sl.SGF(0.5), seed=s, **words) for s, p in enumerate((several, single)))
    for name in ("C_theta", "R_theta"):
        np.testing.assert_allclose(one[name], other[name], atol=0.03 * np.max(np.abs(other[name])))


def test_one_row_said_is_one_row():
    """rows=1 changes nothing, to the last bit."""
    _, single = pair()
    one, other = (sl.solve(p, sl.SGD(0.5), **SIZE) for p in (single, replace(single, rows=1)))
    for name in one.variables:
        np.testing.assert_array_equal(one[name], other[name])


# --- what is built in ---

R = np.array([[0.3, -1.2], [0.9, 0.4], [-0.5, 0.7]])


def softmax(x, axis=0):
    return np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True)


def test_attention_by_hand():
    with jax.enable_x64(True):
        output = np.sum(softmax(1.5 * R[:, 0]) * R[:, 1])
        assert sl.Attention(inverse_temperature=1.5)(R, 0.2) == pytest.approx(0.5 * (output - 0.2) ** 2)
        assert sl.AttentionLabels(1.5)(R, 0.1) == pytest.approx(output + 0.1)
        four = np.concatenate([R, 2 * R], axis=1)
        heads = sum(c * np.sum(softmax(four[:, h]) * four[:, 2 + h]) for h, c in enumerate((1.0, -0.5)))
        assert sl.Attention(heads=2, readout=[1.0, -0.5], output_bias=0.3).predict(four) == pytest.approx(heads + 0.3)
        core = np.array([[1.0, 0.5], [0.0, -1.0]])
        matrix = softmax(0.7 * R @ core @ R.T, axis=1)
        tied = sl.Attention(tied=True, inverse_temperature=0.7, core=core)
        np.testing.assert_allclose(tied.predict(R), matrix)
        assert tied(R, jnp.zeros((3, 3))) == pytest.approx(0.5 * np.sum(matrix**2))
        places = np.full((3, 3), 1 / 3)
        teacher = sl.AttentionLabels(tied=True, inverse_temperature=0.7, core=core, positional=places, share=0.3)
        np.testing.assert_allclose(teacher(R, 0.0), 0.7 * matrix + 0.3 * places)


def test_ranking_by_hand():
    r = R[:, 0]
    with jax.enable_x64(True):
        assert sl.PairwiseRanking()(r[:2], -1.0) == pytest.approx(np.log1p(np.exp(r[0] - r[1])))
        assert sl.PairwiseLabels()(r[:2], 0.0) == -1.0
        assert sl.PairwiseLabels()(r[:2], 1.0) == 1.0
        assert sl.ListwiseRanking()(r, 2.0) == pytest.approx(np.log(np.sum(np.exp(r))) - r[2])
        assert sl.ListwiseRanking().predict(r) == 1.0
        assert sl.ListwiseLabels()(r, 0.9) == 1.0
        edges = np.cumsum(softmax(2.0 * r))
        drawn = sl.ListwiseLabels(slope=2.0)
        assert [float(drawn(r, z)) for z in (0.0, edges[0] + 1e-6, edges[1] + 1e-6, 0.999999)] == [0.0, 1.0, 2.0, 2.0]
        scored = sl.PairwiseRanking("tanh", readout=[1.0, 2.0], bias=0.1)
        scores = np.tanh(R[:2] + 0.1) @ [1.0, 2.0]
        assert scored.predict(R[:2]) == pytest.approx(scores[0] - scores[1])
        distance = np.linalg.norm(R[0] - R[1])
        assert sl.Contrastive(3.0)(R[:2], 1.0) == pytest.approx(0.5 * distance**2)
        assert sl.Contrastive(3.0)(R[:2], -1.0) == pytest.approx(0.5 * (3.0 - distance) ** 2)
        assert np.all(np.isfinite(jax.grad(sl.Contrastive(1.0))(jnp.zeros((2, 2)), -1.0)))
        assert sl.SameSide()(jnp.array([0.3, -0.2]), 0.0) == -1.0


def test_pooling_by_hand():
    with jax.enable_x64(True):
        for pool, reduced, cls in (("mean", np.mean, sl.MeanPool), ("max", np.max, sl.MaxPool)):
            output = reduced(np.tanh(R + 0.2), axis=0) @ [1.0, -0.5] + 0.1
            words = dict(readout=[1.0, -0.5], bias=0.2, output_bias=0.1)
            assert cls("tanh", **words).predict(R) == pytest.approx(output)
            assert cls("tanh", sl.Huber(0.1), **words)(R, 2.0) == pytest.approx(sl.Huber(0.1)(output, 2.0))
            assert sl.PoolLabels("tanh", pool, **words)(R, 0.5) == pytest.approx(output + 0.5)


@pytest.mark.slow
def test_many_lists_of_two_are_pairs():
    """The winner of two by softmax is the preferred of a pair, ±1 for 0 and 1."""
    shared = dict(sample_ratio=1.5, teacher=sl.Normal(1.0), penalty=sl.Ridge(0.1), rows=2)
    pairs = sl.Problem(loss=sl.PairwiseRanking(), labels=sl.PairwiseLabels(), **shared)
    lists = sl.Problem(loss=sl.ListwiseRanking(), labels=sl.ListwiseLabels(), **shared)
    alike(*(sl.solve(p, sl.SGD(0.5), seed=s, **SIZE) for s, p in enumerate((pairs, lists))))


# --- finite size ---


def test_rows_have_the_means_and_the_correlation_asked_for():
    sequence = sl.Sequence(
        sl.Spectrum([2.0, 0.5]), positions=[[1.0, 0.0], [0.5, -2.0], [0.0, 0.3]], correlation=CORRELATION
    )
    problem = sl.Problem(
        loss=sl.Loss(lambda r, y: jnp.sum(r) * y), labels=sl.Labels(lambda s, z: jnp.sum(s)), sample_ratio=1.0,
        teacher=sl.Normal(1.0), rows=3, data=sequence,
    )  # fmt: skip
    dim, count = 64, 20_000
    star = problem.star.sample(jax.random.key(0), (dim, problem.k))
    rows, _ = problem.data.at(dim).draw(jax.random.key(1), resolve_entries("gaussian"), star, lambda k, n: star)
    batch = draw_rows(problem, rows, count, jax.random.key(2), jax.random.key(3))
    assert batch.X.shape == (count, 3, dim)
    assert batch.r_star.shape == (count, 3, 1)
    means = np.asarray(sequence.positions) @ np.asarray(star[:, 1:]).T / dim
    X = np.asarray(batch.X, float)
    assert_within((X.mean(axis=0) - means)[:, ::8], X.std(axis=0)[:, ::8] / math.sqrt(count))
    centred = X - means
    variance = np.repeat([2.0, 0.5], dim // 2) / dim
    products = np.einsum("nlj,nmj->nlm", centred[:, :, ::8], centred[:, :, ::8]) / variance[::8].sum()
    assert_within(products.mean(axis=0) - np.array(CORRELATION), products.std(axis=0) / math.sqrt(count))
    np.testing.assert_allclose(batch.r_star[..., 0], centred @ np.asarray(star[:, 0]), atol=1e-4)


def test_a_step_on_attention_is_that_of_a_plain_loop():
    """Eight updates on the same batches in NumPy, gradient and clipping by hand."""
    rng, n, rows, d, beta, clip = np.random.default_rng(1), 30, 4, 12, 1.3, 0.2
    X, y = rng.standard_normal((n, rows, d)) / math.sqrt(d), rng.standard_normal(n)
    theta = 0.5 * rng.standard_normal((d, 2))
    problem = sl.Problem(
        loss=sl.Attention(inverse_temperature=beta), labels=sl.Labels(lambda s, z: z), sample_ratio=n / d, width=2,
        rows=rows,
        penalty=sl.Ridge(0.3),
    )  # fmt: skip
    algorithm = sl.SGD(0.4, batch_size=3, step=sl.Step(clip=clip))
    with jax.enable_x64(True):
        data = StoredData(problem, jnp.asarray(X), jnp.zeros((n, rows, 0)), jnp.asarray(y))
        weights = Weights(jnp.asarray(theta), {})
        state = algorithm.start_updates(jax.random.key(0), data, weights)
        for k in range(8):
            batch = rng.choice(n, 3, replace=False)
            weights, state = algorithm.update(data, weights, state, 0.0, 1.2 / d, jnp.asarray(batch), jax.random.key(k))
            total = np.zeros_like(theta)
            for i in batch:
                key, value = (X[i] @ theta).T
                p = softmax(beta * key)
                off = p @ value - y[i]
                force = off * np.stack([beta * p * (value - p @ value), p], axis=1)
                gradient = X[i].T @ force
                total += gradient * min(1.0, clip / np.linalg.norm(gradient)) / 3
            theta = theta - 1.2 * (total + 0.3 * theta / d)
    np.testing.assert_allclose(weights.theta, theta, rtol=1e-10, atol=1e-12)


def test_own_data_of_several_rows():
    """Full batches from the same start: the loop of the package on the user's own array, and a plain one."""
    rng, n, d = np.random.default_rng(2), 40, 20
    X, y = rng.standard_normal((n, 3, d)) / math.sqrt(d), rng.integers(0, 3, n)
    runs = sl.simulate_on_data(
        X, y, sl.SGD(learning_rate=0.5, batch_size=n), loss=sl.ListwiseRanking(), penalty=sl.Ridge(0.2), t_max=1.0,
        trials=2, X_test=X, y_test=y, dtype="float64",
    )  # fmt: skip
    theta = np.zeros(d)
    for _ in range(round(1.0 * d / 0.5)):
        scores = X @ theta
        force = softmax(scores, axis=1) - np.eye(3)[y]
        theta = theta - 0.5 * (np.einsum("nl,nld->d", force, X) / n + 0.2 * theta / d)
    np.testing.assert_allclose(runs["norm"][:, -1, 0, 0], theta @ theta / d, rtol=1e-9)
    loss = np.mean(np.log(np.sum(np.exp(X @ theta), axis=1)) - (X @ theta)[np.arange(n), y])
    np.testing.assert_allclose(runs["train_loss"][:, -1], loss, rtol=1e-9)
    np.testing.assert_allclose(runs["test_loss"], runs["train_loss"], rtol=1e-9)
    matrices = rng.random((n, 3, 3))
    tied = sl.simulate_on_data(X, matrices, sl.SGD(0.1), loss=sl.Attention(tied=True), init=sl.Normal(0.5), t_max=0.5)
    assert tied["r"].shape == (10, 1, n, 3, 1)
    np.testing.assert_allclose(tied["z"][0], matrices, rtol=1e-6)


# --- results, files, sweeps ---


def attention(**words):
    given = dict(
        loss=sl.Attention(inverse_temperature=sl.Trained(1.0, 0.5)), labels=sl.AttentionLabels(1.5), sample_ratio=2.0,
        teacher=sl.Normal(1.0), init=sl.Normal(0.5), noise=sl.Normal(0.2), penalty=sl.Ridge(0.05), width=2, rows=2,
        data=sl.Sequence(positions=[0.5, -0.5], directions=sl.Point(1.0), correlation=[[1.0, 0.3], [0.3, 1.0]]),
    )  # fmt: skip
    return sl.Problem(**given | words)


def test_results_are_written_and_read(tmp_path):
    problem, algorithm = attention(), sl.SGD(0.3, batch_size=2)
    solved = sl.solve(problem, algorithm, t_max=0.5, samples=4096, dt=0.125, snapshots=[0.5],
                      metrics={"peak": lambda r, r_star, z: jnp.max(r)},
                      weight_metrics={"fourth": lambda theta, star: jnp.sum(theta**4 * star**2)})  # fmt: skip
    runs = sl.simulate(problem, algorithm, dim=40, trials=2, t_max=0.5, snapshots=[0.5])
    for result in (solved, runs):
        path = tmp_path / f"{type(result).__name__}.nc"
        result.save(path)
        again = sl.load(path)
        assert set(again.variables) == set(result.variables)
        assert again.problem == problem
        assert again["r"].shape[-2:] == (2, 2)
        assert again["mean_overlap"].shape[-2:] == (2, 1)
        assert again["theta_star"].shape[-1] == 2
        assert "rows 2" in repr(again)
    assert "row" in solved.dataset["r"].dims
    assert {"train_peak", "test_peak", "fourth"} <= set(solved.variables)


def test_sweeps_and_averages():
    diagram = sl.sweep(
        attention(), sl.SGD(0.3), over={"sample_ratio": [1.0, 2.0], "loss.inverse_temperature.start": [0.5, 1.0]},
        t_max=0.5, dt=0.125, samples=4096,
    )  # fmt: skip
    assert diagram.dataset["mean_overlap"].sizes["direction"] == 1
    solved = sl.solve(
        attention(), sl.SGD(0.3), t_max=1.0, dt=0.125, samples=4096, averages={"late": sl.RunningMean(0.5)}
    )
    late = solved.averages["late"]
    assert float(late["train_loss"][-1]) > float(solved["train_loss"][-1])


@pytest.mark.slow
def test_gradients_of_curves():
    """`curves` of several rows differentiates as the difference of two marches."""
    from sgdlimit.dmft.march import curves

    problem = attention(data=sl.Iid(), loss=sl.Attention(inverse_temperature=1.0))
    times = np.linspace(0.0, 0.5, 5)
    with jax.enable_x64(True):

        def last(ridge):
            made = replace(problem, penalty=sl.Ridge(ridge))
            return curves(made, sl.SGF(0.3), times, key=jax.random.key(0), samples=256)["train_loss"][-1]

        slope = jax.jacfwd(last)(0.05)
        assert float(slope) == pytest.approx(float(last(0.05 + 1e-4) - last(0.05 - 1e-4)) / 2e-4, rel=1e-5)


WRONG = {
    "rows": lambda: attention(rows=0, data=sl.Iid()),
    "one row": lambda: attention(rows=1, data=sl.Iid()),
    "width": lambda: attention(width=3, teacher_width=2),
    "teacher_width": lambda: attention(teacher_width=4),
    "heads": lambda: sl.Attention(heads=2, tied=True),
    "core": lambda: sl.Attention(core=[[1.0]]),
    "positional": lambda: sl.AttentionLabels(positional=[[1.0]]),
    "places": lambda: attention(
        loss=sl.Attention(tied=True), labels=sl.AttentionLabels(tied=True, positional=[[1.0]], share=0.1)
    ),
    "shape of labels": lambda: attention(loss=sl.Attention(tied=True)),
    "labels": lambda: attention(labels=sl.AttentionLabels(tied=True)),
    "three rows": lambda: attention(rows=3),
    "pairs of three": lambda: attention(loss=sl.PairwiseRanking("tanh"), rows=3, data=sl.Iid()),
    "scores of units": lambda: attention(loss=sl.PairwiseRanking()),
    "noise of lists": lambda: attention(loss=sl.ListwiseRanking("tanh"), labels=sl.ListwiseLabels(activation="tanh")),
    "pool of one": lambda: sl.Problem(loss=sl.MeanPool("tanh"), sample_ratio=1.0, teacher=sl.Normal(1.0)),
    "pool": lambda: sl.PoolLabels("tanh", "median"),
    "classes": lambda: sl.Problem(
        loss=sl.PairwiseRanking(), labels=sl.ByClass(), sample_ratio=1.0, rows=2, data=sl.Mixture([1.0, -1.0])
    ),
    "margin": lambda: sl.Contrastive(0.0),
    "no sequence": lambda: sl.Sequence(),
    "one place": lambda: sl.Sequence(positions=[1.0]),
    "singular": lambda: sl.Sequence(correlation=[[1.0, 1.0], [1.0, 1.0]]),
    "not symmetric": lambda: sl.Sequence(correlation=[[1.0, 0.5], [0.0, 1.0]]),
    "of two sizes": lambda: sl.Sequence(positions=[1.0, 2.0, 3.0], correlation=[[1.0, 0.0], [0.0, 1.0]]),
    "mixture within": lambda: sl.Sequence(sl.Mixture([1.0, -1.0]), positions=[1.0, 2.0]),
    "features": lambda: sl.Sequence(sl.RandomFeatures(jnp.tanh, 1.5), positions=[1.0, 2.0]),
    "toward": lambda: attention(data=sl.Sequence(positions=[1.0, 2.0], toward_teacher=True)),
    "winner": lambda: sl.solve(
        attention(loss=sl.ListwiseRanking("tanh"), labels=sl.Labels(lambda s, z: 2.0 + 0 * z)), sl.SGD(0.1), t_max=1.0
    ),
    "preferred": lambda: sl.solve(
        attention(loss=sl.PairwiseRanking("tanh"), labels=sl.Labels(lambda s, z: z)), sl.SGD(0.1), t_max=1.0
    ),
    "processes": lambda: sl.references.processes(attention(), sl.SGF(0.1), t_max=1.0),
    "fixed point": lambda: sl.references.fixed_point(attention(), sl.SGF(0.1), t_max=1.0),
    "matrix": lambda: sl.least_squares_on_data(np.ones((9, 2, 4)), np.ones(9), sl.SGD(0.1), t_max=1.0),
    "one row of data": lambda: sl.simulate_on_data(np.ones((9, 1, 4)), np.ones(9), sl.SGD(0.1), t_max=1.0),
    "two labels": lambda: sl.simulate_on_data(np.ones((9, 2, 4)), np.ones(2), sl.SGD(0.1), t_max=1.0),
    "plain data": lambda: sl.simulate_on_data(
        np.ones((9, 4)), np.ones(9), sl.SGD(0.1), loss=sl.PairwiseRanking(), t_max=1.0
    ),
}
ARGUMENT = {
    "rows": "rows", "one row": "rows", "width": "width", "teacher_width": "teacher_width", "heads": "Attention.heads",
    "core": "Attention.core", "positional": "AttentionLabels.positional", "places": "AttentionLabels.positional",
    "shape of labels": "labels", "labels": "labels", "three rows": "rows", "pairs of three": "rows",
    "scores of units": "PairwiseRanking.activation", "noise of lists": "noise", "pool of one": "rows",
    "pool": "PoolLabels.pool", "classes": "data", "margin": "Contrastive.margin", "no sequence": "Sequence",
    "one place": "Sequence", "singular": "Sequence.correlation", "not symmetric": "Sequence.correlation",
    "of two sizes": "Sequence.positions", "mixture within": "Sequence.data", "features": "Sequence.data",
    "toward": "Sequence.positions", "winner": "labels", "preferred": "labels", "processes": "rows",
    "fixed point": "rows",
    "matrix": "X", "one row of data": "X", "two labels": "y", "plain data": "rows",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_refused_by_name(name):
    with pytest.raises(InputError) as raised:
        WRONG[name]()
    assert str(raised.value).startswith(f"{ARGUMENT[name]}: ")
