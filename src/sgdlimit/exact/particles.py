"""The law of θ with infinite data (`eq:dmft_infinite_data_planted`) where the penalty is not quadratic: particles."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import match, root
from ..algorithms import Algorithm
from ..errors import reject
from ..measure.averages import PER_REPLICA, Array, Nodes
from ..measure.pace import moving_of
from ..problem import Problem, fields
from ..problem.mixture import place
from ..problem.schedules import factors
from ..progress import Progress
from .infinite import MomentPath, WeightMoments, start_of
from .stability import BOUND
from .training import (
    INTERCEPT,
    VELOCITY,
    WEIGHTS,
    Averages,
    Beside,
    Felt,
    Known,
    begins,
    blocks,
    feel,
    flow,
    flow_beside,
)  # fmt: skip

MOST_HEUN = 10**6  # steps of particles that still take minutes
FEWEST = 64  # particles of a group at least
ADDED = 2**32 - 1  # folded into the key for noise that the step adds; no step has this number
AT_ONCE = 64  # steps of one compiled call: Ctrl-C waits no longer
State = tuple[jax.Array, Beside]  # all blocks of every particle, (particles, blocks·m), and what moves beside them


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
@partial(jax.vmap, in_axes=(None, None, None, None, None, PER_REPLICA, 0, 0, 0, None))
def _advance(
    problem: Problem, algorithm: Algorithm, averages: Averages, groups: tuple[np.ndarray, ...],
    coordinates: tuple[np.ndarray, ...], nodes: Nodes, theta_star: jax.Array, key: jax.Array, start: State, span: Span,
) -> State:  # fmt: skip
    """Stochastic Heun steps of every replica; the noise is free of θ, so weak order two where h is smooth.

    A penalty with a proximal step acts before and after, by halves (Strang), where it acts on θ itself at a pace that
    is known. groups: p and s; coordinates: s of a particle's group, and p over the particles of the group,
    (particles, 1).
    """
    how, (variance, share), names, m = algorithm.how, coordinates, blocks(algorithm, averages), problem.width
    splits, h = problem.penalty.prox is not None and how.rate is None and how.friction is None, span.h

    def drift(s: jax.Array, x: jax.Array, own: Beside) -> tuple[Array, Beside, Felt]:
        """Of all blocks, θ with −(h + s(Γθ + Γ*θ*) + …), h but for a penalty with its own proximal step."""
        theta = x[:, :m]
        Q, c = (theta.T @ (share * variance * y) for y in (theta, theta_star))
        norm, overlap = x.T @ (share * x), theta.T @ (share * theta_star)
        at = place(problem, overlap, own.shared[WEIGHTS].get(INTERCEPT))
        found = feel(problem, algorithm, nodes, s, Known(Q, c, at, norm, overlap, *groups), own)
        gamma, both, along, _, push = found.pull
        pull = variance * ((theta - theta_star @ along.T) @ gamma.T + theta_star @ both.T)
        if not splits:
            penalty = jax.vmap(lambda v: fields.drift(problem, s, v))(theta)
            pull = pull + (penalty if found.penalty is None else found.penalty * penalty)
        if push.means is not None:
            pull = pull + theta_star @ push.means.T
        if found.gain is not None:
            pull = _by_particle(found.gain, len(x)) * pull
        held = dict(zip(names, jnp.split(x, len(names), axis=1), strict=True))
        moved = flow(algorithm, averages, s, held, pull)
        if found.decay is not None:
            moved[WEIGHTS] = moved[WEIGHTS] - found.decay * theta
        slope = jnp.concatenate([moved[name] for name in names], axis=1)
        return slope, flow_beside(algorithm, averages, s, found, own), found

    def kick(normals: tuple[jax.Array, ...], s: jax.Array, *ends: Felt) -> Array:
        """The noise of all blocks: its variance is the mean of both ends, or that of the first."""
        squares = [algorithm.temperature_at(at) * one.pull.square for at, one in zip((s, s + h), ends, strict=False)]
        mean = lambda parts: parts[0] if len(parts) == 1 else (parts[0] + parts[1]) / 2  # noqa: E731
        noise = normals[0] @ root(mean(squares))
        if gains := [one.gain for one in ends if one.gain is not None]:
            noise = _by_particle(mean(gains), len(noise)) * noise
        if added := [one.noise for one in ends if one.noise is not None]:
            size = jnp.broadcast_to(jnp.sqrt(mean(added)), (len(groups[0]), m))
            noise = noise + _by_particle(size, len(noise)) * normals[1]
        if len(names) == 1:
            return noise
        first = m * names.index(VELOCITY if VELOCITY in names else WEIGHTS)
        return jnp.pad(noise, ((0, 0), (first, m * (len(names) - 1) - first)))

    def penalised(s: jax.Array, x: jax.Array) -> jax.Array:
        """The penalty alone over half a step; for |θ| its proximal step is its flow."""
        if not splits:
            return x
        half = h / 2 if how.momentum is None else h / 2 * how.boost
        theta = jax.vmap(lambda v: fields.prox(problem, s, half, v))(x[:, :m])
        return theta if len(names) == 1 else x.at[:, :m].set(theta)

    def step(i: jax.Array, carry: State) -> State:
        (x, own), s = carry, span.t + i * h

        def drawn(key: jax.Array) -> jax.Array:
            def add(j: jax.Array, total: jax.Array) -> jax.Array:
                own = jax.random.fold_in(key, span.first + i * span.stride + j)
                return total + jax.random.normal(own, total.shape) / jnp.sqrt(span.stride)

            return jax.lax.fori_loop(0, span.stride, add, jnp.zeros((len(x), m)))

        normals = (jnp.sqrt(h * variance) * drawn(key),)
        if how.noisy:
            normals += (jnp.sqrt(h) * drawn(jax.random.fold_in(key, ADDED)),)
        x = penalised(s, x)
        slope, rise, here = drift(s, x, own)
        own = own._replace(rule=here.settled or own.rule)
        guess = x + h * slope + kick(normals, s, here)
        slope_, rise_, there = drift(s + h, guess, jax.tree.map(lambda v, k: v + h * k, own, rise))
        x = x + h / 2 * (slope + slope_) + kick(normals, s, here, there)
        return penalised(s + h, x), jax.tree.map(lambda v, k, k_: v + h / 2 * (k + k_), own, rise, rise_)

    return jax.lax.fori_loop(0, span.steps, step, start)


def _by_particle(values: Array, particles: int) -> Array:
    """(g, m) numbers of every group, for each of its particles."""
    return jnp.repeat(values, particles // len(values), axis=0)


def march_particles(
    problem: Problem, algorithm: Algorithm, averages: Averages, nodes: Nodes, t: np.ndarray, knots: np.ndarray,
    particles: int, dt: float, seed: int, bar: Progress,
) -> list[MomentPath]:  # fmt: skip
    """Second moments of every replica and what moves beside them, at the times reached before the norm passes BOUND.

    Twice: with steps of at most dt, and with steps twice as large and the same noise. There are `particles` in all, as
    many in each group of coordinates.
    """
    m, gram, table, replicas = problem.width, jnp.asarray(problem.gram()), problem.data.table(), len(nodes.z)
    fastest = float(algorithm.how.boost * table.variance.max())
    cuts, pairs = _stops(problem, t, dt / max(1.0, fastest), knots)
    groups = len(table.share)
    each = max(particles // groups, FEWEST)
    coordinates = tuple(np.repeat(part, each)[:, None] for part in (table.variance, table.share / each))

    def draw(key: jax.Array) -> jax.Array:
        """(θ⁰, θ*) of all particles, with exact second moments in every group."""
        own = [match(jnp.asarray(problem.spread_weights(one, each)), gram) for one in jax.random.split(key, groups)]
        return jnp.concatenate([one.at[:, m:].multiply(by) for one, by in zip(own, table.factor, strict=True)])

    weight_keys, path_keys = (jax.random.split(key, replicas) for key in jax.random.split(jax.random.key(seed)))
    both = jnp.stack([draw(key) for key in weight_keys])
    theta_star = both[..., m:]

    def seen(state: State) -> WeightMoments:
        x, y = (part.reshape(replicas, groups, each, -1) for part in (state[0], theta_star))
        norm, overlap = (jnp.einsum("...na,...nb->...ab", x, other) / each for other in (x, y))
        return WeightMoments(norm, overlap, state[1])

    def path(stride: int) -> MomentPath:
        begun = [one * both[..., :m] for one in begins(algorithm, averages)]
        alike = jax.tree.map(jnp.asarray, start_of(problem, algorithm, averages, replicas).beside)
        state: State = jnp.concatenate(begun, axis=-1), alike
        found, first = [seen(state)] if t[0] == 0 else [], 0
        for begin, end, pair in zip(cuts[:-1], cuts[1:], pairs, strict=True):
            steps = 2 * pair // stride
            h = (end - begin) / steps
            for done in range(0, steps, AT_ONCE):
                span = Span(begin + done * h, h, first + done * stride, min(AT_ONCE, steps - done), stride)
                state = _advance(
                    problem, algorithm, averages, table[:2], coordinates, nodes, theta_star, path_keys, state, span
                )
                state[0].block_until_ready()
                bar.phase("")
                bar.advance(span.steps * h / t[-1] / 1.5 / stride)
            first += steps * stride
            now = seen(state)
            if not bool(jnp.all(jnp.isfinite(now.norm)) & (jnp.max(now.norm) < BOUND)):
                break
            found += [now] if end in t else []
        none = jax.tree.map(lambda part: part[None][:0], seen(state))
        return MomentPath(jax.tree.map(lambda *parts: jnp.stack(parts), *found) if found else none)

    return [path(1), path(2)]


def _stops(problem: Problem, t: np.ndarray, dt: float, knots: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Times at which to stop, and pairs of steps between them, of at most dt, or dt/s where the schedule is above 1.

    A field of time is taken to be at 1 where it has its median size.
    """
    if t[-1] > MOST_HEUN * dt:
        why = f"more than {MOST_HEUN} steps up to t = {t[-1]:g}; lower t_max, or raise dt"
        raise reject("dt", f"{dt:.3g}", why)
    cuts = np.unique(np.concatenate([[0.0], t, knots[knots < t[-1]]]))
    fastest = np.ones(len(cuts))
    for name, part in moving_of(problem):
        usual = 1.0 if name == "schedule" else np.median(np.abs(factors(name, part, np.linspace(0.0, t[-1], 1025))))
        fastest = np.maximum(fastest, np.abs(factors(name, part, cuts)) / max(usual, 1e-300))
    need = np.diff(cuts) * np.maximum(fastest[1:], fastest[:-1]) / dt
    if np.sum(need) > MOST_HEUN:
        raise reject("schedule", f"factors up to {fastest.max():.3g}", f"that is {np.sum(need):.2g} steps; lower t_max")
    return cuts, [max(1, math.ceil(n / 2 - 1e-9)) for n in need]
