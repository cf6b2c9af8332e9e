"""How a quantity falls along a scale, and the power of it that fits best."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Power(NamedTuple):
    """A fitted power law, value ≈ prefactor · scale^exponent."""

    exponent: float
    error: float
    """Standard error of the exponent."""
    prefactor: float


@dataclass(frozen=True)
class Scaling:
    """Mean and standard error of a positive quantity at every value of a scale (d or γ)."""

    label: str
    scale: str
    at: np.ndarray
    value: np.ndarray
    error: np.ndarray

    @classmethod
    def of_trials(cls, label: str, scale: str, at: list[float], trials: list[np.ndarray]) -> "Scaling":
        """From independent trials at every value of the scale."""
        mean = np.array([np.mean(part) for part in trials])
        error = np.array([np.std(part, ddof=1) / np.sqrt(len(part)) for part in trials])
        return cls(label, scale, np.asarray(at, dtype=float), mean, error)

    @property
    def power(self) -> Power:
        """Weighted least squares in the logarithms; the error is widened where the points scatter beyond theirs."""
        keep = self.value > 0
        x, y = np.log(self.at[keep]), np.log(self.value[keep])
        if len(x) < 2:
            return Power(np.nan, np.inf, np.nan)
        spread = np.maximum(self.error[keep] / self.value[keep], 1e-3)  # no point rules alone
        (slope, level), covariance = np.polyfit(x, y, 1, w=1 / spread, cov="unscaled")
        left = np.sum(((slope * x + level - y) / spread) ** 2)
        widening = max(1.0, left / max(len(x) - 2, 1))
        return Power(float(slope), float(np.sqrt(covariance[0, 0] * widening)), float(np.exp(level)))

    @property
    def falls(self) -> bool:
        """Whether every step along the scale lowers the value, up to two standard errors of the difference."""
        order = np.argsort(self.at)
        if self.scale != "d":
            order = order[::-1]
        value, error = self.value[order], self.error[order]
        return bool(np.all(np.diff(value) <= 2 * np.hypot(error[1:], error[:-1])) and value[-1] < value[0])

    def row(self) -> str:
        """One line: first and last value, fitted power."""
        power = self.power
        ends = [f"{self.value[i]:.3g} ± {self.error[i]:.1g} at {self.at[i]:g}" for i in (0, -1)]
        return f"{self.label:<34} {ends[0]:<28} {ends[1]:<28} {self.scale}^({power.exponent:+.2f} ± {power.error:.2f})"
