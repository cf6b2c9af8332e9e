"""How two results agree: the difference along time, in units of its standard error."""

from typing import Any

from ..comparison import Report
from ..errors import reject
from .legends import place
from .looks import COLOURS, MARKERS


def agreement(report: Report, *, axes: Any = None, sigmas: float = 2.0) -> Any:
    """z of every variable along time over a band of ±`sigmas`; p-value and verdict of its whole curve in the legend.

    A matrix-valued variable gives one curve an entry. Returns the axes.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    if not isinstance(report, Report):
        raise reject("report", repr(report), "give the result of sl.compare(theory, runs)")
    if axes is None:
        _, axes = plt.subplots(figsize=(5.2, 3.2), layout="constrained")
    axes.axhspan(-sigmas, sigmas, color="0.92", lw=0, zorder=0)
    axes.axhline(0.0, color="0.6", lw=0.8, zorder=0)
    for index, (name, found) in enumerate(report.variables.items()):
        label = f"{name.replace('_', ' ')}: $p$ = {found.p_value:.2g}" + _unless_agreed(found.verdict)
        columns = found.z.reshape(len(found.time), -1).T
        for column, values in enumerate(columns):
            axes.plot(
                found.time, values, color=COLOURS[index % len(COLOURS)], marker=MARKERS[index % len(MARKERS)], ms=3,
                lw=0.9, label=label if column == 0 else None,
            )  # fmt: skip
    axes.set_xlabel("time  $t = \\eta k / d$")
    axes.set_ylabel("difference / standard error")
    axes.spines[["top", "right"]].set_visible(False)
    title = f"all together: $p$ = {report.p_value:.2g}" + _unless_agreed(report.verdict)
    handles, labels = axes.get_legend_handles_labels()
    handles.append(Patch(facecolor="0.92", edgecolor="0.6", lw=0.6))
    place(axes, handles, [*labels, f"band: ± {_count(sigmas)}"], title=title, title_fontsize="x-small")
    return axes


def _unless_agreed(verdict: str) -> str:
    return "" if verdict == "agree" else f", {verdict}"


def _count(sigmas: float) -> str:
    return {1.0: "one standard error", 2.0: "two standard errors"}.get(sigmas, f"{sigmas:g} standard errors")
