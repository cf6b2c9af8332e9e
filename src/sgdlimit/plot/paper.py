"""The paper's figure: train and test error of SGD at several temperatures, and both laws on top."""

from typing import Any

from ..figures import PaperFigure
from .curves import learning_curves
from .legends import OF_RUNS, OF_THEORY, UNRELIABLE, band_handle, doubt_handle, place
from .looks import COLOURS, FLOW, INKS, MARKERS, STYLES

SIZE = (6.75, 2.8)
"""Inches: the width of a text page."""


def paper_figure(result: PaperFigure, axes: Any = None) -> Any:
    """Draw the result of `sgdlimit.figures.paper_figure`; returns the two axes."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    with plt.rc_context({"font.size": 8}):
        if axes is None:
            _, axes = plt.subplots(1, 2, figsize=SIZE, layout="constrained")
        learning_curves(*result.runs, *result.laws, *result.flows, variables=("train_error", "test_error"), axes=axes)
        for ax in axes:
            ax.set_xlim(0, result.runs[0].time[-1])
        axes[0].set_ylim(bottom=0)
        handles = [
            Line2D([], [], color=COLOURS[i], marker=MARKERS[i], ms=3.5, label=f"$\\tau$ = {tau:g}")
            for i, tau in enumerate(run.about["algorithm"]["temperature"] for run in result.runs)
        ]
        laws: list[Any] = [
            Line2D([], [], color=INKS[0], lw=1.2, ls=STYLES[0], label="DMFT, law of SGD"),
            Line2D([], [], color=INKS[1], lw=1.2, ls=FLOW, label="DMFT, law of SGF"),
            band_handle(OF_RUNS),
            band_handle(OF_THEORY),
        ]
        options = result.runs[0].about["options"]
        title = f"SGD, $d$ = {options['dim']}: mean of {options['trials']} trials"
        place(axes[0], handles, title=title, fontsize="medium")
        names = [handle.get_label() for handle in laws]
        if any(line.get_gid() == UNRELIABLE for ax in axes for line in ax.get_lines()):
            laws, names = [*laws, doubt_handle()], [*names, UNRELIABLE]
        place(axes[1], laws, names, fontsize="small")
    return axes
