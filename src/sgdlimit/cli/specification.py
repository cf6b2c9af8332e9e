"""Problem files: TOML with the tables [problem], [algorithm], [run] and [sweep]."""

import dataclasses
import inspect
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import describe
from ..algorithms import Algorithm
from ..errors import flag, parameters_of, real, reject, whole
from ..exact import least_squares, online
from ..exact.least_squares import covers
from ..problem import Problem
from ..results import Runs, Solution
from ..results.files import source
from ..results.storage import oddities
from ..simulation import simulate
from ..solver import GONE, solve
from ..sweep.tasks import KINDS, takes

EXAMPLE = (Path(__file__).parent / "example.toml").read_text(encoding="utf-8")
"""A file to start from."""

TABLES = ("problem", "algorithm", "run", "sweep")

OBJECTS = ("problem", "algorithm", "metrics", "weight_metrics", "watch", "executor", "progress")
"""Arguments that no table [run] can give."""


def keys(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the arguments of a function that a table [run] may give."""
    return tuple(name for name in parameters_of(function) if name not in OBJECTS)


THEORIES: dict[str, Callable[..., Any]] = {"dmft": solve, "least-squares": least_squares, "online": online}
"""What the command `solve` chooses from."""


def run_keys() -> tuple[str, ...]:
    """All that a table [run] may hold: one file serves all theories and the simulation."""
    return tuple(dict.fromkeys(key for function in (simulate, *THEORIES.values()) for key in keys(function)))


@dataclass(frozen=True)
class Specification:
    """What a problem file and the command line say."""

    problem: Problem
    algorithm: Algorithm
    run: dict[str, Any]
    sweep: dict[str, Any] = dataclasses.field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    """Those entries of `run` that came from the command line."""

    def override(self, **given: object) -> "Specification":
        """Command-line options win over the table [run]."""
        chosen = {key: value for key, value in given.items() if value is not None}
        run = {key: value for key, value in self.run.items() if not (key == "times" and "t_max" in chosen)}
        return dataclasses.replace(self, run=run | chosen, asked=frozenset(chosen))

    def unused(self, function: Callable[..., Any]) -> list[str]:
        """Entries that neither this theory takes nor the simulation, which reads the same file.

        An exact theory needs no seed; any other option of the command line must be taken.
        """
        elsewhere = set(keys(simulate)) - (self.asked - {"seed"})
        return [key for key in self.run if key not in keys(function) and key not in elsewhere]

    def arguments(self, keys: tuple[str, ...]) -> dict[str, Any]:
        """The entries of [run] that a function takes."""
        return {key: value for key, value in self.run.items() if key in keys}


def read(path: Path) -> Specification:
    """A problem file, read and checked: an error names the table and the key that is wrong."""
    path = source("problem file", path, "; `sgdlimit models --example` prints one")
    try:
        words = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise reject("problem file", path, "tables and lists go too deep; a problem has a few levels") from None
    except ValueError as error:  # not TOML, not text, or a number of thousands of digits
        raise reject("problem file", path, f"it is not TOML: {error}") from None
    for where, value, why in oddities(words):
        raise reject(where, value, why)
    for table in words.keys() - TABLES:
        raise reject(f"[{table}]", path, "unknown table; use [problem], [algorithm], [run] and [sweep]")
    for table in TABLES:
        given = words.get(table, {} if table in ("run", "sweep") else "nothing")
        if not isinstance(given, dict):
            raise reject(f"[{table}]", given, f"{path.name} must have a table of this name")
    run, known, find = words.get("run", {}), run_keys(), describe.in_files(path.parent)
    for key, value in run.items():
        if key not in known:
            raise reject(f"run.{key}", value, GONE.get(key) or f"unknown key; use {', '.join(known)}")
    for key, room in (("entries", "entries"), ("test_data", "data")):
        if key in run:
            run[key] = describe.from_words(room, run[key], f"run.{key}", find)
    if "averages" in run:
        if not isinstance(run["averages"], dict):
            raise reject(
                "run.averages", run["averages"], 'write a table, such as { ema = { name = "EMA", rate = 0.5 } }'
            )
        named = run["averages"].items()
        run["averages"] = {key: describe.from_words("average", own, f"run.averages.{key}", find) for key, own in named}
    problem = describe.problem_from_words(words["problem"], find)
    algorithm = describe.algorithm_from_words(words["algorithm"], find)
    return Specification(problem, algorithm, run, words.get("sweep", {}))


def solve_specification(specification: Specification, theory: str) -> Solution:
    """The theory asked for; 'auto': the exact one where there is one, otherwise the DMFT solver."""
    problem, algorithm = specification.problem, specification.algorithm
    if theory == "auto":
        exact = covers(problem, algorithm) and not specification.unused(THEORIES["least-squares"])
        theory = "online" if math.isinf(problem.sample_ratio) else "least-squares" if exact else "dmft"
    if theory not in THEORIES:
        raise reject("--theory", theory, f"it must be auto, {', '.join(THEORIES)}")
    compute = THEORIES[theory]
    for key in specification.unused(compute):
        name = f"--{key.replace('_', '-')}" if key in specification.asked else f"run.{key}"
        takes = f"{theory} takes {', '.join(keys(compute))}"
        raise reject(name, specification.run[key], f"{takes}; leave it out, or choose another --theory")
    return compute(problem, algorithm, **specification.arguments(keys(compute)))


def simulate_specification(specification: Specification) -> Runs:
    """Runs at finite size, as the problem file and the command line say."""
    if "dim" not in specification.run:
        raise reject("dim", "nothing", "give --dim, or dim in the table [run]")
    # An algorithm with a step of its own leaves `dt` to the solver.
    taken = tuple(key for key in keys(simulate) if key != "dt" or specification.algorithm.rows is None)
    return simulate(specification.problem, specification.algorithm, **specification.arguments(taken))


SWEEP = ("over", "kind")
"""What a table [sweep] may hold."""


def sweep_arguments(specification: Specification) -> dict[str, Any]:
    """What the tables [sweep] and [run] say to `sl.sweep`; keys of [run] for simulations serve those alone."""
    words = dict(specification.sweep)
    for key, value in words.items():
        if key not in SWEEP:
            raise reject(f"sweep.{key}", value, f"unknown key; use {', '.join(SWEEP)}")
    if not isinstance(words.get("over"), dict):
        why = "it must be a table of axes: sample_ratio = [1.0, 2.0]"
        raise reject("sweep.over", words.get("over", "nothing"), why)
    words["over"] = {name: _axis(name, values) for name, values in words["over"].items()}
    kind = words.get("kind", "solve")
    taken = {"times", *(takes(kind) if kind in KINDS else ())}
    for key, value in specification.run.items():
        if key not in taken and key not in keys(simulate):
            raise reject(f"run.{key}", value, f"{kind} takes {', '.join(sorted(taken))}; leave it out")
    return words | specification.arguments(tuple(taken))


def _axis(name: str, values: object) -> object:
    """Values along an axis: as they stand, or evenly from one to another."""
    if not isinstance(values, dict):
        return values
    where = f"sweep.over.{name}"
    usage = "write a list, or { from = 0.1, to = 1.0, count = 10, log = true }"
    if not {"from", "to", "count"} <= {*values} <= {"from", "to", "count", "log"}:
        raise reject(where, values, usage)
    logarithmic = flag(f"{where}.log", values.get("log", False))
    least = {"above": 0.0} if logarithmic else {}
    ends = [real(f"{where}.{end}", values[end], **least, why=usage) for end in ("from", "to")]
    count = whole(f"{where}.count", values["count"], least=1, most=10**6, why="it must be a whole number ≥ 1")
    spread = np.geomspace if logarithmic else np.linspace
    return spread(ends[0], ends[1], count)


def _parameter(field: dataclasses.Field[object]) -> str:
    """A field as it stands in a signature, its default as the user would write it."""
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is dataclasses.MISSING:
        return field.name
    if dataclasses.is_dataclass(value):
        return f"{field.name}={type(value).__name__}()"
    return f"{field.name}={value:.4g}" if isinstance(value, float) else f"{field.name}={value}"


def list_models(name: str | None) -> str:
    """Every model with its parameters and its one-line meaning, or one of them in full."""
    lines = []
    for room in describe.ROOMS:
        found = []
        for label, cls in describe.models(room).items():
            parameters = ", ".join(_parameter(f) for f in dataclasses.fields(cls) if f.init)
            meaning = inspect.cleandoc(cls.__doc__ or "")
            if name is None:
                found.append(f"  {label}({parameters})\n      {meaning.splitlines()[0]}")
            elif label.lower() == name.lower():
                return f"{room}: {label}({parameters})\n\n{meaning}"
        lines.append("\n".join([room, *found]))
    if name is not None:
        known = ", ".join(label for room in describe.ROOMS for label in describe.models(room))
        raise reject("name", name, f"unknown model; it must be one of {known}")
    return "\n\n".join(lines)
