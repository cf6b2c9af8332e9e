"""What of a problem or an algorithm changes in time, and the times at which it does."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import tree
from .._types import Scalar
from ..algorithms import Algorithm
from ..problem import Constant, Problem, VectorField, fields
from ..problem.problem import draws_at_start
from ..problem.schedules import ScheduleLike, course, factors

PROBES, SUMS = 8, 2
"""States at which a field is looked at along time, and random sums of its values there."""


def knots_of(moving: list[tuple[str, ScheduleLike]], t_max: float) -> np.ndarray:
    """Times up to t_max between which nothing of what moves changes by much."""
    return np.unique(np.concatenate([np.zeros(0), *(course(*item, t_max).knots() for item in moving)]))


@final
@tree
@dataclass(frozen=True)
class Probe(ScheduleLike):
    """A field along the time that it takes itself: a random sum of its values at fixed states."""

    field: VectorField
    states: tuple[jax.Array | np.ndarray, ...]
    """(r, r*, z) of a loss, (θ,) of a penalty, each (PROBES, …)."""
    weights: jax.Array | np.ndarray
    """(PROBES, m)."""

    @property
    def breaks(self) -> tuple[float, ...]:
        """Times at which the field says that it jumps."""
        return self.field.breaks

    def __call__(self, t: Scalar) -> Scalar:
        """Σ weights · field, over the root of their number."""
        seen = jax.vmap(lambda *state: jnp.ravel(self.field.at(t, *map(_as_user, state))))(*self.states)
        return jnp.sum(self.weights * seen) / np.sqrt(PROBES)


def _as_user(v: jax.Array) -> jax.Array:
    """A vector as `fields` shows it to the user; z is a number."""
    return fields.as_user(v) if jnp.ndim(v) else v


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
        r = w[:, :m] + rng.standard_normal((PROBES, m)) * np.linspace(0.0, 1.0, PROBES)[:, None]
        states = {"loss": (r, w[:, m:], z), "penalty": (r,)}
        for name in timed:
            for _ in range(SUMS):
                out.append((name, Probe(getattr(problem, name), states[name], rng.standard_normal((PROBES, m)))))
    return out


@final
@tree
@dataclass(frozen=True)
class Heat(ScheduleLike):
    """The temperature along time over that of the full batch, τ(t)/τ = B/B(t)."""

    algorithm: Algorithm

    @property
    def breaks(self) -> tuple[float, ...]:
        """Times at which the share of the batch says that it jumps."""
        return getattr(self.algorithm.batch_share, "breaks", ())

    def __call__(self, t: Scalar) -> Scalar:
        """1 over the share of the batch in use, in whole samples."""
        return 1 / self.algorithm.portion(t)


def heat_of(algorithm: Algorithm) -> list[tuple[str, ScheduleLike]]:
    """What of an algorithm changes in time, by argument: its temperature, where the batch does."""
    return [(f"{type(algorithm).__name__}.batch_share", Heat(algorithm))] if algorithm.scheduled else []


class Pace(NamedTuple):
    """What changes in time for least squares, as functions of arrays of times."""

    speed: Callable[[np.ndarray], np.ndarray] | None = None
    """s(t); None where neither it nor the temperature changes."""
    heat: Callable[[np.ndarray], np.ndarray] = np.ones_like
    """τ(t)/τ."""
    knots: np.ndarray = np.zeros(0)
    """Times at which either changes."""
    longest: float = 0.0
    """∫|s|: the largest time of the flow."""

    def at(self, t: np.ndarray) -> np.ndarray:
        """The factor s(t) of the schedule."""
        return np.ones(len(t)) if self.speed is None else np.asarray(self.speed(t), dtype=np.float64)


def pace_of(schedule: ScheduleLike, algorithm: Algorithm, t_max: float) -> Pace:
    """The pace that a schedule and an algorithm have together up to t_max."""
    speed, heat, knots, longest = None, np.ones_like, [np.zeros(0)], t_max
    for name, own in heat_of(algorithm):
        speed, heat = np.ones_like, partial(factors, name, own)
        knots.append(course(name, own, t_max).knots())
    if not isinstance(schedule, Constant):
        t, s, _ = seen = course("schedule", schedule, t_max)
        speed, longest = partial(factors, "schedule", schedule), float(np.trapezoid(np.abs(s), t))
        knots.append(seen.knots())
    return Pace(speed, heat, np.unique(np.concatenate(knots)), longest)
