"""How fast the data and the penalty can pull at the start: what bounds an explicit step.

Slopes come from autodiff, which does not see a jump of ℓ or h: that of hinge and absolute loss is zero wherever it is
taken. What the mean force feels is not zero: E∇ℓ has the density of samples at the jump times its size, by Gaussian
integration by parts E[ℓ w]/E[w²]. At the start w may be zero for all samples, so it is measured as the change of the
mean force over an interval as long as pre-activations will reach, less the integral of the slopes that autodiff sees.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..problem import Problem, fields
from ..problem.data import Iid, Table
from ..problem.problem import draws_at_start
from ..problem.schedules import course
from .pace import moving_of

COUNT = 1024  # samples whose slopes at the start are looked at
TIMES = 9  # at which they are looked at, besides the one at which the schedule is fastest
REACHES = (0.55, 1.1, 2.2)
"""Half intervals over which the mean force is looked at, in units of what pre-activations and labels reach; no jump of
a hinge, at y r = 1, lies on their ends."""
CELLS, HALVINGS = 64, 60
NEGLIGIBLE = 0.05  # share from which on what autodiff does not see counts: less may be an error of the integral
IID = Iid().table()
Field = Callable[[jax.Array], jax.Array]
"""Of points (samples, m), with the samples last."""


class Curvature(NamedTuple):
    """The largest curvature of the training loss and the largest slope of h, from the start and over all times; E∇ℓ and
    E∇h at t = 0, (m, m)."""

    data: float
    penalty: float
    slopes: tuple[np.ndarray, np.ndarray]


@jax.jit
def _slopes(problem: Problem, w: jax.Array, z: jax.Array, times: jax.Array) -> tuple[jax.Array, jax.Array]:
    """∇ℓ and ∇h of samples at the start, (times, m, m, samples), with what jumps add to the mean."""
    m, start = problem.width, w[:, : problem.width]
    y = jax.vmap(lambda b, c: fields.label(problem, b, c))(w[:, m:], z)
    size = jnp.sqrt(jnp.max(jnp.mean(jnp.column_stack([w, jnp.nan_to_num(y)]) ** 2, axis=0)))
    reaches = jnp.where(size > 0, size, 1.0) * jnp.array(REACHES)

    def at(t: jax.Array) -> tuple[jax.Array, jax.Array]:
        def of_samples(field: Callable[..., jax.Array]) -> Field:
            return lambda v: jax.vmap(lambda *one: field(problem, t, *one), out_axes=-1)(v, w[:, m:], z)

        def of_weights(field: Callable[..., jax.Array]) -> Field:
            return lambda v: jax.vmap(lambda one: field(problem, t, one), out_axes=-1)(v)

        def seen(pull: Field, slopes: Field, smooth: bool) -> jax.Array:
            return slopes(start) + (0.0 if smooth else _unseen(pull, slopes, start, reaches)[:, :, None])

        data = seen(of_samples(fields.force), of_samples(fields.force_r), problem.loss.smooth)
        return data, seen(of_weights(fields.drift), of_weights(fields.drift_theta), problem.penalty.smooth)

    return jax.lax.map(at, times)


def _unseen(pull: Field, slopes: Field, start: jax.Array, reaches: jax.Array) -> jax.Array:
    """Mean slope that jumps make and autodiff does not see, (m, m): the largest over the intervals.

    pull, slopes: from points (samples, m) to (m, samples) and (m, m, samples).
    """

    def over(reach: jax.Array) -> jax.Array:
        def along(a: jax.Array) -> jax.Array:
            moved = lambda x: start + x * jnp.eye(start.shape[1])[a]  # noqa: E731
            x = jnp.linspace(-reach, reach, CELLS + 1)
            seen = jax.lax.map(lambda x: jnp.mean(slopes(moved(x))[:, a], axis=-1), x)  # (CELLS + 1, m)
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

    √d x has means[c, ·] along the unit vectors a_j/√d, and 1 as its constant feature.
    """
    v = np.ones((int(problem.bias), len(z)))
    if problem.data.classes is not None:
        v = np.concatenate([v, np.asarray(problem.data.classes.means, dtype=float)[z.astype(int)].T])
    J = np.abs(np.nan_to_num(curvatures))
    return float(np.max(np.linalg.eigvalsh((v * J) @ v.T / len(z)), initial=0.0))


def start_samples(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(w_0, w*) and z of as many samples as `curvature` looks at."""
    return draws_at_start(problem, COUNT)


def curvature(problem: Problem, t_max: float, w: np.ndarray, z: np.ndarray, top: float | None = None) -> Curvature:
    """Curvatures of samples at the start, where the schedule is fastest too; `top`: largest eigenvalue of own data."""
    times = np.linspace(0.0, t_max, TIMES)
    for item in moving_of(problem):
        t, s, _ = course(*item, t_max)
        times = np.append(times, t[np.argmax(np.abs(s))])
    with jax.enable_x64(True):
        both = [np.asarray(part) for part in _slopes(problem, w, z, times)]
    pulls = [_largest(part) for part in both]
    if top is None:
        every = [here for i, here in enumerate(pulls[0]) if i == 0 or not np.array_equal(here, pulls[0][0])]
        data = max(edge(here, float(problem.sample_ratio), problem.data.table()) for here in every)
        data += max(spike(problem, here, z) for here in every)
    else:
        data = top * float(np.max(pulls[0]))
    return Curvature(data, float(np.max(pulls[1])), (both[0][0].mean(axis=-1), both[1][0].mean(axis=-1)))


def _largest(slopes: np.ndarray) -> np.ndarray:
    """Largest eigenvalue, by size, of the symmetric part of every slope, (times, samples)."""
    symmetric = (slopes + slopes.swapaxes(1, 2)) / 2
    return np.max(np.abs(np.linalg.eigvalsh(np.moveaxis(np.nan_to_num(symmetric), -1, 1))), axis=-1)


@jax.jit
def _stiffness(problem: Problem, t: float, theta: np.ndarray) -> jax.Array:
    """∇h at every θ, (N, m, m)."""
    return jax.vmap(lambda v: fields.drift_theta(problem, t, v))(theta)


def stiff_words(problem: Problem, stable: float, step: float, size: float) -> str:
    """Where the penalty alone makes a step unstable for weights up to `size`: which step would be stable; else ''."""
    theta = np.linspace(-size, size, 33)[:, None] * np.ones(problem.width)
    with jax.enable_x64(True):
        slope = float(np.max(np.abs(np.nan_to_num(np.asarray(_stiffness(problem, 0.0, theta))))))
    if step * slope <= stable:
        return ""
    return f"; the penalty's slope {slope:.3g} is stable up to steps of {stable / slope:.3g}, dt = {step:.3g} is above"
