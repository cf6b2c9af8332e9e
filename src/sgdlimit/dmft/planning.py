"""Which steps a march takes, which coarser grids go with it, which functions remember, how many replicas at a time."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import grid
from ..algorithms import Algorithm
from ..errors import reject
from ..limits.spectrum import marchenko_pastur
from ..problem import Problem
from . import memory
from .memory import Dense, Memory, Moments
from .noise import STRIDES
from .system import Step, System
from .weight_side import Particles

DEFAULT_STEP = 0.05
"""γ where the user names none: as in the paper's experiment; smaller where the problem is stiff."""
GROWTH = 0.02
"""Where recorded times are spaced wider and wider, steps may grow to this share of the time."""
LARGEST_STEP = 0.2
"""But not beyond this, nor beyond what is stable: the largest step sets the error."""
ALIGNING = 1.3
"""Recorded times lie on the coarsest grid too where that takes at most so many times the steps: nothing is then
interpolated."""
FIRST = 2
"""Steps in the place of each of the first."""
MOST_STEPS = 1e6
MOST_RECORDED = 128
"""Times that are recorded where the user names none."""
TILE = 2**20
"""Bytes of samples that one compiled call holds on a CPU: more falls out of the cache."""
COMMON = 0.1
"""Steps shorter than all but this share of them, at the start or between recorded times, ask for no function."""
PERIODS = 0.5
"""Oscillations over the march from which on exponentials alone do not follow them."""


class Steps(NamedTuple):
    """Fine times of the march, a whole number of the coarsest steps of them, and which are recorded."""

    times: np.ndarray
    record: np.ndarray


def steps(
    algorithm: Algorithm,
    t_max: Any,
    times: Any,
    dt: float | None,
    limit: float,
    aligned: bool,
    halvings: int = 0,
    gentle: bool = True,
) -> Steps:
    """Steps ≤ dt up to t_max, or through the recorded `times`, shorter at first; `aligned`: all on the coarsest grid.

    limit: the step that the problem's curvature allows at most, where the user names none; then halved so often.
    """
    wanted = grid.resolve(t_max, times)
    last = float(wanted[-1])
    size = DEFAULT_STEP if algorithm.discrete else min(DEFAULT_STEP, limit) / 2**halvings
    size = size if dt is None else dt
    if last / size > MOST_STEPS:
        raise reject(
            "dt",
            f"{size:.3g}",
            f"that is {last / size:.2g} steps up to t = {last:g}; at most {MOST_STEPS:g} are possible",
        )
    if algorithm.discrete:
        return _whole_updates(wanted, times is None, size)
    if times is None:
        count = STRIDES * math.ceil(last / (STRIDES * size) - 1e-9)
        every = STRIDES * math.ceil(count / (STRIDES * MOST_RECORDED)) if count > MOST_RECORDED else 1
        every = max(every, STRIDES) if aligned else every
        record = np.arange(0, count + 1, every)
        return _gently(np.linspace(0.0, last, count + 1), np.union1d(record, [count]), gentle)
    knots = np.unique(np.concatenate([[0.0], wanted]))
    gaps = np.diff(knots)[1:]  # the first interval, from zero, stands apart
    grows = dt is None and len(gaps) > 2 and np.all(np.diff(gaps) > 0) and gaps[-1] > 4 * gaps[0]
    largest = np.minimum(np.minimum(GROWTH * knots[:-1], LARGEST_STEP), limit) / 2**halvings
    counts = np.ceil(np.diff(knots) / (np.maximum(size, largest) if grows else size) - 1e-9).astype(int)
    whole = STRIDES * -(-counts // STRIDES)
    if aligned or np.sum(whole) <= ALIGNING * np.sum(counts) + 8 * STRIDES:
        counts = whole
    parts = [np.linspace(a, b, count + 1)[:-1] for (a, b), count in zip(pairwise(knots), counts, strict=True)]
    missing = -sum(map(len, parts)) % STRIDES
    if missing:  # a whole number of the coarsest steps: the last interval is cut finer
        a, b = knots[-2:]
        parts[-1] = np.linspace(a, b, len(parts[-1]) + missing + 1)[:-1]
    full = np.concatenate([*parts, knots[-1:]])
    return _gently(full, np.searchsorted(full, wanted), gentle)


def _gently(times: np.ndarray, record: np.ndarray, gentle: bool) -> Steps:
    """The first coarsest step in FIRST times as many: at the start all rates of the problem are seen at once."""
    if not gentle:
        return Steps(times, record)
    head = np.interp(np.arange(FIRST * STRIDES) / FIRST, np.arange(STRIDES + 1), times[: STRIDES + 1])
    later = np.where(record <= STRIDES, FIRST * record, record + (FIRST - 1) * STRIDES)
    return Steps(np.concatenate([head, times[STRIDES:]]), later)


def _whole_updates(wanted: np.ndarray, every: bool, dt: float) -> Steps:
    """Of an algorithm whose step is real: updates of the given length."""
    if every:
        count = round(wanted[-1] / dt)
        if count < 1:
            raise reject("t_max", wanted[-1], f"it is shorter than one update of dt = {dt:g}")
        return Steps(np.arange(count + 1) * dt, np.arange(count + 1))
    record = np.unique(np.round(wanted / dt).astype(int))
    if record[-1] < 1:
        raise reject("times", wanted, f"the last lies before the first update, at dt = {dt:g}")
    return Steps(np.arange(record[-1] + 1) * dt, record)


class Level(NamedTuple):
    """One march: every `stride`-th of the fine times, and one step beyond the last, so that the last is recorded."""

    stride: int
    times: np.ndarray
    """Its own times t_0 … t_K."""
    steps: Step
    """K+1 steps, stacked."""


def level(times: np.ndarray, stride: int, kept: Memory, dtype: str) -> Level:
    """The march on every `stride`-th time."""
    beyond = times[-1] + (times[-1] - times[-1 - stride]) / stride * np.arange(1, stride + 1)
    fine = np.concatenate([times, beyond])
    own = fine[::stride]
    count = len(own) - 1
    index = np.arange(count)
    inner = index[:, None] * stride + np.minimum(np.arange(STRIDES), stride - 1)
    rows = kept.rows(own, dtype)
    steps = Step(
        index, own[:-1], np.diff(own), np.full(count, stride), index * stride, fine[inner], np.diff(fine)[inner], rows
    )
    return Level(stride, own[:-1], steps)


def functions(problem: Problem, algorithm: Algorithm, times: np.ndarray, slopes: Any) -> Moments:
    """The functions of the past that this march needs; `slopes`: mean ∇ℓ and ∇h at the start, (m, m) each.

    An algorithm in discrete time also makes kernels that change sign from step to step, and one whose increments know
    each other, such as draws without replacement, kernels that change within an epoch of few steps; a field that is no
    gradient makes them oscillate, with the frequencies of xΓ + Λ over the spectrum x of the data.
    """
    gaps = np.diff(times)
    later = gaps if algorithm.discrete else gaps[FIRST * STRIDES :]
    step = float(np.quantile(later, COMMON) if len(later) else np.max(gaps))
    if algorithm.discrete or not algorithm.independent:
        return Moments(memory.ladder(times[-1], step, fastest=2.0), memory.ALTERNATING)
    gamma, stiff = slopes
    spectrum = np.outer(problem.data.table().variance, marchenko_pastur(float(problem.sample_ratio), 1.0).nodes).ravel()
    values = np.linalg.eigvals(spectrum[:, None, None] * gamma + stiff)
    fastest = float(np.max(np.abs(values.imag)))
    pairs: tuple[tuple[float, float], ...] = ()
    if fastest * times[-1] > 2 * math.pi * PERIODS:
        count = min(memory.MOST_PAIRS, 2 + math.ceil(fastest * times[-1] / (2 * math.pi)))
        damping = float(np.median(values.real[np.abs(values.imag) > 1e-9 * fastest]))
        omegas = fastest * (np.arange(count) + 0.5) / count
        pairs = tuple((max(damping, 0.25 / times[-1]), float(omega)) for omega in omegas)
    return Moments(memory.ladder(times[-1], step), (), pairs, max(float(np.mean(np.diag(stiff))), 0.0))


def strides(algorithm: Algorithm, step: float, limit: float) -> tuple[int, ...]:
    """Grids of one, two and four steps, those well within the stability limit, but two at least: one tells no error."""
    if algorithm.discrete:
        return (1,)
    return (1, 2, 4) if 4 * step <= limit / 2 else (1, 2)


def dense(times: np.ndarray) -> Dense:
    """All of the past; sizes in steps of 32, so that a march of another length need not compile anew."""
    return Dense(32 * math.ceil((len(times) + 1) / 32))


def tile(system: System, replicas: int) -> int:
    """Replicas in one compiled call: as many as the cache holds on a CPU, half of them at most, so that two cores have
    work; all of them elsewhere."""
    if jax.default_backend() != "cpu":
        return replicas
    (g, m, _, samples), n, particles = system.shape, system.memory.size, isinstance(system.weights, Particles)
    rows = (2 + 2 * g * particles) * n * m + g * m  # moments of forces, of w, of particles and their noise
    size = rows * samples * 4
    fitting = max(1, min(TILE // size, replicas // 2))
    return max(b for b in range(1, replicas + 1) if replicas % b == 0 and b <= fitting)


def snapshot_steps(times: np.ndarray, snapshots: Any) -> np.ndarray:
    """Steps nearest to the times at which draws are wanted."""
    if snapshots is None:
        return np.zeros(0, dtype=int)
    wanted = grid.increasing("snapshots", np.atleast_1d(snapshots))
    if wanted[-1] > times[-1] * (1 + 1e-9):
        raise reject("snapshots", wanted[-1], f"it lies beyond the last time {times[-1]:.4g}")
    return np.unique(np.abs(times[:, None] - wanted[None, :]).argmin(axis=0))
