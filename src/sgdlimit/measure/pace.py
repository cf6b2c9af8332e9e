"""How fast things go: what of a problem or an algorithm changes in time, and when; how fast data and penalty pull at
the start, which bounds an explicit step.

Slopes come from autodiff, which does not see a jump of ℓ or h: that of hinge and absolute loss is zero wherever it is
taken. What the mean force feels is not zero: E∇ℓ has the density of samples at the jump times its size, by Gaussian
integration by parts E[ℓ w]/E[w²]. At the start w may be zero for all samples, so it is measured as the change of the
mean force over an interval as long as pre-activations will reach, less the integral of the slopes that autodiff sees.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import model
from .._types import Scalar
from ..algorithms import Algorithm
from ..problem import Constant, Problem, VectorField, fields
from ..problem.data import Iid, Table
from ..problem.problem import apart, draws_at_start
from ..problem.schedules import ScheduleLike, course, factors
from ..problem.sequences import root_like

PROBES, SUMS = 8, 2  # states at which a field is looked at along time, and random sums of its values there
AT_ONCE = 1024  # times at which a schedule is looked at together


def knots_of(moving: list[tuple[str, ScheduleLike]], t_max: float) -> np.ndarray:
    """Times up to t_max between which nothing of what moves changes by much."""
    return np.unique(np.concatenate([np.zeros(0), *(course(*item, t_max).knots() for item in moving)]))


@model
class Probe(ScheduleLike):
    """A field along the time that it takes itself: a random sum of its values at fixed states."""

    field: VectorField
    states: tuple[jax.Array | np.ndarray, ...]  # (r, r*, z) of a loss, (θ,) of a penalty, each (PROBES, …)
    weights: jax.Array | np.ndarray  # (PROBES, m)
    breaks = property(attrgetter("field.breaks"))  # times at which the field says that it jumps

    def __call__(self, t: Scalar) -> Scalar:
        """Σ weights · field, over the root of their number."""
        seen = jax.vmap(lambda *state: jnp.ravel(self.field.at(t, *state)))(*self.states)
        return jnp.sum(self.weights * seen) / np.sqrt(PROBES)


def moving_of(problem: Problem) -> list[tuple[str, ScheduleLike]]:
    """What of a problem changes in time, by argument: its schedule, and fields that take the time themselves.

    A field is looked at where weights start, and a unit of length around it, since it may vanish at the start.
    """
    out: list[tuple[str, ScheduleLike]] = []
    if not isinstance(problem.schedule, Constant):
        out.append(("schedule", problem.schedule))
    timed = [name for name in ("loss", "penalty") if getattr(getattr(problem, name), "timed", False)]
    if timed:
        m, rng = problem.width, np.random.default_rng(0)
        w, z = draws_at_start(problem, PROBES)
        r, r_star = apart(problem, w)
        away = np.linspace(0.0, 1.0, PROBES).reshape(-1, *[1] * (r.ndim - 1))
        r = r + rng.standard_normal(r.shape) * away
        states = {"loss": (r, r_star, z), "penalty": (r.reshape(PROBES, -1)[:, :m],)}
        for name in timed:
            weights = rng.standard_normal((SUMS, PROBES, states[name][0][0].size))
            out += [(name, Probe(getattr(problem, name), states[name], one)) for one in weights]
    return out


@model
class Heat(ScheduleLike):
    """The temperature along time over that of the full batch, τ(t)/τ = B/B(t)."""

    algorithm: Algorithm
    breaks = property(lambda self: getattr(self.algorithm.batch_share, "breaks", ()))  # times at which the share jumps

    def __call__(self, t: Scalar) -> Scalar:
        """1 over the share of the batch in use, in whole samples."""
        return 1 / self.algorithm.portion(t)


def heat_of(algorithm: Algorithm) -> list[tuple[str, ScheduleLike]]:
    """What of an algorithm changes in time, by argument: its temperature, where the batch does."""
    return [(f"{type(algorithm).__name__}.batch_share", Heat(algorithm))] if algorithm.scheduled else []


def _along(name: str, schedule: ScheduleLike, t: np.ndarray) -> np.ndarray:
    """s at any array of times, looked at in pieces of one size, so that another number of them compiles nothing."""
    pieces = np.pad(t.ravel(), (0, -t.size % AT_ONCE), mode="edge").reshape(-1, AT_ONCE) if t.size else np.zeros((0, 1))
    return np.ravel([factors(name, schedule, piece) for piece in pieces])[: t.size].reshape(t.shape)


def speed_of(problem: Problem, times: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    """How fast the clock goes by which weights forget, as a function of arrays of times; None where it is time itself.

    A schedule s multiplies all forces: what is left of a kick is a function of ∫|s|. Of a field that takes the time
    itself, half of the clock is its size over the median at these times.
    """
    moving = moving_of(problem)
    schedule = [item for item in moving if item[0] == "schedule"]
    fields_of = {name: [item for item in moving if item[0] == name] for name in ("loss", "penalty")}

    def size(items: list[tuple[str, ScheduleLike]], t: np.ndarray) -> np.ndarray:
        return np.sqrt(np.mean([_along(*item, t) ** 2 for item in items], axis=0))

    usual = {name: float(np.median(size(items, times))) for name, items in fields_of.items() if items}

    def speed(t: np.ndarray) -> np.ndarray:
        parts = [size(fields_of[name], t) / of for name, of in usual.items() if of > 0]
        return (size(schedule, t) if schedule else 1.0) * np.mean([np.ones_like(t), *parts], axis=0)

    return speed if moving else None


class Pace(NamedTuple):
    """What changes in time for least squares: s(t) and τ(t)/τ as functions of arrays of times, times at which either
    changes, ∫|s|, which is the largest time of the flow, and whether neither changes."""

    speed: Callable[[np.ndarray], np.ndarray] = np.ones_like
    heat: Callable[[np.ndarray], np.ndarray] = np.ones_like
    knots: np.ndarray = np.zeros(0)
    longest: float = 0.0
    steady: bool = True


def pace_of(schedule: ScheduleLike, algorithm: Algorithm, t_max: float) -> Pace:
    """The pace that a schedule and an algorithm have together up to t_max."""
    speed, heat = [] if isinstance(schedule, Constant) else [("schedule", schedule)], heat_of(algorithm)
    seen = [course(*item, t_max) for item in (*speed, *heat)]
    longest = float(np.trapezoid(np.abs(seen[0].s), seen[0].t)) if speed else t_max
    at, warm = (partial(_along, *item[0]) if item else np.ones_like for item in (speed, heat))
    knots = np.unique(np.concatenate([np.zeros(0), *(one.knots() for one in seen)]))
    return Pace(at, warm, knots, longest, not seen)


COUNT = 1024  # samples whose slopes at the start are looked at
MANY, FEWEST = 16, 64  # units of all rows from which on fewer samples are looked at; so many at least
TIMES = 9  # at which they are looked at where something changes, besides the one at which the schedule is fastest
REACHES = (0.55, 1.1, 2.2)
"""Half intervals over which the mean force is looked at, in units of what pre-activations and labels reach; no jump of
a hinge, at y r = 1, lies on their ends."""
CELLS, HALVINGS = 64, 60
NEGLIGIBLE = 0.05  # share from which on what autodiff does not see counts: less may be an error of the integral
IID = Iid().table()
Field = Callable[[jax.Array], jax.Array]  # of points (samples, m), with the samples last


class Curvature(NamedTuple):
    """The largest curvature of the training loss and the largest slope of h, from the start and over all times; E∇ℓ and
    E∇h, (m, m), at t = 0, or where the schedule is fastest over its factor there."""

    data: float
    penalty: float
    slopes: tuple[np.ndarray, np.ndarray]


@jax.jit
def _slopes(problem: Problem, w: jax.Array, z: jax.Array, times: jax.Array) -> tuple[jax.Array, jax.Array]:
    """∇ℓ and ∇h of samples at the start, (times, m, m, samples), with what jumps add to the mean; ∇ℓ of samples with L
    rows is (L·m, L·m), of the independent rows."""
    m, (start, r_star) = problem.width, apart(problem, w)
    y = jax.vmap(lambda b, c: fields.label(problem, b, c))(r_star, z)
    both = [part.reshape(len(w), -1) for part in (w, jnp.nan_to_num(y))]
    size = jnp.sqrt(jnp.max(jnp.mean(jnp.concatenate(both, axis=1) ** 2, axis=0)))
    reaches = jnp.where(size > 0, size, 1.0) * jnp.array(REACHES)

    def at(t: jax.Array) -> tuple[jax.Array, jax.Array]:
        def of(field: Callable[..., jax.Array], *given: jax.Array) -> Field:
            return lambda v: jax.vmap(partial(field, problem, t), out_axes=-1)(v, *given)

        def seen(pull: Field, slopes: Field, smooth: bool, start: jax.Array) -> jax.Array:
            return slopes(start) + (0.0 if smooth else _unseen(pull, start, reaches)[:, :, None])

        if problem.rows == 1:
            pull, slopes = of(fields.force, r_star, z), of(fields.force_r, r_star, z)
        else:

            def flat(problem: Problem, t: jax.Array, r: jax.Array, *others: jax.Array) -> jax.Array:
                """ℓ as a function of what is read, in the order of units of all rows."""
                return jnp.ravel(fields.force(problem, t, r.reshape(problem.rows, m), *others))

            pull, slopes = of(flat, r_star, z), of(jax.jacfwd(flat, argnums=2), r_star, z)
        data = seen(pull, slopes, problem.loss.smooth, start.reshape(len(w), -1))
        if (root := None if problem.rows == 1 else root_like(problem, data)) is not None:
            mixing = jnp.kron(root, jnp.eye(m))
            data = jnp.einsum("ua,uvs,vb->abs", mixing, data, mixing)
        return data, seen(of(fields.drift), of(fields.drift_theta), problem.penalty.smooth, _first_row(problem, start))

    return jax.lax.map(at, times)


def _first_row(problem: Problem, r: jax.Array) -> jax.Array:
    """Pre-activations of one row, (samples, m)."""
    return r if problem.rows == 1 else r[:, 0]


def _unseen(pull: Field, start: jax.Array, reaches: jax.Array) -> jax.Array:
    """Mean slope that jumps make and autodiff does not see, (m, m): the largest over the intervals.

    pull: from points (samples, m) to (m, samples).
    """

    def over(reach: jax.Array) -> jax.Array:
        def along(a: jax.Array) -> jax.Array:
            unit = jnp.eye(start.shape[1])[a]
            moved = lambda x: start + x * unit  # noqa: E731
            slope = lambda x: jax.jvp(pull, (moved(x),), (jnp.broadcast_to(unit, start.shape),))[1]  # noqa: E731
            x = jnp.linspace(-reach, reach, CELLS + 1)
            seen = jax.lax.map(lambda x: jnp.mean(slope(x), axis=-1), x)  # (CELLS + 1, m)
            change = jnp.mean(pull(moved(reach)) - pull(moved(-reach)), axis=-1)
            unseen = (change - jnp.trapezoid(seen, x, axis=0)) / (2 * reach)
            real = jnp.max(jnp.abs(unseen)) > NEGLIGIBLE * jnp.max(jnp.abs(seen))
            return jnp.where(real & jnp.all(jnp.isfinite(unseen)), unseen, 0.0)

        return jax.lax.map(along, jnp.arange(start.shape[1])).T

    found = jax.lax.map(over, reaches)
    return found[jnp.argmax(jnp.max(jnp.abs(found), axis=(1, 2)))]


def edge(curvatures: np.ndarray, sample_ratio: float, table: Table = IID) -> float:
    """Largest eigenvalue of (1/n) Σ_s J_s S^½ u_s u_sᵀ S^½, u standard normal, J the curvatures of the samples, S the
    covariance of the rows.

    The edge of its limit law, min over x in (0, δ/J_max) of the z with Σ_q p_q s_q/(z − s_q y) = x, y = E[J/(1 − Jx/δ)]
    (`docs/structured_data.md`); of iid entries that is 1/x + y. A single sample of curvature J pulls with J/δ, all
    together with (1 + δ^−½)² E J where they are alike.
    """
    J = np.abs(curvatures[np.isfinite(curvatures)])
    top = float(np.max(J, initial=0.0))
    if top == 0.0:
        return 0.0
    if np.isinf(sample_ratio):
        return float(np.mean(J)) * float(np.max(table.variance))
    x = sample_ratio / top * np.linspace(0.02, 0.98, 97)
    y = np.mean(J / (1 - J * x[:, None] / sample_ratio), axis=1)
    if len(table.share) == 1:
        return float(np.min(table.variance * (1 / x + y)))
    part, largest = table.share * table.variance, float(np.max(table.variance))
    low, high = np.zeros_like(x), part.sum() / x  # of u = z − s_max y: z itself rounds where δ is large
    for _ in range(HALVINGS):  # the sum falls in u
        u = (low + high) / 2
        above = np.sum(part / (u[:, None] + (largest - table.variance) * y[:, None]), axis=1) > x
        low, high = np.where(above, u, low), np.where(above, high, u)
    return float(np.min(largest * y + high))


def spike(problem: Problem, curvatures: np.ndarray, z: np.ndarray) -> float:
    """Largest eigenvalue of E[J v vᵀ], v = (1 for an intercept, means of the class): what they add to the edge at most.

    √d x has means[c, ·] along the unit vectors a_j/√d, and 1 as its constant feature. Rows of a sample add up.
    """
    rows, relation, lines = problem.rows, problem.data.relation, np.repeat(z, problem.rows)
    v = np.ones((int(problem.bias), len(lines)))
    if problem.data.classes is not None:
        v = np.concatenate([v, np.asarray(problem.data.classes.means, dtype=float)[z.astype(int)].T])
    if relation is not None and relation.means is not None:
        v = np.concatenate([v, np.tile(np.asarray(relation.means).T, len(z))])
    if relation is not None and relation.level is not None:
        v[: int(problem.bias)] = np.tile(relation.level, len(z))
    J = np.repeat(np.abs(np.nan_to_num(curvatures)), rows)
    return float(np.max(np.linalg.eigvalsh((v * J) @ v.T / len(z)), initial=0.0))


def start_samples(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(w_0, w*) and z of samples for `curvature`, fewer where they have many rows: their slopes are large matrices."""
    units = problem.rows * problem.width
    return draws_at_start(problem, COUNT if problem.rows == 1 else max(FEWEST, min(COUNT, COUNT * MANY // units)))


def curvature(problem: Problem, t_max: float, w: np.ndarray, z: np.ndarray, top: float | None = None) -> Curvature:
    """Curvatures of samples at the start, where the schedule is fastest too; `top`: largest eigenvalue of own data."""
    moving, at, factor = moving_of(problem), 0, 1.0
    times = np.linspace(0.0, t_max, TIMES) if moving else np.zeros(1)
    for item in moving:
        t, s, _ = course(*item, t_max)
        fastest = np.argmax(np.abs(s))
        times = np.append(times, t[fastest])
        if item[0] == "schedule":
            at, factor = len(times) - 1, abs(float(s[fastest])) or 1.0
    with jax.enable_x64(True):
        both = [np.asarray(part) for part in _slopes(problem, w, z, times)]
    pulls = [_largest(part) for part in both]
    if top is None:
        rows, lines = problem.rows, pulls[0] if problem.rows == 1 else _over_rows(both[0], problem.rows)
        every = [i for i, here in enumerate(lines) if i == 0 or not np.array_equal(here, lines[0])]
        data = max(edge(rows * lines[i], rows * float(problem.sample_ratio), problem.data.table()) for i in every)
        data += max(spike(problem, pulls[0][i], z) for i in every)
    else:
        data = top * float(np.max(pulls[0]))
    slopes = [part[at].mean(axis=-1) / factor for part in both]
    if problem.rows > 1:  # of the weights: over the rows
        m = problem.width
        slopes[0] = np.einsum("lalb->ab", slopes[0].reshape(problem.rows, m, problem.rows, m))
    return Curvature(data, float(np.max(pulls[1])), tuple(slopes))


def _largest(slopes: np.ndarray) -> np.ndarray:
    """Largest eigenvalue, by size, of the symmetric part of every slope, (times, samples)."""
    symmetric = (slopes + slopes.swapaxes(1, 2)) / 2
    return np.max(np.abs(np.linalg.eigvalsh(np.moveaxis(np.nan_to_num(symmetric), -1, 1))), axis=-1)


def _over_rows(slopes: np.ndarray, rows: int) -> np.ndarray:
    """Curvatures of L samples of one row that pull as a sample with L rows does, (times, samples·L).

    Along an eigenvector v of ∇ℓ over the rows a sample pulls with Σ_l v_l x_l, which is as independent of the others as
    rows are. Of several units a block of ∇ℓ counts with its norm.
    """
    parts = np.nan_to_num(np.moveaxis((slopes + slopes.swapaxes(1, 2)) / 2, -1, 1))
    m = parts.shape[-1] // rows
    if m > 1:
        blocks = parts.reshape(*parts.shape[:2], rows, m, rows, m).swapaxes(3, 4)
        parts = np.linalg.norm(blocks, ord=2, axis=(-2, -1))
    values = np.linalg.eigvalsh(parts)
    return np.abs(values).reshape(len(values), -1)


def stiff_words(problem: Problem, stable: float, step: float, size: float) -> str:
    """Where the penalty alone makes a step unstable for weights up to `size`: which step would be stable; else ''."""
    theta = np.linspace(-size, size, 33)[:, None] * np.ones(problem.width)
    with jax.enable_x64(True):
        slopes = jax.vmap(lambda v: fields.drift_theta(problem, 0.0, v))(theta)
        slope = float(np.max(np.abs(np.nan_to_num(np.asarray(slopes)))))
    if step * slope <= stable:
        return ""
    return f"; the penalty's slope {slope:.3g} is stable up to steps of {stable / slope:.3g}, dt = {step:.3g} is above"
