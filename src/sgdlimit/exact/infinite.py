"""The law of θ with infinite data (`eq:dmft_infinite_data_planted`), in two ways.

With h = Λθ the second moments of (θ, θ*) follow ordinary differential equations, group by group (`march_moments`). With
a nonlinear penalty particles carry the law (`march_particles`).
"""

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
from ..problem.jumps import force_jumps
from ..problem.mixture import place
from ..problem.schedules import factors
from ..progress import Progress
from .stability import BOUND

MOST_STEPS = 50_000  # of the moment equations that still take minutes
LOOK_BACK = 32  # steps over which their length is averaged, to tell whether it still grows
SMOOTH = 1e-9  # relative tolerance of the equations
KINKED = 0.2
"""The same in units of the weight of one point, where the force jumps: its averages change by that weight whenever a
point comes past the jump, which no short step resolves, and which is below the error of the average."""


class WeightMoments(NamedTuple):
    """C_θ(t,t) and C_θ(t,*) in every group, (…, replicas, g, m, ·), and the intercept β, (…, replicas, m or 0)."""

    norm: jax.Array
    overlap: jax.Array
    intercept: jax.Array


class MomentPath(NamedTuple):
    """Moments at the times reached, and why no further."""

    at: WeightMoments
    failure: str = ""


def over(weights: np.ndarray, moments: jax.Array) -> jax.Array:
    """Moments from those of the groups, (…, g, m, ·): of all weights by their shares, of fresh samples by p_q s_q."""
    return jnp.einsum("q,...qab->...ab", weights, moments)


@jax.jit
def _velocity(
    problem: Problem, groups: tuple[np.ndarray, ...], tau: float, nodes: Nodes, t: float, state: WeightMoments
) -> WeightMoments:
    """d/dt of Q, c and β by Itô's lemma on `eq:dmft_infinite_data_planted`, h = Λθ, (replicas, g, m, ·).

    θ^q feels s_q(Γθ + Γ*θ*) and the noise s_q τ C_ℓ; both come from averages of ℓ alone (`pull_of`), so that no
    derivative is needed. The means of classes pull along θ*, without s_q. groups: p, s, and E θ*θ*ᵀ, (g, k, k).
    """
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))
    share, variance, teacher = groups
    s = variance[:, None, None]

    def one(nodes: Nodes, own: WeightMoments) -> WeightMoments:
        Q, c = own.norm, own.overlap
        w, w_star = over(share * variance, Q), over(share * variance, c)
        at = place(problem, over(share, c), own.intercept)
        gamma, both, along, square, pushed = pull_of(problem, nodes, t, w, w_star, at)
        turned = jnp.swapaxes(c, 1, 2)
        pull = stiffness @ Q + s * (both @ turned + gamma @ (Q - along @ turned))
        toward = stiffness @ c + s * (both @ teacher + gamma @ (c - along @ teacher))
        if pushed.means is not None:
            pull, toward = pull + pushed.means @ turned, toward + pushed.means @ teacher
        grown = -pull - jnp.swapaxes(pull, 1, 2) + tau * s * square
        return WeightMoments(grown, -toward, pushed.rise(own.intercept))

    return jax.vmap(one, in_axes=(PER_REPLICA, 0))(nodes, state)


@jax.jit
def _scale(problem: Problem, nodes: Nodes) -> jax.Array:
    """Size of what is learned: E y²."""
    star = nodes.normals[0, :, problem.width :] @ nodes.teacher_root.T
    return jnp.mean(jax.vmap(lambda b, z: fields.label(problem, b, z))(star, nodes.z[0]) ** 2)


def march_moments(
    problem: Problem, algorithm: Algorithm, nodes: Nodes, t: np.ndarray, knots: np.ndarray, bar: Progress
) -> MomentPath:
    """C_θ(t,t), C_θ(t,*) and β of all replicas, integrated together, at the times reached."""
    from scipy.integrate import DOP853

    table, m, replicas = problem.data.table(), problem.width, len(nodes.z)
    gram = table.moments(problem.gram(), m)
    groups, start = (table.share, table.variance, gram[:, m:, m:]), np.tile(gram[:, :m], (replicas, 1, 1, 1))
    first = [start[..., :m], start[..., m:], np.zeros((replicas, m if problem.bias else 0))]
    cuts = np.cumsum([part.size for part in first])

    def parts(state: np.ndarray) -> WeightMoments:
        """Moments from states (…, numbers)."""
        split = zip(np.split(state, cuts[:-1], axis=-1), first, strict=True)
        return WeightMoments(*(jnp.asarray(part.reshape(*state.shape[:-1], *like.shape)) for part, like in split))

    def velocity(s: float, state: np.ndarray) -> np.ndarray:
        # a plain number, as the first time is one: another type would compile again
        found = _velocity(problem, groups, float(algorithm.temperature_at(s)), nodes, float(s), parts(state))
        return np.concatenate([np.asarray(part).ravel() for part in found])

    start = np.concatenate([part.ravel() for part in first])
    stops = np.append(knots[knots < t[-1]], t[-1])
    states, failure, lengths = [start for at in t if at <= 0], "", []
    rtol, atol = SMOOTH, 1e-3 * SMOOTH
    if force_jumps(problem, float(t[-1])):
        rtol = KINKED / nodes.z.shape[1]
        atol = rtol * float(_scale(problem, nodes))
    with np.errstate(over="ignore", invalid="ignore"):
        solver = DOP853(velocity, 0.0, start, t[-1], rtol=rtol, atol=atol)
        while solver.status == "running":
            # no step beyond the next change of the schedule: what lies behind it is not felt from here
            ahead = stops[np.searchsorted(stops, solver.t, side="right")]
            solver.max_step = max(ahead - solver.t, 16 * np.spacing(solver.t))
            failure = solver.step() or ""
            if failure or not np.max(np.abs(solver.y[: cuts[0]])) < BOUND:
                break
            assert solver.t_old is not None
            bar.phase("")
            bar.advance((solver.t - solver.t_old) / t[-1])
            inner = solver.dense_output()
            reached = int(np.searchsorted(t, solver.t, side="right"))
            states += [inner(at) for at in t[len(states) : reached]]
            lengths.append(solver.t - solver.t_old)
            _refuse_endless(lengths, solver.t, t[-1])
    return MomentPath(parts(np.array(states).reshape(len(states), len(start))), failure)


def _refuse_endless(lengths: list[float], now: float, last: float) -> None:
    """Refuse a time that steps of a length that no longer grows would not reach in minutes."""
    if len(lengths) % LOOK_BACK or len(lengths) < 4 * LOOK_BACK:
        return
    recent, before = np.mean(lengths[-LOOK_BACK:]), np.mean(lengths[-2 * LOOK_BACK : -LOOK_BACK])
    needed = (last - now) / recent
    if len(lengths) + needed > MOST_STEPS and recent < 1.2 * before:
        why = f"from t = {now:.4g} on steps of {recent:.2g} are stable, {needed:.2g} of them; lower t_max"
        raise reject("t_max", f"{last:.4g}", f"{why} (at most {MOST_STEPS} are taken)")


MOST_HEUN = 10**6  # steps of particles that still take minutes
FEWEST = 64  # particles of a group at least
AT_ONCE = 64  # steps of one compiled call: Ctrl-C waits no longer
State = tuple[jax.Array, jax.Array]  # θ of all particles, (particles, m), and β, (m,), or (0,) without intercept


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
    problem: Problem, algorithm: Algorithm, variance: jax.Array, share: jax.Array, nodes: Nodes, theta_star: jax.Array,
    key: jax.Array, start: State, span: Span,
) -> State:  # fmt: skip
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
    cuts, pairs = _stops(problem, t, dt / max(1.0, float(table.variance.max())), knots)
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
