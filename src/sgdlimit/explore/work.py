"""What a worker computes for a view: rough curves, refined ones, kernels with the law of the weights, runs.

Every kind of work is a function of a view and of `tell`, which takes words for the page and files to download.
"""

import io
import json
import math
import tempfile
import time as clock
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..describe import algorithm_from_words, problem_from_words
from ..errors import DivergenceWarning, ToleranceWarning, UnreliableWarning
from ..results import Result, Runs, Solution
from ..results.quality import ERROR
from ..results.variables import TABLE
from ..simulation import simulate
from ..solver import solve
from .view import ROUGH, View

PREVIEW = {"samples": 4096, "replicas": 16, "tol": ROUGH, "max_seconds": 3.0}
"""What `sl.solve` is told for a rough curve: always the same samples, so that nothing is compiled twice; steps are
halved only where they are far too long."""
SEVERAL = PREVIEW | {"samples": 2048, "replicas": 8}
"""The same for several units, whose steps are dearer."""
REFINING = 30.0
"""Seconds after which refining stops with the best there is."""
POINTS = 200
"""Of a curve on the page, at most."""
BINS = 48
EVERY = 0.15
"""Seconds between two messages of a run."""
SHOWN = tuple(name for name, entry in TABLE.items() if entry.comparable)


class Tell(Protocol):
    """Takes JSON for the page, or, with a name, the content of a file; from any thread."""

    def __call__(self, content: bytes, name: str = "") -> None:
        """Send it."""
        ...


def curves(query: str, tell: Tell) -> None:
    """Rough curves, fast."""
    view = View.read(query)
    solution = _solved(view, **(SEVERAL if view.units > 1 else PREVIEW), **_without(view.theory_options, "tol"))
    tell(_json(_theory(view, solution)))


def refined(query: str, tell: Tell) -> None:
    """Curves as well known as the view asks for, and the files that hold them."""
    view = View.read(query)
    solution = _solved(view, max_seconds=REFINING, **view.theory_options)
    tell(_json(_theory(view, solution)))
    tell(_netcdf(solution), "theory.nc")
    tell(_theory_table(solution), "theory.csv")


def kernels(query: str, tell: Tell) -> None:
    """Two-time kernels of the first unit, and the density of the weights at a few times."""
    view = View.read(query)
    solution = _solved(view, **view.kernel_options)
    time = solution.time
    maps = {}
    for name in ("C_theta", "R_theta", "R_ell"):
        causal = name == "C_theta" or time[None, :] <= time[:, None]
        maps[name] = np.where(causal, solution[name][:, :, 0, 0], np.nan)
    weights = solution["theta"] if "theta" in solution else np.zeros((0, 0, 0))
    laws = [_density(weights[i, :, 0]) | {"time": float(t)} for i, t in enumerate(solution.coords.get("snapshot", ()))]
    tell(_json({"time": time, "kernels": maps, "weights": laws, **_ended(solution)}))


def runs(query: str, tell: Tell) -> None:
    """Runs at finite size, record by record as they come; at the end the density of the weights and the files."""
    view = View.read(query)
    view.check_runs()
    problem, algorithm = _objects(view)
    records: list[Any] = []
    sent = clock.monotonic()

    def send() -> None:
        nonlocal sent
        tell(_json({"records": records}))
        records.clear()
        sent = clock.monotonic()

    def watch(trial: int, time: float, values: dict[str, np.ndarray]) -> None:
        records.append({"trial": trial, "time": time, "values": _record(values)})
        if clock.monotonic() - sent > EVERY:
            send()

    found = _quietly(lambda: simulate(problem, algorithm, **view.runs_options, workers=1, watch=watch, progress=False))
    send()
    laws = []
    if "theta" in found:
        laws = [_density(found["theta"][:, -1, :, 0].ravel()) | {"time": float(found["snapshot"][-1])}]
    tell(_json({"weights": laws, **_ended(found)}))
    tell(_netcdf(found), "runs.nc")
    tell(_runs_table(found), "runs.csv")


KINDS = {"curves": curves, "refined": refined, "kernels": kernels, "runs": runs}
"""What can be asked for."""


def _objects(view: View) -> tuple[Any, Any]:
    return problem_from_words(view.problem), algorithm_from_words(view.algorithm)


def _solved(view: View, **options: Any) -> Solution:
    problem, algorithm = _objects(view)
    return _quietly(lambda: solve(problem, algorithm, progress=False, **options))


def _quietly(compute: Callable[[], Any]) -> Any:
    """The result says how it ended; the page shows that."""
    with warnings.catch_warnings():
        for kind in (DivergenceWarning, ToleranceWarning, UnreliableWarning):
            warnings.simplefilter("ignore", kind)
        return compute()


def _without(words: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in words.items() if key != name}


def _ended(result: Result) -> dict[str, Any]:
    """How it ended, what it took."""
    seconds = {key: result.about["diagnostics"].get(key) for key in ("seconds", "compile_seconds")}
    return {"status": result.status, "message": result.message, **seconds}


def _theory(view: View, solution: Solution) -> dict[str, Any]:
    """Curves with their total errors; a matrix over units is one curve an entry."""
    every = max(1, math.ceil(len(solution.time) / POINTS))
    kept = np.unique([*range(0, len(solution.time), every), len(solution.time) - 1]) if len(solution.time) else []
    found = {}
    for name in SHOWN:
        if name in solution.curves:
            value, error = (part[kept] for part in solution.curve(name))
            doubtful = solution.error_share(name) > ERROR
            for suffix, place in _entries(name, value.shape[1:]):
                at = (slice(None), *place)
                found[name + suffix] = {"of": name, "value": value[at], "error": error[at], "doubtful": doubtful}
    checks = [str(check) for check in solution.quality.failed]
    options = {key: solution.about["options"].get(key) for key in ("samples", "steps", "tol", "memory")}
    return {"time": solution.time[kept], "curves": found, "checks": checks, "options": options, **_ended(solution)}


def _entries(name: str, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and places of the entries of a curve: of a symmetric matrix the lower half."""
    if math.prod(shape) == 1:
        return [("", (0,) * len(shape))]
    places = [tuple(int(i) for i in place) for place in np.ndindex(*shape)]
    places = [p for p in places if name != "norm" or p[1] <= p[0]]
    return [(f" {','.join(str(i + 1) for i in place)}", place) for place in places]


def _record(values: dict[str, np.ndarray]) -> dict[str, float]:
    """One record of a run, entry by entry, under the names of the theory's curves."""
    return {
        name + suffix: float(np.asarray(values[name])[place])
        for name in SHOWN
        if name in values
        for suffix, place in _entries(name, np.shape(values[name]))
    }


def _density(values: np.ndarray) -> dict[str, Any]:
    """A histogram over all but the rarest values; an atom shows as one high bin."""
    low, high = np.quantile(values, [0.001, 0.999])
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-3) * 1.05
    count, edges = np.histogram(values, BINS, (middle - half, middle + half))
    return {"edges": edges, "density": count / (len(values) * np.diff(edges))}


def _json(words: dict[str, Any]) -> bytes:
    return json.dumps(_plain(words), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    """Arrays as lists, numbers to six digits, and None where there is no number: JSON has no other word for it."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _netcdf(result: Result) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sgdlimit-") as folder:
        return result.save(Path(folder) / "result.nc").read_bytes()


def _theory_table(solution: Solution) -> bytes:
    """Time, and every curve with its total error."""
    columns: dict[str, Any] = {"time": solution.time}
    for name in SHOWN:
        if name in solution.curves:
            value, error = solution.curve(name)
            for suffix, place in _entries(name, value.shape[1:]):
                at = (slice(None), *place)
                columns |= {name + suffix: value[at], f"{name}{suffix} error": error[at]}
    return _csv(columns, solution)


def _runs_table(found: Runs) -> bytes:
    """A row for every trial and time."""
    columns: dict[str, Any] = {"trial": np.repeat(np.arange(found.trials), len(found.time))}
    columns["time"] = np.tile(found.time, found.trials)
    for name in SHOWN:
        if name in found.curves:
            values = found[name].reshape(found.trials * len(found.time), *found[name].shape[2:])
            for suffix, place in _entries(name, values.shape[1:]):
                columns[name + suffix] = values[(slice(None), *place)]
    return _csv(columns, found)


def _csv(columns: dict[str, Any], result: Result) -> bytes:
    text = io.StringIO()
    print(f"# {result.title()}; {result.status}", file=text)
    print(",".join(f'"{name}"' if "," in name else name for name in columns), file=text)
    np.savetxt(text, np.column_stack(list(columns.values())), fmt="%.9g", delimiter=",")
    return text.getvalue().encode()
