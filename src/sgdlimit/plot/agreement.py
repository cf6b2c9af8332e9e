"""How two results agree: the difference along time, in units of its standard error."""

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..comparison import Report
from ..errors import instance
from .legends import place
from .looks import COLOURS, MARKERS
from .panels import printed, single


def agreement(report: Report, *, axes: Axes | None = None, sigmas: float = 2.0) -> Axes:
    """z of every variable along time over a band of ±`sigmas`; p-value and verdict of its whole curve in the legend.

    A matrix-valued variable gives one curve an entry. Returns the axes.
    """
    instance("report", report, Report, "the result of sl.compare(theory, runs)")
    axes = single(axes, 5.2, 3.2)
    axes.axhspan(-sigmas, sigmas, color="0.92", lw=0, zorder=0)
    axes.axhline(0.0, color="0.6", lw=0.8, zorder=0)
    for index, (name, found) in enumerate(report.variables.items()):
        label = f"{name.replace('_', ' ')}: $p$ = {found.p_value:.2g}{_unless_agreed(found.verdict)}"
        style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "ms": 3, "lw": 0.9}
        for column, values in enumerate(found.z.reshape(len(found.time), -1).T):
            axes.plot(found.time, values, label=label if column == 0 else None, **style)
    axes.set_xlabel(printed("time"))
    axes.set_ylabel("difference / standard error")
    handles, labels = axes.get_legend_handles_labels()
    handles.append(Patch(facecolor="0.92", edgecolor="0.6", lw=0.6))
    number = {1.0: "one standard error", 2.0: "two standard errors"}.get(sigmas, f"{sigmas:g} standard errors")
    title = f"all together: $p$ = {report.p_value:.2g}{_unless_agreed(report.verdict)}"
    place(axes, handles, [*labels, f"band: ± {number}"], title=title, title_fontsize="x-small")
    return axes


def _unless_agreed(verdict: str) -> str:
    return "" if verdict == "agree" else f", {verdict}"
