"""`sweep`: every point checked before any work, computed once, kept when it is finished."""

import contextlib
import random
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ..algorithms import Algorithm
from ..errors import SweepWarning
from ..problem import Problem
from ..progress import Progress
from .ask import PreparedSweep, prepare
from .result import Sweep, assemble
from .tasks import Outcome, Task


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
    asked = prepare(
        problem, algorithm, over, kind=kind, t_max=t_max, times=times, seed=seed, store=store, executor=executor,
        options=options,
    )  # fmt: skip
    try:
        outcomes = asked.stored()
        outcomes |= _computed(asked, asked.missing(outcomes), progress)
    except KeyboardInterrupt:
        words = "no point was kept; give the sweep a folder, store='…', and the same call goes on from there"
        if asked.store is not None:
            total, missing = len(asked.tasks), len(asked.missing(asked.stored()))
            words = f"{total - missing} of {total} points are kept in {asked.store.folder}"
            words += "; the same call goes on from there"
        raise KeyboardInterrupt(words) from None
    found = assemble(asked.axes, asked.tasks, outcomes, asked.about)
    broken = [line for line in found.failed if line["status"] == "failed"]
    if broken:
        words = f"{len(broken)} of {len(asked.tasks)} points failed; the first: {broken[0]['reason']}"
        warnings.warn(words, SweepWarning, stacklevel=2)
    return found


def _computed(asked: PreparedSweep, missing: list[Task], progress: bool | None) -> dict[str, Outcome]:
    """Compute what is missing; what another sweep puts into the store meanwhile is taken from there."""
    store, left, total = asked.store, list(missing), len(asked.tasks)
    outcomes: dict[str, Outcome] = {}
    failures = 0
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

    if not missing:
        return outcomes
    with (
        Progress("sweep", len(missing), progress) as bar,
        warnings.catch_warnings(action="ignore", category=RuntimeWarning),  # `status` and `reason` tell of every point
        contextlib.closing(asked.engine(pending())) as finished,
    ):
        for task, outcome in finished:
            if store is not None and outcome.lasting and not done_elsewhere(task):
                store.put(task, outcome)
            outcomes[task.key] = outcome
            failures += outcome.failed
            bar.advance()
            bar.phase(f"{total - len(missing) + len(outcomes.keys() | others)} of {total} done, {failures} failed")
    return outcomes if store is None else outcomes | store.load(others - outcomes.keys())
