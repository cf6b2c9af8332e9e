"""What training adds to infinite data: parts of a step, parameters that all samples share, averages of the iterates.

All of it moves by averages over fresh samples, or linearly with a coordinate of the weights. What is carried of a
coordinate is therefore a row of blocks of m numbers: θ, its velocity where there is a friction, every average of the
iterates, θ⁰ where a rate asks for the distance. `flow` moves the blocks, be they particles, second moments, or numbers
that all samples share, since it is linear in them.

With a squared length of rows of mean S = Σ p_q s_q, the gradient of one sample has the squared length |ℓ|²S and that of
a batch Σ|ℓ|²S/B², of the sample itself and B − 1 partners.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Array, Scalar, Tree
from ..algorithms import Algorithm, IterateAverage, RunningMean
from ..algorithms.rates import ByCoordinate, Seen
from ..measure.averages import Nodes, Pull, pull_by, pull_of, samples
from ..problem import Problem, fields, trained
from ..problem.mixture import Place
from ..problem.sequences import unmixed

WEIGHTS, VELOCITY, START = "weights", "velocity", "start"
INTERCEPT = "intercept"  # name of β among what all samples share
NEAR = 0.3
"""Within this time of its start a running mean is a small integral over a small time: steps end where it is asked for,
so that the integral has its own relative error."""
Averages = dict[str, IterateAverage]
Numbers = dict[str, Any]
NONE: Numbers = {}


def block_of(average: str) -> str:
    """The block of an average of the iterates; no name of another is like it."""
    return f"average {average}"


def blocks(algorithm: Algorithm, averages: Averages) -> tuple[str, ...]:
    """What is carried of every coordinate, in this order."""
    how = algorithm.how
    velocity = (VELOCITY,) if how.friction is not None else ()
    start = (START,) if how.rate is not None and "distance" in how.rate.needs else ()
    return (WEIGHTS, *velocity, *map(block_of, averages), *start)


def begins(algorithm: Algorithm, averages: Averages) -> np.ndarray:
    """1 for blocks that begin as θ⁰, 0 for those that begin at zero: velocities, and integrals of running means."""
    zero = {VELOCITY, *(block_of(name) for name, average in averages.items() if isinstance(average, RunningMean))}
    return np.array([float(name not in zero) for name in blocks(algorithm, averages)])


class Beside(NamedTuple):
    """Numbers that move with the weights."""

    shared: dict[str, Numbers]
    """By block and by name: trained parameters, and the intercept (m,)."""
    rule: Numbers
    """State of the rate."""
    squares: Numbers
    """Where every coordinate has its own rate, {"window": ∫e^{−(t−s)/w} E ℓ_a² ds/w}, (m,)."""


def beside(problem: Problem, algorithm: Algorithm, averages: Averages) -> Beside:
    """Where they start: parameters at rest, and so their averages."""
    how, m = algorithm.how, problem.width
    start = dict(trained.starts(problem)) | ({INTERCEPT: jnp.zeros(m)} if problem.bias else {})
    still = jax.tree.map(jnp.zeros_like, start)
    both = zip(blocks(algorithm, averages), begins(algorithm, averages), strict=True)
    held = {name: start if begun else still for name, begun in both if name != START}
    rule = {} if how.rate is None else how.rate.start()
    by_coordinate = how.rate is not None and how.rate.by_coordinate
    return Beside(held, rule, {"window": jnp.zeros(m)} if by_coordinate else {})


class Felt(NamedTuple):
    """What the weights feel at one time, and what moves beside them; parts that are None change nothing."""

    pull: Pull
    """With schedule, clipping and rate; times `gain` where every coordinate has its own rate."""
    shared: Numbers
    """What pulls at parameters that all samples share, by name."""
    penalty: Scalar | None = None
    """What multiplies the penalty beside its schedule."""
    gain: Array | None = None
    """(g, m), on pull and penalty alike."""
    noise: Array | None = None
    """Variance of the noise that the step adds per unit of time: a number, or (g, m)."""
    decay: Scalar | None = None
    """Decoupled, with the schedule."""
    rule: Numbers = NONE
    """Time derivative of the state of the rate."""
    settled: Numbers = NONE
    """The state of the rate as a step of no length leaves it: a running maximum jumps up to what it sees."""
    squares: Numbers = NONE
    """Time derivative of the running mean of squares."""


class Known(NamedTuple):
    """What is known of the weights of a replica: second moments of fresh pre-activations, w and w*, and of the weights
    over all coordinates; where the classes are; the shares and variances of groups, (g,)."""

    w: Array
    w_star: Array
    at: Place
    norm: Array
    """Of all blocks, (blocks·m, blocks·m)."""
    overlap: Array
    """(m, k)."""
    share: Array | np.ndarray
    variance: Array | np.ndarray


def feel(problem: Problem, algorithm: Algorithm, nodes: Nodes, t: jax.Array | float, known: Known, own: Beside) -> Felt:
    """What the weights feel; of a problem and an algorithm without parts it is `pull_of` alone."""
    how = algorithm.how
    values = {name: own.shared[WEIGHTS][name] for name in trained.trained_of(problem)}
    now = trained.at(problem, values)
    if how.clip is None and how.rate is None and not values:
        pull, boost = pull_of(now, nodes, t, known.w, known.w_star, known.at), None
        if how.momentum is not None and how.momentum.beta is not None:
            boost = jnp.asarray(how.boost)
            pull = scaled(pull, boost)
        felt = Felt(pull, _level(pull), boost)
    else:
        felt = _by_samples(problem, now, values, algorithm, nodes, t, known, own)
    pace = jnp.asarray(now.schedule(t))
    if (decay := how.decayed) is not None:
        felt = felt._replace(decay=pace * decay)
    if how.noisy and felt.noise is None:
        felt = felt._replace(noise=how.noise(pace * (1.0 if felt.penalty is None else felt.penalty)) ** 2)
    return felt


def _level(pull: Pull) -> Numbers:
    return {} if pull.push.level is None else {INTERCEPT: pull.push.level}


def scaled(pull: Pull, by: jax.Array) -> Pull:
    """That of forces which are multiplied by one number."""
    push = jax.tree.map(lambda part: by * part, pull.push)
    return Pull(by * pull.gamma, by * pull.both, pull.along, by**2 * pull.square, push)


def _by_samples(
    problem: Problem, now: Problem, values: Numbers, algorithm: Algorithm, nodes: Nodes, t: Scalar, known: Known,
    own: Beside,
) -> Felt:  # fmt: skip
    """From the gradient of every sample, without the schedule, and what shortens it."""
    how, clip, rate = algorithm.how, algorithm.how.clip, algorithm.how.rate
    read = tuple(map(jnp.asarray, samples(now, nodes, known.w, known.w_star, known.at).read))
    every: Any = lambda fn: jax.vmap(fn)(*read, nodes.z)  # noqa: E731
    raw = every(partial(fields.pull, now, t))
    by_row = raw if problem.rows == 1 else jax.vmap(partial(unmixed, problem))(raw)
    length, beyond = known.share @ known.variance, tuple(range(1, raw.ndim))
    squared, shortened, used = length * jnp.sum(by_row**2, axis=beyond), jnp.ones(len(raw)), 1
    if algorithm.rows:
        used = algorithm.used(t)
    if clip is not None and clip.per == "sample":
        shortened = clip.factor(squared)
        squared = shortened**2 * squared
    of_batch = squared / used  # |G|², as far as one sample tells: its mean is that of the batch
    if how.by_batch:
        of_batch = over_batches(jnp.asarray(squared), used) / used**2
        if clip is not None and clip.per == "batch":
            factor = clip.factor(of_batch)
            shortened, of_batch = factor * shortened, factor**2 * of_batch
    felt, noise, average = {}, None, 1.0
    pace = jnp.asarray(now.schedule(t) * how.boost)
    if rate is not None:
        seen = _seen(problem, algorithm, t, nodes.mean((of_batch, squared)), known)
        losses = every(partial(fields.loss, now)) if "train_loss" in rate.needs else jnp.zeros(len(raw))
        if rate.by_batch:
            loss = over_batches(losses, used) / used
            factor = rate.factor(own.rule, seen._replace(gradient=of_batch, train_loss=loss))
            shortened, (average, squares) = factor * shortened, nodes.mean((factor, factor**2))
            noise = how.noise(pace * jnp.sqrt(squares)) ** 2 if how.noisy else None
        else:
            seen = seen._replace(train_loss=nodes.mean(losses))
            average = rate.factor(own.rule, seen)
            pace = pace * average
        felt = {"settled": rate.after(own.rule, seen, 0.0), "rule": _derivative(rate.after, own.rule, seen)}
        if isinstance(rate, ByCoordinate):
            here = nodes.mean((_wide(shortened, raw) * by_row) ** 2)
            here = here if problem.rows == 1 else jnp.sum(here, axis=0)
            felt |= _by_coordinate(algorithm, rate, t, pace, used, own.squares["window"], here, known, problem)
            noise = felt.get("noise")
    pull = pull_by(now, nodes, pace * _wide(shortened, raw) * raw, known.w, known.w_star, known.at)
    shared = _level(pull)
    if values:
        slopes = every(lambda *sample: trained.slopes(problem, values, *sample))
        weighed = nodes._replace(weights=shortened * nodes.weights)
        shared |= jax.tree.map(lambda part: pace * part, weighed.mean(slopes))
    return Felt(pull, shared, how.boost * average, noise=felt.pop("noise", noise), **felt)


def _wide(numbers: Array, like: Array) -> Array:
    """Numbers of points, (N,), with as many axes as what they multiply."""
    return numbers.reshape(-1, *[1] * (like.ndim - 1))


def _seen(problem: Problem, algorithm: Algorithm, t: Scalar, gradients: tuple[Scalar, Scalar], known: Known) -> Seen:
    """What a rate sees of a step; the training loss apart."""
    m = len(known.w)
    norm, distance = known.norm[:m, :m], jnp.zeros(())
    assert algorithm.how.rate is not None
    if "distance" in algorithm.how.rate.needs:
        distance = jnp.trace(norm - 2 * known.norm[:m, -m:] + known.norm[-m:, -m:])
    return Seen(t, algorithm.pace, *gradients, norm=norm, overlap=known.overlap[:, : problem.read], distance=distance)


def _derivative(after: Callable[..., Numbers], state: Numbers, seen: Seen) -> Numbers:
    """By what the state moves per unit of time."""
    return jax.jvp(lambda dt: after(state, seen, dt), (0.0,), (1.0,))[1]


def _by_coordinate(
    algorithm: Algorithm, rate: ByCoordinate, t: Scalar, pace: Scalar, used: Scalar, window: Array, here: Array,
    known: Known, problem: Problem,
) -> dict[str, Any]:  # fmt: skip
    """scale/√v̂ of every group and unit, v = s_q E ℓ_a²/B and what noise of the gradient adds to it, since it began.

    A coordinate that no gradient reaches stays. Along other directions than those of the groups every coordinate has
    the mean variance.
    """
    how, length = algorithm.how, known.share @ known.variance
    past = -jnp.expm1(-t / rate.window)
    mean = jnp.where(past > 0, window / jnp.where(past > 0, past, 1.0), here)
    variance = jnp.full_like(known.variance, length) if problem.data.rotated else known.variance
    v = jnp.asarray(variance)[:, None] * mean / used
    if how.gradient_noise is not None:
        v = v + how.gradient_noise**2 / algorithm.pace
    gain = rate.gain(v)
    found: dict[str, Any] = {"gain": gain, "squares": {"window": (here - window) / rate.window}}
    return found | ({"noise": how.noise(pace * gain) ** 2} if how.noisy else {})


@cache
def _order(count: int) -> tuple[np.ndarray, np.ndarray]:
    """A fixed random order of so many points, and its inverse."""
    order = np.random.default_rng(count).permutation(count)
    return order, np.argsort(order)


def over_batches(x: Array, used: Scalar) -> Array:
    """Sums over batches: of every point's number, (N,), and of those of the `used` − 1 that follow it in a random
    order. More of them than there are points count as their mean."""
    count = len(x)
    order, back = _order(count)
    reach = jnp.minimum(used, count).astype(int)
    total = jnp.concatenate([jnp.zeros(1, x.dtype), jnp.cumsum(jnp.tile(x[order], 2))])
    partners = (total[jnp.arange(1, count + 1) + reach - 1] - total[1 : count + 1])[back]
    return x + partners * ((used - 1) / jnp.maximum(reach - 1, 1))


def flow(algorithm: Algorithm, averages: Averages, t: Scalar, held: Mapping[str, Tree], pull: Tree) -> dict[str, Tree]:
    """Time derivative of every block, given what pulls at the weights; of particles, moments or shared numbers."""
    friction = algorithm.how.friction

    def along(fn: Callable[..., Array], *parts: Tree) -> Tree:
        return jax.tree.map(fn, *parts)

    found: dict[str, Tree] = {}
    if friction is None:
        found[WEIGHTS] = along(lambda p: -p, pull)
    else:
        found[WEIGHTS] = held[VELOCITY]
        found[VELOCITY] = along(lambda v, p: -friction * v - p, held[VELOCITY], pull)
    for name, average in averages.items():
        block = block_of(name)
        if isinstance(average, RunningMean):  # ∫θ from its start, since a mean over no time would divide by zero
            found[block] = along(lambda x, on=t >= average.start: jnp.where(on, x, 0.0), held[WEIGHTS])
        else:
            pace = jax.jvp(partial(average.share, t), (0.0,), (1.0,))[1]
            found[block] = along(lambda x, past, pace=pace: pace * (x - past), held[WEIGHTS], held[block])
    if START in held:
        found[START] = along(jnp.zeros_like, held[START])
    return found


def flow_beside(algorithm: Algorithm, averages: Averages, t: Scalar, felt: Felt, own: Beside) -> Beside:
    """Time derivative of all that moves with the weights."""
    return Beside(flow(algorithm, averages, t, own.shared, felt.shared), felt.rule, felt.squares)


def averaged(average: IterateAverage, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where an average is its block, times a factor, and where it is the weights themselves: both by time."""
    since = t - average.start if isinstance(average, RunningMean) else np.ones_like(t)
    return np.divide(1.0, since, out=np.zeros_like(since), where=since > 0), np.where(since > 0, 0.0, 1.0)


def knots_of_averages(averages: Averages) -> np.ndarray:
    """Times at which running means begin, and just before: what begins there is not felt earlier."""
    starts = np.array([a.start for a in averages.values() if isinstance(a, RunningMean) and a.start > 0])
    return np.unique(np.concatenate([starts * (1 - 1e-10), starts]))


def stops_of_averages(averages: Averages, t: np.ndarray) -> np.ndarray:
    """Recorded times soon after a running mean begins."""
    starts = [a.start for a in averages.values() if isinstance(a, RunningMean)]
    return np.unique(np.concatenate([np.zeros(0), *(t[(t > start) & (t <= start + NEAR)] for start in starts)]))
