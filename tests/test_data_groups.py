"""Structured data in `solve` and `simulate`: identities between spectra, closed forms, and what is refused."""

import math
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from agreement import assert_paired, assert_within
from wrong import WRONG

import sgdlimit as sl
from sgdlimit._tree import tree
from sgdlimit.dmft.system import groups_of
from sgdlimit.measure.pace import edge
from sgdlimit.problem.data import DataLaw, Table
from sgdlimit.simulation.trial import build, observe

CURVES = ("train_loss", "test_loss", "train_error", "test_error", "norm", "overlap")
TWO = sl.Spectrum([3.0, 0.5], [0.2, 0.8], [0.5, 1.1])
LITTLE = {"t_max": 2.0, "dt": 0.1, "samples": 8192, "replicas": 8}


def logistic(**changes):
    words = {"loss": sl.Logistic(), "labels": sl.Sign(), "penalty": sl.Ridge(0.05), "sample_ratio": 1.5}
    words |= {"teacher": sl.Normal(1.0), "noise": sl.Normal(0.1)}
    return sl.Problem(**words | changes)


def assert_same(first, second, names=CURVES, factor=1.0):
    """Two solutions within their errors, on at most eight times."""
    every = max(1, len(first.time) // 8)
    for name in names:
        (a, da), (b, db) = (solution.curve(name) for solution in (first, second))
        scale = 1e-6 * np.max(np.abs(a))
        assert_within((a - b)[1::every], np.hypot(da, db)[1::every] + scale, trials=8)


@pytest.mark.parametrize("init", [sl.Point(0.0), sl.Normal(0.6)], ids=["zero", "random"])
def test_one_group_is_iid(init):
    first, second = (
        sl.solve(logistic(init=init, data=data), sl.SGD(0.5), **LITTLE) for data in (sl.Iid(), sl.Spectrum([1.0]))
    )
    for name in CURVES:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("init", [sl.Point(0.0), sl.Normal(0.6)], ids=["zero", "random"])
def test_groups_that_are_alike_are_one(init):
    first, second = (
        sl.solve(logistic(init=init, data=data), sl.SGD(0.5), **LITTLE)
        for data in (sl.Spectrum([2.0]), sl.Spectrum([2.0, 2.0, 2.0], [0.2, 0.3, 0.5]))
    )
    assert_same(first, second)
    for group in range(3):
        mean, error = second["norm_by_group"][:, group], second["norm_by_group_stderr"][:, group]
        assert_within((mean - first["norm"])[4::4], np.hypot(error, first["norm_stderr"])[4::4] + 1e-6, trials=8)


def test_a_larger_variance_is_a_longer_time():
    """φ = √c θ turns rows of variance cs into rows of variance s, with t → ct, τ → cτ, λ → λ/c; c = 4, in rounding.

    Times scale too: the same random numbers give the same march. The rates of the memory do not, and leave some 1e-5.
    """
    c, scale = 4.0, {"init": sl.Normal(0.3), "teacher": sl.Normal(0.5)}
    wide = logistic(data=sl.Spectrum([4.0, 1.0], [0.3, 0.7], [1.0, 0.8]), penalty=sl.Ridge(0.2), **scale)
    scale = {"init": sl.Normal(0.6), "teacher": sl.Normal(1.0)}
    plain = logistic(data=sl.Spectrum([1.0, 0.25], [0.3, 0.7], [1.0, 0.8]), penalty=sl.Ridge(0.05), **scale)
    fixed = {"samples": 4096, "replicas": 4, "extrapolate": False, "dtype": "float64"}
    for function, least, more in ((sl.references.tangents, 1e-9, {}), (sl.solve, 1e-4, {"functions": 8})):
        first = function(wide, sl.SGD(0.2), 1.0, dt=0.025, **fixed, **more)
        second = function(plain, sl.SGD(c * 0.2), c * 1.0, dt=c * 0.025, **fixed, **more)
        for name, factor in (("train_loss", 1.0), ("norm", c), ("overlap", c), ("test_loss", 1.0)):
            size = np.max(np.abs(second[name]))
            np.testing.assert_allclose(factor * first[name], second[name], rtol=0, atol=least * size)


def test_groups_add_up():
    solution = sl.solve(logistic(data=TWO), sl.SGD(0.5), **LITTLE)
    runs = sl.simulate(logistic(data=TWO), sl.SGD(0.5), dim=100, trials=2, t_max=1.0)
    for result in (solution, runs):
        for name in ("norm", "overlap"):
            parts = np.asarray(result.dataset[f"{name}_by_group"])
            total = np.einsum("g,...gab->...ab", [0.2, 0.8], parts)
            np.testing.assert_allclose(total, np.asarray(result.dataset[name]), rtol=1e-4, atol=1e-6)
        assert list(result.dataset["group"].values) == [0, 1]
    assert "norm_by_group" not in sl.simulate(logistic(), sl.SGD(0.5), dim=50, trials=1, t_max=0.5)


def test_memories_agree():
    """A regression on functions of the past, and all tangents with the whole past, on the same random numbers."""
    found, whole = (
        function(logistic(data=TWO), sl.SGD(0.5), **LITTLE | {"t_max": 1.0}, seed=1)
        for function in (sl.solve, sl.references.tangents)
    )
    assert_paired(found, whole, (*CURVES, "norm_by_group", "overlap_by_group"))


def test_draws_have_the_groups_in_their_shares():
    solution = sl.solve(
        logistic(data=TWO, init=sl.Normal(0.4)), sl.SGD(0.5), snapshots=[2.0], weight_metrics={"square": _square},
        **LITTLE,
    )  # fmt: skip
    theta, star = solution["theta"][-1, :, 0], solution["theta_star"][:, 0]
    for mine, name in ((theta**2, "norm"), (theta * star, "overlap"), (theta**2, "square")):
        mean, error = solution.curve(name)
        spread = np.hypot(mine.std() / math.sqrt(len(mine)), np.ravel(error)[-1])
        assert_within(mine.mean() - np.ravel(mean)[-1], spread)
    assert_within(np.mean(star**2) - (0.2 * 0.25 + 0.8 * 1.21), np.std(star**2) / math.sqrt(len(star)))


def _square(theta, theta_star):
    return theta**2


def test_kernels_end_in_the_norm():
    solution = sl.solve(logistic(data=TWO), sl.SGF(0.5), 1.0, dt=0.1, samples=2048, replicas=4, kernels=True)
    at = np.arange(len(solution.time))
    np.testing.assert_allclose(solution["C_theta"][at, at], solution["norm"], rtol=2e-3, atol=1e-5)


@tree
@dataclass(frozen=True)
class Hidden(DataLaw):
    """Iid rows that do not tell a part of r*."""

    unseen: float = 0.0

    def table(self):
        return Table(np.full(2, 0.5), np.ones(2), np.ones(2), self.unseen)


def test_what_no_row_tells_is_label_noise():
    """y = r* + z is linear: a hidden part of variance 0.5 is noise of that variance."""
    words = {"loss": sl.Square(), "penalty": sl.Ridge(0.1), "sample_ratio": 2.0, "teacher": sl.Normal(1.0)}
    hidden = sl.Problem(**words, noise=sl.Normal(0.5), data=Hidden(0.5))
    noisy = sl.Problem(**words, noise=sl.Normal(math.sqrt(0.75)), data=Hidden(0.0))
    assert hidden.sample_gram()[1, 1] == pytest.approx(1.5)
    assert_same(*(sl.solve(problem, sl.SGD(0.5), **LITTLE) for problem in (hidden, noisy)))


@pytest.mark.parametrize("delta", [0.7, 3.0])
def test_largest_curvature(delta):
    """The edge of S^½ Uᵀ J U S^½ / n against eigenvalues at d = 1200."""
    rng, table, dim = np.random.default_rng(0), sl.PowerLaw(0.8).table(), 1200
    J = rng.uniform(0.1, 1.0, round(delta * dim))
    rows = np.sqrt(np.repeat(table.variance, table.counts(dim))) * rng.standard_normal((len(J), dim))
    largest = np.linalg.norm(np.sqrt(J)[:, None] * rows, 2) ** 2 / len(J)
    assert edge(J, delta, table) == pytest.approx(largest, rel=0.03)
    assert edge(J, delta, sl.Spectrum([2.0, 2.0]).table()) == pytest.approx(2 * edge(J, delta), rel=1e-6)


def test_directions_that_samples_read():
    """Σ_q across_q across_qᵀ = 1 and seen² = Σ_q p_q s_q root_q root_qᵀ: unit normals, and the right moments of w."""
    groups = groups_of(logistic(init=sl.Normal(0.7), width=2, data=sl.PowerLaw(1.2, 0.6), loss=_two()))
    np.testing.assert_allclose(np.einsum("gab,gcb->ac", groups.across, groups.across), np.eye(4), atol=1e-12)
    total = np.einsum("g,gab,gcb->ac", groups.share * groups.variance, groups.root, groups.root)
    np.testing.assert_allclose(groups.seen @ groups.seen, total, atol=1e-12)


def _two():
    return sl.TwoLayer(jax.scipy.special.erf)


def test_rows_of_a_run():
    """Variances of the columns, the teacher's factors, and a Gaussian test's moments against rows."""
    problem, dim = logistic(data=TWO), 400
    shifted = TWO.table()._replace(variance=np.array([1.0, 2.0]))
    own = problem.data.at(dim, shifted)
    trial, weights = build(problem, sl.problem.GaussianEntries(), dim, 2000, 4096, jax.random.key(0), own)
    X, star = np.asarray(trial.data.X), np.asarray(trial.theta_star)[:, 0]
    for group, (rows, variance, factor) in enumerate(((slice(80), 3.0, 0.5), (slice(80, None), 0.5, 1.1))):
        assert np.var(X[:, rows]) * dim == pytest.approx(variance, rel=0.02), group
        assert np.std(star[rows]) == pytest.approx(factor, rel=0.2)
    weights = weights._replace(theta=weights.theta + 0.3)
    other, _ = build(problem, sl.problem.RademacherEntries(), dim, 2000, 4096, jax.random.key(0), own)
    rows = other.test._replace(r_star=other.test.X @ trial.theta_star)  # the same weights, other entries
    look = jax.jit(observe)
    first, second = look(trial, weights), look(replace(other, theta_star=trial.theta_star, test=rows), weights)
    assert float(first["test_loss"]) == pytest.approx(float(second["test_loss"]), rel=0.05)


@pytest.mark.parametrize("delta", [math.inf, 30.0], ids=["one pass", "many samples"])
def test_mean_weights_of_least_squares(delta):
    """Infinite data: E θ = θ*(1 − e^{−st}) in every group, for any batch; finite data come close."""
    problem = sl.Problem(loss=sl.Square(), sample_ratio=delta, teacher=sl.Normal(1.0), data=TWO)
    runs = sl.simulate(problem, sl.SGD(0.1, batch_size=2), dim=200, trials=20, times=[0.5, 1.0, 2.0])
    mean, error = runs.curve("overlap_by_group")
    exact = np.array([0.25, 1.21]) * (1 - np.exp(-runs.time[:, None] * np.array([3.0, 0.5])))
    assert_within(mean[:, :, 0, 0] - exact, error[:, :, 0, 0] + (0.04 * exact if delta < math.inf else 0), trials=20)


def test_covariate_shift():
    """A test on the data's own law changes nothing; on rows of another variance the moments of w are theirs."""
    problem = sl.Problem(
        loss=sl.Square(),
        penalty=sl.Ridge(0.1),
        sample_ratio=2.0,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.3),
        data=TWO,
    )
    plain, same, other = (
        sl.solve(problem, sl.SGD(0.3), **LITTLE, test_data=law)
        for law in (None, replace(TWO, teacher=None), sl.Spectrum([0.2, 2.0], [0.2, 0.8]))
    )
    np.testing.assert_array_equal(plain["test_error"], same["test_error"])
    np.testing.assert_array_equal(plain["norm_by_group"], other["norm_by_group"])
    # fresh samples of the data's own law take noise off the train error; those of another law cannot
    spread = np.hypot(plain["train_error_stderr"], other["train_error_stderr"])
    assert_within((plain["train_error"] - other["train_error"])[::4], spread[::4] + 1e-7)
    share, variance, teacher = np.array([0.2, 0.8]), np.array([0.2, 2.0]), np.array([0.25, 1.21])
    by_group = other["norm_by_group"] - 2 * other["overlap_by_group"]
    exact = by_group[:, :, 0, 0] @ (share * variance) + teacher @ (share * variance) + 0.09
    assert_within((other["test_error"] - exact)[::4], other["test_error_stderr"][::4] + 2e-3 * exact.max(), trials=8)
    runs = sl.simulate(
        problem, sl.SGD(0.3), dim=300, trials=8, times=[1.0], test_data=sl.Spectrum([0.2, 2.0], [0.2, 0.8])
    )
    value, error = runs.curve("test_error")
    near = np.argmin(np.abs(other.time - 1.0))
    assert_within(value[0] - other["test_error"][near], np.hypot(error[0], 0.03 * value[0]), trials=8)


def test_what_is_refused():
    for data in (None, sl.Spectrum, 3.0, "iid"):
        with pytest.raises(sl.InputError, match=r"^data: "):
            logistic(data=data)
    problem = logistic(data=TWO)
    for call in (lambda **how: sl.solve(problem, sl.SGD(0.4), 1.0, **how),
                 lambda **how: sl.simulate(problem, sl.SGD(0.4), dim=50, t_max=1.0, **how)):  # fmt: skip
        for law in (sl.Iid(), sl.Spectrum([1.0, 2.0], [0.3, 0.7]), 2.0):
            with pytest.raises(sl.InputError, match=r"^test_data: "):
                call(test_data=law)
    with pytest.raises(sl.InputError, match=r"^problem: .*Spectrum"):
        sl.references.fixed_point(problem, sl.SGF(0.4), 1.0)


def test_few_coordinates_are_told():
    steep = sl.PowerLaw(1.2, groups=16, dim=200)
    with pytest.warns(sl.UnreliableWarning, match=r"^data: 1 of 200 coordinates"):
        sl.simulate(logistic(data=steep), sl.SGD(0.4), dim=200, trials=1, t_max=0.1)
    with pytest.warns(sl.UnreliableWarning, match="effective rank"):
        sl.solve(logistic(data=steep), sl.SGD(0.4), 0.2, samples=1024, replicas=4)


LAWS = {
    "Spectrum": {"values": (1.0, 2.0)},
    "PowerLaw": {"exponent": 1.0},
    "RandomFeatures": {"activation": jax.nn.relu, "ratio": 1.0},
}


@pytest.mark.parametrize(("model", "argument"), [key for key in WRONG if key[0] in LAWS])
def test_laws_refuse_by_name(model, argument):
    for value in WRONG[model, argument]:
        with pytest.raises(sl.InputError, match=f"^{model}.{argument}: "):
            getattr(sl, model)(**LAWS[model] | {argument: value})
