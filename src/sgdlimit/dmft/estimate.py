"""From what was marched to variables with errors: extrapolation, test averages, kernels, draws."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from .._together import identity_of, shared, values_of
from ..measure.averages import Nodes, make_nodes, observe, quickly
from ..problem.observables import error_kind
from ..problem.shift import place
from ..results import Variable, metrics, statistics
from ..results.metrics import CONTROL, INTERNAL
from ..results.statistics import Estimate
from ..results.variables import TWO_TIME, dims, ordered
from . import extrapolation, kernels
from .drive import Job, Marched
from .extrapolation import Limit
from .run import Records
from .system import System

FEWEST_NODES, MOST_NODES = 1024, 2**16
"""Points behind a test average in each replica: twice its samples on the coarsest grid, within these."""
BIAS = 0.35
"""Of one march over the standard error of 16, at ONE_MARCH samples: seen, not derived."""
ONE_MARCH = 512
"""Samples of one march, times the width, where few are taken; where more are, M grows as the root of all."""
NOISE = 4.0
"""Below so many of its standard errors an overlap is taken for zero."""
FEWEST_FITTED = 8
"""Replicas from which on a coefficient is fitted to them."""
SPARSE = 16
"""What changes slowly is looked at at so many times at most: copies, step errors, and what more points change."""


class Split(NamedTuple):
    """The largest errors of a curve, relative to its largest value."""

    monte_carlo: float
    step: float
    projection: float
    bias: float
    total: float
    """Of all together, at one time."""
    step_seen: float
    """What of the steps' error stands out from the noise of the corrections, which more samples take away."""


class Labelled(NamedTuple):
    """Variables and coordinates, and how large the errors of every curve are."""

    variables: dict[str, Variable]
    coords: dict[str, np.ndarray]
    errors: dict[str, Split]
    scales: dict[str, float]
    """The size of a curve, where that is not its largest value."""


def label(job: Job, found: Marched, extrapolate: bool) -> Labelled:
    """Every variable with its errors, at the recorded times that all grids reached."""
    problem, levels, records = found.system.problem, found.levels, found.records
    grids = [level.times[: part.reached] for level, part in zip(levels, records, strict=True)]
    end = min((grid[-1] if len(grid) else -1.0) for grid in grids)
    at = job.steps.record[job.steps.times[job.steps.record] <= end * (1 + 1e-12)]
    time = job.steps.times[at]
    early = (time > 0) & (time < levels[-1].times[:2][-1])  # before the first step of the coarsest grid

    def at_limit(name: str) -> Limit:
        values = [part.values[name].astype(np.float64) for part in records]
        if name == "train_error" and extrapolate and metrics.SOFT in records[0].values:
            soft = records[0].values[metrics.SOFT].astype(np.float64)
            less = _between(values[0], soft, grids[0], levels[-1].stride) - values[0]
            for level, part in zip(levels, values, strict=True):  # all of them follow the finest one
                here = less[:, :: level.stride][:, : part.shape[1]]
                part[:, : here.shape[1]] += here
        out = extrapolation.limit(values, grids, time, at)
        if name not in found.shift:
            return out
        # straight, as all that is noise: what one march has too much between two times, another takes off there
        return out.moved(extrapolation.onto(found.shift[name], grids[-1], time, straight=True))

    aside = (metrics.SOFT, *kernels.KEPT)
    names = [name for name in records[0].values if name not in aside]
    limits = (
        {name: at_limit(name) for name in names} if len(at) else {name: _nothing(records[0], name) for name in names}
    )
    if len(at):
        limits |= _test(found, limits, job.seed)
        limits |= _controlled(found, limits)
        if found.system.kernels:
            limits |= _kernels(found, at)
    scales = _scales(problem, limits)
    variables: dict[str, Variable] = {}
    errors: dict[str, Split] = {}
    for name in ordered(n for n in limits if n not in INTERNAL and n.isidentifier()):
        if (name in ("overlap", "overlap_by_group") and not problem.k) or (
            name == "Gamma" and not found.system.kernels
        ):
            continue
        part, two = limits[name], name in TWO_TIME
        copies = part.best if extrapolate else part.plain
        value, stderr = statistics.over_replicas(copies)
        if name == "train_error" and error_kind(problem) == "zero-one":
            stderr = np.maximum(stderr, 1 / (len(part.best) * found.system.samples))  # not one in so many was seen
        step = extrapolation.step_error(part, extrapolate, 1 + two, early)
        projection = None if two else _projection(found, name, time, value) if len(at) else np.zeros_like(value)
        scale = scales.get(name) or float(np.max(np.abs(value), initial=1e-30))
        bias = _bias(copies, found)
        estimate = Estimate(value, stderr, step, projection, bias, None if two else copies)
        variables |= statistics.variables(name, dims(name), estimate)
        if not two and value.size:
            parts = [np.asarray(error) / scale for error in (stderr, step, projection, bias)]
            total = np.sqrt(sum(error**2 for error in parts))
            _, noise = statistics.over_replicas(part.best - (part.lower if extrapolate else part.plain))
            seen = np.sqrt(np.maximum(parts[1] ** 2 - (2 * noise / scale) ** 2, 0.0))
            errors[name] = Split(*(float(np.max(error)) for error in (*parts, total, seen)))
    unit = np.arange(problem.width)
    coords = {"time": time, "student": unit, "student_": unit}
    if found.system.kernels:
        coords["earlier"] = time
    if problem.k:
        coords["teacher"] = np.arange(problem.k)
    if "norm_by_group" in variables:
        coords["group"] = np.arange(found.system.shape[0])
    return Labelled(variables, coords, errors, scales)


def _between(sharp: np.ndarray, soft: np.ndarray, times: np.ndarray, stride: int) -> np.ndarray:
    """A zero-one error between the times of the coarsest grid, which more marches tell: as the softened error goes.

    There, too, how many samples change sides is noise; before the coarsest grid's first step it is left as it is.
    """
    if stride == 1 or len(times) <= stride:
        return sharp
    rest = extrapolation.onto((sharp - soft)[:, ::stride], times[::stride], times, straight=True)
    return np.concatenate([sharp[:, :stride], (soft + rest)[:, stride:]], axis=1)


def _bias(copies: np.ndarray, found: Marched) -> np.ndarray:
    """What a march of M samples feeds back to itself, however many are averaged: it falls as 1/M.

    No spread tells it. Seen over many seeds on hard problems: no more than this share of the standard error of 16
    marches of 512 samples and unit of width.
    """
    each, marches = found.fed_back
    one = copies.std(axis=0, ddof=1) * np.sqrt(marches)
    return BIAS * one / 4 * np.sqrt(ONE_MARCH * found.system.problem.width / each)


def _nothing(records: Records, name: str) -> Limit:
    empty = records.values[name][:, :0].astype(np.float64)
    return Limit(empty, empty, empty)


def _scales(problem: Any, limits: dict[str, Limit]) -> dict[str, float]:
    """An overlap may vanish by symmetry: its size is that of the product of the two lengths. So may an intercept: its
    size is that of the pre-activations."""
    norm = limits["norm"].best
    if not norm.size:
        return {}
    least = {}
    if problem.k:
        student = np.sqrt(np.max(np.abs(norm.mean(axis=0))))
        least["overlap"] = student * np.sqrt(np.max(np.diag(problem.weight_gram())[problem.width :]))
    if problem.bias:
        least["intercept"] = np.sqrt(np.max(np.abs(limits["fresh_norm"].best.mean(axis=0))))
    return {
        name: float(max(np.max(np.abs(limits[name].best.mean(axis=0))), size, 1e-30)) for name, size in least.items()
    }


def _projection(found: Marched, name: str, time: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The distance between two sets of functions; for test averages, relative, that of the weights' second moments."""
    if found.projection is None:
        return np.zeros_like(value)
    own = found.levels[-1].times

    def at(gap: np.ndarray) -> np.ndarray:
        return gap[np.clip(np.searchsorted(own, time - 1e-12), 0, len(gap) - 1)]

    if name == "train_error" and "train_loss" in found.projection:  # of an error that jumps only noise would show
        size = np.max(np.abs(found.records[-1].values["train_loss"].mean(axis=0)), initial=1e-30)
        return np.abs(value) * at(found.projection["train_loss"]) / size
    if name in found.projection:
        return at(found.projection[name])
    relative = np.zeros(len(time))
    for part in ("norm", "overlap"):
        mean, error = statistics.over_replicas(found.records[-1].values[part])
        size = np.max(np.abs(mean), initial=0.0)
        if size > NOISE * np.max(error, initial=0.0):  # an overlap that vanishes moves nothing
            gap = found.projection[part].reshape(len(found.projection[part]), -1).max(axis=1, initial=0.0)
            relative = np.maximum(relative, at(gap) / size)
    return np.abs(value) * relative.reshape(-1, *[1] * (value.ndim - 1))


def _test(found: Marched, limits: dict[str, Limit], seed: int) -> dict[str, Limit]:
    """Test averages from the weights' second moments C_w(t,t), C_w(t,*), at all orders of extrapolation.

    They are taken at the mean over replicas: the mean of what each replica gives would be biased by the replicas' own
    noise. Copies are jackknife pseudo-values, R·f(mean) − (R−1)·f(mean without one). Points are samples
    (w_0, w*, z), and at some times more of them: few points of exact second moments miss the tails.
    """
    system, M = found.system, found.system.samples
    times, count = np.arange(limits["norm"].best.shape[1], dtype=float), len(limits["norm"].best)
    some = np.unique(np.linspace(0, len(times) - 1, min(SPARSE, len(times))).round().astype(int))

    def seen(nodes: Nodes, wanted: list[tuple[int, Any, bool]]) -> list[dict[str, np.ndarray]]:
        """At an order and times, at the mean or that without the replica whose points are used: (replicas, times)."""
        moments = {}
        for name in ("fresh_norm", "fresh_overlap", "overlap", "intercept"):
            if name in limits:
                parts = []
                for order, at, without in wanted:
                    copies = limits[name][order][:, at].swapaxes(0, 1)
                    mean = np.broadcast_to(copies.mean(axis=1, keepdims=True), copies.shape)
                    parts.append((count * mean - copies) / (count - 1) if without else mean)
                moments[name] = np.concatenate(parts)
        classes = place(system.problem, moments["overlap"], moments.get("intercept"))
        second = moments["fresh_norm"], moments["fresh_overlap"]
        averages = observe(system.problem, nodes, *second, system.metrics, classes)
        ends = np.cumsum([len(times[at]) for _, at, _ in wanted])[:-1]
        apart = {name: np.split(value.T, ends, axis=1) for name, value in averages.items()}
        return [{name: parts[i] for name, parts in apart.items()} for i in range(len(wanted))]

    def carried(gap: np.ndarray) -> np.ndarray:
        return extrapolation.onto(gap, times[some], times)

    orders = (0, 1, 2) if not np.array_equal(limits["norm"].best, limits["norm"].plain) else (0,)
    pairs = [(order, some, without) for order in orders for without in (False, True)]
    value, *found_pairs = seen(_own_nodes(found), [(0, slice(None), False), *pairs])
    copies = [
        {name: count * at_mean[name] - (count - 1) * left_out[name] for name in value}
        for at_mean, left_out in zip(found_pairs[::2], found_pairs[1::2], strict=True)
    ]
    shift = {name: 0.0 for name in value}
    size = 2 ** int(np.log2(max(min(2 * found.samples, MOST_NODES), FEWEST_NODES)))
    if size > M:
        nodes = _more_nodes(system, size, count, seed)
        (more,) = seen(nodes, [(0, some, False)])
        shift = {name: more[name] - value[name][:, some] for name in value}
    out = {}
    for name, mean in value.items():
        parts = [mean + carried(part[name] + shift[name] - mean[:, some]) for part in copies]
        out[f"test_{name}"] = Limit(*(parts if len(parts) == 3 else parts * 3))
    return out


def _controlled(found: Marched, limits: dict[str, Limit]) -> dict[str, Limit]:
    """Train averages less what the same samples have too much of the fresh pre-activation w, whose average is known.

    E_M[ψ(r)] − c (E_M[ψ(w)] − E ψ(w)), c by a regression over replicas and nearby times, so that it never loses: a
    logistic loss has a fourteenth of the variance. Where a test has another law its averages say nothing of w.
    """
    groups = found.system.groups
    if not np.array_equal(groups.tested, groups.variance):
        return {}
    out = {}
    for name in (name.removeprefix("train_") for name in limits if name.startswith("train_")):
        train, own, known = (limits.get(key) for key in (f"train_{name}", CONTROL.format(name), f"test_{name}"))
        if train is None or own is None or known is None or len(train.best) < FEWEST_FITTED:
            continue
        excess = [part - exact for part, exact in zip(own, known, strict=True)]
        centred, left = train.best - train.best.mean(axis=0), excess[0] - excess[0].mean(axis=0)
        together, alone = (extrapolation.nearby((part * left).mean(axis=0)) for part in (centred, left))
        c = np.where(alone > 0, together / np.where(alone > 0, alone, 1.0), 0.0)
        out[f"train_{name}"] = Limit(*(part - c * more for part, more in zip(train, excess, strict=True)))
    return out


def _own_nodes(found: Marched) -> Nodes:
    """The samples (w_0, w*, z) of another replica: a replica's weights know its own."""
    teacher, (_, m, k, _) = np.asarray(found.system.groups.test_teacher), found.system.shape

    def make() -> Nodes:
        basis = np.concatenate([np.asarray(start.basis[:, : m + k, :MOST_NODES], np.float64) for start in found.starts])
        z = np.concatenate([np.asarray(start.z[:, :MOST_NODES], np.float64) for start in found.starts])
        sound = np.linalg.pinv(np.linalg.pinv(teacher, hermitian=True), hermitian=True) if k else teacher
        return Nodes.of(np.roll(basis, 1, axis=0).swapaxes(1, 2), np.roll(z, 1, axis=0), sound).rounded()

    return shared(lambda: ("own nodes", identity_of(found.starts), values_of(teacher)), make)


def _more_nodes(system: System, size: int, replicas: int, seed: int) -> Nodes:
    problem, teacher = system.problem, np.asarray(system.groups.test_teacher)

    def key() -> Hashable:
        return "nodes", size, replicas, seed, problem.width, problem.k, values_of((problem.noise_law, teacher))

    return shared(key, lambda: make_nodes(problem, size, replicas, seed, quickly, teacher).rounded())


def _kernels(found: Marched, at: np.ndarray) -> dict[str, Limit]:
    """At the recorded times, which all grids share."""
    parts = [
        kernels.two_time(
            part.values,
            found.system.groups,
            found.system.memory,
            level.steps.memory,
            level.steps.dt,
            at // level.stride,
        )
        for level, part in zip(found.levels, found.records, strict=True)
    ]

    def at_limit(values: list[np.ndarray]) -> Limit:
        plain = values[0]
        if len(values) == 1:
            return Limit(plain, plain, plain)
        first = 2 * plain - values[1]
        best = (8 * plain - 6 * values[1] + values[2]) / 3 if len(values) == 3 else first
        return Limit(best, first if len(values) == 3 else plain, plain)

    return {name: at_limit([part[name] for part in parts]) for name in TWO_TIME}


def draws(found: Marched, times: np.ndarray) -> tuple[dict[str, Variable], dict[str, np.ndarray]]:
    """θ, θ*, r, r* and z at the snapshots, all replicas side by side: (snapshot, draw, unit).

    Of the weights as many of every group as its share of the coordinates asks for.
    """
    kept = found.records[0].draws
    if not kept:
        return {}, {}
    steps, system = sorted(kept), found.system
    counts = system.problem.data.table().counts(system.samples)
    group = np.repeat(np.arange(len(counts)), counts)

    def flat(values: np.ndarray) -> np.ndarray:
        """(replicas, units, draws) → (replicas × draws, units); of weights (replicas, groups, units, draws)."""
        values = np.asarray(values, dtype=np.float64)
        if values.ndim == 4:
            values = np.moveaxis(values[:, group, :, np.arange(len(group))], 0, -1)
        moved = np.moveaxis(values, -2, -1)
        return moved.reshape(-1, moved.shape[-1])

    out = {name: np.stack([flat(kept[i][name]) for i in steps]) for name in ("theta", "r")}
    if system.problem.k:
        out |= {name: flat(kept[steps[0]][name]) for name in ("theta_star", "r_star")}
    out["z"] = np.asarray(kept[steps[0]]["z"], dtype=np.float64).reshape(-1)
    return {name: Variable(dims(name), values) for name, values in out.items()}, {"snapshot": times[steps]}
