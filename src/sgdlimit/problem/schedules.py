"""Learning-rate schedules s(t): a factor on ℓ and h, relative to the base rate η. Reported losses are untouched."""

import abc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import function, leaf, model, static
from .._types import Array, Host, Scalar, Tree
from ..errors import real, reject, traced
from .parameters import given, named


def times_of_breaks(argument: str, breaks: Any) -> tuple[float, ...]:
    """Named times of jumps, one or several, in order."""
    every = breaks if isinstance(breaks, list | tuple) else (breaks,)
    return tuple(sorted(real(argument, at, least=0, why="it must be a sequence of times ≥ 0") for at in every))


class ScheduleLike(abc.ABC):
    """The contract of a schedule: a function of time in jax.numpy, finite at all times."""

    @abc.abstractmethod
    def __call__(self, t: Scalar) -> Scalar:
        """s(t), a scalar for a scalar t."""


@model
class Constant(ScheduleLike):
    """s = 1: no schedule."""

    def __call__(self, t: Scalar) -> Scalar:
        """1 at all times."""
        return 1.0


@model
class PowerDecay(ScheduleLike):
    """s(t) = (1 + t/scale)^(−exponent)."""

    scale: float = leaf(default=1.0, above=0, why="it must be a positive time")
    exponent: float = leaf(default=0.5, least=0, why="it must be a number ≥ 0")

    def __call__(self, t: Scalar) -> Scalar:
        """(1 + t/scale)^(−exponent)."""
        return (1.0 + t / self.scale) ** (-self.exponent)


@model
class CosineDecay(ScheduleLike):
    """Half a cosine from 1 at t=0 to `final` at t=duration, constant after."""

    duration: float = leaf(above=0, why="it must be a positive time")
    final: float = leaf(default=0.0, least=0, why="it must be a number ≥ 0")

    def __call__(self, t: Scalar) -> Scalar:
        """final + (1−final)(1 + cos(πt/duration))/2."""
        u = jnp.clip(t / self.duration, 0.0, 1.0)
        return self.final + (1.0 - self.final) * 0.5 * (1.0 + jnp.cos(jnp.pi * u))


@model
class Schedule(ScheduleLike):
    """The user's schedule: `fn(t) -> factor` in jax.numpy.

    `parameters` are numbers that `fn` takes by name, `fn(t, a=…)`; another value does not compile it again.
    `breaks` are times at which it jumps: steps end there. They are found where they lie apart by a millionth of the
    run or more; name those of a shorter burst.
    """

    fn: Callable[..., Any] = function("fn(t) -> factor in jax.numpy")
    parameters: Mapping[str, Any] = named(1)
    breaks: Any = static(times_of_breaks, default=())

    def __call__(self, t: Scalar) -> Scalar:
        """What the user's function gives at t, with its parameters."""
        return self.fn(t, **given(self))


LOOKS = 2**20  # times at which a schedule is looked at before any work
EARLY = 1e-12  # the first of them, as a share of the run: warm-ups may be short
FACTOR = 1.6  # between two knots a schedule changes by less than this factor
FLOOR = 0.01  # factors below this share of the mean count as zero
RESOLVED = 0.01  # steps resolve a schedule whose sums over them are the integrals of s and s² to this share
JUMP = 0.01
"""A schedule jumps where it changes by more than this share of itself from one floating-point time to the next."""
MOST_JUMPS = 1024  # jumps that become edges of steps: the largest
HALVINGS = 80  # bisections from the distance of two looks to neighbouring floating-point numbers
KEPT = 0.02  # between the points of a thinned course a schedule changes by less than this share
SMOOTH = 1e-3  # a cell of four steps resolves a schedule that their extrapolated sums follow to this share
INSIDE = 1e-9  # share of a step after its beginning at which it looks at schedules


class Course(NamedTuple):
    """A schedule along a run, and the times at which it jumps: the first at which it has its new value."""

    t: np.ndarray
    s: np.ndarray
    breaks: np.ndarray

    def knots(self) -> np.ndarray:
        """Times of the run between which |s| changes by less than FACTOR: a burst has some within it, a jump two."""
        rises = np.flatnonzero(np.diff(np.floor(self._way() / np.log(FACTOR))))
        before = np.maximum(self.breaks - 1e-10 * self.t[-1], 0.0)
        every = np.unique(np.concatenate([self.t[rises], self.t[rises + 1], before, self.breaks]))
        return every[np.append(np.diff(every) > 1e-13 * self.t[-1], True)[: len(every)]]

    def thinned(self) -> "Course":
        """Fewer points, between which it is as good as straight."""
        rises = np.flatnonzero(np.diff(np.floor(self._way() / KEPT)))
        some = np.arange(0, len(self.t), max(1, LOOKS // 4096))
        at = np.unique(np.concatenate([some, rises, rises + 1, [len(self.t) - 1]]))
        return Course(self.t[at], self.s[at], self.breaks)

    def _way(self) -> np.ndarray:
        """How far log|s| has gone, up and down."""
        size = np.abs(self.s)
        height = np.log(size + FLOOR * np.mean(size) + 1e-300)
        return np.cumsum(np.abs(np.diff(height, prepend=height[0])))

    def resolved(self, cells: np.ndarray, least: float) -> np.ndarray:
        """Which cells, (cells, 5) times of their four steps, resolve it: sums of one, two and four left points that
        are extrapolated as marches are give the integrals of s and s², to a share SMOOTH or to `least`."""
        steps = np.diff(cells, axis=1)
        left = just_after(cells[:, :-1], steps)
        sound = np.ones(len(cells), dtype=bool)
        for power in (1, 2):
            values = self.s**power
            at = np.interp(left, self.t, values)
            fine, whole = np.sum(at * steps, axis=1), at[:, 0] * np.sum(steps, axis=1)
            middle = at[:, 0] * (steps[:, 0] + steps[:, 1]) + at[:, 2] * (steps[:, 2] + steps[:, 3])
            ends = cells[:, [0, -1]]
            true, size = (np.diff(_integral(self.t, part, ends))[:, 0] for part in (values, np.abs(values)))
            sound &= np.abs((8 * fine - 6 * middle + whole) / 3 - true) <= SMOOTH * size + least
        return sound


def just_after(t: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """A hair after steps begin, where a schedule may jump: no rounding is to say on which side of it they are."""
    return t + np.maximum(INSIDE * steps, 16 * np.spacing(t))


def _integral(t: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Of straight lines through the values, from 0 to `at`."""
    total = np.concatenate([[0.0], np.cumsum(np.diff(t) * (values[1:] + values[:-1]) / 2)])
    place = np.clip(np.searchsorted(t, at, side="right") - 1, 0, len(t) - 1)
    return total[place] + (at - t[place]) * (values[place] + np.interp(at, t, values)) / 2


def bisected(
    value: Callable[[Array], Tree], change: Callable[[Tree, Tree, Array], Array], low: Array, high: Array, halvings: int
) -> tuple[Array, Array, Tree, Tree]:
    """The ends of [low, high], halved so many times towards the half across which a function changes more, and what is
    known there: its `value` at a point, of which `change` says how much it changes between two, over a width."""

    def halve(_: int, ends: tuple[Array, Array, Tree, Tree]) -> tuple[Array, Array, Tree, Tree]:
        low, high, left, right = ends
        width = (high - low) / 2
        middle = low + width
        here = value(middle)
        first = change(left, here, width) > change(here, right, width)
        halves = (low, middle, left, here), (middle, high, here, right)
        return jax.tree.map(lambda a, b: jnp.where(first, a, b), *halves)

    return jax.lax.fori_loop(0, halvings, halve, (low, high, value(low), value(high)))


@jax.jit
@partial(jax.vmap, in_axes=(None, 0))
def _factors(schedule: ScheduleLike, t: Array) -> Array:
    return jnp.ones(()) * schedule(t)


@jax.jit
@partial(jax.vmap, in_axes=(None, 0, 0))
def _narrowed(schedule: ScheduleLike, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """Neighbouring floating-point times around the largest change between two, and s there."""
    change = lambda before, after, width: jnp.abs(after - before)  # noqa: E731
    return bisected(lambda t: schedule(t) * jnp.ones(()), change, low, high, HALVINGS)


def values_at(schedule: ScheduleLike, t: Host) -> np.ndarray:
    """s at an array of times."""
    with jax.enable_x64(True):
        return np.asarray(_factors(schedule, np.asarray(t, dtype=np.float64)), dtype=np.float64)


def factors(argument: str, schedule: ScheduleLike, t: Host) -> np.ndarray:
    """s at an array of times, refused where it is not finite."""
    values = values_at(schedule, t)
    if not np.all(np.isfinite(values)):
        bad = np.asarray(t)[~np.isfinite(values)][0]
        raise reject(argument, f"a factor that is not finite at t = {bad:.4g}", "it must be finite at all times")
    return values


def course(argument: str, schedule: ScheduleLike, t_max: float) -> Course:
    """The schedule at many times up to t_max: one in each of LOOKS cells, small ones, around declared breaks, and at
    both sides of every jump."""
    cell = np.arange(LOOKS)
    # places within the cells as multiples of the golden ratio, so that no period of s hides between them
    t = [(cell + cell * 0.6180339887498949 % 1.0) / LOOKS * t_max, t_max * np.geomspace(EARLY, 1 / LOOKS, 1024)]
    declared = np.asarray(getattr(schedule, "breaks", ()), dtype=np.float64)
    declared = declared[(declared > 0) & (declared < t_max)]
    if len(declared):
        ends = np.unique(np.concatenate([[0.0], declared, [t_max]]))
        t.append(np.linspace(ends[:-1], ends[1:], 17).ravel())
    every = np.unique(np.concatenate([[0.0], *t, [t_max]]))
    s = factors(argument, schedule, every)
    low, high = _jumps(argument, schedule, every, s)
    sides = np.concatenate([low, high])
    every, first = np.unique(np.concatenate([every, sides]), return_index=True)
    s = np.concatenate([s, factors(argument, schedule, sides)])[first]
    near = np.abs(declared[:, None] - high[None, :]) <= 1e-9 * declared[:, None]
    return Course(every, s, np.union1d(high, declared[~np.any(near, axis=1)]))


def _jumps(argument: str, schedule: ScheduleLike, t: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring floating-point times between which it jumps: where it changes most it is bisected down to them."""

    def jumping(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        largest = np.maximum(np.abs(before), np.abs(after))
        return np.abs(after - before) > JUMP * np.maximum(largest, FLOOR * np.mean(np.abs(s)))

    at = np.flatnonzero(jumping(s[:-1], s[1:]))
    at = np.sort(at[np.argsort(-np.abs(s[at + 1] - s[at]), kind="stable")[:MOST_JUMPS]])
    if not len(at):
        return t[:0], t[:0]
    room = np.resize(at, 2 ** (len(at) - 1).bit_length())  # one program for numbers of them that are alike
    with jax.enable_x64(True):
        low, high, before, after = map(np.asarray, _narrowed(schedule, t[room], t[room + 1]))
    factors(argument, schedule, np.concatenate([low, high]))
    found = jumping(before, after) & (high - low <= 4 * np.spacing(high)) & (low > 0) & (high < t[-1])
    return np.unique(low[found]), np.unique(high[found])


def resolving_step(argument: str, schedule: ScheduleLike, t_max: float, step: float) -> float:
    """The step, halved until sums over uniform steps see all that the schedule does."""
    known = isinstance(schedule, Constant) or any(traced(leaf) for leaf in jax.tree.leaves(schedule))
    if known or t_max / step > LOOKS:  # finer than what is looked at
        return step
    t, s, _ = course(argument, schedule, t_max)
    whole = np.array([np.trapezoid(np.abs(s) ** power, t) for power in (1, 2)])
    while t_max / step <= LOOKS:
        at = np.linspace(0.0, t_max, int(np.ceil(t_max / step)) + 1)
        values = factors(argument, schedule, at)
        sums = np.array([np.trapezoid(np.abs(values) ** power, at) for power in (1, 2)])
        if np.all(np.abs(sums - whole) <= RESOLVED * whole):
            return step
        step /= 2
    why = f"steps of {step:.2g} would be needed up to t = {t_max:g}; lower t_max, or make its bursts longer"
    raise reject(argument, "a schedule with short bursts", why)
