"""How two results agree: the difference along time, in units of its standard error."""

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..comparison import Report
from ..errors import instance
from .legends import entries, place
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
        style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "ms": 3, "lw": 0.9}
        lines = axes.plot(found.time, found.z.reshape(len(found.time), -1), **style)
        lines[0].set_label(f"{name.replace('_', ' ')}: {_judged(found.p_value, found.verdict)}")
    axes.set(xlabel=printed("time"), ylabel="difference / standard error")
    number = {1.0: "one standard error", 2.0: "two standard errors"}.get(sigmas, f"{sigmas:g} standard errors")
    band = {f"band: ± {number}": Patch(facecolor="0.92", edgecolor="0.6", lw=0.6)}
    title = f"all together: {_judged(report.p_value, report.verdict)}"
    place(axes, entries(axes) | band, title=title, title_fontsize="x-small")
    return axes


def _judged(p_value: float, verdict: str) -> str:
    """'$p$ = 0.3', and the verdict unless it is that all is well."""
    return f"$p$ = {p_value:.2g}" + ("" if verdict == "agree" else f", {verdict}")
