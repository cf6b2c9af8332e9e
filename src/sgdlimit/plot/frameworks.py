"""The frameworks on common runs, and the gap between SGF and SGD."""

from typing import Any

import numpy as np

from ..frameworks import JUDGED, FrameworkTable
from .curves import learning_curves
from .legends import BARS, OF_RUNS, band_handle, place
from .looks import COLOURS, MARKERS

SHOWN = ("ridge, many passes, small batches", "logistic, many passes, small batches")
STYLES = (":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)), "--", "-")


def frameworks(table: FrameworkTable) -> dict[str, Any]:
    """Train and test error of the settings with small batches, one a row, and beside them the gap against τ.

    A framework that runs away leaves the picture. Returns the axes by name: "0 train_error", …, "gap".
    """
    import matplotlib.pyplot as plt

    rows = [row for row, setting in enumerate(table.settings) if setting.name in SHOWN]
    names: Any = [[f"{at} {name}" for name in JUDGED] + ["gap"] for at in range(len(rows))]
    _, axes = plt.subplot_mosaic(names, figsize=(11.5, 3.2 * len(rows)), layout="constrained")
    for at, row in enumerate(rows):
        pair = [axes[f"{at} {name}"] for name in JUDGED]
        learning_curves(table.runs[row], variables=JUDGED, axes=pair, labels=["SGD runs"])
        for ax, name in zip(pair, JUDGED, strict=True):
            for i, (framework, cell) in enumerate(table.cells[row].items()):
                if cell.theory is None:
                    continue
                style = {"color": COLOURS[(i + 1) % len(COLOURS)], "ls": STYLES[i], "lw": 1.3}
                ax.plot(cell.theory.time, cell.theory[name], label=framework, **style)
                if framework == "SGD":
                    ax.set_ylim(0, 1.3 * np.max(cell.theory[name]))
            ax.set_xlim(0, table.runs[row].time[-1])
        pair[0].set_title(table.settings[row].name, loc="left", fontsize="medium")
        handles, labels = pair[0].get_legend_handles_labels()
        place(pair[0], [*handles, band_handle(OF_RUNS)], [*labels, OF_RUNS])
    gaps(table, axes=axes["gap"])
    return axes


def gaps(table: FrameworkTable, *, axes: Any = None) -> Any:
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
    seen = [g for g in table.gaps if g.laws[0] > 3 * g.laws[1]]
    power = table.gap_power()
    if np.isfinite(power):
        span = np.array([g.temperature for g in seen])
        line = seen[-1].laws[0] * (span / span[-1]) ** power
        axes.plot(span, line, color="0.5", lw=0.8, label=f"$\\tau^{{{power:.2f}}}$")
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_xlabel("temperature $\\tau = \\eta/B$")
    axes.set_ylabel("train error, SGD − SGF")
    axes.set_title("logistic: what Gaussian noise misses", loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    place(axes, title=BARS, title_fontsize="x-small")
    return axes
