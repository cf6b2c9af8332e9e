"""The problem language as hypothesis strategies: random calls of `solve`, `simulate`, `online` and `least_squares`.

A `Call` is a call that has not been made, so that a test can show it as code before it makes it. Structure (models,
widths, functions, options) decides what is compiled and comes from a finite pool; numbers are drawn freely.
"""

import math
import random
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import sgdlimit as sl


@dataclass(frozen=True)
class Call:
    """`sl.name(argument=value, …)`; arguments may be calls themselves."""

    name: str
    arguments: dict[str, Any]

    def __call__(self) -> Any:
        made = {key: value() if isinstance(value, Call) else value for key, value in self.arguments.items()}
        return attrgetter(self.name)(sl)(**made)

    def __repr__(self) -> str:
        return f"sl.{self.name}({', '.join(f'{key}={code(value)}' for key, value in self.arguments.items())})"


def code(value: Any) -> str:
    """A value as one would type it, after `import sgdlimit as sl, language, wrong, numpy as np`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {code(part)}" for key, part in value.items()) + "}"
    if isinstance(value, type):
        return f"{value.__module__.split('.')[0].replace('sgdlimit', 'sl')}.{value.__name__}"
    if callable(value) and not isinstance(value, Call):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return f"np.{value!r}" if isinstance(value, np.ndarray) else repr(value)


# --- functions of users, each with a name, so that a call can be sent to another process ---


def erf(x):
    return jax.scipy.special.erf(x)


def tanh(x):
    return jnp.tanh(x)


def cosh_loss(r, y):
    return jnp.log(jnp.cosh(r - y))


def student(r, y, a):
    return a * jnp.log1p((r - y) ** 2)


def squares(r, y):
    return 0.5 * (jnp.sum(r) - y) ** 2 + 0.1 * jnp.sum(r**2)


def total(r):
    return jnp.sum(r)


def absolute(prediction, y):
    return jnp.abs(prediction - y)


def rotating(r, r_star, z, t):
    r = jnp.atleast_1d(r)
    return jnp.reshape(r + 0.5 * jnp.roll(r, 1) * jnp.cos(t) - z, jnp.shape(r) if r.size > 1 else ())


def quadratic_labels(r_star, z):
    return jnp.tanh(jnp.sum(r_star)) ** 2 + z


def signs(r_star, z):
    return jnp.where(jnp.sum(r_star) * jnp.abs(z) >= 0, 1.0, -1.0)


def from_noise(r_star, z, slope):
    return slope * jnp.tanh(z)


def double_well(theta, height):
    return 0.25 * height * jnp.sum((theta**2 - 1) ** 2)


def coupled(theta):
    return 0.1 * jnp.sum(theta) ** 2 + 0.05 * jnp.sum(theta**2)


def pull(theta, t):
    return 0.3 * theta / (1 + t)


def laplace(key, shape):
    return jax.random.laplace(key, shape) / math.sqrt(2)


def warmup(t, rate):
    return 1 - jnp.exp(-rate * (t + 0.1))


def halving(t):
    return 0.5 + 0.5 * jnp.exp(-t)


def margin(r, r_star, z):
    return jnp.sum(jnp.abs(r))


def fourth(theta, theta_star):
    return jnp.sum(theta**4)


# --- numbers ---


def between(low: float, high: float) -> st.SearchStrategy[float]:
    """Positive numbers, spread over the orders of magnitude, with a few digits."""
    return st.floats(math.log(low), math.log(high)).map(lambda x: float(f"{math.exp(x):.4g}"))


def or_zero(positive: st.SearchStrategy[float]) -> st.SearchStrategy[float]:
    return st.one_of(positive, positive, positive, st.just(0.0))


EXTREMES = (1e-30, 1e-12, 1e-9, 1e-6, 1e4, 1e8, 1e15, 1e30, 1e300)
"""Numbers that are allowed, and that nobody would choose."""

scale = or_zero(between(0.01, 5.0))
strength = or_zero(between(1e-4, 5.0))
temperature = or_zero(between(0.01, 3.0))
sample_ratio = between(0.05, 50.0)
small_width = between(0.02, 2.0)
share = st.floats(0.05, 1.0).map(lambda x: round(x, 3))
seeds = st.integers(0, 2**32 - 1)


def call(name: str, **arguments: Any) -> st.SearchStrategy[Call]:
    """A strategy of calls; an argument is a strategy or a value."""
    drawn = {key: value if isinstance(value, st.SearchStrategy) else st.just(value) for key, value in arguments.items()}
    return st.fixed_dictionaries(drawn).map(lambda made: Call(name, made))


# --- rooms: what can stand where, by a name that fixes the structure ---

Room = dict[str, st.SearchStrategy[Any]]

ONE_UNIT: Room = {
    "square": call("Square"),
    "logistic": call("Logistic"),
    "huber": call("Huber", threshold=small_width),
    "absolute": call("Absolute"),
    "quantile": call("Quantile", level=st.floats(0.05, 0.95).map(lambda x: round(x, 3))),
    "hinge": call("Hinge"),
    "smooth hinge": call("SmoothHinge", smoothing=small_width),
    "exponential": call("Exponential"),
    "own loss": call("Loss", fn=cosh_loss),
    "own loss, parameter": call("Loss", fn=student, parameters=st.fixed_dictionaries({"a": between(0.1, 3.0)})),
    "own error": call("Loss", fn=squares, predict=total, error=absolute),
    "field": call("VectorField", fn=rotating),
    "network": call("TwoLayer", activation=tanh, readout=between(0.1, 2.0)),
    "named network": call("TwoLayer", activation="gelu", readout=between(0.1, 2.0)),
}
MANY_UNITS: Room = {
    "erf committee": call("TwoLayer", activation=erf),
    "tanh committee": call("TwoLayer", activation=tanh, loss=call("Huber", threshold=small_width)),
    "relu committee": call("TwoLayer", activation="relu", loss=call("Absolute")),
    "trained network": call(
        "TwoLayer",
        activation=tanh,
        readout=call("Trained", start=between(0.1, 2.0), rate=or_zero(between(0.1, 2.0))),
        output_bias=call("Trained", start=0.0),
    ),
    "own loss": call("Loss", fn=squares),
    "own error": call("Loss", fn=squares, predict=total, error=absolute),
    "field": call("VectorField", fn=rotating, loss=squares, predict=total),
}
PLANTED: Room = {
    "linear": call("Linear"),
    "sign": call("Sign"),
    "logit": call("Logit", slope=between(0.1, 5.0)),
    "network": call("TwoLayerLabels", activation=erf),
    "own": call("Labels", fn=quadratic_labels),
    "own signs": call("Labels", fn=signs, binary=True),
    "noise beside a teacher": call("Noise"),
}
UNPLANTED: Room = {
    "noise": call("Noise"),
    "signs": call("Noise", binary=True),
    "own": call("Labels", fn=from_noise, parameters=st.fixed_dictionaries({"slope": between(0.1, 3.0)})),
    "classes": call("ByClass"),
}
DATA: Room = {
    "two levels": call(
        "Spectrum",
        values=st.tuples(or_zero(between(0.01, 5.0)), between(0.01, 5.0)),
        weights=(0.25, 0.75),
        teacher=st.tuples(scale, scale),
    ),
    "power law": call("PowerLaw", exponent=or_zero(between(0.1, 3.0)), source=or_zero(between(0.1, 3.0)), groups=3),
    "features": call("RandomFeatures", activation=tanh, ratio=between(0.2, 5.0)),
}
CLASSES: Room = {
    "two": call("Mixture", means=st.tuples(scale, scale), covariance=between(0.1, 3.0)),
    "three": call(
        "Mixture", means=((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)), covariance=DATA["power law"], weights=(0.5, 0.3, 0.2)
    ),
}
PENALTIES: Room = {
    "none": call("NoPenalty"),
    "ridge": call("Ridge", strength=strength),
    "L1": call("L1", strength=strength),
    "smooth L1": call("SmoothL1", strength=strength, smoothing=small_width),
    "quartic": call("Quartic", strength=strength),
    "double well": call("Penalty", fn=double_well, parameters=st.fixed_dictionaries({"height": between(0.01, 2.0)})),
    "coupled": call("Penalty", fn=coupled),
    "field": call("VectorField", fn=pull),
}
LAWS: Room = {
    "normal": call("Normal", scale=scale),
    "point": call("Point", value=st.floats(-2, 2).map(lambda x: round(x, 3))),
    "rademacher": call("Rademacher", scale=scale),
    "uniform": call("Uniform", low=st.floats(-2, 0.5).map(lambda x: round(x, 3)), high=between(0.6, 3.0)),
    "sparse": call("SparseNormal", density=share, scale=scale),
    "own": call("Law", fn=laplace),
    "own with moments": call("Law", fn=laplace, mean=0.0, second_moment=1.0),
}
SCHEDULES: Room = {
    "constant": call("Constant"),
    "power": call("PowerDecay", scale=between(0.1, 10.0), exponent=or_zero(between(0.1, 2.0))),
    "cosine": call("CosineDecay", duration=between(0.1, 10.0), final=share),
    "own": call("Schedule", fn=warmup, parameters=st.fixed_dictionaries({"rate": between(0.1, 5.0)})),
}
ALGORITHMS: Room = {
    "flow": call("GradientFlow"),
    "SGF": call("SGF", temperature=temperature),
    "SGD": call("SGD", temperature=temperature, batch_size=2),
    "shuffled": call("ShuffledSGD", temperature=temperature, batch_size=2),
    "SGF, batch": call("SGF", temperature=temperature, batch_share=call("Schedule", fn=halving)),
    "SGD, batch": call("SGD", temperature=temperature, batch_size=8, batch_share=call("PowerDecay", scale=2.0)),
    "proportional": call("ProportionalSGD", batch_fraction=share),
    "persistent": call("PersistentSGD", batch_fraction=share, correlation_time=between(0.01, 10.0)),
}
STEPS: Room = {
    "clip and noise": call("Step", clip=small_width, weight_noise=or_zero(between(0.01, 1.0))),
    "batch and decay": call("Step", clip=call("Clip", threshold=small_width, per="batch"), decay=strength),
    "heavy ball": call("Step", momentum=call("HeavyBall", friction=between(0.2, 5.0)), gradient_noise=share),
    "fixed beta": call("Step", momentum=call("Nesterov", beta=st.floats(0.0, 0.5).map(lambda x: round(x, 3)))),
    "adagrad": call("Step", rate=call("AdaGradNorm", scale=share, initial=between(0.5, 2.0))),
    "adam": call("Step", rate=call("AdamW", decay=share, scale=between(0.05, 0.5), window=between(0.2, 2.0))),
}
ALGORITHMS |= {
    f"{name}, {part}": call(name, temperature=temperature, batch_size=2, step=step)
    for name, part, step in (
        ("SGD", "clip and noise", STEPS["clip and noise"]), ("SGD", "heavy ball", STEPS["heavy ball"]),
        ("ShuffledSGD", "batch and decay", STEPS["batch and decay"]), ("SGD", "fixed beta", STEPS["fixed beta"]),
        ("ShuffledSGD", "adagrad", STEPS["adagrad"]), ("SGD", "adam", STEPS["adam"]),
    )
}  # fmt: skip
SOLVE_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"t_max": 1.0, "dt": 0.125},
    "kernels": {"t_max": 1.0, "dt": 0.125, "kernels": True},
    "times": {"times": (0.0, 0.3, 1.0), "dt": 0.125},
    "functions": {"t_max": 1.0, "dt": 0.125, "functions": 32, "extrapolate": False},
    "draws": {"t_max": 1.0, "dt": 0.125, "snapshots": (0.5, 1.0), "weight_metrics": {"fourth": fourth}},
    "metrics": {"t_max": 1.0, "dt": 0.125, "metrics": {"margin": margin}},
    "double": {"t_max": 1.0, "dt": 0.125, "dtype": "float64"},
    "averages": {"t_max": 1.0, "dt": 0.125, "averages": {"late": sl.RunningMean(0.25), "ema": sl.EMA(2.0)}},
}
SIMULATE_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "signs": {"entries": "rademacher", "snapshots": (0.25, 0.5)},
    "sparse": {"entries": "sparse", "test_samples": 50},
    "own": {"entries": laplace, "workers": 1},
    "double": {"dtype": "float64"},
}


# --- structures ---


def cycle(room: Any, turn: int, salt: str) -> str:
    """The names of a room in a random order, each once before any comes again."""
    names = list(room)
    return random.Random(f"{salt} {turn // len(names)}").sample(names, len(names))[turn % len(names)]


@dataclass(frozen=True)
class Structure:
    """What is compiled: a name in every room."""

    loss: str
    labels: str
    penalty: str
    teacher: str | None
    noise: str
    init: str
    schedule: str
    algorithm: str
    width: int
    teacher_width: int | None
    options: int
    data: str | None = None
    bias: bool = False

    def problem(self, delta: Any) -> st.SearchStrategy[Call]:
        """Problems of this structure."""
        arguments: dict[str, Any] = {
            "loss": (ONE_UNIT if self.width == 1 else MANY_UNITS)[self.loss],
            "labels": (UNPLANTED if self.teacher is None else PLANTED)[self.labels],
            "penalty": PENALTIES[self.penalty],
            "sample_ratio": delta,
            "noise": LAWS[self.noise],
            "init": LAWS[self.init],
            "width": self.width,
            "schedule": SCHEDULES[self.schedule],
        }
        if self.teacher is not None:
            arguments |= {"teacher": LAWS[self.teacher], "teacher_width": self.teacher_width}
        if self.labels == "signs":
            arguments["noise"] = call("Rademacher", scale=1.0)
        if self.labels == "classes":
            del arguments["noise"]
        if self.data is not None:
            arguments["data"] = (CLASSES if self.labels == "classes" else DATA)[self.data]
        if self.bias:
            arguments["bias"] = True
        return call("Problem", **arguments)


WIDTHS = (1, 1, 2, 1, 3)


def structure(turn: int) -> Structure:
    """The structure of this number; every run of eight has all algorithms."""
    width, planted = WIDTHS[turn % 5], turn % 6 != 5
    alike = sum((WIDTHS[before % 5] == 1) == (width == 1) for before in range(turn))
    labels = cycle(PLANTED, turn - turn // 6, "labels") if planted else cycle(UNPLANTED, turn // 6, "labels")
    data = cycle(DATA, turn // 3, "data") if turn % 3 == 1 else None
    if labels == "classes":
        data = cycle(CLASSES, turn // 6, "classes")
    return Structure(
        loss=cycle(ONE_UNIT if width == 1 else MANY_UNITS, alike, "loss"),
        labels=labels,
        penalty=cycle(PENALTIES, turn, "penalty"),
        teacher=cycle(LAWS, turn, "teacher") if planted else None,
        noise=cycle(LAWS, turn, "noise"),
        init=cycle(LAWS, turn, "init"),
        schedule=cycle(SCHEDULES, turn // 2, "schedule") if turn % 2 else "constant",
        algorithm=cycle(ALGORITHMS, turn, "algorithm"),
        width=width,
        teacher_width=(None, 1, None, 2, 3)[turn % 5],
        options=turn,
        data=data,
        bias=turn % 7 == 4,
    )


def _named(options: dict[str, dict[str, Any]], turn: int, salt: str) -> dict[str, Any]:
    return options[cycle(options, turn, salt)]


def solved(of: Structure) -> st.SearchStrategy[Call]:
    """Calls of `solve`, small."""
    options = _named(SOLVE_OPTIONS, of.options, "solve")
    model = {"problem": of.problem(sample_ratio), "algorithm": ALGORITHMS[of.algorithm]}
    return call("solve", **model, samples=256, replicas=4, seed=seeds, **options)


def simulated(of: Structure) -> st.SearchStrategy[Call]:
    """Calls of `simulate`, small; δ from a few values, since n is a shape."""
    few = ((0.05, 2.0), (0.5, 10.0))[of.options % 2]
    delta = st.sampled_from((*few, math.inf) if of.algorithm in ("SGD", "SGD, batch", "shuffled") else few)
    model = {"problem": of.problem(delta), "algorithm": ALGORITHMS[of.algorithm]}
    options = _named(SIMULATE_OPTIONS, of.options, "simulate")
    return call("simulate", **model, dim=24, trials=2, t_max=0.5, seed=seeds, **options)


def one_pass(of: Structure) -> st.SearchStrategy[Call]:
    """Calls of `online`, small."""
    model = {"problem": of.problem(math.inf), "algorithm": ALGORITHMS[of.algorithm]}
    return call("online", **model, t_max=1.0, samples=64, replicas=2, particles=64, dt=0.1, seed=seeds)


@st.composite
def ridge_regression(draw: Any) -> Call:
    """Calls of `least_squares`: nothing is compiled, so that models are drawn freely too."""
    planted = draw(st.booleans())
    laws = st.sampled_from(sorted(LAWS)).flatmap(LAWS.__getitem__)
    arguments = {
        "loss": Call("Square", {}),
        "labels": Call("Linear" if planted else "Noise", {}),
        "penalty": draw(st.one_of(PENALTIES["none"], PENALTIES["ridge"])),
        "sample_ratio": draw(st.one_of(sample_ratio, sample_ratio, sample_ratio, st.just(math.inf))),
        "noise": draw(laws),
        "init": draw(laws),
        "schedule": draw(st.sampled_from(sorted(SCHEDULES)).flatmap(SCHEDULES.__getitem__)),
    }
    if planted:
        arguments |= {"teacher": draw(laws), "teacher_width": draw(st.sampled_from((None, 1, 2, 3)))}
    data = draw(st.one_of(st.none(), st.none(), st.sampled_from(sorted(DATA)).flatmap(DATA.__getitem__)))
    if data is not None:
        arguments["data"] = data
    algorithms = ("flow", "SGF", "SGD", "SGF, batch", "SGD, batch")
    algorithm = draw(st.sampled_from(algorithms).flatmap(ALGORITHMS.__getitem__))
    more = draw(st.sampled_from(({"t_max": 5.0}, {"times": (0.1, 3.0, 30.0)}, {"t_max": 2.0, "kernels": True})))
    return Call("least_squares", {"problem": Call("Problem", arguments), "algorithm": algorithm, **more})


def numbers(of: Call, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where a call's model has a float."""
    found = []
    for key, value in of.arguments.items():
        if isinstance(value, Call):
            found += numbers(value, (*path, key))
        elif type(value) is float and path:
            found.append((*path, key))
    return found


def changed(of: Call, path: tuple[str, ...], value: Any) -> Call:
    """The call with another value at one place."""
    key, *rest = path
    return Call(of.name, of.arguments | {key: changed(of.arguments[key], tuple(rest), value) if rest else value})


@st.composite
def valid(draw: Any, pool: int, extreme: bool = False, narrow: bool = False) -> Call:
    """A call that must end finite or with a named reason.

    extreme: one number in five calls is absurd. narrow: each structure serves one function, so that less is compiled.
    """
    turn = draw(st.integers(0, pool - 1))
    of = structure(turn)
    kinds = [one_pass(of), solved(of), simulated(of)]
    if narrow:
        kinds = [kinds[turn % 3]]
    elif of.algorithm in ("proportional", "persistent"):
        kinds = kinds[1:]
    made = draw(st.one_of(*kinds, ridge_regression()))
    places = numbers(made)
    if extreme and places and draw(st.integers(0, 4)) == 3:
        made = changed(made, draw(st.sampled_from(places)), draw(st.sampled_from(EXTREMES)))
    return made
