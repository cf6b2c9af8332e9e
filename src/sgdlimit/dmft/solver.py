"""`solve`: validate, plan, march, and say how good the numbers are."""

import math
import time as clock
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import grid
from .._cache import keep_programs
from .._fingerprint import digest
from .._vocabulary import elsewhere, words
from ..algorithms import Algorithm
from ..errors import (
    DivergenceWarning,
    Interrupted,
    ToleranceWarning,
    UnreliableWarning,
    precision,
    real,
    reject,
    seed_number,
    whole,
)
from ..exact.stability import divergence_words, largest_stable
from ..measure.curvature import stiff_words
from ..measure.pace import knots_of, moving_of
from ..problem import DataLaw, Law, Problem, fields
from ..problem.data import tested, warn_of_rank
from ..problem.problem import FEWEST_RARE, Rare, check_start, check_tails
from ..results import Solution
from ..results import metrics as own
from ..results.checkpoint import Checkpoint, identity
from ..results.provenance import provenance
from ..results.quality import ERROR, Check, Curve, Quality, judge
from ..results.variables import COMPARABLE
from . import estimate, stages
from .checks import check_choices, check_rotated, look, refuse_kinks, room_for
from .drive import Job, Marched
from .response import Regression, Response
from .stages import Ask, Forecast, Outcome, Stage
from .tangents import Tangents

GONE = {
    "response": "all tangents of every sample are taken by sl.references.tangents, the paper's ρ_ℓ, D_ℓ and D_r by "
    "sl.references.processes; leave it out",
    "memory": "take functions=n for n functions of the past, or sl.references.tangents, which keeps all of it",
    "method": "the march is the one method here; for the paper's damped iteration take sl.references.fixed_point",
} | words("damping iterations", "it belongs to the paper's damped iteration; take sl.references.fixed_point")
"""Words that `solve` once took, each with what to do instead."""


@elsewhere(GONE)
def solve(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    tol: float | None = None,
    variables: Any = None,
    max_seconds: float | None = None,
    max_bytes: float | None = None,
    checkpoint: Any = None,
    dt: float | None = None,
    times: Any = None,
    samples: int | None = None,
    seed: int = 0,
    replicas: int = 16,
    extrapolate: bool | None = None,
    functions: int | None = None,
    kernels: bool = False,
    snapshots: Any = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    weight_metrics: Mapping[str, Callable[..., Any]] | None = None,
    test_data: DataLaw | None = None,
    dtype: str = "float32",
    progress: bool | None = None,
) -> Solution:
    """Learning curves in the limit n, d → ∞ at finite δ, for any loss, penalty, width and algorithm (DMFT).

    The equations are `eq:dmft_informal`, discretised as `eq:dmft_informal_disc`. Every x has its errors beside it:
    `x_stderr` (Monte Carlo), `x_step_error` (time step), `x_projection_error` (memory), `x_bias_error` (finite
    samples); `solution.curve(x)` adds them up.

    tol: how well every curve shall be known, relative to its largest value (1e-2): steps, samples and memory are chosen
        so that twice the total error is below it. `status` is then 'complete', or 'tolerance missed', with the reason.
    variables: names of the curves that must meet it; left out, losses, errors, overlap and norm.
    max_seconds, max_bytes: of work (the first, smallest stage is always finished) and of memory; where time is up the
        best result so far comes back, with status 'budget'.

    Ctrl-C after the first stage raises `sl.Interrupted`, a KeyboardInterrupt whose `result` is the best so far.

    checkpoint: a file that keeps finished work; called again after a kill, the result is the same to the last bit. It
        stays when all is done, and is refused by a call that asks for anything else, or has another number of devices.
        max_seconds may differ, and max_bytes: sizes stay as they were first chosen, or are refused where they no longer
        fit.

    What follows need not be given. Where dt or samples are, they stay as they are, and nothing is promised unless tol
    is named too.

    t_max, dt: steps of at most dt. times: when to record; spaced wider and wider (`sl.grid.geometric`), steps grow
        along where their error allows it.
    samples: of the effective process on the coarsest grid, over all replicas (rounded up to powers of two, at least 256
        in each march).
    replicas: independent solutions; their spread is the standard error.
    extrapolate: by default the values are the limit of small steps, from grids of steps dt, 2dt and 4dt on the same
        noise; False: those of dt, with the step error that the coarser grids show. Algorithms whose step is real have
        none.
    functions: of the past, exponentials mostly, by which it is remembered; left out, as many as keep the projection
        error small: those that the problem seems to need, then twice and four times as many.
    kernels: also return C_theta, R_theta, R_ell and Gamma, from the tangents of every sample: the force must have a
        derivative, and the march takes longer. snapshots: times at which draws of θ and r are returned.
    metrics: further averages by name, ψ(r, r_star, z): `train_name`, `test_name`. weight_metrics: ψ(theta, theta_star).
    test_data: law of the samples of a test, where it is another than `problem.data`: the same groups of coordinates
        with other variances (covariate shift).
    dtype: of the samples; small arrays are double precision.

    What the solver is tested against is in `sl.references`.
    """
    begin = clock.perf_counter()
    keep_programs()
    check_choices(problem, algorithm, extrapolate, kernels)
    if kernels:
        refuse_kinks(problem, float(grid.resolve(t_max, times)[-1]), "kernels=True")
    warn_of_rank(problem.data, problem.data.levels, LEVEL)
    ask = asked(
        problem, algorithm, t_max, Tangents() if kernels else Regression(), tol=tol, variables=variables,
        max_seconds=max_seconds, max_bytes=max_bytes, checkpoint=checkpoint, dt=dt, times=times, samples=samples,
        seed=seed, replicas=replicas, extrapolate=extrapolate is not False, functions=functions, kernels=kernels,
        snapshots=snapshots, metrics=metrics, weight_metrics=weight_metrics, test_data=test_data, dtype=dtype,
        progress=progress,
    )  # fmt: skip
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), ask.kept.keeping():
        outcome = stages.solve(ask)
    return finished(ask, outcome, begin, "DMFT", **({} if test_data is None else {"test_data": test_data}))


def finished(ask: Ask, outcome: Outcome, begin: float, method: str, **further: Any) -> Solution:
    """What was found, judged, with where it comes from; `further` options beside those that all have."""
    stage, status, message = outcome.stage, outcome.status, outcome.message
    job, found, labelled = stage.job, stage.found, stage.labelled
    drawn_variables, drawn_coords = estimate.draws(found, job.steps.times)
    if stage.diverged:
        status, message = "diverged", _divergence(job, found)
        warnings.warn(message, DivergenceWarning, stacklevel=LEVEL)
    quality = checked(ask, stage)
    if status == "interrupted":
        message = ask.kept.told(message)
    elif status != "diverged" and not quality.passed:
        status, message = "unreliable", "; ".join(map(str, quality.failed))
    if status == "unreliable":
        warnings.warn(message, UnreliableWarning, stacklevel=LEVEL)
    elif status in ("tolerance missed", "budget"):
        warnings.warn(message, ToleranceWarning, stacklevel=LEVEL)
    times_of = job.steps.times
    options = {
        "t_max": float(times_of[-1]), "tol": ask.tol if ask.promised else None, "dt": float(np.max(np.diff(times_of))),
        "steps": len(times_of) - 1, "grids": len(found.records), "samples": found.samples * ask.replicas,
        "samples_on_finer_grids": found.system.samples * ask.replicas * found.repeats,
        "samples_of_one_march": found.fed_back[0],
        "replicas": ask.replicas, "extrapolate": ask.extrapolate and len(found.records) > 1,
        "memory": type(found.system.memory).__name__.lower(), "functions": found.system.memory.size,
        "dtype": ask.dtype,
    }  # fmt: skip
    diagnostics = diagnose(found) | {
        "stages": outcome.stages, "halvings": stage.work.halvings,
        "errors": {name: error._asdict() for name, error in labelled.errors.items()},
        "compile_seconds": round(outcome.compiling, 3),
        "seconds": round(clock.perf_counter() - begin - outcome.compiling, 3),
    }  # fmt: skip
    about = provenance(
        f"{method}, {'exact' if ask.linear else 'particle'} weights", ask.problem, ask.algorithm, seed=ask.seed,
        options=options | further, status=status, message=message, diagnostics=diagnostics,
    )  # fmt: skip
    about["quality"] = quality.to_words()
    solution = Solution(labelled.variables | drawn_variables, labelled.coords | drawn_coords, about)
    if status == "interrupted":
        raise Interrupted(solution)
    return solution


LEVEL = 4
"""Of warnings: the function that warns, two on the way, and who called the public one."""


def plan(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    tol: float = stages.DEFAULT_TOLERANCE,
    variables: Any = None,
    times: Any = None,
    seed: int = 0,
    replicas: int = 16,
    progress: bool | None = None,
) -> Forecast:
    """What `solve` will take to know every curve to `tol`: its first, smallest stage is run, and tells the rest."""
    keep_programs()
    check_choices(problem, algorithm, None, False)
    ask = asked(
        problem, algorithm, t_max, Regression(), tol=tol, variables=variables, max_seconds=None, max_bytes=None,
        checkpoint=None, dt=None, times=times, samples=None, seed=seed, replicas=replicas, extrapolate=True,
        functions=None, kernels=False, snapshots=None, metrics=None, weight_metrics=None, test_data=None,
        dtype="float32", progress=progress,
    )  # fmt: skip
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        return stages.foresee(ask)


def checked(ask: Ask, stage: Stage) -> Quality:
    """What the curves tell, and what the marches do."""
    found, labelled = stage.found, stage.labelled
    solution = Solution(labelled.variables, labelled.coords)
    curves = {
        name: Curve(solution[name], solution[f"{name}_stderr"], solution.systematic(name), solution.copies(name))
        for name in ask.variables
        if name in solution
    }
    quality = judge(solution.time, curves, labelled.scales)
    worst = {part: stages.worst(ask, labelled, part) for part in ("projection", "step", "bias")}
    further = [
        Check.most("memory", worst["projection"], 0.05, f"projection error, {found.system.memory.size} functions"),
        Check.most("time step", worst["step"], 0.05, f"what is left after {len(found.records)} grids"),
        Check.report("finite samples", worst["bias"], f"bias of marches of {found.fed_back[0]} samples"),
    ]
    return quality + further + _stated(ask, found)


def _stated(ask: Ask, found: Marched) -> list[Check]:
    """Under noise without a fourth moment: how far E z² of the samples is from that which its law states."""
    law, curves = ask.problem.noise, [name for name in ask.variables if name in ask.heavy]
    if not curves or not isinstance(law, Law) or law.second_moment is None:
        return []
    drawn = float(np.mean([np.mean(np.square(np.asarray(start.z, np.float64))) for start in found.starts]))
    words = f"E z² is {drawn:.3g} over the samples, stated {law.second_moment:.3g}; {', '.join(curves)} do not settle"
    words += ", name other `variables`"
    return [Check.most("second moment of z", abs(drawn / law.second_moment - 1), ERROR, words)]


OPTIONS = ("tol", "variables", "dt", "times", "samples", "functions", "extrapolate", "kernels", "snapshots",
           "test_data", "dtype")  # fmt: skip
"""Arguments that a checkpoint must share."""


class Numbers(NamedTuple):
    """What can be said of the numbers among the arguments without knowing the problem."""

    tol: float | None = None
    dt: float | None = None
    samples: int | None = None
    replicas: int = 16
    max_seconds: float = math.inf
    max_bytes: float = math.inf


def numbers(
    tol: Any = None, dt: Any = None, samples: Any = None, replicas: Any = 16, max_seconds: Any = None,
    max_bytes: Any = None,
) -> Numbers:  # fmt: skip
    """Checked; no bound on time or memory is infinity."""
    if tol is not None:
        tol = real("tol", tol, least=1e-5, most=0.5, why="it must be a relative error between 1e-5 and 0.5")
    if samples is not None:
        most = stages.MOST_SAMPLES
        why = f"it must be a whole number from 64 to {most}; what takes more is met by tol"
        samples = whole("samples", samples, least=64, most=most, why=why)
    if dt is not None:
        dt = real("dt", dt, above=0, why="it must be a positive time step")
    bounds = {"max_seconds": (max_seconds, "seconds"), "max_bytes": (max_bytes, "bytes")}
    most = [
        math.inf if bound is None else real(name, bound, above=0, why=f"it must be a positive number of {unit}")
        for name, (bound, unit) in bounds.items()
    ]
    replicas = whole("replicas", replicas, least=4, most=4096, why="a standard error needs 4 to 4096 replicas")
    return Numbers(tol, dt, samples, replicas, *most)


MOST_FUNCTIONS = 64
"""More exponentials are closer to each other than single precision can tell."""


def asked(
    problem: Problem, algorithm: Algorithm, t_max: Any, response: Response, dense: bool = False, **given: Any
) -> Ask:
    """Every argument checked before any work; a reference has another response, and keeps all of the past."""
    given["dtype"] = precision(given["dtype"])
    if given["functions"] is not None:
        why = f"it must be a whole number from 2 to {MOST_FUNCTIONS}; left out, the solver chooses"
        given["functions"] = whole("functions", given["functions"], least=2, most=MOST_FUNCTIONS, why=why)
    tol, dt, samples, replicas, max_seconds, max_bytes = numbers(**{name: given[name] for name in Numbers._fields})
    last = float(grid.resolve(t_max, given["times"])[-1])
    on_samples, on_weights = own.on_samples(problem, given["metrics"]), own.on_weights(problem, given["weight_metrics"])
    rare, heavy = check_start(problem), check_tails(problem)
    knots = knots_of([item for item in moving_of(problem) if item[0] == "penalty"], last)
    linear = fields.linear_drift(problem, last, knots)
    draws = bool(on_weights) or given["snapshots"] is not None
    check_rotated(problem, linear, draws)
    owner = {}
    if given["checkpoint"] is not None:
        who = {name: given[name] for name in OPTIONS}
        who |= {"t_max": t_max, "replicas": replicas, "metrics": digest((on_samples, on_weights))}
        who["number of devices"] = len(jax.devices())  # replicas are spread over them
        owner = identity(problem, algorithm, given["seed"], **who)
    kept = Checkpoint(given["checkpoint"], owner)
    return Ask(
        problem, algorithm, t_max, given["times"], dt, samples, seed_number(given["seed"]), replicas,
        given["extrapolate"], given["functions"], given["dtype"], response, dense, given["kernels"],
        tested(problem.data, given["test_data"]), given["snapshots"], on_samples, on_weights,
        pace=look(problem, algorithm, last), linear=linear,
        tol=tol or stages.DEFAULT_TOLERANCE, promised=tol is not None or (dt is None and samples is None),
        variables=_judged(problem, given["variables"], on_samples, on_weights), kept=kept,
        progress=given["progress"], max_seconds=max_seconds, room=room_for(max_bytes, kept), heavy=heavy,
        fewest=_fewest(problem, rare, tol or stages.DEFAULT_TOLERANCE, heavy, draws or not linear),
    )  # fmt: skip


def _fewest(problem: Problem, rare: Rare, tol: float, heavy: tuple[str, ...], drawn: bool) -> tuple[int, str]:
    """Samples that a march needs for the rare events of labels, and of weights where these are drawn."""
    found = [rare.fewest(tol, without={name.split("_")[1] for name in heavy})]
    if drawn:
        laws = {"start": problem.init, "teacher": problem.star}
        found += [(math.ceil(FEWEST_RARE / law.rarest), name) for name, law in laws.items() if law is not None]
    return max(found)


def _judged(problem: Problem, names: Any, on_samples: Any, on_weights: Any) -> tuple[str, ...]:
    """Curves that must meet the tolerance."""
    absent = ("overlap",) * (not problem.k) + ("intercept",) * (not problem.bias)
    usual = [name for name in COMPARABLE if name not in absent]
    if names is None:
        return tuple(usual)
    names = [names] if isinstance(names, str) else list(names)
    known = [*usual, *(f"{part}_{name}" for part in ("train", "test") for name, _ in on_samples)]
    known += [name for name, _ in on_weights]
    for name in names:
        if name not in known:
            raise reject("variables", repr(name), f"no such curve; there are {', '.join(known)}")
    if not names:
        raise reject("variables", "none", f"name a curve that must meet tol: {', '.join(known)}")
    return tuple(names)


def diagnose(found: Marched) -> dict[str, Any]:
    """What was met on the way, over all replicas."""
    out: dict[str, Any] = {}
    if found.projection is not None and found.projection["norm"].size:
        size = np.max(np.abs(found.records[-1].values["norm"]), initial=1e-30)
        out["projection"] = _number(np.max(found.projection["norm"], initial=0.0) / size)
    return out


def _number(value: Any) -> float | None:
    """A number that a file can hold; None after a divergence."""
    return float(value) if np.isfinite(value) else None


def _divergence(job: Job, found: Marched) -> str:
    """How it ended: at the earliest time at which any grid went wrong."""
    at, reason = min(
        (level.times[part.reached], part.reason)
        for level, part in zip(found.levels, found.records, strict=True)
        if part.reason
    )
    problem, algorithm = job.system.problem, job.system.algorithm
    tau = getattr(algorithm, "temperature", None)
    limit = None if tau is None else largest_stable(problem, algorithm=algorithm)
    step = float(np.max(np.diff(job.steps.times)))
    stiff = stiff_words(problem, algorithm.stable, step, 3.0) if algorithm.discrete else ""
    return divergence_words(tau, limit, f"t = {at:.4g} ({reason})") + stiff
