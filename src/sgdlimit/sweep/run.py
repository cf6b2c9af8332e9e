"""`sweep`: every point checked before any work, computed once, kept when it is finished."""

import contextlib
import dataclasses
import datetime
import itertools
import json
import random
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from .. import grid
from .._machine import keep_programs
from .._version import __version__
from ..algorithms import Algorithm
from ..control.question import numbers
from ..describe import to_words
from ..errors import SweepWarning, instance, parameters_of, reject, seed_number
from ..problem import Problem
from ..progress import Progress
from ..results import metrics
from . import engines, points
from .result import Sweep, assemble
from .store import Store
from .tasks import FUNCTIONS, KINDS, NOT_HERE, Outcome, Task, numerical_version, takes

TIMES = 65
"""Recorded times where only t_max is given."""


def sweep(
    problem: Problem,
    algorithm: Algorithm,
    over: Mapping[str, Any],
    *,
    kind: str = "solve",
    t_max: float | None = None,
    times: Any = None,
    seed: int = 0,
    store: Any = None,
    executor: Any = None,
    progress: bool | None = None,
    **options: Any,
) -> Sweep:
    """Learning curves over a grid of parameters, as one labelled dataset.

    over: values by name of an axis, {"sample_ratio": [1.0, 2.0], "temperature": [0.2, 0.4]}: every combination is a
        point. A name is a field of the problem, of one of its parts ("penalty.strength"), of the algorithm, a parameter
        of a function of yours, or an option ("tol", "seed"); the end of it is enough where that is unique.
    kind: what is called at every point: "solve", "least_squares", "online" or "simulate".
    t_max, times: all points record at the same times, 65 up to t_max unless `times` says others.
    seed: of every point, so that neighbours share their noise and diagrams are smooth; an axis "seed" gives each of its
        values. A point is the single call with its seed, bit for bit.
    store: a folder in which every finished point is kept, under the hash of all that it depends on. The same call goes
        on after a kill; a larger grid computes what is new; several sweeps may share one.
    executor: None (here, one after another), a number of processes, a `concurrent.futures` executor, a dask `Client`,
        or the address of a scheduler, "tcp://host:8786".
    options: of the function, such as tol, dt, metrics, dim, trials.

    A point that is refused, diverges or runs out of memory is marked, with its reason; the others go on.
    """
    keep_programs()
    instance("problem", problem, Problem, "a Problem")
    instance("algorithm", algorithm, Algorithm, "an algorithm such as sl.SGD(0.4)")
    if kind not in KINDS:
        raise reject("kind", repr(kind), f"it must be {' or '.join(map(repr, KINDS))}")
    axes = points.axes_of(over)
    at = grid.linear(t_max, TIMES) if times is None and t_max is not None else grid.resolve(t_max, times)
    tasks = _tasks(axes, Task(problem, algorithm, kind, options, at, seed))
    kept = None if store is None else Store(store)
    engine = engines.choose(executor, tasks[0])
    about = {
        "title": f"sweep over {', '.join(axes)}",
        "sgdlimit_kind": "sweep",
        "kind": kind,
        "problem": json.dumps(to_words(problem)),
        "algorithm": json.dumps(to_words(algorithm)),
        "options": json.dumps(to_words(options)),
        "sgdlimit_version": __version__,
        "numerical_version": numerical_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    try:
        outcomes = _computed(tasks, kept, engine, progress)
    except KeyboardInterrupt:
        words = "no point was kept; give the sweep a folder, store='…', and the same call goes on from there"
        if kept is not None:
            words = f"{sum(task.key in kept for task in tasks)} of {len(tasks)} points are kept in {kept.folder}"
            words += "; the same call goes on from there"
        raise KeyboardInterrupt(words) from None
    found = assemble(axes, tasks, outcomes, about)
    broken = [line for line in found.failed if line["status"] == "failed"]
    if broken:
        words = f"{len(broken)} of {len(tasks)} points failed; the first: {broken[0]['reason']}"
        warnings.warn(words, SweepWarning, stacklevel=2)
    return found


def _tasks(axes: Mapping[str, tuple[object, ...]], base: Task) -> list[Task]:
    """The task of every point, the last axis fastest; refused are all that cannot be computed, or would not be kept."""
    kind = base.kind
    for option, value in base.options.items():
        if option in NOT_HERE and option in parameters_of(FUNCTIONS[kind]):
            why = f"a sweep keeps curves and final values; for one point call sl.{kind} itself"
            raise reject(option, "an option of a sweep", why)
        if option not in takes(kind):
            raise reject(option, value, f"unknown option; there are {', '.join(takes(kind))}")
    paths = points.find(list(axes), base, [name for name in takes(kind) if name != "t_max"])
    tasks = []
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        task = points.changed(base, {paths[name]: value for name, value in point.items()})
        own = dict(task.options)
        number = seed_number(own.pop("seed", base.seed))
        if kind == "solve":
            numbers(own)
        labels = {name: points.label(value) for name, value in point.items()}
        tasks.append(dataclasses.replace(task, options=own, seed=number, labels=labels))
    for name, taken in parameters_of(FUNCTIONS[kind]).items():
        if taken.default is taken.empty and name not in (*NOT_HERE, *tasks[0].options):
            raise reject(name, "nothing", f"sl.{kind} needs it")
    metrics.on_samples(tasks[0].problem, base.options.get("metrics"))
    metrics.on_weights(tasks[0].problem, base.options.get("weight_metrics"))
    return tasks


def _computed(
    tasks: list[Task], store: Store | None, engine: engines.Engine, progress: bool | None
) -> dict[str, Outcome]:
    """Every outcome by its hash: what is not in the store is computed, unless another sweep puts it there meanwhile."""
    outcomes = {} if store is None else store.load(task.key for task in tasks)
    left = list({task.key: task for task in tasks if task.key not in outcomes}.values())
    if not left:
        return outcomes
    total, failures = len({task.key for task in tasks}), 0
    others: set[str] = set()
    """Points that another sweep has put into the store since we looked."""

    def done_elsewhere(task: Task) -> bool:
        if store is None or task.key not in store:
            return False
        if not others:  # somebody walks through the same points: from here on each in an order of its own
            random.shuffle(left)
        others.add(task.key)
        return True

    def pending() -> Iterator[Task]:
        while left:
            task = left.pop(0)
            if done_elsewhere(task):
                bar.advance()
            else:
                yield task

    with (
        Progress("sweep", len(left), progress) as bar,
        warnings.catch_warnings(action="ignore", category=RuntimeWarning),  # `status` and `reason` tell of every point
        contextlib.closing(engine(pending())) as finished,
    ):
        for task, outcome in finished:
            if store is not None and outcome.lasting and not done_elsewhere(task):
                store.put(task, outcome)
            outcomes[task.key] = outcome
            failures += outcome.failed
            bar.advance()
            bar.phase(f"{len(outcomes.keys() | others)} of {total} done, {failures} failed")
    return outcomes if store is None else outcomes | store.load(others - outcomes.keys())
