"""Averages over (w, w*, z): one fresh sample's pre-activations and label noise, given the second moments of θ.

Evenly spread points, weighted so that all first and second moments are exact (control variates) and independent in
each replica, so that the spread over replicas is an honest standard error. Moments of z that is rarely large, or
drawn by a sampler of the user's, are left as they come: what grows less than z² does not follow them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from scipy.special import ndtri

from .._fingerprint import Snapshot
from .._linalg import root, root_of
from .._random import keys
from ..problem import Normal, Problem, fields, observables, trained
from ..problem.laws import EntryLaw
from ..problem.mixture import NOWHERE, Place, Push, moved, push
from ..problem.sequences import as_lines, as_rows, unmixed
from ..results.metrics import at as at_values

Array = jax.Array | np.ndarray
Metric = tuple[str, Callable[..., jax.Array]]  # a name and ψ(w, w*, z)
Tree = TypeVar("Tree")


class Nodes(NamedTuple):
    """Points that averages are taken over: (N, m+k) normals, or (N, L, m+k) of samples with L rows, (N,) z and weights
    that sum to 1, under which the former are standard; of the teacher's second moments E w*w*ᵀ the root, w* = root ·
    normals, and the pseudo-inverse."""

    normals: Array
    z: Array
    weights: Array
    teacher_root: Array
    teacher_inverse: Array

    @classmethod
    def of(cls, normals: np.ndarray, z: np.ndarray, teacher: np.ndarray, weights: np.ndarray | None = None) -> "Nodes":
        """Points (replicas, N, m+k) and (replicas, N), of equal weight by default; second moments of the teacher."""
        weights = np.full(z.shape, 1 / z.shape[1]) if weights is None else weights
        return cls(normals, z, weights, root_of(teacher), np.linalg.pinv(teacher, hermitian=True))

    def part(self, span: slice) -> "Nodes":
        """Those of the points of all replicas that lie within a slice of them."""
        return self._replace(normals=self.normals[:, span], z=self.z[..., span], weights=self.weights[..., span])

    def mean(self, values: Tree) -> Tree:
        """Averages of a tree of arrays (N, …) over the points."""
        return jax.tree.map(lambda v: jnp.einsum("n...,n->...", v, self.weights), values)

    def rounded(self) -> "Nodes":
        """The same with points in single precision."""
        normals, z, weights = (np.asarray(part, np.float32) for part in self[:3])
        return self._replace(normals=normals, z=z, weights=weights)


PER_REPLICA = Nodes(0, 0, 0, None, None)  # type: ignore[arg-type]
"""Which parts differ between replicas, for vmap."""
FEW = 4  # dimensions at most of `evenly`
BITS = 32
POLYNOMIALS = ((), (1,), (1, 3), (1, 3, 1))
"""First direction numbers of the dimensions after van der Corput's, by their primitive polynomials x + 1, x² + x + 1,
x³ + x + 1 (Joe and Kuo 2008)."""


def _directions(first: tuple[int, ...]) -> list[int]:
    """Direction numbers of one dimension of Sobol's points, as binary fractions of BITS digits."""
    numbers, degree = list(first) or [1] * BITS, len(first)
    for i in range(len(numbers), BITS):
        number = numbers[i - degree] ^ (numbers[i - degree] << degree)
        numbers.append(number ^ (numbers[i - degree + 1] << (degree - 1) if degree > 1 else 0))
    return [number << (BITS - 1 - i) for i, number in enumerate(numbers)]


def evenly(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Points spread evenly over the unit cube of at most FEW dimensions, (count, size), their digits shifted at random.

    Sobol's points: every dimension, and nearly every pair, has as many of 2^k points in equal cells. As even as
    `sobol`, without the second that its library takes to load.
    """
    directions = np.array([_directions(first) for first in POLYNOMIALS[:size]], dtype=np.uint64)
    index, digits = np.arange(count), np.zeros((count, size), dtype=np.uint64)
    for bit in range((count - 1).bit_length()):
        digits[(index >> bit) % 2 == 1] ^= directions[:, bit]
    digits ^= rng.integers(0, 2**BITS, size, dtype=np.uint64)
    return (digits + rng.random((count, size))) / 2.0**BITS


def sobol(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Scrambled Sobol points: better than `evenly` in many dimensions and for heavy tails."""
    from scipy.stats import qmc

    return qmc.Sobol(size, scramble=True, rng=rng).random(count)


def quickly(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """`evenly`, or `sobol` beyond two normals and a noise."""
    return (evenly if size <= FEW else sobol)(count, size, rng)


Spread = Callable[[int, int, np.random.Generator], np.ndarray]


def _points(
    samples: int, size: int, law: EntryLaw, seed: int, key: jax.Array, spread: Spread, units: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Even normals, draws of z, and weights near 1/N that make all first and second moments exact; of several rows,
    each of so many units, those between rows are left as they come."""
    uniform = np.clip(spread(samples, size + 2, np.random.default_rng(seed)), 1e-15, 1 - 1e-15)
    x, z = ndtri(uniform[:, :size]), law.spread_out(uniform[:, size:], key)
    first, second = np.zeros(size + 1), np.eye(size + 1)
    first[-1], second[-1, -1] = (moment.item() for moment in law.moments(1))
    both = np.column_stack([x, z])
    pairs = np.triu_indices(size + 1)
    if units < size:
        within = (pairs[0] // units == pairs[1] // units) | (pairs[1] == size)
        pairs = pairs[0][within], pairs[1][within]
    monomials = np.column_stack([np.ones(samples), both, both[:, pairs[0]] * both[:, pairs[1]]])
    target = np.concatenate([[1.0], first, second[pairs]])
    if not law.quantiles or law.rarest < 1:  # heavy or rare z: what it has too much tells little of other averages
        known = np.concatenate([[True], np.arange(size + 1) < size, pairs[1] < size])
        monomials, target = monomials[:, known], target[known]
    # The smallest correction of equal weights that meets the targets: the regression estimator of control variates.
    missing = target - monomials.mean(axis=0)
    correction = monomials @ np.linalg.lstsq(monomials.T @ monomials / samples, missing, rcond=1e-12)[0]
    return x, z, (1 + correction) / samples


def _given_teacher(problem: Problem, nodes: Nodes, Q: jax.Array, c: jax.Array, at: Place) -> tuple[Array, Array, Array]:
    """w* (N, k), the mean of w given w* (N, m) with what moves its class, and the root of its covariance (m, m); w* and
    mean of samples with L rows are (N, L, ·)."""
    m, dtype = Q.shape[0], nodes.normals.dtype
    w_star = nodes.normals[..., m:] @ nodes.teacher_root.T.astype(dtype)
    slope = c @ nodes.teacher_inverse
    known, z = jnp.asarray(w_star @ slope.T.astype(dtype)), jnp.asarray(nodes.z)
    lines = known.T if problem.rows == 1 else known.transpose(2, 1, 0).reshape(m, -1)
    mean = moved(problem, at, z, lines).T
    if problem.rows > 1:
        mean = mean.reshape(problem.rows, -1, m).swapaxes(0, 1)
    return w_star, mean, root(Q - slope @ c.T).T.astype(dtype)


def average(problem: Problem, nodes: Nodes, Q: jax.Array, c: jax.Array, at: Place, fn: Callable[..., Tree]) -> Tree:
    """E fn(r, r*, z) of what functions read of w and w*, jointly Gaussian with E wwᵀ = Q, E ww*ᵀ = c.

    fn returns a tree of arrays.
    """
    return nodes.mean(jax.vmap(fn)(*samples(problem, nodes, Q, c, at).read, nodes.z))


class Points(NamedTuple):
    """Of every point: w with what moves its class, and w*, (N, m) and (N, k), or (N, L, ·) of independent rows; and the
    two as functions of one sample read them."""

    w: Array
    w_star: Array
    read: tuple[Array, Array]


def samples(problem: Problem, nodes: Nodes, Q: jax.Array, c: jax.Array, at: Place) -> Points:
    """Return w and w* of every point, and what functions of a sample read of them."""
    w_star, mean, spread = _given_teacher(problem, nodes, Q, c, at)
    w = mean + nodes.normals[..., : Q.shape[0]] @ spread
    return Points(w, w_star, (as_rows(problem, w), as_rows(problem, w_star[..., : problem.read])))


def _wrong_sign(problem: Problem, nodes: Nodes, Q: jax.Array, c: jax.Array, at: Place) -> jax.Array:
    """P(w y < 0) by its value given w* and z, Φ(−mean sign(y)/spread): smooth in Q and c, where counting jumps."""
    w_star, mean, spread = _given_teacher(problem, nodes, Q, c, at)
    y = jax.vmap(lambda b, z: fields.label(problem, b, z))(w_star, nodes.z)
    score, size = mean[:, 0] * jnp.sign(y), spread[0, 0]
    wrong = jnp.where(size > 0, ndtr(-score / jnp.where(size > 0, size, 1.0)), 0.5 * (1 - jnp.sign(score)))
    return wrong @ nodes.weights


TIMES_AT_ONCE, NODES_AT_ONCE, NODES_ON_DEVICE = 16, 512, 8192
"""Averages are taken in pieces of one size, so that another number of times or points need not compile anew; larger
ones on a GPU, where each call costs more than its points."""


@partial(jax.jit, static_argnames="metrics")
def _some(
    problem: Problem, nodes: Nodes, Q: jax.Array, c: jax.Array, at: Place, metrics: Snapshot
) -> dict[str, jax.Array]:
    """What some points add to every observable at some times, (times, replicas)."""

    def one(nodes: Nodes, Q: jax.Array, c: jax.Array, at: Place) -> dict[str, jax.Array]:
        shared = at.shared or {}
        chosen = observables.on_samples(trained.at(problem, shared)) | at_values(metrics.value, shared)
        every = lambda r, s, z: {name: jnp.asarray(fn(r, s, z)) for name, fn in chosen.items()}  # noqa: E731
        out = average(problem, nodes, Q, c, at, every)
        return out | {"error": _wrong_sign(problem, nodes, Q, c, at)} if observables.sign_of_score(problem) else out

    return jax.lax.map(lambda moments: jax.vmap(one, in_axes=(PER_REPLICA, 0, 0, 0))(nodes, *moments), (Q, c, at))


def _sums(problem: Problem, nodes: Nodes, Q: Array, c: Array, at: Place, metrics: Snapshot) -> dict[str, np.ndarray]:
    """Averages over all points at all times, piece by piece; the last time fills up the last piece."""
    many = NODES_AT_ONCE if jax.default_backend() == "cpu" else NODES_ON_DEVICE
    pieces = [nodes.part(slice(first, first + many)) for first in range(0, nodes.z.shape[1], many)]
    spans = [np.minimum(first + np.arange(TIMES_AT_ONCE), len(Q) - 1) for first in range(0, len(Q), TIMES_AT_ONCE)]
    moments = [jax.tree.map(lambda part, here=span: part[here], (Q, c, at)) for span in spans]
    parts = [[_some(problem, piece, *here, metrics) for piece in pieces] for here in moments]
    return {
        name: np.concatenate([sum(np.asarray(piece[name], np.float64) for piece in part) for part in parts])[: len(Q)]
        for name in parts[0][0]
    }


def observe(
    problem: Problem, nodes: Nodes, Q: Array, c: Array, metrics: Iterable[Metric] = (), at: Place = NOWHERE
) -> dict[str, np.ndarray]:
    """Every observable, (times, replicas), at second moments Q, c of the weights, (times, replicas, m, ·).

    `at`: where the classes of a mixture and the intercept are, with the same leading axes. `metrics` are further pairs
    (name, ψ(w, w*, z)). Where the error has a closed form, that is used.
    """
    Q, c, at = jax.tree.map(np.asarray, (Q, c, at))
    # metrics as they are now: what they read from outside is compiled in
    found = _sums(problem, nodes, Q, c, at, Snapshot(tuple(metrics))) if len(Q) else {}
    teacher, along = np.asarray(nodes.teacher_root, np.float64), np.sum(c[..., 0, :], axis=-1)
    size = np.sum(teacher @ teacher.T)
    if observables.sign_of_gaussian(problem) and isinstance(problem.noise, Normal):
        # P(w (w* + z) < 0) for jointly Gaussian w and w* + z; a half where w = 0.
        length = np.sqrt(np.clip(Q[..., 0, 0], 0.0, None))
        width = np.where(length > 0, length, 1.0) * np.sqrt(size + float(problem.noise.scale) ** 2)
        found["error"] = np.where(length > 0, np.arccos(np.clip(along / width, -1.0, 1.0)) / np.pi, 0.5)
    if observables.square_of_sum(problem):
        # E (w + β − Σw* − z)², z independent of w and w*: whatever its law, the moments of z are all that is needed.
        first, second = (moment.item() for moment in problem.noise_law.moments(1))
        level = 0.0 if at.intercept is None else at.intercept[..., 0]
        found["error"] = Q[..., 0, 0] - 2 * along + size + (level - first) ** 2 + second - first**2
    return found


ALONG = 1e-14  # part of E w² that is rounding: below it w is a multiple of w*


class Pull(NamedTuple):
    """What infinite data do to weights, −(both θ* + Γ(θ − Bθ*)) with w = Bw* + w⊥: Γ = E∇ℓ, (m, m), both = Γ* + ΓB and
    along = B, (m, k); C_ℓ = E[ℓ ℓᵀ], (m, m), of their noise, and what moves the classes."""

    gamma: jax.Array
    both: jax.Array
    along: jax.Array
    square: jax.Array
    push: Push


def pull_of(problem: Problem, nodes: Nodes, t: jax.Array | float, Q: jax.Array, c: jax.Array, at: Place) -> Pull:
    """By Gaussian integration by parts, from averages of ℓ alone: Γ E[w⊥w⊥ᵀ] = E[ℓ w⊥ᵀ], (Γ* + ΓB) E[w*w*ᵀ] = E[ℓ w*ᵀ].

    They are smooth also where ℓ jumps, whose derivative autodiff would miss. Γ acts on θ − Bθ* alone, which vanishes
    with w⊥.
    """

    points = samples(problem, nodes, Q, c, at)

    def products(r: Any, r_star: Any, z: Any, w: Array, w_star: Array) -> Products:
        return _products(problem, fields.force(problem, t, r, r_star, z), w, w_star, z)

    return _pulled(nodes, Q, c, at, nodes.mean(jax.vmap(products)(*points.read, nodes.z, *points[:2])))


def pull_by(problem: Problem, nodes: Nodes, force: Array, Q: jax.Array, c: jax.Array, at: Place) -> Pull:
    """The same where the forces of all points are known, (N, m) or (N, L, m)."""
    values = jax.vmap(partial(_products, problem))(force, *samples(problem, nodes, Q, c, at)[:2], nodes.z)
    return _pulled(nodes, Q, c, at, nodes.mean(values))


Products = tuple[jax.Array, jax.Array, jax.Array, Push]  # ℓ wᵀ, ℓ w*ᵀ, ℓ ℓᵀ, and what moves the classes


def _products(problem: Problem, ell: Array, w: Array, w_star: Array, z: Array) -> Products:
    """Of one point; over its rows they add up."""
    ell, w, w_star, z = map(jnp.asarray, (ell, w, w_star, z))
    if problem.rows > 1:
        own = unmixed(problem, ell)
        return own.T @ w, own.T @ w_star, own.T @ own, push(problem, z[None], as_lines(problem, ell[..., None]))
    return jnp.outer(ell, w), jnp.outer(ell, w_star), jnp.outer(ell, ell), push(problem, z[None], ell[:, None])


def _pulled(nodes: Nodes, Q: jax.Array, c: jax.Array, at: Place, means: Products) -> Pull:
    """The pull that averages of these products tell."""
    with_w, with_star, square, pushed = means
    if at.overlap is not None and pushed.means is not None:  # E[ℓ wᵀ] = E[ℓ rᵀ] − E[ℓ (b_c + β)ᵀ]
        with_w = with_w - pushed.means @ at.overlap.T
    if at.intercept is not None and pushed.level is not None:
        with_w = with_w - jnp.outer(pushed.level, at.intercept)
    along = c @ nodes.teacher_inverse
    size, axes = jnp.linalg.eigh(Q - along @ c.T)
    inverse = (axes / jnp.where(size > ALONG * jnp.trace(Q), size, jnp.inf)) @ axes.T
    gamma = (with_w - with_star @ along.T) @ inverse
    return Pull(gamma, with_star @ nodes.teacher_inverse, along, square, pushed)


def make_nodes(
    problem: Problem, samples: int, replicas: int, seed: int, spread: Spread = sobol, teacher: np.ndarray | None = None
) -> Nodes:
    """Independent points for every replica; a law without quantile function draws them.

    teacher: second moments of w*, where samples have another law than the problem's.
    """
    m, k = problem.width, problem.k
    teacher = problem.sample_gram()[m:, m:] if teacher is None else teacher
    own = enumerate(keys(seed, replicas))
    size = problem.rows * (m + k)
    points = [_points(samples, size, problem.noise_law, seed * 1_000_003 + i, key, spread, m + k) for i, key in own]
    normals, z, weights = (np.stack(part) for part in zip(*points, strict=True))
    if problem.rows > 1:
        normals = normals.reshape(*normals.shape[:2], problem.rows, m + k)
    return Nodes(*map(jnp.asarray, Nodes.of(normals, z, teacher, weights)))
