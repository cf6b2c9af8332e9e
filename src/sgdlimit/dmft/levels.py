"""Run one grid on the host: chunk by chunk, so that progress, Ctrl-C and divergence are seen in time."""

import time as clock
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..limits.stability import BOUND
from ..problem import Problem
from ..progress import Progress
from . import fixed_point, march
from .data_side import Keys
from .draws import weight_averages, weight_draws
from .march import Setup, State
from .noise import Grid
from .plan import Level, padded
from .weights import Teacher

EIGENVALUES = 512
"""Steps whose correlation matrix is diagonalised for the diagnostics."""


class Job(NamedTuple):
    """What the grids of one solution have in common."""

    problem: Problem
    algorithm: Any
    setup: Setup
    teacher: Teacher
    keys: Keys
    replicas: int
    fine: np.ndarray
    weight_metrics: Any


@dataclass(frozen=True)
class Curves:
    """One value a replica and step; kernels one a replica and pair of steps."""

    records: dict[str, np.ndarray]
    """(replicas, steps reached, …)."""
    draws: dict[str, np.ndarray]
    """Draws of the effective processes at the steps asked for."""
    reached: int
    """Steps whose numbers are sound."""
    reason: str
    """What is wrong with the next, if anything."""
    diagnostics: dict[str, Any]
    compiling: float


def _flat(part: Any) -> np.ndarray:
    """(replicas, blocks, B, …) → (replicas, rows, …)."""
    values = np.asarray(part)
    return values.reshape(values.shape[0], values.shape[1] * values.shape[2], *values.shape[3:])


def _square(part: Any, rows: int) -> np.ndarray:
    """(replicas, blocks, B, blocks, B, a, b) → (replicas, rows, rows, a, b)."""
    values = np.asarray(part)
    size = values.shape[1] * values.shape[2]
    return values.reshape(values.shape[0], size, size, *values.shape[5:])[:, :rows, :rows]


CHECKED = ("train_loss", "train_error", "norm", "overlap", "Gamma")
"""What must stay finite; a user's own metric may be what it likes."""


def _sound(records: dict[str, Any], first: int, last: int) -> tuple[int, str]:
    """How many of the steps up to `last` are sound, and what is wrong with the next."""
    for i in range(first, last):
        for name in CHECKED:
            if name not in records:
                continue
            here = records[name][:, i]
            if not np.all(np.isfinite(here)):
                return i, f"{name} is not finite"
            if name == "norm" and np.max(np.abs(here), initial=0.0) > BOUND:
                return i, f"θᵀθ/d beyond {BOUND:g}"
    return last, ""


def march_along(job: Job, level: Level, keep: np.ndarray, bar: Progress) -> Curves:
    """All replicas over all steps of a grid, or up to where one of them diverges."""
    setup, rows = job.setup, level.steps + 1
    fine = padded(job.fine, setup.blocks * setup.block)
    shared = (job.problem, job.algorithm, setup, Grid(jnp.asarray(fine), jnp.asarray(level.stride)), job.teacher)
    begin = clock.perf_counter()
    state = march.start(*shared, job.keys)
    state = march.advance(*shared, job.keys, state, 0, 0)  # no steps: this only compiles
    jax.block_until_ready(state.records["norm"])
    compiling = clock.perf_counter() - begin
    bar.phase("")
    stops = sorted({*range(setup.block, rows, setup.block), *(int(i) + 1 for i in keep), rows})
    watched = [name for name in state.records if name not in ("C_theta", "R_ell")]
    r: list[np.ndarray] = []
    first, sound, reason = 0, 0, ""
    for last in stops:
        state = march.advance(*shared, job.keys, state, first, last)
        sound, reason = _sound({name: _flat(state.records[name]) for name in watched}, first, last)
        if sound < last:
            break
        if last - 1 in keep:
            r.append(np.asarray(state.data.r))
        bar.advance(last**2 - first**2)
        first = last
    records = {name: _flat(state.records[name])[:, :sound] for name in watched}
    steps = np.arange(sound)
    records |= weight_averages(job.problem, setup, job.teacher, job.keys, state, steps, job.weight_metrics)
    if setup.kernels:
        records |= _kernels(job, state, level, sound)
    draws = _draws(job, state, keep[keep < sound], r)
    return Curves(records, draws, sound, reason, _diagnostics(state, sound), compiling)


def _kernels(job: Job, state: State, level: Level, rows: int) -> dict[str, np.ndarray]:
    """C_θ, R_θ and R_ℓ at all pairs of steps; retarded ones with their limits on the diagonal, zero above it."""
    m = job.problem.width
    C = _square(state.records["C_theta"], rows)  # rows up to the diagonal; the rest by symmetry
    later = np.triu(np.ones((rows, rows), dtype=bool), 1)[:, :, None, None]
    C = np.where(later, C.transpose(0, 2, 1, 4, 3), C)
    steps = np.diff(job.fine[:: level.stride])
    steps = np.concatenate([steps, steps[-1:]])[:rows]
    R_ell = _square(state.records["R_ell"], rows) / steps[None, None, :, None, None]
    R = _square(state.weights.R, rows).copy()
    i = np.arange(rows)
    R[:, i, i] = np.eye(m)
    R_ell[:, i, i] = _flat(state.records["R_ell_equal"])[:, :rows]
    return {"C_theta": C, "R_theta": R, "R_ell": R_ell}


def _draws(job: Job, state: State, at: np.ndarray, r: list[np.ndarray]) -> dict[str, np.ndarray]:
    """θ, θ*, r, r* and z at the steps `at`, all replicas side by side: (snapshot, draw, unit)."""
    if not len(at):
        return {}
    m, k = job.problem.width, job.problem.k
    theta, theta_star = weight_draws(job.problem, job.setup, job.teacher, job.keys, state, jnp.asarray(at))
    r_star = jnp.einsum("ab,rbs->ras", job.teacher.root[m:], state.data.basis[:, : m + k])

    def side_by_side(part: Any) -> np.ndarray:
        """(replicas, …, units, draws) → (…, replicas × draws, units)."""
        moved = np.moveaxis(np.asarray(part, dtype=np.float64), (0, -1), (-3, -2))
        return moved.reshape(*moved.shape[:-3], -1, moved.shape[-1])

    found = {"theta": side_by_side(theta), "r": side_by_side(np.stack(r, axis=1))}
    if k:
        found |= {"theta_star": side_by_side(theta_star), "r_star": side_by_side(r_star)}
    return found | {"z": np.asarray(state.data.z, dtype=np.float64).reshape(-1)}


def _diagnostics(state: State, rows: int) -> dict[str, Any]:
    """What was met on the way, over all replicas."""
    weights = state.weights
    factors = [weights.factor] + ([weights.factor_C] if hasattr(weights, "factor_C") else [])
    return {
        "clipped_pivots": int(sum(np.sum(np.asarray(f.clipped)) for f in factors)),
        "smallest_pivot": _number(min(np.min(np.asarray(f.smallest)) for f in factors)),
        "smallest_eigenvalue": _smallest(np.asarray(state.data.forces)),
        "largest_response": _number(np.max(_flat(state.records["largest_response"])[:, :rows], initial=0.0)),
    }


def _number(value: Any) -> float | None:
    """A number that a file can hold; None after a divergence."""
    return float(value) if np.isfinite(value) else None


def _smallest(forces: Any) -> float | None:
    """Smallest eigenvalue of the correlation matrix of the forces of the first replica, over its first steps."""
    rows = np.asarray(forces[0], dtype=np.float64).reshape(-1, forces.shape[-1])[:EIGENVALUES]
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.linalg.norm(rows, axis=1)
        live = (size > 0) & np.isfinite(size)
        rows = rows[live] / size[live, None]
    return float(np.linalg.eigvalsh(rows @ rows.T)[0]) if len(rows) else None


CONVERGED = 1e-3
"""Relative change of C_θ at which the paper's iteration stops: below the Monte Carlo error of any sensible M."""


def iterate(job: Job, level: Level, damping: float, iterations: int, bar: Progress) -> Curves:
    """The paper's fixed point, all replicas iterated together until none changes."""
    problem, setup, rows = job.problem, job.setup, level.steps + 1
    m = problem.width
    times = jnp.asarray(padded(job.fine, rows)[: rows + 1])
    begin = clock.perf_counter()
    one = fixed_point.guess(problem, job.teacher, rows)
    kernels = jax.tree.map(lambda part: jnp.tile(part, (job.replicas, 1, 1)), one)
    arguments = (problem, job.algorithm, setup, times, job.teacher, job.keys)
    sweep = fixed_point.sweep.lower(*arguments, kernels).compile()
    compiling = clock.perf_counter() - begin
    bar.phase("")
    done, change, count = None, np.inf, 0
    while count < iterations:
        count += 1
        done = sweep(problem, job.algorithm, times, job.teacher, job.keys, kernels)
        kernels, moved = fixed_point.mix(kernels, done.kernels, damping)
        change = float(moved)
        bar.advance(rows**2 / iterations)
        if not np.isfinite(change) or change < CONVERGED:
            break
    assert done is not None
    P = rows * m
    C = np.asarray(done.kernels.C)
    square = (job.replicas, rows, m, rows, m)
    records = {name: np.asarray(values) for name, values in done.seen.items()}
    two_time = {
        "C_theta": C[:, :P, :P].reshape(square).swapaxes(2, 3),
        "R_theta": np.array(done.kernels.R).reshape(square).swapaxes(2, 3),
        "R_ell": np.array(done.response).reshape(square).swapaxes(2, 3) / np.diff(times)[:, None, None],
    }
    i = np.arange(rows)
    two_time["R_theta"][:, i, i] = np.eye(m)
    two_time["R_ell"][:, i, i] = -np.asarray(done.equal) / float(problem.sample_ratio)
    records |= {
        "norm": two_time["C_theta"][:, i, i],
        "overlap": C[:, :P, P:].reshape(job.replicas, rows, m, problem.k),
        "Gamma": np.asarray(done.Gamma),
    }
    if setup.kernels:
        records |= two_time
    diagnostics = {"iterations": count, "last_change": _number(change)}
    sound, reason = _sound(records, 0, rows)
    if sound == rows and not change < CONVERGED:
        reason = f"no fixed point after {count} iterations: C_θ still changes by {change:.2g}"
    return Curves(records, {}, sound, reason, diagnostics, compiling)
