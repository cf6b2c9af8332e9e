"""Where a function of pre-activations or weights jumps: a search along lines, and a bisection down to rounding."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._types import Array, Scalar, Tree
from . import fields
from .fields import VectorField
from .problem import Problem, apart, draws_at_start
from .schedules import bisected

LINES = 64  # samples around which losses and forces are searched for jumps
OFF = 1e-3  # lines start off the lattice of round numbers, where a kink would fall on the edge of a cell
CELLS = 256
NEAR, FAR = 0.05, 64.0
"""Lines run this far to both sides, in units of what pre-activations and labels reach: jumps may hide at any scale."""
LENGTHS = 6  # lengths of lines between the two
BISECTED = 4
"""Cells of a line that are bisected: those where the function changes most beyond the integral of its derivative."""
BISECTIONS = 60  # down to neighbouring numbers of double precision, from the longest line
SIZE = 1e-6
"""A change across a cell of no width that counts as a jump, over the values at the edges of the cell it was in."""
ROUNDING = 1e-8  # share of the largest value along the line below which values at those edges may be rounding


class Jump(NamedTuple):
    """What a search found along the lines through one point."""

    size: Array  # of the largest jump, over the values around it
    place: Array
    sound: Array
    """Whether no value along the lines is NaN, and all are finite within rounding of where the function changes most:
    the gradient of √x² is not at its kink."""


class Jumps(NamedTuple):
    """Of one problem, (samples,) each; None where there is nothing to look at."""

    loss: Jump | None  # L itself. A field has none
    force: Jump | None
    penalty: Jump | None
    drift: Jump | None


def search(fn: Callable[..., Scalar], reaches: Array, start: Array, *own: Array) -> Jump:
    """The largest jump of v ↦ fn(v, *own): (m,) → () or (m,) along lines through `start` in each unit's direction."""

    def along(a: Array, reach: Array) -> Jump:
        direction = jnp.eye(start.shape[0])[a]

        def value(x: Array) -> Array:
            return jnp.atleast_1d(fn(start + x * direction, *own))

        def both(x: Array) -> tuple[Array, Array]:
            return jax.jvp(value, (x,), (jnp.ones_like(x),))

        def gap(left: Tree, right: Tree, width: Scalar) -> Array:
            """What the function changes by beyond the integral of its derivative."""
            (f, slope), (f_, slope_) = left, right
            return jnp.nan_to_num(jnp.max(jnp.abs(f_ - f - (slope + slope_) / 2 * width), axis=-1))

        edges = jnp.linspace(-reach, reach, CELLS + 1)
        f, slope = jax.vmap(both)(edges)
        cells = jax.lax.top_k(gap((f[:-1], slope[:-1]), (f[1:], slope[1:]), 2 * reach / CELLS), BISECTED)[1]

        def within(cell: Array) -> Jump:
            _, high, before, after = bisected(both, gap, edges[cell], edges[cell + 1], BISECTIONS)
            change = jnp.max(jnp.abs(after[0] - before[0]))  # across no width: a jump, whatever the slopes
            place = (start + high * direction)[a]
            beside = place + jnp.arange(-2, 3) * jnp.spacing(place)
            rounding = reach * 2.0**-40
            beside = jnp.append(beside, jnp.round(place / rounding) * rounding)  # a kink at zero
            near = jax.vmap(lambda v: jnp.atleast_1d(fn(start.at[a].set(v), *own)))(beside)
            around = jnp.maximum(jnp.max(jnp.abs(f[cell])), jnp.max(jnp.abs(f[cell + 1])))
            around = jnp.maximum(around, ROUNDING * jnp.max(jnp.abs(f))) + 1e-30
            size = jnp.where(jnp.isfinite(change), change / around, 0.0)
            overflows = ~jnp.all(jnp.isfinite(f[cell]) & jnp.isfinite(f[cell + 1]))
            return Jump(size, place, jnp.all(jnp.isfinite(near)) | overflows)

        found = jax.vmap(within)(cells)
        worst = jnp.argmax(found.size)
        sound = jnp.all(found.sound) & ~jnp.any(jnp.isnan(f))
        return Jump(found.size[worst], found.place[worst], sound)

    every = jax.vmap(jax.vmap(along, in_axes=(None, 0)), in_axes=(0, None))
    found = Jump(*map(jnp.ravel, every(jnp.arange(start.shape[0]), reaches)))
    worst = jnp.argmax(jnp.where(found.sound, found.size, jnp.inf))
    return Jump(jnp.max(found.size), found.place[worst], jnp.all(found.sound))


def _reaches(problem: Problem, w: Array, z: Array) -> Array:
    """Lengths of the lines."""
    y = jax.vmap(lambda b, c: fields.label(problem, b, c))(apart(problem, w)[1], z)
    size = jnp.maximum(jnp.max(jnp.abs(w)), jnp.max(jnp.abs(jnp.nan_to_num(y))))
    ends = jnp.log(NEAR * jnp.minimum(size, 1.0) + 1e-9), jnp.log(FAR * jnp.maximum(size, 1.0))
    return jnp.exp(jnp.linspace(*ends, LENGTHS))


@jax.jit
def _of_force(problem: Problem, w: Array, z: Array, t: Scalar) -> Jump:
    """ℓ at time t."""
    r, r_star = apart(problem, w)
    force = _flat(problem, lambda *sample: jnp.ravel(fields.force(problem, t, *sample)))
    along = partial(search, force, _reaches(problem, w, z))
    return jax.vmap(along)(r.reshape(len(r), -1) + OFF, r_star, z)


def _flat(problem: Problem, fn: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """A function of one sample as one of the units of all its rows, one after the other."""
    shape = problem.sample_shape(problem.width)
    return lambda r, *others: fn(r.reshape(shape), *others)


def force_jumps(problem: Problem, t_max: float) -> bool:
    """Whether ℓ jumps in r at the start, in the middle or at the end, around samples of the start."""
    if problem.loss.smooth:
        return False
    w, z = draws_at_start(problem, LINES)
    with jax.enable_x64(True):
        return any(bool(jnp.max(_of_force(problem, w, z, t).size) > SIZE) for t in (0.0, t_max / 2, t_max))


@jax.jit
def jumps(problem: Problem, w: Array, z: Array, t: Scalar) -> Jumps:
    """L, ℓ, H and h at time t, as far as they are not known to be smooth, around samples (w_0, w*) and z."""
    own, reaches, (r, r_star) = problem.penalty, _reaches(problem, w, z), apart(problem, w)
    start = r.reshape(len(r), -1) + OFF
    loss = force = penalty = drift = None
    if not problem.loss.smooth:
        force = _of_force(problem, w, z, t)
        if not isinstance(problem.loss, VectorField):
            loss = jax.vmap(partial(search, _flat(problem, partial(fields.loss, problem)), reaches))(start, r_star, z)
    if not own.smooth:
        weights = start[:, : problem.width]
        drift = jax.vmap(partial(search, partial(fields.drift, problem, t), reaches))(weights)
        if not isinstance(own, VectorField):
            penalty = jax.vmap(partial(search, lambda v: own(fields.as_user(v)), reaches))(weights)
    return Jumps(loss, force, penalty, drift)
