"""Questions about two results: how far apart, in units of the combined standard error?"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.special import log_ndtr, ndtri_exp, stdtr, stdtrit

from .errors import instance, real, reject
from .results import Result, Runs
from .results.quality import percent, scale
from .results.variables import COMPARABLE, chosen, neighbours, total_error
from .significance import Sample, rotation_test

ROUNDING = 1e-5
"""Relative rounding of single precision after long sums; no standard error counts as smaller than this."""
FALSE_ALARM = 0.01
"""Two results with the same mean are called different with this probability, unless the caller says another."""
RESOLVED = 0.10
"""A comparison that would not notice a difference of this share of a curve cannot tell."""
INSIDE = np.linspace(0.1, 0.9, 9)
"""Where an interval between two recorded times is looked into."""

Verdict = Literal["agree", "differ", "cannot tell"]


@dataclass(frozen=True)
class Agreement:
    """One variable: difference and combined standard error along time."""

    time: np.ndarray
    first: np.ndarray
    second: np.ndarray
    stderr: np.ndarray
    freedom: np.ndarray
    """Degrees of freedom of the standard error (few trials know it poorly)."""
    floor: np.ndarray
    """Rounding error, contained in `stderr`."""
    scale: float
    """Largest value of the curve."""
    p_value: float
    """How often correct curves would differ as much or more, over the whole curve."""

    @property
    def difference(self) -> np.ndarray:
        """The first curve less the second, along time."""
        return self.first - self.second

    @property
    def z(self) -> np.ndarray:
        """The difference in units of the combined standard error."""
        return self.difference / self.stderr

    @property
    def largest(self) -> float:
        """The largest |z| along the curve."""
        return float(np.max(np.abs(self.z)))

    @property
    def sigma(self) -> float:
        """Largest |z| as a Gaussian would have it: Student's t with few trials turned into a normal deviate."""
        size = np.abs(self.z)
        tail = stdtr(self.freedom, -size)
        normal = -ndtri_exp(np.where(self.freedom > 1e8, log_ndtr(-size), np.log(np.maximum(tail, 1e-300))))
        return float(np.max(normal))

    @property
    def rms(self) -> float:
        """Root mean square of z: about 1 if the two agree and the errors are honest."""
        return float(np.sqrt(np.mean(self.z**2)))

    @property
    def relative(self) -> float:
        """Largest difference relative to the largest value of the curve."""
        return float(np.max(np.abs(self.difference)) / max(np.max(np.abs(self.second)), 1e-300))

    @property
    def resolution(self) -> float:
        """The share of the curve that a difference must exceed, to be told from chance at half of the points."""
        seen = stdtrit(self.freedom, 1 - FALSE_ALARM / 2) * self.stderr
        return float(np.median(seen)) / self.scale

    @property
    def verdict(self) -> Verdict:
        """'differ' by the test of the whole curve; otherwise 'agree', or 'cannot tell' if the bars are too wide."""
        return "differ" if self.p_value < FALSE_ALARM else "agree" if self.resolution <= RESOLVED else "cannot tell"

    @property
    def worst_time(self) -> float:
        """The time at which |z| is largest."""
        flat = np.abs(self.z).reshape(len(self.time), -1).max(axis=1)
        return float(self.time[int(flat.argmax())])


@dataclass(frozen=True)
class Report:
    """How two results agree, variable by variable. `report["train_error"]` is an `Agreement`."""

    variables: dict[str, Agreement]
    names: tuple[str, str]
    p_value: float
    """How often correct curves would differ as much or more: one test over all of them, whatever the correlations."""

    def __getitem__(self, name: str) -> Agreement:
        return self.variables[name]

    @property
    def largest(self) -> float:
        """Largest |z| over all variables and times."""
        return max(agreement.largest for agreement in self.variables.values())

    @property
    def sigma(self) -> float:
        """Largest deviation over all variables and times as a normal deviate."""
        return max(agreement.sigma for agreement in self.variables.values())

    @property
    def p_values(self) -> dict[str, float]:
        """For each variable: how often correct curves would differ as much or more, over the whole curve."""
        return {name: agreement.p_value for name, agreement in self.variables.items()}

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Variables whose bars are too wide to tell a difference of 10 % from chance."""
        return tuple(name for name, agreement in self.variables.items() if agreement.resolution > RESOLVED)

    @property
    def verdict(self) -> Verdict:
        """'differ' by the test of all curves; otherwise 'agree', or 'cannot tell' if one of them cannot be judged."""
        return "differ" if self.p_value < FALSE_ALARM else "cannot tell" if self.unresolved else "agree"

    def agrees(self, within: float = 4.0, *, false_alarm: float | None = None) -> bool:
        """Whether every point lies within so many standard errors, allowing for how few trials tell the error.

        False as well where the bars are so wide that a difference of 10 % would pass: `unresolved` names the curves,
        and `verdict` tells 'differ' from 'cannot tell'.
        false_alarm: judge all curves by one global test instead; two results with the same mean are then told apart
        with this probability.
        """
        if false_alarm is None:
            passed = self.sigma <= within
        else:
            why = "it must be a probability in (0, 0.5]"
            passed = self.p_value >= real("false_alarm", false_alarm, above=0, most=0.5, why=why)
        return passed and not self.unresolved

    def __repr__(self) -> str:
        head = (
            f"{'':<12} {'points':>6} {'max |z|':>8} {'sigmas':>7} {'at t':>8} {'rms z':>6} {'max rel. diff.':>14} "
            f"{'p':>8} {'resolves':>9}"
        )
        lines = [
            f"{name:<12} {a.time.size:>6} {a.largest:>8.2f} {a.sigma:>7.2f} {a.worst_time:>8.3g} {a.rms:>6.2f} "
            f"{a.relative:>14.2e} {a.p_value:>8.3g} {percent(a.resolution):>9}  {a.verdict}"
            for name, a in self.variables.items()
        ]
        total = f"all curves together, one test: p = {self.p_value:.3g}: {self.verdict}"
        if wide := ", ".join(self.unresolved):
            total += f" ({wide}: a difference of {percent(RESOLVED)} would pass; reduce the errors)"
        return "\n".join([f"{self.names[0]}  against  {self.names[1]}", head, *lines, total])


def compare(first: Result, second: Result, variables: str | Sequence[str] | None = None) -> Report:
    """Difference of two results (theory or runs, in any order), in units of the combined standard error.

    Curves are compared at the times of the runs; a theory is interpolated to them. Standard errors are over trials
    for runs and Monte Carlo for theories. `sigmas` turns z into a normal deviate: with few trials a large z is common.
    `p` judges a whole curve at once, knowing that its points are correlated: how often would two results with the same
    mean differ as much? (a rotation test on trials and replicas, see `sgdlimit.significance`). `resolves` is the
    difference, as a share of the curve, that would be noticed; above 10 % the verdict is 'cannot tell', not 'agree'.
    What interpolation between the times of a coarse theory may add is part of the error.
    """
    for argument, result in (("first", first), ("second", second)):
        instance(argument, result, Result, "a Solution or Runs, as sl.simulate or sl.load return")
        if not len(result.time):
            raise reject(argument, "a result without times", result.message or "it has nothing to compare")
        if isinstance(result, Runs) and result.trials < 2:
            raise reject(argument, "runs with 1 trial", "one trial has no standard error; simulate at least 2")
    names = chosen(variables) if variables is not None else _shared(first, second)
    if not names:
        raise reject("variables", "none in common", f"the results share none of {', '.join(COMPARABLE)}")
    check_curves((first, second), names)
    for name in names:
        one, other = (result.curve(name)[0].shape[1:] for result in (first, second))
        if one != other:
            raise reject("variables", name, f"its shapes {one} and {other} differ; compare equal widths")
    grid = first.time if isinstance(first, Runs) or not isinstance(second, Runs) else second.time
    low, high = max(first.time[0], second.time[0]), min(first.time[-1], second.time[-1])
    # Runs end on the whole update nearest to the last time; a theory that stops a rounding short still covers it.
    slack = 1e-3 * (high - low)
    grid = grid[(grid >= low - slack) & (grid <= high + slack)]
    if not len(grid):
        raise reject("second", f"times {second.time[0]:g} to {second.time[-1]:g}", "the results share no times")
    seen = [[_seen(result, name, grid) for name in names] for result in (first, second)]
    scales = [max(one.scale, other.scale, 1e-30) for one, other in zip(*seen, strict=True)]
    floors = [np.full_like(part.mean, ROUNDING * size) for part, size in zip(seen[0], scales, strict=True)]
    curve = np.repeat(np.arange(len(names)), [floor.size for floor in floors])
    floor = np.concatenate([np.ravel(floor) for floor in floors])
    each, together = rotation_test(_sample(seen[0]), _sample(seen[1]), floor, curve)
    agreements = {}
    for name, one, other, floor, size, p in zip(names, *seen, floors, scales, each, strict=True):
        error = total_error(one.error, other.error, floor)
        # Welch–Satterthwaite: what is left of the trials' degrees of freedom in the combined error.
        shares = [(r, e.error / error) for r, e in ((first, one), (second, other)) if isinstance(r, Runs)]
        freedom = 1 / np.maximum(sum((share**4 / (r.trials - 1) for r, share in shares), np.zeros_like(error)), 1e-9)
        agreements[name] = Agreement(grid, one.mean, other.mean, error, freedom, floor, size, p)
    return Report(agreements, (first.title(), second.title()), together)


def _shared(first: Result, second: Result) -> tuple[str, ...]:
    """Curves that both have and mean the same by: those of the table, and trained parameters of the user's names."""
    losses = [(result.about.get("problem") or {}).get("loss") for result in (first, second)]
    own = dict.fromkeys(name for loss in losses for name in _trained(loss))
    names = (*COMPARABLE, *(name for name in own if name not in COMPARABLE))
    return tuple(name for name in names if name in first.curves and name in second.curves)


def _trained(words: object) -> Iterator[str]:
    """Names of trained parameters in the stored words of a loss."""
    if not isinstance(words, dict):
        return
    for name, part in words.items():
        if isinstance(part, dict) and part.get("name") == "Trained" and "rate" in part:
            yield name
        else:
            yield from _trained(part)


def check_curves(results: Sequence[Result], names: Sequence[str]) -> None:
    """Refuse names that one of the results does not have as a curve along time."""
    for name, result in itertools.product(names, results):
        if name not in result.curves:
            held = neighbours(name, result.curves)
            raise reject("variables", name, f"{result.title()} does not have it as a curve along time; {held}")


def _same(result: Result, grid: np.ndarray) -> bool:
    """Whether the result was recorded at the given times, so that nothing is interpolated."""
    return len(result.time) == len(grid) and np.allclose(result.time, grid, rtol=1e-9, atol=1e-12)


def _onto(result: Result, values: np.ndarray, grid: np.ndarray, degree: int = 3) -> np.ndarray:
    """Values along the result's time (first axis), at the given times: a cubic spline, or straight lines (degree 1)."""
    if _same(result, grid):
        return values
    if len(result.time) < 2:
        raise reject("times", result.time, "a curve with one point cannot be compared at other times")
    return _spline(result.time, values, grid, degree)


def _spline(time: np.ndarray, values: np.ndarray, at: np.ndarray, degree: int = 3) -> np.ndarray:
    """A spline through the values; straight lines end at the last time, where nothing is extrapolated."""
    at = np.clip(at, time[0], time[-1]) if degree == 1 else at
    return make_interp_spline(time, values, k=min(degree, len(time) - 1), axis=0)(at)


def _between(result: Result, name: str, grid: np.ndarray) -> np.ndarray:
    """What the spline may be wrong by: its largest distance, between two recorded times, to splines through half.

    An error of h⁴ is overstated by far, and harmless where it is small; on a grid that is too coarse it is of the size
    of the true one. At a recorded time there is none, and near it, within an eighth of the interval, less.
    """
    time, mean = result.time, result.curve(name)[0]
    if _same(result, grid):
        return np.zeros_like(mean)
    if len(time) < 3:
        error = np.abs(np.diff(mean, axis=0))
    else:
        inside = (time[:-1, None] + np.diff(time)[:, None] * INSIDE).ravel()
        best = _spline(time, mean, inside)
        halves = [np.unique([0, *range(first, len(time), 2), len(time) - 1]) for first in (0, 1)]
        apart = np.max([np.abs(best - _spline(time[half], mean[half], inside)) for half in halves], axis=0)
        error = apart.reshape(len(time) - 1, len(INSIDE), *mean.shape[1:]).max(axis=1)
    interval = np.clip(np.searchsorted(time, grid) - 1, 0, len(time) - 2)
    away = np.min(np.abs(grid[:, None] - time), axis=1) / np.diff(time)[interval]
    return error[interval] * np.minimum(8 * away, 1.0).reshape(-1, *[1] * (mean.ndim - 1))


class _Seen(NamedTuple):
    """A variable of a result at the times that are compared."""

    mean: np.ndarray
    error: np.ndarray
    copies: np.ndarray | None
    """(copies, times, …)"""
    shift: np.ndarray
    """The part of the error that all copies share."""
    scale: float


def _seen(result: Result, name: str, grid: np.ndarray) -> _Seen:
    """The mean where it is looked at, with all that is uncertain about it; refused where it is no number."""
    mean, error = result.curve(name)
    for what, values in (("", mean), ("the error of ", error), ("a copy of ", result.copies(name))):
        if values is not None and not np.all(np.isfinite(values)):
            why = f"{what}{name} is not finite everywhere in {result.title()}; leave it out, or compare earlier times"
            raise reject("variables", name, why)
    size = scale(name, {n: _onto(result, result.curve(n)[0], grid) for n in {name, "norm"} & set(result.curves)})
    copies, between = result.copies(name), _between(result, name, grid)
    error, shared = (_onto(result, part, grid, degree=1) for part in (error, result.systematic(name)))
    if copies is not None:
        copies = np.moveaxis(_onto(result, np.moveaxis(copies, 0, 1), grid), 1, 0)
        if len(copies) > 1:
            # A curve through noisy points swings between them: what its copies do there is part of the error.
            error = np.maximum(error, copies.std(axis=0, ddof=1) / np.sqrt(len(copies)))
    return _Seen(_onto(result, mean, grid), total_error(error, between), copies, total_error(shared, between), size)


def _sample(seen: list[_Seen]) -> Sample:
    """All variables side by side, flat. Their copies belong together: where some have none, nothing can be rotated."""
    columns = zip(*((part.mean, part.error, part.shift) for part in seen), strict=True)
    mean, error, shift = (np.concatenate([np.ravel(values) for values in column]) for column in columns)
    copies = [part.copies.reshape(len(part.copies), -1) for part in seen if part.copies is not None]
    if len(copies) < len(seen):
        return Sample(mean, None, error, np.zeros_like(mean))
    return Sample(mean, np.concatenate(copies, axis=1), np.zeros_like(mean), shift)
