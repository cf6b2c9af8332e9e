"""The frameworks on common runs, and the gap between SGF and SGD."""

from typing import Any

import numpy as np

from ..frameworks import JUDGED, Table
from .curves import COLOURS, MARKERS, learning_curves

SHOWN = ("ridge, many passes, small batches", "logistic, many passes, small batches")
STYLES = (":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)), "--", "-")


def frameworks(table: Table) -> Any:
    """Train and test error of the settings with small batches, one a row, and below them the gap against τ.

    Returns the axes: two a shown setting, and one.
    """
    import matplotlib.pyplot as plt

    rows = [row for row, setting in enumerate(table.settings) if setting.name in SHOWN]
    _, axes = plt.subplots(len(rows), 3, figsize=(11.5, 3.2 * len(rows)), layout="constrained", squeeze=False)
    for place, row in enumerate(rows):
        learning_curves(table.runs[row], variables=JUDGED, axes=axes[place, :2], labels=["SGD runs"])
        for ax, name in zip(axes[place, :2], JUDGED, strict=True):
            for i, (framework, cell) in enumerate(table.cells[row].items()):
                if cell.theory is None:
                    continue
                style = {"color": COLOURS[(i + 1) % len(COLOURS)], "ls": STYLES[i], "lw": 1.3}
                ax.plot(cell.theory.time, cell.theory[name], label=framework, **style)
            ax.set_title(table.settings[row].name if name == JUDGED[0] else "", loc="left", fontsize="medium")
        axes[place, 0].legend(fontsize="x-small", frameon=False)
    for spare in axes[1:, 2]:
        spare.set_axis_off()
    gaps(table, axes=axes[0, 2])
    return axes


def gaps(table: Table, *, axes: Any = None) -> Any:
    """Training error of SGD minus that of SGF against the temperature, on logarithmic axes. Returns the axes."""
    import matplotlib.pyplot as plt

    if axes is None:
        _, axes = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
    tau = np.array([g.temperature for g in table.gaps])
    for index, (label, pairs) in enumerate(
        {"laws": [g.laws for g in table.gaps], "runs": [g.runs for g in table.gaps]}.items()
    ):
        value, error = np.array(pairs).T
        axes.errorbar(
            tau * (1 + 0.04 * index), value, yerr=2 * error, marker=MARKERS[index], color=COLOURS[index], ls="none",
            capsize=2, ms=4, label=label,
        )  # fmt: skip
    power = table.gap_power()
    if np.isfinite(power):
        seen = table.gaps[-1]
        axes.plot(tau, seen.laws[0] * (tau / seen.temperature) ** power, color="0.5", lw=0.8,
                  label=f"$\\tau^{{{power:.2f}}}$")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_xlabel("temperature $\\tau = \\eta/B$")
    axes.set_ylabel("train error, SGD − SGF")
    axes.set_title("logistic: what Gaussian noise misses", loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize="x-small", frameon=False)
    return axes
