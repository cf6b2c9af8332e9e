"""One point of a sweep: what is called there, the hash of all of it, and the arrays that come out.

`perform` is all that a worker runs. It knows no store and no other point, and gives for a task the same numbers as the
single call, wherever it runs.
"""

import contextlib
import functools
import hashlib
import json
import time as clock
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _machine as machine
from .._fingerprint import digest
from .._version import __version__
from .._vocabulary import parameters_of
from ..algorithms import Algorithm
from ..control.question import Numbers, numbers
from ..control.stages import CROWDED
from ..errors import DivergenceWarning, InputError, ToleranceWarning, UnreliableWarning, reject
from ..execute.crew import Talk, alone
from ..execute.place import Shared
from ..problem import Problem
from ..results import Result
from ..results import metrics as own
from ..solver import solving
from . import kept

KINDS = ("solve", "least_squares", "online", "simulate")
"""What can be computed at a point."""
NOT_HERE = ("problem", "algorithm", "times", "progress", "kernels", "snapshots", "checkpoint", "executor", "watch")
"""Arguments of these functions that a sweep gives itself, or whose results it does not keep."""
WITHOUT_EFFECT = ("workers",)
"""Arguments on which no number depends."""
LETTERS = 32
"""Of a hash, in hexadecimal: 128 bits."""


def function(kind: str) -> Callable[..., Result]:
    """The function that computes a kind."""
    from ..exact import least_squares, online
    from ..simulation import simulate
    from ..solver import solve

    return {"solve": solve, "least_squares": least_squares, "online": online, "simulate": simulate}[kind]


@functools.cache
def takes(kind: str) -> tuple[str, ...]:
    """Options of a kind: what the user, or an axis, may say to its function; t_max and seed included."""
    return tuple(name for name in parameters_of(function(kind)) if name not in NOT_HERE)


def numerical_version() -> str:
    """Numbers of another one may differ in their last bits."""
    return f"sgdlimit {__version__}, jax {jax.__version__}, numpy {np.__version__}"


class Call(NamedTuple):
    """One function and what it is told beside problem, algorithm, times and seed."""

    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One point: all that goes into it, and the hash under which it is known."""

    problem: Problem
    algorithm: Algorithm
    calls: tuple[Call, ...]
    times: np.ndarray
    seed: int
    final: bool
    """Whether only values at the last time are kept."""
    labels: dict[str, float | str]
    """Values along the axes, as they are shown."""
    key: str
    """Hash of everything above, less the labels, and of the numerical version."""
    version: str


class Outcome(NamedTuple):
    """What a point gave: arrays under `kind/name`, with the names of their axes."""

    arrays: dict[str, np.ndarray]
    dims: dict[str, tuple[str, ...]]
    lasting: bool
    """Whether it would come out so again. What ran out of memory might not."""

    @property
    def failed(self) -> bool:
        """Whether one of its kinds failed."""
        return any(name.endswith("/status") and str(word) == "failed" for name, word in self.arrays.items())


@functools.lru_cache(maxsize=1024)
def _structure(structure: Any) -> str:
    """In letters, what a problem or an algorithm is, but for its numbers."""
    return digest(jax.tree.unflatten(structure, [0.0] * structure.num_leaves))


def identify(model: Problem | Algorithm) -> str:
    """A problem or an algorithm in letters, the same in another process; fast for thousands that differ in numbers."""
    leaves, structure = jax.tree.flatten(model)
    numbers = ",".join(repr(x) if isinstance(x, float | int) else digest(x) for x in leaves)
    return f"{_structure(structure)} {numbers}"


def _option(value: object) -> str:
    return json.dumps(value) if isinstance(value, float | int | str | bool | None) else digest(value)


def make(
    problem: Problem,
    algorithm: Algorithm,
    calls: tuple[Call, ...],
    times: np.ndarray,
    *,
    final: bool,
    labels: dict[str, float | str],
    seed: int,
    own_seed: bool,
) -> Task:
    """A task and its hash. With `own_seed` the point's seed is drawn from its hash and from `seed`."""
    inputs = {
        "problem": identify(problem),
        "algorithm": identify(algorithm),
        "times": hashlib.sha256(times.tobytes()).hexdigest(),
    }
    inputs |= {f"{call.kind}.{name}": _option(value) for call in calls for name, value in call.options.items()
               if name not in WITHOUT_EFFECT}  # fmt: skip
    inputs["kinds"] = ",".join(call.kind for call in calls)
    if own_seed:
        seed = int(_hash(inputs | {"seed": seed})[:8], 16)
    version = numerical_version()
    key = _hash(inputs | {"final": final, "seed": seed, "numerical version": version})[:LETTERS]
    return Task(problem, algorithm, calls, times, seed, final, labels, key, version)


def _hash(words: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def perform(task: Task) -> Outcome:
    """Compute a point. Whatever goes wrong with it is told as its status; only Ctrl-C and kills come through."""
    return alone(performing(task, Shared()), progress=False)


def performing(task: Task, shared: Shared) -> Talk[Outcome]:
    """`perform` as a talk, for who carries several points on at once."""
    results: dict[str, Result] = {}
    arrays: dict[str, np.ndarray] = {}
    dims: dict[str, tuple[str, ...]] = {}
    lasting = True

    def put(name: str, values: object, *axes: str) -> None:
        arrays[name], dims[name] = np.asarray(values), axes

    for kind, options in task.calls:
        begin = clock.perf_counter()
        status, reason = "failed", ""
        try:
            result = yield from _calling(task, kind, options, shared)
            status, reason = result.status, result.message
            lasting = lasting and not reason.endswith(CROWDED)
            results[kind] = result
            own_steps = kind == "simulate" or task.algorithm.discrete
            for name, axes, values in kept.curves(result, task.times, task.final, own_steps):
                put(f"{kind}/{name}", values, *axes)
        except InputError as error:
            reason = str(error)
        except Exception as error:
            reason, lasting = _told(error), False
        put(f"{kind}/status", str(status))
        put(f"{kind}/reason", reason)
        put(f"{kind}/seconds", clock.perf_counter() - begin)
    if len(task.calls) > 1:
        for name, values in kept.compared([call.kind for call in task.calls], results).items():
            put(f"comparison/{name}", values, "against", "variable")
    return Outcome(arrays, dims, lasting)


def _calling(task: Task, kind: str, options: dict[str, Any], shared: Shared) -> Talk[Result]:
    if task.version != numerical_version():
        raise RuntimeError(f"the worker has {numerical_version()}, the sweep {task.version}; install the same")
    seeded = {"seed": task.seed} if "seed" in takes(kind) else {}
    given = {"times": task.times, "progress": False, **seeded, **options}
    if kind == "solve":
        return (yield from solving(task.problem, task.algorithm, shared, **given))
    return function(kind)(task.problem, task.algorithm, **given)


def _told(error: Exception) -> str:
    """One line; memory by its name, whoever ran out of it."""
    text = " ".join(str(error).split())[:200]
    return f"out of memory: {text}" if machine.ran_out(error) else f"{type(error).__name__}: {text}"


def failed(task: Task, reason: str) -> Outcome:
    """Of a point that nobody computed to its end."""
    arrays = {}
    for kind, _ in task.calls:
        arrays |= {f"{kind}/status": np.asarray("failed"), f"{kind}/reason": np.asarray(reason)}
        arrays |= {f"{kind}/seconds": np.asarray(np.nan)}
    return Outcome(arrays, dict.fromkeys(arrays, ()), lasting=False)


def check(kind: str, name: str) -> None:
    """Refuse an option that the function of a kind has, but a sweep does not keep the results of."""
    if name in NOT_HERE and name in parameters_of(function(kind)):
        why = f"a sweep keeps curves and final values; for one point call sl.{kind} itself"
        raise reject(name, "an option of a sweep", why)


@functools.cache
def _required(kind: str) -> tuple[str, ...]:
    """Options without which a kind cannot be called."""
    parameters = parameters_of(function(kind)).values()
    return tuple(p.name for p in parameters if p.default is p.empty and p.name not in NOT_HERE)


def check_call(task: Task) -> None:
    """Refuse options that cannot be right, whatever the problem."""
    for kind, options in task.calls:
        for name in _required(kind):
            if name not in options:
                raise reject(name, "nothing", f"sl.{kind} needs it")
        if kind == "solve":
            numbers(**{name: options[name] for name in Numbers._fields if name in options})


def check_metrics(task: Task) -> None:
    """Refuse averages of the user's that cannot be taken."""
    for _, options in task.calls:
        own.on_samples(task.problem, options.get("metrics"))
        own.on_weights(task.problem, options.get("weight_metrics"))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings about single results in this process, until the end: `status` and `reason` of the point tell them."""
    with warnings.catch_warnings():
        _ignore()
        yield


def perform_elsewhere(task: Task) -> Outcome:
    """`perform` in a process that does nothing else, without such warnings."""
    _ignore()
    return perform(task)


def _ignore() -> None:
    for kind in (DivergenceWarning, ToleranceWarning, UnreliableWarning):
        warnings.simplefilter("ignore", kind)
