"""The paper's own numerical method: damped iteration of `eq:dmft_informal_disc` over the whole time window.

`app:numerics_details`, with the slip of its formula for R_ℓ(t,*) corrected.
Every sweep draws M paths of r and all their tangents from the current (C_θ, R_θ), then M paths of θ from the averages,
and moves (C_θ, R_θ) by the damping factor towards what those give. Kept as a reference to test and time against.
Everything is dense over the K+1 times: rows (j, b) are flattened to P = (K+1)m. Normals are the same in every sweep.
"""

import time as clock
import warnings
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from .. import grid
from .._cache import keep_programs
from .._linalg import power, root
from .._types import Array, Host, Key, Scalar, Tree
from ..algorithms import Algorithm
from ..control.checks import check_choices, refuse_kinks
from ..control.question import Averages, Given, asked, in_each
from ..control.stages import DEFAULT_SAMPLES
from ..dmft import planning
from ..dmft.planning import Steps
from ..dmft.response import Regression
from ..dmft.samples import each
from ..dmft.system import System
from ..dmft.weight_side import Linear
from ..errors import DivergenceWarning, real, reject, whole
from ..execute.crew import precise
from ..measure.averages import make_nodes, observe
from ..problem import Problem, fields, observables
from ..progress import Progress
from ..results import Solution, Variable, statistics
from ..results.provenance import provenance
from ..results.statistics import Estimate, over_replicas
from ..results.variables import dims, ordered
from .marched import check_size

CONVERGED = 1e-3
"""Relative change of C_θ at which the iteration stops: below the Monte Carlo error of any sensible M."""
AT_ONCE = 128
"""Samples whose tangents (P × P each) are held at the same time."""


class Kernels(NamedTuple):
    """The unknowns: C_θ over the times and the teacher, (P+k, P+k), and R_θ, (P, P)."""

    C: Array
    R: Array


class Keys(NamedTuple):
    """Random streams of one replica."""

    sample: Key
    normals: Key
    start: Key
    increments: Key
    weights: Key
    path: Key


class Sweep(NamedTuple):
    """What one sweep gives."""

    kernels: Kernels
    Gamma: Array
    """(rows, m, m)."""
    response: Array
    """𝓡, (P, P)."""
    equal: Array
    """E[∇ℓ∇ℓ], (rows, m, m)."""
    seen: dict[str, Array]
    r: Array


def guess(system: System, rows: int) -> Kernels:
    """Return the kernels that the iteration begins with: those of weights that never move."""
    m, both_roots = system.problem.width, system.groups.root[0]
    both = jnp.concatenate([jnp.tile(both_roots[:m], (rows, 1)), both_roots[m:]])
    return Kernels(both @ both.T, jnp.kron(jnp.tril(jnp.ones((rows, rows)), -1), jnp.eye(m)))


@jax.jit
def sweep(system: System, times: Array | Host, keys: Keys, kernels: Kernels) -> Sweep:
    """Return what one sweep gives for every replica, one after the other."""
    return jax.lax.map(lambda pair: _sweep(system, times, *pair), (keys, kernels))


@jax.jit
def mix(old: Kernels, new: Kernels, damping: Scalar) -> tuple[Kernels, Array]:
    """Return (1−α) old + α new, and the largest change of C_θ relative to its largest entry."""
    change = jnp.max(jnp.abs(new.C - old.C)) / jnp.max(jnp.abs(new.C))
    return jax.tree.map(lambda a, b: (1 - damping) * a + damping * b, old, new), change


def _sweep(system: System, times: Array | Host, keys: Keys, kernels: Kernels) -> Sweep:
    problem, algorithm, (_, m, k, M) = system.problem, system.algorithm, system.shape
    delta, root_start = problem.sample_ratio, system.groups.root[0]
    rows = len(times) - 1
    dt = jnp.diff(times)
    P = rows * m
    # 1. Paths of r
    w_all = root(kernels.C) @ jax.random.normal(keys.normals, (P + k, M))
    w, r_star = w_all[:P].reshape(rows, m, M), w_all[P:]
    z = problem.sample_noise(keys.sample, M)
    R = kernels.R.reshape(rows, m, rows, m)
    on_samples = observables.on_samples(problem) | dict(system.metrics)

    def data_step(carry: tuple[Array, Tree], i: Array) -> tuple[tuple[Array, Tree], Tree]:
        F, increments = carry
        r = w[i] - jnp.einsum("ajb,jbs->as", R[i], F) / delta
        ell = each(lambda a, b, c: fields.force(problem, times[i], a, b, c))(r, r_star, z)
        slope = each(lambda a, b, c: fields.force_r(problem, times[i], a, b, c))(r, r_star, z)
        increments, Z = algorithm.increments(increments, jax.random.fold_in(keys.increments, i), times[i], dt[i], delta)
        seen = {f"train_{name}": jnp.mean(each(fn)(r, r_star, z)) for name, fn in on_samples.items()}
        return (F.at[i].set(Z * ell), increments), (r, ell, slope, Z, seen)

    start = (jnp.zeros((rows, m, M)), algorithm.start_increments(keys.start, (M,), delta))
    (F, _), (r, ell, slope, Z, seen) = jax.lax.scan(data_step, start, jnp.arange(rows))
    # 2. Their tangents: S = ∂r/∂w solves (1 + R D/δ) S = 1, a triangular system for each sample
    weight = jnp.ones_like(Z) if algorithm.independent else Z / dt[:, None]
    block_diagonal = jnp.eye(rows)

    def tangents(part: tuple[Array, Array, Array]) -> Array:
        slope, Z, weight = part  # (samples, rows, m, m), (samples, rows), (samples, rows)
        local = jnp.einsum("ij,siab->siajb", block_diagonal, slope * Z[..., None, None]).reshape(-1, P, P)
        system = jnp.eye(P) + kernels.R @ local / delta
        S = jax.lax.linalg.triangular_solve(
            system, jnp.broadcast_to(jnp.eye(P), system.shape), left_side=True, lower=True, unit_diagonal=True
        )
        S = S.reshape(-1, rows, m, P)
        return jnp.einsum("siab,sibj,si->iaj", slope, S, weight)

    by_sample = (jnp.moveaxis(slope, -1, 0), Z.T, weight.T)
    chunks = jax.tree.map(lambda x: x.reshape(-1, AT_ONCE, *x.shape[1:]), by_sample)
    total = jax.lax.map(tangents, chunks).sum(axis=0).reshape(rows, m, rows, m) / M
    Gamma = jnp.einsum("iaib->iab", total)
    earlier = jnp.tril(jnp.ones((rows, rows)), -1)[:, None, :, None]
    response = (total * earlier).reshape(P, P)
    # 3. Averages that drive θ, and R* by Gaussian integration by parts
    flat = F.reshape(P, M)
    covariance = flat @ flat.T / M / delta
    x = (weight[:, None] * ell).reshape(P, M)
    drive = jax.scipy.linalg.block_diag(*Gamma) if m > 1 else jnp.diag(Gamma[:, 0, 0])
    drive = drive + response
    star = (x @ r_star.T / M - drive @ kernels.C[:P, P:]) @ system.groups.teacher_inverse
    # 4. Paths of θ and their tangents
    N = M
    drawn = jnp.concatenate(problem.sample_weights(keys.weights, N), axis=1)
    both = root_start @ (drawn @ power(drawn.T @ drawn / N, -0.5)).T
    theta_0, theta_star = both[:m], both[m:]
    jumps = (root(covariance) @ jax.random.normal(keys.path, (P, N))).reshape(rows, m, N)
    pulls = drive.reshape(rows, m, rows, m)
    stars = star.reshape(rows, m, k)

    def weight_step(theta: Array, i: Array) -> tuple[Array, Array]:
        here = theta[i]
        pull = jax.vmap(lambda v: fields.drift(problem, times[i], v), -1, -1)(here)
        stiff = jax.vmap(lambda v: fields.drift_theta(problem, times[i], v), -1, -1)(here)
        force = pull + jnp.einsum("ajb,jbs->as", pulls[i], theta[:rows]) + stars[i] @ theta_star
        return theta.at[i + 1].set(here - dt[i] * force + jumps[i]), stiff

    paths, stiff = jax.lax.scan(weight_step, jnp.zeros((rows + 1, m, N)).at[0].set(theta_0), jnp.arange(rows))
    theta = paths[:rows].reshape(P, N)
    R_new = _weight_tangents(system, stiff, drive, dt, rows, m)
    everything = jnp.concatenate([theta, theta_star])
    equal = jnp.einsum("iacs,icbs->iab", slope, slope) / M
    return Sweep(Kernels(everything @ everything.T / N, R_new), Gamma, response, equal, seen, r)


def _weight_tangents(system: System, stiff: Array, drive: Array, dt: Array, rows: int, m: int) -> Array:
    """R_θ = E[∂θ_i/∂ΔU_j]: T_{i+1,j} = T_ij − γ_i[(∇h_i + Γ_i) T_ij + Σ_l 𝓡(i,l) T_lj], T_{j+1,j} = 1."""
    P = rows * m
    before = jnp.eye(P, k=-m)  # T(i+1, i) = 1; row i+1 continues row i
    steps = jnp.repeat(dt, m)[:, None]

    def one(stiff: Array) -> Array:
        local = jnp.einsum("ij,iab->iajb", jnp.eye(rows), stiff).reshape(P, P)
        # (1 − shift (1 − γ(h' + Γ + 𝓡))) T = shift
        system = jnp.eye(P) - before @ (jnp.eye(P) - steps * (local + drive))
        return jax.scipy.linalg.solve_triangular(system, before, lower=True, unit_diagonal=True)

    if isinstance(system.weights, Linear):
        return one(stiff[..., 0])
    by_particle = jnp.moveaxis(stiff, -1, 0).reshape(-1, AT_ONCE, rows, m, m)
    return jax.lax.map(lambda part: jax.vmap(one)(part).sum(axis=0), by_particle).sum(axis=0) / system.samples


def fixed_point(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    dt: float | None = None,
    times: ArrayLike | None = None,
    samples: int | None = None,
    seed: int = 0,
    replicas: int = 16,
    kernels: bool = False,
    metrics: Averages | None = None,
    damping: float = 0.8,
    iterations: int = 30,
    progress: bool | None = None,
) -> Solution:
    """Return the curves of `sl.solve` by the paper's own method, a damped iteration over the whole time window.

    α is `damping`. There are at most so many `iterations`, until C_θ changes by less than 1e-3; where it does not, a
    warning says so, and status is 'tolerance missed'. One grid of steps dt, as it comes, in double precision: nothing
    is extrapolated, and no step error is told. For iid entries and students without an intercept.
    """
    keep_programs()
    damping = real("damping", damping, above=0, most=1, why="α must lie in (0, 1]")
    iterations = whole("iterations", iterations, least=1, why="it must be a whole number ≥ 1")
    check_choices(problem, algorithm, None, kernels)
    if problem.bias:
        raise reject("problem", "bias=True", "the paper's iteration knows no intercept; use sl.solve")
    if not problem.data.iid:
        name = type(problem.data).__name__
        raise reject("problem", f"data={name}", "the paper's iteration is for iid entries; use sl.solve")
    last = float(grid.resolve(t_max, times)[-1])
    refuse_kinks(problem, last, "sl.references.fixed_point", ("loss", "penalty"))
    given = Given(dt=dt, times=times, samples=samples, seed=seed, replicas=replicas, extrapolate=False, metrics=metrics)
    given["dtype"] = "float64"
    ask = asked(problem, algorithm, t_max, given, response=Regression(), name="sl.references.fixed_point")
    with precise():
        steps = ask.steps(0)
        check_size(problem, len(steps.times) - 1, "sl.references.fixed_point")
        count = in_each(ask.samples or DEFAULT_SAMPLES, ask.replicas)
        system = replace(ask.system(count, steps, planning.dense(steps.times)), kernels=kernels)
        return _iterated(system, steps, ask.seed, ask.replicas, damping, iterations, progress)


def _iterated(
    system: System, steps: Steps, seed: int, replicas: int, damping: float, iterations: int, progress: bool | None
) -> Solution:
    """All replicas iterated together until none changes: curves and kernels at the recorded times, no step error."""
    begin, rows, m = clock.perf_counter(), len(steps.times), system.problem.width
    times = np.append(steps.times, 2 * steps.times[-1] - steps.times[-2])
    streams = jax.random.split(jax.random.key(seed), (len(Keys._fields), replicas))
    keys = Keys(*(streams[i] for i in range(len(Keys._fields))))
    kernels = jax.tree.map(lambda part: jnp.tile(part, (replicas, 1, 1)), guess(system, rows))
    done, change, count = None, np.inf, 0
    with Progress("fixed point", iterations, progress) as bar:
        bar.phase("compiling")
        compiled = sweep.lower(system, times, keys, kernels).compile()
        compiling = clock.perf_counter() - begin
        bar.phase("")
        while count < iterations:
            count += 1
            done = compiled(system, times, keys, kernels)
            kernels, moved = mix(kernels, done.kernels, damping)
            change = float(moved)
            bar.advance(1)
            if not np.isfinite(change) or change < CONVERGED:
                break
    assert done is not None
    P = rows * m
    C, square, i = np.asarray(done.kernels.C), (replicas, rows, m, rows, m), np.arange(rows)
    two_time = {
        "C_theta": C[:, :P, :P].reshape(square).swapaxes(2, 3),
        "R_theta": np.array(done.kernels.R).reshape(square).swapaxes(2, 3),
        "R_ell": np.array(done.response).reshape(square).swapaxes(2, 3) / np.diff(times)[:, None, None],
    }
    norm, at = two_time["C_theta"][:, i, i], steps.record
    overlap = C[:, :P, P:].reshape(replicas, rows, m, system.problem.k)
    two_time["R_theta"][:, i, i] = np.eye(m)
    two_time["R_ell"][:, i, i] = -np.asarray(done.equal) / float(system.problem.sample_ratio)
    curves = {name: np.asarray(values) for name, values in done.seen.items()} | {"norm": norm}
    curves |= {"overlap": overlap} if system.problem.k else {}
    nodes = make_nodes(system.problem, system.samples, replicas, seed)
    fresh = observe(system.problem, nodes, np.moveaxis(norm, 0, 1), np.moveaxis(overlap, 0, 1), system.metrics)
    curves |= {f"test_{name}": np.asarray(values).T for name, values in fresh.items()}
    found = {name: values[:, at] for name, values in curves.items()}
    if system.kernels:
        found |= {"Gamma": np.asarray(done.Gamma)[:, at]}
        found |= {name: values[:, at][:, :, at] for name, values in two_time.items()}
    variables: dict[str, Variable] = {}
    for name in ordered(found):
        copies = None if name in two_time else found[name]
        variables |= statistics.variables(name, dims(name), Estimate(*over_replicas(found[name]), replicas=copies))
    status, message = "complete", ""
    if not change < CONVERGED:
        status = "tolerance missed"
        message = f"no fixed point after {count} iterations: C_θ still changes by {change:.2g}"
        warnings.warn(message, DivergenceWarning, stacklevel=3)
    options = {"t_max": float(steps.times[-1]), "steps": rows - 1, "samples": system.samples * replicas,
               "replicas": replicas, "damping": damping, "iterations": iterations}  # fmt: skip
    seconds = clock.perf_counter() - begin - compiling
    diagnostics = {"iterations": count, "last_change": change if np.isfinite(change) else None,
                   "compile_seconds": round(compiling, 3), "seconds": round(seconds, 3)}  # fmt: skip
    about = provenance("DMFT, damped fixed point", system.problem, system.algorithm, seed=seed, options=options,
                       status=status, message=message, diagnostics=diagnostics)  # fmt: skip
    unit = np.arange(m)
    coords = {"time": steps.times[at], "student": unit, "student_": unit}
    coords |= {"earlier": steps.times[at]} if system.kernels else {}
    coords |= {"teacher": np.arange(system.problem.k)} if system.problem.k else {}
    return Solution(variables, coords, about)
