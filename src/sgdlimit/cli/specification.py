"""Problem files: TOML with the tables [problem], [algorithm] and [run]."""

import dataclasses
import inspect
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import describe
from ..errors import reject
from ..limits.least_squares import covers
from ..problem import Problem

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

SIMULATE_KEYS = ("t_max", "times", "dim", "trials", "seed", "dt", "entries", "snapshots", "test_samples", "dtype")
LEAST_SQUARES_KEYS = ("t_max", "times", "kernels")
ONLINE_KEYS = ("t_max", "times", "seed", "samples", "replicas", "particles")
DMFT_KEYS = ("t_max", "times", "dt", "seed", "samples", "replicas", "extrapolate", "response", "memory", "kernels")
DMFT_KEYS += ("snapshots", "dtype", "method", "damping", "iterations")
RUN_KEYS = tuple(dict.fromkeys(SIMULATE_KEYS + LEAST_SQUARES_KEYS + ONLINE_KEYS + DMFT_KEYS))


@dataclass(frozen=True)
class Specification:
    """What a problem file says."""

    problem: Problem
    algorithm: Any
    run: dict[str, Any]

    def override(self, **given: Any) -> "Specification":
        """Command-line options win over the table [run]."""
        chosen = {key: value for key, value in given.items() if value is not None}
        run = {key: value for key, value in self.run.items() if not (key == "times" and "t_max" in chosen)}
        return dataclasses.replace(self, run=run | chosen)

    def arguments(self, keys: tuple[str, ...]) -> dict[str, Any]:
        """The entries of [run] that a function takes."""
        return {key: value for key, value in self.run.items() if key in keys}


def read(path: Path) -> Specification:
    """Read and check a problem file."""
    if not path.is_file():
        raise reject("problem file", path, "there is no such file; `sgdlimit models --example` prints one")
    try:
        words = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise reject("problem file", path, f"it is not TOML: {error}") from None
    for table in words:
        if table not in ("problem", "algorithm", "run"):
            raise reject(f"[{table}]", path, "unknown table; use [problem], [algorithm] and [run]")
    for table in ("problem", "algorithm", "run"):
        given = words.get(table, {} if table == "run" else "nothing")
        if not isinstance(given, dict):
            raise reject(f"[{table}]", given, f"{path.name} must have a table of this name")
    run = words.get("run", {})
    for key, value in run.items():
        if key not in RUN_KEYS:
            raise reject(f"run.{key}", value, f"unknown key; use {', '.join(RUN_KEYS)}")
    if "entries" in run:
        run["entries"] = describe.from_words("entries", run["entries"], "run.entries", path.parent)
    problem = describe.problem_from_words(words["problem"], path.parent)
    return Specification(problem, describe.algorithm_from_words(words["algorithm"], path.parent), run)


def solve_specification(specification: Specification, theory: str) -> Any:
    """The theory asked for; 'auto': the exact one where there is one, otherwise the DMFT solver."""
    from ..dmft import solve
    from ..limits import least_squares, online

    problem, algorithm = specification.problem, specification.algorithm
    theories = {"dmft": (solve, DMFT_KEYS), "least-squares": (least_squares, LEAST_SQUARES_KEYS)}
    theories["online"] = (online, ONLINE_KEYS)
    if theory == "auto":
        theory = "online" if math.isinf(problem.sample_ratio) else "dmft"
        only_dmft = any(key in specification.run for key in DMFT_KEYS if key not in SIMULATE_KEYS + LEAST_SQUARES_KEYS)
        if theory == "dmft" and not only_dmft and covers(problem, algorithm):
            theory = "least-squares"
    if theory not in theories:
        raise reject("--theory", theory, "it must be auto, dmft, least-squares or online")
    compute, keys = theories[theory]
    return compute(problem, algorithm, **specification.arguments(keys))


def simulate_specification(specification: Specification) -> Any:
    """Runs at finite size."""
    from ..simulation import simulate

    if "dim" not in specification.run:
        raise reject("dim", "nothing", "give --dim, or dim in the table [run]")
    # An algorithm with a step of its own leaves `dt` to the solver.
    keys = tuple(key for key in SIMULATE_KEYS if key != "dt" or specification.algorithm.rows is None)
    return simulate(specification.problem, specification.algorithm, **specification.arguments(keys))


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
