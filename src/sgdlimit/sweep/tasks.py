"""One point of a sweep: what is called there, the hash of all of it, and the arrays that come out.

`perform` is all that a worker runs. It knows no store and no other point, and gives for a task the same numbers as the
single call, wherever it runs.
"""

import functools
import hashlib
import json
import time as clock
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _machine as machine
from .._fingerprint import digest
from ..algorithms import Algorithm
from ..control.stages import CROWDED
from ..errors import InputError, parameters_of
from ..exact import least_squares, online
from ..execute.crew import Talk, alone
from ..execute.place import Shared
from ..problem import Problem
from ..results import Result, Runs
from ..results.checkpoint import numerical_version
from ..results.variables import BESIDE, OF, Variable
from ..simulation import simulate
from ..solver import solve, solving

FUNCTIONS: dict[str, Callable[..., Result]] = {
    "solve": solve, "least_squares": least_squares, "online": online, "simulate": simulate,
}  # fmt: skip
KINDS = tuple(FUNCTIONS)
"""What can be computed at a point."""
NOT_HERE = ("problem", "algorithm", "times", "progress", "kernels", "snapshots", "checkpoint", "executor", "watch")
"""Arguments of these functions that a sweep gives itself, or whose results it does not keep."""
WITHOUT_EFFECT = ("workers",)
"""Arguments on which no number depends."""


@functools.cache
def takes(kind: str) -> tuple[str, ...]:
    """Options of a kind: what the user, or an axis, may say to its function; t_max and seed included."""
    return tuple(name for name in parameters_of(FUNCTIONS[kind]) if name not in NOT_HERE)


@dataclass(frozen=True)
class Task:
    """One point: all that goes into it."""

    problem: Problem
    algorithm: Algorithm
    kind: str
    options: Mapping[str, Any]
    """What the function is told beside problem, algorithm, times and seed."""
    times: np.ndarray
    seed: int = 0
    labels: Mapping[str, float | str] = field(default_factory=dict)
    """Values along the axes, as they are shown."""
    version: str = field(default_factory=numerical_version)

    @cached_property
    def key(self) -> str:
        """Hash of everything above but the labels: 128 bits, the same in every process."""
        options = {
            f"option {name}": json.dumps(value) if isinstance(value, float | int | str | None) else digest(value)
            for name, value in self.options.items()
            if name not in WITHOUT_EFFECT
        }
        words = options | {
            "problem": _identified(self.problem),
            "algorithm": _identified(self.algorithm),
            "times": hashlib.sha256(self.times.tobytes()).hexdigest(),
            "kind": self.kind,
            "seed": self.seed,
            "numerical version": self.version,
        }
        return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:32]


def _identified(model: Problem | Algorithm) -> str:
    """A problem or an algorithm in letters, the same in another process; fast for thousands that differ in numbers."""
    leaves, structure = jax.tree.flatten(model)
    numbers = ",".join(repr(x) if isinstance(x, float | int) else digest(x) for x in leaves)
    return f"{_structure(structure)} {numbers}"


@functools.lru_cache(maxsize=1024)
def _structure(structure: Any) -> str:
    """In letters, what a problem or an algorithm is, but for its numbers."""
    return digest(jax.tree.unflatten(structure, [0.0] * structure.num_leaves))


class Outcome(NamedTuple):
    """What a point gave: arrays by name, with the names of their axes."""

    arrays: dict[str, Variable]
    lasting: bool
    """Whether it would come out so again. What ran out of memory might not."""

    @property
    def failed(self) -> bool:
        """Whether it has no result."""
        return str(self.arrays["status"].values) == "failed"


def failed(reason: str) -> Outcome:
    """Of a point that nobody computed to its end."""
    return Outcome(_ended("failed", reason), lasting=False)


def _ended(status: str, reason: str, seconds: float = np.nan) -> dict[str, Variable]:
    told = {"status": status, "reason": reason, "seconds": seconds}
    return {name: Variable((), np.asarray(value)) for name, value in told.items()}


def perform(task: Task) -> Outcome:
    """Compute a point. Whatever goes wrong with it is told as its status; only Ctrl-C and kills come through."""
    return alone(performing(task, Shared()), progress=False)


def perform_elsewhere(task: Task) -> Outcome:
    """`perform` in a process that does nothing else. What single results warn of is told as their status and reason."""
    warnings.simplefilter("ignore", RuntimeWarning)
    return perform(task)


def performing(task: Task, shared: Shared) -> Talk[Outcome]:
    """`perform` as a talk, for who carries several points on at once."""
    arrays, status, lasting = dict[str, Variable](), "failed", True
    begin = clock.perf_counter()
    try:
        if task.version != numerical_version():
            raise RuntimeError(f"the worker has {numerical_version()}, the sweep {task.version}; install the same")
        given = {"times": task.times, "progress": False, **task.options}
        if "seed" in takes(task.kind):
            given["seed"] = task.seed
        if task.kind == "solve":
            result = yield from solving(task.problem, task.algorithm, shared, **given)
        else:
            result = FUNCTIONS[task.kind](task.problem, task.algorithm, **given)
        own_steps = task.kind == "simulate" or task.algorithm.discrete
        arrays = dict(curves(result, task.times, own_steps))
        status, reason = str(result.status), result.message
        lasting = not reason.endswith(CROWDED)
    except InputError as error:
        reason = str(error)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        reason = f"{'out of memory' if machine.ran_out(error) else type(error).__name__}: {text}"
        lasting = False
    return Outcome(arrays | _ended(status, reason, clock.perf_counter() - begin), lasting)


def curves(result: Result, times: np.ndarray, own_steps: bool) -> Iterator[tuple[str, Variable]]:
    """Curves with what stands beside them, at these times; NaN beyond a divergence.

    Averages of the iterates follow, each under its name. Copies of a theory (`x_replicas`) are not kept; those of a
    simulation are, as `x_trials`. Where an algorithm has steps of its own, `recorded_time` is that of the nearest one.
    """
    there = result.time
    reached = np.full(len(times), len(there) > 0)
    if result.status == "diverged" and len(there):
        reached = times <= there[-1] * (1 + 1e-9)
    places = np.abs(times[reached, None] - there).argmin(axis=1) if reached.any() else np.empty(0, dtype=int)

    def at(axes: tuple[str, ...], values: np.ndarray) -> Variable:
        along = axes.index("time")
        found = np.full((*values.shape[:along], len(times), *values.shape[along + 1 :]), np.nan)
        found[(slice(None),) * along + (reached,)] = np.take(values, places, axis=along)
        return Variable(axes, found)

    if own_steps:
        yield "recorded_time", at(("time",), there)
    for name in result.curves:
        axes = result.variables[name].dims
        if isinstance(result, Runs):
            mean, error = result.curve(name)
            yield name, at(axes[1:], mean)
            yield f"{name}_stderr", at(axes[1:], error)
            yield f"{name}_trials", at(axes, result[name])
        else:
            for beside in (name, *(name + ending for ending in BESIDE if ending != "_replicas")):
                if beside in result.variables:
                    yield beside, at(*result.variables[beside])
    for average, own in result.averages.items():
        for name, variable in curves(own, times, False):
            yield f"{average}{OF}{name}", variable
