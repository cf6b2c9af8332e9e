"""Attention, ranking, pooling beside SGD, and minimisers that the literature and libraries give."""

import math

import numpy as np
import pytest
from agreement import assert_within
from sklearn.linear_model import LogisticRegression

import sgdlimit as sl

pytestmark = pytest.mark.slow

SHARED = dict(sample_ratio=2.0, teacher=sl.Normal(1.0), penalty=sl.Ridge(0.05))
NOISY = SHARED | {"noise": sl.Normal(0.2), "init": sl.Normal(0.5)}
CASES = {
    "pairs": sl.Problem(loss=sl.PairwiseRanking(), labels=sl.PairwiseLabels(), rows=2, noise=sl.Normal(0.3), **SHARED),
    "list of four": sl.Problem(loss=sl.ListwiseRanking(), labels=sl.ListwiseLabels(slope=2.0), rows=4, **SHARED),
    "two tokens": sl.Problem(
        loss=sl.Attention(sl.Square(), 1.5), labels=sl.AttentionLabels(1.5), width=2, rows=2, **NOISY,
    ),
    "four tokens, two heads": sl.Problem(
        loss=sl.Attention(sl.Square(), 1.5, heads=2), labels=sl.AttentionLabels(1.5), width=4, teacher_width=2, rows=4,
        **NOISY,
    ),
    "eight tokens, tied": sl.Problem(
        loss=sl.Attention(tied=True), labels=sl.AttentionLabels(tied=True), rows=8,
        **SHARED | {"noise": sl.Normal(0.05), "init": sl.Towards(0.3, scale=0.6)},
    ),
    "six patches": sl.Problem(
        loss=sl.MeanPool("tanh", readout=sl.Trained([1.0, -1.0])), labels=sl.PoolLabels("tanh", readout=[1.5, -1.0]),
        width=2, rows=6, **NOISY,
    ),
    "positions": sl.Problem(
        loss=sl.Attention(sl.Square(), 1.5), labels=sl.AttentionLabels(1.5), width=2, rows=2,
        data=sl.Sequence(positions=[[1.0, 0.5], [-0.5, 0.8]], correlation=[[1.0, 0.4], [0.4, 1.5]]), **NOISY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_runs_lie_on_the_curve(name):
    algorithm, words = sl.SGD(0.4, batch_size=4), dict(times=[0.5, 1.0, 2.0, 4.0], progress=False)
    theory = sl.solve(CASES[name], algorithm, tol=1e-2, seed=1, **words)
    runs = sl.simulate(CASES[name], algorithm, dim=1500, trials=12, seed=3, **words)
    assert theory.status == "complete"
    assert sl.compare(runs, theory).p_value > 1e-3


def test_pairs_reach_the_minimiser_of_scikit_learn():
    """Ranking pairs is logistic regression on differences of rows: at long times the minimiser on a real data set."""
    delta, ridge, dim = 2.0, 0.3, 800
    problem = sl.Problem(
        loss=sl.PairwiseRanking(), labels=sl.PairwiseLabels(), sample_ratio=delta, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.3), penalty=sl.Ridge(ridge), rows=2,
    )  # fmt: skip
    solved = sl.solve(problem, sl.GradientFlow(), t_max=30.0, tol=2e-2)
    found, rng = [], np.random.default_rng(0)
    for _ in range(8):
        X = rng.standard_normal((int(delta * dim), 2, dim)) / math.sqrt(dim)
        star = rng.standard_normal(dim)
        differences = X[:, 0] - X[:, 1]
        y = np.sign(differences @ star + 0.3 * rng.standard_normal(len(X)))
        model = LogisticRegression(C=1 / (delta * ridge), fit_intercept=False, tol=1e-8).fit(differences, y)
        theta = model.coef_[0]
        loss = np.mean(np.log1p(np.exp(-y * (differences @ theta))))
        found.append([theta @ star / dim, theta @ theta / dim, loss])
    found, names = np.array(found), ("overlap", "norm", "train_loss")
    value, error = np.array([[np.ravel(part[-1])[0] for part in solved.curve(name)] for name in names]).T
    assert_within(found.mean(axis=0) - value, np.hypot(found.std(axis=0, ddof=1) / math.sqrt(8), error), trials=8)


SIGMA, PLACES = 0.5, ((0.6, 0.4), (0.4, 0.6))


def dot_product(init):
    """Dot-product attention with tied weights over two tokens at places ±1, of Cui, Behrens, Krzakala, Zdeborová
    (arXiv:2402.03902), at α = 2, λ = 0.005, ω = 0.3."""
    return sl.Problem(
        loss=sl.Attention(sl.Loss(lambda s, t: 0.5 * SIGMA**2 * (s - t) ** 2), tied=True),
        labels=sl.AttentionLabels(tied=True, positional=PLACES, share=0.3), sample_ratio=2.0, teacher=sl.Normal(1.0),
        penalty=sl.Ridge(0.005), rows=2, init=init,
        data=sl.Sequence(sl.Spectrum([SIGMA**2]), positions=[1.0, -1.0], directions=sl.Point(1.0)),
    )  # fmt: skip


def test_the_published_minimisers_of_dot_product_attention():
    """Semantic from a start along θ*, positional from one along the ones: overlap, norm, mean, losses to 2 %, and two
    errors of the march."""
    semantic, positional = (
        sl.solve(dot_product(start), sl.GradientFlow(), times=np.linspace(0.0, last, 11), dt=dt, samples=65536)
        for start, last, dt in (
            (sl.Towards([[0.6, 0.0]], scale=0.8), 800.0, 1.0), (sl.Towards([[0.0, 0.26]], scale=0.45), 2500.0, 2.5),
        )
    )  # fmt: skip

    def reaches(solution, name, published, share=0.02):
        value, error = (float(np.ravel(part[-1])[0]) for part in solution.curve(name))
        assert abs(value - published) <= share * published + 2 * error, (name, value, error)

    reaches(semantic, "overlap", 0.634)
    reaches(semantic, "norm", 0.457)
    reaches(semantic, "test_loss", 0.001397)
    assert abs(semantic["mean_overlap"][-1, 0, 0]) < 0.01
    objective = 2 * semantic["train_loss"][-1] + 0.005 * semantic["norm"][-1, 0, 0]
    assert objective == pytest.approx(0.003599, rel=0.01)
    reaches(positional, "norm", 0.200)
    reaches(positional, "mean_overlap", 0.259)
    reaches(positional, "test_loss", 0.00349)
    assert abs(positional["overlap"][-1, 0, 0]) < 0.01
