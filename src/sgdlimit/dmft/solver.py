"""`solve`: validate, plan, march, and say how good the numbers are."""

import time as clock
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from .. import grid
from .._cache import keep_programs
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..errors import DivergenceWarning, real, reject, seed_number, whole
from ..limits.curvature import stiff_words
from ..limits.stability import divergence_words, largest_stable
from ..problem import Problem, fields
from ..problem.problem import check_start
from ..results import Solution
from ..results.provenance import provenance
from . import drive, estimate, memory, plan
from . import metrics as own
from .checks import check_choices, check_draws, check_step, look
from .data_side import Tangents
from .drive import Job, Marched
from .integrator import Explicit, Implicit
from .memory import Memory
from .references import Paper, solve_by_iteration
from .system import System, one_group
from .weight_side import Linear, Particles

DEFAULT_SAMPLES = 8192
MOST_SAMPLES = 2**17
"""As far as samples grow where the user names none."""
FEWEST = 256
"""Samples of one march at least: its averages are what everything else feeds on."""
ONE_MARCH = 512
"""Samples of one march at DEFAULT_SAMPLES, times the width; its bias falls as 1/M, so M grows as the root of all."""
HALVINGS = 3
"""How often steps are halved where the user names none and their error is not small."""
STEP_SHARE = 0.004
"""A step error below this share of the curve's largest value is small."""
ERROR_SHARE = 0.025
"""A standard error below this share is small enough where the user names no samples."""
DENSE_STEPS = 288
"""Longest march (times width) that falls back on the whole past by itself: the cost grows as its cube."""


def solve(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    dt: float | None = None,
    times: Any = None,
    samples: int | None = None,
    seed: int = 0,
    replicas: int = 16,
    extrapolate: bool | None = None,
    response: str = "exact",
    memory: str = "auto",
    kernels: bool = False,
    snapshots: Any = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    weight_metrics: Mapping[str, Callable[..., Any]] | None = None,
    method: str = "march",
    dtype: str = "float32",
    damping: float = 0.8,
    iterations: int = 30,
    progress: bool | None = None,
) -> Solution:
    """Learning curves in the limit n, d → ∞ at finite δ, for any loss, penalty, width and algorithm (DMFT).

    The equations are `eq:dmft_informal`, discretised as `eq:dmft_informal_disc`. Every x has `x_stderr` (Monte Carlo),
    `x_step_error` (time step) and `x_projection_error` (memory) beside it; `solution.curve(x)` adds them up.

    t_max, dt: steps of at most dt; left out, 0.05 or what the problem's curvature asks for, halved while the step error
        is not small. times: when to record; spaced wider and wider (`sl.grid.geometric`), steps grow along.
    samples: of the effective process on the coarsest grid, over all replicas (rounded up to powers of two, at least 256
        in each march); left out, 8192 times the width, and more while a standard error is above 2.5 % of its curve's
        largest value.
    replicas: independent solutions; their spread is the standard error.
    extrapolate: by default the values are the limit of small steps, from grids of steps dt, 2dt and 4dt on the same
        noise; False: those of dt, with the step error that the coarser grids show. Algorithms whose step is real have
        none.
    response: 'exact' (all tangents), or 'paper' (ρ_ℓ, D_ℓ, D_r; SGF only, a reference).
    memory: 'moments' (exponentials, a cost per step that does not know the past), 'dense' (all of it), or 'auto':
        moments, more of them, or dense, whichever keeps the projection error small.
    kernels: also return C_theta, R_theta, R_ell and Gamma. snapshots: times at which draws of θ and r are returned.
    metrics: further averages by name, ψ(r, r_star, z): `train_name`, `test_name`. weight_metrics: ψ(theta, theta_star).
    method: 'march', or 'fixed-point', the paper's iteration over the whole window with `damping` and `iterations`.
    dtype: of the samples; small arrays are double precision.
    """
    begin = clock.perf_counter()
    keep_programs()
    require(problem, algorithm)
    words = {"response": response, "memory": memory, "method": method, "dtype": dtype}
    check_choices(problem, algorithm, extrapolate, kernels, words)
    if samples is not None:
        samples = whole("samples", samples, least=64, why="it must be a whole number ≥ 64")
    replicas = whole("replicas", replicas, least=4, most=4096, why="a standard error needs 4 to 4096 replicas")
    damping = real("damping", damping, above=0, most=1, why="α must lie in (0, 1]")
    iterations = whole("iterations", iterations, least=1, why="it must be a whole number ≥ 1")
    dt = None if dt is None else real("dt", dt, above=0, why="it must be a positive time step")
    seed = seed_number(seed)
    last = float(grid.resolve(t_max, times)[-1])
    on_samples, on_weights = own.on_samples(problem, metrics), own.on_weights(problem, weight_metrics)
    check_start(problem)
    pace = look(problem, algorithm, last)
    limit = pace.limit / (2 * plan.STRIDES)
    linear = fields.linear_drift(problem, last)

    def planned(halvings: int) -> plan.Steps:
        steps = plan.steps(algorithm, t_max, times, dt, limit, kernels and method == "march", halvings)
        check_step(algorithm, steps.times, pace.limit)
        check_share(algorithm, steps.times)
        return steps

    def system_of(count: int, steps: plan.Steps) -> System:
        check_draws(algorithm, problem, count, steps.times)
        return System(
            problem, algorithm, one_group(problem), count,
            memory=plan.dense(steps.times), weights=Linear() if linear else Particles(),
            tangents=Tangents() if response == "exact" else Paper(),
            rule=Explicit() if algorithm.discrete else Implicit(),
            dtype=dtype, metrics=on_samples, weight_metrics=on_weights, kernels=kernels,
        )  # fmt: skip

    steps = planned(0)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        if method == "fixed-point":
            if extrapolate or snapshots is not None or weight_metrics:
                raise reject(
                    "method", method, "it gives curves and kernels on one grid; use method='march' for the rest"
                )
            count = 2 ** (max(-(-(samples or DEFAULT_SAMPLES) // replicas), FEWEST) - 1).bit_length()
            return solve_by_iteration(system_of(count, steps), steps, seed, replicas, damping, iterations, progress)
        wanted, halvings = samples or DEFAULT_SAMPLES * problem.width, 0
        plain = kernels or snapshots is not None or bool(on_weights)
        while True:
            count, repeats = split(wanted, replicas, plain, problem.width)
            widest = float(np.max(np.diff(steps.times)))
            strides = plan.strides(algorithm, widest, pace.limit)
            keep = snapshot_steps(steps.times, snapshots)
            drawn = bool(on_weights) or len(keep) > 0 or not linear
            job = Job(system_of(count, steps), steps, strides, seed, replicas, repeats, keep, drawn)
            found = drive.march(job, memories(problem, algorithm, steps.times, pace.slopes, words), progress)
            labelled = estimate.label(job, found, extrapolate is not False)
            if found.records[0].reason:
                break
            if dt is None and len(strides) > 1 and halvings < HALVINGS and labelled.step > STEP_SHARE:
                halvings += 1
                steps = planned(halvings)
            elif samples is None and wanted < MOST_SAMPLES and labelled.stderr > ERROR_SHARE:
                more = 2 ** int(np.ceil(np.log2((labelled.stderr / ERROR_SHARE) ** 2) + 0.5))
                wanted = int(min(MOST_SAMPLES, wanted * max(2, more)))
            else:
                break
    variables, coords = labelled.variables, labelled.coords
    drawn_variables, drawn_coords = estimate.draws(found, steps.times)
    status, message = ending(job, found)
    if status != "complete":
        warnings.warn(message, DivergenceWarning, stacklevel=2)
    options = {
        "t_max": last, "dt": float(np.max(np.diff(steps.times))), "steps": len(steps.times) - 1,
        "grids": len(found.records), "samples": count * replicas * found.repeats[1],
        "samples_on_finer_grids": count * replicas * found.repeats[0], "samples_of_one_march": count,
        "replicas": replicas, "extrapolate": extrapolate is not False and len(found.records) > 1, "response": response,
        "memory": type(found.system.memory).__name__.lower(), "functions": found.system.memory.size, "dtype": dtype,
    }  # fmt: skip
    seconds = clock.perf_counter() - begin - found.compiling
    diagnostics = diagnose(found) | {
        "halvings": halvings, "compile_seconds": round(found.compiling, 3), "seconds": round(seconds, 3)
    }  # fmt: skip
    about = provenance(
        f"DMFT, {'exact' if linear else 'particle'} weights", problem, algorithm,
        seed=seed, options=options, status=status, message=message, diagnostics=diagnostics,
    )  # fmt: skip
    return Solution(variables | drawn_variables, coords | drawn_coords, about)


def split(samples: int, replicas: int, plain: bool, width: int) -> tuple[int, int]:
    """Samples of one march, a power of two, and marches of each replica on the coarsest grid; `plain`: one only."""
    each = 2 ** (max(-(-samples // replicas), FEWEST) - 1).bit_length()
    if plain:
        return each, 1
    fewest = ONE_MARCH * width * max(1.0, np.sqrt(samples / (DEFAULT_SAMPLES * width)))
    count = min(each, 2 ** int(np.ceil(np.log2(fewest) - 0.5)))
    return count, max(1, -(-samples // (count * replicas)))


def memories(
    problem: Problem, algorithm: Algorithm, times: np.ndarray, slopes: Any, words: dict[str, str]
) -> list[Memory]:
    """What is tried in turn: functions, twice as many, the whole past where that can be paid for."""
    whole_past = plan.dense(times)
    if words["memory"] == "dense" or words["response"] == "paper":
        return [whole_past]
    few = plan.functions(problem, algorithm, times, slopes)
    if words["memory"] == "moments":
        return [few]
    return [few, memory.denser(few), *([whole_past] if whole_past.size * problem.width <= DENSE_STEPS else [])]


def snapshot_steps(times: np.ndarray, snapshots: Any) -> np.ndarray:
    """Steps nearest to the times at which draws are wanted."""
    if snapshots is None:
        return np.zeros(0, dtype=int)
    wanted = grid.increasing("snapshots", np.atleast_1d(snapshots))
    if wanted[-1] > times[-1] * (1 + 1e-9):
        raise reject("snapshots", wanted[-1], f"it lies beyond the last time {times[-1]:.4g}")
    return np.unique(np.abs(times[:, None] - wanted[None, :]).argmin(axis=0))


def diagnose(found: Marched) -> dict[str, Any]:
    """What was met on the way, over all replicas."""
    finest = found.records[0].values
    out: dict[str, Any] = {"largest_slope": _number(np.max(finest["steepest"], initial=0.0))}
    if found.projection is not None and found.projection["norm"].size:
        size = np.max(np.abs(found.records[-1].values["norm"]), initial=1e-30)
        out["projection"] = _number(np.max(found.projection["norm"], initial=0.0) / size)
    return out


def _number(value: Any) -> float | None:
    """A number that a file can hold; None after a divergence."""
    return float(value) if np.isfinite(value) else None


def ending(job: Job, found: Marched) -> tuple[str, str]:
    """How it ended: at the earliest time at which any grid went wrong."""
    lost = [
        (level.times[part.reached], part.reason)
        for level, part in zip(found.levels, found.records, strict=True)
        if part.reason
    ]
    if not lost:
        return "complete", ""
    at, reason = min(lost)
    problem, algorithm = job.system.problem, job.system.algorithm
    tau = getattr(algorithm, "temperature", None)
    limit = None if tau is None else largest_stable(problem, algorithm=algorithm)
    step = float(np.max(np.diff(job.steps.times)))
    stiff = stiff_words(problem, algorithm.stable, step, 3.0) if algorithm.discrete else ""
    return "diverged", divergence_words(tau, limit, f"t = {at:.4g} ({reason})") + stiff
