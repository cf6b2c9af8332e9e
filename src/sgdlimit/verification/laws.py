"""`thm:dmft_sgf`, `cor:sgf_dmft_planted`: empirical joint laws tend to those of the DMFT processes.

That of the weights with the teacher, and that of the pre-activations of the training samples with their labels, by
Wasserstein distances W₂.
"""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._linalg import root_of
from ..algorithms import Algorithm
from ..problem import Problem
from ..results import Result
from ..simulation import simulate
from ..solver import solve

SAMPLING = "independent draws"  # label of what is measured beside the distance to the law
WORKERS = 2  # assignments solved at the same time; each holds a matrix of squared distances


class Power(NamedTuple):
    """A fitted power law, value ≈ prefactor · scale^exponent."""

    exponent: float
    error: float  # standard error of the exponent
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


def between_points(first: np.ndarray, second: np.ndarray) -> float:
    """W₂ of two clouds of equally many points, shape (points, dimension): the optimal assignment, exactly."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    cost = cdist(first, second, "sqeuclidean")
    rows, columns = linear_sum_assignment(cost)
    return float(np.sqrt(cost[rows, columns].mean()))


def between_moments(mean: np.ndarray, covariance: np.ndarray, mean_: np.ndarray, covariance_: np.ndarray) -> float:
    """W₂ of two Gaussian laws (Bures); for any laws with these moments a lower bound (Gelbrich).

    |μ − μ'|² + Tr[C + C' − 2(C^½ C' C^½)^½].
    """
    root = root_of(covariance)
    cross = root_of(root @ covariance_ @ root)
    square = np.sum((mean - mean_) ** 2) + np.trace(covariance + covariance_ - 2 * cross)
    return float(np.sqrt(max(square, 0.0)))


def points(result: Result, side: str, trial: int | None = None) -> np.ndarray:
    """Rows (θ^{t1}, …, θ^{tL}, θ*) or (r^{t1}, …, r^{tL}, r*, z), one a coordinate or sample."""
    names = {"theta": ("theta", "theta_star"), "r": ("r", "r_star", "z")}[side]
    moving, *still = (result[name][... if trial is None else trial] for name in names if name in result.variables)
    columns = [*moving, *(part.reshape(len(part), -1) for part in still)]
    return np.concatenate(columns, axis=1).astype(np.float64)


def distances(
    problem: Problem,
    algorithm: Algorithm,
    *,
    dims: Sequence[int],
    trials: Sequence[int],
    times: Sequence[float],
    dt: float,
    entries: Sequence[str] = ("gaussian",),
    samples: int = 2**17,
    reference: bool = True,
    seed: int = 0,
) -> dict[str, list[Scaling]]:
    """W₂ between the finite-size law and the DMFT law against d, for the weights ("theta") and the samples ("r").

    Measured between d (or n) rows of one run and as many independent draws of the DMFT law; the same between two sets
    of such draws ("independent draws", unless reference=False) is what sampling alone leaves. An algorithm without a
    step of its own takes the same dt at finite size as in the theory, whose draws come from steps of dt: their discrete
    systems correspond (`lem:dmft_sgf_discrete`), but for the penalty, which the theory takes at the end of a step.
    `trials[i]` runs at `dims[i]`.
    """
    law = solve(problem, algorithm, t_max=max(times), dt=dt, snapshots=list(times), samples=samples, seed=seed)
    rng = np.random.default_rng(seed)
    draws = {side: points(law, side) for side in ("theta", "r")}
    found: defaultdict[tuple[str, str], list[np.ndarray]] = defaultdict(list)

    def some(side: str, count: int) -> np.ndarray:
        """Draws of the law, chosen at random from all replicas."""
        return draws[side][rng.choice(len(draws[side]), count, replace=False)]

    for dim, count in zip(dims, trials, strict=True):
        pairs: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
        for k, kind in enumerate(entries):
            runs = simulate(
                problem, algorithm, dim=dim, trials=count, times=list(times), snapshots=list(times), entries=kind,
                test_samples=1, seed=seed + 1 + k, dt=dt if algorithm.rows is None else None,
            )  # fmt: skip
            for side in draws:
                clouds = [points(runs, side, trial) for trial in range(count)]
                pairs[side, kind] = [(cloud, some(side, len(cloud))) for cloud in clouds]
        for side in draws if reference else ():
            size = len(pairs[side, entries[0]][0][0])
            pairs[side, SAMPLING] = [(some(side, size), some(side, size)) for _ in range(count)]
        with ThreadPoolExecutor(WORKERS) as pool:
            for place, clouds in pairs.items():
                found[place].append(np.array(list(pool.map(lambda both: between_points(*both), clouds))))
    return {
        side: [Scaling.of_trials(kind, "d", list(dims), parts) for (at, kind), parts in found.items() if at == side]
        for side in draws
    }


def universality(curves: list[Scaling]) -> float:
    """Largest difference from the first curve at one d, in units of the combined standard error."""
    first = curves[0]
    gaps = [np.abs(c.value - first.value) / np.hypot(c.error, first.error) for c in curves[1:]]
    return float(np.max(gaps, initial=0.0))
