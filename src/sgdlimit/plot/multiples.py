"""Small multiples: the learning curves of a sweep, one panel a value of one axis or a pair of values of two."""

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..errors import reject
from ..results.variables import chosen
from ..sweep.reading import axes_of, axis_named, curves, dataset_of
from .legends import ERRORS, OF_VALUES, Handle, entries, place
from .panels import Given, printed, valued

if TYPE_CHECKING:
    import xarray

    from ..sweep import Sweep

STYLES = ("-", "--", ":", "-.")
"""One a variable."""
PANEL = (2.5, 2.2)
"""Inches."""
MOST = 40
"""Panels that can still be looked at."""


def multiples(
    sweep: "Sweep | xarray.Dataset",
    variables: str | Sequence[str] = "test_error",
    *,
    columns: str | None = None,
    rows: str | None = None,
    entry: tuple[int, int] = (0, 0),
    log_time: bool = False,
    log_value: bool = False,
    axes: Given | None = None,
) -> np.ndarray:
    """Draw curves of a sweep on a grid, one column a value of one axis, one row a value of another.

    columns: the first axis by default; rows: none by default. An axis that remains is told by colours. Bands are two
    errors on either side. A point without a curve is named in its panel, with how it ended. Returns the axes, an array
    of rows and columns.
    """
    dataset, names = dataset_of(sweep), chosen(variables)
    across, down, hue = _roles(dataset, columns, rows)
    found = [curves(dataset, name, entry) for name in names]
    for name, (value, _) in zip(names, found, strict=True):
        if "time" not in value.dims:
            raise reject("variables", name, 'the sweep keeps one time only; sweep with keep="curves"')
    shape = (dataset.sizes[down] if down else 1, dataset.sizes[across])
    table = _panels(axes, shape)
    # from dark to bright, the brightest left out: a line in it is not seen on white
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, dataset.sizes[hue] if hue else 1))
    for (i, j), ax in np.ndenumerate(table):
        missing = []
        for k, colour in enumerate(colours):
            wanted = {axis: index for axis, index in ((across, j), (down, i), (hue, k)) if axis}
            at = dict.fromkeys(axes_of(dataset), 0) | wanted
            parts = [(value.isel(at), error.isel(at)) for value, error in found]
            drawn = [_line(ax, *part, colour, style) for part, style in zip(parts, cycle(STYLES), strict=False)]
            if not all(drawn):
                word = str(dataset["status"].isel(at).item()) if "status" in dataset else "no curve"
                missing.append(f"{valued(hue, _value(dataset, hue, k))}: {word}" if hue else word)
        corner = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": "x-small", "color": "0.4"}
        ax.text(0.98, 0.98, "\n".join(missing), **corner)
        if i == 0:
            ax.set_title(valued(across, _value(dataset, across, j)), fontsize="small")
        if i == len(table) - 1:
            ax.set_xlabel(printed("time"))
        if j == 0:
            ax.set_ylabel(printed(names[0]) if len(names) == 1 else "")
        if down and j == shape[1] - 1:
            words = valued(down, _value(dataset, down, i))
            ax.annotate(words, (1.02, 0.5), xycoords="axes fraction", rotation=270, va="center", fontsize="small")
        ax.set(xscale="log" if log_time else "linear", yscale="log" if log_value else "linear")
        ax.spines[["top", "right"]].set_visible(False)
    named: dict[str, Handle] = {}
    if hue:
        values = dataset[hue].values.tolist()
        named |= {valued(hue, v): Line2D([], [], color=colour) for v, colour in zip(values, colours, strict=True)}
    if len(names) > 1:
        styles = zip(names, cycle(STYLES), strict=False)
        named |= {name.replace("_", " "): Line2D([], [], color="0.3", ls=style) for name, style in styles}
    _legend(table, named | entries(*table.flat))
    return table


def _line(ax: Axes, value: "xarray.DataArray", error: "xarray.DataArray", colour: np.ndarray, style: str) -> bool:
    """Draw a curve with its band; False if it has no finite value."""
    time, v, e = (np.asarray(part, dtype=float) for part in (value["time"], value, error))
    if not np.any(np.isfinite(v)):
        return False
    ax.plot(time, v, color=colour, ls=style, lw=1.2)
    if np.any(e > 0):
        ax.fill_between(time, v - ERRORS * e, v + ERRORS * e, color=colour, alpha=0.25, lw=0, gid=OF_VALUES)
    return True


def _legend(table: np.ndarray, named: dict[str, Handle]) -> None:
    """Beside the panels, or above a single row of them, where they have a figure to themselves."""
    owner = table[0, 0].figure
    alone = all(ax in table for ax in owner.axes if ax.figure is owner)
    if not named or not alone or owner.get_layout_engine() is None:
        place(table, named)
        return
    words = {"handles": named.values(), "labels": named, "fontsize": "x-small", "frameon": False}
    if len(table) > 1:
        owner.legend(loc="outside right upper", **words)
        return
    for columns in range(len(named), 0, -1):  # as wide as the figure allows
        legend = owner.legend(loc="outside upper left", ncols=columns, **words)
        owner.get_figure(root=True).draw_without_rendering()
        if legend.get_window_extent().width <= owner.bbox.width or columns == 1:
            return
        legend.remove()


def _roles(dataset: "xarray.Dataset", columns: str | None, rows: str | None) -> tuple[str, str | None, str | None]:
    """The axes told by columns, by rows and by colours."""
    axes = axes_of(dataset)
    across = axis_named("columns", columns, dataset) if columns else next((a for a in axes if a != rows), None)
    down = axis_named("rows", rows, dataset) if rows else None
    if across is None or across == down:
        raise reject("columns", columns or repr(rows), "rows and columns must be two different axes of the sweep")
    rest = [axis for axis in axes if axis not in (across, down) and dataset.sizes[axis] > 1]
    if len(rest) > 1:
        raise reject("sweep", f"{len(axes)} axes", f"name rows=, or select one value of {' or '.join(rest)}")
    return across, down, rest[0] if rest else None


def _panels(axes: Given | None, shape: tuple[int, int]) -> np.ndarray:
    if shape[0] * shape[1] > MOST:
        raise reject("sweep", f"{shape[0]} × {shape[1]} panels", f"select fewer values; {MOST} panels are the most")
    if axes is None:
        size = (PANEL[0] * shape[1] + 0.4, PANEL[1] * shape[0] + 0.4)
        _, axes = plt.subplots(*shape, figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained")
    table = np.asarray(axes, dtype=object)
    if table.size != shape[0] * shape[1]:
        raise reject("axes", f"{table.size} axes", f"give {shape[0]} rows of {shape[1]}")
    return table.reshape(shape)


def _value(dataset: "xarray.Dataset", axis: str, index: int) -> object:
    return np.asarray(dataset[axis])[index].item()
