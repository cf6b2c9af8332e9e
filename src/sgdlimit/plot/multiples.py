"""Small multiples: the learning curves of a sweep, one panel a value of one axis or a pair of values of two."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..errors import reject
from ..results.variables import chosen
from ..sweep.reading import axes_of, axis_named, curves, dataset_of
from .legends import BARS, ERRORS, OF_VALUES, band_handle, place
from .panels import Given, printed, valued

if TYPE_CHECKING:
    import xarray

    from ..sweep import Sweep

    Read = tuple[xarray.DataArray, xarray.DataArray]
    """A variable over axes and time, and its error."""

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
    errors on either side. A point without a curve is named in its panel, with how it ended. Of a sweep of several kinds
    the first is drawn as lines, others as points with bars. Returns the axes, an array of rows and columns.
    """
    datasets = list(getattr(sweep, "datasets", {"": dataset_of(sweep)}).values())
    dataset = datasets[0]
    names = chosen(variables)
    across, down, hue = _roles(dataset, columns, rows)
    found = [[curves(kind, name, entry) for name in names] for kind in datasets]
    for name, (value, _) in zip(names, found[0], strict=True):
        if "time" not in value.dims:
            raise reject("variables", name, 'the sweep keeps one time only; sweep with keep="curves"')
    shape = (dataset.sizes[down] if down else 1, dataset.sizes[across])
    table = _panels(axes, shape)
    for (i, j), ax in np.ndenumerate(table):
        at = {across: j, **({down: i} if down else {})}
        lines, *others = ([(v.isel(at), e.isel(at)) for v, e in kind] for kind in found)
        _panel(ax, dataset.isel(at), lines, hue)
        for kind in others:
            _points(ax, kind, hue)
        if i == 0:
            ax.set_title(valued(across, _value(dataset, across, j)), fontsize="small")
        if i == len(table) - 1:
            ax.set_xlabel(printed("time"))
        if j == 0:
            ax.set_ylabel(printed(names[0]) if len(names) == 1 else "")
        if down and j == shape[1] - 1:
            words = valued(down, _value(dataset, down, i))
            ax.annotate(words, (1.02, 0.5), xycoords="axes fraction", rotation=270, va="center", fontsize="small")
        ax.set_xscale("log" if log_time else "linear")
        ax.set_yscale("log" if log_value else "linear")
        ax.spines[["top", "right"]].set_visible(False)
    handles = _handles(dataset, names, hue)
    if any(ax.collections for ax in table.flat):
        handles.append(band_handle(OF_VALUES))
    if len(found) > 1:
        handles.append(Line2D([], [], color="0.3", marker="o", ms=2.5, ls="", label=BARS))
    if handles:
        _legend(table, handles)
    return table


def _legend(table: np.ndarray, handles: list[Artist]) -> None:
    """Beside the panels, or above a single row of them, where they have a figure to themselves."""
    owner = table[0, 0].figure
    alone = all(ax in table for ax in owner.axes if ax.figure is owner)
    if not alone or owner.get_layout_engine() is None:
        place(table, handles)
        return
    words = {"handles": handles, "fontsize": "x-small", "frameon": False}
    if len(table) > 1:
        owner.legend(loc="outside right upper", **words)
        return
    for columns in range(len(handles), 0, -1):  # as wide as the figure allows
        legend = owner.legend(loc="outside upper left", ncols=columns, **words)
        owner.get_figure(root=True).draw_without_rendering()
        if legend.get_window_extent().width <= owner.bbox.width or columns == 1:
            return
        legend.remove()


def _roles(dataset: "xarray.Dataset", columns: str | None, rows: str | None) -> tuple[str, str | None, str | None]:
    """The axes told by columns, by rows and by colours."""
    if "point" in dataset.dims:
        raise reject("sweep", "a list of points", "small multiples need a grid; draw it with plot.phase_diagram")
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


def _colours(count: int) -> np.ndarray:
    """From dark to bright, the brightest left out: a line in it is not seen on white."""
    return mpl.colormaps["viridis"](np.linspace(0.0, 0.85, count))


def _panel(ax: Axes, dataset: "xarray.Dataset", found: "list[Read]", hue: str | None) -> None:
    """All curves of one panel, and how those points ended that have none."""
    missing = []
    time = np.asarray(dataset["time"], dtype=float)
    for k, colour in enumerate(_colours(dataset.sizes[hue] if hue else 1)):
        pick = {hue: k} if hue else {}
        for index, (value, error) in enumerate(found):
            v, e = (np.asarray(part.isel(pick).squeeze(), dtype=float) for part in (value, error))
            if not np.any(np.isfinite(v)):
                break
            ax.plot(time, v, color=colour, ls=STYLES[index % len(STYLES)], lw=1.2)
            if np.any(e > 0):
                ax.fill_between(time, v - ERRORS * e, v + ERRORS * e, color=colour, alpha=0.25, lw=0)
        else:
            continue
        word = str(np.asarray(dataset["status"].isel(pick)).item()) if "status" in dataset else "no curve"
        missing.append(f"{valued(hue, _value(dataset, hue, k))}: {word}" if hue else word)
    ax.text(
        0.98, 0.98, "\n".join(missing), transform=ax.transAxes, ha="right", va="top", fontsize="x-small", color="0.4"
    )


def _points(ax: Axes, found: "list[Read]", hue: str | None) -> None:
    """Another kind of the same sweep: points with bars, at some ten times."""
    for value, error in found:
        time = np.asarray(value["time"], dtype=float)
        every = max(1, len(time) // 10)
        for k, colour in enumerate(_colours(value.sizes[hue] if hue else 1)):
            v, e = (np.asarray(part.isel({hue: k} if hue else {}).squeeze(), dtype=float) for part in (value, error))
            style = {"color": colour, "fmt": "o", "ms": 2.5, "elinewidth": 0.8}
            ax.errorbar(time[::every], v[::every], ERRORS * e[::every], **style)


def _handles(dataset: "xarray.Dataset", names: tuple[str, ...], hue: str | None) -> list[Artist]:
    """Of the legend: colours of the axis that remains, styles of the variables, where there are several."""
    handles: list[Artist] = []
    if hue is not None:
        values = [_value(dataset, hue, k) for k in range(dataset.sizes[hue])]
        colours = zip(values, _colours(len(values)), strict=True)
        handles += [Line2D([], [], color=colour, label=valued(hue, value)) for value, colour in colours]
    if len(names) > 1:
        handles += [
            Line2D([], [], color="0.3", ls=STYLES[index % len(STYLES)], label=name.replace("_", " "))
            for index, name in enumerate(names)
        ]
    return handles
