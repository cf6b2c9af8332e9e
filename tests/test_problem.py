"""The problem language: shapes, schedules, vector fields, and one-line errors for bad input."""

import math
import tomllib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgdlimit as sl
from sgdlimit.describe import algorithm_from_words, problem_from_words, to_words
from sgdlimit.problem import fields, observables
from sgdlimit.problem.problem import check_start

GOOD = {"loss": sl.Square(), "sample_ratio": 2.0, "teacher": sl.Normal(1.0)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sample_ratio": 0}, ["sample_ratio", "0", "positive"]),
        ({"sample_ratio": -1.5}, ["sample_ratio", "-1.5"]),
        ({"sample_ratio": "many"}, ["sample_ratio", "many"]),
        ({"sample_ratio": math.nan}, ["sample_ratio", "nan"]),
        ({"loss": lambda r, y: r}, ["loss", "sl.Loss(fn)"]),
        ({"loss": sl.Square}, ["loss", "the class Square"]),
        ({"loss": sl.Loss(lambda r, y: jnp.stack([r, y]))}, ["loss", "shape (2,)", "scalar"]),
        ({"loss": sl.Loss(lambda r, y: math.exp(r))}, ["loss", "jax.numpy"]),
        ({"width": 2}, ["loss", "shape (2,)", "TwoLayer"]),
        ({"width": 0}, ["width", "0"]),
        ({"width": 1.5}, ["width", "1.5"]),
        ({"width": 2**31 - 1, "init": sl.Law(jax.random.normal)}, ["width", "2147483647", "64"]),
        ({"teacher_width": 65}, ["teacher_width", "65"]),
        ({"labels": sl.Labels(lambda r, z: 1j * r), "loss": sl.Exponential()}, ["labels", "complex64", "real"]),
        ({"teacher_width": 0}, ["teacher_width", "0"]),
        ({"teacher": None}, ["teacher", "Linear"]),
        ({"teacher": 1.0}, ["teacher", "1.0"]),
        ({"penalty": sl.Penalty(lambda x: jnp.ones(3))}, ["penalty", "shape (3,)"]),
        ({"labels": sl.Labels(lambda s, z: jnp.ones(2))}, ["labels", "shape (2,)"]),
        ({"init": sl.Point([1.0, 2.0])}, ["init", "width"]),
        ({"loss": sl.VectorField(lambda r, r_star, z: jnp.ones(3))}, ["loss", "shape (3,)"]),
        ({"schedule": lambda t: 1.0}, ["schedule", "sl.Schedule"]),
        ({"sample_ratio": True}, ["sample_ratio", "True"]),
        ({"loss": sl.Loss(lambda r, y: r > y)}, ["loss", "bool", "real number"]),
        ({"loss": sl.Loss(lambda r, y: (r, y))}, ["loss", "tuple", "scalar"]),
        ({"loss": sl.Loss(lambda r: r)}, ["loss", "TypeError"]),
        ({"loss": sl.Loss(lambda r, y: r * y, error=lambda p, y: jnp.stack([p, y]))}, ["loss.error", "shape (2,)"]),
        ({"loss": sl.Loss(lambda r, y: r * y, error=lambda p: p)}, ["loss.error", "TypeError"]),
        ({"loss": sl.TwoLayer(jnp.tanh, readout=(1.0, 2.0, 3.0))}, ["TwoLayer.readout", "3 numbers"]),
        ({"labels": sl.TwoLayerLabels(jnp.tanh, readout=(1.0, 2.0))}, ["TwoLayerLabels.readout", "2 numbers"]),
        ({"noise": sl.Law(lambda key, shape: np.random.normal(size=shape))}, ["noise=Law", "jax.random"]),  # noqa: NPY002
        ({"teacher": sl.Law(lambda key, shape: np.random.default_rng(0).normal(size=shape))}, ["teacher=Law", "key"]),
        ({"init": sl.Law(lambda key, shape: jnp.zeros(3))}, ["init=Law", "shape (3,)"]),
        ({"noise": sl.Point([0.1, 0.2])}, ["noise=Point"]),
    ],
)
def test_bad_problem(change, words):
    with pytest.raises(sl.InputError) as caught:
        sl.Problem(**(GOOD | change))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: sl.SGD(-0.1), "SGD.temperature"),
        (lambda: sl.SGF(math.nan), "SGF.temperature"),
        (lambda: sl.SGD(0.1, batch_size=0), "SGD.batch_size"),
        (lambda: sl.SGD(0.1, batch_size=2.5), "SGD.batch_size"),  # type: ignore[arg-type]
        (lambda: sl.ProportionalSGD(0.0), "batch_fraction"),
        (lambda: sl.ProportionalSGD(1.2), "batch_fraction"),
        (lambda: sl.PersistentSGD(0.5, 0.0), "correlation_time"),
        (lambda: sl.Normal(-1.0), "Normal.scale"),
        (lambda: sl.Normal(1e300), "Normal.scale"),
        (lambda: sl.Rademacher(1e300), "Rademacher.scale"),
        (lambda: sl.SparseNormal(0.1, 1e300), "SparseNormal.scale"),
        (lambda: sl.Point((0.0, -1e300)), "Point.value"),
        (lambda: sl.Uniform(-1.0, 1e300), "Uniform.high"),
        (lambda: sl.Uniform(-1e300, 1.0), "Uniform.low"),
        (lambda: sl.Law(jax.random.normal, mean=1e300, second_moment=1.0), "Law.mean"),
        (lambda: sl.Law(jax.random.normal, mean=0.0, second_moment=1e300), "Law.second_moment"),
        (lambda: sl.Uniform(1.0, 0.0), "Uniform.high"),
        (lambda: sl.SparseNormal(0.0), "SparseNormal.density"),
        (lambda: sl.Ridge(-1.0), "Ridge.strength"),
        (lambda: sl.Huber(0.0), "Huber.threshold"),
        (lambda: sl.Loss(3.0), "Loss.fn"),  # type: ignore[arg-type]
        (lambda: sl.Normal("1.0"), "Normal.scale"),  # type: ignore[arg-type]
        (lambda: sl.SGD(True), "SGD.temperature"),
        (lambda: sl.Point("zero"), "Point.value"),
        (lambda: sl.Point([[1, 2], [3]]), "Point.value"),
        (lambda: sl.Noise(binary="no"), "Noise.binary"),  # type: ignore[arg-type]
        (lambda: sl.TwoLayer(jnp.tanh, loss=lambda r, y: r), "TwoLayer.loss"),  # type: ignore[arg-type]
    ],
)
def test_bad_piece(make, word):
    with pytest.raises(sl.InputError, match=word):
        make()


def test_non_finite_loss_at_the_start_is_refused():
    problem = sl.Problem(**(GOOD | {"loss": sl.Loss(lambda r, y: jnp.log(r) + y)}))
    with pytest.raises(sl.InputError, match=r"loss.*start"):
        check_start(problem)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"penalty": sl.Penalty(lambda x: jnp.sqrt(x**2))}, "penalty.*gradient"),
        ({"penalty": sl.Penalty(lambda x: -jnp.log(x))}, "penalty.*gradient"),
        ({"schedule": sl.Schedule(lambda t: 1 / t)}, "schedule"),
        ({"labels": sl.Labels(lambda s, z: jnp.log(s))}, "labels"),
    ],
)
def test_anything_else_that_is_not_finite_at_the_start(change, words):
    with pytest.raises(sl.InputError, match=words):
        check_start(sl.Problem(**(GOOD | change)))


def test_numbers_become_floats_and_traced_numbers_pass():
    assert isinstance(sl.SGD(1).temperature, float)
    assert sl.SGD(0.5, batch_size=np.int64(3)).batch_size == 3
    assert sl.Ridge(np.float32(0.5)).strength == 0.5
    grown = jax.vmap(lambda tau: sl.SGD(tau).variance(0.0, 0.1, 2.0))(jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(grown, [0.1, 0.2], rtol=1e-6)

    def pull(strength, ratio):
        problem = sl.Problem(**(GOOD | {"penalty": sl.Ridge(strength), "sample_ratio": ratio}))
        return fields.drift(problem, 0.0, jnp.array([2.0]))[0] / problem.sample_ratio

    np.testing.assert_allclose(jax.vmap(pull)(jnp.array([0.1, 0.3]), jnp.array([1.0, 2.0])), [0.2, 0.3], rtol=1e-6)


def test_binary_labels_must_be_signs():
    labels = sl.Noise(binary=True)
    check_start(sl.Problem(loss=sl.Logistic(), labels=labels, sample_ratio=1.0, noise=sl.Rademacher(1.0)))
    with pytest.raises(sl.InputError, match="±1"):
        check_start(sl.Problem(loss=sl.Logistic(), labels=labels, sample_ratio=1.0, noise=sl.Normal(1.0)))


def test_user_sees_scalars_at_width_one_and_vectors_above():
    seen = {}

    def loss(r, y):
        seen["r"] = jnp.shape(r)
        return jnp.sum((r - y) ** 2)

    def labels(r_star, z):
        seen["r_star"] = None if r_star is None else jnp.shape(r_star)
        return z

    for width, k, teacher in [(1, None, sl.Normal(1.0)), (2, 3, sl.Normal(1.0)), (3, None, None)]:
        sl.Problem(
            loss=sl.Loss(loss),
            labels=sl.Labels(labels),
            sample_ratio=1.0,
            teacher=teacher,
            width=width,
            teacher_width=k if teacher else None,
        )
        assert seen["r"] == (() if width == 1 else (width,))
        if teacher is None:
            assert seen["r_star"] is None
        else:
            assert seen["r_star"] == (() if (k or width) == 1 else (k or width,))


def test_vector_field_takes_time_wherever_it_stands():
    r, s, z = jnp.array([0.5, -0.2]), jnp.array([0.3]), jnp.array(0.1)
    first = sl.VectorField(lambda t, r, r_star, z: t * r + r_star - z)
    last = sl.VectorField(lambda r, r_star, z, time: time * r + r_star - z)
    never = sl.VectorField(lambda r, r_star, z: r + r_star - z)
    for field, t in ((first, 0.7), (last, 0.7), (never, 0.7)):
        problem = sl.Problem(loss=field, sample_ratio=1.0, teacher=sl.Normal(1.0), width=2, teacher_width=1)
        factor = 1.0 if field is never else t
        np.testing.assert_allclose(fields.force(problem, t, r, s, z), factor * r + 0.3 - 0.1, rtol=1e-6)
    assert not problem.has_loss
    np.testing.assert_allclose(fields.force_r(problem, 0.0, r, s, z), np.eye(2), rtol=1e-6)


def test_schedule_multiplies_both_fields_and_not_the_loss():
    base = sl.Problem(**(GOOD | {"penalty": sl.Ridge(0.3)}))
    slowed = sl.Problem(**(GOOD | {"penalty": sl.Ridge(0.3), "schedule": sl.PowerDecay(1.0, 1.0)}))
    r, s, z, t = jnp.array([0.5]), jnp.array([0.3]), jnp.array(0.1), 3.0
    for fn in (lambda p: fields.force(p, t, r, s, z), lambda p: fields.drift(p, t, r)):
        np.testing.assert_allclose(fn(slowed), 0.25 * np.asarray(fn(base)), rtol=1e-6)
    assert float(fields.loss(slowed, r, s, z)) == float(fields.loss(base, r, s, z))


def test_gram_of_start_and_teacher():
    problem = sl.Problem(
        loss=sl.TwoLayer(jnp.tanh),
        sample_ratio=1.0,
        teacher=sl.Uniform(0.0, 1.0),
        init=sl.Point([1.0, -2.0]),
        width=2,
        teacher_width=1,
    )
    expected = [[1, -2, 0.5], [-2, 4, -1], [0.5, -1, 1 / 3]]
    np.testing.assert_allclose(problem.gram(), expected)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"t_max": 0.0}, "t_max"),
        ({"t_max": -1.0}, "t_max"),
        ({"t_max": None}, "t_max"),
        ({"times": [0.0, 1.0, 1.0]}, "times"),
        ({"times": [-1.0, 1.0]}, "times"),
        ({"times": [[0.0, 1.0]]}, "times"),
        ({"times": [0.0, math.inf]}, "times"),
        ({"times": "soon"}, "times"),
        ({"t_max": 1.0, "times": [0.0, 2.0]}, "times"),
    ],
)
def test_bad_times(arguments, word):
    with pytest.raises(sl.InputError, match=word):
        sl.grid.resolve(**arguments)


def test_grids():
    np.testing.assert_allclose(sl.grid.linear(2.0, 5), [0, 0.5, 1, 1.5, 2])
    grid = sl.grid.geometric(8.0, 1.0, 5)
    np.testing.assert_allclose(grid, [0, 1, 2, 4, 8])
    with pytest.raises(sl.InputError, match="first"):
        sl.grid.geometric(1.0, 2.0)


def uniform(key, shape):
    return jax.random.uniform(key, shape)


def test_moments_of_a_sampler_are_known_to_a_fifth_of_a_percent():
    for fn, exact in (
        (uniform, 1 / 3),
        (jax.random.exponential, 2.0),
        (lambda key, shape: uniform(key, shape) < 0.1, 0.1),
    ):
        second = sl.Law(fn).moments(1)[1].item()
        assert second == pytest.approx(exact, rel=4 * 0.002)
        assert abs(second / exact - 1) < 4 * 0.001 + 1e-6
    with pytest.raises(sl.InputError, match="second_moment="):
        sl.Law(lambda key, shape: uniform(key, shape) ** -0.6).moments(1)


@pytest.mark.parametrize(("mean", "second", "good"), [(0.5, 1 / 3, True), (0.5, 0.36, False), (0.45, 1 / 3, False)])
def test_stated_moments_are_checked(mean, second, good):
    law = sl.Law(uniform, mean=mean, second_moment=second)
    if good:
        sl.Problem(**(GOOD | {"noise": law}))
    else:
        with pytest.raises(sl.InputError, match=r"noise=Law\.(mean|second_moment).*draws"):
            sl.Problem(**(GOOD | {"noise": law}))


def test_weights_of_a_march_are_spread_over_their_laws():
    """The share of non-zero entries is that of the law, whatever the seed; too few of them are refused by number."""
    problem = sl.Problem(**(GOOD | {"teacher": sl.SparseNormal(0.01), "init": sl.Uniform(0.0, 1.0)}))
    for seed in range(4):
        rows = problem.spread_weights(jax.random.key(seed), 2048)
        assert abs(np.count_nonzero(rows[:, 1]) - 20.48) < 3
        assert abs(rows[:, 0].mean() - 0.5) < 1e-3
        assert abs(np.corrcoef(rows.T)[0, 1]) < 5 / np.sqrt(2048)
    with pytest.raises(sl.InputError, match=r"density.*at least 800 a replica"):
        problem.spread_weights(jax.random.key(0), 512)


def kept(r, y):
    return (r - y) ** 4


def test_problems_pickle_by_the_names_of_their_functions():
    import copy
    import pickle

    import cloudpickle

    problem = sl.Problem(**(GOOD | {"loss": sl.Loss(kept), "schedule": sl.PowerDecay()}))
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert pickle.loads(pickle.dumps(sl.SGD(0.3, 2))) == sl.SGD(0.3, 2)
    nameless = sl.Problem(**(GOOD | {"loss": sl.Loss(lambda r, y: (r - y) ** 4)}))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(nameless)
    same: Any = copy.deepcopy(nameless)
    assert same.loss.fn is getattr(nameless.loss, "fn")  # noqa: B009
    assert pickle.loads(cloudpickle.dumps(nameless)).loss.fn(3.0, 1.0) == 16.0


@pytest.mark.parametrize(("scale", "place"), [(1.0, 50.0), (1e4, 2e5), (1e-3, 2e-4)])
def test_jumps_are_looked_for_where_pre_activations_reach(scale, place):
    from sgdlimit.control.checks import look

    numbers = {"scale": scale, "place": place}  # one program for all
    jump = sl.Loss(
        lambda r, y, scale, place: 0.5 * (r - y) ** 2 + 0.01 * scale**2 * (r > place), parameters=numbers
    )  # fmt: skip
    problem = sl.Problem(**(GOOD | {"loss": jump, "teacher": sl.Normal(scale)}))
    with pytest.raises(sl.InputError, match=rf"loss.*value that jumps, near {place:.4g}".replace("+", r"\+")):
        look(problem, sl.SGF(0.1), 1.0)
    kink = sl.Loss(
        lambda r, y, scale, place: 0.5 * (r - y) ** 2 + scale * jnp.maximum(r - place, 0.0), parameters=numbers
    )  # fmt: skip
    assert look(sl.Problem(**(GOOD | {"loss": kink, "teacher": sl.Normal(scale)})), sl.SGF(0.1), 1.0).limit > 0


def test_a_child_forked_after_jax_began_is_refused():
    """It would hang at its first computation; the message names the remedy."""
    import os

    problem = sl.Problem(**GOOD)
    sl.least_squares(problem, sl.SGD(0.1), t_max=1.0)
    jnp.ones(3).block_until_ready()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sl.solve(problem, sl.SGD(0.1), t_max=1.0)
        except sl.InputError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"spawn" in os.read(read, 1000)


CLASSES = dict(loss=sl.MultiClass(3), labels=sl.ArgMax(), teacher=sl.Normal(1.0), sample_ratio=2.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(width=2), "width: got 2.*set width=3"),
        (dict(width=3, teacher_width=2), "teacher_width: got 2.*set teacher_width=3"),
        (dict(width=3, noise=sl.Normal(1.0)), "noise: got Normal"),
        (dict(width=3, loss=sl.MultiClass(3), labels=sl.Linear()), "labels: got .*0, 1, … 2; use sl.ArgMax"),
    ],
)
def test_classes_that_do_not_fit(change, words):
    with pytest.raises(sl.InputError, match=words):
        sl.simulate(sl.Problem(**CLASSES | change), sl.SGD(0.1), t_max=0.1, dim=40, trials=1)  # type: ignore[arg-type]


def test_bad_softmax():
    for make in (lambda: sl.MultiClass(1), lambda: sl.MultiClass(65), lambda: sl.MultiClass(3, output_bias=0.1)):
        with pytest.raises(sl.InputError, match="classes"):
            make()
    with pytest.raises(sl.InputError, match=r"ArgMax.wrong: got 1.5"):
        sl.ArgMax(wrong=1.5)


def test_built_in_softmax_is_the_one_written_out():
    """The same numbers as from a loss and labels of the user's."""

    def cross_entropy(r, y):
        return jax.nn.logsumexp(r) - jnp.sum(r * (jnp.arange(3) == y))

    def teacher_says(r_star, z):
        return (jnp.argmax(r_star) + (z < 0.1)) % 3 * 1.0

    own = sl.Problem(**CLASSES | dict(labels=sl.ArgMax(wrong=0.1)), width=3)  # type: ignore[arg-type]
    written = sl.Problem(
        loss=sl.Loss(
            cross_entropy,
            predict=lambda r: jnp.argmax(r).astype(float),
            error=lambda prediction, y: 1.0 * (prediction != y),
        ),
        labels=sl.Labels(teacher_says),
        noise=sl.Uniform(0.0, 1.0),
        teacher=sl.Normal(1.0),
        sample_ratio=2.0,
        width=3,
    )
    rng = np.random.default_rng(0)
    for _ in range(5):
        sample = jnp.asarray(rng.normal(size=3)), jnp.asarray(rng.normal(size=3)), jnp.asarray(rng.random() / 5)
        found = [
            (fields.force(one, 0.0, *sample), *(fn(*sample) for fn in observables.on_samples(one).values()))
            for one in (own, written)
        ]
        for left, right in zip(*found, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-6)
    assert own.noise_law == written.noise_law


TRAINING = """
[problem]
sample_ratio = 2.0
width = 2
teacher = "Normal"
init = { name = "Towards", overlap = [[0.1, 0.0], [0.0, 0.2]], scale = [0.5, 0.6] }
labels = { name = "TwoLayerLabels", activation = "quadratic" }

[problem.loss]
name = "TwoLayer"
activation = "gelu"
readout = { name = "Trained", start = [1.0, -1.0] }
bias = 0.2
output_bias = { name = "Trained", start = 0.1, rate = 0.5 }

[algorithm]
name = "SGD"
temperature = 0.3
step = { clip = 1.0, momentum = { name = "HeavyBall", friction = 1.0 }, rate = { name = "AdaGradNorm" } }
"""


def test_training_in_words():
    """Trained parameters, the parts of a step and a start, from TOML and back from the words of a result."""
    tables = tomllib.loads(TRAINING)
    problem, algorithm = problem_from_words(tables["problem"]), algorithm_from_words(tables["algorithm"])
    assert problem.init == sl.Towards([[0.1, 0.0], [0.0, 0.2]], scale=[0.5, 0.6])
    assert isinstance(problem.loss, sl.TwoLayer)
    np.testing.assert_array_equal(problem.loss.readout.start, [1.0, -1.0])
    assert problem.loss.output_bias == sl.Trained(0.1, rate=0.5)
    step = sl.Step(clip=1.0, momentum=sl.HeavyBall(friction=1.0), rate=sl.AdaGradNorm())
    assert algorithm == sl.SGD(0.3, step=step)
    assert problem_from_words(to_words(problem)) == problem
    assert hash(problem_from_words(to_words(problem)).loss) == hash(problem.loss)
    assert algorithm_from_words(to_words(algorithm)) == algorithm
    words = {"name": "Clip", "threshold": 2.0, "per": "batch"}
    assert algorithm_from_words({"name": "SGD", "temperature": 0.3, "step": {"clip": words}}).step.clip == sl.Clip(
        2.0, per="batch"
    )
    for step, where in (
        ({"momentum": {"name": "HeavyBall"}}, "HeavyBall.friction"),
        ({"rate": "nonsense"}, "algorithm.step.rate"),
        ({"clip": -1.0}, "Step.clip"),
        ({"pace": 1.0}, "algorithm.step.pace"),
    ):
        with pytest.raises(sl.InputError, match=where):
            algorithm_from_words({"name": "SGD", "temperature": 0.3, "step": step})
