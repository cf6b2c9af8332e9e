"""What a step does in the limit beside η times the gradient (`algorithms.step`), and averages of the iterates.

All of it is a function of averages over the samples of a march, which have no noise in the limit: trained parameters,
dg/dt = −E[∂L/∂g] over the training law; rates; factors of clipping, where |x|² of a row is its mean S = Σ_q p_q s_q.
What reads the gradient of the very batch, |G|² = Σ_{i∈B} |ℓ_i|² S/B², gives every sample B − 1 partners of its own,
drawn afresh at every step (`docs/solver.md`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._random import normal
from .._types import Array, Key, Scalar, Tree
from ..algorithms.rates import ByCoordinate, Seen
from ..problem import Problem, fields, trained
from ..problem.sequences import as_lines, as_read, tiled, unmixed
from .system import Start, Step, System, each, moments

PARTNERS, NOISE = 2**31 - 2, 2**31 - 3
"""Folded into the key for what is drawn beside increments; no step has these numbers."""


class Training(NamedTuple):
    """What moves by averages over all samples, in double precision."""

    shared: dict[str, Array]
    """Trained parameters by name, and the intercept β, (m,)."""
    velocity: dict[str, Array]
    """Theirs, where the step has a friction."""
    rule: dict[str, Array]
    """State of the rate."""
    squares: Array | None
    """Running mean of E ℓ_a², (m,), where every coordinate has its own rate."""


class Forced(NamedTuple):
    """The forces of a step as every sample feels them, and what else they move."""

    force: Array
    """ℓ_i with schedule, clipping and rate, (m, M); of samples with L rows L times that, of their lines (m, L·M)."""
    at: Callable[[Array], Array]
    """The same at other pre-activations, without what knows the batch."""
    slope: Callable[[Array], Array]
    """∂ℓ_i/∂r at pre-activations, (m, m, M)."""
    scale: Scalar
    """What multiplies the penalty beside its schedule."""
    loudness: Scalar
    """What multiplies noise that is a part of the gradient, beside the schedule: the root mean square of `scale`."""
    shortened: Array | None
    """What multiplies the slopes of a sample in trained parameters, (M,), beside `pace`."""
    pace: Scalar
    """s(t) times what multiplies η for all samples alike."""
    seen: Seen | None
    """What the rate sees of the step."""
    squared: Array | None
    """E ℓ_a², (m,), of the clipped gradient without schedule, where every coordinate has its own rate."""


def _number(value: object) -> Array:
    return jnp.asarray(value, jnp.float64)


def _numbers(values: Mapping[str, object]) -> dict[str, Array]:
    return {name: _number(value) for name, value in values.items()}


def begin(system: System) -> Training:
    """Return parameters where they start, at rest."""
    problem, how = system.problem, system.algorithm.how
    shared = _numbers(trained.starts(problem))
    if problem.bias:
        shared["intercept"] = jnp.zeros(problem.width, jnp.float64)
    velocity = {} if how.friction is None else jax.tree.map(jnp.zeros_like, shared)
    rule = {} if how.rate is None else _numbers(how.rate.start())
    by_coordinate = how.rate is not None and how.rate.by_coordinate
    return Training(shared, velocity, rule, jnp.zeros(problem.width, jnp.float64) if by_coordinate else None)


def problem_at(system: System, shared: Mapping[str, Array]) -> Problem:
    """Return the problem with these values of its trained parameters, in the precision of the samples."""
    return trained.at(system.problem, values_at(system, shared))


def values_at(system: System, shared: Mapping[str, Array]) -> dict[str, Array]:
    """Return the values of its trained parameters in the precision of the samples."""
    return {name: shared[name].astype(system.dtype) for name in trained.trained_of(system.problem)}


def _length(system: System) -> Array:
    """S, the mean of |x|² over rows."""
    return jnp.dot(system.groups.share, system.groups.variance)


def forced(
    system: System, start: Start, step: Step, training: Training, r: Array, weight: Array | None, state: "Known"
) -> Forced:
    """Return the forces at pre-activations r, (m, M); `weight`: of each sample in averages, `state`: of the weights."""
    problem, algorithm, how = problem_at(system, training.shared), system.algorithm, system.algorithm.how
    if algorithm.step is None:
        at = partial(of_samples, fields.force, problem, step.t, start)
        slope = partial(_slopes_of, fields.force_r, problem, step.t, start)
        return Forced(at(r), at, slope, 1.0, 1.0, None, problem.schedule(step.t), None, None)
    S, rate = _length(system), how.rate
    clip = how.clip if how.clip is not None and how.clip.per == "sample" else None
    raw = of_samples(fields.pull, problem, step.t, start, r)
    squared = S.astype(raw.dtype) * _squares_of(problem, raw)
    shortened = jnp.ones_like(squared) if clip is None else clip.factor(squared)
    squared = shortened**2 * squared
    batch = algorithm.rows or 1
    used = algorithm.used(step.t) if algorithm.rows else 1
    mean = partial(_mean, weight)

    def losses() -> Array:
        return each(lambda *sample: fields.loss(problem, *sample))(as_read(problem, r), start.r_star, start.z)

    wanted = () if rate is None else rate.needs
    of_batch = squared / used  # |G|², as far as one sample tells: its mean is that of the batch
    if how.by_batch:
        drawn = _partners(system, start, step, batch, used)
        of_batch = drawn(squared) / used**2
        if how.clip is not None and clip is None:
            own = how.clip.factor(of_batch)
            shortened, of_batch = shortened * own, own**2 * of_batch
    seen, factor, squares = None, 1.0, 1.0
    if rate is not None:
        seen = Seen(step.t, algorithm.pace, mean(of_batch), mean(squared), norm=state.norm, overlap=state.overlap)
        seen = seen._replace(distance=state.distance)
        if "train_loss" in wanted:
            seen = seen._replace(train_loss=mean(losses()))
        if rate.by_batch:
            loss = _partners(system, start, step, batch, used)(losses()) / used if "train_loss" in wanted else 0.0
            own = rate.factor(training.rule, seen._replace(gradient=of_batch, train_loss=loss)).astype(raw.dtype)
            shortened, factor, squares = shortened * own, mean(own), mean(own**2)
        else:
            factor = rate.factor(training.rule, seen)
            factor = jnp.where(factor >= 0, factor, jnp.nan)  # then the march ends here
            squares = jnp.square(factor)
    pace = jnp.asarray(problem.schedule(step.t)) * how.boost * (1.0 if rate is None or rate.by_batch else factor)

    def pull(problem: Problem, t: Scalar, *sample: Array) -> Array:
        value = fields.pull(problem, t, *sample)
        if clip is not None:
            value = clip.factor(S.astype(value.dtype) * _square_of(problem, value)) * value
        return jnp.asarray(pace).astype(value.dtype) * value

    def slope(r: Array) -> Array:
        return _slopes_of(jax.jacfwd(pull, argnums=2), problem, step.t, start, r)

    by_line = tiled(problem, shortened)
    force = jnp.asarray(pace).astype(raw.dtype) * by_line * raw
    by_unit = None
    if rate is not None and rate.by_coordinate:  # E ℓ_a² is a sum over the rows
        weight = None if weight is None else tiled(problem, weight)
        by_unit = _mean(weight, (by_line * raw) ** 2) / problem.rows
    at = partial(of_samples, pull, problem, step.t, start)
    loudness = how.boost * jnp.sqrt(squares)
    return Forced(force, at, slope, how.boost * factor, loudness, shortened, pace, seen, by_unit)


def of_samples(field: Callable[..., Array], problem: Problem, t: Scalar, start: Start, r: Array) -> Array:
    """Return a field such as `fields.force`, ℓ_t, of every sample at r, (m, M), in the precision of r; of the lines of
    samples with L rows, (m, L·M), L times the field."""
    found = each(lambda *sample: field(problem, t, *sample))(as_read(problem, r), start.r_star, start.z)
    return as_lines(problem, found).astype(r.dtype)


def _slopes_of(field: Callable[..., Array], problem: Problem, t: Scalar, start: Start, r: Array) -> Array:
    """∂ℓ/∂r of every sample, (m, m, M), in the precision of r; of L rows (m·L, m·L, M), in the order of lines."""
    found = each(lambda *sample: field(problem, t, *sample))(as_read(problem, r), start.r_star, start.z).astype(r.dtype)
    if problem.rows == 1:
        return found
    mixed = unmixed(problem, jnp.moveaxis(unmixed(problem, found), 2, 0))  # (L', L, m, m', M)
    units = problem.rows * problem.width
    return mixed.transpose(2, 1, 3, 0, 4).reshape(units, units, -1)


def _squares_of(problem: Problem, raw: Array) -> Array:
    """|ℓ|² of every sample, over units and independent rows, (M,)."""
    squares = jnp.sum(raw**2, axis=0)
    return squares if problem.rows == 1 else jnp.sum(squares.reshape(problem.rows, -1), axis=0) / problem.rows**2


def _square_of(problem: Problem, ell: Array) -> Array:
    """|ℓ|² of one sample as its loss gives it."""
    return jnp.sum(unmixed(problem, ell) ** 2)


def _mean(weight: Array | None, x: Array) -> Array:
    """Over samples, the last axis, in double precision."""
    return jnp.mean(x if weight is None else weight * x, axis=-1).astype(jnp.float64)


def _partners(system: System, start: Start, step: Step, batch: int, used: Scalar) -> Callable[[Array], Array]:
    """What the sum over a batch is, of numbers of every sample: its own and those of B(t) − 1 others.

    The others lie a random way along the samples: for every sample all of them are equally likely.
    """
    key = jax.random.fold_in(jax.random.fold_in(start.key, PARTNERS), step.first)
    away = jax.random.randint(key, (max(batch - 1, 1),), 0, system.samples)

    def drawn(x: Array) -> Array:
        twice = jnp.concatenate([x, x])

        def add(j: Array, total: Array) -> Array:
            return total + (j < used - 1) * jax.lax.dynamic_slice(twice, (away[j],), x.shape)

        return jax.lax.fori_loop(0, batch - 1, add, x)

    return drawn


class Known(NamedTuple):
    """What rates may know of the weights, over all coordinates."""

    norm: Array
    overlap: Array
    distance: Array


def after(
    system: System, start: Start, step: Step, training: Training, made: Forced, r: Array, weight: Array | None,
    level: Array | None,
) -> Training:  # fmt: skip
    """Return parameters, rate and squares after the step; `level` is E ℓ, (m,), which moves the intercept."""
    how, dt = system.algorithm.how, step.dt
    shared, velocity = training.shared, training.velocity
    drift: dict[str, Array] = {}
    if own := trained.trained_of(system.problem):
        values = {name: shared[name].astype(system.dtype) for name in own}
        slopes = jax.vmap(partial(trained.slopes, system.problem, values), in_axes=(-1, -1, 0), out_axes=-1)
        found = slopes(as_read(system.problem, r), start.r_star, start.z)
        if made.shortened is not None:
            found = jax.tree.map(lambda part: made.shortened * part, found)
        drift = {name: _number(made.pace * _mean(weight, part)) for name, part in found.items()}
    if level is not None:
        drift["intercept"] = level
    if how.friction is not None:
        damp = 1.0 / (1.0 + dt * how.friction)
        velocity = {name: _number(damp * (velocity[name] - dt * drift[name])) for name in shared}
        shared = {name: _number(value + dt * velocity[name]) for name, value in shared.items()}
    elif shared:
        shared = {name: _number(value - dt * drift[name]) for name, value in shared.items()}
    rule = training.rule
    if how.rate is not None and made.seen is not None:
        rule = _numbers(how.rate.after(rule, made.seen, dt))
    return training._replace(
        shared=shared, velocity=velocity, rule=rule, squares=_squares(how.rate, training, made, step)
    )


def _squares(rate: Tree, training: Training, made: Forced, step: Step) -> Array | None:
    """The mean of E ℓ_a² over the window, or since the start."""
    if training.squares is None or made.squared is None:
        return None
    share = jnp.expm1(-step.dt / rate.window) / jnp.expm1(-(step.t + step.dt) / rate.window)
    return training.squares + share * (made.squared - training.squares)


class Drive(NamedTuple):
    """How the weights are driven beside the force."""

    penalty: Tree = 1.0
    """What multiplies the penalty: a number, or one for every group and unit, (g, m)."""
    gain: Array | None = None
    """What multiplies all that comes from the data, (g, m), where every coordinate has its own rate."""
    decay: Tree = None
    """Decoupled decay, with the schedule."""
    sigma: Tree = None
    """Noise over √γ."""
    friction: Tree = None


def driven(system: System, step: Step, made: Forced, moved: Training) -> Drive:
    """Return what the weight side does beside pulling; `moved`: what the step has moved, its own squares among them."""
    algorithm, how = system.algorithm, system.algorithm.how
    if algorithm.step is None:
        return Drive()
    s, rate = system.problem.schedule(step.t), how.rate
    gain = None
    if isinstance(rate, ByCoordinate) and moved.squares is not None:
        variance = system.groups.variance
        if system.problem.data.rotated:  # coordinates are not those of the groups: all have the same variance
            variance = jnp.full_like(variance, _length(system))
        mean = variance[:, None] * moved.squares / algorithm.used(step.t)
        if how.gradient_noise is not None:
            mean = mean + jnp.square(how.gradient_noise) / algorithm.pace
        gain = rate.gain(mean)
    return Drive(
        penalty=made.scale if gain is None else gain, gain=gain, decay=None if how.decayed is None else s * how.decayed,
        sigma=how.noise(s * made.loudness) if how.noisy else None, friction=how.friction,
    )  # fmt: skip


def normals(start: Start, step: Step, shape: tuple[int, ...], dtype: str) -> Array:
    """Return Σ √γ_s ξ_s over the fine steps of this one: grids of other steps see the same noise."""
    key: Key = jax.random.fold_in(start.key, NOISE)

    def add(s: Array, total: Array) -> Array:
        xi = normal(jax.random.fold_in(key, step.first + s), shape)
        return total + (jnp.sqrt(step.fine_dt[s]) * xi).astype(dtype)

    return jax.lax.fori_loop(0, step.stride, add, jnp.zeros(shape, dtype))


class Iterate(NamedTuple):
    """An average of the iterates, as far as it has come."""

    r: Array
    """Of the training samples, (m, M)."""
    w: Array
    """Of fresh ones, (m, M), with what moves their class."""
    rest: Array
    """What of the weights their start does not tell, (g, m, M)."""
    along: Array
    """(g, m, m+k)."""
    shared: dict[str, Array]

    @property
    def norm(self) -> Array:
        """θ̄ᵀθ̄/d of every group, (g, m, m)."""
        return moments(self.rest, self.rest) + jnp.einsum("gab,gcb->gac", self.along, self.along)


def averaged(system: System, step: Step, before: dict[str, Iterate], last: Array, now: Iterate) -> dict[str, Iterate]:
    """Return the averages with the newest iterate, of a step that began at `last`; at first that iterate itself."""

    def one(average: Tree, past: Iterate) -> Iterate:
        share = jnp.where(step.number == 0, 1.0, average.share(step.t, step.t - last))
        return jax.tree.map(lambda old, new: (old + share.astype(old.dtype) * (new - old)).astype(old.dtype), past, now)

    return {name: one(average, before[name]) for name, average in system.averages.items()}
