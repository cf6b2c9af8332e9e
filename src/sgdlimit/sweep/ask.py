"""What a sweep is asked for: every argument checked, and the task of every point made, before any work."""

import datetime
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import grid as time_grid
from .._cache import keep_programs
from .._version import __version__
from .._vocabulary import parameters_of
from ..algorithms import Algorithm
from ..control.question import Numbers, numbers
from ..describe import to_words
from ..errors import instance, reject, seed_number
from ..problem import Problem
from ..results import metrics
from . import engines, points
from .points import Setting
from .store import Store
from .tasks import KINDS, NOT_HERE, Outcome, Task, function, numerical_version, takes

TIMES = 65
"""Recorded times where only t_max is given."""

Options = Mapping[str, Any]
"""Arguments by name, of a sweep or of its function, as the user gives them."""


class PreparedSweep(NamedTuple):
    """A sweep that can begin."""

    axes: dict[str, tuple[object, ...]]
    tasks: list[Task]
    """One a point, the last axis fastest."""
    store: Store | None
    engine: engines.Engine
    about: dict[str, str]

    def missing(self, known: Mapping[str, Outcome]) -> list[Task]:
        """Tasks that have no outcome among those known, each once."""
        return list({task.key: task for task in self.tasks if task.key not in known}.values())

    def stored(self) -> dict[str, Outcome]:
        """Points that are finished already, by their hash."""
        return {} if self.store is None else self.store.load(task.key for task in self.tasks)


def prepare(problem: Problem, algorithm: Algorithm, over: object, *, options: Options, **given: Any) -> PreparedSweep:
    """Refuse, before any work, what cannot be computed; then make the task of every point."""
    keep_programs()
    instance("problem", problem, Problem, "a Problem")
    instance("algorithm", algorithm, Algorithm, "an algorithm such as sl.SGD(0.4)")
    if (kind := given["kind"]) not in KINDS:
        raise reject("kind", repr(kind), f"it must be {' or '.join(map(repr, KINDS))}")
    _check_options(kind, options)
    axes, base = points.axes_of(over), Setting(problem, algorithm, dict(options))
    paths = points.find(list(axes), base, [name for name in takes(kind) if name != "t_max"])
    if given["times"] is None and given["t_max"] is not None:
        times = time_grid.linear(given["t_max"], TIMES)
    else:
        times = time_grid.resolve(given["t_max"], given["times"])

    def task(point: dict[str, object]) -> Task:
        setting = points.setting(point, base, paths)
        own = dict(setting.options)
        seed = seed_number(own.pop("seed", given["seed"]))
        if kind == "solve":
            numbers(**{name: own[name] for name in Numbers._fields if name in own})
        labels = {name: points.label(value) for name, value in point.items()}
        return Task(setting.problem, setting.algorithm, kind, own, times, seed, labels)

    made = [task(point) for point in points.every(axes)]
    for name, taken in parameters_of(function(kind)).items():
        if taken.default is taken.empty and name not in (*NOT_HERE, *made[0].options):
            raise reject(name, "nothing", f"sl.{kind} needs it")
    metrics.on_samples(made[0].problem, options.get("metrics"))
    metrics.on_weights(made[0].problem, options.get("weight_metrics"))
    store = None if given["store"] is None else Store(given["store"])
    about = {
        "title": f"sweep over {', '.join(axes)}",
        "sgdlimit_kind": "sweep",
        "kind": kind,
        "problem": json.dumps(to_words(problem)),
        "algorithm": json.dumps(to_words(algorithm)),
        "options": json.dumps(to_words(dict(options))),
        "sgdlimit_version": __version__,
        "numerical_version": numerical_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return PreparedSweep(axes, made, store, engines.choose(given["executor"], made[0]), about)


def _check_options(kind: str, options: Options) -> None:
    """Refuse options that the function does not take, or whose results a sweep does not keep."""
    for option, value in options.items():
        if option in NOT_HERE and option in parameters_of(function(kind)):
            why = f"a sweep keeps curves and final values; for one point call sl.{kind} itself"
            raise reject(option, "an option of a sweep", why)
        if option not in takes(kind):
            raise reject(option, value, f"unknown option; there are {', '.join(takes(kind))}")
