"""From what was marched to variables with errors, at the recorded times."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..dmft.planning import Level
from ..dmft.work import Values
from ..execute.place import Shared
from ..problem import Problem
from ..problem.trained import trained_of
from ..results import metrics
from ..results.variables import (
    OF,
    Estimate,
    Variable,
    coordinates,
    dims,
    estimated,
    ordered,
    over_replicas,
    total_error,
)
from . import extrapolation, fresh
from .extrapolation import Limit
from .marched import Curve, Marched

KEPT = ("own", "rest", "along", "response", "equal")
"""Records that only serve kernels."""


class Source(Protocol):
    """Something that makes a curve uncertain."""

    name: str
    """Of its part among the errors of a curve."""
    beside: str
    """Of the variable that stands beside the curve: x_stderr, x_step_error, …."""

    def error(self, curve: Curve) -> np.ndarray | None:
        """Return the error at every time; None where it cannot be told."""
        ...


class Split(NamedTuple):
    """The largest errors of a curve, relative to its largest value."""

    parts: dict[str, float]
    """By source."""
    step_seen: float
    """What of that from the time step stands out from noise: what shorter steps take away, as far as can be told."""
    total: float
    """Of all together, at one time."""

    @property
    def noise(self) -> float:
        """Monte Carlo, and what of the error from the time step is noise too."""
        return math.hypot(self.parts["monte_carlo"], math.sqrt(max(self.parts["step"] ** 2 - self.step_seen**2, 0.0)))

    def to_words(self) -> dict[str, float]:
        """Return the errors by name, which a file can keep."""
        return self.parts | {"total": self.total, "step_seen": self.step_seen}


class Labelled(NamedTuple):
    """Variables and coordinates, and how large the errors of every curve are."""

    variables: dict[str, Variable]
    coords: dict[str, np.ndarray]
    errors: dict[str, Split]
    scales: dict[str, float]
    """The size of a curve, where that is not its largest value."""


def label(found: Marched, sources: Sequence[Source], extrapolate: bool, shared: Shared) -> Labelled:
    """Return every variable with its errors from all sources, at the recorded times that all grids reached; those of
    averages of the iterates after the others, each under the name of its average."""
    whole = _labelled(found.of(""), sources, extrapolate, shared)
    variables, errors, scales = dict(whole.variables), dict(whole.errors), dict(whole.scales)
    for average in found.system.averages:
        own = _labelled(found.of(average), sources, extrapolate, shared)
        for parts, more in zip((variables, errors, scales), own[:1] + own[2:], strict=True):
            parts |= {f"{average}{OF}{name}": value for name, value in more.items()}
    return Labelled(variables, whole.coords, errors, scales)


def _labelled(found: Marched, sources: Sequence[Source], extrapolate: bool, shared: Shared) -> Labelled:
    """The variables of the iterates themselves, or of one of their averages."""
    problem, levels, records = found.system.problem, found.levels, found.records
    grids = [level.times[: part.reached] for level, part in zip(levels, records, strict=True)]
    end = min((grid[-1] if len(grid) else -1.0) for grid in grids)
    at = found.steps.record[found.steps.times[found.steps.record] <= end * (1 + 1e-12)]
    time = found.steps.times[at]
    early = (time > 0) & (time < levels[-1].times[:2][-1])  # before the first step of the coarsest grid

    def at_limit(name: str) -> Limit:
        if not len(at):
            return Limit(*3 * [records[0].values[name][:, :0].astype(np.float64)])
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
        shift = extrapolation.onto(found.shift[name], grids[-1], time, straight=True)
        return Limit(*(part + shift for part in out))

    limits = {name: at_limit(name) for name in records[0].values if name not in (metrics.SOFT, *KEPT)}
    if len(at):
        limits |= fresh.averages(found, limits, shared)
        limits |= fresh.controlled(found, limits)
        if found.system.kernels:
            limits |= _kernels(found, at)
    scales = _scales(problem, limits)
    variables: dict[str, Variable] = {}
    errors: dict[str, Split] = {}
    absent = (*metrics.INTERNAL, *("overlap", "overlap_by_group") * (not problem.read))
    for name in ordered(n for n in limits if n not in absent and n.isidentifier()):
        copies = limits[name].best if extrapolate else limits[name].plain
        curve = Curve(name, found, limits[name], extrapolate, time, early, copies, *over_replicas(copies))
        scale = scales.get(name) or float(np.max(np.abs(curve.value), initial=1e-30))
        known = {source: error for source in sources if (error := source.error(curve)) is not None}
        beside: dict[str, Any] = {source.beside: error for source, error in known.items()}
        variables |= estimated(name, Estimate(curve.value, **beside, replicas=None if curve.two_time else copies))
        if not curve.two_time and curve.value.size:
            errors[name] = Split(
                {source.name: float(np.max(error / scale)) for source, error in known.items()},
                float(np.max(extrapolation.standing_out(curve.limit, extrapolate, beside["step_error"]) / scale)),
                float(np.max(total_error(*(error / scale for error in known.values())))),
            )
    return Labelled(variables, coordinates(variables, time), errors, scales)


def _between(sharp: np.ndarray, soft: np.ndarray, times: np.ndarray, stride: int) -> np.ndarray:
    """A zero-one error between the times of the coarsest grid, which more marches tell: as the softened error goes.

    There, too, how many samples change sides is noise; before the coarsest grid's first step it is left as it is.
    """
    if stride == 1 or len(times) <= stride:
        return sharp
    rest = extrapolation.onto((sharp - soft)[:, ::stride], times[::stride], times, straight=True)
    return np.concatenate([sharp[:, :stride], (soft + rest)[:, stride:]], axis=1)


def _scales(problem: Problem, limits: dict[str, Limit]) -> dict[str, float]:
    """An overlap may vanish by symmetry: its size is that of the product of the two lengths. So may an intercept: its
    size is that of the pre-activations; and a trained parameter: its size is that of the largest of them."""
    norm = limits["norm"].best
    if not norm.size:
        return {}
    least: dict[str, float] = {}
    student, gram = np.sqrt(np.max(np.abs(norm.mean(axis=0)))), np.diag(problem.weight_gram())[problem.width :]
    for name, own in (("overlap", gram[: problem.read]), ("mean_overlap", gram[problem.read :])):
        if len(own):
            least[name] = student * np.sqrt(np.max(own))
    if problem.bias:
        least["intercept"] = np.sqrt(np.max(np.abs(limits["fresh_norm"].best.mean(axis=0))))
    sizes = {name: float(np.max(np.abs(limits[name].best.mean(axis=0)))) for name in (*least, *trained_of(problem))}
    largest = max((sizes[name] for name in trained_of(problem)), default=0.0)
    return {name: max(size, least.get(name, largest), 1e-30) for name, size in sizes.items()}


def _kernels(found: Marched, at: np.ndarray) -> dict[str, Limit]:
    """At the recorded times, which all grids share."""
    parts = [two_time(found, level, part.values, at) for level, part in zip(found.levels, found.records, strict=True)]

    def at_limit(values: list[np.ndarray]) -> Limit:
        plain = values[0]
        if len(values) == 1:
            return Limit(plain, plain, plain)
        first = 2 * plain - values[1]
        best = (8 * plain - 6 * values[1] + values[2]) / 3 if len(values) == 3 else first
        return Limit(best, first if len(values) == 3 else plain, plain)

    return {name: at_limit([part[name] for part in parts]) for name in parts[0]}


def two_time(found: Marched, level: Level, records: Values, at: np.ndarray) -> Values:
    """Return kernels on one grid, (replicas, times, earlier, m, m), at fine steps `at`; at equal times retarded ones
    are limits.

    C_θ(i,k) = E[rest_i rest_kᵀ] + a_i a_kᵀ; R_θ(i,j) = Σ_b ρ_b φ_b(i,j); R_ℓ(i,j) = Σ_b κ_b φ_b(i,j)/γ_j.
    """
    at, kept, steps = at // level.stride, found.system.memory, level.steps
    rest, along = records["rest"][:, at].astype(np.float64), records["along"][:, at]
    share = np.asarray(found.system.groups.share)
    C = np.einsum("g,rigas,rkgbs->rikab", share, rest, rest) / rest.shape[-1]
    C = C + np.einsum("g,rigac,rkgbc->rikab", share, along, along)
    own = np.einsum("g,rignab->rinab", share, records["own"][:, at])
    R = kept.kernel(steps.memory, own, at)[:, :, at].copy()
    R_ell = kept.kernel(steps.memory, records["response"][:, at], at)[:, :, at] / steps.dt[at][:, None, None]
    i = np.arange(len(at))
    R[:, i, i] = np.eye(R.shape[-1])
    R_ell[:, i, i] = records["equal"][:, at]
    return {"C_theta": C, "R_theta": R, "R_ell": R_ell}


def draws(found: Marched) -> tuple[dict[str, Variable], dict[str, np.ndarray]]:
    """Return θ, θ*, r, r* and z at the snapshots, all replicas side by side: (snapshot, draw, unit).

    Of the weights as many of every group as its share of the coordinates asks for.
    """
    kept = found.records[0].draws
    if not kept:
        return {}, {}
    steps, system = sorted(kept), found.system
    counts = system.problem.data.table().counts(system.shape[-1])
    group = np.repeat(np.arange(len(counts)), counts)

    def flat(values: np.ndarray, weights: bool) -> np.ndarray:
        """(replicas, …, units, draws) → (replicas × draws, …, units); of weights (replicas, groups, units, draws)."""
        values = np.asarray(values, dtype=np.float64)
        if weights:
            values = np.moveaxis(values[:, group, :, np.arange(len(group))], 0, -1)
        moved = np.moveaxis(values, -1, 1)
        return moved.reshape(-1, *moved.shape[2:])

    problem = system.problem
    out = {name: np.stack([flat(kept[i][name], name == "theta") for i in steps]) for name in ("theta", "r")}
    once = ("theta_star", "r_star") if problem.read else ()
    out |= {name: flat(kept[steps[0]][name], name == "theta_star") for name in once}
    out["z"] = np.asarray(kept[steps[0]]["z"], dtype=np.float64).reshape(-1)
    variables = {name: Variable(dims(name, values.ndim), values) for name, values in out.items()}
    return variables, {"snapshot": found.steps.times[steps]}
