"""Learning curves: simulation as solid mean and band, theory dashed or dotted on top."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import reject
from ..results import Result, Runs
from ..results.quality import ERROR, Status, percent
from ..results.variables import chosen, neighbours
from .panels import panels

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito: distinct for every kind of colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One a colour, so that a grey print tells curves apart."""
PREFERRED = (("train_error", "test_error"), ("train_loss", "test_loss"), ("norm",))
HATCH = "//"
"""Of a band that is not to be relied on."""


def _temperature(result: Result) -> Any:
    return (result.about.get("algorithm") or {}).get("temperature")


def _share(result: Result) -> Any:
    """The batch's schedule, if it has one: then τ is its lowest temperature."""
    share = (result.about.get("algorithm") or {}).get("batch_share")
    return None if share == {"name": "Constant"} else share


def _group(result: Result) -> str:
    return f"{_temperature(result)} {_share(result)}"


def _name(result: Result, temperature: bool = True) -> str:
    algorithm = (result.about.get("algorithm") or {}).get("name", "")
    tau = _temperature(result)
    sign = "≥" if _share(result) else "="
    suffix = f", τ {sign} {tau:g}" if temperature and isinstance(tau, int | float) else ""
    suffix += "" if result.success else f", {result.status}"
    if isinstance(result, Runs):
        dim = result.about.get("options", {}).get("dim")
        trials = f"{result.trials} trial" + ("s" if result.trials != 1 else "")
        return f"{algorithm} simulation{suffix}" + (f" ($d$ = {dim}, {trials})" if dim else "")
    return f"{result.about.get('method', 'theory')}{suffix}"


def _hatched(result: Result, name: str) -> bool:
    """Whether the curve is not to be relied on: its error, or a check of the whole result."""
    return result.status == Status.UNRELIABLE or result.error_share(name) > ERROR


def _style(result: Result) -> str:
    """Dotted for the Gaussian (SGF) law, dashed for every other theory."""
    return ":" if (result.about.get("algorithm") or {}).get("name") == "SGF" else "--"


def _variables(results: Sequence[Result], wanted: Any) -> tuple[str, ...]:
    if wanted is not None:
        names = chosen(wanted)
        for name in names:
            missing = next((r for r in results if name not in r.curves), None)
            if missing is not None:
                held = neighbours(name, missing.curves)
                raise reject("variables", name, f"{missing.title()} does not have it as a curve along time; {held}")
        return names
    for names in PREFERRED:
        shared = tuple(n for n in names if all(n in r.curves for r in results))
        if shared:
            return shared
    raise reject("results", "no curve in common", "name the variables to draw")


def learning_curves(
    *results: Result,
    variables: Any = None,
    axes: Any = None,
    labels: Sequence[str] | None = None,
    log_time: bool = False,
    log_value: bool = False,
) -> Any:
    """Draw variables of theories and runs against time; results of equal temperature and schedule share a colour.

    Runs: solid mean over trials with a band of one standard deviation. Theories: dotted for the SGF law, dashed
    otherwise, with a band of two standard errors where they are Monte Carlo. A band is hatched where the error exceeds
    10 % of the curve or the whole result is unreliable. Returns the axes, one a variable.
    """
    if not results:
        raise reject("results", "nothing", "give at least one Solution or Runs")
    for result in results:
        if not isinstance(result, Result):
            raise reject("results", repr(result), "it must be a Solution or Runs")
        if not len(result.time):
            raise reject("results", "a result without times", result.message or "it has nothing to draw")
    if labels is not None and len(labels) != len(results):
        raise reject("labels", f"{len(labels)} labels", f"give one for each of the {len(results)} results")
    names = _variables(results, variables)
    axes, flat = panels(axes, len(names), "variables", max(4.4, 5.2 / len(names)), 3.6)
    groups = list(dict.fromkeys(_group(r) for r in results))
    simulated = {_group(r) for r in results if isinstance(r, Runs)}
    for ax, name in zip(flat, names, strict=True):
        seen: set[str] = set()
        for index, result in enumerate(results):
            key = _group(result)
            # Over runs of its own temperature a theory is black, and one legend entry serves them all.
            over = key in simulated and not isinstance(result, Runs)
            group = groups.index(key)
            colour = "black" if over else COLOURS[group % len(COLOURS)]
            label = labels[index] if labels is not None else _name(result, temperature=not over)
            hatch = HATCH if _hatched(result, name) else ""
            _draw(ax, result, name, colour, MARKERS[group % len(MARKERS)], "" if label in seen else label, hatch)
            seen.add(label)
        ax.set_xlabel("time  $t = \\eta k / d$")
        ax.set_ylabel(name.replace("_", " "))
        ax.spines[["top", "right"]].set_visible(False)
        if log_time:
            ax.set_xscale("log")
        else:
            ax.set_xlim(left=0)
        if log_value:
            ax.set_yscale("log")
    _legends(flat)
    return axes


def _legends(flat: Any) -> None:
    """What the curves are, on the first axes; what hatching means, wherever there is any."""
    from matplotlib.patches import Patch

    for index, ax in enumerate(flat):
        handles = ax.get_legend_handles_labels()[0] if index == 0 else []
        if any(band.get_hatch() for band in ax.collections):
            words = f"unreliable: error above {percent(ERROR)}, or a check failed"
            handles.append(Patch(facecolor="white", edgecolor="0.4", hatch=2 * HATCH, lw=0, label=words))
        if handles:
            ax.legend(handles=handles, fontsize="x-small", frameon=False)


def _draw(ax: Any, result: Result, name: str, colour: str, marker: str, label: str, hatch: str) -> None:
    """One result on one axes; a matrix-valued variable gives one curve an entry."""

    def band(low: np.ndarray, high: np.ndarray, alpha: float, zorder: float) -> None:
        ax.fill_between(time, low, high, color=colour, alpha=alpha, lw=0, zorder=zorder)
        if hatch:  # a second one, so that lines are not as pale as the fill
            ax.fill_between(
                time, low, high, facecolor="none", edgecolor=colour, alpha=0.6, hatch=hatch, lw=0, zorder=zorder
            )

    time = result.time
    every = max(1, len(time) // 10)
    if isinstance(result, Runs):
        values = np.asarray(result[name], dtype=float).reshape(result.trials, len(time), -1)
        mean = values.mean(axis=0)
        spread = values.std(axis=0, ddof=1) if result.trials > 1 else np.zeros_like(mean)
        for j in range(mean.shape[1]):
            ax.plot(
                time, mean[:, j], color=colour, lw=1.6, alpha=0.9, marker=marker, ms=3.5, markevery=every,
                label=label if j == 0 and label else None, zorder=2,
            )  # fmt: skip
            band(mean[:, j] - spread[:, j], mean[:, j] + spread[:, j], 0.2, 1)
        return
    mean, error = (v.reshape(len(time), -1) for v in result.curve(name))
    for j in range(mean.shape[1]):
        shown = label if j == 0 and label else None
        ax.plot(time, mean[:, j], color=colour, ls=_style(result), lw=1.0, label=shown, zorder=3)
        if np.any(error[:, j] > 0):
            band(mean[:, j] - 2 * error[:, j], mean[:, j] + 2 * error[:, j], 0.25, 1)
