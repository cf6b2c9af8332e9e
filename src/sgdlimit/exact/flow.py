"""Gradient flow on a quadratic, mode by mode: what an eigenvalue x of A = XᵀX/δ keeps of the start and the teacher.

What is traced with functions of A alone (train error, norm, overlap, the noise of SGD, also on fresh samples, where it
is tr Σ f(A)) needs the spectrum that each group of coordinates sees. The noiseless test error has the covariance
between two functions of A. It follows from residuals on training samples: r − y is w − y with the reaction of the
sample's own pull taken off, r − y = (w − y) − (1/δ) R_w ∗ (r − y), so that a mode e^{−xu} of the residuals is
e^{−xu} + (1/δ) R_w ∗ e^{−xu} on fresh samples, R_w(u) = (1/d) tr Σ e^{−(A+λ)u}.
"""

from typing import NamedTuple

import numpy as np

from ..problem import Linear, Problem
from .spectrum import Rule, grouped, marchenko_pastur
from .volterra import Curve


def shrink(x: np.ndarray, ridge: float, u: np.ndarray) -> np.ndarray:
    """(1 − e^{−(x+λ)u})/(x+λ), entire in x: u where x + λ = 0. Axes (times, x)."""
    total = x + ridge
    product = np.multiply.outer(u, total)
    start = np.broadcast_to(u[..., None], product.shape).astype(float)
    return np.divide(-np.expm1(-product), total, out=start, where=total > 0)


class Modes(NamedTuple):
    """Modes x of A, and what the start and the teacher, as the labels see it, have in them, weights included.

    variance: s of every group, (g,). pair, cross: E of (θ⁰, teacher) times (θ⁰, teacher) and times θ* in each mode,
    (2, 2, N) and (2, k, N). noise: the label's variance that no θ explains, E z² and the unseen part of the teacher.
    """

    rule: Rule
    variance: np.ndarray
    ridge: float
    delta: float
    pair: np.ndarray
    cross: np.ndarray
    noise: float

    @classmethod
    def of(cls, problem: Problem, ridge: float, longest: float) -> "Modes":
        """The modes of a problem, for times up to the longest."""
        table, delta, gram = problem.data.table(), problem.sample_ratio, problem.gram()
        rule = marchenko_pastur(delta, longest) if problem.data.iid else grouped(table, delta, longest)
        seen = np.zeros((2, 1 + problem.k))
        seen[0, 0], seen[1, 1:] = 1, isinstance(problem.labels, Linear)
        by_group = seen @ table.moments(gram, 1) @ np.column_stack([seen.T, np.eye(1 + problem.k)[:, 1:]])
        by_mode = np.einsum("qab,qn->abn", by_group, rule.parts)
        noise = float(problem.noise_law.moments(1)[1][0, 0]) + table.unseen * float((seen @ gram @ seen.T)[1, 1])
        return cls(rule, table.variance, ridge, float(delta), by_mode[:, :2], by_mode[:, 2:], noise)

    @property
    def fresh(self) -> np.ndarray:
        """Weights of the rule for (1/d) tr Σ f(A), (N,)."""
        return self.variance @ self.rule.parts

    def left(self, keep: np.ndarray, whole: np.ndarray | float = 1.0) -> np.ndarray:
        """What is left of the teacher, 1 − x (1 − e^{−(x+λ)u})/(x+λ), from e^{−(x+λ)u} and 1, or from their images."""
        if self.ridge == 0:
            return keep
        x = self.rule.nodes
        return (self.ridge * whole + x * keep) / (x + self.ridge)

    def keep(self, u: np.ndarray) -> np.ndarray:
        """What is left of the start, e^{−(x+λ)u}, (times, N)."""
        return np.exp(-np.multiply.outer(u, self.rule.nodes + self.ridge))

    def fitted(self, u: np.ndarray) -> np.ndarray:
        """What is learned of the teacher, x (1 − e^{−(x+λ)u})/(x+λ), (times, N)."""
        return self.rule.nodes * shrink(self.rule.nodes, self.ridge, u)

    def toward(self, u: np.ndarray) -> np.ndarray:
        """E[θ · teacher]."""
        return self.keep(u) @ self.pair[0, 1] + self.fitted(u) @ self.pair[1, 1]

    def signal(self, keep: np.ndarray, left: np.ndarray, keep_: np.ndarray, left_: np.ndarray) -> np.ndarray:
        """E of the product of keep·θ⁰ − left·teacher at two times, by mode."""
        both, mixed = self.pair[0, 0], self.pair[0, 1]
        return both * keep * keep_ - mixed * (keep * left_ + left * keep_) + self.pair[1, 1] * left * left_

    def train(self, u: np.ndarray) -> np.ndarray:
        """Noiseless training error (`eq:dmft_ridge_train0`); δ = ∞ leaves the noise whole."""
        keep = self.keep(u)
        left = self.left(keep)
        unfitted = self.noise * (left**2 @ self.rule.weights / self.delta + 1 - 1 / self.delta)
        return self.signal(keep, left, keep, left) @ self.rule.nodes + unfitted

    def spread(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Noiseless E(θ−θ*)(θ'−θ*) (`lem:dmft_ridge_solution`)."""
        keep, keep_ = self.keep(u), self.keep(v)
        fitted = self.noise / self.delta * (self.fitted(u) * shrink(self.rule.nodes, self.ridge, v))
        return self.signal(keep, self.left(keep), keep_, self.left(keep_)).sum(axis=1) + fitted @ self.rule.weights

    def test(self, u: np.ndarray) -> np.ndarray:
        """Noiseless test error; with one variance s it is s E(θ−θ*)² and the noise (`eq:dmft_ridge_test0`)."""
        if len(self.variance) == 1:
            return self.variance[0] * self.spread(u, u) + self.noise
        x, keep, shrunk = self.rule.nodes, self.keep(u), shrink(self.rule.nodes, self.ridge, u)
        whole = np.ones((len(u), 1))
        if np.isfinite(self.delta):
            # ∫₀ᵘ e^{−(y+λ)(u−s)} e^{−(x+λ)s} ds = (e^{−(x+λ)u} − e^{−(y+λ)u})/(y − x), (x, y)
            gap, slow = np.abs(x[:, None] - x), np.minimum(x[:, None], x) + self.ridge
            spent = (np.divide(-np.expm1(-gap * at), gap, out=np.full_like(gap, at), where=gap > 0) for at in u)
            reaction = [(np.exp(-slow * at) * part) @ self.fresh for at, part in zip(u, spent, strict=True)]
            keep = keep + np.stack(reaction) / self.delta
            whole = whole + (shrunk @ self.fresh)[:, None] / self.delta
        left = self.left(keep, whole)
        return self.signal(keep, left, keep, left) @ x + self.noise * (1 + (x * shrunk**2) @ self.fresh / self.delta)

    def one_time(self, curve: Curve) -> dict[str, np.ndarray]:
        """Every curve by name, from the training error and the memory of the noise (`eq:dmft_ridge_errors`)."""
        u, noise = curve.flow_time, curve.memory * self.rule.nodes
        test = self.test(u) + noise @ self.fresh
        norm = self.spread(u, u) + noise @ self.rule.weights + 2 * self.toward(u) - self.pair[1, 1].sum()
        values = {"train_loss": curve.train / 2, "test_loss": test / 2, "train_error": curve.train, "test_error": test}
        overlap = self.keep(u) @ self.cross[0].T + self.fitted(u) @ self.cross[1].T
        return values | {"norm": norm[:, None, None]} | ({"overlap": overlap[:, None]} if overlap.size else {})

    def two_time(self, curve: Curve, pace: np.ndarray) -> dict[str, np.ndarray]:
        """`lem:dmft_ridge_solution`: R_θ = K_0, R_ℓ = −K_1/δ, C_θ from C*_θ (`eq:C_theta_ridge_sol`).

        Retarded kernels vanish for t < t'. `pace`: the schedule s(t).
        """
        w, u, noise = self.rule.weights, curve.flow_time, curve.memory * self.rule.nodes
        toward = self.toward(u)
        count = len(u)
        correlation, response, ell = np.empty((count, count)), np.zeros((count, count)), np.zeros((count, count))
        for i in range(count):
            past = slice(0, i + 1)
            decay = self.keep(u[i] - u[past])
            response[i, past] = decay @ w
            ell[i, past] = -pace[i] * pace[past] * (decay @ (w * self.rule.nodes)) / self.delta
            star = self.spread(np.full(i + 1, u[i]), u[past]) + (decay * noise[past]) @ w
            correlation[i, past] = correlation[past, i] = star + toward[i] + toward[past]
        kernels = {"C_theta": correlation - self.pair[1, 1].sum(), "R_theta": response, "R_ell": ell, "Gamma": pace}
        return {name: value[..., None, None] for name, value in kernels.items()}
