"""train(t) = train₀ + ∫ H₂(u(t)−u(s)) τ(s) train(s) ds, for a kernel that is a sum of exponentials.

`eq:dmft_ridge_errors`, `eq:dmft_linear_errors`; train(t) is L(t,t) of `eq:L_ridge_sol`.
u(t) = ∫ s is the time of the flow under a schedule s; without one u = t. On each panel the unknown is a polynomial
through Gauss points (collocation); the past enters through one state per exponential. Panels grow with time where
nothing else forbids it, so that long times cost little.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from ..errors import InputError, reject
from ..measure.pace import Pace

POINTS = 12  # Gauss points of a panel
REACH = 4.0  # largest rate × panel length: interpolating e^{−4x} on [0,1] at 12 points errs by about 1e-12
GROWTH = 0.1  # longest panel at late times, relative to the time itself
MOST_PANELS = 200_000  # panels up to the last time that still take minutes
RESOLVED = 1e12  # largest rate × time: memories of length 1/rate are still told apart by double precision
BUDGET = 20_000  # largest number of panels between two recorded times that a schedule asks for
STEADY = Pace()


class Curve(NamedTuple):
    """The solution at the requested times, y_q(t) = ∫₀ᵗ e^{−a_q(u(t)−u(s))} τ(s) train(s) ds, (times, Q), and u(t)."""

    train: np.ndarray
    memory: np.ndarray
    flow_time: np.ndarray


class _Panel(NamedTuple):
    """Gauss points of [0, 1], the Lagrange basis on them, and graded rules for kernels that decay within a panel.

    The graded rule has points ξ_g and weights `rule`. Of the basis there are values (`at`) and integrals from 0: at the
    nodes c_i, at ξ_g and, `inner`, at c_i ξ_g, the graded points of [0, c_i]: (P, P), (G, P), (P, G, P).
    """

    nodes: np.ndarray
    weights: np.ndarray
    integral_nodes: np.ndarray
    rule: np.ndarray
    at_rule: np.ndarray
    integral_rule: np.ndarray
    at_inner: np.ndarray
    integral_inner: np.ndarray


@cache
def _panel(levels: int = 0) -> _Panel:
    """A panel whose rules halve their intervals `levels` times towards the end, where the kernel lives."""
    x, w = np.polynomial.legendre.leggauss(POINTS)
    nodes, weights = (x + 1) / 2, w / 2
    # Coefficients of the Lagrange basis in Legendre polynomials, and of its antiderivative from 0.
    coefficients = np.linalg.inv(np.polynomial.legendre.legvander(x, POINTS - 1))
    primitive = 0.5 * np.polynomial.legendre.legint(coefficients, lbnd=-1, axis=0)

    def at(points: np.ndarray, series: np.ndarray) -> np.ndarray:
        return np.polynomial.legendre.legvander(2 * points - 1, len(series) - 1) @ series

    edges = np.append(1 - 0.5 ** np.arange(levels + 1), 1.0)
    spans = np.diff(edges)
    points = (edges[:-1, None] + spans[:, None] * nodes).ravel()
    rule = (spans[:, None] * weights).ravel()
    inner = np.multiply.outer(nodes, points)
    on_rule, within = ((at(x, coefficients), at(x, primitive)) for x in (points, inner))
    return _Panel(nodes, weights, at(nodes, primitive), rule, *on_rule, *within)


def _cuts(start: float, end: float, pace: Pace) -> np.ndarray:
    """Ends of panels on which ∫s and ∫s²τ(t)/τ are resolved: bisect until the halves agree with the whole.

    A jump of s or τ is isolated in a panel of relative length 2⁻⁴⁰.
    """
    panel = _panel()

    def integrals(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        at = a[:, None] + (b - a)[:, None] * panel.nodes
        values = pace.speed(at)
        return (b - a) * np.array([values @ panel.weights, (values**2 * pace.heat(at)) @ panel.weights])

    edges = np.union1d(np.linspace(start, end, 17), pace.knots[(pace.knots > start) & (pace.knots < end)])
    for _ in range(36):
        if len(edges) > BUDGET:
            where = f"one that is rough everywhere between t = {start:.4g} and {end:.4g}"
            raise reject("schedule", where, "no panels resolve it; smooth it, or lower t_max")
        a, b, middle = edges[:-1], edges[1:], (edges[:-1] + edges[1:]) / 2
        whole, halves = integrals(a, b), integrals(a, middle) + integrals(middle, b)
        rough = np.any(np.abs(halves - whole) > 1e-12 * (end - start) + 1e-11 * np.abs(whole), axis=0)
        if not np.any(rough):
            break
        edges = np.union1d(edges, middle[rough])
    return edges[1:]


@np.errstate(over="ignore", invalid="ignore")  # growth beyond the largest float is reported by the caller
def solve(
    source: Callable[[np.ndarray], np.ndarray], rates: np.ndarray, weights: np.ndarray, temperature: float,
    times: np.ndarray, pace: Pace = STEADY, advanced: Callable[[float], None] = lambda _: None,
) -> Curve:  # fmt: skip
    """Solve train = source(u) + ∫ Σ_q weights_q e^{−rates_q(u−u')} τ s² train.

    `source` takes flow times u. The noise of a step scaled by s carries s²; both, and τ, change as `pace` says.
    `advanced` is told the share of recorded times that is done.
    """
    panel, last, top = _panel(), float(times[-1]), float(rates.max())
    train, memory, flow = np.empty(len(times)), np.empty((len(times), len(rates))), np.empty(len(times))
    now, u, y = 0.0, 0.0, np.zeros(len(rates))
    settled = pace.steady and temperature * float(weights @ (1 / np.maximum(rates, 1e-300))) < 1

    def fastest(at: np.ndarray) -> np.ndarray:
        """Decay, and above the stable temperature growth: both are resolved."""
        fast = np.abs(pace.speed(at))
        return np.maximum(top * fast, temperature * pace.heat(at) * fast**2 * weights.sum())

    def refuse(words: str) -> InputError:
        return reject("t_max", f"{last:.4g}", f"{words}; lower t_max or the penalty")

    if not settled and last > 0:
        along = np.union1d(np.linspace(0.0, last, 1025), pace.knots[pace.knots < last])
        here = fastest(along)
        count = float(np.minimum(here[1:], here[:-1]) @ np.diff(along)) / REACH
        if count > MOST_PANELS:
            raise refuse(f"that is {count:.2g} steps at rates up to {here.max():.3g} of data, penalty and schedule")

    def panels(now: float, target: float) -> Iterator[tuple[float, float]]:
        """Where panels begin, and how long they are."""
        cuts = np.zeros(0) if target <= now else np.array([target]) if pace.steady else _cuts(now, target, pace)
        within = np.linspace(np.append(now, cuts[:-1]), cuts, 9)
        for cut, rate in zip(cuts, np.max(fastest(within), axis=0), strict=True):
            if not rate * cut <= RESOLVED:
                latest = RESOLVED / rate
                raise refuse(f"rates of {rate:.3g} of data, penalty and schedule are resolved up to t = {latest:.3g}")
            while now < cut:
                # What is still alive at a late time varies on the scale of that time; the rest follows at once.
                reach = max(REACH / rate if rate > 0 else math.inf, GROWTH * now if settled else 0.0)
                count = max(1, math.ceil(min((cut - now) / reach, 1e15) - 1e-9))
                length = (cut - now) / count
                yield now, length
                now = cut if count == 1 else now + length

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

    uniform = cache(lambda length: kernels(length, np.ones(POINTS)))
    for i, target in enumerate(times):
        begins, lengths = np.array([*panels(now, target)]).reshape(-1, 2).T
        at = begins[:, None] + lengths[:, None] * panel.nodes
        speeds, heats = pace.speed(at), pace.heat(at)
        for length, speed, heat in zip(lengths, speeds, heats, strict=True):
            decay, matrix, remember, keep = uniform(length) if pace.steady else kernels(length, speed)
            noise = temperature * heat * speed**2
            past = source(u + length * (panel.integral_nodes @ speed)) + decay @ y
            values = np.linalg.solve(np.eye(POINTS) - matrix * noise, past)
            y = keep * y + (noise * values) @ remember
            u += length * float(panel.weights @ speed)
            if not np.all(np.isfinite(y)):
                train[i:], memory[i:], flow[i:] = np.nan, np.nan, u
                return Curve(train, memory, flow)
        now = max(now, target)
        train[i] = source(np.array([u]))[0] + weights @ y
        memory[i], flow[i] = y, u
        advanced(1 / len(times))
    return Curve(train, memory, flow)
