"""`sweep`: every point checked before any work, computed once, kept when it is finished."""

import contextlib
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..algorithms import Algorithm
from ..errors import SweepWarning
from ..problem import Problem
from ..progress import Progress
from . import tasks
from .ask import Job, asked
from .packs import Block, block
from .result import Sweep, assemble
from .store import FEW
from .tasks import Outcome, Task


def sweep(
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
    progress: bool | None = None,
    **options: Any,
) -> Sweep:
    """Learning curves over a grid of parameters, or over a list of points, as one labelled dataset.

    over: values by name of an axis, {"sample_ratio": [1.0, 2.0], "temperature": [0.2, 0.4]}: every combination is a
        point. A name is a field of the problem, of one of its parts ("penalty.strength"), of the algorithm, a parameter
        of a function of yours, or an option ("tol", "seed", "t_max"); the end of it is enough where that is unique.
    points: a list of such tables instead, one for each point; `sl.design.latin` and `sl.design.sobol` make some.
    kind: "solve", "least_squares", "online", "simulate", or several, which are then compared; as a table,
        {"solve": {"tol": 1e-3}, "simulate": {"dim": 400}}, with options for each.
    t_max, times: all points record at the same times, 65 up to t_max unless `times` says others. With t_max as an axis
        only final values can be kept.
    keep: "curves", or "final" for values at the last time.
    seed, seeds: "common": every point has this seed, and noise that neighbours share makes smooth diagrams;
        "independent": its own, drawn from its hash. Either way a point is the single call with its `seed`, bit for bit.
    store: a folder in which every finished point is kept, under the hash of all that it depends on. The same call goes
        on after a kill; a larger grid computes what is new; several sweeps may share one.
    executor: None (here, one after another), a number of processes, a `concurrent.futures` executor, a dask `Client`,
        or the address of a scheduler, "tcp://host:8786".
    retries: how often a point is tried again whose process died.
    options: of the functions, such as tol, dt, metrics, dim, trials.

    A point that is refused, diverges or runs out of memory is marked, with its reason; the others go on.
    """
    job = asked(
        problem, algorithm, over, listed=points, kind=kind, t_max=t_max, times=times, keep=keep, seed=seed,
        seeds=seeds, store=store, executor=executor, retries=retries, options=options,
    )  # fmt: skip
    try:
        blocks = job.stored()
        blocks += _computed(job, job.missing(blocks), progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(job)) from None
    finally:
        job.engine.close()
    found = assemble(job.plan, job.tasks, blocks, job.about)
    broken = [line for line in found.failed if line["status"] == "failed"]
    if broken:
        words = f"{len(broken)} of {len(job.tasks)} points failed; the first: {broken[0]['reason']}"
        warnings.warn(words, SweepWarning, stacklevel=2)
    return found


def _computed(job: Job, missing: list[Task], progress: bool | None) -> list[Block]:
    """Compute what is missing; what another sweep puts into the store meanwhile is taken from there."""
    store, blocks = job.store, []
    others: list[str] = []
    if not missing:
        return blocks
    drawn = done = failures = 0

    def pending() -> Iterator[Task]:
        nonlocal drawn
        for task in missing:
            if store is not None and task.key in store:
                others.append(task.key)
                bar.advance()
            else:
                drawn += 1
                told()
                yield task

    def told() -> None:
        running = drawn - done if job.engine.workers is None else min(drawn - done, job.engine.workers)
        finished = len(job.tasks) - len(missing) + done + len(others)
        bar.phase(f"{finished} of {len(job.tasks)} done, {running} running, {failures} failed")

    with Progress("sweep", len(missing), progress) as bar, tasks.quiet(), contextlib.ExitStack() as stack:
        if store is not None and not stack.enter_context(store.at_work()):
            # Another sweep may walk through the same points: meet it seldom.
            random.shuffle(missing)
        for task, outcome in stack.enter_context(contextlib.closing(job.engine.run(pending()))):
            if store is not None and outcome.lasting:
                store.put(task, outcome)
            blocks.append(block(task.key, outcome))
            done, failures = done + 1, failures + _is_failed(outcome)
            bar.advance()
            told()
        if store is not None:
            store.pack(FEW)
            blocks += store.load(others)
    return blocks


def _is_failed(outcome: Outcome) -> bool:
    return any(name.endswith("/status") and str(word) == "failed" for name, word in outcome.arrays.items())


def _kept(job: Job) -> str:
    """After Ctrl-C: what is there, and how to go on."""
    if job.store is None:
        return "no point was kept; give the sweep a folder, store='…', and the same call goes on from there"
    there = len(job.tasks) - len(job.missing(job.stored()))
    return f"{there} of {len(job.tasks)} points are kept in {job.store.folder}; the same call goes on from there"
