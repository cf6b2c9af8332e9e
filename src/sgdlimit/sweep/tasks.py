"""One point of a sweep: what is called there, the hash of all of it, and the arrays that come out.

`perform` is all that a worker runs. It knows no store and no other point, and gives for a task the same numbers as the
single call, wherever it runs.
"""

import contextlib
import functools
import hashlib
import inspect
import json
import time as clock
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from .._fingerprint import digest
from .._version import __version__
from ..algorithms import Algorithm
from ..comparison import compare
from ..dmft import metrics as own
from ..dmft.solver import Numbers, numbers
from ..errors import DivergenceWarning, InputError, ToleranceWarning, UnreliableWarning, reject
from ..problem import Problem
from ..results import Result, Runs
from ..results.variables import BESIDE, COMPARABLE

KINDS = ("solve", "least_squares", "online", "simulate")
"""What can be computed at a point."""
NOT_HERE = ("problem", "algorithm", "times", "progress", "kernels", "snapshots", "checkpoint")
"""Arguments of these functions that a sweep gives itself, or whose results it does not keep."""
WITHOUT_EFFECT = ("workers",)
"""Arguments on which no number depends."""
LETTERS = 32
"""Of a hash, in hexadecimal: 128 bits."""
COMPARED = (*COMPARABLE, "all")
"""What a comparison has a p-value of: each curve, and all together."""


def function(kind: str) -> Callable[..., Result]:
    """The function that computes a kind."""
    from ..dmft import solve
    from ..limits import least_squares, online
    from ..simulation import simulate

    known: dict[str, Callable[..., Result]] = {
        "solve": solve, "least_squares": least_squares, "online": online, "simulate": simulate
    }  # fmt: skip
    return known[kind]


@functools.cache
def takes(kind: str) -> tuple[str, ...]:
    """Options of a kind: what the user, or an axis, may say to its function; t_max and seed included."""
    return tuple(name for name in inspect.signature(function(kind)).parameters if name not in NOT_HERE)


def numerical_version() -> str:
    """Numbers of another one may differ in their last bits."""
    return f"sgdlimit {__version__}, jax {jax.__version__}, numpy {np.__version__}"


class Call(NamedTuple):
    """One function and what it is told beside problem, algorithm, times and seed."""

    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One point."""

    problem: Problem
    algorithm: Algorithm
    calls: tuple[Call, ...]
    times: np.ndarray
    seed: int
    final: bool
    """Whether only values at the last time are kept."""
    labels: dict[str, Any]
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


@functools.lru_cache(maxsize=1024)
def _structure(structure: Any) -> str:
    """In letters, what a problem or an algorithm is, but for its numbers."""
    return digest(jax.tree.unflatten(structure, [0.0] * structure.num_leaves))


def identify(model: Any) -> str:
    """A problem or an algorithm in letters, the same in another process; fast for thousands that differ in numbers."""
    leaves, structure = jax.tree.flatten(model)
    numbers = ",".join(repr(x) if isinstance(x, float | int) else digest(x) for x in leaves)
    return f"{_structure(structure)} {numbers}"


def _option(value: Any) -> str:
    return json.dumps(value) if isinstance(value, float | int | str | bool | None) else digest(value)


def make(
    problem: Problem,
    algorithm: Algorithm,
    calls: tuple[Call, ...],
    times: np.ndarray,
    *,
    final: bool,
    labels: dict[str, Any],
    seed: int,
    own_seed: bool,
) -> Task:
    """A task and its hash. With `own_seed` the point's seed is drawn from its hash and from `seed`."""
    inputs = {
        "problem": identify(problem),
        "algorithm": identify(algorithm),
        "times": hashlib.sha256(times.tobytes()).hexdigest(),
        "final": final,
    }
    inputs |= {f"{call.kind}.{name}": _option(value) for call in calls for name, value in call.options.items()
               if name not in WITHOUT_EFFECT}  # fmt: skip
    inputs["kinds"] = ",".join(call.kind for call in calls)
    if own_seed:
        seed = int(_hash(inputs | {"seed": seed})[:8], 16)
    version = numerical_version()
    key = _hash(inputs | {"seed": seed, "numerical version": version})[:LETTERS]
    return Task(problem, algorithm, calls, times, seed, final, labels, key, version)


def _hash(words: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def perform(task: Task) -> Outcome:
    """Compute a point. Whatever goes wrong with it is told as its status; only Ctrl-C and kills come through."""
    results: dict[str, Result] = {}
    arrays: dict[str, np.ndarray] = {}
    dims: dict[str, tuple[str, ...]] = {}
    lasting = True

    def put(name: str, values: Any, *axes: str) -> None:
        arrays[name], dims[name] = np.asarray(values), axes

    for kind, options in task.calls:
        begin = clock.perf_counter()
        status, reason = "failed", ""
        try:
            result = _call(task, kind, options)
            status, reason = result.status, result.message
            results[kind] = result
            for name, axes, values in _kept(task, kind, result):
                put(f"{kind}/{name}", values, *axes)
        except InputError as error:
            reason = str(error)
        except Exception as error:
            reason, lasting = _told(error), False
        put(f"{kind}/status", str(status))
        put(f"{kind}/reason", reason)
        put(f"{kind}/seconds", clock.perf_counter() - begin)
    if len(task.calls) > 1:
        for name, values in _compared(task, results).items():
            put(f"comparison/{name}", values, "against", "variable")
    return Outcome(arrays, dims, lasting)


def _call(task: Task, kind: str, options: dict[str, Any]) -> Result:
    if task.version != numerical_version():
        raise RuntimeError(f"the worker has {numerical_version()}, the sweep {task.version}; install the same")
    seeded = {"seed": task.seed} if "seed" in takes(kind) else {}
    call = function(kind)
    return call(task.problem, task.algorithm, times=task.times, progress=False, **seeded, **options)


def _told(error: Exception) -> str:
    """One line; memory by its name, whoever ran out of it."""
    text = " ".join(str(error).split())[:200]
    short = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()
    return f"out of memory: {text}" if short else f"{type(error).__name__}: {text}"


def failed(task: Task, reason: str) -> Outcome:
    """Of a point that nobody computed to its end."""
    arrays = {}
    for kind, _ in task.calls:
        arrays |= {f"{kind}/status": np.asarray("failed"), f"{kind}/reason": np.asarray(reason)}
        arrays |= {f"{kind}/seconds": np.asarray(np.nan)}
    return Outcome(arrays, dict.fromkeys(arrays, ()), lasting=False)


def _kept(task: Task, kind: str, result: Result) -> Any:
    """Curves with what stands beside them, at the times of the sweep: (name, axes, values).

    Copies of a theory (`x_replicas`) are not kept; those of a simulation are, as `x_trials`.
    """
    places = _places(task.times, result)
    if kind == "simulate" or task.algorithm.discrete:
        yield "recorded_time", *_at(places, ("time",), result.time, task.final)
    for name in result.curves:
        if isinstance(result, Runs):
            axes = result.variables[name].dims
            mean, error = result.curve(name)
            yield name, *_at(places, axes[1:], mean, task.final)
            yield f"{name}_stderr", *_at(places, axes[1:], error, task.final)
            yield f"{name}_trials", *_at(places, axes, result[name], task.final)
        else:
            for ending in ("", *BESIDE):
                found = result.variables.get(name + ending)
                if found is not None and ending != "_replicas":
                    yield name + ending, *_at(places, found.dims, found.values, task.final)


def _places(times: np.ndarray, result: Result) -> np.ndarray:
    """Where each time of the sweep is recorded; −1 beyond a divergence.

    An algorithm with steps of its own records at the nearest one, as `recorded_time` tells.
    """
    there = result.time
    if not len(there):
        return np.full(len(times), -1)
    places = np.abs(times[:, None] - there).argmin(axis=1)
    beyond = (result.status == "diverged") & (times > there[-1] * (1 + 1e-9))
    return np.where(beyond, -1, places)


def _at(
    places: np.ndarray, axes: tuple[str, ...], values: np.ndarray, final: bool
) -> tuple[tuple[str, ...], np.ndarray]:
    """Values at these places along time, NaN where there is none; the last alone, without an axis, if `final`."""
    along = axes.index("time")
    wanted = places[-1:] if final else places
    found = np.asarray(values, dtype=np.float64)
    found = np.take(found, wanted, axis=along) if found.shape[along] else np.full(
        (*found.shape[:along], len(wanted), *found.shape[along + 1 :]), np.nan
    )  # fmt: skip
    found[(slice(None),) * along + (wanted < 0,)] = np.nan
    if final:
        return tuple(axis for axis in axes if axis != "time"), np.take(found, 0, axis=along)
    return axes, found


def _compared(task: Task, results: Mapping[str, Result]) -> dict[str, np.ndarray]:
    """The first kind against every other: p-values, largest deviations as normal deviates, verdicts."""
    first, *others = (call.kind for call in task.calls)
    shape = (len(others), len(COMPARED))
    p_value, sigma, verdict = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, "", dtype="U16")
    for row, other in enumerate(others):
        if first not in results or other not in results:
            continue
        try:
            report = compare(results[first], results[other])
        except InputError:  # one of them diverged at once, or has a single trial
            continue
        for column, name in enumerate(COMPARED):
            part = report if name == "all" else report.variables.get(name)
            if part is not None:
                p_value[row, column], sigma[row, column] = part.p_value, part.sigma
                verdict[row, column] = part.verdict
    return {"p_value": p_value, "sigma": sigma, "verdict": verdict}


def check(kind: str, name: str) -> None:
    """Refuse an option that the function of a kind has, but a sweep does not keep the results of."""
    if name in NOT_HERE and name in inspect.signature(function(kind)).parameters:
        why = f"a sweep keeps curves and final values; for one point call sl.{kind} itself"
        raise reject(name, "an option of a sweep", why)


@functools.cache
def _required(kind: str) -> tuple[str, ...]:
    """Options without which a kind cannot be called."""
    parameters = inspect.signature(function(kind)).parameters.values()
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


QUIET = (DivergenceWarning, ToleranceWarning, UnreliableWarning)
"""Warnings about single results: in a sweep `status` and `reason` of the point tell them."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No such warnings in this process, until the end."""
    with warnings.catch_warnings():
        _ignore()
        yield


@functools.cache
def settle_down() -> None:
    """In a process that does nothing else, once: none at all."""
    _ignore()


def _ignore() -> None:
    for kind in QUIET:
        warnings.simplefilter("ignore", kind)


def perform_elsewhere(task: Task) -> Outcome:
    """`perform` in a process that does nothing else."""
    settle_down()
    return perform(task)
