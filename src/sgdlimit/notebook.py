"""What notebooks show of problems, algorithms and results: formulas, words, small curves; no scripts, all escaped."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from . import formulas
from .describe import to_words
from .problem import Problem
from .problem.losses import LossLike
from .problem.penalties import PenaltyLike
from .results.result import Result, Runs, phrases, spoken

WIDTH, HEIGHT, EDGE = 150, 34, 2
"""Of a small curve, in pixels."""
MOST = 80
"""Points of a small curve."""
COLOURS = ("#0072B2", "#D55E00")
REACH = 3.0
"""Losses and penalties are drawn from −REACH to REACH."""
LEFT = "style='text-align:left'"
PLAIN = "class='tex2jax_ignore mathjax_ignore'"
"""Of words that may hold dollars and are no formulas."""


def math(lines: Iterable[str]) -> str:
    """Displayed formulas; a notebook sets what stands between double dollars."""
    return "".join(f"<div>$$ {html.escape(line)} $$</div>" for line in lines)


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Two columns; the second is markup already."""
    cells = (f"<tr><th {LEFT}>{html.escape(key)}</th><td {LEFT}>{cell}</td></tr>" for key, cell in rows)
    return f"<table {PLAIN}>{''.join(cells)}</table>"


def curve(x: Any, values: Sequence[Any], title: str, half: Any = None) -> str:
    """Small curves over one x as SVG, each in a colour; `half` is half the height of a band around the first.

    Empty where there are not two finite points.
    """
    x = np.asarray(x, dtype=float)
    pick = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST)).astype(int)) if len(x) else np.zeros(0, int)
    lines = [np.asarray(value, dtype=float)[pick] for value in values]
    band = None if half is None else np.nan_to_num(np.asarray(half, dtype=float)[pick], posinf=0.0)
    x = x[pick]
    sure = [line[np.isfinite(line)] for line in lines]
    if not all(len(line) > 1 for line in sure):
        return ""
    edges = np.concatenate(sure if band is None else [*sure, lines[0] + band, lines[0] - band])
    low, high = np.nanmin(edges), np.nanmax(edges)

    def points(line: np.ndarray) -> list[str]:
        across = EDGE + (WIDTH - 2 * EDGE) * (x - x[0]) / max(x[-1] - x[0], 1e-300)
        up = (line - low) / (high - low) if high > low else np.full(len(line), 0.5)
        down = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * up
        return [f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True) if np.isfinite(a) and np.isfinite(b)]

    drawn = []
    if band is not None and np.any(band > 0):
        ring = [*points(lines[0] + band), *reversed(points(lines[0] - band))]
        drawn.append(f"<polygon points='{' '.join(ring)}' fill='{COLOURS[0]}' fill-opacity='0.25'/>")
    for index, line in enumerate(lines):
        style = f"fill='none' stroke='{COLOURS[index % len(COLOURS)]}' stroke-width='1.4'"
        drawn.append(f"<polyline points='{' '.join(points(line))}' {style}/>")
    said = html.escape(title, quote=True)
    size = f"width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-label='{said}' style='vertical-align:middle'>"
        f"<title>{said}</title>{''.join(drawn)}</svg>"
    )


def html_of(thing: Any) -> str:
    """A problem, an algorithm or a result."""
    if isinstance(thing, Result):
        return _result(thing)
    if isinstance(thing, Problem):
        return _problem(thing)
    words = to_words(thing)
    return f"<strong {PLAIN}>{html.escape(spoken(words))}</strong>{math(formulas.lines(formulas.algorithm, words))}"


def latex_of(thing: Any) -> str:
    """The formulas of a problem or an algorithm alone, for documents set by LaTeX."""
    make = formulas.problem if isinstance(thing, Problem) else formulas.algorithm
    return "\n".join(f"$$ {line} $$" for line in formulas.lines(make, to_words(thing)))


def _problem(problem: Problem) -> str:
    """Objective, symbols, the words of the problem, the shapes of loss and penalty, and the user's functions."""
    words, shapes = to_words(problem), _shapes(problem)
    unusual = (key for key in ("width", "schedule") if words[key] not in (1, {"name": "Constant"}))
    said = [*phrases(words), *((key, spoken(words[key])) for key in unusual)]
    rows = [(key, html.escape(text) + ("&emsp;" + shapes[key] if shapes.get(key) else "")) for key, text in said]
    inside = [part for value in words.values() if isinstance(value, dict) for part in value.values()]
    written = [part["source"] for part in inside if isinstance(part, dict) and part.get("source")]
    sources = "".join(f"<pre {PLAIN}>{html.escape(str(source))}</pre>" for source in written)
    return f"<strong>Problem</strong>{math(formulas.lines(formulas.problem, words))}{table(rows)}{sources}"


def _result(result: Result) -> str:
    """Title, objective and update, and the lines of the summary with a small curve beside each variable."""
    about = result.about
    lines = formulas.lines(formulas.problem, about.get("problem"))[:1]
    lines += formulas.lines(formulas.algorithm, about.get("algorithm"))[:1]
    rows = [(key, html.escape(text) + _course(result, key)) for key, text in result.lines()]
    return f"<strong {PLAIN}>{html.escape(result.title())}</strong>{math(lines)}{table(rows)}"


def _course(result: Result, name: str) -> str:
    """A small curve of a variable along time, with its band: the first entry of a matrix."""
    if name not in result.curves or not result[name].size or len(result.time) < 2:
        return ""
    value, error = (part.reshape(len(result.time), -1)[:, 0] for part in result.curve(name))
    half, what = 2 * error, "two standard errors"
    if isinstance(result, Runs):
        half, what = error * np.sqrt(result.trials), "one standard deviation of the runs"
    return "&emsp;" + curve(result.time, [value], f"{name} along time; band: ± {what}", half)


def _shapes(problem: Problem) -> dict[str, str]:
    """Small curves of L(r, y) over r and of H(θ) over θ, of one unit."""
    found: dict[str, str] = {}
    if problem.width > 1:
        return found
    at = np.linspace(-REACH, REACH, MOST, dtype=np.float32)
    labels = (1.0, -1.0) if problem.labels.binary else (0.0,)
    if isinstance(problem.loss, LossLike):
        values = [jax.vmap(problem.loss, in_axes=(0, None))(at, y) for y in labels]
        sides = " and ".join(f"{y:+g}" if y else "0" for y in labels)
        found["loss"] = curve(at, values, f"L(r, y) for r from −{REACH:g} to {REACH:g}, y = {sides}")
    if isinstance(problem.penalty, PenaltyLike):
        found["penalty"] = curve(at, [jax.vmap(problem.penalty)(at)], f"H(θ) for θ from −{REACH:g} to {REACH:g}")
    return found
