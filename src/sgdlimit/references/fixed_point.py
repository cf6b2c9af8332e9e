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
from .._linalg import power, root
from .._machine import keep_programs
from .._types import Array, Host, Key, Tree
from ..algorithms import Algorithm
from ..control.checks import check_choices, refuse_kinks
from ..control.question import Averages, Given, asked, in_each
from ..control.stages import DEFAULT_SAMPLES
from ..dmft import integrator, planning
from ..dmft.planning import Steps
from ..dmft.response import Regression
from ..dmft.system import System, each
from ..dmft.weight_side import Linear
from ..errors import DivergenceWarning, real, reject, whole
from ..exact.labels import labelled
from ..execute.crew import precise
from ..measure.averages import make_nodes, observe
from ..problem import Problem, fields, observables
from ..problem.trained import trained_of
from ..progress import Progress
from ..results import Solution, provenance
from ..results.variables import Estimate, over_replicas
from .marched import check_size, refuse_rows

CONVERGED = 1e-3  # relative change of C_θ at which it stops: below the Monte Carlo error of any sensible M
AT_ONCE = 128  # samples whose tangents (P × P each) are held at the same time


class Kernels(NamedTuple):
    """The unknowns: C_θ over the times and the teacher, (P+k, P+k), and R_θ, (P, P)."""

    C: Array
    R: Array


class Sweep(NamedTuple):
    """What one sweep gives: kernels, Γ, (rows, m, m), 𝓡, (P, P), E[∇ℓ∇ℓ], (rows, m, m), averages over the samples."""

    kernels: Kernels
    Gamma: Array
    response: Array
    equal: Array
    seen: dict[str, Array]


@jax.jit
def sweep(system: System, times: Array | Host, keys: tuple[Key, ...], kernels: Kernels) -> Sweep:
    """Return what one sweep gives for every replica, one after the other."""
    return jax.lax.map(lambda pair: _sweep(system, times, *pair), (keys, kernels))


def _sweep(system: System, times: Array | Host, keys: tuple[Key, ...], kernels: Kernels) -> Sweep:
    problem, algorithm, (_, m, k, M) = system.problem, system.algorithm, system.shape
    delta, rows, dt = problem.sample_ratio, len(times) - 1, jnp.diff(times)
    P = rows * m
    sample_key, normals_key, start_key, increments_key, weights_key, path_key = keys
    # 1. Paths of r
    w_all = root(kernels.C) @ jax.random.normal(normals_key, (P + k, M))
    w, r_star = w_all[:P].reshape(rows, m, M), w_all[P:]
    z = problem.sample_noise(sample_key, M)
    R = kernels.R.reshape(rows, m, rows, m)
    on_samples = observables.on_samples(problem) | dict(system.metrics)

    def data_step(carry: tuple[Array, Tree], i: Array) -> tuple[tuple[Array, Tree], Tree]:
        F, increments = carry
        r = w[i] - jnp.einsum("ajb,jbs->as", R[i], F) / delta
        ell, slope = (
            each(lambda a, b, c, of=of: of(problem, times[i], a, b, c))(r, r_star, z)
            for of in (fields.force, fields.force_r)
        )
        increments, Z = algorithm.increments(increments, jax.random.fold_in(increments_key, i), times[i], dt[i], delta)
        seen = {f"train_{name}": jnp.mean(each(fn)(r, r_star, z)) for name, fn in on_samples.items()}
        return (F.at[i].set(Z * ell), increments), (ell, slope, Z, seen)

    start = (jnp.zeros((rows, m, M)), algorithm.start_increments(start_key, (M,), delta))
    (F, _), (ell, slope, Z, seen) = jax.lax.scan(data_step, start, jnp.arange(rows))
    # 2. Their tangents: S = ∂r/∂w solves (1 + R D/δ) S = 1, a triangular system for each sample
    weight = jnp.ones_like(Z) if algorithm.independent else Z / dt[:, None]

    def tangents(part: tuple[Array, Array, Array]) -> Array:
        slope, Z, weight = part  # (samples, rows, m, m), (samples, rows), (samples, rows)
        local = jnp.einsum("ij,siab->siajb", jnp.eye(rows), slope * Z[..., None, None]).reshape(-1, P, P)
        system, unit = jnp.eye(P) + kernels.R @ local / delta, jnp.broadcast_to(jnp.eye(P), local.shape)
        S = jax.lax.linalg.triangular_solve(system, unit, left_side=True, lower=True, unit_diagonal=True)
        return jnp.einsum("siab,sibj,si->iaj", slope, S.reshape(-1, rows, m, P), weight)

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
    drive = jnp.einsum("ij,iab->iajb", jnp.eye(rows), Gamma).reshape(P, P) + response
    star = (x @ r_star.T / M - drive @ kernels.C[:P, P:]) @ system.groups.teacher_inverse
    # 4. Paths of θ and their tangents
    drawn = jnp.concatenate(problem.sample_weights(weights_key, M), axis=1)
    both = system.groups.root[0] @ (drawn @ power(drawn.T @ drawn / M, -0.5)).T
    theta_0, theta_star = both[:m], both[m:]
    jumps = (root(covariance) @ jax.random.normal(path_key, (P, M))).reshape(rows, m, M)
    pulls, stars = drive.reshape(rows, m, rows, m), star.reshape(rows, m, k)

    def weight_step(theta: Array, i: Array) -> tuple[Array, Array]:
        here = theta[i]
        pull, stiff = (of(problem, times[i], here) for of in (integrator.pulls, integrator.slopes))
        force = pull + jnp.einsum("ajb,jbs->as", pulls[i], theta[:rows]) + stars[i] @ theta_star
        return theta.at[i + 1].set(here - dt[i] * force + jumps[i]), stiff

    paths, stiff = jax.lax.scan(weight_step, jnp.zeros((rows + 1, m, M)).at[0].set(theta_0), jnp.arange(rows))
    everything = jnp.concatenate([paths[:rows].reshape(P, M), theta_star])
    new = Kernels(everything @ everything.T / M, _weight_tangents(system, stiff, drive, dt))
    return Sweep(new, Gamma, response, jnp.einsum("iacs,icbs->iab", slope, slope) / M, seen)


def _weight_tangents(system: System, stiff: Array, drive: Array, dt: Array) -> Array:
    """R_θ = E[∂θ_i/∂ΔU_j]: T_{i+1,j} = T_ij − γ_i[(∇h_i + Γ_i) T_ij + Σ_l 𝓡(i,l) T_lj], T_{j+1,j} = 1."""
    (rows, m), P = stiff.shape[:2], len(drive)
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
    refuse_rows(problem)
    if problem.bias or not problem.data.iid:
        given = "bias=True" if problem.bias else f"data={type(problem.data).__name__}"
        raise reject("problem", given, "the paper's iteration is for iid entries and no intercept; use sl.solve")
    if names := ", ".join(trained_of(problem)):
        raise reject("problem", f"{names} = Trained(...)", "the paper's iteration trains weights alone; use sl.solve")
    if not algorithm.how.plain:
        raise reject("Step", algorithm.step, "a step of the paper's iteration is η times the gradient; use sl.solve")
    refuse_kinks(problem, float(grid.resolve(t_max, times)[-1]), "sl.references.fixed_point", ("loss", "penalty"))
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
    begin, rows, problem, at = clock.perf_counter(), len(steps.times), system.problem, steps.record
    m, P, i = problem.width, rows * problem.width, np.arange(rows)
    times = np.append(steps.times, 2 * steps.times[-1] - steps.times[-2])
    keys = tuple(jax.random.split(jax.random.key(seed), (6, replicas)))
    # the iteration begins with weights that never move
    both = system.groups.root[0]
    still = jnp.concatenate([jnp.tile(both[:m], (rows, 1)), both[m:]])
    first = Kernels(still @ still.T, jnp.kron(jnp.tril(jnp.ones((rows, rows)), -1), jnp.eye(m)))
    kernels = jax.tree.map(lambda part: jnp.tile(part, (replicas, 1, 1)), first)
    change, count = np.inf, 0
    with Progress("fixed point", iterations, progress) as bar:
        bar.phase("compiling")
        while True:
            count, done = count + 1, sweep(system, times, keys, kernels)
            change = float(jnp.max(jnp.abs(done.kernels.C - kernels.C)) / jnp.max(jnp.abs(done.kernels.C)))
            kernels = jax.tree.map(lambda old, new: (1 - damping) * old + damping * new, kernels, done.kernels)
            bar.phase("")
            bar.advance(1)
            if not np.isfinite(change) or change < CONVERGED or count == iterations:
                break
    C, square = np.asarray(done.kernels.C), (replicas, rows, m, rows, m)
    pairs = (C[:, :P, :P], done.kernels.R, done.response)
    correlation, response, ell = (np.array(part).reshape(square).swapaxes(2, 3) for part in pairs)
    ell = ell / np.diff(times)[:, None, None]
    response[:, i, i], ell[:, i, i] = np.eye(m), -np.asarray(done.equal) / float(problem.sample_ratio)
    norm, overlap = correlation[:, i, i], C[:, :P, P:].reshape(replicas, rows, m, problem.k)
    nodes = make_nodes(problem, system.samples, replicas, seed)
    fresh = observe(problem, nodes, np.moveaxis(norm, 0, 1), np.moveaxis(overlap, 0, 1), system.metrics)
    curves = {name: np.asarray(values)[:, at] for name, values in done.seen.items()}
    curves |= {f"test_{name}": values.T[:, at] for name, values in fresh.items()} | {"norm": norm[:, at]}
    curves |= {"overlap": overlap[:, at]} if problem.k else {}
    curves |= {"Gamma": np.asarray(done.Gamma)[:, at]} if system.kernels else {}
    found = {name: Estimate(*over_replicas(values), replicas=values) for name, values in curves.items()}
    if system.kernels:
        two_time = {"C_theta": correlation, "R_theta": response, "R_ell": ell}
        found |= {name: Estimate(*over_replicas(values[:, at][:, :, at])) for name, values in two_time.items()}
    status, message = "complete", ""
    if not change < CONVERGED:
        status = "tolerance missed"
        message = f"no fixed point after {count} iterations: C_θ still changes by {change:.2g}"
        warnings.warn(message, DivergenceWarning, stacklevel=3)
    options = {"t_max": float(steps.times[-1]), "steps": rows - 1, "samples": system.samples * replicas,
               "replicas": replicas, "damping": damping, "iterations": iterations}  # fmt: skip
    diagnostics = {"iterations": count, "last_change": change if np.isfinite(change) else None,
                   "seconds": round(clock.perf_counter() - begin, 3)}  # fmt: skip
    about = provenance("DMFT, damped fixed point", problem, system.algorithm, seed=seed, options=options,
                       status=status, message=message, diagnostics=diagnostics)  # fmt: skip
    return Solution(*labelled(found, steps.times[at]), about)
