"""Questions about two results: how far apart, in units of the combined standard error?"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .errors import real, reject
from .results import Result, Runs
from .results.variables import COMPARABLE
from .significance import PValues, Sample, rotation_test

ROUNDING = 1e-5
"""Relative rounding of single precision after long sums; no standard error counts as smaller than this."""


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

    @property
    def difference(self) -> np.ndarray:
        """first − second."""
        return self.first - self.second

    @property
    def z(self) -> np.ndarray:
        """The difference in units of the combined standard error."""
        return self.difference / self.stderr

    @property
    def largest(self) -> float:
        """Largest |z|."""
        return float(np.max(np.abs(self.z)))

    @property
    def sigma(self) -> float:
        """Largest |z| as a Gaussian would have it: Student's t with few trials turned into a normal deviate."""
        from scipy.special import log_ndtr, ndtri_exp, stdtr

        size = np.abs(self.z)
        tail = stdtr(np.minimum(self.freedom, 1e9), -size)
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
    def worst_time(self) -> float:
        """Time of the largest |z|."""
        flat = np.abs(self.z).reshape(len(self.time), -1).max(axis=1)
        return float(self.time[int(flat.argmax())])


@dataclass(frozen=True)
class Report:
    """How two results agree, variable by variable. `report["train_error"]` is an `Agreement`."""

    variables: dict[str, Agreement]
    names: tuple[str, str]
    samples: tuple[Sample, Sample]
    """All variables of both results side by side, flat."""

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

    @cached_property
    def _tested(self) -> PValues:
        sizes = [agreement.z.size for agreement in self.variables.values()]
        floor = np.concatenate([np.ravel(agreement.floor) for agreement in self.variables.values()])
        return rotation_test(*self.samples, floor, np.repeat(np.arange(len(sizes)), sizes))

    @property
    def p_values(self) -> dict[str, float]:
        """For each variable: how often correct curves would differ as much or more, over the whole curve."""
        return dict(zip(self.variables, self._tested.each, strict=True))

    @property
    def p_value(self) -> float:
        """The same for all variables and times together: one test, whatever the correlations."""
        return self._tested.together

    def agrees(self, within: float = 4.0, *, false_alarm: float | None = None) -> bool:
        """Whether every point lies within so many standard errors, allowing for how few trials tell the error.

        false_alarm: judge all curves by one global test instead; two results with the same mean are then told apart
        with this probability.
        """
        if false_alarm is None:
            return self.sigma <= within
        rate = real("false_alarm", false_alarm, above=0, most=0.5, why="it must be a probability in (0, 0.5]")
        return self.p_value >= rate

    def rows(self) -> list[tuple[str, int, float, float, float, float, float, float]]:
        """Variable, points, largest |z|, as a normal deviate, its time, rms z, largest relative difference, p-value."""
        return [
            (n, a.time.size, a.largest, a.sigma, a.worst_time, a.rms, a.relative, self.p_values[n])
            for n, a in self.variables.items()
        ]

    def __repr__(self) -> str:
        head = f"{'':<12} {'points':>6} {'max |z|':>8} {'sigmas':>7} {'at t':>8} {'rms z':>6} {'max rel. diff.':>14}"
        lines = [
            f"{n:<12} {c:>6} {z:>8.2f} {s:>7.2f} {t:>8.3g} {r:>6.2f} {d:>14.2e} {p:>8.3g}"
            for n, c, z, s, t, r, d, p in self.rows()
        ]
        total = f"all curves together, one test: p = {self.p_value:.3g}"
        return "\n".join([f"{self.names[0]}  against  {self.names[1]}", f"{head} {'p':>8}", *lines, total])


def compare(first: Result, second: Result, variables: Any = None) -> Report:
    """Difference of two results (theory or runs, in any order), in units of the combined standard error.

    Curves are compared at the times of the runs; a theory is interpolated to them. Standard errors are over trials
    for runs and Monte Carlo for theories. `sigmas` turns z into a normal deviate: with few trials a large z is common.
    `p` judges a whole curve at once, knowing that its points are correlated: how often would two results with the same
    mean differ as much? (a rotation test on trials and replicas, see `sgdlimit.significance`).
    """
    for argument, result in (("first", first), ("second", second)):
        if not isinstance(result, Result):
            raise reject(argument, repr(result), "it must be a Solution or Runs, as sl.simulate or sl.load return")
        if not len(result.time):
            raise reject(argument, "a result without times", result.message or "it has nothing to compare")
        if isinstance(result, Runs) and result.trials < 2:
            raise reject(argument, "runs with 1 trial", "one trial has no standard error; simulate at least 2")
    names = [n for n in COMPARABLE if n in first and n in second]
    if variables is not None:
        names = [variables] if isinstance(variables, str) else list(variables)
    if not names:
        raise reject("variables", "none in common", f"the results share none of {', '.join(COMPARABLE)}")
    for name in names:
        shapes = [_shape(result, name) for result in (first, second)]
        if None in shapes:
            raise reject("variables", name, "both results must have it as a curve along time")
        if shapes[0] != shapes[1]:
            raise reject("variables", name, f"its shapes {shapes[0]} and {shapes[1]} differ; compare equal widths")
    grid = first.time if isinstance(first, Runs) or not isinstance(second, Runs) else second.time
    low, high = max(first.time[0], second.time[0]), min(first.time[-1], second.time[-1])
    # Runs end on the whole update nearest to the last time; a theory that stops a rounding short still covers it.
    slack = 1e-3 * (high - low)
    grid = grid[(grid >= low - slack) & (grid <= high + slack)]
    if not len(grid):
        raise reject("second", f"times {second.time[0]:g} to {second.time[-1]:g}", "the results share no times")
    agreements = {}
    for name in names:
        (a, a_error), (b, b_error) = _at(first, name, grid), _at(second, name, grid)
        floor = np.full_like(a, ROUNDING * max(float(np.max(np.abs(a))), float(np.max(np.abs(b))), 1e-30))
        error = np.sqrt(a_error**2 + b_error**2 + floor**2)
        # Welch–Satterthwaite: what is left of the trials' degrees of freedom in the combined error.
        spent = sum(e**4 / (r.trials - 1) for r, e in ((first, a_error), (second, b_error)) if isinstance(r, Runs))
        freedom = error**4 / np.maximum(spent, 1e-12 * error**4)
        agreements[name] = Agreement(grid, a, b, error, freedom, floor)
    samples = (_sample(first, names, grid), _sample(second, names, grid))
    return Report(agreements, (first.title(), second.title()), samples)


def _shape(result: Result, name: str) -> tuple[int, ...] | None:
    """Shape of a variable at one time; None if it is no curve."""
    variable = result.variables.get(name)
    dims = () if variable is None else tuple(d for d in variable.dims if d != "trial")
    if variable is None or dims[:1] != ("time",):
        return None
    return variable.values.shape[variable.dims.index("time") + 1 :]


def _onto(result: Result, values: np.ndarray, grid: np.ndarray, smooth: bool = True) -> np.ndarray:
    """Values along the result's time (first axis), at the given times."""
    from scipy.interpolate import CubicSpline

    if len(result.time) == len(grid) and np.allclose(result.time, grid, rtol=1e-9, atol=1e-12):
        return values
    if len(result.time) < 2:
        raise reject("times", result.time, "a curve with one point cannot be compared at other times")
    if smooth:
        return CubicSpline(result.time, values, axis=0)(grid)
    flat = values.reshape(len(result.time), -1)
    columns = [np.interp(grid, result.time, column) for column in flat.T]  # errors are not extrapolated
    return np.stack(columns, axis=1).reshape(len(grid), *values.shape[1:])


def _at(result: Result, name: str, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of a variable at the given times."""
    mean, error = result.curve(name)
    there = _onto(result, error, grid, smooth=False)
    copies = result.copies(name)
    if copies is not None and len(copies) > 1:
        # A curve through noisy points swings between them: what its copies do there is part of the error.
        swings = _onto(result, np.moveaxis(copies, 0, 1), grid).std(axis=1, ddof=1) / np.sqrt(len(copies))
        there = np.maximum(there, swings)
    return _onto(result, mean, grid), there


def _sample(result: Result, names: list[str], grid: np.ndarray) -> Sample:
    """Copies of all curves at the given times, side by side, and the errors that no copies tell."""
    parts = []
    for name in names:
        mean, error = (np.ravel(values) for values in _at(result, name, grid))
        copies = result.copies(name)
        shift = np.ravel(_onto(result, result.systematic(name), grid, smooth=False))
        if copies is not None:
            copies = np.moveaxis(_onto(result, np.moveaxis(copies, 0, 1), grid), 1, 0).reshape(len(copies), -1)
            scatter = np.zeros_like(mean)
        else:
            scatter = np.sqrt(np.maximum(error**2 - shift**2, 0.0))
        parts.append((mean, copies, scatter, shift))
    mean, copies, scatter, shift = zip(*parts, strict=True)
    # Copies of different variables belong together; where some have none, nothing can be rotated.
    if any(part is None for part in copies):
        errors = [np.ravel(_at(result, name, grid)[1]) for name in names]
        return Sample(np.concatenate(mean), None, np.concatenate(errors), np.zeros(sum(map(len, mean))))
    return Sample(*(np.concatenate(p, axis=-1) for p in (mean, copies, scatter, shift)))
