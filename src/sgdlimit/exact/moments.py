"""Infinite data with h = Λθ: second moments of (θ, θ*) as ordinary differential equations, group by group."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import Algorithm
from ..errors import reject
from ..measure.averages import PER_REPLICA, Nodes, pull_of
from ..problem import Problem, fields
from ..problem.jumps import force_jumps
from ..problem.shift import place
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
