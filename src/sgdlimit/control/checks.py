"""What must hold before work begins: steps, samples, values that do not jump."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Array, Host
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..algorithms.rates import Seen
from ..dmft.planning import STRIDES
from ..errors import flag, reject
from ..measure.pace import curvature, heat_of, moving_of, start_samples
from ..problem import Problem, fields
from ..problem.jumps import LINES, SIZE, Jump, Jumps, jumps
from ..problem.problem import apart
from ..problem.schedules import Course, course
from ..problem.sequences import unmixed

FEWEST_DRAWS = 64
"""Draws of samples, over the whole march of a replica, below which SGD's own noise is not seen."""
PART = 2 * STRIDES
"""The largest step that is taken unasked is this part of `Pace.limit`: its coarsest grid stays within half of it."""


FEW_UNITS = 4
"""Units, over all rows of a sample, along each of which as many samples are searched for jumps."""


class Pace(NamedTuple):
    """How fast the data can pull at the start."""

    limit: float
    """Largest stable Euler step, 2 over the largest curvature of the training loss at all times."""
    slopes: tuple[np.ndarray, np.ndarray]
    """E∇ℓ and E∇h, (m, m)."""
    smooth: bool = True
    """Whether the force has a derivative, as far as can be seen."""
    moving: tuple[Course, ...] = ()
    """What changes in time and must be resolved: nothing for an algorithm whose step is real."""


def look(problem: Problem, algorithm: Algorithm, t_max: float) -> Pace:
    """Return how fast the data can pull, by the curvature at the start, schedule included; refuse a loss or a penalty
    whose value jumps or whose gradient is not finite.

    Gradients may jump: the theory and SGD see the gradient alone, which says nothing of a jump of the value.
    """
    check_share(algorithm, np.array([t_max]))
    searched = _searched(problem, t_max)
    for jump in searched:
        _refuse_jumps(jump)
    smooth = all(jump.force is None or np.max(jump.force.size) <= SIZE for jump in searched)
    found = curvature(problem, t_max, *start_samples(problem))
    limit = 2 / found.data if found.data > 0 else np.inf
    limit = limit / _hurry(problem, algorithm)
    if algorithm.how.friction is not None:  # x'' = −curvature·x: steps up to 2/√curvature
        limit = np.sqrt(2 * limit)
    moving = [] if algorithm.discrete else [*moving_of(problem), *heat_of(algorithm)]
    return Pace(limit, found.slopes, smooth, tuple(course(*item, t_max).thinned() for item in moving))


GROWS = 2.0
"""A rate that follows gradients may grow to so many times what it is at the start; if it grows more, steps tell."""


def _hurry(problem: Problem, algorithm: Algorithm) -> float:
    """By how much the parts of a step hasten what the data do at the start."""
    how = algorithm.how
    if how.rate is None:
        return float(how.boost)
    w, z = start_samples(problem)
    m, table = problem.width, problem.data.table()
    with jax.enable_x64(True):
        sample = (*apart(problem, w), z)
        pull = jax.vmap(lambda *one: unmixed(problem, fields.pull(problem, 0.0, *one)))(*sample)
        beyond = tuple(range(1, pull.ndim))
        loss = float(np.mean(jax.vmap(lambda *one: fields.loss(problem, *one))(*sample))) if problem.has_loss else 0.0
        squared = np.asarray(table.share @ table.variance * np.sum(pull**2, axis=beyond))
        if how.clip is not None:
            squared = squared * np.asarray(how.clip.factor(squared)) ** 2
        batch, gram = algorithm.rows or 1, problem.weight_gram()
        if how.rate.by_coordinate:
            each = np.sum(np.mean(np.asarray(pull) ** 2, axis=0).reshape(-1, m), axis=0)
            slowest = float(np.min(each)) * float(np.max(table.variance)) / batch
            return GROWS * float(how.rate.scale) / max(slowest, 1e-12) ** 0.5
        mean = float(np.mean(squared))
        seen = Seen(
            0.0, algorithm.pace, mean / batch, mean, loss, jnp.asarray(gram[:m, :m]), jnp.asarray(gram[:m, m:]), 0.0
        )
        factor = float(how.rate.factor(how.rate.start(), seen))
    if not factor >= 0 or not np.isfinite(factor):
        why = "it must be finite and no less than zero; see which of its arguments makes it so"
        raise reject("Step.rate", f"a factor of {factor} at t = 0", why)
    return float(how.boost) * (factor if not how.rate.by_batch and how.rate.needs == ("gradient",) else GROWS * factor)


def _searched(problem: Problem, t_max: float) -> list[Jumps]:
    """At three times where a field takes the time, since it may begin without its jump; nothing where all is known to
    be smooth. Of many units fewer samples are looked at."""
    if problem.loss.smooth and problem.penalty.smooth:
        return []
    units = problem.rows * problem.width
    count = LINES if units <= FEW_UNITS else max(LINES * FEW_UNITS // units, 8)
    w, z = (part[:count] for part in start_samples(problem))
    timed = any(getattr(part, "timed", False) for part in (problem.loss, problem.penalty))
    with jax.enable_x64(True):
        times = (0.0, t_max / 2, t_max) if timed else (0.0,)
        return [jax.tree.map(np.asarray, jumps(problem, w, z, t)) for t in times]


def _refuse_jumps(found: Jumps) -> None:
    parts = (("loss", found.loss, found.force, "r"), ("penalty", found.penalty, found.drift, "theta"))
    for argument, value, gradient, of in parts:
        for what, jump in (("value", value), ("gradient" if value is not None else "field", gradient)):
            if jump is not None and not np.all(jump.sound):
                why = f"it must be finite for every {of}; write it with jnp.where or jnp.abs, or change labels or noise"
                raise reject(argument, f"a {what} that is not finite, near {_place(jump, ~jump.sound)}", why)
        if value is not None and np.max(value.size) > SIZE:
            why = f"its gradient knows nothing of the jump; make it continuous in {of}, where kinks are allowed"
            raise reject(argument, f"a value that jumps, near {_place(value, value.size)}", why)


def refuse_kinks(problem: Problem, t_max: float, name: str, arguments: tuple[str, ...] = ("loss",)) -> None:
    """Refuse forces that jump, for who takes their derivatives: autodiff would call them zero."""
    for found in _searched(problem, t_max):
        for argument, jump in (("loss", found.force), ("penalty", found.drift)):
            if argument in arguments and jump is not None and np.max(jump.size) > SIZE:
                why = f"{name} takes its derivative, which autodiff would call zero; use sl.solve without kernels"
                raise reject(argument, f"a gradient that jumps, near {_place(jump, jump.size)}", why)


def _place(jump: Jump, by: Array | Host) -> str:
    return f"{float(jump.place[np.argmax(by)]):.4g}"


def refuse_step(problem: Problem, algorithm: Algorithm, linear: bool, slopes: bool, name: str) -> None:
    """Refuse parts of a step that have no limit here, or none that is known."""
    how = algorithm.how
    if how.rate is not None and how.rate.by_coordinate and not linear:
        why = f"rates of coordinates with a penalty that is not a ridge are not derived; take sl.Ridge, or {ALIKE}"
        raise reject("Step.rate", type(how.rate).__name__, why)
    if how.rate is not None and how.rate.by_coordinate and how.weight_noise is not None:
        why = "every group of coordinates has its own rate, which that noise would not have; give gradient_noise"
        raise reject("Step.weight_noise", how.weight_noise, why)
    if how.friction is not None and not linear and problem.penalty.prox is not None:
        why = (
            "with a friction the penalty pulls at the velocity, and one with a kink has no pull there; take sl.SmoothL1"
        )
        raise reject("penalty", type(problem.penalty).__name__, why)
    if slopes and how.by_batch:
        why = f"{name} takes derivatives of the force, which here knows the batch; use sl.solve without kernels"
        raise reject("Step", "a function of the batch's gradient", why)
    if how.friction is not None and slopes:
        raise reject("Step.momentum", type(how.momentum).__name__, f"{name} has no velocities; use sl.solve alone")


ALIKE = "a rate that is one for all coordinates"


def check_step(algorithm: Algorithm, times: np.ndarray, limit: float) -> None:
    """Refuse steps at which Euler is unstable, or would be at twice their size: then their error could not be told.

    Algorithms in discrete time have no such limit: their step is real.
    """
    largest = float(np.max(np.diff(times)))
    if not algorithm.discrete and 2 * largest > limit:
        why = f"explicit Euler is unstable above {limit:.3g}, and errors need 2 dt"
        why += f"; take dt ≤ {limit / PART:.2g}, or leave it out"
        raise reject("dt", f"{largest:.4g}", why)


def check_choices(problem: Problem, algorithm: Algorithm, extrapolate: object, kernels: object) -> None:
    """Refuse what is no problem or algorithm, and combinations that have no meaning."""
    require(problem, algorithm)
    flag("kernels", kernels)
    if problem.infinite_data:
        raise reject("sample_ratio", "inf", "this theory is for finite δ; with infinite data use sl.online")
    if extrapolate is not None and flag("extrapolate", extrapolate) and algorithm.discrete:
        raise reject("extrapolate", True, f"the step of {type(algorithm).__name__} is real; leave extrapolate out")


def check_rotated(problem: Problem, linear: bool, draws: bool) -> None:
    """Refuse what acts on weights one by one where the groups are of other directions than theirs."""
    name = type(problem.data).__name__
    if problem.data.rotated and not linear:
        why = f"with data={name} the theory knows weights along other directions than their own; use sl.Ridge"
        raise reject("penalty", type(problem.penalty).__name__, why)
    if problem.data.rotated and draws:
        why = f"with data={name} weights are known along other directions than their own; leave them out"
        raise reject("snapshots, weight_metrics", "draws of weights", why)


def check_draws(algorithm: Algorithm, problem: Problem, per_replica: int, times: np.ndarray) -> None:
    """Refuse a law whose samples are hardly ever drawn: its noise would be missed, and no spread would tell."""
    if not algorithm.jumps or algorithm.noise_temperature == 0:
        return
    t_max, tau = float(times[-1]), float(algorithm.noise_temperature)
    draws = per_replica * t_max / (tau * problem.sample_ratio)
    if algorithm.scheduled:  # ∫dt/τ(t) in place of t_max/τ
        draws *= np.diff(times) @ np.asarray(jax.vmap(algorithm.portion)(times[:-1])) / t_max
    if draws < FEWEST_DRAWS:
        name = type(algorithm).__name__
        why = f"up to t = {t_max:g} only {draws:.2g} samples of a replica would be drawn (rate 1/τδ)"
        raise reject("samples", per_replica, f"{why}; take more samples, or sl.SGF in place of {name}")
