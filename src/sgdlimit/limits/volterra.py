"""train(t) = train₀ + ∫ H₂(u(t)−u(s)) τ(s) train(s) ds, for a kernel that is a sum of exponentials.

u(t) = ∫ s is the time of the flow under a schedule s; without one u = t. On each panel the unknown is a polynomial
through Gauss points (collocation); the past enters through one state per exponential, so memory and time grow
linearly with the number of panels. Positive weights throughout: no cancellation, no step-size instability.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

POINTS = 12
"""Gauss points of a panel."""
REACH = 4.0
"""Largest rate × panel length: interpolating e^{−4x} on [0,1] at 12 points errs by about 1e-12."""

BUDGET = 2000
"""Largest number of bisections between two recorded times under a schedule."""


class Curve(NamedTuple):
    """The solution at the requested times."""

    train: np.ndarray
    memory: np.ndarray
    """y_q(t) = ∫₀ᵗ e^{−a_q(u(t)−u(s))} τ(s) train(s) ds, shape (times, Q)."""
    flow_time: np.ndarray
    """u(t)."""


class _Panel(NamedTuple):
    """Gauss points of [0, 1] and, on them (`nodes`) and on the points of ∫₀^{c_i} (`inner`), the Lagrange basis."""

    nodes: np.ndarray
    weights: np.ndarray
    at_inner: np.ndarray
    integral_nodes: np.ndarray
    integral_inner: np.ndarray


@cache
def _panel() -> _Panel:
    """Lagrange basis on Gauss points of [0,1], and its integrals, at all points a panel needs."""
    x, w = np.polynomial.legendre.leggauss(POINTS)
    nodes, weights = (x + 1) / 2, w / 2
    centre = np.polynomial.legendre.legvander(x, POINTS - 1)
    # Coefficients of the Lagrange basis in Legendre polynomials, and of its antiderivative from 0.
    coefficients = np.linalg.inv(centre)
    primitive = 0.5 * np.polynomial.legendre.legint(coefficients, lbnd=-1, axis=0)

    def basis(points: np.ndarray) -> np.ndarray:
        return np.polynomial.legendre.legvander(2 * points - 1, POINTS - 1) @ coefficients

    def integral(points: np.ndarray) -> np.ndarray:
        return np.polynomial.legendre.legvander(2 * points - 1, POINTS) @ primitive

    inner = np.multiply.outer(nodes, nodes)  # c_i ξ_g: quadrature points of ∫₀^{c_i}
    return _Panel(nodes, weights, basis(inner), integral(nodes), integral(inner))


def _cuts(start: float, end: float, speed: Callable[[np.ndarray], np.ndarray]) -> list[float]:
    """Ends of panels on which ∫s and ∫s² are resolved: bisect until the halves agree with the whole.

    A jump of s is isolated in a panel of relative length 2⁻⁴⁰; a schedule that is rough everywhere gets BUDGET panels.
    """
    panel = _panel()
    left_over = BUDGET

    def integrals(a: float, b: float) -> np.ndarray:
        values = speed(a + (b - a) * panel.nodes)
        return (b - a) * np.array([panel.weights @ values, panel.weights @ values**2])

    def refine(a: float, b: float, whole: np.ndarray, level: int) -> list[float]:
        nonlocal left_over
        left_over -= 1
        middle = (a + b) / 2
        left, right = integrals(a, middle), integrals(middle, b)
        if (
            level == 0
            or left_over < 0
            or np.all(np.abs(left + right - whole) <= 1e-12 * (end - start) + 1e-11 * np.abs(whole))
        ):
            return [b]
        return refine(a, middle, left, level - 1) + refine(middle, b, right, level - 1)

    # Sixteen panels to begin with, so that a short burst between Gauss points is not overlooked.
    edges = np.linspace(start, end, 17)
    return [c for a, b in pairwise(edges) for c in refine(a, b, integrals(a, b), 36)]


def solve(
    source: Callable[[np.ndarray], np.ndarray],
    rates: np.ndarray,
    weights: np.ndarray,
    temperature: float,
    times: np.ndarray,
    speed: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Curve:
    """Solve train = source(u) + ∫ Σ_q weights_q e^{−rates_q(u−u')} τ s² train.

    `source` takes flow times u; `speed` is the schedule s(t), None for 1. The noise of a step scaled by s carries s².
    """
    with np.errstate(over="ignore", invalid="ignore"):  # growth beyond the largest float is reported by the caller
        return _solve(source, rates, weights, temperature, times, speed)


def _solve(
    source: Callable[[np.ndarray], np.ndarray],
    rates: np.ndarray,
    weights: np.ndarray,
    temperature: float,
    times: np.ndarray,
    speed: Callable[[np.ndarray], np.ndarray] | None,
) -> Curve:
    panel = _panel()
    train, memory, flow = np.empty(len(times)), np.empty((len(times), len(rates))), np.empty(len(times))
    now, u, y = 0.0, 0.0, np.zeros(len(rates))
    top = float(rates.max())

    @cache
    def uniform(length: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return kernels(length, np.ones(POINTS))

    def kernels(length: float, pace: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Forward decay to the nodes, local kernel matrix, local memory matrix, decay over the panel."""
        advance = length * (panel.integral_nodes @ pace)
        inside = length * (panel.integral_inner @ pace)
        end = length * float(panel.weights @ pace)
        decay = np.exp(-np.multiply.outer(advance, rates)) * weights
        gaps = advance[:, None] - inside
        local = np.exp(-np.multiply.outer(gaps, rates)) @ weights
        quadrature = length * panel.nodes[:, None] * panel.weights[None, :]
        matrix = np.einsum("ig,igj->ij", local * quadrature, panel.at_inner)
        remember = np.exp(-np.multiply.outer(end - advance, rates)) * (length * panel.weights)[:, None]
        return decay, matrix, remember, np.exp(-end * rates)

    for i, target in enumerate(times):
        cuts = [] if target <= now else [target] if speed is None else _cuts(now, target, speed)
        for cut in cuts:
            fastest = 1.0 if speed is None else float(np.max(np.abs(speed(np.linspace(now, cut, 9)))))
            # Decay, and above the stable temperature growth, are both resolved.
            rate = max(top * fastest, temperature * fastest**2 * weights.sum())
            count = max(1, int(np.ceil((cut - now) * rate / REACH)))
            length = (cut - now) / count
            for j in range(count):
                at = now + length * (j + panel.nodes)
                pace = np.ones(POINTS) if speed is None else np.asarray(speed(at), dtype=np.float64)
                decay, matrix, remember, keep = uniform(length) if speed is None else kernels(length, pace)
                noise = temperature * pace**2
                past = source(u + length * (panel.integral_nodes @ pace)) + decay @ y
                values = np.linalg.solve(np.eye(POINTS) - matrix * noise, past)
                y = keep * y + (noise * values) @ remember
                u += length * float(panel.weights @ pace)
                if not np.all(np.isfinite(y)):
                    break
            now = cut
        train[i] = source(np.array([u]))[0] + weights @ y
        memory[i], flow[i] = y, u
    return Curve(train, memory, flow)
