"""SGD whose batch is a fraction of the data set: discrete time, `dt` is the step."""

import jax
import jax.numpy as jnp

from .._tree import leaf, model
from .._types import Array, Key, Scalar, Tree
from .base import Weighted

FRACTION = "b must be a fraction in (0, 1]"


class Proportional(Weighted):
    """An algorithm whose batch holds a share b of all samples; it has no diffusion limit."""

    discrete = True
    multi_pass_only = True
    batch_fraction: float

    def variance(self, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """γ²(1/b − 1), that of a Bernoulli number over b."""
        return dt**2 * (1 / self.batch_fraction - 1)


@model
class ProportionalSGD(Proportional):
    """Every sample joins every batch with probability b: Z_i = γ_i·Bernoulli(b)/b (Mignacco et al. 2020)."""

    batch_fraction: float = leaf(above=0, most=1, why=FRACTION)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ·Bernoulli(b)/b, a fresh draw for every sample; the state stays."""
        chosen = jax.random.bernoulli(key, self.batch_fraction, state.shape)
        return state, chosen * dt / self.batch_fraction


@model
class PersistentSGD(Proportional):
    """Proportional batches whose members stay: Z_i = γ_i·s_i/b, s a 0/1 Markov chain of mean b.

    Over a step γ: P(0→1) = b(1−e^{−γ/τ_p}), P(1→0) = (1−b)(1−e^{−γ/τ_p}); τ_p is the correlation time.
    """

    batch_fraction: float = leaf(above=0, most=1, why=FRACTION)
    correlation_time: float = leaf(above=0, why="τ_p must be a positive time")
    independent = False

    def start_increments(self, key: Key, shape: tuple[int, ...], sample_ratio: Scalar) -> Tree:
        """The probability b that a sample is in the first batch: the chain is stationary."""
        return jnp.full(shape, self.batch_fraction)

    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """Z = γ s/b, s drawn with the probability that the last s left, then one move of the chain over γ."""
        b = self.batch_fraction
        member = jax.random.bernoulli(key, state)
        refresh = -jnp.expm1(-dt / self.correlation_time)
        to_one = jnp.where(member, 1 - (1 - b) * refresh, b * refresh)
        return to_one.astype(state.dtype), member * dt / b

    def expected(self, state: Tree, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """E[Z | draws so far] = γ P(s = 1)/b."""
        return dt * state / self.batch_fraction
