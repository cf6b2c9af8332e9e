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

PROBES, SUMS = 8, 2  # states at which a field is looked at along time, and random sums of its values there
AT_ONCE = 1024  # times at which a schedule is looked at together


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
            weights = rng.standard_normal((SUMS, PROBES, m))
            out += [(name, Probe(getattr(problem, name), states[name], one)) for one in weights]
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


def _along(name: str, schedule: ScheduleLike, t: np.ndarray) -> np.ndarray:
    """s at any array of times, looked at in pieces of one size, so that another number of them compiles nothing."""
    pieces = np.pad(t.ravel(), (0, -t.size % AT_ONCE), mode="edge").reshape(-1, AT_ONCE) if t.size else np.zeros((0, 1))
    return np.ravel([factors(name, schedule, piece) for piece in pieces])[: t.size].reshape(t.shape)


class Pace(NamedTuple):
    """What changes in time for least squares: s(t) and τ(t)/τ as functions of arrays of times, times at which either
    changes, ∫|s|, which is the largest time of the flow, and whether neither changes."""

    speed: Callable[[np.ndarray], np.ndarray] = np.ones_like
    heat: Callable[[np.ndarray], np.ndarray] = np.ones_like
    knots: np.ndarray = np.zeros(0)
    longest: float = 0.0
    steady: bool = True


def pace_of(schedule: ScheduleLike, algorithm: Algorithm, t_max: float) -> Pace:
    """The pace that a schedule and an algorithm have together up to t_max."""
    speed, heat = [] if isinstance(schedule, Constant) else [("schedule", schedule)], heat_of(algorithm)
    seen = [course(*item, t_max) for item in (*speed, *heat)]
    longest = float(np.trapezoid(np.abs(seen[0].s), seen[0].t)) if speed else t_max
    at, warm = (partial(_along, *item[0]) if item else np.ones_like for item in (speed, heat))
    knots = np.unique(np.concatenate([np.zeros(0), *(one.knots() for one in seen)]))
    return Pace(at, warm, knots, longest, not seen)
