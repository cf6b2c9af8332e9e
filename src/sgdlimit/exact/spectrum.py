"""The spectrum of A = XᵀX/δ as a quadrature rule; where coordinates come in groups, with what each group sees of it.

iid entries have the Marchenko–Pastur law. In general, with κ(z) = 1/m̃(z), m̃ the transform of the companion law
(Silverstein's equation), and the mean over coordinates k of group q,

    z + κ = (κ/δ) Σ_q p_q s_q/(κ + s_q),        E_q[(A − z)⁻¹]_kk = −κ/(z (κ + s_q)).

Integrands are entire functions of x that vary on the scale of x itself, down to 1/t: between cuts in geometric
progression they are polynomials to rounding, and the weights of a Chebyshev rule are moments of the law there. Those
are integrals over arcs in the upper half plane, which pass above the edges and gaps of the law.
"""

import math
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..errors import reject
from ..measure.pace import edge
from ..problem import Table

MAX_NODES = 4000  # that a dense eigenproblem still gives in seconds
DEGREE = 32  # nodes between two cuts: e^{−xt} on [a, 4a] errs by 3⁻³², at any t
RATIO = 4.0  # of neighbouring cuts, at most
FLAT = 4.0  # first cut × last time: e^{−8y} on [0, 1] errs by 1e-15 at this degree
TINY = 1e-250  # the first cut at least: below it there is nothing, and arcs would end at zero
HEIGHT = 0.25  # of an arc over half its width: polynomials of this degree stay below 3e3 on it
STEP, REACH = 0.02, 3.7  # of points of an arc in the double exponential variable: 1e-13, down to 1e-28 from its ends
AT_ONCE = 2048  # intervals × groups whose arcs are held at once
CLOSE = 1e-14  # relative change of κ at which Newton's steps end


class Rule(NamedTuple):
    """The law of the eigenvalues x of A, `weights @ f(nodes)`, and the part of it that each group sees.

    parts, (g, N): p_q times weights, so that parts[q] @ f(nodes) is the sum of [f(A)]_kk over the group, over d.
    """

    nodes: np.ndarray
    parts: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """The law of all coordinates together: the sum of the parts, (N,)."""
        return self.parts.sum(axis=0)


def marchenko_pastur(sample_ratio: float, longest: float = 10.0) -> Rule:
    """Gauss rule of the Marchenko–Pastur law (`eq:mp_law`), atom at zero included.

    The law's orthogonal polynomials have the recurrence coefficients α_0 = 1, α_k = 1 + 1/δ, β_k = 1/δ, so that
    Golub–Welsch gives nodes and weights with no end-point to treat, for δ below, at and above 1. Every integrand of
    the theory is an entire function of x of exponential type 2t; its Chebyshev degree at precision 1e-15 is about
    sqrt(70·t·λ₊), λ₊ = (1 + 1/√δ)², and an N-point rule is exact to degree 2N−1. `longest` is the largest t.
    """
    if math.isinf(sample_ratio):
        return Rule(np.ones(1), np.ones((1, 1)))
    from scipy.linalg import eigh_tridiagonal

    spread, top = 1 / sample_ratio, (1 + 1 / math.sqrt(sample_ratio)) ** 2
    needed = 0.75 * math.sqrt(70.0 * top) * math.sqrt(longest)
    if 32 + needed > MAX_NODES:
        most = ((MAX_NODES - 32) / 0.75) ** 2 / 70 / top
        raise reject("t_max", f"{longest:.4g}", f"the spectrum at this δ is resolved up to t = {most:.3g}; lower t_max")
    count = 32 + math.ceil(needed)
    diagonal = np.full(count, 1 + spread)
    diagonal[0] = 1.0
    nodes, vectors = eigh_tridiagonal(diagonal, np.full(count - 1, math.sqrt(spread)))
    return Rule(np.clip(nodes, 0.0, None), vectors[:1] ** 2)


class Law(NamedTuple):
    """Silverstein's equation of groups of positive variance, κ (1 − (1/δ) Σ p s/(κ + s)) = −z, at any δ to rounding."""

    share: np.ndarray
    variance: np.ndarray
    ratio: float  # δ

    @property
    def more(self) -> float:
        """Coordinates than samples: Σp − δ."""
        return float(self.share.sum()) - self.ratio

    def less(self, part: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """1 − (1/δ) Σ p·part, rest = 1 − part: written so that neither a small δ nor one near Σp cancels."""
        if self.more < self.ratio:
            return (rest @ self.share - self.more) / self.ratio
        return 1 - part @ self.share / self.ratio

    def at(self, ridge: float) -> float:
        """κ at z = −λ ≤ 0: the root in [λ, λ + Σps/δ]; at λ = 0 what is left of it, 0 where samples are plenty."""
        if ridge == 0 and self.more <= 0:
            return 0.0
        from scipy.optimize import root_scalar  # a tenth of a second that few calls need

        def miss(kappa: float) -> float:
            value = float(self.less(self.variance / (kappa + self.variance), kappa / (kappa + self.variance)))
            return kappa * value - ridge if ridge > 0 else value

        most = ridge + float(self.share @ self.variance) / self.ratio
        # at λ = 0 below the positive root, since Σ p κ/(κ + s) ≤ κ Σ p/s
        least = ridge if ridge > 0 else self.more / float(np.sum(self.share / self.variance))
        return root_scalar(miss, bracket=(least * (1 - 1e-12), most * (1 + 1e-12)), xtol=1e-300, rtol=1e-15).root

    def newton(self, z: np.ndarray, kappa: np.ndarray, turns: int) -> np.ndarray:
        """κ(z) by Newton's steps from a guess, at most so many."""
        for _ in range(turns):
            whole = kappa[..., None] + self.variance
            part, rest = self.variance / whole, kappa[..., None] / whole
            step = (z + kappa * self.less(part, rest)) / self.less(part**2, rest * (1 + part))
            kappa = kappa - step
            if np.all(np.abs(step) <= CLOSE * np.abs(kappa)):
                break
        return kappa

    def from_above(self, z: np.ndarray) -> np.ndarray:
        """κ(z), Im z > 0: the one root below the real axis, followed down from where κ ≈ −z."""
        size = 1e3 * (np.abs(z) + self.variance.max() / min(self.ratio, 1.0))
        kappa = -(z + 1j * size)
        for lower in 0.7 ** np.arange(150):
            kappa = self.newton(z + 1j * lower * size, kappa, 3)
        return self.newton(z, kappa, 60)

    def along(self, z: np.ndarray, top: np.ndarray) -> np.ndarray:
        """κ along arcs, (arcs, J), each point from those before it; `top`: κ where they begin."""
        found = np.empty_like(z)
        before = kappa = top
        for j in range(z.shape[1]):
            new = self.newton(z[:, j], 2 * kappa - before if j > 1 else kappa, 8)
            lost = ~(np.imag(new) < 0)  # the root is unique below the axis
            if np.any(lost):
                new[lost] = self.newton(z[lost, j], np.conj(new[lost]), 8)
                lost = ~(np.imag(new) < 0)
            if np.any(lost):
                new[lost] = self.from_above(z[lost, j])
            before, kappa = kappa, new
            found[:, j] = new
        return found


def grouped(table: Table, sample_ratio: float, longest: float = 10.0) -> Rule:
    """The rule for entire functions of x of exponential type 2·longest; at infinite data A is the covariance."""
    share, s = table.share, table.variance
    if math.isinf(sample_ratio):
        return Rule(s, np.diag(share))
    some = s > 0
    law = Law(share[some], s[some], sample_ratio)
    left = law.at(0.0)  # κ at z = 0
    atom = np.where(some, left / (left + np.where(some, s, 1.0)), 1.0)
    # 0, and from the scale of the last time up to the largest eigenvalue in geometric progression
    top, first = edge(np.ones(1), sample_ratio, table), max(FLAT / longest, TINY) if longest > 0 else math.inf
    count = 1 + math.ceil(math.log(top / first) / math.log(RATIO)) if first < top else 0
    cuts = np.append(0.0, np.geomspace(first, top, count) if count else top)
    nodes, parts = [np.zeros(1)], [atom[:, None]]
    for begin in range(0, len(cuts) - 1, at_once := max(1, AT_ONCE // len(s))):
        ends = cuts[begin : begin + at_once + 1]
        nodes += [(a + b) / 2 + (b - a) / 2 * np.cos(_angles()[1]) for a, b in pairwise(ends)]
        seen = np.zeros((len(s), (len(ends) - 1) * DEGREE))
        seen[some] = _between(law, atom[some], ends)
        parts.append(seen)
    return Rule(np.concatenate(nodes), share[:, None] * np.concatenate(parts, axis=1))


@cache
def _angles() -> np.ndarray:
    """k φ_j of the Chebyshev nodes cos φ_j, (K, K)."""
    return math.pi * np.outer(np.arange(DEGREE), np.arange(DEGREE) + 0.5) / DEGREE


@cache
def _arc() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Right half of the arc over [−1, 1], from its top to 1: points less 1, steps, and polynomials there, (J, K).

    The angle φ falls from π/2 to zero as 1/(1 + e^{π sinh v}).
    """
    v = STEP * np.arange(round(REACH / STEP) + 1)
    small = np.exp(-math.pi * np.sinh(v))
    phi = math.pi * small / (1 + small)
    speed = STEP * math.pi**2 * np.cosh(v) * small / (1 + small) ** 2
    speed[0] /= 2  # the other half begins here too
    points = -2 * np.sin(phi / 2) ** 2 + 1j * HEIGHT * np.sin(phi)
    steps = (np.sin(phi) - 1j * HEIGHT * np.cos(phi)) * speed
    return points, steps, np.cos(np.arange(DEGREE) * np.arccos(1 + points)[:, None])


def _between(law: Law, atom: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Weights of the Chebyshev nodes between the cuts, for each group without its atom, (g, intervals · K).

    ∫_a^b T dμ = (1/π) Im ∫ T(z) m(z) dz from a to b over the upper half plane.
    """
    a, b = cuts[:-1], cuts[1:]
    half, s = (b - a) / 2, law.variance[:, None]
    points, steps, polynomials = _arc()
    top = law.from_above((a + b) / 2 + 1j * HEIGHT * half)
    # Less what has no mass here: the atom near zero, and all of −1/z elsewhere, where a group sees little.
    massless = np.where(a == 0, 1 - atom[:, None], 0.0).T[..., None]

    def summed(z: np.ndarray, steps: np.ndarray, polynomials: np.ndarray) -> np.ndarray:
        transform = (s / (law.along(z, top)[:, None, :] + s) - massless) / z[:, None, :]
        return np.imag((transform * (half[:, None, None] * steps)) @ polynomials) / math.pi

    moments = summed(b[:, None] + half[:, None] * points, steps, polynomials)
    # The left half is the right one, mirrored: z ↦ −z̄.
    mirrored = (-1.0) ** np.arange(DEGREE) * np.conj(polynomials)
    moments = moments + summed(a[:, None] - half[:, None] * np.conj(points), np.conj(steps), mirrored)
    to_weights = 2 / DEGREE * np.cos(_angles())
    to_weights[0] /= 2
    return np.moveaxis(moments @ to_weights, 1, 0).reshape(len(law.share), -1)
