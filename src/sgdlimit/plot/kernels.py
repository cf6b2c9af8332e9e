"""Two-time kernels as heat maps: time upwards, earlier time to the right."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ..errors import instance, reject, whole
from ..results import Solution
from .panels import Same, panels

SYMBOLS = {"C_theta": "C_\\theta", "R_theta": "R_\\theta", "R_ell": "R_\\ell"}
DIVERGING, POSITIVE, NEGATIVE = "RdBu_r", "viridis", "viridis_r"
"""Safe for colour vision; the sequential maps are brightest where the kernel is largest in size."""
SIGN, ROUNDING = 4.0, 1e-9
"""Standard errors beyond which the sign of an entry is believed, among some thousand; and of the largest, if exact."""


def kernels(
    solution: Solution,
    names: str | Sequence[str] = ("C_theta", "R_theta", "R_ell"),
    *,
    axes: Same | None = None,
    entry: tuple[int, int] = (0, 0),
) -> Same:
    """Draw two-time kernels K(t, t') of a solution side by side, t against t', one axes and one colour bar each.

    Responses are drawn for t ≥ t' only. Where a kernel changes sign its colours diverge from zero, otherwise they are
    a scale from its least to its largest value. entry: (student, student_) of a width above 1. Returns the axes.
    """
    instance("solution", solution, Solution, "a Solution, as sl.solve or sl.least_squares return")
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in SYMBOLS:
            raise reject("names", name, f"it must be one of {', '.join(SYMBOLS)}")
        if name not in solution.variables:
            raise reject("solution", f"a Solution without {name}", "solve with kernels=True")
    if not wanted:
        raise reject("names", "no name", f"give one or more of {', '.join(SYMBOLS)}")
    if len(solution.time) < 2:
        raise reject("solution", f"{len(solution.time)} times", "a heat map needs two or more; solve with more times")
    most = solution[wanted[0]].shape[2] - 1
    allowed = f"it must be two numbers from 0 to {most}"
    if not isinstance(entry, Sequence) or len(entry) != 2:
        raise reject("entry", repr(entry), allowed)
    student, other = (whole("entry", unit, least=0, most=most, why=allowed) for unit in entry)
    which = f"^{{{student}{other}}}" if most else ""
    axes, flat = panels(axes, len(wanted), "kernels", 3.7, 3.1)
    for ax, name in zip(flat, wanted, strict=True):
        value, error = (part[:, :, student, other] for part in solution.curve(name))
        _draw(ax, solution, value, error, causal=name != "C_theta", label=f"${SYMBOLS[name]}{which}(t, t')$")
    return axes


def _draw(ax: Axes, solution: Solution, value: np.ndarray, error: np.ndarray, causal: bool, label: str) -> None:
    """One kernel on one axes; a causal one vanishes for t < t', and only its other half is drawn."""
    time, earlier = solution.time, solution["earlier"]
    shown = np.ma.masked_array(value, causal & (earlier[None, :] > time[:, None]))
    size = float(np.abs(shown).max())
    sure = SIGN * error + ROUNDING * size
    below, above = (bool(np.any((sign * shown > sure).filled(False))) for sign in (-1, 1))
    both = below and above
    colours, (low, high) = (DIVERGING, (-size, size)) if both else (NEGATIVE if below else POSITIVE, (None, None))
    # nearest: one cell a pair of times, its edges halfway to the neighbours, on any grid
    mesh = ax.pcolormesh(earlier, time, shown, shading="nearest", rasterized=True, cmap=colours, vmin=low, vmax=high)
    ax.figure.colorbar(mesh, ax=ax, label=label)
    ax.set(xlabel="earlier time  $t'$", ylabel="time  $t$")
