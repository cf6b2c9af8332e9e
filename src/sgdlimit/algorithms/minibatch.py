"""SGD with small batches: fresh draws, and reshuffled epochs."""

import math
from dataclasses import field
from functools import partial
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp

from .._random import even, normal
from .._tree import model, settle, static
from .._types import Array, Key, Scalar, Tree
from ..errors import real, reject, whole
from ..problem import Constant, Problem, fields
from ..problem.schedules import ScheduleLike
from .base import TEMPERATURE, Algorithm, Updated, settle_share, settle_step
from .samples import Batch, Data, Weights, drifts, flat
from .step import Step
from .training import gradients, leans, mean_loss, rated, renewed, stepped

FLOYD_LIMIT = 1024
"""Batch size up to which Floyd's sampling (B² comparisons) is used; beyond it, n random numbers are sorted."""


class MiniBatch(Algorithm):
    """An algorithm whose update is a step of size η = τB on B samples (`eq:sgd_planted`)."""

    temperature: float
    batch_size: int
    noise_temperature = property(attrgetter("temperature"))
    rows = property(attrgetter("batch_size"))
    jumps = True

    def _settle(self, temperature: Any, batch_size: Any, learning_rate: Any) -> None:
        """Check and store B, and τ from whichever of τ and η = τB was given."""
        name = type(self).__name__
        batch_size = whole(f"{name}.batch_size", batch_size, least=1, why="B must be a whole number ≥ 1")
        if (temperature is None) == (learning_rate is None):
            given = "neither" if temperature is None else f"temperature {temperature} and learning_rate {learning_rate}"
            raise reject(f"{name}.temperature", given, "give either τ, or learning_rate = τ·batch_size")
        if learning_rate is not None:
            rate = real(f"{name}.learning_rate", learning_rate, least=0, why="η must be a number ≥ 0")
            temperature = rate / batch_size
        temperature = real(f"{name}.temperature", temperature, least=0, why=TEMPERATURE)
        settle(self, temperature=temperature, batch_size=batch_size)
        settle_share(self)
        settle_step(self)

    @property
    def learning_rate(self) -> float:
        """η = τB, the step of one update."""
        return self.temperature * self.batch_size

    def step_time(self, dim: int, dt: float) -> float:
        """The time η/d that one update advances."""
        return float(self.temperature) * self.batch_size / dim

    def update(self, data: Data, weights: Weights, state: Tree, t: Scalar, dt: Scalar, draw: Tree, key: Key) -> Updated:
        """θ − η(h/d + Σ_{i∈B} x_i ℓ_iᵀ/B), `eq:sgd_planted`, and what the parts of a step make of it.

        Of a batch that is used in part, the first B(t) rows count.
        """
        batch, problem, how = data.batch(draw, key), data.problem, self.how
        found, count = gradients(problem, how, t, weights, batch), self.batch_size
        if self.scheduled:
            count = self.used(t)
            found = found.kept(jnp.arange(self.batch_size) < count)
        mean = Weights(flat(batch.X).T @ flat(found.ell) / count, found.means(count))
        if not how.plain:
            return self._with_parts(data, weights, state, t, key, batch, mean)
        dim = len(weights.theta)
        gradient = drifts(problem, t, weights.theta) / dim + mean.theta
        theta = weights.theta - self.temperature * self.batch_size * gradient
        rate = self.temperature * self.batch_size / dim
        return Weights(theta, {name: value - rate * mean.shared[name] for name, value in weights.shared.items()}), state

    def _with_parts(
        self, data: Data, weights: Weights, parts: Tree, t: Scalar, key: Key, batch: Batch, mean: Weights
    ) -> Updated:
        """The update from a batch and the mean of its samples' gradients: clipped, rated, and followed by a step."""
        how, problem, dim = self.how, data.problem, len(weights.theta)
        dt = self.learning_rate / dim
        if how.clip is not None and how.clip.per == "batch":
            short = how.clip.factor(jnp.sum(mean.theta**2))
            mean = jax.tree.map(lambda v: short * v, mean)
        parts = renewed(data, how, t, weights, parts, dt, key)
        found = {"time": t, "learning_rate": self.learning_rate, "gradient": jnp.sum(mean.theta**2)}
        if how.rate is not None and how.rate.by_batch and "train_loss" in how.rate.needs:
            found["train_loss"] = mean_loss(problem, weights, batch)
        rho, parts = rated(how, data, weights, parts, dt, **found)
        drift = mean._replace(theta=dim * mean.theta + leans(problem, t, weights.theta))
        s = fields.factor(problem, t, weights.theta.dtype)
        return stepped(how, weights, parts, drift, rho, s, dt, key)

    def check_simulation(self, problem: Problem, samples: int) -> None:
        """τ > 0 and B ≤ n."""
        name = type(self).__name__
        if self.temperature == 0:
            raise reject(f"{name}.temperature", 0, "a learning rate of zero never moves; use sl.GradientFlow()")
        if not problem.infinite_data and self.batch_size > samples:
            why = f"it must be at most n = {samples}; lower it or raise dim"
            raise reject(f"{name}.batch_size", self.batch_size, why)


def without_replacement(key: Key, draws: int, samples: int, count: int) -> Array:
    """Independent uniform random subsets of {0, …, samples−1}, each of size `count`: (draws, count), in some order."""
    if count > FLOYD_LIMIT:
        return jax.lax.map(lambda k: jax.random.permutation(k, samples)[:count], jax.random.split(key, draws))
    # Floyd: for j = n−B … n−1 draw t ≤ j; take t, or j itself where t was taken before. The last is often the largest.
    last = samples - count + jnp.arange(count, dtype=jnp.int32)
    # The remainder of 32 random bits favours small numbers by at most n/2³², far below any sampling error.
    bits = jax.random.bits(key, (count, draws))
    picks = (bits % (last + 1).astype(jnp.uint32)[:, None]).astype(jnp.int32)

    def place(i: Array, chosen: Array) -> Array:
        taken = jnp.any(chosen == picks[i], axis=0)
        return chosen.at[i].set(jnp.where(taken, last[i], picks[i]))

    return jax.lax.fori_loop(0, count, place, jnp.full((count, draws), -1, dtype=jnp.int32)).T


def in_random_order(key: Key, draws: int, samples: int, count: int) -> Array:
    """The same subsets, each in a uniformly random order, so that its first b rows are a uniform subset of size b."""
    choice, order = jax.random.split(key)
    rows = without_replacement(choice, draws, samples, count)
    return jax.random.permutation(order, rows, axis=1, independent=True)


SMALL_RATE = 4.0  # a Poisson number of larger rate is the sum of several of at most this rate
LARGE_RATE = 256.0
"""From this rate on a Poisson number is a normal one bent to its skewness; then the fourth cumulant is off by 0.1 %."""
LARGEST = 24  # no Poisson number of a small rate is larger: the probability is below the resolution of a uniform number
LOG_FACTORIALS = tuple(math.lgamma(n + 1) for n in range(LARGEST))


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def poisson(rate: Scalar, key: Key, shape: tuple[int, ...]) -> Array:
    """Poisson numbers of one rate; at the small rates of SGD several times faster than rejection, and to compile."""
    rate = jnp.asarray(rate)
    return jax.lax.cond(rate > LARGE_RATE, _bent_normal, _counted, rate, key, jnp.zeros(shape, jnp.float32))


def _counted(rate: Array, key: Key, none: Array) -> Array:
    """Sums of Poisson numbers of small rates: values of the distribution function that a uniform number has passed."""
    rate = jnp.minimum(rate, LARGE_RATE)  # under vmap both branches run
    parts = jnp.maximum(jnp.ceil(rate / SMALL_RATE), 1.0)
    small = rate / parts
    factorials = jnp.asarray(LOG_FACTORIALS, small.dtype)
    mass = jnp.exp(jnp.arange(LARGEST) * jnp.log(jnp.maximum(small, 1e-30)) - small - factorials)
    steps = jnp.unstack(jnp.cumsum(mass).astype(jnp.float32))

    def one(i: Array, total: Array) -> Array:
        u = even(jax.random.fold_in(key, i), none.shape)
        for passed in steps:
            total = total + (u >= passed)
        return total

    return jax.lax.fori_loop(0, parts.astype(jnp.int32), one, none)


def _bent_normal(rate: Array, key: Key, none: Array) -> Array:
    """ρ + √(ρ − 1/18) x + (x² − 1)/6, x normal: mean and variance ρ, third cumulant ρ − 1/54 (Cornish and Fisher)."""
    x = normal(key, none.shape)
    return (rate + jnp.sqrt(jnp.maximum(rate, 1.0) - 1 / 18) * x + (x**2 - 1) / 6).astype(none.dtype)


@partial(poisson.defjvp, symbolic_zeros=True)
def _poisson_jvp(shape: tuple[int, ...], primals: Tree, tangents: Tree) -> tuple[Array, Array]:
    """A whole number has no derivative in its rate: refuse, rather than return a wrong zero."""
    if not isinstance(tangents[0], jax.custom_derivatives.SymbolicZero):
        why = "draws of SGD jump with τ, δ and the times; differentiate sl.SGF, whose increments are smooth, or λ"
        raise reject("SGD.temperature", "a derivative", why)
    count = poisson(*primals, shape)
    return count, jnp.zeros_like(count)


@model
class SGD(MiniBatch):
    """SGD as in `eq:sgd`: a fresh batch of B samples every step, learning rate η = τB.

    In the limit a sample is drawn at rate 1/(τδ) and each draw moves Z by τδ: Z_i = τδ·Poisson(γ_i/(τδ)).
    `batch_share`, a schedule with values in (0, 1], uses B(t) = round(B·share(t)) ≥ 1 samples of a batch at the same
    learning rate: B is the largest batch, τ its temperature, and τ(t) = τB/B(t). `learning_rate` is η, in place of τ.
    """

    temperature: float
    batch_size: int = static(default=1)
    batch_share: ScheduleLike = field(default_factory=Constant)
    step: Any = None

    def __init__(
        self,
        temperature: float | None = None,
        batch_size: int = 1,
        batch_share: ScheduleLike | None = None,
        *,
        learning_rate: float | None = None,
        step: Step | None = None,
    ) -> None:
        settle(self, batch_share=Constant() if batch_share is None else batch_share, step=step)
        self._settle(temperature, batch_size, learning_rate)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = τδ·Poisson(γ/(τδ)); γ where τ = 0."""
        jump = self.temperature_at(t + dt / 2) * sample_ratio
        safe = jnp.where(jump > 0, jump, 1.0)
        return state, jnp.where(jump > 0, safe * poisson(dt / safe, key, state.shape), dt * state)

    def draws(self, key: Key, first: Array | int, count: int, samples: int) -> Tree:
        """Rows of `count` batches, each drawn without replacement."""
        draw = in_random_order if self.scheduled else without_replacement
        return draw(jax.random.fold_in(key, first), count, samples, self.batch_size)


@model
class ShuffledSGD(MiniBatch):
    """SGD over epochs, the data reshuffled before each: every sample is used exactly once an epoch.

    Batches are cut from the endless stream of permutations; where B does not divide n, one batch in an epoch
    straddles two of them. In the limit an epoch lasts τδ, and Z jumps by τδ once in it, at a uniform time.
    `learning_rate` is η, in place of τ.
    """

    temperature: float
    batch_size: int = static(default=1)
    step: Any = None
    independent = False

    def __init__(
        self,
        temperature: float | None = None,
        batch_size: int = 1,
        *,
        learning_rate: float | None = None,
        step: Step | None = None,
    ) -> None:
        settle(self, step=step)
        self._settle(temperature, batch_size, learning_rate)

    def start_increments(self, key: Key, shape: tuple[int, ...], sample_ratio: Scalar) -> Tree:
        """The key that fixes every epoch's jump times, and the number of jumps so far."""
        return key, jnp.zeros(shape)

    def expected(self, state: Tree, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """E[Z | draws so far]: one that has had its draw waits for the next epoch; the others share what is left."""
        _, before = state
        jump = self.temperature * sample_ratio
        safe = jnp.where(jump > 0, jump, 1.0)
        begin, end = t / safe, (t + dt) / safe
        epoch = jnp.floor(begin)
        covered = jnp.minimum(end, epoch + 1) - begin
        waiting = jnp.where(before > epoch, 0.0, jnp.clip(covered / (epoch + 1 - begin), 0.0, 1.0))
        return jnp.where(jump > 0, safe * (waiting + jnp.maximum(end - epoch - 1, 0.0)), dt * jnp.ones_like(before))

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = τδ × jumps in (t, t + γ]; γ where τ = 0."""
        base, before = state
        jump = self.temperature * sample_ratio
        safe = jnp.where(jump > 0, jump, 1.0)
        end = jnp.asarray(t + dt) / safe
        epoch = jnp.floor(end)
        moment = even(jax.random.fold_in(base, epoch.astype(jnp.int32)), before.shape)
        after = epoch + (moment < end - epoch)  # one in each finished epoch, and the current one's if it has come
        return (base, after), jnp.where(jump > 0, safe * (after - before), dt * jnp.ones_like(before))

    def variance(self, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """(τδ)² p(1−p) from each epoch that the interval covers in part, p the fraction covered."""
        jump = self.temperature * sample_ratio
        safe = jnp.where(jump > 0, jump, 1.0)
        begin, end = t / safe, (t + dt) / safe
        left, right = begin - jnp.floor(begin), end - jnp.floor(end)
        same = jnp.floor(begin) == jnp.floor(end)
        share = end - begin
        spread = jnp.where(same, share * (1 - share), left * (1 - left) + right * (1 - right))
        return jump**2 * spread

    def draws(self, key: Key, first: Array | int, count: int, samples: int) -> Tree:
        """Rows of `count` batches from the stream of permutations."""
        position = first * self.batch_size + jnp.arange(count * self.batch_size)
        epoch, place = position // samples, position % samples
        epochs = epoch[0] + jnp.arange(count * self.batch_size // samples + 2)
        orders = jax.lax.map(lambda e: jax.random.permutation(jax.random.fold_in(key, e), samples), epochs)
        return orders[epoch - epoch[0], place].reshape(count, self.batch_size)
