"""`solve` and `plan`: a question is checked, its work is done, and what came out is judged and told."""

import time as clock
import warnings
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Unpack

import numpy as np

from ._machine import keep_programs
from .algorithms import Algorithm
from .control import stages
from .control.question import DEFAULT_TOLERANCE, Further, Given, Question, asked
from .control.sources import FiniteSamples, Memory, TimeStep
from .control.stages import Forecast, Outcome, Reached
from .errors import DivergenceWarning, Interrupted, ToleranceWarning, UnreliableWarning, check_words, elsewhere, words
from .estimate.curves import draws
from .estimate.marched import Marched
from .exact.stability import divergence_words, largest_stable
from .execute.crew import Answers, Talk, alone, chosen, many, precisely
from .execute.place import Shared
from .measure.pace import stiff_words
from .problem import DataLaw, Law, Problem
from .problem.data import warn_of_rank
from .progress import Progress
from .results import Solution, provenance
from .results.quality import ERROR, Check, Curve, Quality, judge

LEVEL = 4
"""Of warnings: the function that warns, two on the way, and who called the public one."""
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
    times: Any = None,
    dt: float | None = None,
    samples: int | None = None,
    replicas: int = 16,
    functions: int | None = None,
    seed: int = 0,
    max_seconds: float | None = None,
    checkpoint: Any = None,
    executor: Executor | None = None,
    progress: bool | None = None,
    **further: Unpack[Further],
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
        A ψ that takes a trained parameter too, by name, is given the value that it has at the time.
    averages: of the iterates, by name, such as {"ema": sl.EMA(0.5), "mean": sl.RunningMean()}; the Solution of such an
        average is `solution.averages["ema"]`.
    test_data: law of the samples of a test, where it is another than `problem.data`: the same groups of coordinates
        with other variances (covariate shift).
    dtype: of the samples; small arrays are double precision.
    executor: a `concurrent.futures` executor or a dask Client, which marches slices of the replicas in other processes
        or on other machines; the curves are the same. Left out, threads of this process do it.

    What the solver is tested against is in `sl.references`.
    """
    begin = clock.perf_counter()
    keep_programs()
    check_words("solve", further, Further)
    given = Given(
        tol=tol, times=times, dt=dt, samples=samples, replicas=replicas, functions=functions, seed=seed,
        max_seconds=max_seconds, checkpoint=checkpoint, **further,
    )  # fmt: skip
    hands = chosen(executor)
    question = asked(problem, algorithm, t_max, given)
    warn_of_rank(problem.data, problem.data.levels, LEVEL)
    with question.place.kept.keeping():
        outcome = alone(precisely(stages.solve(question)), progress, hands)
    return finished(question, outcome, begin, "DMFT", further.get("test_data"))


def solving(problem: Problem, algorithm: Algorithm, shared: Shared, **options: Any) -> Talk[Solution]:
    """`solve` as a talk, for who carries several of them on at once (`execute.crew.many`)."""
    begin, t_max = clock.perf_counter(), options.pop("t_max", None)
    options.pop("progress", None)
    check_words("solve", options, Given)
    keep_programs()
    question = asked(problem, algorithm, t_max, Given(**options), shared=shared)
    outcome = yield from precisely(stages.solve(question))
    return finished(question, outcome, begin, "DMFT", options.get("test_data"))


Call = tuple[Problem, Algorithm, dict[str, Any]]
"""Problem, algorithm, and the other arguments of `solve`."""


def solve_many(
    calls: Sequence[Call], most: int | None = None, *, joint: bool | None = None, progress: bool | None = None
) -> Answers:
    """The number and the solution of every call, as they come, or what it raised.

    On a GPU, marches of problems of equal shape are one program, as many at a time as memory allows. On a CPU, which a
    single march keeps busy, solutions share draws and fill the cores; each is that of the single call, to the last bit.

    most: at a time. joint: whether marches are put together into one program; left out, on all but CPUs.
    """

    talks = [lambda shared, call=call: solving(call[0], call[1], shared, **call[2]) for call in calls]
    with Progress("solve", len(calls), progress) as bar:
        for found in many(talks, most, joint):
            bar.advance()
            yield found


def plan(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    tol: float = DEFAULT_TOLERANCE,
    variables: Any = None,
    times: Any = None,
    seed: int = 0,
    replicas: int = 16,
    progress: bool | None = None,
) -> Forecast:
    """What `solve` will take to know every curve to `tol`: its first, smallest stage is run, and tells the rest."""
    keep_programs()
    given = Given(tol=tol, variables=variables, times=times, seed=seed, replicas=replicas)
    question = asked(problem, algorithm, t_max, given)
    return alone(precisely(stages.foresee(question)), progress)


def finished(ask: Question, outcome: Outcome, begin: float, method: str, test_data: DataLaw | None = None) -> Solution:
    """Return what was found, judged, told, and with where it comes from."""
    reached, status, message = outcome.reached, outcome.status, outcome.message
    found, labelled = reached.found, reached.labelled
    drawn_variables, drawn_coords = draws(found)
    if found.diverged:
        status, message = "diverged", _divergence(found)
        warnings.warn(message, DivergenceWarning, stacklevel=LEVEL)
    quality = checked(ask, reached)
    if status == "interrupted":
        message = ask.place.kept.told(message)
    elif status != "diverged" and not quality.passed:
        status, message = "unreliable", "; ".join(map(str, quality.failed))
    if status == "unreliable":
        warnings.warn(message, UnreliableWarning, stacklevel=LEVEL)
    elif status in ("tolerance missed", "budget"):
        warnings.warn(message, ToleranceWarning, stacklevel=LEVEL)
    times_of = found.steps.times
    options = {
        "t_max": float(times_of[-1]), "tol": ask.goal.tol if ask.goal.promised else None,
        "dt": float(np.max(np.diff(times_of))),
        "steps": len(times_of) - 1, "grids": len(found.records), "samples": found.samples * ask.replicas,
        "samples_on_finer_grids": found.system.samples * ask.replicas * found.repeats,
        "samples_of_one_march": found.fed_back[0],
        "replicas": ask.replicas, "extrapolate": ask.extrapolate and len(found.records) > 1,
        "memory": type(found.system.memory).__name__.lower(), "functions": found.system.memory.size,
        "dtype": ask.dtype,
    } | ({} if test_data is None else {"test_data": test_data})  # fmt: skip
    diagnostics = {
        "stages": outcome.stages, "halvings": reached.effort.halvings,
        "errors": {name: error.to_words() for name, error in labelled.errors.items()},
        "compile_seconds": round(outcome.compiling, 3),
        "seconds": round(clock.perf_counter() - begin - outcome.compiling, 3),
    }  # fmt: skip
    about = provenance(
        f"{method}, {'exact' if ask.linear else 'particle'} weights", ask.problem, ask.algorithm, seed=ask.seed,
        options=options, status=status, message=message, diagnostics=diagnostics,
    )  # fmt: skip
    about["quality"] = quality.to_words()
    solution = Solution(labelled.variables | drawn_variables, labelled.coords | drawn_coords, about)
    if status == "interrupted":
        raise Interrupted(solution)
    return solution


def checked(ask: Question, reached: Reached) -> Quality:
    """Return all checks of a solution: what its curves tell, and what its marches do."""
    found, labelled = reached.found, reached.labelled
    solution = Solution(labelled.variables, labelled.coords)
    curves = {
        name: Curve(solution[name], solution[f"{name}_stderr"], solution.systematic(name), solution.copies(name))
        for name in ask.goal.variables
        if name in solution
    }
    quality = judge(solution.time, curves, labelled.scales)
    worst = {source: reached.worst(source.name) for source in (Memory, TimeStep, FiniteSamples)}
    further = [
        Check.most("memory", worst[Memory], 0.05, f"projection error, {found.system.memory.size} functions"),
        Check.most("time step", worst[TimeStep], 0.05, f"what is left after {len(found.records)} grids"),
        Check.report("finite samples", worst[FiniteSamples], f"bias of marches of {found.fed_back[0]} samples"),
    ]
    return quality + further + _stated(ask, found)


def _stated(ask: Question, found: Marched) -> list[Check]:
    """Under noise without a fourth moment: how far E z² of the samples is from that which its law states."""
    law, curves = ask.problem.noise, [name for name in ask.goal.variables if name in ask.heavy]
    if not curves or not isinstance(law, Law) or law.second_moment is None:
        return []
    drawn = float(np.mean([np.mean(np.square(np.asarray(start.z, np.float64))) for start in found.starts]))
    words = f"E z² is {drawn:.3g} over the samples, stated {law.second_moment:.3g}; {', '.join(curves)} do not settle"
    words += ", name other `variables`"
    return [Check.most("second moment of z", abs(drawn / law.second_moment - 1), ERROR, words)]


def _divergence(found: Marched) -> str:
    """How it ended: at the earliest time at which any grid went wrong."""
    at, reason = min(
        (level.times[part.reached], part.reason)
        for level, part in zip(found.levels, found.records, strict=True)
        if part.reason
    )
    problem, algorithm = found.system.problem, found.system.algorithm
    tau = getattr(algorithm, "temperature", None)
    limit = None if tau is None else largest_stable(problem, algorithm=algorithm)
    step = float(np.max(np.diff(found.steps.times)))
    stiff = stiff_words(problem, algorithm.stable, step, 3.0) if algorithm.discrete else ""
    rate = algorithm.how.rate
    rule = "" if rate is None else f"; or {type(rate).__name__} gives no number ≥ 0 there"
    return divergence_words(tau, limit, f"t = {at:.4g} ({reason})") + rule + stiff
