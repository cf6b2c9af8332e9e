"""`solve`: validate, plan, march, and say how good the numbers are."""

import time as clock
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .. import grid
from .._cache import keep_programs
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..errors import DivergenceWarning, real, reject, seed_number, whole
from ..limits.averages import make_nodes, observe
from ..limits.stability import divergence_words, largest_stable
from ..problem import Problem, fields
from ..problem.problem import check_start
from ..progress import Progress
from ..results import Solution, Variable, statistics
from ..results.provenance import provenance
from ..results.statistics import Estimate
from ..results.variables import TWO_TIME, dims, ordered
from . import extrapolation, kernels, memory, noise, run
from . import metrics as own
from . import plan as planning
from .checks import check_choices, check_draws, check_memory, check_step, look
from .data_side import Tangents
from .integrator import Explicit, Implicit
from .memory import Memory, Moments
from .plan import Level
from .references import Paper, iterate
from .run import Records
from .system import Groups, Start, System, one_group
from .weight_side import Linear, Particles

FEWEST = 256
"""Samples of one replica at least: its averages are what the noise of all others is made of."""
NODES = (256, 16384)
"""Points behind a test average in each replica: as many as it has samples, within these."""
FINER = 3
"""How often steps are halved where the user names none and their error is not small."""
STEP_SHARE = 0.01
"""A step error below this share of the curve's largest value is small."""
PROJECTION_SHARE = 2e-3
"""A projection error below this share, or below half the Monte Carlo error, is small."""
JUDGED = ("train_loss", "train_error", "overlap", "norm")


@dataclass(frozen=True)
class Job:
    """What the marches of one solution have in common."""

    system: System
    levels: list[Level]
    starts: list[Start]
    """Batches of replicas."""
    steps: planning.Steps
    seed: int

    @property
    def replicas(self) -> int:
        """Over all batches."""
        return sum(len(start.z) for start in self.starts)


@dataclass(frozen=True)
class Marched:
    """Records of every grid that is sound, from fine to coarse, and the distance between two sets of functions."""

    records: list[Records]
    projection: dict[str, np.ndarray] | None
    """(times of the coarsest grid, …)."""
    compiling: float


def solve(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    dt: float | None = None,
    times: Any = None,
    samples: int = 8192,
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
    samples: of the effective process, over all replicas (rounded up to a power of two, at least 256, in each).
    replicas: independent solutions; their spread is the standard error.
    extrapolate: by default the values are the limit of small steps, from grids of steps dt, 2dt and 4dt on the same
        noise; False: those of dt, with the step error that the coarser grids show. Algorithms whose step is real have
        none.
    response: 'exact' (all tangents), or 'paper' (ρ_ℓ, D_ℓ, D_r; SGF only, a reference).
    memory: 'moments' (exponentials, a cost per step that does not know the past), 'dense' (all of it), or 'auto': moments,
        more of them, or dense, whichever keeps the projection error small.
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
    iterative = method == "fixed-point"
    if iterative and (extrapolate or snapshots is not None or weight_metrics):
        raise reject("method", method, "it gives curves and kernels on one grid; use method='march' for the rest")
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
    per_replica = 2 ** (max(-(-samples // replicas), FEWEST) - 1).bit_length()
    tries = FINER if dt is None and not algorithm.discrete and not iterative else 0
    limit = pace.limit / planning.STRIDES
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        groups = one_group(problem)
        linear = fields.linear_drift(problem, last)
        for halving in range(tries + 1):
            step = dt if dt is not None or not halving else min(planning.DEFAULT_STEP, limit) / 2**halving
            aligned = kernels and not iterative
            plan = planning.steps(algorithm, t_max, times, step, limit, aligned)
            _snapshot_steps(plan.times, snapshots)
            check_step(algorithm, plan.times, pace.limit)
            check_share(algorithm, plan.times)
            check_draws(algorithm, problem, per_replica, plan.times)
            system = System(
                problem, algorithm, groups, per_replica,
                memory=_memories(problem, algorithm, plan.times, pace.slopes, words)[0],
                weights=Linear() if linear else Particles(),
                tangents=Tangents() if response == "exact" else Paper(),
                rule=Explicit() if algorithm.discrete else Implicit(),
                dtype=dtype, metrics=on_samples, weight_metrics=on_weights, kernels=kernels,
            )  # fmt: skip
            if iterative:
                return _iterated(system, plan, seed, replicas, damping, iterations, words, begin, progress)
            strides = [1] if algorithm.discrete else [s for s in (1, 2, 4) if s == 1 or s * _widest(plan) <= pace.limit]
            found, job = _march(system, plan, strides, seed, replicas, pace, words, snapshots, progress)
            variables, coords, worst = _label(job, found, extrapolate is not False)
            if worst < STEP_SHARE or len(found.records) < len(strides):
                break
    if found.records[0].draws:
        new, at = _draws(job, found.records[0])
        variables |= new
        coords["snapshot"] = at
    status, message = _ending(job, found)
    if status != "complete":
        warnings.warn(message, DivergenceWarning, stacklevel=2)
    options = {
        "t_max": last,
        "dt": _widest(plan),
        "steps": len(plan.times) - 1,
        "grids": strides,
        "samples": per_replica * replicas,
        "replicas": replicas,
        "extrapolate": extrapolate is not False and len(strides) > 1,
        "response": response,
        "memory": type(job.system.memory).__name__.lower(),
        "functions": job.system.memory.size,
        "dtype": dtype,
    }
    diagnostics = _diagnostics(job, found) | {
        "compile_seconds": round(found.compiling, 3),
        "seconds": round(clock.perf_counter() - begin - found.compiling, 3),
    }
    about = provenance(
        f"DMFT, {'exact' if linear else 'particle'} weights", problem, algorithm,
        seed=seed, options=options, status=status, message=message, diagnostics=diagnostics,
    )  # fmt: skip
    return Solution(variables, coords, about)


def _widest(plan: planning.Steps) -> float:
    return float(np.max(np.diff(plan.times)))


def _memories(
    problem: Problem, algorithm: Algorithm, times: np.ndarray, slopes: Any, words: dict[str, str]
) -> list[Memory]:
    """What is tried in turn: functions, twice as many, the whole past where that can be paid for."""
    whole_past = planning.dense(times)
    if words["memory"] == "dense" or words["response"] == "paper":
        return [whole_past]
    few = planning.functions(problem, algorithm, times, slopes)
    if words["memory"] == "moments":
        return [few]
    many = memory.denser(few)
    return [few, many, *([whole_past] if whole_past.size * problem.width <= DENSE_STEPS else [])]


DENSE_STEPS = 512
"""Longest march (times width) that falls back on the whole past by itself: the cost grows as its cube."""


def _march(
    system: System,
    plan: planning.Steps,
    strides: list[int],
    seed: int,
    replicas: int,
    pace: Any,
    words: dict[str, str],
    snapshots: Any,
    progress: bool | None,
) -> tuple[Marched, Job]:
    """All grids, with functions enough that their projection error is small."""
    from dataclasses import replace

    choices = _memories(system.problem, system.algorithm, plan.times, pace.slopes, words)
    weights = bool(system.weight_metrics) or snapshots is not None or isinstance(system.weights, Particles)
    draws = [
        noise.draw(system.problem, system.groups, system.samples, seed * 4099 + i, system.dtype, weights)
        for i in range(replicas)
    ]
    found: Marched | None = None
    job: Job | None = None
    for kept in choices:
        system = replace(system, memory=kept)
        levels = [planning.level(plan.times, stride, kept, system.dtype) for stride in strides]
        size = planning.tile(system.problem, kept, isinstance(system.weights, Particles), system.samples, replicas)
        check_memory(system, size)
        starts = [_stack(draws[i : i + size]) for i in range(0, replicas, size)]
        job = Job(system, levels, starts, plan, seed)
        keep = _snapshot_steps(plan.times, snapshots)
        total = replicas * sum(len(level.times) for level in levels) + size * len(levels[-1].times)
        with Progress("solve", total, progress) as bar:
            bar.phase("compiling")
            found = _all_grids(job, keep, bar)
        if found.projection is None or not found.records[-1].reached or _small(found):
            break
    assert found is not None and job is not None
    return found, job


def _all_grids(job: Job, keep: np.ndarray, bar: Progress) -> Marched:
    """Every grid over all replicas, from fine to coarse, then the coarsest once more with other functions."""
    begin = clock.perf_counter()
    compiled = _programs()
    records = []
    for depth, level in enumerate(job.levels):
        parts = []
        for start in job.starts:
            parts.append(run.along(job.system, start, level, keep if depth == 0 else keep[:0], bar))
        here = run.joined(parts)
        if depth > 0 and here.reached < len(level.times) and records[0].reached == len(job.levels[0].times):
            break  # only the coarse steps went wrong: the finer ones do without
        records.append(here)
    compiling = clock.perf_counter() - begin if _programs() > compiled else 0.0
    projection = None
    if isinstance(job.system.memory, Moments):
        level = job.levels[len(records) - 1]
        other = planning.level(job.steps.times, level.stride, memory.shifted(job.system.memory), job.system.dtype)
        again = run.along(job.system, job.starts[0], other, keep[:0], bar)
        count, first = min(again.reached, records[-1].reached), len(job.starts[0].z)
        projection = {}
        for name, values in again.values.items():
            if name in kernels.KEPT:
                continue
            gap = (values[:, :count] - records[-1].values[name][:first, :count]).astype(np.float64)
            projection[name] = np.maximum.accumulate(np.abs(gap.mean(axis=0)), axis=0)
    return Marched(records, projection, compiling)


def _programs() -> int:
    from .march import advance

    return advance._cache_size()  # pyright: ignore[reportFunctionMemberAccess]


def _small(found: Marched) -> bool:
    """Whether the projection error is small, against the Monte Carlo error or the curve."""
    assert found.projection is not None
    for name in JUDGED:
        if name in found.projection and found.projection[name].size:
            gap = found.projection[name]
            value, error = statistics.over_replicas(found.records[-1].values[name][:, : len(gap)])
            if np.any(gap > np.maximum(0.5 * error, PROJECTION_SHARE * np.max(np.abs(value), initial=1e-30))):
                return False
    return True


def _stack(draws: list[Start]) -> Start:
    """Replicas side by side, on the device, spread over all devices where there are several."""
    keys = jax.numpy.stack([draw.key for draw in draws])
    fields_ = [np.stack([getattr(draw, name) for draw in draws]) for name in Start._fields if name != "key"]
    start = Start(*fields_, key=keys)
    devices = jax.devices()
    if len(devices) > 1 and len(draws) % len(devices) == 0:
        mesh = jax.sharding.Mesh(np.asarray(devices), ("replica",))
        return jax.device_put(start, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("replica")))
    return jax.device_put(start)


def _snapshot_steps(times: np.ndarray, snapshots: Any) -> np.ndarray:
    """Steps nearest to the times at which draws are wanted."""
    if snapshots is None:
        return np.zeros(0, dtype=int)
    wanted = grid.increasing("snapshots", np.atleast_1d(snapshots))
    if wanted[-1] > times[-1] * (1 + 1e-9):
        raise reject("snapshots", wanted[-1], f"it lies beyond the last time {times[-1]:.4g}")
    return np.unique(np.abs(times[:, None] - wanted[None, :]).argmin(axis=0))


def _label(job: Job, found: Marched, extrapolate: bool) -> tuple[dict[str, Variable], dict[str, np.ndarray], float]:
    """Every variable with its errors at the recorded times that all grids reached, and the largest step error."""
    problem, levels, records = job.system.problem, job.levels[: len(found.records)], found.records
    end = min(level.times[part.reached - 1] if part.reached else -1.0 for level, part in zip(levels, records, strict=True))
    time = job.steps.times[job.steps.record]
    at = job.steps.record[time <= end * (1 + 1e-12)]
    time = job.steps.times[at]
    grids = [level.times[: part.reached] for level, part in zip(levels, records, strict=True)]
    names = [n for n in records[0].values if n not in (*own.INTERNAL, *kernels.KEPT)]
    limits = {
        name: extrapolation.limit([part.values[name].astype(np.float64) for part in records], grids, time, at)
        for name in (*names, "fresh_norm", "fresh_overlap")
    }
    if not extrapolate:
        limits = {name: extrapolation.Limit(part.lower if len(records) < 3 else _plain(records, name, at), part.best)
                  for name, part in limits.items()}  # fmt: skip
    if len(at):
        limits |= _test(job, limits, len(records) > 1)
    if job.system.kernels and len(at):
        limits |= _kernels(job, levels, records, at)
    variables: dict[str, Variable] = {}
    worst = 0.0
    for name in ordered(n for n in limits if not n.startswith("fresh_")):
        if (name == "overlap" and not problem.k) or (name == "Gamma" and not job.system.kernels):
            continue
        part = limits[name]
        value, stderr = statistics.over_replicas(part.best)
        two = name in TWO_TIME
        step = extrapolation.step_error(part, 1 + two) if len(time) else np.zeros_like(value)
        projection = np.zeros_like(value)
        if found.projection is not None and not two and len(time):
            projection = _projected(found, levels[-1].times, name, time, value.shape)
        estimate = Estimate(value, stderr, step, projection, None if two else part.best)
        variables |= statistics.variables(name, dims(name), estimate)
        if name in (*JUDGED, "test_loss", "test_error") and value.size:
            worst = max(worst, float(np.max(step) / np.max(np.abs(value), initial=1e-30)))
    unit = np.arange(problem.width)
    coords = {"time": time, "student": unit, "student_": unit}
    if job.system.kernels:
        coords["earlier"] = time
    if problem.k:
        coords["teacher"] = np.arange(problem.k)
    return variables, coords, worst


def _plain(records: list[Records], name: str, at: np.ndarray) -> np.ndarray:
    return records[0].values[name][:, at].astype(np.float64)


def _projected(found: Marched, own_times: np.ndarray, name: str, time: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The distance between two sets of functions, at the recorded times; of test averages, that of the weights."""
    assert found.projection is not None
    if name in found.projection:
        gap = found.projection[name]
        index = np.clip(np.searchsorted(own_times, time - 1e-12), 0, len(gap) - 1)
        return gap[index]
    relative = np.zeros(len(time))
    for part in ("norm", "overlap"):
        gap = found.projection[part]
        size = np.max(np.abs(found.records[-1].values[part].mean(axis=0)), initial=1e-30)
        index = np.clip(np.searchsorted(own_times, time - 1e-12), 0, len(gap) - 1)
        relative = np.maximum(relative, gap.reshape(len(gap), -1).max(axis=1, initial=0.0)[index] / size)
    return np.broadcast_to(relative.reshape(-1, *[1] * (len(shape) - 1)), shape).copy() * 1.0


def _test(job: Job, limits: dict[str, Any], twice: bool) -> dict[str, Any]:
    """Test averages from the weights' second moments, replica by replica, at both orders of extrapolation."""
    problem = job.system.problem
    nodes_count = int(np.clip(job.system.samples, *NODES))
    nodes = make_nodes(problem, nodes_count, job.replicas, job.seed, jax.random.fold_in(jax.random.key(job.seed), 1))

    def seen(order: str) -> dict[str, np.ndarray]:
        moments = (np.moveaxis(getattr(limits[name], order), 0, 1) for name in ("fresh_norm", "fresh_overlap"))
        return {n: np.asarray(v, dtype=np.float64).T for n, v in observe(problem, nodes, *moments, job.system.metrics).items()}

    best = seen("best")
    lower = seen("lower") if twice else best
    return {f"test_{name}": extrapolation.Limit(best[name], lower[name]) for name in best}


def _kernels(job: Job, levels: list[Level], records: list[Records], at: np.ndarray) -> dict[str, Any]:
    found = [
        kernels.two_time(
            part.values, job.system.groups, job.system.memory, level.steps.memory, level.steps.dt, at // level.stride
        )
        for level, part in zip(levels, records, strict=True)
    ]
    times = job.steps.times[at]
    grid_ = [times] * len(found)
    whole_ = np.arange(len(at))

    def combined(name: str) -> Any:
        values = [part[name] for part in found]
        if len(values) == 1:
            return extrapolation.Limit(values[0], values[0])
        first = values[0] - values[1]
        if len(values) == 2:
            return extrapolation.Limit(values[0] + first, values[0])
        return extrapolation.Limit(values[0] + (5 * first - (values[1] - values[2])) / 3, values[0] + first)

    del grid_, whole_
    return {name: combined(name) for name in TWO_TIME}


def _draws(job: Job, records: Records) -> tuple[dict[str, Variable], np.ndarray]:
    """θ, θ*, r, r* and z, all replicas side by side: (snapshot, draw, unit)."""
    steps = sorted(records.draws)

    def flat(values: np.ndarray) -> np.ndarray:
        """(replicas, …, units, draws) → (replicas × draws, units); groups side by side."""
        moved = np.moveaxis(np.asarray(values, dtype=np.float64), -2, -1)
        return moved.reshape(-1, moved.shape[-1])

    at = [records.draws[i] for i in steps]
    found = {name: np.stack([flat(part[name]) for part in at]) for name in ("theta", "r")}
    if job.system.problem.k:
        found |= {name: flat(at[0][name]) for name in ("theta_star", "r_star")}
    found["z"] = np.asarray(at[0]["z"], dtype=np.float64).reshape(-1)
    return {name: Variable(dims(name), values) for name, values in found.items()}, job.steps.times[steps]


def _diagnostics(job: Job, found: Marched) -> dict[str, Any]:
    """What was met on the way, over all replicas."""
    finest = found.records[0].values
    steep = float(np.max(finest["steepest"], initial=0.0)) if finest["steepest"].size else 0.0
    out = {"steepest": steep if np.isfinite(steep) else None, "grids_used": len(found.records)}
    if found.projection is not None and found.projection["norm"].size:
        size = np.max(np.abs(finest["norm"]), initial=1e-30)
        gap = float(np.max(found.projection["norm"], initial=0.0) / size)
        out["projection"] = gap if np.isfinite(gap) else None
    return out


def _ending(job: Job, found: Marched) -> tuple[str, str]:
    """How it ended: at the earliest time at which any grid went wrong."""
    for level, part in sorted(zip(job.levels, found.records, strict=False), key=lambda pair: pair[1].reached * pair[0].stride):
        if part.reached < len(level.times):
            at = level.times[part.reached]
            tau = getattr(job.system.algorithm, "temperature", None)
            limit = None if tau is None else largest_stable(job.system.problem, algorithm=job.system.algorithm)
            return "diverged", divergence_words(tau, limit, f"t = {at:.4g} ({part.reason})")
    return "complete", ""
