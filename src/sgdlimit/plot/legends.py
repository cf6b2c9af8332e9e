"""Legends that say what a band means, and that do not lie on the curves."""

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path

from ..results.quality import ERROR, percent

DEVIATIONS, ERRORS = 1, 2
"""Half the height of a band: of runs in standard deviations of one run, of theories in total errors."""
OF_RUNS = "band: ± one standard deviation of the runs"
OF_THEORY = "band: ± two standard errors of the theory"
OF_VALUES = "band: ± two standard errors"
"""Where theories and runs are drawn alike, as in pictures of sweeps."""
BARS = "bars: ± two standard errors"
HATCH = "//"
"""Of a band that is not to be relied on."""
DOUBT = "x"
"""Marker of a curve that is not to be relied on."""
UNRELIABLE = f"unreliable: error above {percent(ERROR)}, or a check failed"
MARGIN = 3.0
"""Pixels between a legend and the curves."""
TALLEST = 0.5
"""Of a legend above the axes, as a share of their height."""
TITLES = ("title", "_left_title", "_right_title")
"""Where axes keep their three titles."""

Handle = Artist | tuple[Artist, ...]
"""What stands beside a word of a legend."""


class LegendOptions(TypedDict, total=False):
    """Of matplotlib's legends, those that pictures here choose."""

    title: str
    title_fontsize: str
    fontsize: str


def band_handle(words: str) -> Patch:
    """The entry of a legend for a kind of band; those of theories are drawn darker than those of runs."""
    return Patch(facecolor="0.75" if words == OF_RUNS else "0.6", lw=0, label=words)


def doubt_handle() -> tuple[Artist, ...]:
    """The entry of a legend for the crosses on what is unreliable, and for hatching."""
    hatched = Patch(facecolor="white", edgecolor="0.4", hatch=2 * HATCH, lw=0, label=UNRELIABLE)
    return hatched, Line2D([], [], color="0.2", marker=DOUBT, ls="", ms=5)


def place(
    on: Axes | Sequence[Axes] | np.ndarray,
    handles: Sequence[Handle] | None = None,
    labels: Sequence[str] | None = None,
    **options: Unpack[LegendOptions],
) -> Legend | None:
    """A legend where it covers no curve and no band: inside the axes, or above them if there is no such place.

    on: the axes, or several that could bear it; handles are those of the first. Overlaps are measured on the screen, so
    that logarithmic axes are as good as others: call it when scales and limits are set. Where the figure does not lay
    itself out, or the legend would take more than half the height of the axes, it stays inside, on a pale ground, where
    it covers least.
    """
    several: list[Axes] = np.ravel(np.asarray(on, dtype=object)).tolist()
    if handles is None:
        handles, labels = several[0].get_legend_handles_labels()
    if not handles:
        return None
    if labels is None:
        labels = [str(handle.get_label()) for handle in handles if isinstance(handle, Artist)]
    words: dict[str, Any] = {"handles": handles, "labels": labels, "fontsize": "x-small", "frameon": False, **options}
    figure = several[0].figure.get_figure(root=True)
    for ax in several:
        legend = ax.legend(loc="best", **words)
        figure.draw_without_rendering()
        if not _covers(legend, ax):
            return legend
        legend.remove()
    if figure.get_layout_engine() is not None and (legend := _above(several[0], words)) is not None:
        return legend
    return several[0].legend(loc="best", **{**words, "frameon": True, "framealpha": 0.8, "edgecolor": "none"})


def _above(ax: Axes, words: dict[str, Any]) -> Legend | None:
    """A legend over the axes and their titles, in as many columns as fit; None if it takes too much of their height."""
    titles = [getattr(ax, name).get_window_extent() for name in TITLES if getattr(ax, name).get_text()]
    top = max((ax.transAxes.inverted().transform((0, box.y1))[1] for box in titles), default=1.0)
    room, words = ax.bbox.frozen(), words | {"loc": "lower left", "bbox_to_anchor": (0.0, top), "borderaxespad": 0.3}
    for columns in (3, 2, 1):
        legend = ax.legend(ncols=columns, **words)
        box = legend.get_window_extent()
        if box.width <= room.width and box.height <= TALLEST * room.height:
            return legend
        legend.remove()
    return None


def _covers(legend: Legend, ax: Axes) -> bool:
    """Whether the legend lies on something that is drawn, or leaves the axes."""
    box, frame = legend.get_window_extent().padded(MARGIN), ax.bbox.padded(MARGIN + 1)
    inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
    return not inside or any(path.intersects_bbox(box, filled) for path, filled in _drawn(ax))


def _drawn(ax: Axes) -> Iterator[tuple[Path, bool]]:
    """Lines, bands and bars on the screen, and whether they are filled; not what lies behind everything."""
    for artist in (*ax.lines, *(patch for patch in ax.patches if patch.zorder > 0)):
        if np.size(artist.get_path().vertices):
            yield artist.get_transform().transform_path(artist.get_path()), isinstance(artist, Patch) and artist.fill
    for several in ax.collections:
        for path in several.get_paths():
            yield several.get_transform().transform_path(path), not isinstance(several, LineCollection)
