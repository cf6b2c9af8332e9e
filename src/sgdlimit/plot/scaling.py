"""Log-log plots of quantities that vanish along a scale."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import reject
from ..verification import Scaling, Verification
from .legends import BARS, place
from .looks import COLOURS, MARKERS

AXIS = {"d": "dimension $d$", "γ": "time step $\\gamma$"}


def scaling(curves: Sequence[Scaling], *, axes: Any = None, quantity: str = "") -> Any:
    """Values on logarithmic axes with bars of two standard errors, the fitted power of each in the legend.

    Returns the axes.
    """
    import matplotlib.pyplot as plt

    if not curves or not all(isinstance(curve, Scaling) for curve in curves):
        raise reject("curves", repr(curves), "give a list of Scaling, as sgdlimit.verification returns")
    if axes is None:
        _, axes = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
    for index, curve in enumerate(curves):
        colour, power = COLOURS[index % len(COLOURS)], curve.power
        label = f"{curve.label}: ${_base(curve)}^{{{power.exponent:+.2f} \\pm {power.error:.2f}}}$"
        keep = curve.value > 0
        axes.errorbar(
            curve.at[keep], curve.value[keep], yerr=2 * curve.error[keep], color=colour, ls="none", capsize=2, ms=4,
            marker=MARKERS[index % len(MARKERS)], label=label,
        )  # fmt: skip
        span = np.array([curve.at.min(), curve.at.max()])
        axes.plot(span, power.prefactor * span**power.exponent, color=colour, lw=0.8, alpha=0.7)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(AXIS.get(curves[0].scale, curves[0].scale))
    axes.set_ylabel(quantity)
    axes.spines[["top", "right"]].set_visible(False)
    place(axes, title=BARS, title_fontsize="x-small")
    return axes


def _base(curve: Scaling) -> str:
    return "\\gamma" if curve.scale == "γ" else curve.scale


def verification(result: Verification) -> Any:
    """Every panel of a verification, four in a row; returns the axes."""
    import matplotlib.pyplot as plt

    rows = -(-len(result.panels) // 4)
    _, axes = plt.subplots(rows, 4, figsize=(15.0, 3.6 * rows), squeeze=False, layout="constrained")
    for ax, panel in zip(axes.flat, result.panels, strict=False):
        scaling(panel.curves, axes=ax, quantity=panel.quantity)
        ax.set_title(panel.title, loc="left", fontsize="small")
    for ax in axes.flat[len(result.panels) :]:
        ax.set_axis_off()
    return axes
