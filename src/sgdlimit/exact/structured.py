"""Ridge regression where coordinates come in groups: the same Volterra equation on the groups' own spectra.

What is traced with functions of A alone (train error, norm, overlap, the noise of SGD, also on fresh samples, where it
is tr Σ f(A)) needs the spectrum that each group sees. The noiseless test error has the covariance between two functions
of A. It follows from residuals on training samples: r − y is w − y with the reaction of the sample's own pull taken
off, r − y = (w − y) − (1/δ) R_w ∗ (r − y), so that a mode e^{−xu} of the residuals is e^{−xu} + (1/δ) R_w ∗ e^{−xu} on
fresh samples, R_w(u) = (1/d) tr Σ e^{−(A+λ)u}.
"""

from typing import NamedTuple

import numpy as np

from ..problem import Linear, Problem
from ..progress import Progress
from . import volterra
from .flow import Asked, Found, found, shrink
from .grouped import Grouped, grouped


class _Moments(NamedTuple):
    """What least squares knows of the weights, group by group, and of the noise."""

    gram: np.ndarray
    """Second moments of (θ⁰, θ*), (g, 1+k, 1+k)."""
    pair: np.ndarray
    """Of (θ⁰, teacher as the labels see it), (g, 2, 2)."""
    cross: np.ndarray
    """E[(θ⁰, teacher seen) θ*], (g, 2, k)."""
    noise: float
    """Variance of the label that no θ explains: E z², and the unseen part of the teacher."""


def _moments(problem: Problem) -> _Moments:
    table = problem.data.table()
    seen = np.zeros((2, 1 + problem.k))
    seen[0, 0] = 1
    if isinstance(problem.labels, Linear):
        seen[1, 1:] = 1
    gram = table.moments(problem.gram(), 1)
    unseen = table.unseen * float((seen @ problem.gram() @ seen.T)[1, 1])
    noise = float(problem.noise_law.moments(1)[1][0, 0]) + unseen
    return _Moments(gram, seen @ gram @ seen.T, (seen @ gram)[:, :, 1:], noise)


class _Modes(NamedTuple):
    """Modes x of A, and what the start and the teacher have in them."""

    rule: Grouped
    ridge: float
    delta: float
    pair: np.ndarray
    """E[(θ⁰, teacher) (θ⁰, teacher)ᵀ] in each mode, (2, 2, N), weights included."""
    noise: float

    def left(self, keep: np.ndarray, whole: np.ndarray | float = 1.0) -> np.ndarray:
        """What is left of the teacher, 1 − x (1 − e^{−(x+λ)u})/(x+λ), from e^{−(x+λ)u} and 1, or from their images."""
        if self.ridge == 0:
            return keep
        x = self.rule.nodes
        return (self.ridge * whole + x * keep) / (x + self.ridge)

    def keep(self, u: np.ndarray) -> np.ndarray:
        """e^{−(x+λ)u}, (times, N)."""
        return np.exp(-np.multiply.outer(u, self.rule.nodes + self.ridge))

    def signal(self, keep: np.ndarray, left: np.ndarray, keep_: np.ndarray, left_: np.ndarray) -> np.ndarray:
        """E of the product of keep·θ⁰ − left·teacher at two times, by mode."""
        both, mixed = self.pair[0, 0], self.pair[0, 1]
        return both * keep * keep_ - mixed * (keep * left_ + left * keep_) + self.pair[1, 1] * left * left_

    def train(self, u: np.ndarray) -> np.ndarray:
        """Noiseless training error (`eq:dmft_ridge_train0`)."""
        keep = self.keep(u)
        left = self.left(keep)
        unfitted = self.noise * (left**2 @ self.rule.weights / self.delta + 1 - 1 / self.delta)
        return self.signal(keep, left, keep, left) @ self.rule.nodes + unfitted

    def spread(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Noiseless E(θ−θ*)(θ'−θ*) (`lem:dmft_ridge_solution`)."""
        x, keep, keep_ = self.rule.nodes, self.keep(u), self.keep(v)
        fitted = self.noise / self.delta * (x * shrink(x, self.ridge, u) * shrink(x, self.ridge, v))
        return self.signal(keep, self.left(keep), keep_, self.left(keep_)).sum(axis=1) + fitted @ self.rule.weights

    def test(self, u: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        """Noiseless test error; `fresh` are the weights of tr Σ f(A)/d."""
        x, keep = self.rule.nodes, self.keep(u)
        shrunk = shrink(x, self.ridge, u)
        whole = np.ones((len(u), 1))
        if np.isfinite(self.delta):
            keep = keep + np.stack([self._reaction(at) @ fresh for at in u]) / self.delta
            whole = whole + (shrunk @ fresh)[:, None] / self.delta
        left = self.left(keep, whole)
        fitted = (x * shrunk**2) @ fresh / self.delta
        return self.signal(keep, left, keep, left) @ x + self.noise * (1 + fitted)

    def _reaction(self, u: float) -> np.ndarray:
        """∫₀ᵘ e^{−(y+λ)(u−s)} e^{−(x+λ)s} ds = (e^{−(x+λ)u} − e^{−(y+λ)u})/(y − x), (x, y)."""
        x = self.rule.nodes
        gap = np.abs(x[:, None] - x)
        slower = np.exp(-(np.minimum(x[:, None], x) + self.ridge) * u)
        return slower * np.divide(-np.expm1(-gap * u), gap, out=np.full_like(gap, u), where=gap > 0)


def on_groups(asked: Asked, progress: bool | None) -> Found:
    """Curves on grouped coordinates."""
    problem, ridge, tau, t, (speed, heat, knots, longest), _ = asked
    table, delta = problem.data.table(), float(problem.sample_ratio)
    moments = _moments(problem)
    rule = grouped(table, delta, longest)
    x, weights, fresh = rule.nodes, rule.weights, table.variance @ rule.parts
    modes = _Modes(rule, ridge, delta, np.einsum("qab,qn->abn", moments.pair, rule.parts), moments.noise)
    if tau == 0 and speed is None:  # no noise to remember
        curve = volterra.Curve(modes.train(t), np.zeros((len(t), len(x))), t)
    else:
        kernel = 2 * (x + ridge), weights * x**2
        with Progress("least squares", 1.0, progress) as bar:
            curve = volterra.solve(modes.train, *kernel, tau, t, speed, bar.advance, heat, knots)
    u = curve.flow_time
    test = modes.test(u, fresh) + curve.memory @ (fresh * x)
    # E[θ θ*ᵀ]: keep·θ⁰ + (1 − left)·teacher, group by group.
    kept, fitted = modes.keep(u) @ rule.parts.T, (x * shrink(x, ridge, u)) @ rule.parts.T
    overlap = kept @ moments.cross[:, 0] + fitted @ moments.cross[:, 1]
    toward = kept @ moments.pair[:, 0, 1] + fitted @ moments.pair[:, 1, 1]
    teacher2 = float(table.share @ moments.pair[:, 1, 1])
    norm = modes.spread(u, u) + curve.memory @ (weights * x) + 2 * toward - teacher2
    return found(asked, curve, (x, weights), test, norm, overlap, toward, teacher2, modes.spread)
