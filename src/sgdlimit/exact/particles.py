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
from ..measure.averages import PER_REPLICA, Array, Nodes, pull_of
from ..measure.pace import moving_of
from ..problem import Problem, fields
from ..problem.schedules import factors
from ..problem.shift import place
from ..progress import Progress
from .moments import MomentPath, WeightMoments
from .stability import BOUND

MOST_STEPS = 10**6  # that still take minutes
FEWEST = 64  # particles of a group at least
AT_ONCE = 64  # steps of one compiled call: Ctrl-C waits no longer
State = tuple[jax.Array, jax.Array]
"""θ of all particles, (particles, m), and β, (m,), or (0,) without intercept."""


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
@partial(jax.vmap, in_axes=(None, None, None, None, PER_REPLICA, 0, 0, 0, None))
def _advance(
    problem: Problem,
    algorithm: Algorithm,
    variance: jax.Array,
    share: jax.Array,
    nodes: Nodes,
    theta_star: jax.Array,
    key: jax.Array,
    start: State,
    span: Span,
) -> State:
    """Stochastic Heun steps of every replica; the noise is free of θ, so weak order two where h is smooth.

    A penalty with a proximal step acts before and after, by halves (Strang). variance, share: s of a particle's group,
    and p over the particles of the group, (particles, 1).
    """
    splits, h = problem.penalty.prox is not None, span.h

    def drift(s: jax.Array, x: jax.Array, level: jax.Array) -> tuple[Array, Array, Array]:
        """−(h + s(Γθ + Γ*θ*) + …), h but for a penalty with its own proximal step; τ(t) C_ℓ and dβ/dt."""
        Q, c = (x.T @ (share * variance * y) for y in (x, theta_star))
        at = place(problem, x.T @ (share * theta_star), level)
        gamma, both, along, square, push = pull_of(problem, nodes, s, Q, c, at)
        pull = variance * ((x - theta_star @ along.T) @ gamma.T + theta_star @ both.T)
        if not splits:
            pull = pull + jax.vmap(lambda v: fields.drift(problem, s, v))(x)
        if push.means is not None:
            pull = pull + theta_star @ push.means.T
        return -pull, algorithm.temperature_at(s) * square, push.rise(level)

    def penalised(s: jax.Array, x: jax.Array) -> jax.Array:
        """The penalty alone over half a step; for |θ| its proximal step is its flow."""
        return jax.vmap(lambda v: fields.prox(problem, s, h / 2, v))(x) if splits else x

    def step(i: jax.Array, carry: State) -> State:
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
        return penalised(s + h, x), level + h / 2 * (rise + rise_)

    return jax.lax.fori_loop(0, span.steps, step, start)


def march_particles(
    problem: Problem, algorithm: Algorithm, nodes: Nodes, t: np.ndarray, knots: np.ndarray, particles: int, dt: float,
    seed: int, bar: Progress,
) -> list[MomentPath]:  # fmt: skip
    """C_θ(t,t), C_θ(t,*) and β of every replica at the times reached before the norm passes BOUND.

    Twice: with steps of at most dt, and with steps twice as large and the same noise. There are `particles` in all, as
    many in each group of coordinates.
    """
    m, gram, table, replicas = problem.width, jnp.asarray(problem.gram()), problem.data.table(), len(nodes.z)
    cuts, pairs = _grid(problem, t, dt / max(1.0, float(table.variance.max())), knots)
    groups = len(table.share)
    each = max(particles // groups, FEWEST)
    coordinates = [np.repeat(part, each)[:, None] for part in (table.variance, table.share / each)]

    def draw(key: jax.Array) -> jax.Array:
        """(θ⁰, θ*) of all particles, with exact second moments in every group."""
        own = [match(jnp.asarray(problem.spread_weights(one, each)), gram) for one in jax.random.split(key, groups)]
        return jnp.concatenate([one.at[:, m:].multiply(by) for one, by in zip(own, table.factor, strict=True)])

    weight_keys, path_keys = (jax.random.split(key, replicas) for key in jax.random.split(jax.random.key(seed)))
    both = jnp.stack([draw(key) for key in weight_keys])
    theta_star = both[..., m:]

    def seen(theta: jax.Array, level: jax.Array) -> WeightMoments:
        x, y = (part.reshape(replicas, groups, each, -1) for part in (theta, theta_star))
        norm, overlap = (jnp.einsum("...na,...nb->...ab", x, other) / each for other in (x, y))
        return WeightMoments(norm, overlap, level)

    def path(stride: int) -> MomentPath:
        state: State = both[..., :m], jnp.zeros((replicas, m if problem.bias else 0))
        found, first = [seen(*state)] if t[0] == 0 else [], 0
        for begin, end, pair in zip(cuts[:-1], cuts[1:], pairs, strict=True):
            steps = 2 * pair // stride
            h = (end - begin) / steps
            for done in range(0, steps, AT_ONCE):
                span = Span(begin + done * h, h, first + done * stride, min(AT_ONCE, steps - done), stride)
                state = _advance(problem, algorithm, *coordinates, nodes, theta_star, path_keys, state, span)
                state[0].block_until_ready()
                bar.phase("")
                bar.advance(span.steps * h / t[-1] / 1.5 / stride)
            first += steps * stride
            now = seen(*state)
            if not bool(jnp.all(jnp.isfinite(now.norm)) & (jnp.max(now.norm) < BOUND)):
                break
            found += [now] if end in t else []
        none = [part[None][:0] for part in seen(*state)]
        return MomentPath(jax.tree.map(lambda *parts: jnp.stack(parts), *found) if found else WeightMoments(*none))

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
