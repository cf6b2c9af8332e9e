"""Legends that say what a band means, and that do not lie on the curves."""

import math
from typing import Any, NamedTuple

import numpy as np

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
PLACES = ("upper right", "upper left", "lower right", "lower left", "center right", "center left", "upper center",
          "lower center", "center")  # fmt: skip
"""Inside the axes, in the order in which they are tried."""
MARGIN = 3.0
"""Pixels between a legend and the curves."""
TALLEST = 0.5
"""Of a legend above the axes, as a share of their height."""
MOST_POINTS = 20_000
"""That stand for one curve on the screen."""


def band_handle(words: str, hatch: str = "") -> Any:
    """An entry for a kind of band."""
    from matplotlib.patches import Patch

    if hatch:
        return Patch(facecolor="white", edgecolor="0.4", hatch=2 * hatch, lw=0, label=words)
    # bands of theories are drawn darker than those of runs
    return Patch(facecolor="0.75" if words == OF_RUNS else "0.6", lw=0, label=words)


def doubt_handle() -> Any:
    """An entry for the crosses on what is unreliable, and for hatching."""
    from matplotlib.lines import Line2D

    return band_handle(UNRELIABLE, HATCH), Line2D([], [], color="0.2", marker=DOUBT, ls="", ms=5)


def place(on: Any, handles: list[Any] | None = None, labels: list[str] | None = None, **options: Any) -> Any:
    """A legend where it covers no curve and no band: inside the axes, or above them if there is no such place.

    on: the axes, or several that could bear it; handles are those of the first. Overlaps are measured on the screen, so
    that logarithmic axes are as good as others: call it when scales and limits are set. Where the figure does not lay
    itself out, or the legend would take more than half the height of the axes, it stays inside, on a pale ground, where
    it covers least.
    """
    several = list(np.ravel(on))
    ax = several[0]
    if handles is None:
        handles, labels = ax.get_legend_handles_labels()
    if not handles:
        return None
    if labels is None:
        labels = [handle.get_label() for handle in handles]
    words = {"handles": handles, "labels": labels, "fontsize": "x-small", "frameon": False, **options}
    figure = ax.figure.get_figure(root=True)
    figure.draw_without_rendering()
    covered = {}
    for bearer in several:
        legend, drawn = bearer.legend(loc=PLACES[0], **words), _drawn(bearer)
        figure.draw_without_rendering()
        for where in PLACES:
            legend.set_loc(where)
            covered[bearer, where] = _covered(legend.get_window_extent(), drawn, bearer.bbox)
            if not covered[bearer, where]:
                return legend
        legend.remove()
    legend = None if figure.get_layout_engine() is None else _above(ax, words)
    if legend is None:
        bearer, where = min(covered, key=lambda place: covered[place])
        legend = bearer.legend(loc=where, **{**words, "frameon": True, "framealpha": 0.8, "edgecolor": "none"})
    return legend


def _above(ax: Any, words: dict[str, Any]) -> Any:
    """A legend over the axes and their titles, in as many columns as fit; None if it takes too much of their height."""
    titles = [text.get_window_extent() for text in (ax.title, ax._left_title, ax._right_title) if text.get_text()]
    top = max((ax.transAxes.inverted().transform((0, box.y1))[1] for box in titles), default=1.0)
    room, over = ax.bbox.frozen(), {"loc": "lower left", "bbox_to_anchor": (0.0, top), "borderaxespad": 0.3}
    for columns in (3, 2, 1):
        legend = ax.legend(ncols=columns, **over, **words)
        box = legend.get_window_extent()
        if box.width <= room.width and box.height <= TALLEST * room.height:
            return legend
        legend.remove()
    return None


class Drawn(NamedTuple):
    """Something on the axes, as points on the screen some two pixels apart."""

    points: np.ndarray
    filled: bool


def _drawn(ax: Any) -> list[Drawn]:
    """Lines, markers, bands and bars."""
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.path import Path

    shapes = [
        (line.get_transform(), line.get_path(), False) for line in ax.get_lines() if len(line.get_path().vertices)
    ]
    for collection in ax.collections:
        if isinstance(collection, PathCollection):
            shapes.append((collection.get_offset_transform(), Path(collection.get_offsets()), False))
        else:
            filled = not isinstance(collection, LineCollection)
            shapes += [(collection.get_transform(), path, filled) for path in collection.get_paths()]
    shapes += [(patch.get_transform(), patch.get_path(), patch.get_fill()) for patch in ax.patches if patch.zorder > 0]
    return [Drawn(_dense(transform.transform(path.vertices)), filled) for transform, path, filled in shapes]


def _dense(path: np.ndarray) -> np.ndarray:
    path = path[np.all(np.isfinite(path), axis=1)]
    if len(path) < 2:
        return path
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    at = np.linspace(0.0, along[-1], int(np.clip(along[-1] / 2, 2, MOST_POINTS)))
    return np.stack([np.interp(at, along, column) for column in path.T], axis=1)


def _covered(box: Any, drawn: list[Drawn], frame: Any) -> float:
    """Points of curves within the box, or all of it within a band; infinite for a box that leaves the axes."""
    from matplotlib.path import Path

    if box.x0 < frame.x0 - 1 or box.x1 > frame.x1 + 1 or box.y0 < frame.y0 - 1 or box.y1 > frame.y1 + 1:
        return math.inf
    low, high = np.array([box.x0, box.y0]) - MARGIN, np.array([box.x1, box.y1]) + MARGIN
    centre = (float(low[0] + high[0]) / 2, float(low[1] + high[1]) / 2)
    total = 0.0
    for points, filled in drawn:
        total += np.sum(np.all((points >= low) & (points <= high), axis=1))
        if filled and len(points) > 2 and Path(points).contains_point(centre):
            total += np.sum(high - low)
    return total
