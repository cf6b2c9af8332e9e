"""What must hold before a march begins: steps, samples, and derivatives that exist."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _machine as machine
from .._together import shapes_of
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..errors import flag, reject
from ..limits.curvature import curvature, moving_of, start_samples
from ..limits.flow import heat_of
from ..problem import Problem, fields
from ..problem.schedules import Course, course
from ..results.checkpoint import Checkpoint
from .noise import ROLES, ROUNDS, rows_within
from .planning import STRIDES
from .system import System

FEWEST_DRAWS = 64
"""Draws of samples, over the whole march of a replica, below which SGD's own noise is not seen."""
LINES = 64
"""Random lines along which forces are searched for jumps."""
CELLS = 256
NEAR, FAR = 0.05, 64.0
"""Lines run this far to both sides, in units of what pre-activations and labels reach: jumps may hide at any scale."""
LENGTHS = 6
"""Lengths of lines between the two."""
BISECTIONS = 45
PART = 2 * STRIDES
"""The largest step that is taken unasked is this part of `Pace.limit`: its coarsest grid stays within half of it."""


def _jump(fn: Any, start: Any, reaches: Any) -> tuple[Any, Any]:
    """Largest jump of fn along lines through `start` in each unit's direction, and where it is.

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
    sizes, places = every(jnp.arange(start.shape[0]), reaches)
    worst = jnp.argmax(sizes)
    return jnp.ravel(sizes)[worst], jnp.ravel(places)[worst]


@jax.jit
def _jumps(problem: Problem, w: Any, z: Any, t: Any) -> tuple[Any, Any]:
    """Relative jumps of ℓ and h at time t, and their places."""
    m = problem.width
    y = jax.vmap(lambda b, c: fields.label(problem, b, c))(w[:, m:], z)
    size = jnp.maximum(jnp.max(jnp.abs(w)), jnp.max(jnp.abs(jnp.nan_to_num(y))))
    ends = jnp.log(NEAR * jnp.minimum(size, 1.0) + 1e-9), jnp.log(FAR * jnp.maximum(size, 1.0))
    reaches = jnp.exp(jnp.linspace(*ends, LENGTHS))
    force = jax.vmap(lambda a, b, c: _jump(lambda v: fields.force(problem, t, v, b, c), a, reaches))
    drift = jax.vmap(lambda a: _jump(lambda v: fields.drift(problem, t, v), a, reaches))
    # off the lattice of round numbers, where a kink would fall on the edge of a cell
    return force(w[:, :m] + 1e-3, w[:, m:], z), drift(w[:, :m] + 1e-3)


class Pace(NamedTuple):
    """How fast the data can pull at the start."""

    limit: float
    """Largest stable Euler step, 2 over the largest curvature of the training loss at all times."""
    slopes: tuple[np.ndarray, np.ndarray]
    """E∇ℓ and E∇h, (m, m)."""
    moving: tuple[Course, ...] = ()
    """What changes in time and must be resolved: nothing for an algorithm whose step is real."""


def look(problem: Problem, algorithm: Algorithm, t_max: float) -> Pace:
    """Refuse a force or a penalty whose gradient jumps, and measure the curvature at the start, schedule included."""
    check_share(algorithm, np.array([t_max]))
    w, z = start_samples(problem)
    with jax.enable_x64(True):
        if not (problem.loss.smooth and problem.penalty.smooth):
            for t in (0.0, t_max / 2, t_max):  # a field of time may begin without its jump
                _refuse_jumps(*_jumps(problem, w[:LINES], z[:LINES], t))
    found = curvature(problem, t_max, w, z)
    limit = 2 / found.data if found.data > 0 else np.inf
    moving = [] if algorithm.discrete else [*moving_of(problem), *heat_of(algorithm)]
    return Pace(limit, found.slopes, tuple(course(*item, t_max).thinned() for item in moving))


def refuse_kinks(problem: Problem, t_max: float, name: str, arguments: tuple[str, ...] = ("loss",)) -> None:
    """Refuse forces that jump, for a reference that takes their derivatives: autodiff would call them zero."""
    if all(getattr(problem, argument).smooth for argument in arguments):
        return
    w, z = start_samples(problem)
    remedies = dict.fromkeys(arguments, "use sl.solve, which takes none")
    with jax.enable_x64(True):
        for t in (0.0, t_max / 2, t_max):
            _refuse_jumps(*_jumps(problem, w[:LINES], z[:LINES], t), who=name, remedies=remedies)


REMEDIES = {
    "loss": "smooth the loss there (sl.SmoothHinge, sl.Huber, a softplus)",
    "penalty": "smooth the penalty there (sl.SmoothL1)",
}


def _refuse_jumps(force: Any, drift: Any, who: str = "the theory", remedies: dict[str, str] = REMEDIES) -> None:
    for argument, (sizes, places) in (("loss", force), ("penalty", drift)):
        if argument not in remedies:
            continue
        sizes = np.nan_to_num(np.asarray(sizes), nan=np.inf)  # a derivative that is not a number is no derivative
        if np.max(sizes) > 1e-6:
            where = float(np.asarray(places)[np.argmax(sizes)])
            why = f"{who} needs its derivative, which autodiff would take for zero; {remedies[argument]}"
            raise reject(argument, f"a gradient that jumps, near {where:.4g}", why)


def check_step(algorithm: Algorithm, times: np.ndarray, limit: float) -> None:
    """Refuse steps at which Euler is unstable, or would be at twice their size: then their error could not be told.

    Algorithms in discrete time have no such limit: their step is real.
    """
    largest = float(np.max(np.diff(times)))
    if not algorithm.discrete and 2 * largest > limit:
        why = f"explicit Euler is unstable above {limit:.3g}, and errors need 2 dt"
        why += f"; take dt ≤ {limit / PART:.2g}, or leave it out"
        raise reject("dt", f"{largest:.4g}", why)


def check_choices(problem: Problem, algorithm: Algorithm, extrapolate: Any, kernels: Any) -> None:
    """Refuse what is no problem or algorithm, and combinations that have no meaning."""
    require(problem, algorithm)
    flag("kernels", kernels)
    if problem.infinite_data:
        raise reject("sample_ratio", "inf", "this theory is for finite δ; with infinite data use sl.online")
    if extrapolate is not None and flag("extrapolate", extrapolate) and algorithm.discrete:
        raise reject("extrapolate", True, f"the step of {type(algorithm).__name__} is real; leave extrapolate out")


def check_rotated(problem: Problem, linear: bool, draws: bool) -> None:
    """Refuse what acts on weights one by one where the groups are of other directions than theirs."""
    name = type(problem.data).__name__
    if problem.data.rotated and not linear:
        why = f"with data={name} the theory knows weights along other directions than their own; use sl.Ridge"
        raise reject("penalty", type(problem.penalty).__name__, why)
    if problem.data.rotated and draws:
        why = f"with data={name} weights are known along other directions than their own; leave them out"
        raise reject("snapshots, weight_metrics", "draws of weights", why)


class Room(NamedTuple):
    """Bytes that marches may take: `max_bytes`, or less where the machine has less."""

    begun: float
    """When the solution was begun. They decide how many samples and replicas go together, which its numbers depend on:
    one that is carried on elsewhere keeps them."""
    now: float
    """Here."""


def room_for(max_bytes: float, kept: Checkpoint) -> Room:
    """What is here, and what was there when the work of a checkpoint was begun."""
    now = min(max_bytes, machine.memory())
    return Room(kept.begun_with("max_bytes", now), now)


def check_memory(system: System, replicas: int, room: Room) -> None:
    """Refuse so many replicas at a time where they do not fit."""
    total = bytes_of(system, replicas)
    if not (why := machine.lack(total, room.now)):
        return
    if total <= room.begun:
        why += f": the work in the checkpoint was begun with {room.begun:.4g} bytes, and smaller pieces would change it"
        raise reject("max_bytes", f"{room.now:.4g}", f"{why}; go on with as many, or name a new checkpoint")
    raise reject("samples", system.samples, f"{why}; take fewer samples, or, where the whole past is kept, fewer steps")


def fitting(system: System, wanted: int, room: Room) -> int:
    """As many samples of one march as are wanted and fit, halved; no fewer than it has."""
    while wanted > system.samples and bytes_of(replace(system, samples=wanted), 1) > room.begun:
        wanted //= 2
    return wanted


def at_once(system: System, replicas: int, wanted: int, room: Room) -> int:
    """Of all replicas, as many in one call as are wanted and fit: one at least, in equal parts."""
    while wanted > 1 and (replicas % wanted or bytes_of(system, wanted) > room.begun):
        wanted -= 1
    return wanted


def bytes_of(system: System, replicas: int) -> float:
    """What a march holds at most: its state, the next one, and products on the way."""
    shape = shapes_of(system)
    if shape not in _STATES:
        _STATES[shape] = _state_bytes(system)
    return 3.0 * replicas * _STATES[shape]


_STATES: dict[Any, float] = {}
"""Bytes of the state of one replica, by the shapes of its system."""


def _state_bytes(system: System) -> float:
    from . import march
    from .system import Start

    start = Start(
        *(jax.ShapeDtypeStruct(shape, system.dtype) for shape in _start_shapes(system)), key=jax.random.key(0)
    )
    shapes = jax.eval_shape(lambda own: march.init(system, own), start)
    further, size = system.shape[0] - 1, jnp.dtype(system.dtype).itemsize
    on_the_way = further * (system.problem.width + ROLES) * system.samples * size  # vectors and signs of each group
    return float(sum(part.size * part.dtype.itemsize for part in jax.tree.leaves(shapes))) + on_the_way


def _start_shapes(system: System) -> list[tuple[int, ...]]:
    g, m, k, M = system.shape
    size = m + k + system.groups.unseen.shape[1] + 2
    return [(size, M), (M,), (k, M), (g, m + k, M), (ROLES, g + ROUNDS, M), (rows_within(system.groups), M)]


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
