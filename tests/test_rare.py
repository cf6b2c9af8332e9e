"""Averages that rest on rare or heavy-tailed values: right with honest errors, or refused before any work.

Oracles: closed forms of `sl.least_squares`, and quadrature at the start, where r = 0.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from scipy import integrate, stats
from scipy.stats import qmc

import sgdlimit as sl
from sgdlimit.measure.averages import evenly, make_nodes, observe, quickly
from sgdlimit.problem.problem import check_start

RARE = 1e-5
EDGE = stats.norm.isf(RARE)
GIVEN = dict(loss=sl.Square(), teacher=sl.Normal(1.0), sample_ratio=2.0)


def sparse(key, shape):
    on, value = jax.random.split(key)
    return 1000.0 * jax.random.bernoulli(on, RARE, shape) * jax.random.normal(value, shape)


def student(key, shape):
    return jax.random.t(key, 2.2, shape)


def lognormal(key, shape):
    return jnp.exp(1.2 * jax.random.normal(key, shape))


def pareto(key, shape):
    """±Pareto with a tail of index 2.2."""
    u = 2 * jax.random.uniform(key, shape, minval=1e-7) - 1
    return jnp.sign(u) * (1 - jnp.abs(u)) ** (-1 / 2.2)


def huber(x, threshold=1.0):
    size = np.abs(x)
    return np.where(size < threshold, x**2 / 2, threshold * size - threshold**2 / 2)


NORMALS, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def start(density, low=-math.inf):
    """E Huber(r* + z) over r* ~ N(0, 1) and z of a density."""
    edges = [low, *(edge for edge in (-50, -5, -1, 0, 1, 5, 50) if edge > low), math.inf]

    def value(z):
        return density(z) * (huber(NORMALS + z) @ WEIGHTS)

    return sum(integrate.quad(value, *pair, limit=300)[0] for pair in itertools.pairwise(edges))


def gaussian(scale):
    """E Huber(scale·x) over x ~ N(0, 1)."""
    edges = [0.0, 1 / scale, math.inf]

    def value(x):
        return 2 * stats.norm.pdf(x) * huber(scale * x)

    return sum(integrate.quad(value, *pair)[0] for pair in itertools.pairwise(edges))


HEAVY = {
    "student": (sl.Law(student, mean=0.0, second_moment=11.0), start(lambda z: stats.t.pdf(z, 2.2))),
    "lognormal": (
        sl.Law(lognormal, mean=math.exp(0.72), second_moment=math.exp(2.88)),
        start(lambda z: stats.lognorm.pdf(z, 1.2), low=0.0),
    ),
    "pareto": (sl.Law(pareto, mean=0.0, second_moment=11.0), start(lambda z: 0.5 * stats.pareto.pdf(abs(z), 2.2))),
}


UNSEEN = {
    "sparse noise": dict(noise=sl.SparseNormal(RARE, 1000.0)),
    "rarer noise": dict(noise=sl.SparseNormal(1e-6, 3000.0)),
    "a law of the user's": dict(noise=sl.Law(sparse, mean=0.0, second_moment=10.0)),
    "sparse noise behind a distant start": dict(noise=sl.SparseNormal(RARE, 1000.0), init=sl.Normal(50.0)),
    "labels of rare z": dict(noise=sl.Normal(1.0), labels=sl.Labels(lambda s, z: s + 1000.0 * (z > EDGE))),
    "labels of rare r*": dict(labels=sl.Labels(lambda s, z: s + 1000.0 * (s > EDGE))),
    "a rare class": dict(
        teacher=None,
        labels=sl.ByClass([1.0, 1000.0, -1.0]),
        data=sl.Mixture([1.0, 0.0, -1.0], weights=[0.5, RARE, 0.5 - RARE]),
    ),
    "an error that the force hardly feels": dict(noise=sl.SparseNormal(RARE, 1000.0), loss=sl.Huber(1.0)),
}


@pytest.mark.parametrize("change", UNSEEN.values(), ids=UNSEEN)
def test_events_that_no_march_would_see_are_refused(change):
    with pytest.raises(sl.InputError, match=r"rare events.*least_squares"):
        sl.solve(sl.Problem(**(GIVEN | change)), sl.SGF(0.3), t_max=1.0)


def test_events_that_no_average_would_see_are_refused_online():
    problem = sl.Problem(**(GIVEN | {"noise": sl.SparseNormal(1e-6, 3000.0), "sample_ratio": math.inf}))
    with pytest.raises(sl.InputError, match=r"samples: got 131072.*rare events"):
        sl.online(problem, sl.SGF(0.3), t_max=1.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (dict(noise=sl.SparseNormal(RARE, 1e4)), 8 / RARE),  # ψ = z², E ψ²/(E ψ)² = 3/density
        (dict(noise=sl.SparseNormal(0.01, 1e4)), 8 / 0.01),
        (dict(noise=sl.Normal(1.0), labels=sl.Labels(lambda s, z: 1e4 * (z > EDGE))), 8 / (3 * RARE)),  # 1/p
        (dict(noise=sl.Normal(1.0)), 8),
        (dict(noise=sl.SparseNormal(RARE, 1.0)), 8),  # makes up 10⁻⁵ of the error: negligible
    ],
)
def test_how_many_samples_rare_events_take(change, expected):
    """8 E ψ²/3 (E ψ)², in closed form."""
    need, _ = check_start(sl.Problem(**(GIVEN | change))).fewest(1e-2)
    assert need == pytest.approx(expected, rel=0.15)


def test_a_march_is_as_large_as_its_rare_events_ask_for():
    """Sparse noise, least squares: 8 non-zero values in each march, and the exact curves; fewer samples are refused."""
    problem = sl.Problem(**(GIVEN | {"noise": sl.SparseNormal(3e-3, 60.0)}))
    times = np.array([0.0, 1.0, 2.0])
    exact = sl.least_squares(problem, sl.SGF(0.3), times=times)
    found = sl.solve(problem, sl.SGF(0.3), times=times, tol=0.2)
    assert found.about["options"]["samples_of_one_march"] * 3e-3 >= 8
    for name in ("train_error", "test_error", "norm"):
        value, error = found.curve(name)
        assert_within(value - exact[name], error + 1e-6, trials=16)
    with pytest.raises(sl.InputError, match=r"samples: got 16384; 1024 samples a march.*samples=65536"):
        sl.solve(problem, sl.SGF(0.3), times=times, samples=16384)


def test_sparse_weights_that_are_followed_one_by_one_make_a_march_larger():
    penalty = sl.SmoothL1(0.1)
    problem = sl.Problem(**(GIVEN | {"penalty": penalty, "teacher": sl.SparseNormal(1e-6, 1000.0)}))
    with pytest.raises(sl.InputError, match=r"rare events that the teacher rests on"):
        sl.solve(problem, sl.SGF(0.3), t_max=1.0)
    problem = sl.Problem(**(GIVEN | {"penalty": penalty, "teacher": HEAVY["student"][0]}))
    with pytest.raises(sl.InputError, match=r"teacher=Law.*heavy tails.*sl.Ridge"):
        sl.solve(problem, sl.SGF(0.3), t_max=1.0)


@pytest.mark.parametrize("name", [pytest.param("student", marks=pytest.mark.slow), "lognormal", "pareto"])
def test_loss_under_heavy_noise(name):
    """Huber's loss grows less than z², whose stated moment must not pull at it; the squared error does not settle."""
    noise, exact = HEAVY[name]
    problem = sl.Problem(**(GIVEN | {"loss": sl.Huber(1.0), "noise": noise}))
    words = dict(times=np.array([0.0, 0.5]), samples=16384, dt=0.1)
    with pytest.warns(RuntimeWarning, match="train_error: averages"):
        found = sl.solve(problem, sl.SGF(0.3), variables=["train_loss", "test_loss"], **words)
    assert found.status == "complete"
    for curve in ("train_loss", "test_loss"):
        value, error = found.curve(curve)
        assert_within(value[0] - exact, error[0], trials=16)
    # z is independent of a fresh sample's r and r*
    gap = found["norm"][:, 0, 0] - 2 * found["overlap"][:, 0, 0] + 1
    np.testing.assert_allclose(found["test_error"], gap + noise.second_moment, rtol=1e-4)


def test_a_second_moment_that_the_samples_do_not_show_makes_a_curve_unreliable():
    problem = sl.Problem(**(GIVEN | {"loss": sl.Huber(1.0), "noise": HEAVY["student"][0]}))
    with pytest.warns() as told:
        found = sl.solve(problem, sl.SGF(0.3), times=np.array([0.0, 0.5]), samples=16384, dt=0.1)
    assert found.status == "unreliable"
    assert any("second moment of z" in str(each.message) and "stated 11" in str(each.message) for each in told)


AVERAGED = {
    "sparse": (
        sl.SparseNormal(0.01, 30.0),
        0.99 * gaussian(1.0) + 0.01 * gaussian(math.sqrt(901.0)),
    ),
    **{name: HEAVY[name] for name in ("lognormal", "pareto")},
}


@pytest.mark.parametrize("name", AVERAGED)
def test_averages_over_fresh_samples_do_not_lean_on_moments_they_do_not_follow(name):
    noise, exact = AVERAGED[name]
    problem = sl.Problem(**(GIVEN | {"loss": sl.Huber(1.0), "noise": noise}))
    with jax.enable_x64(True):
        nodes = make_nodes(problem, 2048, 128, 0)
        found = observe(problem, nodes, np.zeros((1, 128, 1, 1)), np.zeros((1, 128, 1, 1)))
    values = found["loss"][0]
    assert_within(values.mean() - exact, values.std(ddof=1) / math.sqrt(128), trials=128)
    np.testing.assert_allclose(found["error"], 1 + noise.moments(1)[1].item(), rtol=1e-12)


def test_draws_of_a_sampler_are_spread():
    """The share of a value scatters less than in plain draws, and is right on average."""
    law = sl.Law(lambda key, shape: 1.0 * jax.random.bernoulli(key, 0.1, shape))
    points = np.stack([(np.arange(1024) + 0.5) / 1024] * 2, axis=1)
    shares = np.array([law.spread_out(points, jax.random.key(seed)).mean() for seed in range(64)])
    assert_within(shares.mean() - 0.1, shares.std(ddof=1) / 8, trials=64)
    assert shares.std() < 0.5 * math.sqrt(0.09 / 1024)


@pytest.mark.parametrize("share", [1 / 128, 1 / 16])
def test_averages_of_labels_that_jump_with_the_noise(share):
    """y = r* + a at the largest z, E y² = 1 + a² share: no bias from weights for exact moments, small errors."""
    size = math.sqrt(10 / share)
    labels = sl.Labels(lambda s, z, edge: s + size * (z > edge), parameters={"edge": stats.norm.isf(share)})
    problem = sl.Problem(**(GIVEN | {"noise": sl.Normal(1.0), "labels": labels}))
    with jax.enable_x64(True):
        nodes = make_nodes(problem, 2048, 256, 0, quickly)
        (values,) = observe(problem, nodes, np.zeros((1, 256, 1, 1)), np.zeros((1, 256, 1, 1)))["error"]
    assert_within(values.mean() - 11, values.std(ddof=1) / 16, trials=256)
    assert values.std() < 0.02 * 11


def test_even_points_are_those_of_sobol():
    """Shifted by equal digits, so that every dimension has one point in each of 1024 cells, as scipy's own."""
    points = evenly(1024, 4, np.random.default_rng(0))
    own = np.floor(1024 * points).astype(int)
    theirs = (1024 * qmc.Sobol(4, scramble=False).random(1024)).astype(int)
    assert all(len(set(column)) == 1024 for column in own.T)
    shift = own[0] ^ theirs[0]
    assert {tuple(row ^ shift) for row in own} == set(map(tuple, theirs))
