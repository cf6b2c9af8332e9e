"""The law of θ with infinite data (`eq:dmft_infinite_data_planted`) where h = Λθ: its second moments are those of a
linear equation, and follow ordinary differential equations, group by group.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import Algorithm
from ..errors import reject
from ..measure.averages import PER_REPLICA, Array, Nodes
from ..problem import Problem, fields
from ..problem.jumps import force_jumps
from ..problem.mixture import place
from ..problem.sequences import as_rows
from ..progress import Progress
from .stability import BOUND
from .training import (
    INTERCEPT,
    VELOCITY,
    WEIGHTS,
    Averages,
    Beside,
    Felt,
    Known,
    Numbers,
    begins,
    beside,
    blocks,
    feel,
    flow,
    flow_beside,
    stops_of_averages,
)  # fmt: skip

MOST_STEPS = 50_000  # of the moment equations that still take minutes
LOOK_BACK = 32  # steps over which their length is averaged, to tell whether it still grows
PEAK = 0.1  # longest step while a running maximum rises, which knows of a peak within a step by its ends alone
SMOOTH = 1e-9  # relative tolerance of the equations
KINKED = 0.2
"""The same in units of the weight of one point, where the force jumps: its averages change by that weight whenever a
point comes past the jump, which no short step resolves, and which is below the error of the average."""


class WeightMoments(NamedTuple):
    """Second moments in every group of all blocks that are carried of a coordinate (`training.blocks`), θ first, and of
    these with θ*: (…, replicas, g, blocks·m, ·); and what moves beside them."""

    norm: Array
    overlap: Array
    beside: Beside


class MomentPath(NamedTuple):
    """Moments at the times reached, and why no further."""

    at: WeightMoments
    failure: str = ""


def over(weights: np.ndarray, moments: Array) -> jax.Array:
    """Moments from those of the groups, (…, g, m, ·): of all weights by their shares, of fresh samples by p_q s_q."""
    return jnp.einsum("q,...qab->...ab", weights, moments)


def known_of(problem: Problem, table: tuple[np.ndarray, ...], norm: Array, overlap: Array, own: Beside) -> Known:
    """What averages need of second moments of all blocks in every group; table: p and s of the groups."""
    (share, variance), m = table, problem.width
    w, w_star = over(share * variance, norm[:, :m, :m]), over(share * variance, overlap[:, :m])
    every, along = over(share, norm), over(share, overlap[:, :m])
    at = place(problem, along, own.shared[WEIGHTS].get(INTERCEPT))
    return Known(w, w_star, at, every, along, share, variance)


@jax.jit
def _velocity(
    problem: Problem, algorithm: Algorithm, averages: Averages, groups: tuple[np.ndarray, ...], tau: float,
    nodes: Nodes, t: float, state: WeightMoments,
) -> tuple[WeightMoments, Numbers]:  # fmt: skip
    """d/dt by Itô's lemma on `eq:dmft_infinite_data_planted`, h = Λθ, (replicas, g, blocks·m, ·), and `Felt.settled`.

    θ^q feels s_q(Γθ + Γ*θ*) and the noise s_q τ C_ℓ; both come from averages of ℓ alone (`pull_of`), so that no
    derivative is needed. The means of classes pull along θ*, without s_q. groups: p, s, and E θ*θ*ᵀ, (g, k, k).
    """
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))
    share, variance, teacher = groups
    s, m, names = variance[:, None, None], problem.width, blocks(algorithm, averages)

    def one(nodes: Nodes, own: WeightMoments) -> tuple[WeightMoments, Numbers]:
        Q, c = own.norm, own.overlap
        felt = feel(problem, algorithm, nodes, t, known_of(problem, (share, variance), Q, c, own.beside), own.beside)
        gamma, both, along, square, pushed = felt.pull
        stiff = stiffness if felt.penalty is None else felt.penalty * stiffness
        turned, c_theta = jnp.swapaxes(c, 1, 2), c[:, :m]
        pull = stiff @ Q[:, :m] + s * (both @ turned + gamma @ (Q[:, :m] - along @ turned))
        toward = stiff @ c_theta + s * (both @ teacher + gamma @ (c_theta - along @ teacher))
        if pushed.means is not None:
            pull, toward = pull + pushed.means @ turned, toward + pushed.means @ teacher
        noise = tau * s * square
        if felt.gain is not None:
            pull, toward = (felt.gain[:, :, None] * part for part in (pull, toward))
            noise = felt.gain[:, :, None] * noise * felt.gain[:, None, :]
        if felt.noise is not None:
            noise = noise + jnp.broadcast_to(felt.noise, (len(share), m))[:, :, None] * jnp.eye(m)
        rows, columns = (_rows(algorithm, averages, names, t, felt, *part) for part in ((Q, pull), (c, toward)))
        grown = rows + jnp.swapaxes(rows, 1, 2) + _within(noise, names)
        return WeightMoments(grown, columns, flow_beside(algorithm, averages, t, felt, own.beside)), felt.settled

    return jax.vmap(one, in_axes=(PER_REPLICA, 0))(nodes, state)


def _rows(
    algorithm: Algorithm, averages: Averages, names: tuple[str, ...], t: float, felt: Felt, of: Array, pull: Array
) -> Array:
    """E[ẋ yᵀ] of all blocks x, (g, blocks·m, ·), from E[x yᵀ] and what pulls at θ times y."""
    held = dict(zip(names, jnp.split(of, len(names), axis=1), strict=True))
    moved = flow(algorithm, averages, t, held, pull)
    if felt.decay is not None:
        moved[WEIGHTS] = moved[WEIGHTS] - felt.decay * held[WEIGHTS]
    return jnp.concatenate([moved[name] for name in names], axis=1)


def _within(noise: Array, names: tuple[str, ...]) -> Array:
    """Noise (g, m, m) among all blocks: that of the velocity, or of θ where there is none."""
    m, size = noise.shape[-1], noise.shape[-1] * len(names)
    if size == m:
        return noise
    first = m * names.index(VELOCITY if VELOCITY in names else WEIGHTS)
    here = slice(first, first + m)
    return jnp.zeros((len(noise), size, size)).at[:, here, here].set(noise)


@jax.jit
def _scale(problem: Problem, nodes: Nodes) -> jax.Array:
    """Size of what is learned: E y²."""
    star = nodes.normals[0, ..., problem.width :] @ nodes.teacher_root.T
    star = as_rows(problem, star[..., : problem.read])
    return jnp.mean(jax.vmap(lambda b, z: fields.label(problem, b, z))(star, nodes.z[0]) ** 2)


def start_of(problem: Problem, algorithm: Algorithm, averages: Averages, replicas: int) -> WeightMoments:
    """Second moments at t = 0, and what begins beside them, of all replicas alike."""
    m, count = problem.width, len(blocks(algorithm, averages))
    gram = problem.data.table().moments(problem.gram(), m)
    begun = np.repeat(begins(algorithm, averages), m)[:, None] * np.tile(np.eye(m), (count, 1))
    first = begun @ gram[:, :m, :m] @ begun.T, begun @ gram[:, :m, m:]
    state = WeightMoments(*first, beside(problem, algorithm, averages))
    return jax.tree.map(lambda v: np.tile(np.asarray(v, float), (replicas, *[1] * np.ndim(v))), state)


@jax.jit
def first_paces(problem: Problem, algorithm: Algorithm, nodes: Nodes, state: WeightMoments) -> Array:
    """What a rate multiplies η by at t = 0, in every replica."""
    table = problem.data.table()[:2]

    def one(nodes: Nodes, own: WeightMoments) -> Array:
        found = feel(problem, algorithm, nodes, 0.0, known_of(problem, table, *own), own.beside)
        return jnp.asarray(1.0 if found.penalty is None else found.penalty)

    return jax.vmap(one, in_axes=(PER_REPLICA, 0))(nodes, state)


def march_moments(
    problem: Problem, algorithm: Algorithm, averages: Averages, nodes: Nodes, t: np.ndarray, knots: np.ndarray,
    bar: Progress,
) -> MomentPath:  # fmt: skip
    """Second moments of all replicas and what moves beside them, integrated together, at the times reached."""
    from scipy.integrate import DOP853

    table, m, replicas = problem.data.table(), problem.width, len(nodes.z)
    teacher = table.moments(problem.gram(), m)[:, m:, m:]
    groups = (table.share, table.variance, teacher)
    leaves, structure = jax.tree.flatten(start_of(problem, algorithm, averages, replicas))
    cuts = np.cumsum([part.size for part in leaves])

    def parts(state: np.ndarray) -> WeightMoments:
        """Moments from states (…, numbers)."""
        split = zip(np.split(state, cuts[:-1], axis=-1), leaves, strict=True)
        shaped = [jnp.asarray(part.reshape(*state.shape[:-1], *like.shape)) for part, like in split]
        return jax.tree.unflatten(structure, shaped)

    settled: list[Numbers] = [{}]

    def velocity(s: float, state: np.ndarray) -> np.ndarray:
        # a plain number, as the first time is one: another type would compile again
        tau = float(algorithm.temperature_at(s))
        found, settled[0] = _velocity(problem, algorithm, averages, groups, tau, nodes, float(s), parts(state))
        return np.concatenate([np.asarray(part).ravel() for part in jax.tree.leaves(found)])

    def jumped(state: np.ndarray, settled: Numbers) -> np.ndarray:
        """The state with that of the rate where a step of no length leaves it, as last seen."""
        now = parts(state)
        moved = now._replace(beside=now.beside._replace(rule=settled))
        return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in jax.tree.leaves(moved)])

    start = np.concatenate([part.ravel() for part in leaves])
    stops = np.union1d(np.append(knots[knots < t[-1]], t[-1]), stops_of_averages(averages, t))
    states, failure, lengths, rising = [start for at in t if at <= 0], "", [], False
    rtol, atol = SMOOTH, 1e-3 * SMOOTH
    if force_jumps(problem, float(t[-1])) or _bent(algorithm):
        rtol = KINKED / nodes.z.shape[1]
        atol = rtol * float(_scale(problem, nodes))
    with np.errstate(over="ignore", invalid="ignore"):
        solver = DOP853(velocity, 0.0, start, t[-1], rtol=rtol, atol=atol)
        while solver.status == "running":
            # no step beyond the next change of the schedule: what lies behind it is not felt from here
            ahead = stops[np.searchsorted(stops, solver.t, side="right")]
            solver.max_step = max(min(ahead - solver.t, PEAK if rising else np.inf), 16 * np.spacing(solver.t))
            failure, left = solver.step() or "", settled[0]  # of the last evaluation, at the end of the step
            if failure or not np.max(np.abs(solver.y[: cuts[0]])) < BOUND:
                break
            assert solver.t_old is not None
            bar.phase("")
            bar.advance((solver.t - solver.t_old) / t[-1])
            inner = solver.dense_output()
            reached = int(np.searchsorted(t, solver.t, side="right"))
            states += [inner(at) for at in t[len(states) : reached]]
            here = jumped(solver.y, left) if left else solver.y
            rising = not np.array_equal(here, solver.y)
            if rising:
                solver.y, solver.f = here, velocity(solver.t, here)
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


def _bent(algorithm: Algorithm) -> bool:
    """Whether what shortens gradients bends or jumps: where it does, points come past as they do past a jump."""
    how = algorithm.how
    return how.clip is not None or how.by_batch
