"""Power laws: the exponent of a curve, with an error that says how straight it is in the logarithms."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import real, reject

FEWEST = 5
"""Points that an exponent is fitted to, at least."""
SPAN = 10.0
"""Least ratio of the ends of a window: a decade."""
ALIKE = 1.1
"""Errors of windows that count as equally good."""


@dataclass(frozen=True)
class Exponent:
    """y ≈ prefactor · x^exponent over a window of x."""

    exponent: float
    error: float
    """Of the fit and of the window together."""
    fit_error: float
    """Standard error of the slope, from `y_error` or the scatter of the points, whichever is larger."""
    window_error: float
    """The largest of: half of what the halves of the window, fitted alone, differ by; what a window twice as long in
    the logarithm, as far as there are points, changes."""
    prefactor: float
    window: tuple[float, float]
    slopes: np.ndarray
    """Local slopes d log y/d log x at all points that were given, nan where y is not positive."""

    def __str__(self) -> str:
        low, high = self.window
        return f"{self.exponent:+.4f} ± {self.error:.1g} for {low:.3g} ≤ x ≤ {high:.3g}"

    def agrees(self, exponent: float, within: float = 3.0, slack: float = 0.0) -> bool:
        """Whether an exponent lies within so many errors, and a slack of its own."""
        return abs(self.exponent - exponent) <= within * self.error + slack


def fit_exponent(
    x: Any, y: Any, y_error: Any = None, *, window: tuple[float, float] | None = None, span: float = SPAN
) -> Exponent:
    """The exponent of y ∝ x^exponent.

    x: positive and increasing. y_error: standard errors of y, none by default.
    window: the range of x to fit. By default it is searched for: among all that span a factor of `span` or more, the
    one whose exponent has the smallest error, and of equally good ones the longest.
    """
    x, y, error = _read(x, y, y_error)
    real("span", span, above=1, why="it must be a ratio above 1")
    if x[-1] < span * x[0] and window is None:
        raise reject("x", f"from {x[0]:.4g} to {x[-1]:.4g}", f"a window needs a factor of {span:g}; lower span=")
    good = y > 0
    log_x, log_y = np.log(x), np.log(np.where(good, y, np.nan))
    relative = error / np.where(good, y, 1.0)
    told = bool(np.any(relative[good] > 0))
    # Points said to be exact weigh as much as the best of the others.
    weights = 1 / np.maximum(relative, np.min(relative[good & (relative > 0)])) if told else np.ones(len(x))
    if window is not None:
        if not isinstance(window, tuple | list) or len(window) != 2 or not 0 < window[0] < window[1]:
            raise reject("window", window, "it must be two numbers, 0 < low < high")
        spans = [np.flatnonzero(good & (x >= window[0]) & (x <= window[1]))]
        if len(spans[0]) < FEWEST:
            raise reject("window", window, f"it holds {len(spans[0])} points; at least {FEWEST} are needed")
    else:
        every = (np.arange(i, j) for i in range(len(x)) for j in range(i + FEWEST, len(x) + 1))
        spans = [one for one in every if np.ptp(log_x[one]) >= math.log(span) * (1 - 1e-9) and np.all(good[one])]
        if not spans:
            why = f"no stretch of {FEWEST} positive points spans a factor of {span:g}; give more points or lower span="
            raise reject("y", f"{int(good.sum())} positive points", why)
    fits = [(_fit(log_x, log_y, weights, told, one), one) for one in spans]
    least = min(math.hypot(*fit[2:]) for fit, _ in fits)
    alike = [item for item in fits if math.hypot(*item[0][2:]) <= ALIKE * least]
    (slope, level, fit_error, window_error), chosen = max(alike, key=lambda item: np.ptp(log_x[item[1]]))
    ends = float(x[chosen[0]]), float(x[chosen[-1]])
    error, slopes = math.hypot(fit_error, window_error), np.gradient(log_y, log_x)
    return Exponent(slope, error, fit_error, window_error, math.exp(level), ends, slopes)


def _read(x: Any, y: Any, y_error: Any) -> tuple[np.ndarray, ...]:
    arrays = {"x": x, "y": y, "y_error": np.zeros(np.shape(y)) if y_error is None else y_error}
    for name, given in arrays.items():
        try:
            arrays[name] = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise reject(name, given, "it must be an array of numbers") from None
        if arrays[name].ndim != 1 or arrays[name].shape != np.shape(x) or len(arrays[name]) < FEWEST:
            raise reject(name, f"shape {arrays[name].shape}", f"x, y and y_error are curves of {FEWEST} or more points")
    x, y, error = arrays.values()
    if not np.all(np.isfinite(x)) or x[0] <= 0 or np.any(np.diff(x) <= 0):
        raise reject("x", "values that are not positive and increasing", "leave out x = 0 and sort them")
    if not np.all(error >= 0):
        raise reject("y_error", error[~(error >= 0)][0], "standard errors are ≥ 0")
    return x, y, error


def _fit(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, told: bool, window: np.ndarray
) -> tuple[float, float, float, float]:
    """Slope, level at x = 1, and the slope's two errors, in the logarithms; `told`: weights are inverse errors."""

    def line(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.polyfit(x[points], y[points], 1, w=weights[points], cov="unscaled")

    (slope, level), covariance = line(window)
    rest = np.sum((weights[window] * (y[window] - level - slope * x[window])) ** 2) / (len(window) - 2)
    fit_error = math.sqrt(covariance[0, 0] * (max(rest, 1.0) if told else rest))
    middle, more = len(window) // 2, np.ptp(x[window]) / 2
    halves, _ = line(window[: middle + 1])[0] - line(window[middle:])[0]
    wide = np.flatnonzero(np.isfinite(y) & (x >= x[window[0]] - more) & (x <= x[window[-1]] + more))
    return float(slope), float(level), fit_error, float(max(abs(halves) / 2, abs(line(wide)[0][0] - slope)))
