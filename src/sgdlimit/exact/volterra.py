"""train(t) = train₀ + ∫ H₂(u(t)−u(s)) τ(s) train(s) ds, for a kernel that is a sum of exponentials.

`eq:dmft_ridge_errors`, `eq:dmft_linear_errors`; train(t) is L(t,t) of `eq:L_ridge_sol`.
u(t) = ∫ s is the time of the flow under a schedule s; without one u = t. On each panel the unknown is a polynomial
through Gauss points (collocation); the past enters through one state per exponential. Panels grow with time where
nothing else forbids it, so that long times cost little.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..errors import reject
from ..measure.pace import Pace

POINTS = 12
"""Gauss points of a panel."""
REACH = 4.0
"""Largest rate × panel length: interpolating e^{−4x} on [0,1] at 12 points errs by about 1e-12."""

GROWTH = 0.1
"""Longest panel at late times, relative to the time itself."""
MOST_PANELS = 200_000
"""Panels up to the last time that still take minutes."""
RESOLVED = 1e12
"""Largest rate × time: memories of length 1/rate are still told apart by double precision."""
BUDGET = 20_000
"""Largest number of bisections between two recorded times under a schedule."""


STEADY = Pace()


class Curve(NamedTuple):
    """The solution at the requested times."""

    train: np.ndarray
    memory: np.ndarray
    """y_q(t) = ∫₀ᵗ e^{−a_q(u(t)−u(s))} τ(s) train(s) ds, shape (times, Q)."""
    flow_time: np.ndarray
    """u(t)."""


class _Panel(NamedTuple):
    """Gauss points of [0, 1], the Lagrange basis on them, and graded rules for kernels that decay within a panel."""

    nodes: np.ndarray
    weights: np.ndarray
    integral_nodes: np.ndarray
    """∫₀^{c_i} of the basis, (P, P)."""
    rule: np.ndarray
    """Weights of the graded rule on [0, 1], (G,)."""
    at_rule: np.ndarray
    """Basis on the graded points, (G, P)."""
    integral_rule: np.ndarray
    """∫₀^{ξ_g} of the basis, (G, P)."""
    at_inner: np.ndarray
    """Basis on c_i ξ_g, the graded points of [0, c_i], (P, G, P)."""
    integral_inner: np.ndarray
    """∫₀^{c_i ξ_g} of the basis, (P, G, P)."""


@cache
def _panel(levels: int = 0) -> _Panel:
    """A panel whose rules halve their intervals `levels` times towards the end, where the kernel lives."""
    x, w = np.polynomial.legendre.leggauss(POINTS)
    nodes, weights = (x + 1) / 2, w / 2
    # Coefficients of the Lagrange basis in Legendre polynomials, and of its antiderivative from 0.
    coefficients = np.linalg.inv(np.polynomial.legendre.legvander(x, POINTS - 1))
    primitive = 0.5 * np.polynomial.legendre.legint(coefficients, lbnd=-1, axis=0)

    def basis(points: np.ndarray) -> np.ndarray:
        return np.polynomial.legendre.legvander(2 * points - 1, POINTS - 1) @ coefficients

    def integral(points: np.ndarray) -> np.ndarray:
        return np.polynomial.legendre.legvander(2 * points - 1, POINTS) @ primitive

    edges = np.append(1 - 0.5 ** np.arange(levels + 1), 1.0)
    spans = np.diff(edges)
    points = (edges[:-1, None] + spans[:, None] * nodes).ravel()
    rule = (spans[:, None] * weights).ravel()
    inner = np.multiply.outer(nodes, points)
    return _Panel(nodes, weights, integral(nodes), rule, basis(points), integral(points), basis(inner), integral(inner))


def _cuts(start: float, end: float, pace: Pace) -> list[float]:
    """Ends of panels on which ∫s and ∫s²τ(t)/τ are resolved: bisect until the halves agree with the whole.

    A jump of s or τ is isolated in a panel of relative length 2⁻⁴⁰.
    """
    panel = _panel()
    left_over = BUDGET

    def integrals(a: float, b: float) -> np.ndarray:
        at = a + (b - a) * panel.nodes
        values = pace.at(at)
        return (b - a) * np.array([panel.weights @ values, panel.weights @ (values**2 * pace.heat(at))])

    def refine(a: float, b: float, whole: np.ndarray, level: int) -> list[float]:
        nonlocal left_over
        left_over -= 1
        middle = (a + b) / 2
        left, right = integrals(a, middle), integrals(middle, b)
        resolved = np.all(np.abs(left + right - whole) <= 1e-12 * (end - start) + 1e-11 * np.abs(whole))
        if resolved or level == 0:
            return [b]
        if left_over < 0:
            where = f"one that is rough everywhere between t = {start:.4g} and {end:.4g}"
            raise reject("schedule", where, "no panels resolve it; smooth it, or lower t_max")
        return refine(a, middle, left, level - 1) + refine(middle, b, right, level - 1)

    inside = pace.knots[(pace.knots > start) & (pace.knots < end)]
    edges = np.union1d(np.linspace(start, end, 17), inside)
    return [c for a, b in pairwise(edges) for c in refine(a, b, integrals(a, b), 36)]


@np.errstate(over="ignore", invalid="ignore")  # growth beyond the largest float is reported by the caller
def solve(
    source: Callable[[np.ndarray], np.ndarray],
    rates: np.ndarray,
    weights: np.ndarray,
    temperature: float,
    times: np.ndarray,
    pace: Pace = STEADY,
    advanced: Callable[[float], None] = lambda _: None,
) -> Curve:
    """Solve train = source(u) + ∫ Σ_q weights_q e^{−rates_q(u−u')} τ s² train.

    `source` takes flow times u. The noise of a step scaled by s carries s²; both, and τ, change as `pace` says.
    `advanced` is told the share of recorded times that is done.
    """
    panel = _panel()
    train, memory, flow = np.empty(len(times)), np.empty((len(times), len(rates))), np.empty(len(times))
    now, u, y = 0.0, 0.0, np.zeros(len(rates))
    top = float(rates.max())
    settled = pace.speed is None and temperature * float(weights @ (1 / np.maximum(rates, 1e-300))) < 1

    def fastest(at: np.ndarray) -> np.ndarray:
        """Decay, and above the stable temperature growth: both are resolved."""
        fast = np.abs(pace.at(at))
        return np.maximum(top * fast, temperature * pace.heat(at) * fast**2 * weights.sum())

    def refuse(panels: float, rate: float) -> None:
        if panels > MOST_PANELS:
            count = f"{panels:.2g} steps at rates up to {rate:.3g} of data, penalty and schedule"
            raise reject("t_max", f"{times[-1]:.4g}", f"that is {count}; lower t_max or the penalty")

    if not settled and times[-1] > 0:
        along = np.union1d(np.linspace(0.0, times[-1], 1025), pace.knots[pace.knots < times[-1]])
        here = fastest(along)
        refuse(float(np.minimum(here[1:], here[:-1]) @ np.diff(along)) / REACH, float(here.max()))
    done = 0.0

    @cache
    def uniform(length: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return kernels(length, np.ones(POINTS))

    def kernels(length: float, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Forward decay to the nodes, local kernel matrix, local memory matrix, decay over the panel."""
        end = length * float(panel.weights @ speed)
        graded = _panel(max(0, math.ceil(math.log2(max(top * abs(end) / REACH, 1.0)))))
        advance = length * (panel.integral_nodes @ speed)
        gaps = advance[:, None] - length * (graded.integral_inner @ speed)
        local = (np.exp(-np.multiply.outer(gaps, rates)) @ weights) * (length * panel.nodes[:, None] * graded.rule)
        matrix = np.einsum("ig,igj->ij", local, graded.at_inner)
        left = np.exp(-np.multiply.outer(end - length * (graded.integral_rule @ speed), rates))
        remember = graded.at_rule.T @ (left * (length * graded.rule)[:, None])
        return np.exp(-np.multiply.outer(advance, rates)) * weights, matrix, remember, np.exp(-end * rates)

    for i, target in enumerate(times):
        cuts = [] if target <= now else [target] if pace.speed is None else _cuts(now, target, pace)
        for cut in cuts:
            rate = float(np.max(fastest(np.linspace(now, cut, 9))))
            if not rate * cut <= RESOLVED:
                why = f"rates of {rate:.3g} of data, penalty and schedule are resolved up to t = {RESOLVED / rate:.3g}"
                raise reject("t_max", f"{times[-1]:.4g}", f"{why}; lower t_max or the penalty")
            while now < cut:
                # What is still alive at a late time varies on the scale of that time; the rest follows at once.
                reach = max(REACH / rate if rate > 0 else math.inf, GROWTH * now if settled else 0.0)
                if not settled:
                    refuse(done + (cut - now) / reach, rate)
                count = max(1, math.ceil(min((cut - now) / reach, 1e15) - 1e-9))
                length = (cut - now) / count
                at = now + length * panel.nodes
                speed = pace.at(at)
                decay, matrix, remember, keep = uniform(length) if pace.speed is None else kernels(length, speed)
                noise = temperature * pace.heat(at) * speed**2
                past = source(u + length * (panel.integral_nodes @ speed)) + decay @ y
                values = np.linalg.solve(np.eye(POINTS) - matrix * noise, past)
                y = keep * y + (noise * values) @ remember
                u += length * float(panel.weights @ speed)
                now, done = cut if count == 1 else now + length, done + 1
                if not np.all(np.isfinite(y)):
                    train[i:], memory[i:], flow[i:] = np.nan, np.nan, u
                    return Curve(train, memory, flow)
        train[i] = source(np.array([u]))[0] + weights @ y
        memory[i], flow[i] = y, u
        advanced(1 / len(times))
    return Curve(train, memory, flow)
