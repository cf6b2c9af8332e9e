"""Infinite data with a nonlinear penalty: the law of θ carried by particles (`eq:dmft_infinite_data_planted`)."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._linalg import match, root
from ..algorithms import Algorithm
from ..errors import reject
from ..problem import Problem, Table, fields
from ..problem.schedules import factors
from ..problem.shift import place
from ..progress import Progress
from .averages import PER_REPLICA, Nodes, force_moments, pull_of
from .curvature import moving_of
from .stability import BOUND

MOST_STEPS = 10**6
"""Steps that still take minutes."""
FEWEST = 64
"""Particles of a group at least."""
AT_ONCE = 64
"""Steps of one compiled call: Ctrl-C waits no longer."""


class Coordinates(NamedTuple):
    """What groups of coordinates make of each particle."""

    weight: Any
    """(particles,): p_q s_q over the particles of its group."""
    variance: Any
    """(particles,): s_q."""
    share: Any
    """(particles,): p_q over the particles of its group."""


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, None, PER_REPLICA, 0, 0, 0, None, None, None, None, None, 0))
def _advance(
    problem: Problem,
    tau: Any,
    scheduled: Algorithm | None,
    coordinates: Coordinates | None,
    nodes: Nodes,
    theta: Any,
    level: Any,
    theta_star: Any,
    t: Any,
    h: Any,
    first: Any,
    steps: Any,
    stride: Any,
    key: Any,
) -> tuple[Any, Any]:
    """`steps` stochastic Heun steps of size h of every replica; the noise is free of θ, so weak order two where h is
    smooth. A penalty with a proximal step acts before and after, by halves (Strang).

    Each takes `stride` of the normals from `first` on: steps twice as large see the same noise.
    `scheduled`: the algorithm, where its temperature changes in time. `coordinates`: None where all are alike.
    """
    m = theta.shape[1]

    def seen(x: Any, y: Any) -> Any:
        """Second moments of pre-activations, from those of weights."""
        return x.T @ y / len(x) if coordinates is None else x.T @ (coordinates.weight[:, None] * y)

    def pulled(x: Any) -> Any:
        """What acts through the data is larger where they vary more."""
        return x if coordinates is None else coordinates.variance[:, None] * x

    def heated(x: Any) -> Any:
        return x if coordinates is None else jnp.sqrt(coordinates.variance)[:, None] * x

    def overlap(x: Any) -> Any:
        """C_θ(t,*)."""
        return x.T @ theta_star / len(x) if coordinates is None else x.T @ (coordinates.share[:, None] * theta_star)

    def drift(s: Any, x: Any, level: Any) -> tuple[Any, Any, Any]:
        """−(h + Γθ + Γ*θ* + …), h but for a penalty with its own proximal step; C_ℓ τ(t)/τ and dβ/dt."""
        Q, c, at = seen(x, x), seen(x, theta_star), place(problem, overlap(x), level)
        moments = force_moments(problem, nodes, s, Q, c, at)
        square, pushed = moments.square, moments.push
        gamma, both, along = pull_of(nodes, Q, c, moments)
        pull = pulled((x - theta_star @ along.T) @ gamma.T + theta_star @ both.T)
        if not splits:
            pull = pull + jax.vmap(lambda v: fields.drift(problem, s, v))(x)
        if pushed.means is not None:
            pull = pull + theta_star @ pushed.means.T
        if scheduled is not None:
            square = square / scheduled.portion(s)
        return -pull, square, pushed.rise(level)

    splits = problem.penalty.prox is not None

    def penalised(s: Any, x: Any) -> Any:
        """The penalty alone over half a step; for |θ| its proximal step is its flow."""
        return jax.vmap(lambda v: fields.prox(problem, s, h / 2, v))(x) if splits else x

    def step(i: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        (x, level), s = carry, t + i * h

        def add(j: Any, total: Any) -> Any:
            own = jax.random.fold_in(key, first + i * stride + j)
            return total + jax.random.normal(own, (len(x), m)) / jnp.sqrt(stride)

        normal = jax.lax.fori_loop(0, stride, add, jnp.zeros((len(x), m)))
        x = penalised(s, x)
        slope, square, rise = drift(s, x, level)
        guess = x + h * slope + jnp.sqrt(tau * h) * heated(normal) @ root(square)
        slope_, square_, rise_ = drift(s + h, guess, level + h * rise)
        x = x + h / 2 * (slope + slope_) + jnp.sqrt(tau * h) * heated(normal) @ root((square + square_) / 2)
        return penalised(s + h, x), level + h / 2 * (rise + rise_)

    return jax.lax.fori_loop(0, steps, step, (theta, level))


def march_particles(
    problem: Problem,
    algorithm: Algorithm,
    nodes: Nodes,
    t: np.ndarray,
    replicas: int,
    particles: int,
    dt: float,
    knots: np.ndarray,
    weight_key: Any,
    path_key: Any,
    bar: Progress,
) -> list[tuple[Any, Any, Any]]:
    """C_θ(t,t), C_θ(t,*) and β of every replica at the times reached before the norm passes BOUND.

    Twice: with steps of at most dt, and with steps twice as large and the same noise. Where coordinates come in groups
    there are `particles` in all, as many in each, and (times, replicas, g, m, ·) of moments.
    """
    m, tau = problem.width, float(algorithm.noise_temperature)
    scheduled = algorithm if algorithm.scheduled else None
    gram = jnp.asarray(problem.gram())
    table = None if problem.data.iid else problem.data.table()
    stiff = 1.0 if table is None else max(1.0, float(table.variance.max()))
    cuts, pairs = _grid(problem, t, dt / stiff, knots)
    coordinates, groups, each = None, (), particles
    if table is not None:
        each = max(particles // len(table.share), FEWEST)
        parts = (table.share * table.variance / each, table.variance, table.share / each)
        coordinates = Coordinates(*(np.repeat(part, each) for part in parts))
        groups = (len(table.share),)

    def drawn(key: Any) -> Any:
        return match(jnp.asarray(problem.spread_weights(key, each)), gram)

    def draw(key: Any) -> Any:
        if table is None:
            return drawn(key)
        own = [drawn(one).at[:, m:].multiply(by) for one, by in zip(_keys(key, table), table.factor, strict=True)]
        return jnp.concatenate(own)

    def moments(x: Any, y: Any) -> Any:
        x, y = (part.reshape(*part.shape[:1], *groups, each, -1) for part in (x, y))
        return jnp.einsum("...na,...nb->...ab", x, y) / each

    both = jnp.stack([draw(key) for key in jax.random.split(weight_key, replicas)])
    theta_star, path_keys = both[..., m:], jax.random.split(path_key, replicas)

    def path(stride: int) -> tuple[Any, Any, Any]:
        theta, first = both[..., :m], 0
        level = jnp.zeros((replicas, m if problem.bias else 0))
        found: list[tuple[Any, Any, Any]] = []
        for i, at in enumerate(cuts):
            if i:
                steps = 2 * pairs[i - 1] // stride
                h = (at - cuts[i - 1]) / steps
                for done in range(0, steps, AT_ONCE):
                    now, some = cuts[i - 1] + done * h, min(AT_ONCE, steps - done)
                    more = first + done * stride
                    theta, level = _advance(
                        problem, tau, scheduled, coordinates, nodes, theta, level, theta_star, now, h, more, some,
                        stride, path_keys,
                    )  # fmt: skip
                    theta.block_until_ready()
                    bar.phase("")
                    bar.advance(some * h / t[-1] / 1.5 / stride)
                first += steps * stride
            Q = moments(theta, theta)
            if not bool(jnp.all(jnp.isfinite(Q)) & (jnp.max(Q) < BOUND)):
                break
            if at in t:
                found.append((Q, moments(theta, theta_star), level))
        if not found:
            none = ((*groups, m, m), (*groups, m, problem.k), level.shape[1:])
            Q, c, levels = (jnp.zeros((0, replicas, *shape)) for shape in none)
        else:
            Q, c, levels = (jnp.stack(part) for part in zip(*found, strict=True))
        return Q, c, levels

    return [path(1), path(2)]


def _keys(key: Any, table: Table) -> Any:
    return jax.random.split(key, len(table.share))


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
