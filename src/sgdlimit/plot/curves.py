"""Learning curves: runs as solid mean and band, theories as dashed or dotted lines on top."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ..comparison import check_curves
from ..errors import instance, reject
from ..results import Result, Runs
from ..results.quality import ERROR, Status
from ..results.variables import chosen
from .axes import CLOCKS, Same, few, panels, reading
from .legends import DEVIATIONS, DOUBT, ERRORS, HATCH, MEANINGS, OF_RUNS, OF_THEORY, UNRELIABLE, entries, place
from .looks import Look, looks

CROSS = {"ms": 5, "mew": 1.2, "zorder": 4}
PREFERRED = (("train_error", "test_error"), ("train_loss", "test_loss"), ("norm",))


def _variables(results: Sequence[Result], wanted: str | Sequence[str] | None) -> tuple[str, ...]:
    """Those asked for, which every result must have, or the first of the usual ones that all have."""
    if wanted is not None:
        names = chosen(wanted)
        check_curves(results, names)
        return names
    for names in PREFERRED:
        if shared := tuple(name for name in names if all(name in result.curves for result in results)):
            return shared
    raise reject("results", "no curve in common", "name the variables to draw")


def learning_curves(
    *results: Result,
    variables: str | Sequence[str] | None = None,
    axes: Same | None = None,
    labels: Sequence[str] | None = None,
    x: str = "time",
    log_time: bool = False,
    log_value: bool = False,
) -> Same:
    """Draw variables of theories and runs against time or epochs.

    Runs: solid mean over trials with a band of one standard deviation of the runs. Theories: dotted for the SGF law,
    dashed or otherwise broken for others, with a band of two standard errors where they are Monte Carlo. Results of one
    problem and temperature share a colour; theories over their own runs are in dark ink, each kind with its own.
    Where a solution is unreliable, or its error above 10 % of the curve, the band is hatched and the line has crosses.
    x: "time" t = ηk/d, or "epochs" t/(τδ). log_time: a logarithmic axis to the right. Returns the axes, one a variable.
    """
    if not results:
        raise reject("results", "nothing", "give at least one Solution or Runs")
    for result in results:
        instance("results", result, Result, "a Solution or Runs")
        if not len(result.time):
            raise reject("results", "a result without times", result.message or "it has nothing to draw")
    if labels is not None and len(labels) != len(results):
        raise reject("labels", f"{len(labels)} labels", f"give one for each of the {len(results)} results")
    names = _variables(results, variables)
    clocks = [reading(result, x) for result in results]
    drawn = looks(results, labels)
    axes, flat = panels(axes, len(names), "variables", max(4.4, 5.2 / len(names)), 3.6)
    for ax, name in zip(flat, names, strict=True):
        for result, at, look in zip(results, clocks, drawn, strict=True):
            _draw(ax, result, name, at, look, (at > 0) | (not log_time))
        ax.set(xlabel=CLOCKS[x], ylabel=name.replace("_", " "))
        if log_time:
            ax.set_xscale("log")
            few(ax.xaxis, *ax.get_xlim())
        else:
            ax.set_xlim(left=0)
        if log_value:
            ax.set_yscale("log")
            few(ax.yaxis, *ax.get_ylim())
    place(flat[0])
    for ax in flat[1:]:
        place(ax, {UNRELIABLE: MEANINGS[UNRELIABLE]} if UNRELIABLE in entries(ax) else {})
    return axes


def _doubtful(result: Result, name: str, error: np.ndarray) -> np.ndarray:
    """Where the curve is not to be relied on, (times, entries): a check of the whole failed, or its error is large."""
    if result.status == Status.UNRELIABLE:
        return np.ones(error.shape, dtype=bool)
    share, largest = result.error_share(name), np.max(error[np.isfinite(error)], initial=0.0)
    if np.isfinite(share) and largest > 0 and share > ERROR:
        return ~(error / largest * share <= ERROR)
    return np.full(error.shape, share > ERROR)


def _draw(ax: Axes, result: Result, name: str, at: np.ndarray, look: Look, shown: np.ndarray) -> None:
    """One result on one axes, at the times that are shown; a matrix-valued variable gives one curve an entry."""
    mean, error = (part.reshape(len(result.time), -1) for part in result.curve(name))
    if isinstance(result, Runs):
        values = np.asarray(result[name], dtype=float).reshape(result.trials, *mean.shape)
        height = DEVIATIONS * values.std(axis=0, ddof=1) if result.trials > 1 else np.zeros_like(mean)
        line = {"lw": 1.6, "alpha": 0.9, "marker": look.marker, "ms": 3.5, "markevery": _every(shown), "zorder": 2}
        band = {"alpha": 0.2, "gid": OF_RUNS}
    else:
        height = ERRORS * error
        line = {"ls": look.style, "lw": 1.2, "zorder": 3}
        band = {"alpha": 0.25, "gid": OF_THEORY}
    doubtful = _doubtful(result, name, error)
    at, mean, height, doubtful = (part[shown] for part in (at, mean, height, doubtful))
    for j, (curve, half, doubt) in enumerate(zip(mean.T, height.T, doubtful.T, strict=True)):
        ax.plot(at, curve, color=look.colour, label=look.label if j == 0 and look.label else None, **line)
        if np.any(half > 0):
            ax.fill_between(at, curve - half, curve + half, color=look.colour, lw=0, zorder=1, **band)
        if np.any(doubt):
            # a second band, so that lines are not as pale as the fill
            ax.fill_between(
                at, curve - half, curve + half, where=doubt, facecolor="none", edgecolor=look.colour, alpha=0.6,
                hatch=HATCH, lw=0, zorder=1,
            )  # fmt: skip
            crosses = np.flatnonzero(doubt)[:: _every(doubt)]
            ax.plot(at[crosses], curve[crosses], ls="", marker=DOUBT, color=look.colour, gid=UNRELIABLE, **CROSS)


def _every(shown: np.ndarray) -> int:
    """So that some ten points have a marker."""
    return max(1, int(np.sum(shown)) // 10)
