"""`solve`: validate, plan, march, and say how good the numbers are."""

import time as clock
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import grid
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..errors import DivergenceWarning, real, reject, seed_number, whole
from ..limits.averages import make_nodes, observe
from ..limits.stability import divergence_words, largest_stable
from ..problem import Problem, fields
from ..problem.observables import UNITS
from ..problem.problem import check_start
from ..progress import Progress
from ..results import Solution, Variable
from ..results.provenance import provenance
from . import march
from . import metrics as own
from . import plan as planning
from .checks import check_choices, check_draws, check_fields, check_memory, check_samples
from .levels import Curves, Job, iterate, march_along
from .march import Setup
from .plan import Level
from .probes import GROUP
from .response import estimator
from .statistics import combine
from .weights import Linear, Particles, Teacher

TEST_NODES = 2048
"""Points behind a test average in each replica."""
BLOCK = 32
"""Steps in a block of history, on a CPU, where loops are cheap."""
LARGEST_BLOCK = 256
TWO_TIME = ("C_theta", "R_theta", "R_ell")
DIMS = {
    "norm": ("student", "student_"),
    "overlap": ("student", "teacher"),
    "Gamma": ("student", "student_"),
    "C_theta": ("earlier", "student", "student_"),
    "R_theta": ("earlier", "student", "student_"),
    "R_ell": ("earlier", "student", "student_"),
}
"""Axes beyond time."""
DRAWS = {
    "theta": ("snapshot", "coordinate", "student"),
    "theta_star": ("coordinate", "teacher"),
    "r": ("snapshot", "sample", "student"),
    "r_star": ("sample", "teacher"),
    "z": ("sample",),
}
"""Axes of draws; as in a simulation, without trials."""
INTERNAL = ("R_ell_equal", "largest_response")
"""Recorded, but not for users."""
ON_REQUEST = (*TWO_TIME, "Gamma")
"""Only with `kernels=True`."""


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
    extrapolate: bool = False,
    response: str = "probes",
    kernels: bool = False,
    snapshots: Any = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    weight_metrics: Mapping[str, Callable[..., Any]] | None = None,
    method: str = "march",
    dtype: str = "float64",
    damping: float = 0.8,
    iterations: int = 30,
    progress: bool | None = None,
) -> Solution:
    """Learning curves in the limit n, d → ∞ at finite δ, for any loss, penalty, width and algorithm (DMFT).

    The equations are `eq:dmft_informal`, discretised as `eq:dmft_informal_disc`.

    t_max, dt: uniform steps of at most dt (default 0.05). times: the grid itself; with dt, refined to such steps.
    samples: of the effective process, over all replicas (rounded up to whole replicas of a multiple of 256).
    replicas: independent solutions; their spread is the standard error `x_stderr` of every x.
    extrapolate: also solve with half and double steps on the same noise; removes Euler's first-order error and adds
        `x_step_error`, an estimate of what is left. Not for algorithms whose step is real.
    response: how responses are estimated: 'probes', 'exact' (all tangents, K³M/6) or 'paper' (ρ_ℓ, D_ℓ, D_r; SGF only).
    kernels: also return C_theta, R_theta, R_ell and Gamma. snapshots: times at which draws of θ and r are returned.
    metrics: further averages by name, ψ(r, r_star, z): `train_name`, `test_name`. weight_metrics: ψ(theta, theta_star).
    method: 'march', or 'fixed-point', the paper's iteration over the whole window with `damping` and `iterations`.
    """
    begin = clock.perf_counter()
    require(problem, algorithm)
    check_choices(problem, algorithm, extrapolate, response, method, dtype, kernels)
    iterative = method == "fixed-point"
    if iterative and (extrapolate or snapshots is not None or weight_metrics):
        raise reject("method", method, "it gives curves and kernels on one grid; use method='march' for the rest")
    samples = whole("samples", samples, least=64, why="it must be a whole number ≥ 64")
    replicas = whole("replicas", replicas, least=4, why="a standard error needs at least 4 replicas")
    damping = real("damping", damping, above=0, most=1, why="α must lie in (0, 1]")
    iterations = whole("iterations", iterations, least=1, why="it must be a whole number ≥ 1")
    seed = seed_number(seed)
    base = planning.steps(algorithm, t_max, times, dt, extrapolate)
    keep = _snapshot_steps(base.times, snapshots)
    rows = (len(base.times) - 1) * (1 + extrapolate) + 1
    per_replica = -(-samples // (replicas * GROUP)) * GROUP
    block = block_size(per_replica, problem.width)
    check_samples(samples, per_replica, replicas, rows, block, problem)
    check_share(algorithm, base.times)
    check_draws(algorithm, problem, per_replica, base.times)
    check_start(problem)
    strain = check_fields(problem, algorithm, base.times)
    fine, levels = planning.levels(base, extrapolate, doubled=2 * strain < 1)
    on_samples, on_weights = own.on_samples(problem, metrics), own.on_weights(problem, weight_metrics)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        linear = fields.linear_drift(problem, float(fine[-1]))
        setup = Setup(
            samples=per_replica,
            particles=per_replica,
            blocks=planning.blocks_for(rows, block),
            block=block,
            response=estimator(response, algorithm.independent),
            weights=Linear() if linear else Particles(),
            derivative=problem.k > 0 and bool(problem.labels.smooth),
            dtype=dtype,
            kernels=kernels,
            metrics=on_samples,
        )
        check_memory(setup, problem, replicas)
        keys = march.make_keys(jax.random.key(seed), replicas)
        job = Job(problem, algorithm, setup, second_moments(problem), keys, replicas, fine, on_weights)
        curves = []
        with Progress("solve", sum(float(level.steps + 1) ** 2 for level in levels), progress) as bar:
            for level in levels:
                bar.phase("compiling")
                if iterative:
                    curves.append(iterate(job, level, damping, iterations, bar))
                else:
                    # draws come from the finest grid
                    curves.append(march_along(job, level, keep * (1 + extrapolate) if not curves else keep[:0], bar))
            if len(curves) == 3 and curves[2].reached <= levels[2].steps:
                levels, curves = levels[:2], curves[:2]  # only the doubled steps went wrong: they are not needed
            variables, coords = _label(job, base, levels, curves, seed)
    if curves[0].draws:
        variables |= {name: Variable(DRAWS[name], values) for name, values in curves[0].draws.items()}
        coords["snapshot"] = base.times[keep[: len(curves[0].draws["r"])]]
    status, message = _ending(job, levels, curves)
    if status != "complete":
        warnings.warn(message, DivergenceWarning, stacklevel=2)
    compiling = sum(part.compiling for part in curves)
    options = {
        "t_max": float(base.times[-1]),
        "dt": float(np.max(np.diff(base.times))),
        "steps": len(base.times) - 1,
        "samples": per_replica * replicas,
        "replicas": replicas,
        "extrapolate": extrapolate,
        "response": response,
        "dtype": dtype,
    }
    if iterative:
        options |= {"damping": damping, "iterations": iterations}
    about = provenance(
        "DMFT, damped fixed point" if iterative else f"DMFT, {'exact' if linear else 'particle'} weights",
        problem,
        algorithm,
        seed=seed,
        options=options,
        status=status,
        message=message,
        diagnostics=curves[0].diagnostics
        | {"compile_seconds": round(compiling, 3), "seconds": round(clock.perf_counter() - begin - compiling, 3)},
    )
    return Solution(variables, coords, about)


def block_size(samples: int, width: int) -> int:
    """Steps in a block: on a GPU, where every turn of a loop costs, as many as the samples surely allow.

    It must not depend on the number of steps, or a longer march would not repeat a shorter one to the last bit.
    """
    if jax.default_backend() == "cpu":
        return BLOCK
    return max(BLOCK, min(LARGEST_BLOCK, 2 ** ((samples // (16 * width)).bit_length() - 1)))


def second_moments(problem: Problem) -> Teacher:
    """Square root of the second moments of (θ⁰, θ*), and the pseudo-inverse of the teacher's."""
    gram = problem.gram()
    star = gram[problem.width :, problem.width :]
    inverse = np.linalg.pinv(star, hermitian=True) if problem.k else np.zeros((0, 0))
    values, vectors = np.linalg.eigh(gram)
    root = (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
    return Teacher(jnp.asarray(root), jnp.asarray(inverse))


def _snapshot_steps(times: np.ndarray, snapshots: Any) -> np.ndarray:
    """Steps nearest to the times at which draws are wanted."""
    if snapshots is None:
        return np.zeros(0, dtype=int)
    wanted = grid.increasing("snapshots", np.atleast_1d(snapshots))
    if wanted[-1] > times[-1] * (1 + 1e-9):
        raise reject("snapshots", wanted[-1], f"it lies beyond the last time {times[-1]:.4g}")
    return np.unique(np.abs(times[:, None] - wanted[None, :]).argmin(axis=0))


def _label(
    job: Job, base: planning.Steps, levels: list[Level], curves: list[Curves], seed: int
) -> tuple[dict[str, Variable], dict[str, np.ndarray]]:
    """Every variable with its errors, at the recorded times that all grids reached."""
    problem = job.problem
    sound = [np.asarray(level.record) < part.reached for level, part in zip(levels, curves, strict=True)]
    keep = np.all(sound, axis=0)
    keep &= np.cumprod(keep).astype(bool)
    at = [np.asarray(level.record)[keep] for level in levels]
    holds = at[2] >= 0 if len(levels) == 3 else None
    values = [_at(part.records, index) for part, index in zip(curves, at, strict=True)]
    if np.any(keep):
        nodes = make_nodes(problem, TEST_NODES, job.replicas, seed, jax.random.fold_in(jax.random.key(seed), 1))
        for found in values:
            moments = (np.moveaxis(found[name], 0, 1) for name in ("norm", "overlap"))
            fresh = observe(problem, nodes, *moments, job.setup.metrics)
            found |= {f"test_{name}": np.asarray(value).T for name, value in fresh.items()}
    variables: dict[str, Variable] = {}
    for name in sorted(values[0], key=lambda n: list(UNITS).index(n) if n in UNITS else len(UNITS)):
        if (name == "overlap" and not problem.k) or (name in ON_REQUEST and not job.setup.kernels):
            continue
        estimate = combine([found[name] for found in values], holds, 2 if name in TWO_TIME else 1)
        dims = ("time", *DIMS.get(name, ()))
        variables[name] = Variable(dims, estimate.value)
        variables[f"{name}_stderr"] = Variable(dims, estimate.stderr)
        if estimate.step_error is not None:
            variables[f"{name}_step_error"] = Variable(dims, estimate.step_error)
        if name not in TWO_TIME:
            variables[f"{name}_replicas"] = Variable(
                ("replica", *dims), np.asarray(estimate.replicas, dtype=np.float64)
            )
    time = base.times[base.record][keep]
    unit = np.arange(problem.width)
    coords = {"time": time, "student": unit, "student_": unit}
    if job.setup.kernels:
        coords["earlier"] = time
    if problem.k:
        coords["teacher"] = np.arange(problem.k)
    return variables, coords


def _at(records: dict[str, np.ndarray], index: np.ndarray) -> dict[str, np.ndarray]:
    """The records at the recorded steps."""
    found = {name: values[:, index] for name, values in records.items() if name not in INTERNAL}
    return found | {name: found[name][:, :, index] for name in TWO_TIME if name in found}


def _ending(job: Job, levels: list[Level], curves: list[Curves]) -> tuple[str, str]:
    """How it ended: at the earliest time at which any grid went wrong."""
    for level, part in sorted(zip(levels, curves, strict=True), key=lambda pair: pair[1].reached * pair[0].stride):
        if part.reached <= level.steps:
            at = job.fine[part.reached * level.stride]
            tau = getattr(job.algorithm, "temperature", None)
            limit = None if tau is None else largest_stable(job.problem, algorithm=job.algorithm)
            return "diverged", divergence_words(tau, limit, f"t = {at:.4g} ({part.reason})")
        if part.reason:
            return "unfinished", part.reason
    return "complete", ""
