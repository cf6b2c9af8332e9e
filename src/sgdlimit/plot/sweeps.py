"""Diagrams of a sweep over two of its axes, and the lines in them."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, cast

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import LogLocator, MaxNLocator

from ..errors import real, reject, whole
from ..sweep.result import axes_of, axis_named, dataset_of, error_of, read, spans_decades
from .axes import Axis, few, printed, single
from .legends import ERRORS, OF_VALUES, entries
from .looks import COLOURS

if TYPE_CHECKING:
    import xarray

    from ..sweep import Sweep

CONTOURS = 5
"""How many are drawn unless they are named."""
MISSING = {"facecolor": "0.95", "edgecolor": "0.8", "hatch": "////"}
"""Where there is no value."""
MARKS = ("x", "+", "1", "2", "3", "4")
"""Of points that did not end well, one a word."""
REASON = 60
"""Letters of a reason in the legend."""


def phase_diagram(
    sweep: "Sweep | xarray.Dataset",
    variable: str,
    *,
    time: float | str | None = None,
    x: str | None = None,
    y: str | None = None,
    entry: tuple[int, int] = (0, 0),
    lines: "xarray.Dataset | Mapping[str, xarray.Dataset] | None" = None,
    contours: int | Sequence[float] | np.ndarray = CONTOURS,
    limits: tuple[float, float] | None = None,
    log_value: bool | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw `variable` of a sweep as colours over two of its axes. Returns the axes.

    Every point is a cell. An axis whose values are spaced geometrically is logarithmic; so are the colours of values
    that span more than two decades (log_value says otherwise).
    time: None or "last", a number, "best" (lowest along time). x, y: which axes (the first two by default).
    lines: a dataset of `sl.critical_line`, or several by label, drawn with bands of two errors. contours: how many, or
    at which values. limits: of the colours. Where there is no value it is hatched; points that did not end well are
    marked, with their word (and reason, if they have one in common) in the legend.
    """
    dataset = dataset_of(sweep)
    names = _two(dataset, x, y)
    value, _, when = read(dataset, variable, time, entry)
    finite = np.asarray(value)[np.isfinite(value)]
    if not len(finite):
        raise reject("variable", variable, "no point has a value at that time; `reason` of the dataset says why")
    log = spans_decades(finite) if log_value is None else bool(log_value)
    positive = finite[finite > 0] if log else finite  # others have no colour, and are hatched
    norm, levels = _norm(positive, limits, log), _levels(contours, positive, log)
    given = _labelled(lines, names)
    if axes is None:
        axes = plt.subplots(figsize=(5.0, 3.9), layout="constrained")[1]
    across, up, shown = _cells(dataset, value, names, log)
    drawn = axes.pcolormesh(across.edges, up.edges, shown, norm=norm, cmap="viridis", rasterized=True)
    if len(levels) and min(shown.shape) > 1:
        style = {"colors": "black", "linewidths": 0.6, "alpha": 0.7}
        axes.clabel(axes.contour(across.at, up.at, shown, levels=levels, **style), fmt=_short, fontsize="x-small")
    axes.patch.set(**MISSING)
    across.dress(axes, "x")
    up.dress(axes, "y")
    bar = axes.figure.colorbar(drawn, ax=axes, label=printed(variable) + (f"  ({_typeset(when)})" if when else ""))
    if log:
        few(bar.ax.yaxis, *bar.ax.get_ylim())
    _mark(axes, dataset, across, up)
    for index, (label, line) in enumerate(given.items()):
        critical_line(line, axes=axes, x=names[0], label=label, colour=COLOURS[(index + 1) % len(COLOURS)])
    axes.set(xlim=across.edges[[0, -1]], ylim=up.edges[[0, -1]])
    if named := entries(axes):
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
        axes.legend(list(named.values()), list(named), fontsize="x-small", frameon=False, **place)
    return axes


def critical_line(
    line: "xarray.Dataset", *, axes: Axes | None = None, x: str | None = None, label: str = "", colour: str = COLOURS[1]
) -> Axes:
    """Draw a line of `sl.critical_line` with its band of two errors: values of the other axis to the right.

    x: which axis goes to the right, `along` or the other one (the default). Returns the axes.
    """
    along, other = _line(line)
    free, place = Axis.of(line, other), np.asarray(line[along], dtype=float)
    if axes is None:
        x, axes = None, single(None, 4.4, 3.4)
        free.dress(axes, "x")
        Axis(along, place[np.isfinite(place)], [], line[along].attrs.get("scale") == "log").dress(axes, "y")
    error = ERRORS * np.asarray(error_of(line, along))
    style = {"color": colour, "lw": 1.6, "marker": ".", "ms": 4, "label": label or None, "zorder": 3}
    at, band = ((place, free.at), axes.fill_betweenx) if x == along else ((free.at, place), axes.fill_between)
    axes.plot(*at, path_effects=[Stroke(linewidth=3.0, foreground="white"), Normal()], **style)
    gid = OF_VALUES if np.any(error > 0) else None
    band(free.at, place - error, place + error, color=colour, alpha=0.35, lw=0, zorder=2, gid=gid)
    return axes


def _line(line: "xarray.Dataset") -> tuple[str, str]:
    """The axis along which a line was looked for, and the one it runs over."""
    along = getattr(line, "attrs", {}).get("along")
    if along is None or along not in line:
        raise reject("lines", repr(line), "give what sl.critical_line returns")
    dims = line[along].dims
    if len(dims) != 1:
        raise reject("lines", f"a line over {len(dims)} axes", "select values of all axes but one: line.sel(…)")
    return str(along), str(dims[0])


def _labelled(
    lines: "xarray.Dataset | Mapping[str, xarray.Dataset] | None", names: tuple[str, str]
) -> "dict[str, xarray.Dataset]":
    """Lines by label; each must run over the two axes of the diagram."""
    name = getattr(lines, "attrs", {}).get("line")  # a dataset is a mapping too, of its variables
    lines = lines if name is None else cast("Mapping[str, xarray.Dataset]", {_typeset(name.replace("_", " ")): lines})
    if lines is not None and not isinstance(lines, Mapping):
        raise reject("lines", repr(lines), "give what sl.critical_line returns, or several of them by label")
    given = cast("dict[str, xarray.Dataset]", dict(lines or {}))
    for label, line in given.items():
        if set(_line(line)) != set(names):
            runs, over = (" and ".join(part) for part in (_line(line), names))
            raise reject("lines", label, f"it runs over {runs}, the diagram over {over}")
    return given


def _short(value: float) -> str:
    """'0.25', '1000', '$10^{6}$'."""
    size = np.log10(abs(value)) if value else 0.0
    return f"{value:g}" if -4 <= size < 5 or size % 1 else f"$10^{{{size:g}}}$"


def _typeset(when: str) -> str:
    return when.replace("t = ", "$t$ = ")


def _two(dataset: "xarray.Dataset", x: str | None, y: str | None) -> tuple[str, str]:
    """The axes to draw over: those asked for, or the first two; others must have one value."""
    axes = axes_of(dataset)
    wanted = [axis_named(argument, name, dataset) for argument, name in (("x", x), ("y", y)) if name is not None]
    if len(axes) < 2 or len(set(wanted)) < len(wanted):
        raise reject("sweep", f"axes {', '.join(axes)}", "a diagram needs two different ones")
    free = [axis for axis in axes if axis not in wanted]
    across = x or free.pop(0)
    up = y or free.pop(0)
    for axis in free:
        if dataset.sizes[axis] > 1:
            raise reject("sweep", f"{len(axes)} axes", f"select one value of {axis}, as dataset.isel({axis}=0) does")
    return across, up


def _norm(shown: np.ndarray, limits: tuple[float, float] | None, log: bool) -> Normalize:
    """Colours between the limits, or from the least to the largest value."""
    if not len(shown):
        raise reject("log_value", True, "no value is positive; leave it out")
    why = "colours go from (low, high), both positive for logarithmic ones"
    given = (shown.min(), shown.max()) if limits is None else limits
    ends = [real("limits", end, why=why) for end in (given if np.iterable(given) else [given])]
    if len(ends) != 2 or not ends[0] <= ends[1] or (log and ends[0] <= 0):
        raise reject("limits", limits, why)
    return LogNorm(*ends) if log else Normalize(*ends)


def _levels(contours: int | Sequence[float] | np.ndarray, shown: np.ndarray, log: bool) -> np.ndarray:
    """Values of the contours: those given, or so many round ones."""
    if np.ndim(contours):
        return np.unique([real("contours", level, why="it must be numbers") for level in np.atleast_1d(contours)])
    count = whole("contours", contours, least=0, why="it must be a whole number ≥ 0, or a list of values")
    if not count:
        return np.empty(0)
    low, high = shown.min(), shown.max()
    subs = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
    locator = LogLocator(subs=subs, numticks=count + 2) if log else MaxNLocator(count + 1)
    levels = np.asarray(locator.tick_values(low, high))
    return levels[(levels > low) & (levels < high)]


def _cells(
    dataset: "xarray.Dataset", value: "xarray.DataArray", names: tuple[str, str], log: bool
) -> tuple[Axis, Axis, np.ma.MaskedArray]:
    """Both axes in their order, and one cell a point, row by row upwards, masked where it has no colour."""
    across, up = (Axis.of(dataset, name) for name in names)
    table = value.isel({dim: 0 for dim in value.dims if dim not in names}).transpose(*names[::-1])
    order = np.ix_(np.argsort(up.at), np.argsort(across.at))
    shown = np.ma.masked_invalid(np.asarray(table, dtype=float)[order])
    shown = np.ma.masked_less_equal(shown, 0.0) if log else shown
    return across._replace(at=np.sort(across.at)), up._replace(at=np.sort(up.at)), shown


def _mark(axes: Axes, dataset: "xarray.Dataset", across: Axis, up: Axis) -> None:
    """Points that did not end well, by their word and the reason that all with this word have in common."""
    if "status" not in dataset:
        return
    dataset = dataset.assign_coords({axis.name: Axis.of(dataset, axis.name).at for axis in (across, up)})
    dataset = dataset.assign(reason=dataset.get("reason", dataset["status"]))
    told = dataset[["status", "reason"]].astype(str).to_dataframe().reset_index()
    unwell = told[~told["status"].isin(["complete", ""])].groupby("status", sort=False)
    for mark, (status, points) in zip(cycle(MARKS), unwell, strict=False):
        word, reasons = str(status), set(points["reason"])
        common = reasons.pop() if len(reasons) == 1 else ""
        label = common if common.startswith(word) else f"{word}: {common}" if common else word
        label = textwrap.shorten(label, REASON, placeholder=" …")
        style = {"color": "black", "ms": 5, "mew": 1.1, "ls": "none", "zorder": 4, "clip_on": False}
        axes.plot(points[across.name], points[up.name], mark, label=label, **style)
