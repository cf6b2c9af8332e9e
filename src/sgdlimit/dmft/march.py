"""The causal march: `init`, then `step` for i = 0, 1, …: every step needs only what came before it.

Of one training sample r_i = w_i − (1/δ) Σ_{j<i} R_w(i,j) F_j with F_j = Z_j ℓ_j (`eq:dmft_disc_r`; in continuous time
`eq:r`, with a teacher `eq:r_planted`), for M samples at once, and their averages `eq:dmft_disc_func`, which drive the
weights. R_w = Σ_q p_q s_q R_θ^q is R_θ for iid data. Averages carry the mean of Z_i given the past, over γ_i, so that
they hold for correlated increments.

Pure functions of one replica; the state does not grow. `advance` carries all replicas over a number of steps in one
compiled call; `trace` is the whole march as one function, `curves` for users who differentiate (forward) or vmap it.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from .._types import Array, Key, Scalar, Tree
from ..algorithms import Algorithm, IterateAverage
from ..problem import Problem, observables, trained
from ..problem.data import Table
from ..problem.mixture import moved, place, push
from ..problem.sequences import as_read, tiled
from ..results.metrics import CONTROL, INTERNAL, SOFT, Named
from ..results.metrics import at as at_values
from ..results.variables import OF
from . import noise, planning, training
from .integrator import Explicit, Implicit
from .memory import ALTERNATING, Memory, Moments, ladder
from .particles import Particles
from .response import KickRegression, Local, Regression, Response
from .system import Start, Step, System, each, groups_of, moments
from .training import Iterate, Known, Training
from .weight_side import Averages, Linear, View

FIRST = 2**31 - 1
"""Folded into the key for the state of the increments; no step has this number."""
CHUNK = 250
"""Steps in one compiled call; progress, Ctrl-C and divergence are seen between calls."""
OPTIONS: dict[str, bool | int | str] = {"xla_gpu_autotune_level": 0}
"""Products here are small: trying algorithms for each of them takes seconds and gains nothing."""
if jax.__version_info__[:2] == (0, 10):
    # this compiler's library for CPUs takes sums over few units for products, at several times the price
    OPTIONS["xla_cpu_experimental_ynn_fusion_type"] = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"


def assemble(
    problem: Problem,
    algorithm: Algorithm,
    samples: int,
    memory: Memory,
    *,
    linear: bool = True,
    response: Response | None = None,
    tested: Table | None = None,
    dtype: str = "float32",
    metrics: Named = (),
    weight_metrics: Named = (),
    kernels: bool = False,
    averages: tuple[tuple[str, IterateAverage], ...] = (),
) -> System:
    """Return the system of a march of so many samples; `linear`: whether h = Λθ. Left out, the response is found by
    regression: on the noise where that tells all, on the path of w for particles and several groups."""
    groups = groups_of(problem, tested)
    regression = KickRegression() if linear and len(groups.share) == 1 else Regression()
    return System(
        problem, algorithm, groups, samples, memory=memory,
        weights=Linear() if linear else Particles(), response=response or regression,
        rule=Explicit() if algorithm.discrete else Implicit(), dtype=dtype,
        metrics=metrics, weight_metrics=weight_metrics, kernels=kernels, averages=dict(averages),
    )  # fmt: skip


class State(NamedTuple):
    """One replica after some steps."""

    forces: Array
    """Moments of F_j of the M samples, (n, m, M)."""
    response: Tree
    """What the response keeps of their past."""
    increments: Tree
    """What the algorithm keeps of it."""
    weights: Tree
    """Of the weight side, whose own it is."""
    training: Training
    """Trained parameters, among them an intercept, and the state of a rate."""
    iterates: dict[str, Iterate]
    """Averages of the iterates by name."""
    last: Array
    """The time at which the step before began."""


def init(system: System, start: Start) -> State:
    """Return the state of one replica before step 0: samples have no past."""
    g, m, k, M = system.shape
    key, begun = jax.random.fold_in(start.key, FIRST), training.begin(system)
    double, rows = jnp.float64, jnp.zeros((m, M), system.dtype)
    none = Iterate(rows, rows, jnp.zeros((g, m, M), system.dtype), jnp.zeros((g, m, m + k), double), begun.shared)
    return State(
        forces=jnp.zeros((system.memory.size, m, M), system.dtype),
        response=system.response.init(system),
        increments=system.algorithm.start_increments(key, (system.samples,), system.problem.sample_ratio),
        weights=system.weights.init(system, start),
        training=begun,
        iterates=dict.fromkeys(system.averages, none),
        last=jnp.zeros((), double),
    )


def _starred(system: System, along: Array) -> Array:
    """C_θ^q(i, *), (g, m, k)."""
    return jnp.einsum("gab,gcb->gac", along, system.groups.root[:, system.problem.width :])


def _samples(system: System, start: Start, state: State, view: View) -> tuple[Array, Array]:
    """r_i of every line (`eq:dmft_disc_r`), and what moves its class or its row in it: b + β, (m, L·M) both."""
    problem, overlap = system.problem, jnp.einsum("g,gab->ab", system.groups.share, _starred(system, view.along))
    at = place(problem, overlap, state.training.shared.get("intercept"))
    shift = moved(problem, at, start.z, jnp.zeros_like(view.w))
    return view.w + shift - view.f / jnp.asarray(system.ratio, system.dtype), shift


def step(system: System, start: Start, state: State, x: Step) -> tuple[State, dict[str, Array]]:
    """Return the state after step i of data and weights, and what is recorded of it."""
    view = system.weights.view(system, x, start, state.weights, state.forces)
    data, averages, seen = data_step(system, start, state, x, view)
    weights = system.weights.advance(system, x, start, state.weights, view, averages)
    seen |= _of_weights(system, view.norm, view.along)
    if system.weight_metrics:
        theta, theta_star = system.weights.draw(system, start, state.weights, view)
        for name, fn in system.weight_metrics:
            of_weights = jax.vmap(jax.vmap(fn, in_axes=(-1, -1)))(theta, theta_star)
            seen[name] = jnp.dot(system.groups.share, jnp.mean(of_weights, axis=-1).astype(jnp.float64))
    if system.kernels:
        seen |= {"own": view.own, "rest": view.rest, "along": view.along}
    for average, iterate in data.iterates.items():
        own = _of_samples(system, start, iterate.r, iterate.w, iterate.shared)
        own |= _of_weights(system, iterate.norm, iterate.along) | iterate.shared
        seen |= {f"{average}{OF}{name}": value for name, value in own.items()}
    return data._replace(weights=weights, last=x.t), seen


def _of_weights(system: System, norm: Array, along: Array) -> dict[str, Array]:
    """What is recorded of the weights' second moments, (g, m, m) and along their start."""
    groups = system.groups
    star, weight = _starred(system, along), groups.share * groups.tested
    seen = observables.overlaps(system.problem, jnp.einsum("g,gab->ab", groups.share, star)) | {
        "norm": jnp.einsum("g,gab->ab", groups.share, norm),
        "fresh_norm": jnp.einsum("g,gab->ab", weight, norm),
        "fresh_overlap": jnp.einsum("g,gab->ab", weight, star),
    }
    if len(groups.share) > 1:
        seen |= {"norm_by_group": norm, "overlap_by_group": star[..., : system.problem.read]}
    return seen


def _of_samples(system: System, start: Start, r: Array, w: Array, shared: dict[str, Array]) -> dict[str, Array]:
    """Averages over the samples, at r and, as a control, at w, with these values of the trained parameters."""
    problem, seen = training.problem_at(system, shared), {}
    r, w = (as_read(problem, lines) for lines in (r, w))
    own = at_values(system.metrics, training.values_at(system, shared))
    for name, fn in (observables.on_samples(problem) | own).items():
        for told, at in ((f"train_{name}", r), (CONTROL.format(name), w)):
            seen[told] = jnp.mean(each(fn)(at, start.r_star, start.z)).astype(jnp.float64)
    if (soft := observables.softened(problem, r, start.r_star, start.z)) is not None:
        seen[SOFT] = soft.astype(jnp.float64)
    return seen


def data_step(
    system: System, start: Start, state: State, x: Step, view: View
) -> tuple[State, Averages, dict[str, Array]]:
    """Return the state with the samples after step i, averages for the weights, and what is recorded of the samples."""
    problem, basis, before = system.problem, start.basis, state.training
    r, shift = _samples(system, start, state, view)
    increments, Z, expected = noise.increments(system, state.increments, start, x)
    made = training.forced(system, start, x, before, r, expected, _known(system, view))
    driven = made.force if expected is None else tiled(problem, expected) * made.force
    here = Local(r, view.w, shift, made.force, driven, Z, expected, view.kicks, made.at, made.slope)
    answer, response = system.response.step(system, x, start, state.response, view.rho, here)
    F = tiled(problem, Z) * made.force  # dL of eq:Sigma_ell, eq:Sigma_ell_planted
    with_basis = moments(driven, basis[: problem.width + problem.k])
    pushed = push(problem, start.z, driven)
    moved_on = training.after(system, start, x, before, made, r, expected, pushed.level)
    averages = Averages(answer, with_basis, F, pushed, training.driven(system, x, made, moved_on))
    seen = _of_samples(system, start, r, view.w + shift, before.shared) | before.shared
    if system.kernels:
        assert answer.equal is not None
        seen |= {"Gamma": answer.apart[0], "response": answer.kappa, "equal": answer.equal}
    now = Iterate(r, view.w + shift, view.rest, view.along, before.shared)
    iterates = training.averaged(system, x, state.iterates, state.last, now)
    forces = system.memory.push(x.memory, state.forces, F)
    state = state._replace(forces=forces, response=response, increments=increments, training=moved_on)
    return state._replace(iterates=iterates), averages, seen


def _known(system: System, view: View) -> Known:
    """What a rate may know of the weights."""
    share, m = system.groups.share, system.problem.width
    norm = jnp.einsum("g,gab->ab", share, view.norm)
    overlap = jnp.einsum("g,gab->ab", share, _starred(system, view.along))[:, : system.problem.read]
    began = system.groups.root[:, :m]
    apart = view.norm - 2 * jnp.einsum("gac,gbc->gab", view.along, began) + jnp.einsum("gac,gbc->gab", began, began)
    return Known(norm, overlap, jnp.einsum("g,gaa->", share, apart))


def recorded(system: System) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
    """Return shapes and types of what a step records, by name; known without tracing it."""
    (g, m, k, M), n, double = system.shape, system.memory.size, jnp.float64
    averaged = observables.on_samples(system.problem) | dict(system.metrics)
    scalars = [part for name in averaged for part in (f"train_{name}", CONTROL.format(name))]
    if "error" in averaged and observables.error_kind(system.problem) == "zero-one":
        scalars.append(SOFT)
    scalars += [name for name, _ in system.weight_metrics]
    out: dict[str, tuple[tuple[int, ...], DTypeLike]] = {name: ((), double) for name in scalars}
    out |= {name: ((m, m), double) for name in ("norm", "fresh_norm")}
    read = system.problem.read
    out |= {"overlap": ((m, read), double), "fresh_overlap": ((m, k), double)}
    out |= {"mean_overlap": ((m, k - read), double)} if k > read else {}
    out |= {name: (jnp.asarray(part.start).shape, double) for name, part in trained.trained_of(system.problem).items()}
    out |= {"intercept": ((m,), double)} if system.problem.bias else {}
    if g > 1:
        out |= {"norm_by_group": ((g, m, m), double), "overlap_by_group": ((g, m, read), double)}
    of_weights = {name for name, _ in system.weight_metrics}
    out |= {f"{average}{OF}{name}": out[name] for average in system.averages for name in out if name not in of_weights}
    if system.kernels:
        out |= {
            "Gamma": ((m, m), double),
            "response": ((n, m, m), double),
            "equal": ((m, m), double),
            "own": ((g, n, m, m), double),
        }
        out |= {"rest": ((g, m, M), system.dtype), "along": ((g, m, m + k), double)}
    return out


@jax.jit
def begin(system: System, start: Start) -> State:
    """Return the states of all replicas before step 0, side by side."""
    return jax.vmap(partial(init, system))(start)


@partial(jax.jit, donate_argnames="state", compiler_options=OPTIONS)
def advance(system: System, start: Start, state: State, xs: Step, count: Scalar) -> tuple[State, dict[str, Array]]:
    """Return the states after the first `count` steps of a chunk, and records (replicas, steps of a chunk, …)."""
    every = jax.vmap(partial(step, system), in_axes=(0, 0, None))
    room = (len(start.z), len(xs.t))
    empty = {name: jnp.zeros((*room, *shape), dtype) for name, (shape, dtype) in recorded(system).items()}

    def one(i: Array, carry: tuple[State, dict[str, Array]]) -> tuple[State, dict[str, Array]]:
        state, records = carry
        state, seen = every(start, state, jax.tree.map(lambda part: part[i], xs))
        return state, {name: records[name].at[:, i].set(part) for name, part in seen.items()}  # as declared

    return jax.lax.fori_loop(0, count, one, (state, empty))


@jax.jit
def look(system: System, start: Start, state: State, x: Step) -> dict[str, Array]:
    """Return draws of θ, θ*, r, r* and z at step i of all replicas side by side, (replicas, g, units, L·M) and
    (replicas, units, M) or (replicas, L, units, M); the states are not moved."""

    def one(start: Start, state: State) -> dict[str, Array]:
        view = system.weights.view(system, x, start, state.weights, state.forces)
        theta, theta_star = system.weights.draw(system, start, state.weights, view)
        r = as_read(system.problem, _samples(system, start, state, view)[0])
        return {"theta": theta, "theta_star": theta_star, "r": r, "r_star": start.r_star, "z": start.z}

    return jax.vmap(one)(start, state)


def trace(system: System, start: Start, xs: Step) -> dict[str, Array]:
    """Return the records of the march of one replica over all steps, as one function of its arguments."""
    return jax.lax.scan(lambda state, x: step(system, start, state, x), init(system, start), xs)[1]


def curves(
    problem: Problem,
    algorithm: Algorithm,
    times: ArrayLike,
    *,
    key: Key,
    samples: int = 2048,
    linear: bool = True,
    dtype: str = "float64",
) -> dict[str, Array]:
    """Return one replica of `solve` on the grid `times` (from 0): training averages, `norm` and `overlap`, by name.

    δ, τ, λ, the schedule and `key` may be traced; the laws of teacher and start must be numbers. `linear=False` for a
    penalty that is not quadratic. Nothing is checked, nothing extrapolated; `samples` is a power of two. Call it inside
    `jax.enable_x64(True)`. Derivatives with respect to δ and τ exist for `SGF` and `GradientFlow`, whose increments are
    smooth.
    """
    grid = np.asarray(times, dtype=np.float64)
    factors = ALTERNATING if algorithm.discrete else ()
    kept = Moments(ladder(grid[-1], float(np.min(np.diff(grid)))), factors)
    system = assemble(problem, algorithm, samples, kept, linear=linear, dtype=dtype)
    level = planning.level(grid, 1, kept, dtype, algorithm.discrete)
    records = trace(system, _start(system, key), jax.tree.map(jnp.asarray, level.steps))
    return {name: part for name, part in records.items() if name.isidentifier() and name not in INTERNAL}


def _start(system: System, key: Key) -> Start:
    """What `noise.draw` draws on the host, with jax's own random numbers."""
    problem, (g, m, k, M) = system.problem, system.shape
    z_key, normal_key, sign_key, weight_key, own = jax.random.split(key, 5)
    size, inner = problem.rows * (m + k + system.groups.unseen.shape[1]), noise.rows_within(system.groups)
    raw = jax.random.normal(normal_key, (size, system.samples), jnp.float64)
    z = problem.sample_noise(z_key, system.samples).astype(jnp.float64)
    basis, z = noise.orthonormal_basis(problem, raw, z, jnp)
    parts = (
        basis,
        z,
        noise.read_teacher(problem, system.groups, basis, jnp),
        jnp.stack([noise.coordinates(problem, one, M, jnp) for one in jax.random.split(weight_key, g)]),
        jax.random.rademacher(sign_key, (noise.ROLES, g + noise.ROUNDS, M), jnp.float64),
        jax.random.rademacher(jax.random.fold_in(sign_key, 1), (inner, M), jnp.float64),
    )
    return Start(*(part.astype(system.dtype) for part in parts), key=own)
