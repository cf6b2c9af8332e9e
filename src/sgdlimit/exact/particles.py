"""Infinite data with a nonlinear penalty: the law of θ carried by particles (`eq:dmft_infinite_data_planted`)."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import match, root
from ..algorithms import Algorithm
from ..errors import reject
from ..measure.averages import PER_REPLICA, Array, Nodes, force_moments, pull_of
from ..measure.pace import moving_of
from ..problem import Problem, fields
from ..problem.schedules import factors
from ..problem.shift import place
from ..progress import Progress
from .moments import MomentPath, WeightMoments
from .stability import BOUND

MOST_STEPS = 10**6
"""Steps that still take minutes."""
FEWEST = 64
"""Particles of a group at least."""
AT_ONCE = 64
"""Steps of one compiled call: Ctrl-C waits no longer."""


class Coordinates(NamedTuple):
    """What each particle stands for, all (particles, 1)."""

    variance: np.ndarray
    """s of its group."""
    share: np.ndarray
    """p over the particles of its group."""


class Replica(NamedTuple):
    """What a step reads and changes."""

    theta: jax.Array
    """(particles, m)."""
    level: jax.Array
    """β, (m,), or (0,) without intercept."""


class Span(NamedTuple):
    """Which steps are taken: `steps` of size h from t on, each with `stride` of the normals from `first` on.

    Steps twice as large see the same noise.
    """

    t: float
    h: float
    first: int
    steps: int
    stride: int


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, PER_REPLICA, 0, 0, 0, None))
def _advance(
    problem: Problem,
    algorithm: Algorithm,
    coordinates: Coordinates,
    nodes: Nodes,
    theta_star: jax.Array,
    key: jax.Array,
    start: Replica,
    span: Span,
) -> Replica:
    """Stochastic Heun steps of every replica; the noise is free of θ, so weak order two where h is smooth.

    A penalty with a proximal step acts before and after, by halves (Strang).
    """
    variance, share = coordinates
    splits, h = problem.penalty.prox is not None, span.h

    def drift(s: jax.Array, x: jax.Array, level: jax.Array) -> tuple[Array, Array, Array]:
        """−(h + s(Γθ + Γ*θ*) + …), h but for a penalty with its own proximal step; τ(t) C_ℓ and dβ/dt."""
        Q, c = (x.T @ (share * variance * y) for y in (x, theta_star))
        moments = force_moments(problem, nodes, s, Q, c, place(problem, x.T @ (share * theta_star), level))
        gamma, both, along = pull_of(nodes, Q, c, moments)
        pull = variance * ((x - theta_star @ along.T) @ gamma.T + theta_star @ both.T)
        if not splits:
            pull = pull + jax.vmap(lambda v: fields.drift(problem, s, v))(x)
        if moments.push.means is not None:
            pull = pull + theta_star @ moments.push.means.T
        return -pull, algorithm.temperature_at(s) * moments.square, moments.push.rise(level)

    def penalised(s: jax.Array, x: jax.Array) -> jax.Array:
        """The penalty alone over half a step; for |θ| its proximal step is its flow."""
        return jax.vmap(lambda v: fields.prox(problem, s, h / 2, v))(x) if splits else x

    def step(i: jax.Array, carry: Replica) -> Replica:
        (x, level), s = carry, span.t + i * h

        def add(j: jax.Array, total: jax.Array) -> jax.Array:
            own = jax.random.fold_in(key, span.first + i * span.stride + j)
            return total + jax.random.normal(own, x.shape) / jnp.sqrt(span.stride)

        normal = jnp.sqrt(h * variance) * jax.lax.fori_loop(0, span.stride, add, jnp.zeros(x.shape))
        x = penalised(s, x)
        slope, square, rise = drift(s, x, level)
        guess = x + h * slope + normal @ root(square)
        slope_, square_, rise_ = drift(s + h, guess, level + h * rise)
        x = x + h / 2 * (slope + slope_) + normal @ root((square + square_) / 2)
        return Replica(penalised(s + h, x), level + h / 2 * (rise + rise_))

    return jax.lax.fori_loop(0, span.steps, step, start)


def march_particles(
    problem: Problem,
    algorithm: Algorithm,
    nodes: Nodes,
    t: np.ndarray,
    replicas: int,
    particles: int,
    dt: float,
    knots: np.ndarray,
    weight_key: jax.Array,
    path_key: jax.Array,
    bar: Progress,
) -> list[MomentPath]:
    """C_θ(t,t), C_θ(t,*) and β of every replica at the times reached before the norm passes BOUND.

    Twice: with steps of at most dt, and with steps twice as large and the same noise. There are `particles` in all, as
    many in each group of coordinates.
    """
    m, gram, table = problem.width, jnp.asarray(problem.gram()), problem.data.table()
    cuts, pairs = _grid(problem, t, dt / max(1.0, float(table.variance.max())), knots)
    groups = len(table.share)
    each = max(particles // groups, FEWEST)
    coordinates = Coordinates(*(np.repeat(part, each)[:, None] for part in (table.variance, table.share / each)))

    def draw(key: jax.Array) -> jax.Array:
        """(θ⁰, θ*) of all particles, with exact second moments in every group."""
        own = [match(jnp.asarray(problem.spread_weights(one, each)), gram) for one in jax.random.split(key, groups)]
        return jnp.concatenate([one.at[:, m:].multiply(by) for one, by in zip(own, table.factor, strict=True)])

    both = jnp.stack([draw(key) for key in jax.random.split(weight_key, replicas)])
    theta_star, path_keys = both[..., m:], jax.random.split(path_key, replicas)

    def moments(x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = (part.reshape(replicas, groups, each, -1) for part in (x, y))
        return jnp.einsum("...na,...nb->...ab", x, y) / each

    def seen(state: Replica) -> WeightMoments:
        return WeightMoments(moments(state.theta, state.theta), moments(state.theta, theta_star), state.level)

    def path(stride: int) -> MomentPath:
        state = Replica(both[..., :m], jnp.zeros((replicas, m if problem.bias else 0)))
        first, found = 0, []
        for i, at in enumerate(cuts):
            if i:
                steps = 2 * pairs[i - 1] // stride
                h = (at - cuts[i - 1]) / steps
                for done in range(0, steps, AT_ONCE):
                    some = min(AT_ONCE, steps - done)
                    span = Span(cuts[i - 1] + done * h, h, first + done * stride, some, stride)
                    state = _advance(problem, algorithm, coordinates, nodes, theta_star, path_keys, state, span)
                    state.theta.block_until_ready()
                    bar.phase("")
                    bar.advance(some * h / t[-1] / 1.5 / stride)
                first += steps * stride
            now = seen(state)
            if not bool(jnp.all(jnp.isfinite(now.norm)) & (jnp.max(now.norm) < BOUND)):
                break
            if at in t:
                found.append(now)
        none = WeightMoments(*(jnp.zeros((0, *part.shape)) for part in seen(state)))
        return MomentPath(jax.tree.map(lambda *parts: jnp.stack(parts), *found) if found else none)

    return [path(1), path(2)]


def _grid(problem: Problem, t: np.ndarray, dt: float, knots: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Times at which to stop, and pairs of steps between them, of at most dt, or dt/s where the schedule is above 1.

    A field of time is taken to be at 1 where it has its median size.
    """
    if t[-1] > MOST_STEPS * dt:
        why = f"more than {MOST_STEPS} steps up to t = {t[-1]:g}; lower t_max, or raise dt"
        raise reject("dt", f"{dt:.3g}", why)
    cuts = np.unique(np.concatenate([[0.0], t, knots[knots < t[-1]]]))
    fastest = np.ones(len(cuts))
    for name, part in moving_of(problem):
        usual = 1.0 if name == "schedule" else np.median(np.abs(factors(name, part, np.linspace(0.0, t[-1], 1025))))
        fastest = np.maximum(fastest, np.abs(factors(name, part, cuts)) / max(usual, 1e-300))
    need = np.diff(cuts) * np.maximum(fastest[1:], fastest[:-1]) / dt
    if np.sum(need) > MOST_STEPS:
        raise reject("schedule", f"factors up to {fastest.max():.3g}", f"that is {np.sum(need):.2g} steps; lower t_max")
    return cuts, [max(1, math.ceil(n / 2 - 1e-9)) for n in need]
