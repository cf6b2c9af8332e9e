"""`Question`: what is asked for, every argument checked before any work begins."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import jax
from numpy.typing import ArrayLike

from .. import grid
from .._fingerprint import digest
from .._types import Scalar
from ..algorithms import Algorithm, IterateAverage, iterates
from ..algorithms.base import check_share
from ..dmft import memory, planning
from ..dmft.march import assemble
from ..dmft.memory import Memory
from ..dmft.response import Response, Tangents
from ..dmft.system import System
from ..errors import precision, real, reject, seed_number, whole
from ..execute.place import Place, Room, Shared
from ..measure.pace import knots_of, moving_of
from ..problem import DataLaw, Problem, fields
from ..problem.data import Table, tested
from ..problem.problem import FEWEST_RARE, Rare, check_start, check_tails
from ..problem.trained import trained_of
from ..results import metrics as own
from ..results.checkpoint import Checkpoint, identity
from ..results.variables import COMPARABLE, OF, chosen
from .checks import (
    PART,
    Pace,
    check_choices,
    check_draws,
    check_rotated,
    check_step,
    look,
    refuse_kinks,
    refuse_step,
)

DEFAULT_TOLERANCE = 1e-2
MOST_SAMPLES = 2**26
"""As far as samples grow, and may be asked for."""
LONG, ROWS = 64.0, 2
"""Marches to later times take the tangents of one unit with a smooth force, of so many rows at most: a path that has
grown slow tells a regression little of its past. Gradient flow on least squares (δ = 1, λ = 0) to t = 1000 takes four
times as long by regression at the same noise, and a regression on the path of w runs away at t = 600."""
MOST_FUNCTIONS = 64
"""More exponentials are closer to each other than single precision can tell."""
FEWEST = 256
"""Samples of one march at least: its averages are what everything else feeds on."""

OPTIONAL = ("overlap", "mean_overlap", "intercept", "readout", "bias", "output_bias")
"""Curves that not every problem has."""

Averages = Mapping[str, Callable[..., Scalar]]
"""Functions of the user's by name, to be averaged."""


class Further(TypedDict, total=False):
    """What `solve` can be told beside its usual arguments."""

    variables: str | Sequence[str] | None
    max_bytes: float | None
    extrapolate: bool | None
    kernels: bool
    snapshots: ArrayLike | None
    metrics: Averages | None
    weight_metrics: Averages | None
    test_data: DataLaw | None
    averages: Mapping[str, IterateAverage] | None
    dtype: str


class Given(Further, total=False):
    """What a call may say, beside problem, algorithm and t_max."""

    tol: float | None
    times: ArrayLike | None
    dt: float | None
    samples: int | None
    replicas: int
    functions: int | None
    seed: int
    max_seconds: float | None
    checkpoint: str | os.PathLike[str] | None


class Numbers(NamedTuple):
    """What can be said of the numbers among the arguments without knowing the problem."""

    tol: float | None
    dt: float | None
    samples: int | None
    replicas: int
    max_seconds: float
    max_bytes: float


def numbers(given: Mapping[str, Any]) -> Numbers:
    """Return the numbers of a call, checked; where no bound on time or memory is named, it is infinity."""
    tol, dt, samples = (given.get(name) for name in ("tol", "dt", "samples"))
    if tol is not None:
        tol = real("tol", tol, least=1e-5, most=0.5, why="it must be a relative error between 1e-5 and 0.5")
    if samples is not None:
        why = f"it must be a whole number from 64 to {MOST_SAMPLES}; what takes more is met by tol"
        samples = whole("samples", samples, least=64, most=MOST_SAMPLES, why=why)
    if dt is not None:
        dt = real("dt", dt, above=0, why="it must be a positive time step")
    most = [math.inf, math.inf]
    for i, (name, unit) in enumerate((("max_seconds", "seconds"), ("max_bytes", "bytes"))):
        if (bound := given.get(name)) is not None:
            most[i] = real(name, bound, above=0, why=f"it must be a positive number of {unit}")
    why = "a standard error needs 4 to 4096 replicas"
    return Numbers(tol, dt, samples, whole("replicas", given.get("replicas", 16), least=4, most=4096, why=why), *most)


class Times(NamedTuple):
    """When to record and how long steps may be, as the user says."""

    t_max: float | None
    record: ArrayLike | None
    dt: float | None

    @property
    def last(self) -> float:
        """The time at which the march ends."""
        return float(grid.resolve(self.t_max, self.record)[-1])


class Wish(NamedTuple):
    """What shall be recorded beside the usual curves."""

    kernels: bool
    snapshots: ArrayLike | None
    metrics: own.Named
    weight_metrics: own.Named
    tested: Table | None
    """Groups of the fresh samples of a test, where their law is another."""
    averages: iterates.Averages = ()
    """Of the iterates, by name."""

    @property
    def draws(self) -> bool:
        """Whether draws of weights are wanted."""
        return bool(self.weight_metrics) or self.snapshots is not None

    @property
    def plain(self) -> bool:
        """Whether draws or kernels are wanted, which are not averaged over marches."""
        return self.kernels or self.draws


class Goal(NamedTuple):
    """How well which curves shall be known."""

    tol: float
    promised: bool
    """Whether a tolerance that is missed is told: not where the user fixed steps or samples and named none."""
    variables: tuple[str, ...]
    """Curves that must meet it."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked for, checked."""

    problem: Problem
    algorithm: Algorithm
    times: Times
    goal: Goal
    wish: Wish
    place: Place
    pace: Pace
    linear: bool
    """Whether h = Λθ."""
    response: Response | None = None
    """How Γ and 𝓡 are found; None for the regression that serves."""
    dense: bool = False
    """Whether all of the past is kept, step by step."""
    samples: int | None = None
    functions: int | None = None
    """Of the past, where the user fixes how many."""
    replicas: int = 16
    seed: int = 0
    extrapolate: bool = True
    dtype: str = "float32"
    max_seconds: float = math.inf
    fewest: tuple[int, str] = (1, "")
    """Samples that a march must have to see the rare events that an average rests on, and which average."""
    heavy: tuple[str, ...] = ()
    """Curves whose averages do not settle under the noise."""

    def steps(self, halvings: int) -> planning.Steps:
        """Return the steps of the finest grid, halved so often."""
        gentle, aligned = self.extrapolate and not self.wish.kernels, self.wish.kernels
        steps = planning.steps(
            self.algorithm, *self.times, self.pace.limit / PART, aligned, halvings, gentle, self.pace.moving
        )
        check_step(self.algorithm, steps.times, self.pace.limit)
        check_share(self.algorithm, steps.times)
        return steps

    def memories(self, steps: planning.Steps) -> list[Memory]:
        """Return the memories to try in turn: functions, twice as many, four times as many; or what the user fixes.

        The first steps decide, however often they are halved: programs serve all stages.
        """
        if self.dense:
            return [planning.dense(steps.times)]
        few = planning.functions(self.problem, self.algorithm, self.steps(0).times, self.pace.slopes)
        if self.functions is not None:
            return [memory.resized(few, self.functions)]
        more = memory.denser(few)
        return [few, more, memory.denser(more)]

    def system(self, count: int, steps: planning.Steps, kept: Memory) -> System:
        """Return the system of a march of so many samples."""
        check_draws(self.algorithm, self.problem, count, steps.times)
        self._check_rare(count)
        if count < self.known:
            why = f"a march must hold more samples than normals that a sample of {self.problem.rows} rows is made of"
            raise reject("samples", count * self.replicas, f"{why}; take {self.known * self.replicas} or more")
        return assemble(
            self.problem, self.algorithm, count, kept, linear=self.linear, response=self.response,
            tested=self.wish.tested, dtype=self.dtype, metrics=self.wish.metrics,
            weight_metrics=self.wish.weight_metrics, kernels=self.wish.kernels, averages=self.wish.averages,
        )  # fmt: skip

    @property
    def known(self) -> int:
        """Samples that a march has at least, so that the normals of all rows can be made orthonormal over them."""
        rows, units = self.problem.rows, self.problem.width + self.problem.k
        return 1 if rows == 1 else in_each(2 * (rows * units + 2), 1)

    def _check_rare(self, count: int) -> None:
        """Refuse a march in which too few of the rare events happen that its averages rest on."""
        need, which = self.fewest
        if count >= need:
            return
        why = f"a march must hold {need} samples to see {FEWEST_RARE} of the rare events that the {which} rests on"
        enough = in_each(need, 1) * self.replicas
        why += f"; take samples={enough} or more" * (enough <= MOST_SAMPLES)
        why += "; make them less rare, or (for a square loss) use sl.least_squares, which needs moments alone"
        if self.samples is not None:
            raise reject("samples", self.samples, f"{count} samples a march; {why}")
        raise reject("noise, labels, teacher", f"events once in {need / FEWEST_RARE:.2g} samples", why)


def in_each(samples: int, replicas: int) -> int:
    """Return how many of so many samples one replica has: a power of two."""
    return 2 ** (max(-(-samples // replicas), FEWEST) - 1).bit_length()


SHARED_BY_CHECKPOINT = ("tol", "variables", "dt", "times", "samples", "functions", "extrapolate", "kernels",
                        "snapshots", "test_data", "averages", "dtype")  # fmt: skip
"""Arguments that a checkpoint must share."""


def asked(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None,
    given: Given,
    *,
    response: Response | None = None,
    name: str = "kernels=True",
    shared: Shared | None = None,
) -> Question:
    """Return the question, every argument checked before any work begins.

    A reference has a name and a `response` of its own, and keeps all of the past; values that other solutions use too
    are in `shared`.
    """
    kernels, given = given.get("kernels", False), Given(**given)
    check_choices(problem, algorithm, given.get("extrapolate"), kernels)
    times = Times(t_max, given.get("times"), given.get("dt"))
    if kernels or response is not None:
        refuse_kinks(problem, times.last, name)
    given["extrapolate"] = given.get("extrapolate") is not False
    dtype = given["dtype"] = precision(given.get("dtype", "float32"))
    functions = given.get("functions")
    if functions is not None:
        why = f"it must be a whole number from 2 to {MOST_FUNCTIONS}; left out, the solver chooses"
        functions = given["functions"] = whole("functions", functions, least=2, most=MOST_FUNCTIONS, why=why)
    checked = numbers(given)
    on_samples = own.on_samples(problem, given.get("metrics"))
    on_weights = own.on_weights(problem, given.get("weight_metrics"))
    averages = iterates.named_averages(given.get("averages"), times.last)
    fresh = tested(problem.data, given.get("test_data"))
    wish = Wish(kernels, given.get("snapshots"), on_samples, on_weights, fresh, averages)
    rare, heavy = check_start(problem), check_tails(problem, bounded=algorithm.how.bounded)
    knots = knots_of([item for item in moving_of(problem) if item[0] == "penalty"], times.last)
    linear = fields.linear_drift(problem, times.last, knots)
    check_rotated(problem, linear, wish.draws)
    tol, fixed = checked.tol or DEFAULT_TOLERANCE, checked.dt is not None or checked.samples is not None
    kept = Checkpoint(given.get("checkpoint"), _owner(problem, algorithm, t_max, given, checked.replicas, wish))
    pace = look(problem, algorithm, times.last)
    refuse_step(problem, algorithm, linear, kernels or response is not None, name)
    apart = algorithm.how.by_batch or algorithm.how.friction is not None  # of many functions: (nm)² tangents take long
    single = problem.width == 1 and problem.rows <= ROWS
    slopes = kernels or (times.last > LONG and pace.smooth and single and not apart)
    return Question(
        problem=problem, algorithm=algorithm, times=times._replace(dt=checked.dt),
        goal=Goal(tol, checked.tol is not None or not fixed, _judged(problem, given.get("variables"), wish)),
        wish=wish, place=Place(Room.of(checked.max_bytes, kept), kept, shared or Shared()),
        pace=pace, linear=linear, dense=response is not None,
        response=response or (Tangents() if slopes else None),
        samples=checked.samples, functions=functions, replicas=checked.replicas, seed=seed_number(given.get("seed", 0)),
        extrapolate=given["extrapolate"], dtype=dtype, max_seconds=checked.max_seconds, heavy=heavy,
        fewest=_fewest(problem, rare, tol, heavy, wish.draws or not linear),
    )  # fmt: skip


def _owner(
    problem: Problem, algorithm: Algorithm, t_max: float | None, given: Given, replicas: int, wish: Wish
) -> dict[str, str]:
    """Who the work in a checkpoint belongs to."""
    if given.get("checkpoint") is None:
        return {}
    who: dict[str, object] = {word: given.get(word) for word in SHARED_BY_CHECKPOINT}
    who["kernels"] = wish.kernels
    who |= {"t_max": t_max, "replicas": replicas, "metrics": digest((wish.metrics, wish.weight_metrics))}
    who["number of devices"] = len(jax.devices())  # replicas are spread over them
    return identity(problem, algorithm, given.get("seed", 0), **who)


def _fewest(problem: Problem, rare: Rare, tol: float, heavy: tuple[str, ...], drawn: bool) -> tuple[int, str]:
    """Samples that a march needs for the rare events of labels, and of weights where these are drawn."""
    found = [rare.fewest(tol, without={name.split("_")[1] for name in heavy})]
    if drawn:
        laws = {"start": problem.init, "teacher": problem.star}
        found += [(math.ceil(FEWEST_RARE / law.rarest), name) for name, law in laws.items()]
    return max(found)


def _judged(problem: Problem, names: str | Sequence[str] | None, wish: Wish) -> tuple[str, ...]:
    """Curves that must meet the tolerance."""
    own = [*trained_of(problem), *(["intercept"] * problem.bias), *(["overlap"] * bool(problem.read))]
    own += ["mean_overlap"] * (problem.k > problem.read)
    usual = [name for name in COMPARABLE if name not in OPTIONAL or name in own]
    usual += [name for name in own if name not in usual]
    usual += [f"{average}{OF}{name}" for average, _ in wish.averages for name in tuple(usual)]
    if names is None:
        return tuple(usual)
    known = [*usual, *(f"{part}_{name}" for part in ("train", "test") for name, _ in wish.metrics)]
    known += [name for name, _ in wish.weight_metrics]
    for name in (judged := chosen(names)):
        if name not in known:
            raise reject("variables", repr(name), f"no such curve; there are {', '.join(known)}")
    return judged
