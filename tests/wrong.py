"""Calls with one wrong argument, and the names under which it must be refused."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from language import ALGORITHMS, Call, changed, structure

import sgdlimit as sl


class Wrong(NamedTuple):
    """A call whose argument of one of these names is wrong."""

    made: Call
    names: tuple[str, ...]


# --- functions that are no use ---


def no_arguments():
    return 0.0


def seven_arguments(a, b, c, d, e, f, g):
    return a


def vector(*arguments):
    return jnp.ones(5)


def nothing(*arguments):
    return None


def text(*arguments):
    return "r"


def raises(*arguments):
    raise KeyError("no such thing")


def branches(*arguments):
    return arguments[0] if jnp.sum(arguments[0]) > 0 else -arguments[0]


def with_math(*arguments):
    return math.exp(arguments[0])


def complex_number(*arguments):
    return 1j * jnp.sum(arguments[0])


def not_a_number(*arguments):
    return jnp.nan * jnp.sum(arguments[0])


def own_dice(key, shape):
    return np.random.default_rng().normal(size=shape)


def other_shape(key, shape):
    return jnp.zeros((3, 7))


# --- wrong values ---

ANYTHING = (None, "1.0", b"1", True, 1j, (), (1.0, 2.0), {}, {"a": 1}, np.array([1.0, 2.0]), sl.Ridge, object, "nan")
NOT_FINITE = (float("nan"), float("inf"), -float("inf"), 10**400)
NO_NUMBER = (*ANYTHING, *NOT_FINITE)
NEGATIVE = (-1e-9, -1.0, -1e300)
NO_COUNT = (*ANYTHING, *NOT_FINITE, 1.5, 1.0, "3", 0, -1, 2**40, -(2**70))
NO_FUNCTION = (None, 3, "sin", 1.0, (), {})
USELESS = (no_arguments, seven_arguments, vector, nothing, text, raises, branches, with_math, complex_number)
NO_FLAG = (None, 0, 1, "yes", 1.0, (), np.array([True, False]))
NO_MODEL = ("Square", 3.0, object, True, (), {}, math.sin, {"name": "Square"})
NO_TIMES = ("0, 1", (), (1.0, 0.5), (0.0, float("nan")), (-1.0, 1.0), ((0.0, 1.0),), (1.0, 1.0), (1j,), object, {})
NO_WORD = ("", "exakt", None, 3, True, ("float32",), {})
NO_MAPPING = (3, "margin", (1,), {"train_loss": math.sin}, {1: math.sin}, {"a b": math.sin}, {"margin": 3})
NO_SEED = (*ANYTHING[:-1], 1.5, -1, 2**32, float("nan"))
NO_PARAMETERS = (None, 3, "a", {"b": 1.0}, {"1": 1.0})
NO_DATA = ("X", None, np.zeros((0, 3)), np.zeros(4), np.full((4, 3), np.nan), np.array([["a"]]), np.zeros((2, 2, 2)))
ENORMOUS = (2**31 - 1,)
"""Counts that are allowed, and that no machine can serve."""

nonnegative = (*NO_NUMBER, *NEGATIVE)
positive = (*nonnegative, 0.0)
fraction = (*positive, 1.0001, 1e300)
room = {
    "loss": (*NO_MODEL, None, sl.Ridge(1.0), sl.Square),
    "labels": (*NO_MODEL, None, sl.Square(), sl.Sign),
    "penalty": (*NO_MODEL, None, sl.Square(), sl.Ridge),
    "law": (*NO_MODEL, sl.Square(), sl.Normal),
    "schedule": (*NO_MODEL, None, sl.Square(), sl.CosineDecay),
    "data": (*NO_MODEL, None, sl.Square(), sl.Spectrum, (1.0, 2.0)),
}
NO_LIST = (3.0, "1", True, (), ((1.0,),), {}, object, (float("nan"),), (math.inf, 1.0), (1j,), ("a",), (1.0,) * 5000)
WRONG: dict[tuple[str, str], tuple[Any, ...]] = {
    ("Problem", "loss"): room["loss"],
    ("Problem", "labels"): room["labels"],
    ("Problem", "penalty"): room["penalty"],
    ("Problem", "teacher"): room["law"],
    ("Problem", "noise"): (*room["law"], None),
    ("Problem", "init"): (*room["law"], None),
    ("Problem", "schedule"): room["schedule"],
    ("Problem", "data"): room["data"],
    ("Problem", "sample_ratio"): tuple(value for value in positive if not (type(value) is float and value == math.inf)),
    ("Problem", "width"): (*NO_COUNT, *ENORMOUS),
    ("Problem", "teacher_width"): tuple(value for value in (*NO_COUNT, *ENORMOUS) if value is not None),
    ("Huber", "threshold"): positive,
    ("Quantile", "level"): (*positive, 1.0, 1.5),
    ("SmoothHinge", "smoothing"): positive,
    ("Loss", "fn"): (*NO_FUNCTION, *USELESS, not_a_number),
    ("Loss", "predict"): (*NO_FUNCTION[1:], *USELESS[:8]),
    ("Loss", "error"): (*NO_FUNCTION[1:], *USELESS[:8]),
    ("Loss", "parameters"): NO_PARAMETERS,
    ("VectorField", "fn"): (*NO_FUNCTION, no_arguments, seven_arguments, vector, nothing, text, raises, branches),
    ("TwoLayer", "activation"): (*NO_FUNCTION, no_arguments, seven_arguments, nothing, text, raises, with_math),
    ("TwoLayer", "loss"): room["loss"],
    ("TwoLayer", "readout"): ("1.0", None, float("nan"), (1.0, float("inf")), {}, object),
    ("TwoLayerLabels", "activation"): (*NO_FUNCTION, no_arguments, seven_arguments, nothing, text, raises, with_math),
    ("Logit", "slope"): positive,
    ("Labels", "fn"): (*NO_FUNCTION, *USELESS, not_a_number),
    ("Labels", "binary"): NO_FLAG,
    ("Labels", "parameters"): NO_PARAMETERS,
    ("Noise", "binary"): NO_FLAG,
    ("Ridge", "strength"): nonnegative,
    ("L1", "strength"): nonnegative,
    ("SmoothL1", "strength"): nonnegative,
    ("SmoothL1", "smoothing"): positive,
    ("Quartic", "strength"): nonnegative,
    ("Penalty", "fn"): (*NO_FUNCTION, *USELESS, not_a_number),
    ("Penalty", "parameters"): NO_PARAMETERS,
    ("Normal", "scale"): (*nonnegative, 1e300),
    ("Point", "value"): (None, "1", True, float("nan"), math.inf, ((1.0, 2.0), (3.0, 4.0)), (1.0,) * 7, {}, object, 1j),
    ("Rademacher", "scale"): (*nonnegative, 1e300),
    ("Uniform", "low"): (*NO_NUMBER, -1e300),
    ("Uniform", "high"): (*NO_NUMBER, -1e6, 1e300),
    ("SparseNormal", "density"): fraction,
    ("SparseNormal", "scale"): (*nonnegative, 1e300),
    ("Law", "fn"): (*NO_FUNCTION, no_arguments, seven_arguments, nothing, text, raises, other_shape, own_dice),
    ("Law", "mean"): (*NO_NUMBER, None, 1e300),
    ("Law", "second_moment"): (*NO_NUMBER, -1.0, 1e300),
    ("PowerDecay", "scale"): positive,
    ("PowerDecay", "exponent"): nonnegative,
    ("CosineDecay", "duration"): positive,
    ("CosineDecay", "final"): nonnegative,
    ("Schedule", "fn"): (*NO_FUNCTION, *USELESS[:8]),
    ("Schedule", "parameters"): NO_PARAMETERS,
    ("Spectrum", "values"): (*NO_LIST, None, (0.0, 0.0), (-1.0, 2.0)),
    ("Spectrum", "weights"): (*NO_LIST, (1.0,), (0.5, 0.6), (-0.5, 1.5)),
    ("Spectrum", "teacher"): (*NO_LIST, (1.0,), (1.0, 2.0, 3.0)),
    ("PowerLaw", "exponent"): (*nonnegative, 11.0),
    ("PowerLaw", "source"): (*NO_NUMBER, -11.0, 11.0),
    ("PowerLaw", "groups"): (*NO_COUNT, *ENORMOUS),
    ("PowerLaw", "dim"): (*NO_COUNT[1:], 3, *ENORMOUS),
    ("RandomFeatures", "activation"): (*NO_FUNCTION, no_arguments, seven_arguments, nothing, text, raises, with_math),
    ("RandomFeatures", "ratio"): (*positive, 1e5),
    ("RandomFeatures", "nodes"): (*NO_COUNT, 1, *ENORMOUS),
    ("SGF", "temperature"): nonnegative,
    ("SGF", "batch_share"): room["schedule"],
    ("SGD", "temperature"): nonnegative,
    ("SGD", "batch_size"): NO_COUNT,
    ("SGD", "batch_share"): tuple(value for value in room["schedule"] if value is not None),  # None is its default
    ("ShuffledSGD", "temperature"): nonnegative,
    ("ShuffledSGD", "batch_size"): NO_COUNT,
    ("ProportionalSGD", "batch_fraction"): fraction,
    ("PersistentSGD", "batch_fraction"): fraction,
    ("Trained", "start"): ("1.0", None, float("nan"), (1.0, float("inf")), {}, object),
    ("Trained", "rate"): nonnegative,
    ("Step", "clip"): tuple(value for value in positive if value is not None),  # None is its default
    ("Step", "weight_noise"): tuple(value for value in nonnegative if value is not None),
    ("Step", "gradient_noise"): tuple(value for value in nonnegative if value is not None),
    ("Step", "decay"): tuple(value for value in nonnegative if value is not None),
    ("Step", "momentum"): tuple(value for value in NO_MODEL if value is not None),
    ("Step", "rate"): tuple(value for value in NO_MODEL if value is not None),
    ("Clip", "threshold"): positive,
    ("HeavyBall", "friction"): positive,
    ("Nesterov", "beta"): (*nonnegative, 1.0, 2.0),
    ("AdaGradNorm", "scale"): positive,
    ("AdaGradNorm", "initial"): positive,
    ("AdamW", "decay"): nonnegative,
    ("AdamW", "scale"): positive,
    ("AdamW", "window"): positive,
    ("PersistentSGD", "correlation_time"): positive,
}
"""Wrong values of every argument of every model."""

times = {"t_max": positive[1:], "times": (*NO_TIMES, (0.0,))}
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "solve": times
    | {
        "problem": NO_MODEL,
        "algorithm": (*NO_MODEL, None, sl.SGD),
        "dt": positive[1:],
        "samples": (*NO_COUNT[1:], 63, *ENORMOUS),
        "seed": NO_SEED,
        "replicas": (*NO_COUNT, 3, 5000),
        "extrapolate": NO_FLAG[1:],
        "functions": (*NO_COUNT[1:], 1, 65),
        "dtype": NO_WORD,
        "kernels": NO_FLAG,
        "snapshots": (*NO_TIMES, 1e9),
        "metrics": (*NO_MAPPING, {"margin": vector}, {"margin": raises}),
        "weight_metrics": (*NO_MAPPING, {"margin": vector}, {"margin": no_arguments}),
    }
    | {word: NO_WORD[:2] for word in ("response", "memory", "method", "damping", "iterations")},  # gone
    "references.tangents": times
    | {
        "problem": NO_MODEL,
        "algorithm": (*NO_MODEL, None, sl.SGD),
        "dt": (*positive[1:], 0.001),
        "samples": (*NO_COUNT[1:], 63, *ENORMOUS),
        "seed": NO_SEED,
        "replicas": (*NO_COUNT, 3, 5000),
        "extrapolate": NO_FLAG[1:],
        "dtype": NO_WORD,
        "kernels": NO_FLAG,
        "metrics": (*NO_MAPPING, {"margin": vector}, {"margin": raises}),
    },
    "references.processes": times | {"problem": NO_MODEL, "algorithm": (*NO_MODEL, None, sl.SGD, sl.SGD(0.3))},
    "references.fixed_point": times
    | {
        "problem": NO_MODEL,
        "algorithm": (*NO_MODEL, None, sl.SGD),
        "dt": (*positive[1:], 0.001),
        "samples": (*NO_COUNT[1:], 63, *ENORMOUS),
        "kernels": NO_FLAG,
        "damping": fraction,
        "iterations": NO_COUNT,
    },
    "simulate": times
    | {
        "problem": NO_MODEL,
        "algorithm": (*NO_MODEL, None, sl.SGD),
        "dim": (*NO_COUNT, 1, 10**6, 5 * 10**6),
        "trials": (*NO_COUNT, *ENORMOUS),
        "dt": (*positive[1:], 0.1),
        "seed": NO_SEED,
        "entries": (None, 3, "normal", (), {}, sl.Normal, own_dice, other_shape, raises, no_arguments),
        "snapshots": (*NO_TIMES, 1e9),
        "test_samples": NO_COUNT[1:],
        "dtype": ("", "float16", 3, None, (), {}),
        "workers": NO_COUNT[1:],
        "watch": (3, "print", (), {}),
    },
    "online": times
    | {
        "problem": NO_MODEL,
        "algorithm": (*NO_MODEL, None, sl.ProportionalSGD(0.5)),
        "samples": (*NO_COUNT, 63, *ENORMOUS),
        "replicas": (*NO_COUNT, 1, *ENORMOUS),
        "particles": (*NO_COUNT, 63),
        "dt": positive,
        "seed": NO_SEED,
        "metrics": (*NO_MAPPING, {"margin": vector}, {"margin": raises}),
    },
    "least_squares": times
    | {
        "problem": NO_MODEL,
        "algorithm": (*NO_MODEL, None, sl.ShuffledSGD(0.1)),
        "kernels": NO_FLAG,
    },
    "simulate_on_data": times
    | {
        "X": NO_DATA,
        "y": ("y", np.zeros(3), np.full(8, np.inf), np.zeros((8, 2)), np.array(["a"] * 8)),
        "algorithm": (*NO_MODEL, None),
        "binary": NO_FLAG[1:],
        "loss": room["loss"][:4],
        "penalty": room["penalty"][:4],
        "trials": NO_COUNT,
        "seed": NO_SEED,
    },
    "grid.linear": {"t_max": positive, "points": (*NO_COUNT, 1)},
    "grid.geometric": {"t_max": positive, "first": (*positive, 2.0), "points": (*NO_COUNT, 2)},
    "load": {"path": (3, None, (), {}, "no such file.nc", "", 1.0, b"x")},
    "compare": {"first": (3, None, "run.nc", sl.Square()), "second": (3, None, "run.nc", sl.Square())},
}
"""Wrong values of every argument of every function."""

LINEAR = Call("Problem", {"loss": Call("Square", {}), "sample_ratio": 2.0, "teacher": Call("Normal", {"scale": 1.0})})
MODEL = {"problem": LINEAR, "algorithm": Call("SGD", {"temperature": 0.3, "batch_size": 2})}
RIGHT: dict[str, dict[str, Any]] = {
    # more than can be done in the time that a refusal may take
    "solve": MODEL | {"t_max": 30.0, "dt": 0.01, "samples": 2**17},
    "references.tangents": MODEL | {"t_max": 10.0, "dt": 0.05, "samples": 2**17},
    "references.processes": MODEL | {"algorithm": Call("SGF", {"temperature": 0.3}), "t_max": 10.0, "dt": 0.05},
    "references.fixed_point": MODEL | {"t_max": 10.0, "dt": 0.05, "samples": 2**17},
    "simulate": MODEL | {"dim": 2000, "trials": 100, "t_max": 100.0},
    "online": MODEL | {"t_max": 1e4, "samples": 2**16},
    "least_squares": MODEL | {"t_max": 50.0, "kernels": False},
    "simulate_on_data": {
        "X": np.eye(8, 4), "y": np.ones(8), "algorithm": MODEL["algorithm"], "t_max": 1e7,
    },
    "grid.linear": {"t_max": 1.0, "points": 5},
    "grid.geometric": {"t_max": 1.0, "first": 0.1, "points": 5},
    "load": {"path": "run.nc"},
    "compare": dict.fromkeys(("first", "second"), Call("least_squares", MODEL | {"t_max": 1.0})),
}  # fmt: skip


def places(of: Call, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """Arguments of models in a call, each with the model's name."""
    found = []
    for key, value in of.arguments.items():
        if (of.name, key) in WRONG:
            found.append(((*path, key), of.name))
        if isinstance(value, Call):
            found += places(value, (*path, key))
    return found


def wrong_at(made: Call, path: tuple[str, ...], model: str, value: Any) -> Wrong:
    """A call with a wrong value at one place, and the names that tell which."""
    names = (path[-1], model)
    if callable(value) or path[-1] in ("loss", "second_moment", "mean"):  # found out where the function stands
        names += path[1:-1] + (("mean", "second_moment") if model == "Law" else ())
    return Wrong(changed(made, path, value), names)


@st.composite
def right_model(draw: Any, turn: int) -> Call:
    """A call of `solve` with the structure of this number."""
    of = structure(turn)
    right = {"problem": draw(of.problem(2.0)), "algorithm": draw(ALGORITHMS[of.algorithm])}
    return Call("solve", RIGHT["solve"] | right)


@st.composite
def wrong_model(draw: Any) -> Wrong:
    """A problem or an algorithm of the language, wrong at one place."""
    made = draw(right_model(draw(st.integers(0, 999))))
    path, model = draw(st.sampled_from(places(made)))
    return wrong_at(made, path, model, draw(st.sampled_from(WRONG[model, path[-1]])))


@st.composite
def wrong_option(draw: Any) -> Wrong:
    """A call of a function, one of its own arguments wrong."""
    function = draw(st.sampled_from(sorted(OPTIONS)))
    argument = draw(st.sampled_from(sorted(OPTIONS[function])))
    value = draw(st.sampled_from(OPTIONS[function][argument]))
    return Wrong(Call(function, RIGHT[function] | {argument: value}), (argument,))


invalid = st.one_of(wrong_model(), wrong_option())


def every(models: Iterable[Call]) -> Iterator[Wrong]:
    """Every wrong value of every argument: of the functions, and of each model that comes up, wherever it stands."""
    for function, arguments in OPTIONS.items():
        for argument, values in arguments.items():
            for value in values:
                yield Wrong(Call(function, RIGHT[function] | {argument: value}), (argument,))
    seen = set()
    for made in models:
        for path, model in places(made):
            if (model, *path[-2:]) not in seen:
                seen.add((model, *path[-2:]))
                for value in WRONG[model, path[-1]]:
                    yield wrong_at(made, path, model, value)
