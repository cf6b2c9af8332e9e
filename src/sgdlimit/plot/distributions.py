"""Laws of one weight or one pre-activation: histogram of the runs, line of the theory."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .. import grid
from ..errors import instance, reject, whole
from ..results import Runs, Solution
from ..sweep.reading import numbers
from .legends import place
from .looks import COLOURS, run_size
from .panels import Same, panels

NAMES = {"theta": ("weight", "\\theta"), "r": ("pre-activation", "r")}


def distributions(
    solution: Solution,
    runs: Runs,
    variable: str = "theta",
    *,
    snapshots: ArrayLike | None = None,
    unit: int = 0,
    axes: Same | None = None,
    bins: int | Sequence[float] | np.ndarray = 60,
) -> Same:
    """Draw the law of θ ("theta") or of r on the training samples ("r"), one axes a snapshot; bins are shared.

    Filled: all coordinates of all trials of the runs. Line: the draws of the solution, in the same bins. Both are
    densities with respect to all values, so that an area below 1 says how many lie beyond the bins.
    snapshots: times kept by both results (default: all such). unit: the student. bins: a number, or their edges.
    Returns the axes.
    """
    instance("solution", solution, Solution, "a Solution, as sl.solve(snapshots=[...]) returns")
    instance("runs", runs, Runs, "Runs, as sl.simulate(snapshots=[...]) returns")
    if variable not in NAMES:
        raise reject("variable", repr(variable), "it must be 'theta' or 'r'")
    for argument, result, verb in (("solution", solution, "solve"), ("runs", runs, "simulate")):
        if variable not in result.variables or "snapshot" not in result.coords:
            raise reject(argument, f"no draws of {variable}", f"{verb} with snapshots=[...]")
    width = solution[variable].shape[-1]
    if runs[variable].shape[-1] != width:
        raise reject("runs", f"width {runs[variable].shape[-1]}", f"the solution has width {width}; take one problem")
    unit = whole("unit", unit, least=0, most=width - 1, why=f"it must be a student from 0 to {width - 1}")
    pairs = _pairs(solution, runs, snapshots)
    theory = [solution[variable][i, :, unit].ravel() for i, _ in pairs]
    seen = [runs[variable][:, j, :, unit].ravel() for _, j in pairs]
    edges = _edges(bins, [*theory, *seen])
    axes, flat = panels(axes, len(pairs), "snapshots", 3.1, 3.0)
    meaning, symbol = NAMES[variable]
    for ax, law, found, (i, _) in zip(flat, theory, seen, pairs, strict=True):
        # densities with respect to all values, those beyond the bins too
        filled, line = (np.histogram(values, edges)[0] / (len(values) * np.diff(edges)) for values in (found, law))
        ax.stairs(filled, edges, fill=True, color=COLOURS[0], alpha=0.45, label=f"simulation{run_size(runs)}")
        middle = (edges[1:] + edges[:-1]) / 2
        ax.plot(middle, line, color="black", lw=1.3, label=solution.about.get("method", "theory"))
        ax.set_title(f"$t$ = {solution['snapshot'][i]:g}", fontsize="medium")
        index = f"_{unit}" if width > 1 else ""
        ax.set(xlabel=f"{meaning}  ${symbol}{index}$", xlim=(edges[0], edges[-1]), ylim=(0, None))
    flat[0].set_ylabel("density")
    place(flat)
    return axes


def _pairs(solution: Solution, runs: Runs, snapshots: ArrayLike | None) -> list[tuple[int, int]]:
    """Indices of the snapshots to draw, in the solution and in the runs."""
    kept = solution["snapshot"]
    # Runs keep the whole update nearest to the time asked for.
    slack = 1e-6 * (1 + float(kept[-1])) + float(runs.about.get("diagnostics", {}).get("step_time") or 0.0)
    pairs = []
    for t in kept if snapshots is None else grid.increasing("snapshots", np.atleast_1d(snapshots)):
        gaps = {name: np.abs(times - t) for name, times in (("solution", kept), ("runs", runs["snapshot"]))}
        missing = next((name for name, gap in gaps.items() if gap.min() > slack), None)
        if missing is None:
            pairs.append((int(gaps["solution"].argmin()), int(gaps["runs"].argmin())))
        elif snapshots is not None:
            why = f"the {missing} did not keep it; give solve and simulate the same snapshots"
            raise reject("snapshots", f"{t:g}", why)
    if not pairs:
        times = ", ".join(f"{t:g}" for t in runs["snapshot"])
        raise reject("runs", f"snapshots at {times}", "the solution has others; give solve and simulate the same")
    return pairs


def _edges(bins: int | Sequence[float] | np.ndarray, values: list[np.ndarray]) -> np.ndarray:
    """Edges for all panels: the user's, or so many bins over all values."""
    if np.ndim(bins) == 0:
        count = whole("bins", bins, least=1, why="it must be a whole number ≥ 1, or increasing edges")
        return np.histogram_bin_edges(np.concatenate(values), count)
    edges = numbers("bins", bins)
    if len(edges) < 2 or not np.all(np.diff(edges) > 0):
        raise reject("bins", bins, "edges must be two or more increasing numbers")
    return edges
