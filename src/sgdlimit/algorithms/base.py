"""The contract of an algorithm: its increment law over an interval, and its finite-size update.

In the limit an algorithm enters only through the law of the increments Z_i of one training sample over
[t_i, t_i + γ_i], with mean γ_i (`docs/notation.md`, increment laws). At finite size it is an update of θ.
The theory and the simulation take the same object.
"""

import abc
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from .._machine import refuse_orphans
from .._types import Array, Key, Scalar, Tree
from ..errors import instance, reject
from ..problem import Constant, Problem, fields
from ..problem.problem import check_schedule
from ..problem.schedules import ScheduleLike, values_at
from .samples import Data, StoredData, Weights, drifts, gather
from .step import PLAIN, Step
from .training import gradients, leans, rated, renewed, start_parts, stepped

Updated = tuple[Weights, Tree]
"""The weights, and the state that successive updates share."""


class Algorithm(abc.ABC):
    """The contract of an algorithm: how weights are trained, in theory and at finite size.

    An algorithm is a frozen dataclass that jax knows as a tree (`jax.tree_util.register_dataclass`), with numbers as
    leaves and functions, names and sizes as static fields. `sgdlimit.testing.check_algorithm` tests all of it. Its
    increments are all that the theory sees of it; its update is for finite size. `Weighted` has the update that follows
    from the increments: an explicit step with Z_i on sample i. Shapes: θ (d, m), rows x (n, d); times and δ are numbers
    that jax may be tracing. A run's `Weights` are θ and, in `shared`, all that samples share by name: trained
    parameters, and "intercept" (m,) of a problem with one. It must define `increments` and `update`; the rest has
    defaults.

    independent: whether increments over disjoint intervals are independent.
    gaussian: whether they are Gaussian, too, with a positive variance.
    discrete: whether the grid step is the algorithm's own step, not a discretisation.
    jumps: whether a sample is drawn at a rate 1/(τδ), and moves Z by τδ each time.
    multi_pass_only: whether it means nothing without a stored training set (δ = ∞).
    stable: largest step times curvature at which the update does not grow.
    accurate: step times curvature at which it is accurate to a few percent, where the step is a choice.
    batch_share: share of the batch in use at time t, a field of those algorithms that can change it.
    step: what a step does beside η times the gradient, a field of those algorithms that can.
    """

    independent: ClassVar[bool] = True
    gaussian: ClassVar[bool] = False
    discrete: ClassVar[bool] = False
    jumps: ClassVar[bool] = False
    multi_pass_only: ClassVar[bool] = False
    stable: ClassVar[float] = 2.0
    accurate: ClassVar[float] = 0.03
    batch_share: ScheduleLike = Constant()
    step: Any = None
    noise_temperature: Any = None
    """τ where Var Z = τδγ in the limits of infinite data and of least squares, at the full batch; None where there is
    no such limit."""
    rows: Any = None
    """Samples that one update reads, for an algorithm with a step of its own; None: all, and the user sets dt."""

    @property
    def how(self) -> Step:
        """The parts of a step, `Step()` where none were given."""
        return PLAIN if self.step is None else self.step

    @property
    def pace(self) -> Any:
        """η as a rate sees it; 1 for an algorithm without batches."""
        return self.learning_rate if self.rows else 1.0  # type: ignore[attr-defined]

    # --- the increment law (theory) ---

    def start_increments(self, key: Key, shape: tuple[int, ...], sample_ratio: Scalar) -> Tree:
        """The state, a tree of arrays, that increments of samples of this shape share over time; here the shape."""
        return jnp.ones(shape)

    @abc.abstractmethod
    def increments(self, state: Tree, key: Key, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> tuple[Tree, Array]:
        """The next state, and Z over [t, t + dt] of the shape of the start, of mean dt.

        All that is random comes from the key, or from the state.
        """

    def expected(self, state: Tree, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """E[Z | draws so far] over [t, t + dt]; γ for independent increments."""
        return dt

    def variance(self, t: Scalar, dt: Scalar, sample_ratio: Scalar) -> Scalar:
        """Var Z over [t, t + dt], a number; here τδγ, with τ at the middle of the interval."""
        return self.temperature_at(t + dt / 2) * sample_ratio * dt

    # --- a batch that changes in time ---

    @property
    def scheduled(self) -> bool:
        """Whether the batch, and with it the temperature, changes in time."""
        return not isinstance(self.batch_share, Constant)

    def used(self, t: Scalar) -> Scalar:
        """B(t): how many of the B = `rows` samples of a batch are used, at least one; the share itself if B is None."""
        share, size = self.batch_share(t), self.rows
        return share if size is None else jnp.clip(jnp.round(size * share), 1, size)

    def portion(self, t: Scalar) -> Scalar:
        """B(t)/B, the share of the batch that is used at time t."""
        return self.used(t) / (self.rows or 1)

    def temperature_at(self, t: Scalar) -> Any:
        """τ(t) = η/B(t) = τB/B(t): the learning rate stays, the noise of a smaller batch is larger.

        Increments over [t, t + γ] take it at t + γ/2. τ(t) is no part of the process, so that Itô asks for no left
        point; and increments live on the finest grid, where extrapolation would not see an error of first order.
        """
        return self.noise_temperature / self.portion(t) if self.scheduled else self.noise_temperature

    # --- the finite-size update (simulation) ---

    def step_time(self, dim: int, dt: float) -> float:
        """The time t = ηk/d that one update advances; here dt, of an algorithm that has no step of its own."""
        return dt

    def draws(self, key: Key, first: Array | int, count: int, samples: int) -> Tree:
        """What updates first … first+count−1 draw in advance, count first: rows of the batches; here nothing, None.

        `first` is a multiple of `count`, so that a key folded with it is used once.
        """
        return None

    def start_updates(self, key: Key, data: Data, weights: Weights) -> Tree:
        """The state that successive updates from these weights share; here that of the parts of a step."""
        return () if self.how.plain else start_parts(self.how, weights)

    @abc.abstractmethod
    def update(self, data: Data, weights: Weights, state: Tree, t: Scalar, dt: Scalar, draw: Tree, key: Key) -> Updated:
        """The weights after one update on data that are stored or fresh, and the next state.

        Over any time the sum of what a sample was weighted with has the law of Z.
        """

    def check_simulation(self, problem: Problem, samples: int) -> None:
        """Refuse what cannot be simulated, before any work; here infinite data, without a training set to read."""
        if problem.infinite_data:
            why = f"{type(self).__name__} needs a stored training set; simulate sl.SGD, or give a finite δ"
            raise reject("sample_ratio", "inf", why)


class Weighted(Algorithm):
    """An algorithm whose update follows from its increments: one explicit step with weights Z on the samples.

    `eq:sgf_disc`. A subclass defines the increments alone, and what `Algorithm` asks to be declared of them.
    """

    def start_updates(self, key: Key, data: Data, weights: Weights) -> Tree:
        """The state of every sample's increments; with parts of a step a pair of it and theirs."""
        assert isinstance(data, StoredData)
        state = self.start_increments(key, (len(data.X),), data.sample_ratio)
        return state if self.how.plain else (state, start_parts(self.how, weights))

    def update(self, data: Data, weights: Weights, state: Tree, t: Scalar, dt: Scalar, draw: Tree, key: Key) -> Updated:
        """θ − γ h(θ) − (1/δ) Xᵀ(Z ⊙ ℓ) (`eq:sgf_disc_rewrite`), Itô, left point; with the parts of a step."""
        assert isinstance(data, StoredData)
        how, n, d = self.how, data.X.shape[0], data.X.shape[-1]
        own, parts = (state, {}) if how.plain else state
        own, Z = self.increments(own, key, t, dt, n / d)
        found = gradients(data.problem, how, t, weights, data).times(Z)
        pull = gather(data.X, found.ell) * (d / n)
        if how.plain:
            theta = weights.theta - (dt * drifts(data.problem, t, weights.theta) + pull)
            means = found.means(n)
            return Weights(theta, {name: value - means[name] for name, value in weights.shared.items()}), own
        drift = Weights(pull / dt + leans(data.problem, t, weights.theta), found.means(n * dt))
        parts = renewed(data, how, t, weights, parts, jnp.inf, key)  # exact at every step
        rho, parts = rated(how, data, weights, parts, dt, time=t, learning_rate=1.0)
        s = fields.factor(data.problem, t, weights.theta.dtype)
        weights, parts = stepped(how, weights, parts, drift, rho, s, dt, key)
        return weights, (own, parts)


def require(problem: Any, algorithm: Any) -> None:
    """Refuse arguments of the wrong kind, and a process in which jax would hang."""
    refuse_orphans()
    instance("problem", problem, Problem, "an sl.Problem(...)")
    instance("algorithm", algorithm, Algorithm, "an algorithm such as sl.SGD(temperature=0.4)")


TEMPERATURE = "τ = η/B must be a number ≥ 0"


def settle_share(algorithm: Any) -> None:
    """Check the schedule of the batch: what it is, not yet its values."""
    name = f"{type(algorithm).__name__}.batch_share"
    check_schedule(name, algorithm.batch_share)
    if algorithm.scheduled and algorithm.rows == 1:
        given = type(algorithm.batch_share).__name__
        raise reject(name, given, "a batch of 1 has no share; give batch_size, the largest")


def settle_step(algorithm: Any) -> None:
    """Check that the parts of a step mean something to the algorithm."""
    if algorithm.step is None:
        return
    name = type(algorithm).__name__
    instance(f"{name}.step", algorithm.step, Step, "sl.Step(...)")
    how, batches = algorithm.step, algorithm.rows is not None
    if not batches and how.clip is not None and how.clip.per == "batch":
        why = f"{name} has no batch of a few samples; take sl.SGD, or clip every sample's gradient"
        raise reject(f"{name}.step", "Clip(per='batch')", why)
    if not batches and how.rate is not None and (how.rate.of_batches or how.rate.by_batch):
        rule = type(how.rate).__name__
        why = f"{name} has no batch of a few samples, whose gradient {rule} reads; take sl.SGD, or sl.Rate(fn)"
        raise reject(f"{name}.step", rule, why)
    if not (batches or isinstance(algorithm, Weighted)) and how.noisy:
        raise reject(f"{name}.step", "noise", f"{name} is a differential equation; take sl.SGF(0.0, step=...)")
    if how.momentum is not None and how.momentum.beta is not None and not batches:
        why = f"a fixed β is one of steps, and {name} has none of its own; give friction="
        raise reject(f"{name}.step", type(how.momentum).__name__, why)


SHARE_TIMES = 1025  # times at which a share is looked at before any work, besides those that are recorded


def check_share(algorithm: Algorithm, times: np.ndarray) -> None:
    """Refuse a share of the batch that leaves (0, 1] up to the last time."""
    if not algorithm.scheduled:
        return
    t, name = np.union1d(np.linspace(0.0, times[-1], SHARE_TIMES), times), f"{type(algorithm).__name__}.batch_share"
    share = values_at(algorithm.batch_share, t)
    bad = ~((share > 0) & (share <= 1 + 1e-12))
    if np.any(bad):
        where = int(np.argmax(bad))
        why = "the share of the batch must lie in (0, 1] at all times: divide it by its maximum, and raise batch_size"
        raise reject(name, f"{share[where]:.4g} at t = {t[where]:.4g}", why)
