"""Functions of the user's: parameters are data, and what a function reads is never taken from an older call."""

import dataclasses
import functools
import math
import sys
import timeit
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgdlimit as sl
from sgdlimit import describe
from sgdlimit._fingerprint import fingerprint
from sgdlimit.problem import fields, observables

ONE = jnp.ones(1)


class Counted:
    """The force at r = 1, r* = z = 0 through jit, and how often jax looked into it."""

    def __init__(self):
        self.compiled = 0

        @jax.jit
        def jitted(problem, r):
            self.compiled += 1
            return fields.force(problem, 0.0, r, jnp.zeros(1), 0.0)[0]

        self.jitted = jitted

    def __call__(self, loss):
        problem = sl.Problem(loss=loss, sample_ratio=2.0, teacher=sl.Normal(1.0))
        return float(self.jitted(problem, ONE))


@pytest.fixture
def force():
    return Counted()


# parameters


def test_parameters_are_traced(force):
    def fn(r, y, a, power):
        return a[1] * jnp.abs(r - y) ** power

    for a, power in [((0.0, 1.0), 2), (np.array([5, 3]), 2.0), (jnp.array([0.0, 0.5]), 3)]:
        loss = sl.Loss(fn, parameters={"a": a, "power": power})
        assert force(loss) == pytest.approx(float(a[1]) * power)
    assert force.compiled == 1


def test_every_place_of_a_function_takes_parameters():
    problem = sl.Problem(
        loss=sl.VectorField(
            lambda r, r_star, z, a, t: a * t * r,
            loss=lambda r, y, a: a * r,
            predict=lambda r: r,
            error=lambda prediction, y, a: a * prediction,
            parameters={"a": 3.0},
        ),
        labels=sl.Labels(lambda r_star, z, *, shift: r_star + shift, parameters={"shift": 0.5}),
        penalty=sl.Penalty(lambda theta, **k: k["b"] * theta**2, parameters={"b": 2.0}),
        schedule=sl.Schedule(lambda t, rate: 1 + rate * t, parameters={"rate": 1.0}),
        sample_ratio=2.0,
        teacher=sl.Normal(1.0),
    )
    r, z = jnp.array([0.7]), jnp.array(0.0)
    assert fields.force(problem, 2.0, r, r, z)[0] == pytest.approx(3 * 3.0 * 2.0 * 0.7)
    assert fields.label(problem, r, z) == pytest.approx(1.2)
    assert fields.drift(problem, 0.0, r)[0] == pytest.approx(4 * 0.7)
    assert fields.loss(problem, r, r, z) == pytest.approx(2.1)
    assert observables.on_samples(problem)["error"](r, r, z) == pytest.approx(2.1)
    scaled = sl.Loss(lambda r, y, a: a * r, predict=lambda r, a: a + r, parameters={"a": 2.0})
    predict = dataclasses.replace(problem, loss=scaled).predict
    assert predict is not None
    assert predict(1.0) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("fn", "state"),
    [
        (lambda theta, a, t: a * t * theta, 1),
        (lambda theta, t, a: a * t * theta, 1),
        (lambda t, theta, a: a * t * theta, 1),
        (lambda theta, *, time, a: a * time * theta, 1),
        (lambda r, r_star, z, *, a, t: a * t * r, 3),
    ],
)
def test_time_of_a_field_stands_anywhere_beside_parameters(fn, state):
    field = sl.VectorField(fn, parameters={"a": 3.0})
    assert field.at(2.0, *[5.0] * state) == pytest.approx(30.0)


def test_parameters_are_differentiated_and_mapped():
    def value(a):
        loss = sl.Loss(lambda r, y, a: a**2 * r, parameters={"a": a})
        problem = sl.Problem(loss=loss, sample_ratio=2.0, teacher=sl.Normal(1.0))
        return fields.loss(problem, ONE, ONE, 0.0)

    np.testing.assert_allclose(jax.vmap(jax.grad(value))(jnp.array([1.0, 3.0])), [2.0, 6.0])


def test_parameters_compare_by_value():
    def fn(r, y, a):
        return jnp.sum(a) * r * y

    first, again, other = (sl.Loss(fn, parameters={"a": np.array(a)}) for a in ([1, 2], [1.0, 2.0], [1, 3]))
    assert first == again
    assert hash(first) == hash(again)
    assert first != other
    assert first != sl.Loss(fn, parameters={"a": [1, 2, 3]})
    assert sl.Loss(fn, parameters={"a": 2}).parameters == {"a": 2.0}
    assert sl.Loss(lambda r, y: r).parameters == {}
    with pytest.raises(ValueError, match="read-only"):
        first.parameters["a"][0] = 7


def two(r, y, a):
    return a * r * y


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sl.Loss(two, parameters=[1.0]), ["Loss.parameters", "[1.0]", "mapping"]),  # type: ignore[arg-type]
        (lambda: sl.Loss(two, parameters={"a": "big"}), ["Loss.parameters['a']", "big", "finite number"]),
        (lambda: sl.Loss(two, parameters={"a": True}), ["Loss.parameters['a']", "True"]),
        (lambda: sl.Loss(two, parameters={"a": np.nan}), ["Loss.parameters['a']", "nan"]),
        (lambda: sl.Loss(two, parameters={"a": [1.0, np.inf]}), ["Loss.parameters['a']", "inf"]),
        (lambda: sl.Loss(two, parameters={"a": [[1.0], [1.0, 2.0]]}), ["Loss.parameters['a']", "array"]),
        (lambda: sl.Loss(two, parameters={"a": None}), ["Loss.parameters['a']", "None"]),
        (lambda: sl.Loss(two, parameters={"a": 1.0, "b": 1.0}), ["Loss.parameters", "'b'", "(r, y, a)"]),
        (lambda: sl.Loss(two, parameters={"y": 1.0}), ["Loss.parameters", "'y'", "another name"]),
        (lambda: sl.Loss(two, parameters={"a b": 1.0}), ["Loss.parameters", "'a b'", "identifier"]),
        (lambda: sl.Loss(two, parameters={1: 1.0}), ["Loss.parameters", "1", "identifier"]),  # type: ignore[dict-item]
        (lambda: sl.Labels(lambda s, z: z, parameters={"a": 1.0}), ["Labels.parameters", "'a'", "(s, z)"]),
        (lambda: sl.Penalty(lambda x: x, parameters={"a": 1.0}), ["Penalty.parameters", "'a'", "(x)"]),
        (lambda: sl.Schedule(lambda t: t, parameters={"a": 1.0}), ["Schedule.parameters", "'a'", "(t)"]),
        (lambda: sl.VectorField(lambda x, t: x, parameters={"t": 1.0}), ["VectorField.parameters", "'t'"]),
        (lambda: sl.Problem(loss=sl.Loss(two), sample_ratio=1.0, teacher=sl.Normal()), ["loss", "TypeError", "'a'"]),
        (
            lambda: sl.Problem(
                loss=sl.Loss(lambda r, y, a: r if a > 0 else y, parameters={"a": 1.0}),
                sample_ratio=1.0,
                teacher=sl.Normal(),
            ),
            ["loss", "jax.numpy"],
        ),
        (lambda: sl.TwoLayer(jnp.tanh, readout="one"), ["TwoLayer.readout", "one"]),
    ],
)
def test_bad_parameters(make, words):
    with pytest.raises(sl.InputError) as caught:
        make()
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_parameters_as_words(tmp_path):
    (tmp_path / "mine.py").write_text("def loss(r, y, a, b):\n    return a * b[1] * (r - y) ** 2\n")
    words = {"name": "Loss", "fn": "mine.py:loss", "parameters": {"a": 2, "b": [1, 3]}}
    loss = describe.from_words("loss", words, "loss", describe.in_files(tmp_path))
    assert loss(2.0, 1.0) == pytest.approx(6.0)
    written = describe.to_words(loss)
    assert written["parameters"] == {"a": 2.0, "b": [1.0, 3.0]}
    assert "a * b[1]" in written["fn"]["source"]
    again = describe.from_words("loss", written | {"fn": "mine.py:loss"}, "loss", describe.in_files(tmp_path))
    assert again.parameters == loss.parameters
    with pytest.raises(sl.InputError, match="parameters"):
        describe.from_words("loss", words | {"parameters": 3.0}, "loss", describe.in_files(tmp_path))


def test_problem_with_a_named_function_and_parameters_comes_back():
    problem = sl.Problem(
        loss=sl.Square(), penalty=sl.Penalty(jax.nn.softplus), sample_ratio=1.0, teacher=sl.Normal(1.0)
    )
    assert describe.problem_from_words(describe.to_words(problem)) == problem


# what functions read


SCALE = 1.0
TABLE = np.array([1.0, 2.0])
SETTINGS = {"scale": [1.0, {"deep": 1.0}]}
MODULE = types.ModuleType("mine")


class Config:
    scale = 1.0


def helper(x):
    return SCALE * x


class Callable:
    factor = 1.0

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, r, y):
        return self.factor * self.scale * 0.5 * (r - y) ** 2

    def method(self, r, y):
        return self(r, y)

    @property
    def doubled(self):
        return 2 * self.scale


def half(r, y):
    return 0.5 * (r - y) ** 2


def _global(change):
    def set_scale(value):
        change.setattr(f"{__name__}.SCALE", value)

    return lambda r, y: SCALE * half(r, y), set_scale


def _nested_function(change):
    def fn(r, y):
        def inner(x):
            return SCALE * x

        return inner(half(r, y))

    return fn, _global(change)[1]


def _helper(change):
    return lambda r, y: helper(half(r, y)), _global(change)[1]


def _replaced_helper(change):
    def replace(value):
        change.setattr(f"{__name__}.helper", lambda x: value * x)

    return lambda r, y: helper(half(r, y)), replace


def _closure(change):
    scale = 1.0

    def set_scale(value):
        nonlocal scale
        scale = value

    return lambda r, y: scale * half(r, y), set_scale


def _closure_named_like_a_global(change):
    TABLE = 1.0

    def set_scale(value):
        nonlocal TABLE
        TABLE = value

    return lambda r, y: TABLE * half(r, y), set_scale


def _deep_closure(change):
    scale = 1.0

    def set_scale(value):
        nonlocal scale
        scale = value

    return lambda r, y: (lambda x: scale * x)(half(r, y)), set_scale


def _default(change):
    def fn(r, y, scale=1.0):
        return scale * half(r, y)

    return fn, lambda value: setattr(fn, "__defaults__", (value,))


def _keyword_default(change):
    def fn(r, y, *, scale=1.0):
        return scale * half(r, y)

    return fn, lambda value: setattr(fn, "__kwdefaults__", {"scale": value})


def _function_attribute(change):
    def fn(r, y):
        return fn.scale * half(r, y)  # type: ignore[attr-defined]

    fn.scale = 1.0  # type: ignore[attr-defined]
    return fn, lambda value: setattr(fn, "scale", value)


def _array_in_place(change):
    change.setattr(f"{__name__}.TABLE", np.array([1.0, 2.0]))

    def write(value):
        TABLE[0] = value

    return lambda r, y: jnp.asarray(TABLE)[0] * half(r, y), write


def _large_array_in_place(change):
    table = np.ones((100, 100))

    def write(value):
        table[0, 0] = value

    return lambda r, y: jnp.asarray(table)[0, 0] * half(r, y), write


def _jax_array(change):
    def set_table(value):
        change.setattr(f"{__name__}.TABLE", jnp.array([value, 2.0]))

    set_table(1.0)
    return lambda r, y: TABLE[0] * half(r, y), set_table


def _nested_container(change):
    change.setattr(f"{__name__}.SETTINGS", {"scale": [1.0, {"deep": 1.0}]})
    return lambda r, y: SETTINGS["scale"][1]["deep"] * half(r, y), lambda v: SETTINGS["scale"][1].update(deep=v)


def _class_attribute(change):
    change.setattr(Config, "scale", 1.0)
    return lambda r, y: Config.scale * half(r, y), lambda v: change.setattr(Config, "scale", v)


def _module_attribute(change):
    change.setattr(MODULE, "scale", 1.0, raising=False)
    return lambda r, y: MODULE.scale * half(r, y), lambda v: change.setattr(MODULE, "scale", v)


def _namespace(change):
    space = types.SimpleNamespace(scale=1.0)
    return lambda r, y: space.scale * half(r, y), lambda v: setattr(space, "scale", v)


def _property_of_an_object(change):
    thing = Callable(1.0)
    return lambda r, y: thing.doubled / 2 * half(r, y), lambda v: setattr(thing, "scale", v)


def _object(change):
    fn = Callable(1.0)
    return fn, lambda v: setattr(fn, "scale", v)


def _class_of_object(change):
    return Callable(1.0), lambda v: change.setattr(Callable, "factor", v)


def _bound_method(change):
    thing = Callable(1.0)
    return thing.method, lambda v: setattr(thing, "scale", v)


def _partial(change):
    scale = {"value": 1.0}
    return functools.partial(lambda s, r, y: s["value"] * half(r, y), scale), lambda v: scale.update(value=v)


def _transformed(change):
    scale = [1.0]
    fn = jax.vmap(lambda r, y: scale[0] * half(r, y), in_axes=None, axis_size=1)  # type: ignore[call-overload]
    return lambda r, y: fn(r, y)[0], lambda v: scale.__setitem__(0, v)


def _imported_inside(change):
    change.setitem(sys.modules, "sgdlimit_test_settings", MODULE)
    change.setattr(MODULE, "scale", 1.0, raising=False)

    def fn(r, y):
        import sgdlimit_test_settings  # type: ignore[import-not-found]

        return sgdlimit_test_settings.scale * half(r, y)

    return fn, lambda v: change.setattr(MODULE, "scale", v)


def scaled_body(carry, x):
    return SCALE * carry, None


def _body_of_a_loop(change):
    return lambda r, y: jax.lax.scan(scaled_body, half(r, y), None, length=1)[0], _global(change)[1]


@jax.jit
def jitted_helper(x):
    return SCALE * x


def _jitted_helper(change):
    return lambda r, y: jitted_helper(half(r, y)), _global(change)[1]


CHANGES = [value for name, value in list(globals().items()) if name.startswith("_") and callable(value)]
CHANGES = [value for value in CHANGES if getattr(value, "__module__", None) == __name__]


@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__.strip("_"))
def test_a_change_is_noticed(make, monkeypatch, force):
    fn, set_scale = make(monkeypatch)
    problem = sl.Problem(loss=sl.Loss(fn), sample_ratio=2.0, teacher=sl.Normal(1.0))

    def value():
        return float(force.jitted(problem, ONE))

    assert value() == value() == 1.0
    assert force.compiled == 1
    set_scale(2.0)
    assert value() == value() == 2.0
    assert force.compiled == 2
    set_scale(3.0)
    assert value() == force(problem.loss) == 3.0
    assert force.compiled == 3


def test_a_theory_sees_the_change():
    scale = 1.0
    problem = sl.Problem(loss=sl.Loss(lambda r, y: scale * half(r, y)), sample_ratio=math.inf, teacher=sl.Normal(1.0))
    first = sl.online(problem, sl.SGD(0.1), times=[0.0, 1.0], samples=64, progress=False)["train_loss"]
    scale = 2.0
    second = sl.online(problem, sl.SGD(0.1), times=[0.0, 1.0], samples=64, progress=False)["train_loss"]
    assert float(second[0]) == pytest.approx(2 * float(first[0]))


def test_equal_functions_share_a_program(force):
    for _ in range(3):
        assert force(sl.Loss(lambda r, y: half(r, y))) == 1.0
    for value in (1.0, 2.0, 1.0, 2.0):
        assert force(sl.Loss(lambda r, y, value=value: value * half(r, y))) == value
        assert force(sl.Loss(lambda r, y: value * half(r, y))) == value  # noqa: B023
        assert force(sl.Loss(Callable(value))) == value
        assert force(sl.Loss(functools.partial(two, a=value))) == 0.0
    assert force.compiled == 1 + 4 * 2


def test_equal_numbers_of_other_types_are_not_equal():
    def reading(value):
        return lambda r, y: value * r

    keys = [fingerprint(reading(v)) for v in (1, 1.0, True, np.float32(1), np.ones(1), -0.0, 0.0, "1", (1,), [1], None)]
    assert len(set(keys)) == len(keys)
    assert fingerprint(reading(np.nan)) == fingerprint(reading(float("nan")))


def test_the_function_itself_comes_back():
    def fn(r, y):
        return r

    leaves, form = jax.tree.flatten(sl.Loss(fn, predict=jnp.tanh))
    again = jax.tree.unflatten(form, leaves)
    assert again.fn is fn
    assert again.predict is jnp.tanh


def test_functions_that_hold_themselves_or_tracers():
    loop = []
    loop.append(loop)

    def fn(r, y):
        return fn.__name__ and len(loop) * r

    assert fingerprint(fn) == fingerprint(fn)

    def force_of(a):
        problem = sl.Problem(loss=sl.Loss(lambda r, y: a * half(r, y)), sample_ratio=2.0, teacher=sl.Normal(1.0))
        inner = jax.jit(lambda p: fields.force(p, 0.0, ONE, jnp.zeros(1), 0.0)[0])
        return inner(problem)

    np.testing.assert_allclose([jax.jit(force_of)(v) for v in (1.0, 3.0)], [1.0, 3.0])


def test_objects_that_refuse_to_be_looked_at():
    class Shy:
        def __getattribute__(self, name):
            raise RuntimeError(name)

    def holding(thing):
        return lambda: thing

    shy = Shy()
    first, again, other = (fingerprint(fn) for fn in (holding(shy), holding(shy), holding(Shy())))
    assert (first == again, first == other) == (True, False)


def test_a_look_is_quick():
    """Far below what calling a compiled function costs in any march: about 5 µs here, 30 allowed on a busy machine."""
    fn = lambda r, y: SCALE * jnp.log(jnp.cosh(r - y))  # noqa: E731
    assert min(timeit.repeat(lambda: fingerprint(fn), number=200, repeat=20)) / 200 < 30e-6


METRIC = 1.0


def scaled(r, r_star, z):
    return METRIC * r * r_star


def scaled_weight(theta, theta_star):
    return METRIC * theta * theta_star


@pytest.mark.parametrize("name", ["solve", "simulate", "online"])
def test_metrics_see_what_they_read(name, ridge, monkeypatch):
    """Of two calls with one function and two values of a global, each has its own, in every average."""
    words = {"metrics": {"scaled": scaled}, "t_max": 0.5}
    if name != "online":
        words["weight_metrics"] = {"product": scaled_weight}
    small = {
        "solve": {"dt": 0.1, "samples": 1024, "functions": 4},
        "simulate": {"dim": 30, "trials": 2},
        "online": {"samples": 512},
    }
    once = getattr(sl, name)(ridge, sl.SGF(0.3), **words, **small[name])
    monkeypatch.setattr(sys.modules[__name__], "METRIC", 8.0)
    other = getattr(sl, name)(ridge, sl.SGF(0.3), **words, **small[name])
    for average in ("train_scaled", "test_scaled", *words.get("weight_metrics", {})):
        np.testing.assert_allclose(other[average], 8 * once[average], rtol=1e-5)
        assert np.any(once[average] != 0)


def test_a_function_whose_file_is_no_python_is_told_without_its_text(tmp_path):
    """As one that is run from a page of text, or whose file was changed since: no reading of it may end a run."""
    page, names = tmp_path / "page.md", {}
    page.write_text(4 * "(an open bracket\n")
    exec(compile("def fn(r, y):\n    return (r - y) ** 2\n", str(page), "exec"), names)
    written = describe.to_words(sl.Loss(names["fn"]))
    assert written["fn"]["function"] == "fn"
