"""Gaussian mixtures: closed forms, symmetries, and runs at finite size."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_agrees, assert_within

import sgdlimit as sl
from sgdlimit.exact.spectrum import marchenko_pastur
from sgdlimit.problem.laws import Categorical

CURVES = ("train_loss", "test_loss", "norm", "overlap")
SIZE = {"samples": 16384, "dt": 0.1}
"""One size for all: marches up to t = 8 of problems that differ in numbers are one program."""


def mixture(means=(1.2, -1.2), covariance=0.8, weights=None, **more):
    chosen = {"loss": sl.Logistic(), "labels": sl.ByClass(), "penalty": sl.Ridge(0.05), "sample_ratio": 1.5}
    return sl.Problem(data=sl.Mixture(means, covariance, weights), **(chosen | more))


def entropy(r, y):
    """Cross entropy of three classes."""
    return jax.nn.logsumexp(r) - r[jnp.asarray(y, int)]


def largest(r):
    return jnp.argmax(r).astype(float)


def wrong(prediction, y):
    return (prediction != y).astype(float)


SOFTMAX = {"loss": sl.Loss(entropy, predict=largest, error=wrong), "width": 3}
THREE = ((1.5, 0.0), (-0.5, 1.2), (-0.5, -1.2))


def within(one, other, names=CURVES, scale=lambda name: 1.0):
    """Two solutions agree at all common times."""
    for name in names:
        (a, da), (b, db) = one.curve(name), other.curve(name)
        assert_within(a - scale(name) * b, np.hypot(da, db) + 1e-7)  # samples are in single precision


def ridge_minimiser(s, V, lam, delta):
    """Overlap with a, norm, train and test loss of ridge regression of y on rows y√V a/d + √s u.

    Rows times y: Z = X/√δ = √V u₁eᵀ + W with unit vectors u₁, e and W free of both, and θ/√d = (λ + ZᵀZ)⁻¹Zᵀu₁. With
    c = 1 − √V·overlap it is (λ + WᵀW)⁻¹(c Wᵀu₁ + κ e), κ = √V c (1 − h), and products with u₁ and e are traces.
    """
    law = marchenko_pastur(delta, 1.0)
    x, weight = s * np.asarray(law.nodes), np.asarray(law.weights)
    inverse = weight / (lam + x)
    h = np.sum(x * inverse) / delta
    A = math.sqrt(V) * (1 - h) * np.sum(inverse)
    overlap = A / (1 + math.sqrt(V) * A)
    c = 1 - math.sqrt(V) * overlap
    kappa = math.sqrt(V) * c * (1 - h)
    square = np.sum(x * inverse / (lam + x))
    norm = c**2 * square / delta + kappa**2 * np.sum(inverse / (lam + x))
    residual = 1 - (np.sum(weight) - np.sum(lam**2 * inverse / (lam + x))) / delta
    train = 0.5 * (c**2 * residual + kappa**2 * square)
    return {"overlap": overlap, "norm": norm, "train_loss": train, "test_loss": 0.5 * (c**2 + s * norm)}


def test_ridge_minimiser_is_that_of_a_large_matrix():
    """The closed form itself, on one draw of n = 3000, d = 2000."""
    s, V, lam, delta, d = 0.8, 1.5, 0.3, 1.5, 2000
    rng = np.random.default_rng(0)
    n = int(delta * d)
    a, y = rng.standard_normal(d), np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = y[:, None] * math.sqrt(V) * a / d + math.sqrt(s / d) * rng.standard_normal((n, d))
    theta = np.linalg.solve(lam * np.eye(d) + X.T @ X / delta, X.T @ y / delta)
    exact = ridge_minimiser(s, V, lam, delta)
    found = {"overlap": theta @ a / d, "norm": theta @ theta / d, "train_loss": 0.5 * np.mean((X @ theta - y) ** 2)}
    for name, value in found.items():
        assert abs(value / exact[name] - 1) < 0.03, name


@pytest.mark.parametrize("algorithm", [sl.GradientFlow(), sl.ProportionalSGD(1.0)], ids=lambda a: type(a).__name__)
def test_square_loss_reaches_the_ridge_minimiser(algorithm):
    s, V, lam, delta = 0.8, 1.5, 0.3, 1.5
    problem = mixture([V**0.5, -(V**0.5)], s, loss=sl.Square(), penalty=sl.Ridge(lam), sample_ratio=delta)
    solution = sl.solve(problem, algorithm, t_max=25.0, samples=16384, dt=0.05)
    for name, exact in ridge_minimiser(s, V, lam, delta).items():
        value, error = (np.ravel(part[-1])[0] for part in solution.curve(name))
        assert_within(value - exact, error + 1e-4 * abs(exact))


def test_theory_page():
    """Logistic, s = 0.8, |v|² = 1.5: values of a NumPy prototype and of SGD at d = 2000."""
    problem = mixture([1.5**0.5, -(1.5**0.5)])
    solution = sl.solve(problem, sl.SGD(0.5), t_max=6.0, **SIZE)
    known = {"train_loss": (0.2020, 0.0016), "test_loss": (0.346, 0.003), "norm": (1.908, 0.004)}
    known["overlap"] = (1.392 / 1.5**0.5, 0.008 / 1.5**0.5)
    for name, (value, stderr) in known.items():
        found, error = (np.ravel(part[-1])[0] for part in solution.curve(name))
        assert_within(found - value, np.hypot(stderr, error))


def test_classes_that_mirror_each_other_are_one():
    """x → yx maps classes ±v with labels ±1 on one class v with label 1; the loss reads y r alone."""
    options = {"t_max": 3.0, **SIZE}
    two = sl.solve(mixture(), sl.SGD(0.5), **options)
    one = sl.solve(mixture([1.2]), sl.SGD(0.5), **options, seed=1)
    within(two, one, (*CURVES, "train_error", "test_error"))
    within(sl.solve(mixture(weights=[0.9, 0.1]), sl.SGD(0.5), **options, seed=2), one)


def test_classes_may_change_places():
    here = sl.solve(mixture([1.0, -0.3], weights=[0.7, 0.3]), sl.SGD(0.5), t_max=2.0, **SIZE)
    there = sl.solve(mixture([0.3, -1.0], weights=[0.3, 0.7]), sl.SGD(0.5), t_max=2.0, **SIZE, seed=1)
    within(here, there)


@pytest.mark.slow
def test_direction_of_any_length():
    """Means along two directions of one length: only their products count."""
    options = {"t_max": 2.0, **SIZE}
    along = sl.solve(mixture([[1.2, 0.0], [-1.2, 0.0]]), sl.SGD(0.5), **options)
    turned = sl.solve(mixture([[0.72, 0.96], [-0.72, -0.96]]), sl.SGD(0.5), **options, seed=1)
    within(along, turned, ("train_loss", "test_loss", "norm"))
    turn = turned["overlap"] @ [0.6, 0.8]
    assert_within(along["overlap"][..., 0] - turn, along.curve("overlap")[1][..., 0] * 2 + 1e-9)


def test_means_of_zero_are_labels_without_meaning():
    options = {"t_max": 2.0, **SIZE}
    nothing = sl.solve(mixture([0.0, 0.0], 1.0), sl.SGD(0.5), **options)
    noise = {"labels": sl.Noise(binary=True), "noise": sl.Rademacher(1.0)}
    plain = sl.Problem(loss=sl.Logistic(), penalty=sl.Ridge(0.05), sample_ratio=1.5, **noise)
    within(nothing, sl.solve(plain, sl.SGD(0.5), **options, seed=1), ("train_loss", "test_loss", "norm"))


def test_responses_know_nothing_of_means():
    """At square loss and no noise of batches R_θ and R_ℓ depend on the covariance alone: the same to rounding."""
    options = {"t_max": 2.0, "samples": 4096, "dt": 0.1, "kernels": True, "functions": 12}
    near = sl.solve(mixture([0.5, -0.5], loss=sl.Square()), sl.GradientFlow(), **options)
    far = sl.solve(mixture([2.0, -2.0], loss=sl.Square()), sl.GradientFlow(), **options)
    assert np.abs(near["C_theta"] - far["C_theta"]).max() > 0.1
    for name in ("R_theta", "R_ell"):
        np.testing.assert_allclose(far[name], near[name], rtol=0, atol=2e-6)


FAST = ("two", "proportional")
CASES = {
    "two": (mixture(), sl.SGD(0.5, batch_size=4)),
    "square": (mixture(loss=sl.Square(), weights=[0.3, 0.7]), sl.SGD(0.3, batch_size=4)),
    "proportional": (mixture([1.2, -0.6]), sl.ProportionalSGD(0.3)),
    "persistent": (mixture([1.2, -0.6]), sl.PersistentSGD(0.3, 1.0)),
    "shuffled": (mixture([1.2, -0.6]), sl.ShuffledSGD(2.0, batch_size=4)),
    "particles": (mixture([1.2, -0.6], penalty=sl.SmoothL1(0.2, 0.3)), sl.SGF(0.5)),
    "three": (mixture(THREE, weights=[0.5, 0.3, 0.2], **SOFTMAX), sl.SGD(0.5, batch_size=4)),
    "spectrum": (
        mixture([1.2, -1.2], sl.Spectrum([2.0, 0.3], [0.3, 0.7], [1.4, 0.7])), sl.SGD(0.5, batch_size=4),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [case if case in FAST else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_against_runs(case):
    """At d = 400 what is left of its finite size hides in the spread of eight trials."""
    problem, algorithm = CASES[case]
    times = np.linspace(0.0, 2.0, 6)
    solution = sl.solve(problem, algorithm, times=times, **SIZE)
    runs = sl.simulate(
        problem, algorithm, dim=400, trials=8, times=times, seed=3, **({"dt": 0.1} if algorithm.discrete else {})
    )
    assert ("test_error" in solution) == ("test_error" in runs)
    assert_agrees(sl.compare(solution, runs), 8)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", [0.8, sl.Spectrum([2.0, 0.3], [0.3, 0.7], [1.4, 0.7])], ids=["one", "groups"])
@pytest.mark.parametrize("penalty", [sl.Ridge(0.05), sl.SmoothL1(0.2, 0.3)], ids=["moments", "particles"])
def test_one_pass(penalty, covariance):
    more = {"sample_ratio": math.inf, "penalty": penalty, "bias": True}
    problem = mixture([1.2, -0.6], covariance, [0.6, 0.4], **more)
    solution = sl.online(problem, sl.SGD(0.5), t_max=2.0, samples=16384, particles=4096)
    runs = sl.simulate(problem, sl.SGD(0.5, batch_size=4), dim=400, trials=8, times=np.linspace(0, 2, 5))
    assert_agrees(sl.compare(solution, runs), 8)


def test_one_pass_of_square_loss_has_a_closed_form():
    """db/dt = −(λ + s + V)b + √V for b the overlap: E[(r − y)(means a + √s u)] at classes ±√V."""
    s, V, lam = 0.8, 1.5, 0.2
    means = [V**0.5, -(V**0.5)]
    problem = mixture(means, s, loss=sl.Square(), penalty=sl.Ridge(lam), sample_ratio=math.inf)
    solution = sl.online(problem, sl.SGF(0.3), t_max=4.0, samples=4096)
    rate = lam + s + V
    exact = V**0.5 / rate * -np.expm1(-rate * solution.time)
    np.testing.assert_allclose(solution["overlap"][:, 0, 0], exact, atol=1e-7)


@pytest.mark.slow
def test_rows_that_are_not_gaussian():
    """Fresh samples as rows: the same means, classes and labels."""
    problem = mixture(bias=True, weights=[0.7, 0.3])
    options = {"dim": 300, "trials": 8, "times": [1.0, 2.0]}
    one = sl.simulate(problem, sl.SGD(0.5, batch_size=4), **options)
    other = sl.simulate(problem, sl.SGD(0.5, batch_size=4), **options, entries="rademacher", seed=5)
    for name in ("train_loss", "test_loss", "test_error", "norm", "overlap", "intercept"):
        (a, da), (b, db) = one.curve(name), other.curve(name)
        assert_within(a - b, np.hypot(da, db), 8)


def test_snapshots_are_of_all_classes():
    problem = mixture([1.2, -1.2])
    solution = sl.solve(problem, sl.SGD(0.5), t_max=1.0, **SIZE, snapshots=[1.0])
    r, z = solution["r"][0, :, 0], solution["z"]
    assert set(np.unique(z)) == {0.0, 1.0}
    gap = r[z == 0].mean() - r[z == 1].mean()
    assert gap > 2 * 1.2 * solution["overlap"][-1, 0, 0]  # training samples lie further out than fresh ones


def test_law_of_the_class():
    law = Categorical((0.2, 0.5, 0.3))
    mean, second = law.moments(1)
    assert mean[0] == pytest.approx(1.1)
    assert second[0, 0] == pytest.approx(1.7)
    draw = np.asarray(law.sample(jax.random.key(0), (100_000,)))
    counts = np.bincount(draw.astype(int), minlength=3) / len(draw)
    assert_within(counts - [0.2, 0.5, 0.3], np.sqrt(0.25 / len(draw)))
    u = (np.arange(1000) + 0.5)[:, None] / 1000
    np.testing.assert_array_equal(np.bincount(law.spread_out(u, None).astype(int)), [200, 500, 300])


def test_labels_by_class():
    assert mixture().labels == sl.ByClass((1.0, -1.0))
    assert mixture().labels.binary
    three: Any = mixture(THREE, **SOFTMAX).labels
    assert three.values == (0.0, 1.0, 2.0)
    assert not three.binary
    assert [float(three(None, jnp.float32(c))) for c in range(3)] == [0.0, 1.0, 2.0]
    own = mixture(labels=sl.Labels(lambda r_star, z: 2.0 * z - 1.0 if r_star is None else 0.0 * z, binary=True))
    assert own.labels.binary


PLAIN = {"loss": sl.Logistic(), "sample_ratio": 1.5, "labels": sl.ByClass()}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sl.Mixture([[[1.0]]]), ["Mixture.means", "(classes, directions)"]),
        (lambda: sl.Mixture([[1.0, 2.0], [1.0]]), ["Mixture.means"]),
        (lambda: sl.Mixture([]), ["Mixture.means"]),
        (lambda: sl.Mixture([1.0, math.nan]), ["Mixture.means"]),
        (lambda: sl.Mixture("ab"), ["Mixture.means"]),
        (lambda: sl.Mixture([1.0, -1.0], covariance=0.0), ["Mixture.covariance", "positive"]),
        (lambda: sl.Mixture([1.0, -1.0], covariance=sl.Mixture([1.0])), ["Mixture.covariance", "sl.Spectrum"]),
        (lambda: sl.Mixture([1.0, -1.0], weights=[0.5, 0.6]), ["Mixture.weights", "sum to 1"]),
        (lambda: sl.Mixture([1.0, -1.0], weights=[1.0]), ["Mixture.weights", "2 priors"]),
        (lambda: sl.Mixture([1.0, -1.0], weights=[1.0, 0.0]), ["Mixture.weights", "> 0"]),
        (lambda: sl.ByClass(1.0), ["ByClass.values"]),
        (lambda: sl.ByClass(["a"]), ["ByClass.values"]),
        (lambda: mixture(labels=sl.ByClass([1.0, -1.0, 0.0])), ["ByClass.values", "2 classes"]),
        (lambda: mixture(labels=sl.Sign()), ["labels", "ByClass"]),
        (lambda: mixture(teacher=sl.Normal(1.0)), ["teacher", "leave teacher"]),
        (lambda: mixture(teacher_width=2), ["teacher", "leave teacher"]),
        (lambda: mixture(noise=sl.Normal(0.1)), ["noise", "class"]),
        (lambda: sl.Problem(**PLAIN), ["labels", "sl.Mixture"]),
        (lambda: sl.Problem(**PLAIN, data=[1.0]), ["data", "sl.Mixture"]),
        (lambda: sl.least_squares(mixture(loss=sl.Square()), sl.SGF(0.1), t_max=1.0), ["Mixture", "sl.solve"]),
        (lambda: sl.references.fixed_point(mixture(), sl.SGF(0.1), t_max=1.0), ["problem", "data=Mixture", "sl.solve"]),
        (lambda: sl.solve(mixture(), sl.SGF(0.1), t_max=1.0, test_data=sl.Mixture([1.0])), ["test_data", "Mixture"]),
    ],
)
def test_refused_by_name(make, words):
    with pytest.raises(sl.InputError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_words_and_files(tmp_path):
    from sgdlimit.cli.specification import read

    problem = mixture([[1.2, 0.5], [-1.2, 0.0]], sl.Spectrum([2.0, 0.5]), [0.7, 0.3], bias=True)
    runs = sl.simulate(problem, sl.SGD(0.5), dim=200, trials=2, t_max=0.1)
    runs.save(tmp_path / "runs.nc")
    again = sl.load(tmp_path / "runs.nc")
    assert again.problem == problem
    np.testing.assert_array_equal(again["intercept"], runs["intercept"])
    file = tmp_path / "problem.toml"
    file.write_text(
        """
[problem]
loss = "Logistic"
labels = "ByClass"
penalty = { name = "Ridge", strength = 0.05 }
sample_ratio = 1.5
bias = true

[problem.data]
name = "Mixture"
means = [[1.2, 0.5], [-1.2, 0.0]]
weights = [0.7, 0.3]
covariance = { name = "Spectrum", values = [2.0, 0.5] }

[algorithm]
name = "SGD"
temperature = 0.5
"""
    )
    assert read(file).problem == problem


def test_numbers_are_no_structure():
    """Numbers of a mixture are data, not structure: others of them compile nothing anew."""
    assert jax.tree.structure(mixture()) == jax.tree.structure(mixture([0.1, -3.0], 0.2, [0.4, 0.6]))
    problems = [mixture([m, -m]) for m in (0.5, 1.0, 2.0)]
    found = [sl.solve(problem, sl.SGD(0.5), t_max=1.0, **SIZE) for problem in problems]
    ends = [solution["test_error"][-1] for solution in found]
    assert ends[0] > ends[1] > ends[2]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["two", "proportional", "three", "spectrum"])
def test_finite_size(case):
    """One test over all curves at each of d = 500, 1000, 2000; the mean deviation of all, in the curve's own size, at
    d = 2000 is below that at d = 500 or lost in its noise."""
    problem, algorithm = CASES[case]
    times = np.linspace(0.5, 4.0, 8)
    steps = {"dt": 0.1} if algorithm.discrete else {}
    solution = sl.solve(problem, algorithm, times=times, tol=1e-2, **steps)
    gaps, noise = [], []
    for dim, trials in ((500, 40), (1000, 20), (2000, 10)):
        runs = sl.simulate(problem, algorithm, dim=dim, trials=trials, times=times, seed=dim, **steps)
        report = sl.compare(solution, runs)
        print(case, dim, report, sep="\n")
        assert report.agrees(false_alarm=1e-2), report
        scale = {name: np.max(np.abs(solution[name])) for name in CURVES}
        gaps.append(np.mean([abs(np.mean(runs.curve(name)[0] - solution[name])) / scale[name] for name in CURVES]))
        noise.append(np.mean([np.max(runs.curve(name)[1]) / scale[name] for name in CURVES]))
    assert gaps[-1] < max(gaps[0], 3 * noise[-1])
