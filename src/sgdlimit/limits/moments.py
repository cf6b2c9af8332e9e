"""Infinite data with h = Λθ: second moments of (θ, θ*) as ordinary differential equations, group by group."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import Algorithm
from ..errors import reject
from ..problem import Problem, fields
from ..problem.shift import place
from ..progress import Progress
from .averages import PER_REPLICA, Nodes, force_moments, pull_of
from .stability import BOUND

MOST_STEPS = 50_000
"""Steps of the moment equations that still take minutes."""
LOOK_BACK = 32
"""Steps over which their length is averaged, to tell whether it still grows."""

SMOOTH = 1e-9
"""Relative tolerance of the equations."""
KINKED = 0.2
"""The same in units of the weight of one point, where the force jumps: its averages change by that weight whenever a
point comes past the jump, which no short step resolves, and which is below the error of the average."""


class Weights(NamedTuple):
    """What is integrated, or what has come of it: (…, replicas, [g,] m, ·)."""

    norm: Any
    """Q = C_θ(t,t)."""
    overlap: Any
    """c = C_θ(t,*)."""
    intercept: Any
    """β, (…, replicas, m) where the student has one, else (…, replicas, 0)."""


class Moments(NamedTuple):
    """Of the weights at the times reached, and why no further."""

    at: Weights
    failure: str


@jax.jit
def _velocity(problem: Problem, tau: Any, nodes: Nodes, t: Any, state: Weights) -> Weights:
    """d/dt of Q, c and β by Itô's lemma on `eq:dmft_infinite_data_planted`, h = Λθ.

    By Gaussian integration by parts ΓQ + Γ*cᵀ = E[ℓ wᵀ] and Γc + Γ*C_θ(*,*) = E[ℓ w*ᵀ]: no derivative is needed.
    """
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))

    def one(nodes: Nodes, own: Weights) -> Weights:
        Q, c = own.norm, own.overlap
        at = place(problem, c, own.intercept)
        with_w, with_star, square, pushed = force_moments(problem, nodes, t, Q, c, at)
        pull = stiffness @ Q + with_w
        return Weights(-pull - pull.T + tau * square, -(stiffness @ c + with_star), pushed.rise(own.intercept))

    return jax.vmap(one, in_axes=(PER_REPLICA, 0))(nodes, state)


class Groups(NamedTuple):
    """Coordinates of unlike variance, as the moment equations see them."""

    share: Any
    variance: Any
    teacher: Any
    """Second moments of θ*, (g, k, k)."""

    @classmethod
    def of(cls, problem: Problem) -> "Groups | None":
        """None where all coordinates are alike."""
        if problem.data.iid:
            return None
        table, m = problem.data.table(), problem.width
        return cls(table.share, table.variance, table.moments(problem.gram(), m)[:, m:, m:])

    def total(self, moments: Any) -> Any:
        """Of weights, from those of the groups, (…, g, m, ·)."""
        return jnp.einsum("q,...qab->...ab", self.share, moments)

    def fresh(self, moments: Any) -> Any:
        """Of a fresh sample's pre-activations."""
        return jnp.einsum("q,...qab->...ab", self.share * self.variance, moments)


@jax.jit
def _velocity_of(problem: Problem, groups: Groups, tau: Any, nodes: Nodes, t: Any, state: Weights) -> Weights:
    """The same group by group, (replicas, g, m, ·): θ^q feels s_q(Γθ + Γ*θ*) and the noise s_q τ C_ℓ.

    Both come from `pull_of`. The means of classes pull along θ*, without s_q.
    """
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))
    s = groups.variance[:, None, None]

    def one(nodes: Nodes, own: Weights) -> Weights:
        Q, c = own.norm, own.overlap
        w, w_star = groups.fresh(Q), groups.fresh(c)
        at = place(problem, groups.total(c), own.intercept)
        moments = force_moments(problem, nodes, t, w, w_star, at)
        square, pushed = moments.square, moments.push
        gamma, both, along = pull_of(nodes, w, w_star, moments)
        turned = jnp.swapaxes(c, 1, 2)
        pull = stiffness @ Q + s * (both @ turned + gamma @ (Q - along @ turned))
        toward = stiffness @ c + s * (both @ groups.teacher + gamma @ (c - along @ groups.teacher))
        if pushed.means is not None:
            pull, toward = pull + pushed.means @ turned, toward + pushed.means @ groups.teacher
        return Weights(-pull - jnp.swapaxes(pull, 1, 2) + tau * s * square, -toward, pushed.rise(own.intercept))

    return jax.vmap(one, in_axes=(PER_REPLICA, 0))(nodes, state)


def _start(problem: Problem, replicas: int) -> Weights:
    m, gram = problem.width, problem.gram()
    level = np.zeros((replicas, m if problem.bias else 0))
    if not problem.data.iid:
        gram = problem.data.table().moments(gram, m)
        repeat = (replicas, 1, 1, 1)
        return Weights(np.tile(gram[:, :m, :m], repeat), np.tile(gram[:, :m, m:], repeat), level)
    repeat = (replicas, 1, 1)
    return Weights(np.tile(gram[:m, :m], repeat), np.tile(gram[:m, m:], repeat), level)


@jax.jit
def _scale(problem: Problem, nodes: Nodes) -> Any:
    """Size of what is learned: E y²."""
    star = nodes.normals[0, :, problem.width :] @ nodes.teacher_root.T
    return jnp.mean(jax.vmap(lambda b, z: fields.label(problem, b, z))(star, nodes.z[0]) ** 2)


def march_moments(
    problem: Problem,
    algorithm: Algorithm,
    nodes: Nodes,
    t: np.ndarray,
    replicas: int,
    knots: np.ndarray,
    kinked: bool,
    bar: Progress,
) -> Moments:
    """C_θ(t,t), C_θ(t,*) and β of all replicas, integrated together, at the times reached.

    kinked: the force jumps, and its averages with it.
    """
    from scipy.integrate import DOP853

    first, groups = _start(problem, replicas), Groups.of(problem)
    cuts = np.cumsum([part.size for part in first])

    def parts(state: np.ndarray) -> Weights:
        """Of states (…, numbers)."""
        split = zip(np.split(state, cuts[:-1], axis=-1), first, strict=True)
        return Weights(*(part.reshape(*state.shape[:-1], *like.shape) for part, like in split))

    def velocity(s: float, state: np.ndarray) -> np.ndarray:
        tau = float(algorithm.temperature_at(s))
        if groups is None:
            found = _velocity(problem, tau, nodes, s, parts(state))
        else:
            found = _velocity_of(problem, groups, tau, nodes, s, parts(state))
        return np.concatenate([np.asarray(part).ravel() for part in found])

    start = np.concatenate([part.ravel() for part in first])
    stops = np.append(knots[knots < t[-1]], t[-1])
    states, failure = [start for at in t if at <= 0], ""
    with np.errstate(over="ignore", invalid="ignore"):
        rtol, atol = SMOOTH, 1e-3 * SMOOTH
        if kinked:
            rtol = KINKED / nodes.z.shape[1]
            atol = rtol * float(_scale(problem, nodes))
        solver = DOP853(velocity, 0.0, start, t[-1], rtol=rtol, atol=atol)
        lengths: list[float] = []
        while solver.status == "running":
            # no step beyond the next change of the schedule: what lies behind it is not felt from here
            ahead = stops[np.searchsorted(stops, solver.t, side="right")]
            solver.max_step = max(ahead - solver.t, 16 * np.spacing(solver.t))
            failure = solver.step() or ""
            size = np.max(np.abs(solver.y[: cuts[0]]))
            if failure or not size < BOUND:
                break
            assert solver.t_old is not None
            bar.phase("")
            bar.advance((solver.t - solver.t_old) / t[-1])
            inner = solver.dense_output()
            reached = int(np.searchsorted(t, solver.t, side="right"))
            states += [inner(at) for at in t[len(states) : reached]]
            lengths.append(solver.t - solver.t_old)
            _refuse_endless(lengths, solver.t, t[-1])
    out = np.array(states).reshape(len(states), len(start))
    return Moments(Weights(*map(jnp.asarray, parts(out))), failure)


def _refuse_endless(lengths: list[float], now: float, last: float) -> None:
    """Refuse a time that steps of a length that no longer grows would not reach in minutes."""
    if len(lengths) % LOOK_BACK or len(lengths) < 4 * LOOK_BACK:
        return
    recent, before = np.mean(lengths[-LOOK_BACK:]), np.mean(lengths[-2 * LOOK_BACK : -LOOK_BACK])
    needed = (last - now) / recent
    if len(lengths) + needed > MOST_STEPS and recent < 1.2 * before:
        why = f"from t = {now:.4g} on steps of {recent:.2g} are stable, {needed:.2g} of them; lower t_max"
        raise reject("t_max", f"{last:.4g}", f"{why} (at most {MOST_STEPS} are taken)")
