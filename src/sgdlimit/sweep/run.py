"""`sweep`: every point checked before any work, computed once, kept when it is finished."""

import contextlib
import datetime
import json
import random
import time as clock
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from .. import grid as time_grid
from .._cache import keep_programs
from .._version import __version__
from ..algorithms import Algorithm
from ..describe import to_words
from ..errors import SweepWarning, instance, reject, seed_number, whole
from ..problem import Problem
from ..progress import Progress
from . import engines, points, tasks
from .points import Plan, Setting
from .result import Sweep, assemble
from .store import FEW, Block, Store, block
from .tasks import KINDS, Call, Outcome, Task

TIMES = 65
"""Recorded times where only t_max is given."""


class Job(NamedTuple):
    """A sweep that can begin."""

    plan: Plan
    tasks: list[Task]
    store: Store | None
    engine: engines.Engine
    about: dict[str, str]

    def missing(self, blocks: Sequence[Block]) -> list[Task]:
        """Tasks that have no block, each once."""
        known = {key for found in blocks for key in found.keys}
        return list({task.key: task for task in self.tasks if task.key not in known}.values())

    def stored(self) -> list[Block]:
        """Points that are finished already."""
        return [] if self.store is None else list(self.store.load({task.key for task in self.tasks}))


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
    job = _asked(
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


# --- what will it take? ---


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
    job = _asked(
        problem, algorithm, over, listed=points, kind=kind, t_max=t_max, times=times, keep=keep, seed=seed,
        seeds=seeds, store=store, executor=executor, retries=retries, options=options,
    )  # fmt: skip
    job.engine.close()
    missing = job.missing(job.stored())
    keys = {task.key for task in missing}
    lines = [{**task.labels, "stored": task.key not in keys} for task in job.tasks]
    each = [_pilot(task, job.store) for task in (*missing[:1], *missing[1:][-1:])]
    seconds = float(np.mean(each)) * len(missing) / (job.engine.workers or 1) if each else 0.0
    return Outline(lines, len(missing), seconds, job.engine.workers)


def _pilot(task: Task, store: Store | None) -> float:
    """Seconds of one point, beside compiling."""
    from ..dmft import plan

    with tasks.quiet():
        plain = {"tol", "variables", "replicas"}
        if all(kind == "solve" and plain.issuperset(options) for kind, options in task.calls):
            return plan(
                task.problem, task.algorithm, times=task.times, seed=task.seed, progress=False, **task.calls[0].options
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


# --- every argument checked ---


def _asked(
    problem: Problem, algorithm: Algorithm, over: Any, *, listed: Any, options: dict[str, Any], **given: Any
) -> Job:
    """Refuse, before any work, what cannot be computed; then make the task of every point."""
    keep_programs()
    instance("problem", problem, Problem, "a Problem")
    instance("algorithm", algorithm, Algorithm, "an algorithm such as sl.SGD(0.4)")
    if (over is None) == (listed is None):
        raise reject("over", "neither it nor points" if over is None else "both over and points", "give one of the two")
    for name, words in (("keep", ("curves", "final")), ("seeds", ("common", "independent"))):
        if given[name] not in words:
            raise reject(name, repr(given[name]), f"it must be {' or '.join(map(repr, words))}")
    retries = whole("retries", given["retries"], least=0, most=100, why="it must be a whole number from 0 to 100")
    kinds = _kinds(given["kind"], options, algorithm)
    plan = points.grid(over) if listed is None else points.listed(listed)
    names = dict.fromkeys(name for kind in kinds for name in tasks.takes(kind))
    base = Setting(problem, algorithm, {})
    paths = points.find(plan.names, base, names)
    times = _times(given, paths)
    if given["seeds"] == "independent" and ("options", "seed") in paths.values():
        raise reject("seeds", "independent", "seed is an axis, so every point has the seed it says; leave seeds out")
    settings = points.settings(plan, base, names)
    made = [_task(*pair, kinds, times, given) for pair in zip(plan.points, settings, strict=True)]
    tasks.check_metrics(made[0])
    store = None if given["store"] is None else Store(given["store"])
    engine = engines.choose(given["executor"], retries)
    engine.check(made[0])
    about = {
        "title": f"sweep over {', '.join(plan.names)}",
        "problem": json.dumps(to_words(problem)),
        "algorithm": json.dumps(to_words(algorithm)),
        "calls": json.dumps({kind: {name: to_words(v) for name, v in said.items()} for kind, said in kinds.items()}),
        "sgdlimit_version": __version__,
        "numerical_version": tasks.numerical_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return Job(plan, made, store, engine, about)


def _task(
    point: dict[str, Any], setting: Setting, kinds: dict[str, dict[str, Any]], times: Any, given: dict[str, Any]
) -> Task:
    """What one point computes; options along an axis win over those that are common."""
    own = dict(setting.options)
    t_max = own.pop("t_max", None)
    seed = seed_number(own.pop("seed", given["seed"]))
    calls = tuple(
        Call(kind, {**said, **{name: value for name, value in own.items() if name in tasks.takes(kind)}})
        for kind, said in kinds.items()
    )
    labels = {name: points.label(value) for name, value in point.items()}
    task = tasks.make(
        setting.problem, setting.algorithm, calls, time_grid.linear(t_max, TIMES) if times is None else times,
        final=given["keep"] == "final", labels=labels, seed=seed, own_seed=given["seeds"] == "independent",
    )  # fmt: skip
    tasks.check_call(task)
    return task


def _times(given: dict[str, Any], paths: Mapping[str, points.Path]) -> np.ndarray | None:
    """Recorded at every point; None: every point has a t_max of its own."""
    if ("options", "t_max") not in paths.values():
        t_max = given["t_max"]
        if given["times"] is None and t_max is not None:
            return time_grid.linear(t_max, TIMES)
        return time_grid.resolve(t_max, given["times"])
    for name in ("t_max", "times"):
        if given[name] is not None:
            raise reject(name, given[name], "t_max is an axis; leave this out")
    if given["keep"] != "final":
        why = "with t_max as an axis points share no times; say keep='final', or take one t_max and select times"
        raise reject("keep", given["keep"], why)
    return None


def _kinds(kind: Any, options: dict[str, Any], algorithm: Algorithm) -> dict[str, dict[str, Any]]:
    """What is computed at a point, with its options; every option must be one of somebody's.

    Where an algorithm has a step of its own, `dt` is meant for the theory.
    """
    own = kind if isinstance(kind, Mapping) else {name: {} for name in _each(kind)}
    if not own:
        raise reject("kind", repr(kind), f"name at least one of {', '.join(KINDS)}")
    for name, said in own.items():
        if name not in KINDS:
            raise reject("kind", repr(name), f"it must be {', '.join(KINDS)}, or several of them")
        if not isinstance(said, Mapping):
            raise reject(f"kind[{name!r}]", repr(said), "it must be a table of options, such as {'tol': 1e-3}")
        for option in said:
            tasks.check(name, option)
            if option not in tasks.takes(name) or option in ("t_max", "seed"):
                raise reject(f"kind[{name!r}]", repr(option), f"sl.{name} has {', '.join(tasks.takes(name))}")
    for option in options:
        for name in own:
            tasks.check(name, option)
        if not any(option in tasks.takes(name) for name in own):
            known = dict.fromkeys(name for kind in own for name in tasks.takes(kind))
            raise reject(option, options[option], f"unknown option; there are {', '.join(known)}")
    stepping = ("dt",) if algorithm.rows is not None and len(own) > 1 else ()
    given = {
        name: [key for key in tasks.takes(name) if key in options and not (name == "simulate" and key in stepping)]
        for name in own
    }
    return {name: {**{key: options[key] for key in given[name]}, **said} for name, said in own.items()}


def _each(kind: Any) -> tuple[Any, ...]:
    """One kind, or several, each once."""
    if isinstance(kind, str):
        return (kind,)
    if not isinstance(kind, Sequence) or not all(isinstance(name, str) for name in kind):
        raise reject("kind", repr(kind), f"it must be {', '.join(KINDS)}, or several of them")
    for name in kind:
        if list(kind).count(name) > 1:
            raise reject("kind", repr(name), "it stands there twice")
    return tuple(kind)
