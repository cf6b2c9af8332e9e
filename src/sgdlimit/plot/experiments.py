"""Pictures of the experiments: the paper's figure, its theorems, and the frameworks on common runs."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..errors import reject
from ..figures import PaperFigure
from ..frameworks import JUDGED, FrameworkTable
from ..verification import Scaling, Verification
from .axes import Same, panels, single
from .curves import learning_curves
from .legends import BARS, MEANINGS, Handle, entries, place
from .looks import COLOURS, FLOW, INKS, MARKERS, STYLES

PAGE = (3.375, 2.8)
"""Inches of a panel of the paper's figure: two of them are as wide as a text page."""
SHOWN = ("ridge, many passes, small batches", "logistic, many passes, small batches")
"""Settings whose curves are drawn."""
LINES = (":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)), "--", "-")
"""One a framework."""
SCALES = {"d": "dimension $d$", "γ": "time step $\\gamma$"}


def paper_figure(result: PaperFigure, axes: Same | None = None) -> Same:
    """Draw the result of `sgdlimit.figures.paper_figure`: errors of SGD, both laws on top. Returns the two axes."""
    with plt.rc_context({"font.size": 8}):
        given, (left, right) = panels(axes, 2, "errors", *PAGE)
        both = [left, right]
        learning_curves(*result.runs, *result.laws, *result.flows, variables=("train_error", "test_error"), axes=both)
        for ax in both:
            ax.set_xlim(0, result.runs[0].time[-1])
        left.set_ylim(bottom=0)
        taus = [f"$\\tau$ = {run.about['algorithm']['temperature']:g}" for run in result.runs]
        heats = {tau: Line2D([], [], color=COLOURS[i], marker=MARKERS[i], ms=3.5) for i, tau in enumerate(taus)}
        laws: dict[str, Handle] = {
            "DMFT, law of SGD": Line2D([], [], color=INKS[0], lw=1.2, ls=STYLES[0]),
            "DMFT, law of SGF": Line2D([], [], color=INKS[1], lw=1.2, ls=FLOW),
        }
        meanings = {words: handle for words, handle in entries(*both).items() if words in MEANINGS}
        options = result.runs[0].about["options"]
        title = f"SGD, $d$ = {options['dim']}: mean of {options['trials']} trials"
        place(left, heats, title=title, fontsize="medium")
        place(right, laws | meanings, fontsize="small")
    return given


def scaling(curves: Sequence[Scaling], *, axes: Axes | None = None, quantity: str = "") -> Axes:
    """Values on logarithmic axes with bars of two standard errors, the fitted power of each in the legend.

    Returns the axes.
    """
    if not curves or not all(isinstance(curve, Scaling) for curve in curves):
        raise reject("curves", repr(curves), "give a list of Scaling, as sgdlimit.verification returns")
    axes = single(axes, 4.4, 3.4)
    for index, curve in enumerate(curves):
        power, keep = curve.power, curve.value > 0
        base = "\\gamma" if curve.scale == "γ" else curve.scale
        label = f"{curve.label}: ${base}^{{{power.exponent:+.2f} \\pm {power.error:.2f}}}$"
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        points = (curve.at[keep], curve.value[keep], 2 * curve.error[keep])
        axes.errorbar(*points, color=colour, marker=marker, ls="none", capsize=2, ms=4, label=label)
        span = np.array([curve.at.min(), curve.at.max()])
        axes.plot(span, power.prefactor * span**power.exponent, color=colour, lw=0.8, alpha=0.7)
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel=SCALES.get(curves[0].scale, curves[0].scale), ylabel=quantity)
    place(axes, title=BARS, title_fontsize="x-small")
    return axes


def verification(result: Verification) -> np.ndarray:
    """Draw every panel of a verification, two in a row; returns the axes."""
    rows = -(-len(result.panels) // 2)
    _, axes = plt.subplots(rows, 2, figsize=(8.4, 3.6 * rows), squeeze=False, layout="constrained")
    for ax, panel in zip(axes.flat, result.panels, strict=False):
        scaling(panel.curves, axes=ax, quantity=panel.quantity)
        ax.set_title(panel.title, loc="left", fontsize="small")
    for ax in axes.flat[len(result.panels) :]:
        ax.set_axis_off()
    return axes


def frameworks(table: FrameworkTable) -> np.ndarray:
    """Train and test error of the settings with small batches, one a row; one that runs away leaves the picture.

    Returns the axes, an array of rows and columns.
    """
    rows = [row for row, setting in enumerate(table.settings) if setting.name in SHOWN]
    _, axes = plt.subplots(len(rows), 2, figsize=(8.0, 3.2 * len(rows)), squeeze=False, layout="constrained")
    for row, pair in zip(rows, axes, strict=True):
        learning_curves(table.runs[row], variables=JUDGED, axes=pair, labels=["SGD runs"])
        for ax, name in zip(pair, JUDGED, strict=True):
            for i, (framework, cell) in enumerate(table.cells[row].items()):
                if cell.theory is not None:
                    style = {"color": COLOURS[(i + 1) % len(COLOURS)], "ls": LINES[i], "lw": 1.3}
                    ax.plot(cell.theory.time, cell.theory[name], label=framework, **style)
                if cell.theory is not None and framework == "SGD":
                    ax.set_ylim(0, 1.3 * np.max(cell.theory[name]))
            ax.set_xlim(0, table.runs[row].time[-1])
        pair[0].set_title(table.settings[row].name, loc="left", fontsize="medium")
        place(pair[0])
    return axes
