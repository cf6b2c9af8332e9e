"""Problem files: TOML with the tables [problem], [algorithm] and [run]."""

import dataclasses
import inspect
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import describe
from ..errors import reject
from ..limits.least_squares import covers
from ..problem import Problem
from ..results.checks import oddities
from ..results.files import source

EXAMPLE = """\
# A problem for `sgdlimit solve`, `sgdlimit simulate`. `sgdlimit models` lists what can stand where.
[problem]
loss = "Square"                                   # a name, a table, or "file.py:function"
labels = "Linear"
penalty = { name = "Ridge", strength = 0.1 }
sample_ratio = 2.0                                # δ = n/d; inf: infinite data
teacher = { name = "Normal", scale = 1.0 }
noise = { name = "Normal", scale = 0.3 }
init = { name = "Point", value = 0.0 }

[algorithm]
name = "SGD"
temperature = 0.4                                 # τ = η/B
batch_size = 5

[run]
t_max = 8.0
dim = 1000
trials = 10
seed = 0
"""

OBJECTS = ("problem", "algorithm", "metrics", "weight_metrics", "progress")
"""Arguments that no table [run] can give."""


def keys(function: Callable[..., Any]) -> tuple[str, ...]:
    """What a table [run] may say to a function."""
    return tuple(name for name in inspect.signature(function).parameters if name not in OBJECTS)


def theories() -> dict[str, Callable[..., Any]]:
    """What `solve` chooses from."""
    from ..dmft import solve
    from ..limits import least_squares, online

    return {"dmft": solve, "least-squares": least_squares, "online": online}


def run_keys() -> tuple[str, ...]:
    """All that a table [run] may hold: one file serves all theories and the simulation."""
    from ..simulation import simulate

    return tuple(dict.fromkeys(key for function in (simulate, *theories().values()) for key in keys(function)))


@dataclass(frozen=True)
class Specification:
    """What a problem file and the command line say."""

    problem: Problem
    algorithm: Any
    run: dict[str, Any]
    asked: frozenset[str] = frozenset()
    """Those entries of `run` that came from the command line."""

    def override(self, **given: Any) -> "Specification":
        """Command-line options win over the table [run]."""
        chosen = {key: value for key, value in given.items() if value is not None}
        run = {key: value for key, value in self.run.items() if not (key == "times" and "t_max" in chosen)}
        return dataclasses.replace(self, run=run | chosen, asked=frozenset(chosen))

    def unused(self, function: Callable[..., Any]) -> list[str]:
        """Entries that neither this theory takes nor the simulation, which reads the same file.

        An exact theory needs no seed; any other option of the command line must be taken.
        """
        from ..simulation import simulate

        elsewhere = set(keys(simulate)) - (self.asked - {"seed"})
        return [key for key in self.run if key not in keys(function) and key not in elsewhere]

    def arguments(self, keys: tuple[str, ...]) -> dict[str, Any]:
        """The entries of [run] that a function takes."""
        return {key: value for key, value in self.run.items() if key in keys}


def read(path: Path) -> Specification:
    """Read and check a problem file."""
    path = source("problem file", path, "; `sgdlimit models --example` prints one")
    try:
        words = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise reject("problem file", path, "tables and lists go too deep; a problem has a few levels") from None
    except ValueError as error:  # not TOML, not text, or a number of thousands of digits
        raise reject("problem file", path, f"it is not TOML: {error}") from None
    for where, value, why in oddities(words):
        raise reject(where, value, why)
    for table in words:
        if table not in ("problem", "algorithm", "run"):
            raise reject(f"[{table}]", path, "unknown table; use [problem], [algorithm] and [run]")
    for table in ("problem", "algorithm", "run"):
        given = words.get(table, {} if table == "run" else "nothing")
        if not isinstance(given, dict):
            raise reject(f"[{table}]", given, f"{path.name} must have a table of this name")
    run, known, find = words.get("run", {}), run_keys(), describe.in_files(path.parent)
    for key, value in run.items():
        if key not in known:
            raise reject(f"run.{key}", value, f"unknown key; use {', '.join(known)}")
    if "entries" in run:
        run["entries"] = describe.from_words("entries", run["entries"], "run.entries", find)
    problem = describe.problem_from_words(words["problem"], find)
    return Specification(problem, describe.algorithm_from_words(words["algorithm"], find), run)


def solve_specification(specification: Specification, theory: str) -> Any:
    """The theory asked for; 'auto': the exact one where there is one, otherwise the DMFT solver."""
    problem, algorithm = specification.problem, specification.algorithm
    known = theories()
    if theory == "auto":
        exact = covers(problem, algorithm) and not specification.unused(known["least-squares"])
        theory = "online" if math.isinf(problem.sample_ratio) else "least-squares" if exact else "dmft"
    if theory not in known:
        raise reject("--theory", theory, f"it must be auto, {', '.join(known)}")
    compute = known[theory]
    for key in specification.unused(compute):
        name = f"--{key.replace('_', '-')}" if key in specification.asked else f"run.{key}"
        takes = f"{theory} takes {', '.join(keys(compute))}"
        raise reject(name, specification.run[key], f"{takes}; leave it out, or choose another --theory")
    return compute(problem, algorithm, **specification.arguments(keys(compute)))


def simulate_specification(specification: Specification) -> Any:
    """Runs at finite size."""
    from ..simulation import simulate

    if "dim" not in specification.run:
        raise reject("dim", "nothing", "give --dim, or dim in the table [run]")
    # An algorithm with a step of its own leaves `dt` to the solver.
    taken = tuple(key for key in keys(simulate) if key != "dt" or specification.algorithm.rows is None)
    return simulate(specification.problem, specification.algorithm, **specification.arguments(taken))


def _parameter(field: Any) -> str:
    """A field as it stands in a signature."""
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}={describe.short(field.default_factory())}"
    return field.name if field.default is dataclasses.MISSING else f"{field.name}={describe.short(field.default)}"


def list_models(name: str | None) -> str:
    """Every model with its parameters and its one-line meaning, or one of them in full."""
    lines = []
    for room in describe.ROOMS:
        found = []
        for label, cls in describe.models(room).items():
            parameters = ", ".join(_parameter(f) for f in dataclasses.fields(cls))
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
