"""What a sweep is asked for: every argument checked, and the task of every point made, before any work."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .. import grid as time_grid
from .._cache import keep_programs
from .._version import __version__
from .._vocabulary import parameters_of
from ..algorithms import Algorithm
from ..control.question import Numbers, numbers
from ..describe import to_words
from ..errors import instance, reject, seed_number, whole
from ..execute.crew import check_pickles
from ..problem import Problem
from ..results import metrics
from . import engines, points
from .points import Plan, Setting
from .store import Store
from .tasks import KINDS, NOT_HERE, Outcome, Task, function, numerical_version, takes

TIMES = 65
"""Recorded times where only t_max is given."""

Options = Mapping[str, Any]
"""Arguments by name, of a sweep or of one of its functions, as the user gives them."""


class PreparedSweep(NamedTuple):
    """A sweep that can begin."""

    plan: Plan
    tasks: list[Task]
    store: Store | None
    engine: engines.Engine
    about: dict[str, str]

    def missing(self, known: Mapping[str, Outcome]) -> list[Task]:
        """Tasks that have no outcome among those known, each once."""
        return list({task.key: task for task in self.tasks if task.key not in known}.values())

    def stored(self) -> dict[str, Outcome]:
        """Points that are finished already, by their hash."""
        return {} if self.store is None else self.store.load(task.key for task in self.tasks)


def prepare(
    problem: Problem, algorithm: Algorithm, over: object, *, listed: object, options: Options, **given: Any
) -> PreparedSweep:
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
    base = Setting(problem, algorithm, {})
    paths = points.find(plan.names, base, dict.fromkeys(name for kind in kinds for name in takes(kind)))
    times = _times(given, ("options", "t_max") in paths.values())
    if given["seeds"] == "independent" and ("options", "seed") in paths.values():
        raise reject("seeds", "independent", "seed is an axis, so every point has the seed it says; leave seeds out")
    settings = points.settings(plan, base, paths)
    made = [_task(*pair, kinds, times, given) for pair in zip(plan.points, settings, strict=True)]
    for kind, said in made[0].calls.items():
        for name, taken in parameters_of(function(kind)).items():
            if taken.default is taken.empty and name not in (*NOT_HERE, *said):
                raise reject(name, "nothing", f"sl.{kind} needs it")
        metrics.on_samples(made[0].problem, said.get("metrics"))
        metrics.on_weights(made[0].problem, said.get("weight_metrics"))
    store = None if given["store"] is None else Store(given["store"])
    engine = engines.choose(given["executor"], retries)
    if engine.by_name:
        check_pickles(made[0])
    about = {
        "title": f"sweep over {', '.join(plan.names)}",
        "problem": json.dumps(to_words(problem)),
        "algorithm": json.dumps(to_words(algorithm)),
        "calls": json.dumps({kind: {name: to_words(v) for name, v in said.items()} for kind, said in kinds.items()}),
        "sgdlimit_version": __version__,
        "numerical_version": numerical_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return PreparedSweep(plan, made, store, engine, about)


def _task(
    point: Mapping[str, object],
    setting: Setting,
    kinds: Mapping[str, Options],
    times: np.ndarray | None,
    given: Options,
) -> Task:
    """What one point computes; options along an axis win over those that are common."""
    own: dict[str, Any] = dict(setting.options)
    t_max, seed = own.pop("t_max", None), seed_number(own.pop("seed", given["seed"]))
    calls = {kind: {**said, **{n: own[n] for n in own if n in takes(kind)}} for kind, said in kinds.items()}
    if "solve" in calls:
        numbers(**{name: calls["solve"][name] for name in Numbers._fields if name in calls["solve"]})
    times = time_grid.linear(t_max, TIMES) if times is None else times
    labels = {name: points.label(value) for name, value in point.items()}
    task = Task(setting.problem, setting.algorithm, calls, times, seed, given["keep"] == "final", labels)
    return replace(task, seed=task.own_seed) if given["seeds"] == "independent" else task


def _times(given: Options, t_max_is_axis: bool) -> np.ndarray | None:
    """Recorded at every point; None: every point has a t_max of its own."""
    if not t_max_is_axis:
        if given["times"] is None and given["t_max"] is not None:
            return time_grid.linear(given["t_max"], TIMES)
        return time_grid.resolve(given["t_max"], given["times"])
    for name in ("t_max", "times"):
        if given[name] is not None:
            raise reject(name, given[name], "t_max is an axis; leave this out")
    if given["keep"] != "final":
        why = "with t_max as an axis points share no times; say keep='final', or take one t_max and select times"
        raise reject("keep", given["keep"], why)
    return None


def _kinds(kind: Any, options: Options, algorithm: Algorithm) -> dict[str, Options]:
    """What is computed at a point, with its options; every option must be one of somebody's.

    Where an algorithm has a step of its own, `dt` is meant for the theory.
    """
    several = [kind] if isinstance(kind, str) else kind
    if not isinstance(several, Mapping | Sequence) or not several or not all(name in KINDS for name in several):
        raise reject("kind", repr(kind), f"it must be {', '.join(KINDS)}, or several of them")
    if len(set(several)) < len(several):
        raise reject("kind", repr(kind), "one of them stands there twice")
    own = several if isinstance(several, Mapping) else {name: {} for name in several}
    for name, said in own.items():
        if not isinstance(said, Mapping):
            raise reject(f"kind[{name!r}]", repr(said), "it must be a table of options, such as {'tol': 1e-3}")
        for option in (*said, *options):
            if option in NOT_HERE and option in parameters_of(function(name)):
                why = f"a sweep keeps curves and final values; for one point call sl.{name} itself"
                raise reject(option, "an option of a sweep", why)
        for option in said:
            if option not in takes(name) or option in ("t_max", "seed"):
                raise reject(f"kind[{name!r}]", repr(option), f"sl.{name} has {', '.join(takes(name))}")
    known = dict.fromkeys(option for name in own for option in takes(name))
    for option, value in options.items():
        if option not in known:
            raise reject(option, value, f"unknown option; there are {', '.join(known)}")
    not_simulated = ("dt",) if algorithm.rows is not None and len(own) > 1 else ()
    meant = {name: {*takes(name)}.difference(not_simulated if name == "simulate" else ()) for name in own}
    return {name: {**{key: options[key] for key in options if key in meant[name]}, **own[name]} for name in own}
