"""What came out of a question: judged, told, and put together as a `Solution` that knows where it comes from."""

import time as clock
import warnings

import numpy as np

from ..errors import DivergenceWarning, Interrupted, ToleranceWarning, UnreliableWarning
from ..estimate.curves import draws
from ..estimate.marched import Marched
from ..exact.stability import divergence_words, largest_stable
from ..measure.pace import stiff_words
from ..problem import Law
from ..results import Solution, provenance
from ..results.quality import ERROR, Check, Curve, Quality, judge
from .question import Question
from .sources import FiniteSamples, Memory, TimeStep
from .stages import Outcome, Reached

LEVEL = 4
"""Of warnings: the function that warns, two on the way, and who called the public one."""


def finished(ask: Question, outcome: Outcome, begin: float, method: str, **further: object) -> Solution:
    """Return what was found, judged, with where it comes from; `further` options beside those that all have."""
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
    }  # fmt: skip
    diagnostics = diagnose(found) | {
        "stages": outcome.stages, "halvings": reached.effort.halvings,
        "errors": {name: error.to_words() for name, error in labelled.errors.items()},
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


def diagnose(found: Marched) -> dict[str, float | None]:
    """Return what was met on the way, over all replicas, by name."""
    out: dict[str, float | None] = {}
    if found.projection is not None and found.projection["norm"].size:
        size = np.max(np.abs(found.records[-1].values["norm"]), initial=1e-30)
        out["projection"] = _number(np.max(found.projection["norm"], initial=0.0) / size)
    return out


def _number(value: float) -> float | None:
    """A number that a file can hold; None after a divergence."""
    return float(value) if np.isfinite(value) else None


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
    return divergence_words(tau, limit, f"t = {at:.4g} ({reason})") + stiff
