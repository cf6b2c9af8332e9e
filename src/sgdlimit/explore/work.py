"""What a worker computes for a view: rough curves, refined ones, kernels with the law of the weights, runs.

Every kind of work is a function of a view and of `tell`, which takes words for the page and files to download.
"""

import json
import math
import time as clock
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..describe import algorithm_from_words, from_words, nowhere, problem_from_words
from ..errors import told_by_status
from ..results import Result, Solution
from ..results.quality import ERROR
from ..results.storage import netcdf
from ..results.variables import TABLE, bare, ordered
from ..simulation import simulate
from ..solver import solve
from .view import ROUGH, View, Words

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
Tell = Callable[..., None]
"""Takes JSON for the page, or, with a name, the content of a file to download; from any thread."""


def curves(query: str, tell: Tell) -> None:
    """Tell rough curves, a tenth of a second after they are asked for."""
    view = View.read(query)
    solution = _solved(view, **(view.theory_options | (SEVERAL if view.units > 1 else PREVIEW)))
    tell(_json(_theory(solution)))


def refined(query: str, tell: Tell) -> None:
    """Curves as well known as the view asks for, and the files that hold them."""
    view = View.read(query)
    solution = _solved(view, max_seconds=REFINING, **view.theory_options)
    tell(_json(_theory(solution)))
    tell(netcdf(solution), "theory.nc")
    columns = {"time": solution.time}
    for name, (value, error) in _curves(solution).items():
        columns |= {name: value, f"{name} error": error}
    tell(_csv(columns, solution), "theory.csv")


def kernels(query: str, tell: Tell) -> None:
    """Two-time kernels of the first unit, where there are any, and the density of the weights at a few times."""
    view = View.read(query)
    solution = _solved(view, **view.kernel_options)
    time = solution.time
    maps = {}
    for name in ("C_theta", "R_theta", "R_ell") if view.kernel_options["kernels"] else ():
        causal = name == "C_theta" or time[None, :] <= time[:, None]
        maps[name] = np.where(causal, solution[name][:, :, 0, 0], np.nan)
    weights = solution["theta"] if "theta" in solution else np.zeros((0, 0, 0))
    laws = [_density(weights[i, :, 0]) | {"time": float(t)} for i, t in enumerate(solution.coords.get("snapshot", ()))]
    tell(_json({"time": time, "kernels": maps, "weights": laws, **_ended(solution)}))


def runs(query: str, tell: Tell) -> None:
    """Runs at finite size, record by record as they come; at the end the density of the weights and the files."""
    view = View.read(query)
    problem, algorithm = problem_from_words(view.problem), algorithm_from_words(view.algorithm)
    records: list[Words] = []
    sent = clock.monotonic()

    def send() -> None:
        nonlocal sent
        tell(_json({"records": records}))
        records.clear()
        sent = clock.monotonic()

    def watch(trial: int, time: float, values: dict[str, np.ndarray]) -> None:
        now = _entries({name: np.asarray(value) for name, value in values.items()}, 0)
        records.append({"trial": trial, "time": time, "values": now})
        if clock.monotonic() - sent > EVERY:
            send()

    with told_by_status():  # the page shows it
        found = simulate(problem, algorithm, **_given(view.runs_options), workers=1, watch=watch, progress=False)
    send()
    laws = []
    if "theta" in found:
        laws = [_density(found["theta"][:, -1, :, 0].ravel()) | {"time": float(found["snapshot"][-1])}]
    tell(_json({"weights": laws, **_ended(found)}))
    tell(netcdf(found), "runs.nc")
    columns = {"trial": np.repeat(np.arange(found.trials), len(found.time)), "time": np.tile(found.time, found.trials)}
    columns |= {n: v.ravel() for n, v in _entries({name: found[name] for name in found.variables}, 2).items()}
    tell(_csv(columns, found), "runs.csv")


KINDS = {"curves": curves, "refined": refined, "kernels": kernels, "runs": runs}
"""What can be asked for."""


def _solved(view: View, **options: Any) -> Solution:
    with told_by_status():  # the page shows it
        problem, algorithm = problem_from_words(view.problem), algorithm_from_words(view.algorithm)
        return solve(problem, algorithm, progress=False, **_given(options))


def _given(options: Words) -> Words:
    """Arguments from their words: averages of the iterates are objects."""
    named = options.get("averages", {}).items()
    return options | {"averages": {name: from_words("average", own, "average", nowhere) for name, own in named}}


def _ended(result: Result) -> Words:
    """How it ended, what it took."""
    seconds = {key: result.about["diagnostics"].get(key) for key in ("seconds", "compile_seconds")}
    return {"status": result.status, "message": result.message, **seconds}


def _theory(solution: Solution) -> Words:
    """Curves with their total errors; a matrix over units is one curve an entry."""
    every = max(1, math.ceil(len(solution.time) / POINTS))
    kept = np.unique([*range(0, len(solution.time), every), len(solution.time) - 1]) if len(solution.time) else []
    found = {}
    for name, (value, error) in _curves(solution).items():
        of = name.split()[0]
        doubtful = solution.error_share(of) > ERROR
        found[name] = {"of": of, "value": value[kept], "error": error[kept], "doubtful": doubtful}
    checks = [str(check) for check in solution.quality.failed]
    options = {key: solution.about["options"].get(key) for key in ("samples", "steps", "tol", "memory")}
    return {"time": solution.time[kept], "curves": found, "checks": checks, "options": options, **_ended(solution)}


def _curves(solution: Solution) -> dict[str, np.ndarray]:
    """Value and total error over time of every entry of every curve that the page shows."""
    return _entries({name: np.stack(solution.curve(name)) for name in solution.variables if bare(name) in SHOWN}, 2)


def _entries(values: Mapping[str, np.ndarray], before: int) -> dict[str, np.ndarray]:
    """What the page shows of these, entry by entry of the axes behind the first ones: "norm 2,1" of a matrix `norm`,
    "ema.norm 2,1" of that of an average of the iterates.

    Of a symmetric matrix only the lower half.
    """
    found = {}
    for name in ordered(name for name in values if bare(name) in SHOWN):
        shape = values[name].shape[before:]
        for place in np.ndindex(*shape):
            if bare(name) != "norm" or place[1] <= place[0]:
                suffix = "" if math.prod(shape) == 1 else f" {','.join(str(i + 1) for i in place)}"
                found[name + suffix] = values[name][(..., *place)]
    return found


def _density(values: np.ndarray) -> Words:
    """A histogram over all but the rarest values; an atom shows as one high bin."""
    low, high = np.quantile(values, [0.001, 0.999])
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-3) * 1.05
    count, edges = np.histogram(values, BINS, (middle - half, middle + half))
    return {"edges": edges, "density": count / (len(values) * np.diff(edges))}


def _json(words: Words) -> bytes:
    return json.dumps(_plain(words), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    """Arrays as lists, numbers to six digits, and None where there is no number: JSON has no other word for it."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _csv(columns: Mapping[str, np.ndarray], result: Result) -> bytes:
    import pandas

    table = pandas.DataFrame(columns).to_csv(index=False, float_format="%.9g")
    return f"# {result.title()}; {result.status}\n{table}".encode()
