"""What must hold before a march begins: steps, samples, and derivatives that exist."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _machine as machine
from .._linalg import root_of
from ..algorithms import Algorithm
from ..errors import flag, reject
from ..problem import Problem, fields
from .system import System

FEWEST_DRAWS = 64
"""Draws of samples, over the whole march of a replica, below which SGD's own noise is not seen."""
LINES = 64
"""Random lines along which forces are searched for jumps."""
CELLS = 256
REACHES = (0.05, 1.0, 8.0, 64.0)
"""A line runs this far to both sides: jumps may hide at any scale."""
BISECTIONS = 45
COUNT = 1024
"""Samples whose slopes at the start are looked at."""


def _jump(fn: Any, start: Any) -> tuple[Any, Any]:
    """Largest jump of fn along a line through `start` in each unit's direction, and where it is.

    The cell where fn changes most beyond the integral of its derivative is bisected down to rounding: the change
    across a cell of no width is a jump, whatever the slopes.
    """

    def along(a: Any, reach: Any) -> tuple[Any, Any]:
        direction = jnp.eye(start.shape[0])[a]

        def value(x: Any) -> Any:
            return fn(start + x * direction)

        edges = jnp.linspace(-reach, reach, CELLS + 1)
        f = jax.vmap(value)(edges)
        slope = jax.vmap(jax.jacfwd(value))(edges)
        gap = jnp.max(jnp.abs(jnp.diff(f, axis=0) - (slope[1:] + slope[:-1]) * (reach / CELLS)), axis=1)
        cell = jnp.argmax(gap)

        def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = ends
            middle = (low + high) / 2
            left = jnp.max(jnp.abs(value(middle) - value(low))) > jnp.max(jnp.abs(value(high) - value(middle)))
            return jnp.where(left, low, middle), jnp.where(left, middle, high)

        low, high = jax.lax.fori_loop(0, BISECTIONS, halve, (edges[cell], edges[cell + 1]))
        size = jnp.max(jnp.abs(value(high) - value(low))) / (1e-30 + jnp.max(jnp.abs(f)))
        return size, (start + high * direction)[a]

    every = jax.vmap(jax.vmap(along, in_axes=(None, 0)), in_axes=(0, None))
    sizes, places = every(jnp.arange(start.shape[0]), jnp.asarray(REACHES))
    worst = jnp.argmax(sizes)
    return jnp.ravel(sizes)[worst], jnp.ravel(places)[worst]


@jax.jit
def _jumps(problem: Problem, w: Any, z: Any, t: Any) -> tuple[Any, Any]:
    """Relative jumps of ℓ and h at time t, and their places."""
    m = problem.width
    force = jax.vmap(lambda a, b, c: _jump(lambda v: fields.force(problem, t, v, b, c), a))
    drift = jax.vmap(lambda a: _jump(lambda v: fields.drift(problem, t, v), a))
    # off the lattice of round numbers, where a kink would fall on the edge of a cell
    return force(w[:, :m] + 1e-3, w[:, m:], z), drift(w[:, :m] + 1e-3)


@jax.jit
def _slopes(problem: Problem, w: Any, z: Any, times: Any) -> tuple[Any, Any]:
    """∇ℓ and ∇h of samples at the start, (times, m, m, samples)."""
    m = problem.width

    def at(t: Any) -> tuple[Any, Any]:
        slopes = jax.vmap(lambda a, b, c: fields.force_r(problem, t, a, b, c), out_axes=-1)(w[:, :m], w[:, m:], z)
        stiff = jax.vmap(lambda v: fields.drift_theta(problem, t, v), out_axes=-1)(w[:, :m])
        return slopes, stiff

    return jax.lax.map(at, times)


class Pace(NamedTuple):
    """How fast the data can pull at the start."""

    limit: float
    """Largest stable Euler step: 2 over the largest curvature of the training loss."""
    slopes: tuple[np.ndarray, np.ndarray]
    """E∇ℓ and E∇h, (m, m)."""


def edge(curvatures: np.ndarray, sample_ratio: float) -> float:
    """Largest eigenvalue of (1/n) Σ_s J_s u_s u_sᵀ, u standard normal, J the curvatures of the samples.

    The edge of its limit law, min over x in (0, δ/J_max) of 1/x + E[J/(1 − Jx/δ)]: a single sample of curvature J pulls
    with J/δ, all together with (1 + δ^−½)² E J where they are alike.
    """
    J = np.abs(curvatures[np.isfinite(curvatures)])
    top = float(np.max(J, initial=0.0))
    if top == 0.0:
        return 0.0
    x = sample_ratio / top * np.linspace(0.02, 0.98, 97)
    return float(np.min(1 / x + np.mean(J / (1 - J * x[:, None] / sample_ratio), axis=1)))


def look(problem: Problem, algorithm: Algorithm, t_max: float) -> Pace:
    """Refuse a force or a penalty whose gradient jumps, and measure the curvature at the start, schedule included."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((COUNT, problem.width + problem.k)) @ root_of(problem.gram())
    z = np.asarray(problem.noise_law.spread_out(rng.random((COUNT, 2)), jax.random.key(0)), dtype=np.float64)
    with jax.enable_x64(True):
        if not (problem.loss.smooth and problem.penalty.smooth):
            for t in (0.0, t_max / 2, t_max):  # a field of time may begin without its jump
                _refuse_jumps(*_jumps(problem, w[:LINES], z[:LINES], t))
        slopes, stiff = (np.asarray(part) for part in _slopes(problem, w, z, np.linspace(0.0, t_max, 9)))
    symmetric = (slopes + slopes.swapaxes(1, 2)) / 2
    size = np.max(np.abs(np.linalg.eigvalsh(np.moveaxis(np.nan_to_num(symmetric), -1, 1))), axis=-1)
    pace = max(edge(here, float(problem.sample_ratio)) for here in size)
    return Pace(2 / pace if pace > 0 else np.inf, (slopes[0].mean(axis=-1), stiff[0].mean(axis=-1)))


def _refuse_jumps(force: Any, drift: Any) -> None:
    for argument, (sizes, places), remedy in (
        ("loss", force, "smooth the loss there (sl.SmoothHinge, sl.Huber, a softplus)"),
        ("penalty", drift, "smooth the penalty there (sl.SmoothL1)"),
    ):
        sizes = np.nan_to_num(np.asarray(sizes), nan=np.inf)  # a derivative that is not a number is no derivative
        if np.max(sizes) > 1e-6:
            where = float(np.asarray(places)[np.argmax(sizes)])
            why = f"the theory needs its derivative, which autodiff would take for zero; {remedy}"
            raise reject(argument, f"a gradient that jumps, near {where:.4g}", why)


def check_step(algorithm: Algorithm, times: np.ndarray, limit: float) -> None:
    """Refuse steps at which Euler is unstable, or would be at twice their size: then their error could not be told.

    Algorithms in discrete time have no such limit: their step is real.
    """
    largest = float(np.max(np.diff(times)))
    if not algorithm.discrete and 2 * largest > limit:
        why = f"explicit Euler is unstable above {limit:.3g} here, and the error is told from steps twice as large"
        why += f"; take dt ≤ {limit / 8:.2g}, or leave it out"
        raise reject("dt", f"{largest:.4g}", why)


WORDS = {"response": ("exact", "paper"), "method": ("march", "fixed-point"), "memory": ("auto", "moments", "dense")}


def check_choices(
    problem: Problem, algorithm: Algorithm, extrapolate: Any, kernels: Any, words: dict[str, Any]
) -> None:
    """Refuse combinations that have no meaning."""
    flag("kernels", kernels)
    if problem.infinite_data:
        raise reject("sample_ratio", "inf", "this theory is for finite δ; with infinite data use sl.online")
    for argument, allowed in (WORDS | {"dtype": ("float32", "float64")}).items():
        if not isinstance(words[argument], str) or words[argument] not in allowed:
            raise reject(argument, repr(words[argument]), f"it must be {' or '.join(map(repr, allowed))}")
    if words["response"] == "paper" and not (algorithm.gaussian or algorithm.noise_temperature == 0):
        name = type(algorithm).__name__
        raise reject("response", "paper", f"the paper's processes need Gaussian increments, not {name}; use 'exact'")
    if words["response"] == "paper" and words["memory"] == "moments":
        raise reject("memory", "moments", "the paper's processes keep the whole past; use memory='dense'")
    if extrapolate is not None and flag("extrapolate", extrapolate) and algorithm.discrete:
        raise reject("extrapolate", True, f"the step of {type(algorithm).__name__} is real; leave extrapolate out")


def check_memory(system: System, replicas: int, max_bytes: float) -> None:
    """Refuse a march that does not fit."""
    total, there = bytes_of(system, replicas), min(max_bytes, machine.memory())
    if total > there:
        why = f"{total / 2**30:.3g} GiB would be needed, of which {there / 2**30:.3g} are there"
        raise reject("samples", system.samples, f"{why}; take fewer samples, or fewer steps with memory='dense'")


def fits(system: System, replicas: int, max_bytes: float) -> bool:
    """Whether so many replicas of a march fit."""
    return bytes_of(system, replicas) <= min(max_bytes, machine.memory())


def bytes_of(system: System, replicas: int) -> float:
    """What a march holds at most: its state, the next one, and products on the way."""
    from . import march
    from .system import Start

    start = Start(
        *(jax.ShapeDtypeStruct(shape, system.dtype) for shape in _start_shapes(system)), key=jax.random.key(0)
    )
    shapes = jax.eval_shape(lambda own: march.init(system, own), start)
    return 3.0 * replicas * sum(part.size * part.dtype.itemsize for part in jax.tree.leaves(shapes))


def _start_shapes(system: System) -> list[tuple[int, ...]]:
    g, m, k, M = system.shape
    return [(g * (m + k) + 2, M), (M,), (k, M), (g, m + k, M), (3, g, 3, M)]


def check_draws(algorithm: Algorithm, problem: Problem, per_replica: int, times: np.ndarray) -> None:
    """Refuse a law whose samples are hardly ever drawn: its noise would be missed, and no spread would tell."""
    if not algorithm.jumps or algorithm.noise_temperature == 0:
        return
    t_max, tau = float(times[-1]), float(algorithm.noise_temperature)
    draws = per_replica * t_max / (tau * problem.sample_ratio)
    if algorithm.scheduled:  # ∫dt/τ(t) in place of t_max/τ
        draws *= np.diff(times) @ np.asarray(jax.vmap(algorithm.portion)(times[:-1])) / t_max
    if draws < FEWEST_DRAWS:
        name = type(algorithm).__name__
        why = f"up to t = {t_max:g} only {draws:.2g} samples of a replica would be drawn (rate 1/τδ)"
        raise reject("samples", per_replica, f"{why}; take more samples, or sl.SGF in place of {name}")
