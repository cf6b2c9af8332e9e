"""Control variates of train averages: the same means, less spread where fresh and trained samples go together."""

import numpy as np
import pytest
from agreement import assert_within
from problems import logistic, square

import sgdlimit as sl
from sgdlimit.estimate import fresh

SIZE = {"t_max": 2.0, "dt": 0.1, "replicas": 32}


@pytest.fixture
def both(monkeypatch):
    """What `solve` makes of train averages: (without, with) control, replica by replica, by name."""
    kept, controlled = {}, fresh.controlled

    def watched(found, limits):
        out = controlled(found, limits)
        kept.update({name: (limits[name].best, part.best) for name, part in out.items()})
        return out

    monkeypatch.setattr(fresh, "controlled", watched)

    def run(problem, algorithm, **words):
        kept.clear()
        solution = sl.solve(problem, algorithm, **SIZE | words)
        return solution, dict(kept)

    return run


def variance(copies):
    """Over replicas, on average over all times after the start."""
    return np.mean(np.var(copies[:, 1:], axis=0, ddof=1))


def test_logistic_regression_has_a_third_of_the_variance_or_less(both):
    for seed in range(2):
        _, found = both(logistic(), sl.SGD(0.6), samples=16384, seed=seed)
        plain, better = found["train_loss"]
        assert variance(better) < variance(plain) / 3
        plain, better = found["train_error"]
        assert variance(better) < variance(plain)


@pytest.mark.filterwarnings("ignore::sgdlimit.UnreliableWarning")
@pytest.mark.parametrize(
    ("problem", "algorithm"), [(logistic(0.8), sl.SGD(2.5)), (square(0.5), sl.SGD(0.8))], ids=["logistic", "square"]
)
def test_where_it_is_hot_nothing_is_lost(both, problem, algorithm):
    """The coefficient is fitted over replicas and nearby times: the spread of a curve grows by some percent at most."""
    for seed in range(2):
        _, found = both(problem, algorithm, samples=16384, seed=seed, dt=0.05)
        for name, (plain, better) in found.items():
            assert np.sqrt(variance(better) / variance(plain)) < 1.03, name


def test_means_are_left_alone(both):
    """Few samples with control against many without, and against the same ones without."""
    problem, algorithm = logistic(), sl.SGD(0.6)
    _, few = both(problem, algorithm, samples=16384, seed=5)
    _, many = both(problem, algorithm, samples=2**18, seed=6)
    for name in ("train_loss", "train_error"):
        (plain, better), (truth, _) = few[name], many[name]
        spread = [part.std(axis=0, ddof=1) / np.sqrt(len(part)) for part in (better, truth)]
        assert_within((better.mean(axis=0) - truth.mean(axis=0))[1::5], np.hypot(*spread)[1::5], trials=32)
        gap = better - plain
        assert_within(gap.mean(axis=0)[1::5], gap.std(axis=0, ddof=1)[1::5] / np.sqrt(len(gap)), trials=32)


def test_few_replicas_and_another_law_of_the_test_have_none(both):
    """A coefficient is not fitted to fewer than eight replicas; a test of another law says nothing of fresh samples."""
    assert both(logistic(), sl.SGD(0.6), samples=2048, replicas=4)[1] == {}
    wide = logistic(data=sl.Spectrum([0.5, 2.0]))
    words = {"samples": 8192, "test_data": sl.Spectrum([1.0, 1.0])}
    assert both(wide, sl.SGD(0.6), **words)[1] == {}
