"""The causal march: `init`, then `step` for i = 0, 1, …: every step needs only what came before it.

Pure functions of one replica; the state does not grow. `advance` carries all replicas over a number of steps in one
compiled call; `trace` is the whole march as one function, to be differentiated (forward) or vmapped.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from .._types import Array, Scalar, Tree
from ..problem import observables
from ..problem.mixture import moved, place
from ..results.metrics import CONTROL, SOFT
from . import data_side
from .data_side import DataState
from .system import Start, Step, System
from .weight_side import View

CHUNK = 250
"""Steps in one compiled call; progress, Ctrl-C and divergence are seen between calls."""
OPTIONS: dict[str, bool | int | str] = {"xla_gpu_autotune_level": 0}
"""Products here are small: trying algorithms for each of them takes seconds and gains nothing."""
if jax.__version_info__[:2] == (0, 10):
    # this compiler's library for CPUs takes sums over few units for products, at several times the price
    OPTIONS["xla_cpu_experimental_ynn_fusion_type"] = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"


class State(NamedTuple):
    """One replica after some steps."""

    data: DataState
    weights: Tree
    """Of the weight side, whose own it is."""
    intercept: Array | None = None
    """β, (m,), where the student has one."""


def init(system: System, start: Start) -> State:
    """Return the state of one replica before step 0."""
    intercept = jnp.zeros(system.problem.width, jnp.float64) if system.problem.bias else None
    return State(data_side.init(system, start), system.weights.init(system, start), intercept)


def _star(system: System, view: View) -> Array:
    """C_θ^q(i, *), (g, m, k)."""
    return jnp.einsum("gab,gcb->gac", view.along, system.groups.root[:, system.problem.width :])


def _shift(system: System, start: Start, state: State, view: View) -> Array:
    """What moves the class of every sample: b_c + β, (m, M)."""
    overlap = jnp.einsum("g,gab->ab", system.groups.share, _star(system, view))
    return moved(system.problem, place(system.problem, overlap, state.intercept), start.z, jnp.zeros_like(view.w))


def step(system: System, start: Start, state: State, x: Step) -> tuple[State, dict[str, Array]]:
    """Return the state after step i of data and weights, and what is recorded of it."""
    groups = system.groups
    view = system.weights.view(system, x, start, state.weights, state.data.forces)
    moves = _shift(system, start, state, view)
    data, averages, seen = data_side.step(system, x, start, state.data, view.rho, view.w, moves, view.f)
    weights = system.weights.advance(system, x, start, state.weights, view, averages)
    intercept, star = state.intercept, _star(system, view)
    if intercept is not None:
        seen["intercept"] = intercept
        assert averages.push.level is not None
        intercept = intercept - x.dt * averages.push.level
    weight = groups.share * groups.tested
    seen |= {
        "norm": jnp.einsum("g,gab->ab", groups.share, view.norm),
        "overlap": jnp.einsum("g,gab->ab", groups.share, star),
        "fresh_norm": jnp.einsum("g,gab->ab", weight, view.norm),
        "fresh_overlap": jnp.einsum("g,gab->ab", weight, star),
    }
    if len(groups.share) > 1:
        seen |= {"norm_by_group": view.norm, "overlap_by_group": star}
    if system.weight_metrics:
        theta, theta_star = system.weights.draw(system, start, state.weights, view)
        for name, fn in system.weight_metrics:
            each = jax.vmap(jax.vmap(fn, in_axes=(-1, -1)))(theta, theta_star)
            seen[name] = jnp.dot(groups.share, jnp.mean(each, axis=-1).astype(jnp.float64))
    if system.kernels:
        seen |= {"own": view.own, "rest": view.rest, "along": view.along}
    return State(data, weights, intercept), _declared(system, seen)


def _declared(system: System, seen: dict[str, Array]) -> dict[str, Array]:
    """What a step saw, if it is what `recorded` declares: names and shapes, known when the step is traced."""
    declared = {name: shape for name, (shape, _) in recorded(system).items()}
    found = {name: jnp.shape(part) for name, part in seen.items()}
    if declared != found:
        odd = sorted(name for name in declared.keys() | found.keys() if declared.get(name) != found.get(name))
        raise TypeError(f"a step records {', '.join(odd)} otherwise than `march.recorded` declares")
    return seen


def recorded(system: System) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
    """Return shapes and types of what a step records, by name; known without tracing it."""
    (g, m, k, M), n, double = system.shape, system.memory.size, jnp.float64
    averaged = observables.on_samples(system.problem) | dict(system.metrics)
    scalars = [part for name in averaged for part in (f"train_{name}", CONTROL.format(name))]
    if "error" in averaged and observables.error_kind(system.problem) == "zero-one":
        scalars.append(SOFT)
    scalars += [name for name, _ in system.weight_metrics]
    out: dict[str, tuple[tuple[int, ...], DTypeLike]] = {name: ((), double) for name in scalars}
    out |= {name: ((m, m), double) for name in ("Gamma", "norm", "fresh_norm")}
    out |= {name: ((m, k), double) for name in ("overlap", "fresh_overlap")}
    out |= {"intercept": ((m,), double)} if system.problem.bias else {}
    if g > 1:
        out |= {"norm_by_group": ((g, m, m), double), "overlap_by_group": ((g, m, k), double)}
    if system.kernels:
        out |= {"response": ((n, m, m), double), "equal": ((m, m), double), "own": ((g, n, m, m), double)}
        out |= {"rest": ((g, m, M), system.dtype), "along": ((g, m, m + k), double)}
    return out


def peek(system: System, start: Start, state: State, x: Step) -> dict[str, Array]:
    """Return draws of θ, θ*, r, r* and z at step i, (g, units, M) and (units, M); the state is not moved."""
    view = system.weights.view(system, x, start, state.weights, state.data.forces)
    theta, theta_star = system.weights.draw(system, start, state.weights, view)
    r = view.w + _shift(system, start, state, view) - view.f / jnp.asarray(system.problem.sample_ratio, system.dtype)
    return {
        "theta": theta,
        "theta_star": theta_star,
        "r": r,
        "r_star": start.r_star,
        "z": start.z,
    }


@jax.jit
def begin(system: System, start: Start) -> State:
    """Return the states of all replicas before step 0, side by side."""
    return jax.vmap(lambda own: init(system, own))(start)


@partial(jax.jit, donate_argnames="state", compiler_options=OPTIONS)
def advance(system: System, start: Start, state: State, xs: Step, count: Scalar) -> tuple[State, dict[str, Array]]:
    """Return the states after the first `count` steps of a chunk, and records (replicas, steps of a chunk, …)."""
    every = jax.vmap(lambda own, s, x: step(system, own, s, x), in_axes=(0, 0, None))

    def at(i: Array) -> Step:
        return jax.tree.map(lambda part: part[i], xs)

    room = (len(start.z), len(xs.t))
    empty = {name: jnp.zeros((*room, *shape), dtype) for name, (shape, dtype) in recorded(system).items()}

    def one(i: Array, carry: tuple[State, dict[str, Array]]) -> tuple[State, dict[str, Array]]:
        state, records = carry
        state, seen = every(start, state, at(i))
        return state, {name: part.at[:, i].set(seen[name]) for name, part in records.items()}

    return jax.lax.fori_loop(0, count, one, (state, empty))


@jax.jit
def look(system: System, start: Start, state: State, x: Step) -> dict[str, Array]:
    """Return what `peek` does, for all replicas side by side."""
    return jax.vmap(lambda own, s: peek(system, own, s, x))(start, state)


def trace(system: System, start: Start, xs: Step) -> dict[str, Array]:
    """Return the records of the march of one replica over all steps, as one function of its arguments."""
    return jax.lax.scan(lambda state, x: step(system, start, state, x), init(system, start), xs)[1]
