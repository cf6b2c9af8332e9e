"""Chains of problems: training goes on with the next one where the last one ended.

All teachers are units of one teacher, jointly Gaussian, and the labels of every stage read their own: so every stage
knows the overlap with all of them, and the loss and the error on every task.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar, final

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ._tree import values_of
from ._types import Scalar
from .algorithms import Algorithm
from .algorithms.samples import INTERCEPT
from .errors import instance, reject, seed_number
from .exact import online
from .problem import Iid, Normal, Point, Problem, Towards, observables
from .problem.parameters import finite
from .problem.tasks import Correlated, ReadUnits
from .problem.trained import at as at_values
from .problem.trained import restarted, trained_of
from .results import Runs, Solution
from .results.ends import start_of
from .results.quality import Status
from .simulation import simulate
from .simulation.run import handing
from .simulation.trial import Handed
from .solver import solve

STAGES = "a list of (problem, algorithm, t_max), such as [(first, sl.SGD(0.4), 5.0), (second, sl.SGD(0.4), 5.0)]"
PAIRS = "a correlation from −1 to 1, or a matrix of them over tasks, or over all units of all teachers"
Part = TypeVar("Part", Solution, Runs)


@final
@dataclass(frozen=True)
class Chain(Generic[Part]):
    """What a chain of problems came to: one result for each stage, and `curve` along all of them.

    stages: a Solution or Runs for each stage, each with its own time from 0; fewer than asked for where one diverged.
    tasks: which task each stage trained on. Variables `test_task_0_loss`, `test_task_0_error` and so on, and those of
        `train`, tell of every task at every stage; teachers of all tasks are units of `overlap`, one after the other. A
        task with trained parameters is told of at stages that train those of its names.
    """

    stages: tuple[Part, ...]
    tasks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, stage: int) -> Part:
        return self.stages[stage]

    def __iter__(self) -> Iterator[Part]:
        return iter(self.stages)

    @property
    def status(self) -> str:
        """That of the first stage that is not complete; complete where all are."""
        return next((part.status for part in self.stages if not part.success), str(Status.COMPLETE))

    @property
    def starts(self) -> np.ndarray:
        """When each stage begins, in the time of the whole chain."""
        return np.cumsum([0.0, *(part.time[-1] for part in self.stages[:-1])])

    @property
    def time(self) -> np.ndarray:
        """Times of all stages, one after the other; the end of a stage and the start of the next one are both there."""
        return np.concatenate([start + part.time for start, part in zip(self.starts, self.stages, strict=True)])

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """A variable and its error along `time`, through all stages."""
        values, errors = zip(*(part.curve(name) for part in self.stages), strict=True)
        return np.concatenate(values), np.concatenate(errors)

    def __repr__(self) -> str:
        told = (f"  task {task}: {part.title()}, {part.status}" for task, part in zip(self.tasks, self, strict=False))
        return "\n".join([f"<Chain of {len(self)} stages>", *told])


def chain(
    stages: Sequence[tuple[Problem, Algorithm, Any]],
    *,
    teacher_overlap: ArrayLike = 0.0,
    seed: int = 0,
    **options: Any,
) -> Chain[Solution]:
    """Learning curves of one student that is trained on one problem after the other: transfer, forgetting, curricula.

    stages: (problem, algorithm, t_max) of each, or times in the place of t_max. A problem that comes again is the same
        task with fresh data. The first problem has the start; the others go on where the one before ended, as
        `solution.end()` says, and trained parameters where one of their name was trained last. Teachers are
        `sl.Normal`, data iid.
    teacher_overlap: correlation between the teachers of different tasks: a number, unit by unit; a matrix over tasks;
        or a matrix over all units of all teachers, task after task.
    options: those of `sl.solve`, or of `sl.online` where data are infinite, for every stage.

    Errors are those of each stage by itself: what the start of a stage owes to errors of the one before is not in them.
    """
    told = _tasks(stages, teacher_overlap)
    _refuse(options)
    _refuse_intercepts(told)
    found: list[Solution] = []
    kept: dict[str, np.ndarray] = {}  # where trained parameters of any stage ended
    for number, (problem, algorithm, times) in enumerate(told.stages):
        if found:
            problem = replace(problem, init=_go_on(found[-1], told.moments))
            problem = restarted(problem, kept)
        metrics = {**(options.get("metrics") or {}), **_averages(told.tasks, problem)}
        theory: Callable[..., Solution] = online if problem.infinite_data else solve
        own = {**options, "metrics": metrics, "seed": _seed(seed, number)}
        found.append(theory(problem, algorithm, **times, **own))
        if found[-1].status == Status.DIVERGED:
            break
        kept |= {name: found[-1][name][-1] for name in trained_of(problem)}
    return Chain(tuple(found), told.numbers)


def simulate_chain(
    stages: Sequence[tuple[Problem, Algorithm, Any]],
    *,
    dim: int,
    trials: int = 10,
    teacher_overlap: ArrayLike = 0.0,
    seed: int = 0,
    **options: Any,
) -> Chain[Runs]:
    """Run a chain of problems at dimension d: the weights of a trial go on to the next stage, with fresh data.

    Stages and teacher_overlap as in `sl.chain`; options are those of `sl.simulate`, for every stage. Trained parameters
    and an intercept go on with the weights.
    """
    told = _tasks(stages, teacher_overlap)
    _refuse(options)
    found: list[Runs] = []
    kept: dict[str, np.ndarray] = {}  # (trials, ...), where those of any stage ended
    for number, (problem, algorithm, times) in enumerate(told.stages):
        metrics = {**(options.get("metrics") or {}), **_averages(told.tasks, problem)}
        own = {**options, "metrics": metrics, "seed": _seed(seed, number)}
        with handing(_weights(found[-1], kept) if found else None):
            found.append(simulate(problem, algorithm, dim=dim, trials=trials, **times, **own))
        if found[-1].status == Status.DIVERGED:
            break
        names = (*trained_of(problem), *([INTERCEPT] * problem.bias))
        kept |= {name: found[-1][name][:, -1] for name in names}
    return Chain(tuple(found), told.numbers)


def _weights(runs: Runs, kept: dict[str, np.ndarray]) -> Callable[[int], Handed]:
    """The last weights of a trial, its teachers, and what all samples share, (trials, ...) by name."""
    theta, theta_star = runs["theta"], runs["theta_star"]

    def of(trial: int) -> Handed:
        shared = {name: jnp.asarray(values[trial]) for name, values in kept.items()}
        return Handed(jnp.asarray(theta[trial, -1]), jnp.asarray(theta_star[trial]), shared)

    return of


def _go_on(solution: Solution, moments: np.ndarray) -> Towards:
    return start_of(solution["norm"][-1], solution["overlap"][-1], moments)


class _Told(NamedTuple):
    """A chain, checked: stages whose problems know all teachers, and what tells of every task."""

    stages: list[tuple[Problem, Algorithm, dict[str, Any]]]
    numbers: tuple[int, ...]
    moments: np.ndarray
    tasks: list[Problem]
    """Every task, by its number."""


@final
class TaskAverage:
    """Loss or error on a task, ψ(r, r_star, z, **trained parameters); equal ones compile once."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.problem, self.name = problem, name
        self._key = name, values_of(problem)

    def __call__(self, r: Any, r_star: Any, z: Scalar, **values: Any) -> Scalar:
        """ψ at one sample, by the task's own loss, labels and error, with these values of trained parameters."""
        own = observables.on_samples(at_values(self.problem, values))[self.name]
        return own(jnp.atleast_1d(r), jnp.atleast_1d(r_star), jnp.asarray(z))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskAverage) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


def _averages(tasks: list[Problem], problem: Problem) -> dict[str, TaskAverage]:
    """Loss and error on every task whose trained parameters this problem has."""
    return {
        f"task_{number}_{name}": TaskAverage(task, name)
        for number, task in enumerate(tasks)
        if trained_of(task).keys() <= trained_of(problem).keys()
        for name in observables.on_samples(task)
    }


def _seed(seed: int, stage: int) -> int:
    """Of a stage: that of the user for the first, and others that no stage of another chain has."""
    if not stage:
        return seed_number(seed)
    return int.from_bytes(hashlib.sha256(f"{seed_number(seed)} {stage}".encode()).digest()[:4], "big")


def _refuse(options: dict[str, Any]) -> None:
    for name, why in {
        "checkpoint": "a chain keeps none; take `solution.end()` and one file for each stage",
        "times": "give times in the place of t_max in each stage",
        "t_max": "give it in each stage",
        "snapshots": "the last weights of each stage are kept, those that the next one starts from",
        "test_data": "every task has the law of its own data",
    }.items():
        if options.get(name) is not None:
            raise reject(name, repr(options[name]), why)


def _tasks(stages: Any, teacher_overlap: ArrayLike) -> _Told:
    """The chain as `chain` and `simulate_chain` go through it, or an error that says what hinders."""
    if isinstance(stages, str | bytes) or not isinstance(stages, Sequence) or not len(stages):
        raise reject("stages", repr(stages), f"it must be {STAGES}")
    problems: list[Problem] = []  # of each task
    numbers, steps = [], []
    for at, stage in enumerate(stages):
        if not isinstance(stage, Sequence) or len(stage) != 3:
            raise reject(f"stages[{at}]", repr(stage), f"stages are {STAGES}")
        problem, algorithm, until = stage
        instance(f"stages[{at}]", problem, Problem, f"a problem first: {STAGES}")
        instance(f"stages[{at}]", algorithm, Algorithm, f"an algorithm second: {STAGES}")
        known = next((number for number, task in enumerate(problems) if task is problem), None)
        if known is None:
            _check(f"stages[{at}]", problem, stages[0][0], at)
            known = len(problems)
            problems.append(problem)
        numbers.append(known)
        steps.append((algorithm, {"t_max": until} if np.ndim(until) == 0 else {"times": until}))
    _refuse_shapes(problems)
    counts = [problem.k for problem in problems]
    moments = _moments(problems, counts, teacher_overlap)
    noise, noisy = _noises(problems)
    firsts = np.cumsum([0, *counts[:-1]]).tolist()
    teacher = {"teacher": Correlated(moments), "teacher_width": sum(counts), "noise": noise}
    whole = [
        replace(problem, labels=ReadUnits(problem.labels, first, count, factor), init=Point(), **teacher)
        for problem, first, count, factor in zip(problems, firsts, counts, noisy, strict=True)
    ]
    start = problems[0].init
    if isinstance(start, Towards):
        norm, overlap = start.moments(problems[0].star.moments(counts[0])[1])
        scale = np.linalg.pinv(moments[: counts[0], : counts[0]], hermitian=True)
        start = start_of(norm, overlap @ scale @ moments[: counts[0]], moments)
    told = [(whole[number], *step) for number, step in zip(numbers, steps, strict=True)]
    told[0] = (replace(told[0][0], init=start), *told[0][1:])
    return _Told(told, tuple(numbers), moments, whole)


def _check(where: str, problem: Problem, first: Problem, at: int) -> None:
    """Refuse problems that no chain can hold."""
    if not isinstance(problem.teacher, Normal):
        given = type(problem.teacher).__name__ if problem.teacher else "no teacher"
        why = "teachers of a chain are jointly Gaussian, sl.Normal(scale)"
        raise reject(f"{where}.teacher", given, why)
    if not isinstance(problem.data, Iid):
        why = "coordinates of a chain are all alike, sl.Iid()"
        raise reject(f"{where}.data", type(problem.data).__name__, why)
    if problem.width != first.width:
        raise reject(f"{where}.width", problem.width, f"one student goes through the chain, of width {first.width}")
    if at and problem.init != Point():
        why = "only the first problem has a start; the others go on where the one before ended"
        raise reject(f"{where}.init", type(problem.init).__name__, why)


def _refuse_shapes(problems: list[Problem]) -> None:
    """Trained parameters that go on under a name must be as many numbers as there."""
    shapes: dict[str, tuple[int, ...]] = {}
    for number, problem in enumerate(problems):
        for name, part in trained_of(problem).items():
            if shapes.setdefault(name, np.shape(part.start)) != np.shape(part.start):
                given = f"{name} of shape {np.shape(part.start)} in task {number}, and {shapes[name]} before"
                raise reject("stages", given, "what goes on under one name has one shape; rename one of them")


def _refuse_intercepts(told: _Told) -> None:
    """The limit starts an intercept from 0; one of the loss starts from where it ended."""
    for number, (problem, _, _) in enumerate(told.stages):
        if problem.bias and any(before.bias for before, _, _ in told.stages[:number]):
            why = "the limit starts an intercept from 0; write it in the loss, parameters={'b': sl.Trained(0.0)}"
            raise reject(f"stages[{number}].bias", True, f"{why}, or take sl.simulate_chain")


def _moments(problems: list[Problem], counts: list[int], given: ArrayLike) -> np.ndarray:
    """Second moments of all units of all teachers."""
    tasks, units = len(problems), sum(counts)
    pairs = finite("teacher_overlap", given, PAIRS, axes=(0, 2))
    task = np.repeat(np.arange(tasks), counts)
    unit = np.concatenate([np.arange(count) for count in counts])
    if pairs.ndim and pairs.shape not in ((tasks, tasks), (units, units)):
        raise reject("teacher_overlap", f"shape {pairs.shape}", f"it must be {PAIRS}: {tasks} tasks, {units} units")
    between = pairs[task][:, task] if pairs.shape == (tasks, tasks) else np.broadcast_to(pairs, (units, units))
    same = np.eye(units)
    if pairs.shape != (units, units) or units == tasks:
        between = np.where(unit[:, None] == unit, between, 0.0)  # unit by unit
    correlation = np.where(task[:, None] == task, same, between)
    if not np.allclose(correlation, correlation.T) or np.linalg.eigvalsh(correlation)[0] < -1e-9 * units:
        raise reject("teacher_overlap", given, f"no teachers have it; it must be {PAIRS} that go together, symmetric")
    scale = np.array([float(problem.teacher.scale) for problem in problems if isinstance(problem.teacher, Normal)])
    return correlation * np.outer(scale[task], scale[task])


def _noises(problems: list[Problem]) -> tuple[Any, list[float]]:
    """One law of noise for all tasks, and what each task multiplies z by."""
    laws = [problem.noise_law for problem in problems]
    if all(law == laws[0] for law in laws):
        return problems[0].noise, [1.0] * len(problems)
    plain = [law.scale if isinstance(law, Normal) else 0.0 if law == Point(0.0) else None for law in laws]
    if any(scale is None for scale in plain) or any(p.noise_law is not p.noise for p in problems):
        names = ", ".join(dict.fromkeys(type(law).__name__ for law in laws))
        raise reject("stages", f"laws of noise {names}", "tasks of a chain have the same law of z, or sl.Normal(scale)")
    return Normal(1.0), [float(scale) for scale in plain if scale is not None]
