"""Legends that say what a band means, and that do not lie on the curves."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
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
HATCH, DOUBT = "//", "x"
"""Of a band and on a curve that are not to be relied on."""
UNRELIABLE = f"unreliable: error above {percent(ERROR)}, or a check failed"
MARGIN = 3.0
"""Pixels between a legend and the curves."""
TALLEST = 0.5
"""Of a legend above the axes, as a share of their height."""

Handle = Artist | tuple[Artist, ...]
"""What stands beside a word of a legend."""
MEANINGS: dict[str, Handle] = {
    OF_RUNS: Patch(facecolor="0.75", lw=0),
    OF_THEORY: Patch(facecolor="0.6", lw=0),
    OF_VALUES: Patch(facecolor="0.6", lw=0),
    BARS: Line2D([], [], color="0.3", marker="o", ms=2.5, ls=""),
    UNRELIABLE: (
        Patch(facecolor="white", edgecolor="0.4", hatch=2 * HATCH, lw=0),
        Line2D([], [], color="0.2", marker=DOUBT, ls="", ms=5),
    ),
}
"""Entries for what bears these words as its `gid`."""


def entries(*on: Axes) -> dict[str, Handle]:
    """Of a legend: the names on the first axes, and what bands, bars and crosses on any of them mean."""
    handles, words = on[0].get_legend_handles_labels()
    drawn = {artist.get_gid() for ax in on for artist in (*ax.lines, *ax.collections)}
    return dict(zip(words, handles, strict=True)) | {word: MEANINGS[word] for word in MEANINGS if word in drawn}


def place(ax: Axes, named: Mapping[str, Handle] | None = None, **options: str) -> None:
    """A legend where it covers no curve and no band: inside the axes, or above them if there is no such place.

    named: its entries, those of the axes by default. Overlaps are measured on the screen, so that logarithmic axes are
    as good as others: call it when scales and limits are set. Where the figure does not lay itself out, or the legend
    would take more than half the height of the axes, it stays inside, on a pale ground, where it covers least.
    """
    named = entries(ax) if named is None else named
    if not named:
        return
    words: dict[str, Any] = {"handles": list(named.values()), "labels": list(named), "fontsize": "x-small"}
    words |= {"frameon": False, **options}
    figure, legend = ax.figure.get_figure(root=True), ax.legend(loc="best", **words)
    figure.draw_without_rendering()
    box, frame = legend.get_window_extent().padded(MARGIN), ax.bbox.padded(MARGIN + 1)
    inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
    if not inside or any(path.intersects_bbox(box, filled) for path, filled in _drawn(ax)):
        legend.remove()
        if figure.get_layout_engine() is None or not _above(ax, words):
            ax.legend(loc="best", **words | {"frameon": True, "framealpha": 0.8, "edgecolor": "none"})


def _above(ax: Axes, words: dict[str, Any]) -> bool:
    """Put a legend over the axes and their titles, in as many columns as fit; False if it takes too much height."""
    titled = any(ax.get_title(side) for side in ("left", "center", "right"))
    extent = ax.get_tightbbox() if titled else None
    top = 1.0 if extent is None else ax.transAxes.inverted().transform((0, extent.y1))[1]
    room, words = ax.bbox.frozen(), words | {"loc": "lower left", "bbox_to_anchor": (0.0, top), "borderaxespad": 0.3}
    for columns in (3, 2, 1):
        legend = ax.legend(ncols=columns, **words)
        box = legend.get_window_extent()
        if box.width <= room.width and box.height <= TALLEST * room.height:
            return True
        legend.remove()
    return False


def _drawn(ax: Axes) -> Iterator[tuple[Path, bool]]:
    """Lines, bands and bars on the screen, and whether they are filled; not what lies behind everything."""
    for artist in (*ax.lines, *(patch for patch in ax.patches if patch.zorder > 0)):
        if np.size(artist.get_path().vertices):
            yield artist.get_transform().transform_path(artist.get_path()), isinstance(artist, Patch) and artist.fill
    for several in ax.collections:
        for path in several.get_paths():
            yield several.get_transform().transform_path(path), not isinstance(several, LineCollection)
