"""Which steps a march takes, which coarser grids go with it, which functions remember, how many replicas at a time."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from .. import grid
from .._types import Host, Tree
from ..algorithms import Algorithm
from ..errors import reject
from ..exact.spectrum import marchenko_pastur
from ..measure.pace import speed_of
from ..problem import Problem
from ..problem.schedules import Course, just_after
from . import memory
from .memory import Dense, Memory, Moments
from .noise import STRIDES
from .particles import Particles
from .system import Step, System

DEFAULT_STEP = 0.05
"""γ where the user names none: as in the paper's experiment; smaller where the problem is stiff."""
GROWTH = 0.02
"""Where recorded times are spaced wider and wider, steps may grow to this share of the time."""
LARGEST_STEP = 0.2
"""But not beyond this, nor beyond what is stable: the largest step sets the error."""
ALIGNING = 1.3
"""Recorded times lie on the coarsest grid too where that takes at most so many times the steps: nothing is then
interpolated."""
FIRST, EARLY = 2, 4
"""Steps in the place of each of the first, a power of two, and coarsest steps that this lasts: most of what networks
miss is missed there (step error of the train loss of a tanh network at γ = 0.044: 5e-3 with one, 2e-3 with four)."""
NEAR = 1e-11
"""A jump that is this share of a cell away from an edge is at the edge: less than `just_after` it."""
LEAST = 1e-4
"""What a cell may miss of the integral of a schedule, as a share of the longest cell."""
MOST_STEPS = 1e6
MOST_RECORDED = 128
"""Times that are recorded where the user names none."""
TILE = 2**20
"""Bytes of samples that one compiled call holds on a CPU: more falls out of the cache."""
COMMON = 0.1
"""Steps shorter than all but this share of them, at the start or between recorded times, ask for no function."""
PERIODS = 0.5
"""Oscillations over the march from which on exponentials alone do not follow them."""


Speed = Callable[[Host], Host] | None


class Steps(NamedTuple):
    """Fine times of the march, a whole number of the coarsest steps of them, and which are recorded."""

    times: Host
    record: Host


def steps(
    algorithm: Algorithm,
    t_max: float | None,
    times: ArrayLike | None,
    dt: float | None,
    limit: float,
    aligned: bool,
    halvings: int = 0,
    gentle: bool = True,
    moving: tuple[Course, ...] = (),
) -> Steps:
    """Return steps ≤ dt up to t_max, or through the recorded `times`, shorter at first.

    aligned: whether all recorded times lie on the coarsest grid.
    limit: the step that the problem's curvature allows at most, where the user names none; then halved so often.
    moving: what changes in time. Its jumps are times of the coarsest grid, with shorter steps after them as at the
        start, and all grids resolve what it does in between.
    """
    wanted = grid.resolve(t_max, times)
    last = float(wanted[-1])
    size = DEFAULT_STEP if algorithm.discrete else min(DEFAULT_STEP, limit) / 2**halvings
    size = size if dt is None else dt
    if last / size > MOST_STEPS:
        why = f"that is {last / size:.2g} steps up to t = {last:g}; at most {MOST_STEPS:g} are possible"
        raise reject("dt", f"{size:.3g}", why)
    if algorithm.discrete:
        return _whole_updates(wanted, times is None, size)
    if times is None:
        count = STRIDES * math.ceil(last / (STRIDES * size) - 1e-9)
        every = STRIDES * math.ceil(count / (STRIDES * MOST_RECORDED)) if count > MOST_RECORDED else 1
        every = max(every, STRIDES) if aligned else every
        record = np.arange(0, count + 1, every)
        full = np.linspace(0.0, last, count + 1)
        return _through(full, full[np.union1d(record, [count])], False, size, gentle, moving)
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
    return _through(full, full[np.searchsorted(full, wanted)], True, size, gentle, moving)


def _through(times: Host, record: Host, named: bool, size: float, gentle: bool, moving: tuple[Course, ...]) -> Steps:
    """The same steps, but for cells, coarsest steps, that something jumps in, begins anew in, or is not resolved in.

    A cell with a jump is cut there, and at recorded times that are `named`. From a jump on, and from the start, as long
    as few cells last, they are halved (`gentle`): all rates of the problem are seen at once there. Then each is halved
    until it resolves what is moving. No cell knows how many follow it: times up to a time do not depend on the last.
    """
    cells = np.stack([times[i : len(times) - STRIDES + i : STRIDES] for i in range(STRIDES + 1)], axis=1)
    breaks = np.unique(np.concatenate([np.zeros(0), *(part.breaks for part in moving)]))
    anew, cut, until = [0.0], [], [float(cells[min(EARLY, len(cells)) - 1, -1])]
    for at in breaks[(breaks > 0) & (breaks < times[-1])]:
        home = int(np.searchsorted(cells[:, 0], at, side="right")) - 1
        a, b = cells[home, [0, -1]]
        points = np.array([a, b, *cut, *(record[(record > a) & (record < b)] if named else ())])
        edge = float(points[np.argmin(np.abs(points - at))])
        if abs(edge - at) > max(NEAR * (b - a), 8 * np.spacing(at)):
            edge = float(at)
        if edge not in (a, b, *cut):
            cut.append(edge)
        if edge < times[-1] and edge not in anew:
            anew.append(edge)
            until.append(float(edge + EARLY * (b - a)))
    if cut:
        cells = _cut(cells, np.array(cut), record if named else times[:0])
    if gentle:
        fresh = np.any((cells[:, :1] >= anew) & (cells[:, :1] < until), axis=1)
        for _ in range(FIRST.bit_length() - 1):
            cells, fresh = _halved(cells, fresh)
    while not np.all(sound := np.all([part.resolved(cells, LEAST * STRIDES * size) for part in moving], axis=0)):
        if len(cells) * STRIDES > MOST_STEPS:
            why = f"more than {MOST_STEPS:g} steps up to t = {times[-1]:g} would be needed; lower t_max"
            raise reject("schedule", "a schedule, a batch or a field with short bursts", why)
        cells, _ = _halved(cells, ~sound)
    full = np.append(cells[:, :-1].ravel(), times[-1])
    if cut and not named:  # times of cells that were cut give way to edges
        home = np.searchsorted(times[::STRIDES], cells[:, 0], side="right")
        near = cells[np.isin(home, np.searchsorted(times[::STRIDES], cut, side="right")), 0]
        record = np.unique(np.concatenate([record[np.isin(record, full)], near, anew]))
    return Steps(full, np.searchsorted(full, record))


def _cut(cells: Host, at: Host, through: Host) -> Host:
    """Cells with an edge at each of the times `at`, and, where they are cut, `through` others; the rest as they are."""
    home = np.searchsorted(cells[:, 0], at, side="right") - 1
    parts, last = [], 0
    for i in np.unique(home):
        a, b = cells[i, [0, -1]]
        edges = np.unique(np.concatenate([[a, b], at[home == i], through[(through > a) & (through < b)]]))
        parts += [cells[last:i], np.linspace(edges[:-1], edges[1:], STRIDES + 1, axis=1)]
        last = i + 1
    return np.concatenate([*parts, cells[last:]])


def _halved(cells: Host, which: Host) -> tuple[Host, Host]:
    """Those cells in two, with all of their times; and which of the new ones are halves."""
    points = np.empty((len(cells), 2 * STRIDES + 1))
    points[:, ::2], points[:, 1::2] = cells, (cells[:, :-1] + cells[:, 1:]) / 2
    count = np.where(which, 2, 1)
    out = np.repeat(cells, count, axis=0)
    first = (np.cumsum(count) - count)[which]
    out[first], out[first + 1] = points[which, : STRIDES + 1], points[which, STRIDES:]
    return out, np.repeat(which, count)


def _whole_updates(wanted: Host, every: bool, dt: float) -> Steps:
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
    times: Host
    """Its own times t_0 … t_K."""
    steps: Step
    """K+1 steps, stacked."""


def level(times: Host, stride: int, kept: Memory, dtype: str, discrete: bool = False, speed: Speed = None) -> Level:
    """Return the march on every `stride`-th time; schedules are looked at there if time is `discrete`, else a hair
    later. `speed`: of the clock by which the functions of the past run."""
    beyond = times[-1] + (times[-1] - times[-1 - stride]) / stride * np.arange(1, stride + 1)
    fine = np.concatenate([times, beyond])
    own = fine[::stride]
    count = len(own) - 1
    index = np.arange(count)
    inner = index[:, None] * stride + np.minimum(np.arange(STRIDES), stride - 1)
    seen = own[:-1] if discrete else just_after(own[:-1], np.diff(own))
    rows = kept.rows(own if speed is None else _clock(own, seen, speed), dtype)
    whole = np.full(count, stride)
    numbers: Tree = (index, seen, np.diff(own), whole, index * stride, fine[inner], np.diff(fine)[inner])
    return Level(stride, own[:-1], Step(*numbers, memory=rows))  # of numpy, until jax traces them


def _clock(times: Host, seen: Host, speed: Callable[[Host], Host]) -> Host:
    """∫ speed up to every time, as explicit steps see it: each at its beginning."""
    return np.concatenate([[0.0], np.cumsum(speed(seen) * np.diff(times))])


def functions(problem: Problem, algorithm: Algorithm, times: Host, slopes: tuple[Host, Host]) -> Moments:
    """Return the functions of the past that this march needs; `slopes`: mean ∇ℓ and ∇h at the start, (m, m) each.

    An algorithm in discrete time also makes kernels that change sign from step to step, and one whose increments know
    each other, such as draws without replacement, kernels that change within an epoch of few steps; a field that is no
    gradient, and momentum of little friction, make them oscillate, with the frequencies of xΓ + Λ over the spectrum x
    of the data. Rates are those of
    the clock by which weights forget (`speed_of`).
    """
    gaps, speed = np.diff(times), speed_of(problem, times)
    later = gaps if algorithm.discrete else gaps[FIRST * STRIDES :]
    step, length = float(np.quantile(later, COMMON) if len(later) else np.max(gaps)), float(times[-1])
    if speed is not None:
        seen = just_after(times[:-1], gaps)
        step, length = step * (float(np.max(speed(seen))) or 1.0), float(_clock(times, seen, speed)[-1])
    if algorithm.discrete or not algorithm.independent:
        return Moments(memory.ladder(length, step, fastest=2.0), memory.ALTERNATING)
    gamma, stiff = slopes
    law = marchenko_pastur(problem.rows * float(problem.sample_ratio), 1.0)
    spectrum = np.outer(problem.data.table().variance, law.nodes).ravel()
    values = np.linalg.eigvals(spectrum[:, None, None] * gamma + stiff)
    if (friction := algorithm.how.friction) is not None:  # x'' + κx' + value·x = 0
        values, stiff = friction / 2 + np.sqrt(friction**2 / 4 - values.astype(complex)), 0 * stiff
    fastest = float(np.max(np.abs(values.imag)))
    pairs: tuple[tuple[float, float], ...] = ()
    if fastest * length > 2 * math.pi * PERIODS:
        count = min(memory.MOST_PAIRS, 2 + math.ceil(fastest * length / (2 * math.pi)))
        damping = float(np.median(values.real[np.abs(values.imag) > 1e-9 * fastest]))
        omegas = fastest * (np.arange(count) + 0.5) / count
        pairs = tuple((max(damping, 0.25 / length), float(omega)) for omega in omegas)
    return Moments(memory.ladder(length, step), (), pairs, max(float(np.mean(np.diag(stiff))), 0.0))


def strides(algorithm: Algorithm, step: float, limit: float) -> tuple[int, ...]:
    """Return fine steps to a step of each grid: one, two and four, as far as they are well within the stability limit,
    but two grids at least, since one tells no error."""
    if algorithm.discrete:
        return (1,)
    return (1, 2, 4) if 4 * step <= limit / 2 else (1, 2)


def dense(times: Host) -> Dense:
    """Return a memory of all of the past; sizes in steps of 32, so that another length need not compile anew."""
    return Dense(32 * math.ceil((len(times) + 1) / 32))


def tile(system: System, replicas: int) -> int:
    """Return how many replicas go into one compiled call: on a CPU as many as the cache holds, half of them at most, so
    that two cores have work; all of them elsewhere."""
    if jax.default_backend() != "cpu":
        return replicas
    (g, m, _, samples), n, particles = system.shape, system.memory.size, isinstance(system.weights, Particles)
    more = system.algorithm.how.noisy * n * m + len(system.averages) * (2 + g) * m
    rows = (2 + 2 * g * particles) * n * m + g * m + more  # moments of forces, of w, of particles and their noise
    size = rows * samples * 4
    fitting = max(1, min(TILE // size, replicas // 2))
    return max(b for b in range(1, replicas + 1) if replicas % b == 0 and b <= fitting)


def snapshot_steps(times: Host, snapshots: ArrayLike | None) -> Host:
    """Return the steps nearest to the times at which draws are wanted."""
    if snapshots is None:
        return np.zeros(0, dtype=int)
    wanted = grid.increasing("snapshots", np.atleast_1d(snapshots))
    if wanted[-1] > times[-1] * (1 + 1e-9):
        raise reject("snapshots", wanted[-1], f"it lies beyond the last time {times[-1]:.4g}")
    return np.unique(np.abs(times[:, None] - wanted[None, :]).argmin(axis=0))
