"""What a sweep will take, before it begins."""

import time as clock
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..algorithms import Algorithm
from ..problem import Problem
from . import tasks
from .ask import prepare
from .store import Store
from .tasks import Task


@final
@dataclass(frozen=True)
class Outline:
    """A sweep that has not begun: its points, how many are stored, and what the others will take."""

    points: list[dict[str, Any]]
    """Values along the axes, and whether it is `stored`."""
    missing: int
    seconds: float
    """Of work that is left, by a pilot; beside compiling."""
    workers: int | None

    def __repr__(self) -> str:
        done = len(self.points) - self.missing
        spread = f" on {self.workers} workers" if self.workers and self.workers > 1 else ""
        cost = f"about {_duration(self.seconds)}{spread}" if self.missing else "nothing to do"
        return f"<{len(self.points)} points, {done} of them stored; {cost}>"


def plan_sweep(
    problem: Problem,
    algorithm: Algorithm,
    over: Mapping[str, Any] | None = None,
    *,
    points: Sequence[Mapping[str, Any]] | None = None,
    kind: Any = "solve",
    t_max: float | None = None,
    times: Any = None,
    keep: str = "curves",
    seed: int = 0,
    seeds: str = "common",
    store: Any = None,
    executor: Any = None,
    retries: int = 2,
    **options: Any,
) -> Outline:
    """What `sweep` with the same arguments would do, and how long: the first and the last missing point are a pilot.

    Of a `solve` to a tolerance only the first stage is run (`sl.plan`). Others are computed here, and stored.
    """
    asked = prepare(
        problem, algorithm, over, listed=points, kind=kind, t_max=t_max, times=times, keep=keep, seed=seed,
        seeds=seeds, store=store, executor=executor, retries=retries, options=options,
    )  # fmt: skip
    missing = asked.missing(asked.stored())
    keys = {task.key for task in missing}
    lines = [{**task.labels, "stored": task.key not in keys} for task in asked.tasks]
    each = [_pilot(task, asked.store) for task in (*missing[:1], *missing[1:][-1:])]
    seconds = float(np.mean(each)) * len(missing) / (asked.engine.workers or 1) if each else 0.0
    return Outline(lines, len(missing), seconds, asked.engine.workers)


def _pilot(task: Task, store: Store | None) -> float:
    """Seconds of one point, beside compiling."""
    from ..solver import plan

    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        plain = {"tol", "variables", "replicas"}
        if task.calls.keys() == {"solve"} and plain.issuperset(task.calls["solve"]):
            return plan(
                task.problem, task.algorithm, times=task.times, seed=task.seed, progress=False, **task.calls["solve"]
            ).seconds
        tasks.perform(task)  # compiles
        begin = clock.perf_counter()
        outcome = tasks.perform(task)
        if store is not None and outcome.lasting:
            store.put(task, outcome)
        return clock.perf_counter() - begin


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds > 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"
