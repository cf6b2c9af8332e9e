"""One point of a sweep: what is called there, the hash of all of it, and the arrays that come out.

`perform` is all that a worker runs. It knows no store and no other point, and gives for a task the same numbers as the
single call, wherever it runs.
"""

import functools
import hashlib
import json
import time as clock
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _machine as machine
from .._fingerprint import digest
from .._version import __version__
from .._vocabulary import parameters_of
from ..algorithms import Algorithm
from ..control.stages import CROWDED
from ..errors import InputError
from ..execute.crew import Talk, alone
from ..execute.place import Shared
from ..problem import Problem
from ..results import Result
from ..results.variables import Variable
from ..solver import solving
from . import kept

KINDS = ("solve", "least_squares", "online", "simulate")
"""What can be computed at a point."""
NOT_HERE = ("problem", "algorithm", "times", "progress", "kernels", "snapshots", "checkpoint", "executor", "watch")
"""Arguments of these functions that a sweep gives itself, or whose results it does not keep."""
WITHOUT_EFFECT = ("workers",)
"""Arguments on which no number depends."""


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


@dataclass(frozen=True)
class Task:
    """One point: all that goes into it."""

    problem: Problem
    algorithm: Algorithm
    calls: Mapping[str, Mapping[str, Any]]
    """By kind, what its function is told beside problem, algorithm, times and seed."""
    times: np.ndarray
    seed: int = 0
    final: bool = False
    """Whether only values at the last time are kept."""
    labels: Mapping[str, float | str] = field(default_factory=dict)
    """Values along the axes, as they are shown."""
    version: str = field(default_factory=numerical_version)

    @cached_property
    def key(self) -> str:
        """Hash of everything above but the labels: 128 bits, the same in every process."""
        return _hash(self._inputs | {"final": self.final, "seed": self.seed, "numerical version": self.version})[:32]

    @property
    def own_seed(self) -> int:
        """A seed that is drawn from the common one and from all other inputs of the point."""
        return int(_hash(self._inputs | {"seed": self.seed})[:8], 16)

    @property
    def _inputs(self) -> dict[str, str]:
        options = {
            f"{kind}.{name}": json.dumps(value) if isinstance(value, float | int | str | None) else digest(value)
            for kind, said in self.calls.items()
            for name, value in said.items()
            if name not in WITHOUT_EFFECT
        }
        return options | {
            "problem": _identified(self.problem),
            "algorithm": _identified(self.algorithm),
            "times": hashlib.sha256(self.times.tobytes()).hexdigest(),
            "kinds": ",".join(self.calls),
        }


def _hash(words: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


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
    """What a point gave: arrays under `kind/name`, with the names of their axes."""

    arrays: dict[str, Variable]
    lasting: bool
    """Whether it would come out so again. What ran out of memory might not."""

    @property
    def failed(self) -> bool:
        """Whether one of its kinds failed."""
        return any(name.endswith("/status") and str(word.values) == "failed" for name, word in self.arrays.items())


def failed(task: Task, reason: str) -> Outcome:
    """Of a point that nobody computed to its end."""
    return Outcome({n: v for kind in task.calls for n, v in _ended(kind, "failed", reason).items()}, lasting=False)


def _ended(kind: str, status: str, reason: str, seconds: float = np.nan) -> dict[str, Variable]:
    told = {"status": status, "reason": reason, "seconds": seconds}
    return {f"{kind}/{name}": Variable((), np.asarray(value)) for name, value in told.items()}


def perform(task: Task) -> Outcome:
    """Compute a point. Whatever goes wrong with it is told as its status; only Ctrl-C and kills come through."""
    return alone(performing(task, Shared()), progress=False)


def perform_elsewhere(task: Task) -> Outcome:
    """`perform` in a process that does nothing else. What single results warn of is told as their status and reason."""
    warnings.simplefilter("ignore", RuntimeWarning)
    return perform(task)


def performing(task: Task, shared: Shared) -> Talk[Outcome]:
    """`perform` as a talk, for who carries several points on at once."""
    results: dict[str, Result] = {}
    arrays: dict[str, Variable] = {}
    lasting = True
    for kind, options in task.calls.items():
        begin = clock.perf_counter()
        status = "failed"
        try:
            if task.version != numerical_version():
                raise RuntimeError(f"the worker has {numerical_version()}, the sweep {task.version}; install the same")
            given = {"times": task.times, "progress": False, **options}
            if "seed" in takes(kind):
                given["seed"] = task.seed
            if kind == "solve":
                result = yield from solving(task.problem, task.algorithm, shared, **given)
            else:
                result = function(kind)(task.problem, task.algorithm, **given)
            status, reason = str(result.status), result.message
            lasting = lasting and not reason.endswith(CROWDED)
            results[kind] = result
            times, own_steps = (
                task.times[-1:] if task.final else task.times,
                kind == "simulate" or task.algorithm.discrete,
            )
            arrays |= {f"{kind}/{name}": found for name, found in kept.curves(result, times, own_steps)}
        except InputError as error:
            reason = str(error)
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            reason = f"{'out of memory' if machine.ran_out(error) else type(error).__name__}: {text}"
            lasting = False
        arrays |= _ended(kind, status, reason, clock.perf_counter() - begin)
    if len(task.calls) > 1:
        arrays |= {f"comparison/{name}": found for name, found in kept.compared(list(task.calls), results).items()}
    return Outcome(arrays, lasting)
