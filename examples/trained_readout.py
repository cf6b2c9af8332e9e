"""A ReLU network whose second layer is trained: what does a second layer cost that cannot move?

Two units learn a teacher (1, −1) from δ = 4 samples a dimension, from the second layer (0.6, −0.3). A ReLU is
homogeneous: with the second layer kept where it starts, longer first-layer weights give the same functions. What is
lost is time. At t = 20 the test error is 0.146 where both layers are trained, and 0.267 where the second is kept, as
far as the trained network has come at t = 8.4; the train errors are 0.042 and 0.130. Left: both errors. Right: the
second layer, which first moves away from the teacher's. Lines: exact limit, with a band of two errors. Points: SGD,
mean and two standard errors.

    python examples/trained_readout.py trained_readout.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

START, TEACHER, NOISE = (0.6, -0.3), (1.0, -1.0), 0.2
ALGORITHM = sl.SGD(temperature=0.4, batch_size=4)
T_MAX, DIM, TRIALS = 20.0, 600, 10
RATES = {"trained": 1.0, "kept": 0.0}


def problem(rate: float) -> sl.Problem:
    """A student whose second layer learns at this rate; at zero it stays where it starts."""
    return sl.Problem(
        loss=sl.TwoLayer("relu", readout=sl.Trained(START, rate=rate)),
        labels=sl.TwoLayerLabels("relu", readout=TEACHER),
        penalty=sl.Ridge(0.01), sample_ratio=4.0, teacher=sl.Normal(1.0), noise=sl.Normal(NOISE),
        init=sl.Normal(0.5), width=2,
    )  # fmt: skip


def draw(ax: Any, theory: sl.Solution, runs: sl.Runs, name: str, entry: Any, marker: str, **style: Any) -> None:
    """A line with a band of two errors for the theory, points with two standard errors for the runs."""
    (line, doubt), (mean, error) = theory.curve(name), runs.curve(name)
    line, doubt, mean, error = (part[entry] for part in (line, doubt, mean, error))
    ax.plot(theory.time, line, **style)
    ax.fill_between(theory.time, line - 2 * doubt, line + 2 * doubt, color=style["color"], alpha=0.2, lw=0)
    ax.errorbar(runs.time, mean, 2 * error, color=style["color"], marker=marker, ms=4, ls="")


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.8), layout="constrained")
    reports, size = {}, {"dim": DIM, "trials": TRIALS, "times": np.linspace(0, T_MAX, 11)}
    for (name, rate), colour, marker in zip(RATES.items(), COLOURS, MARKERS, strict=False):
        theory = sl.solve(problem(rate), ALGORITHM, times=np.linspace(0, T_MAX, 41), tol=2e-2)
        runs = sl.simulate(problem(rate), ALGORITHM, **size)
        reports[name] = sl.compare(theory, runs)
        print(name, reports[name], theory.status, sep="\n")
        draw(left, theory, runs, "test_error", ..., marker, color=colour, label=f"second layer {name}: test")
        draw(left, theory, runs, "train_error", ..., marker, color=colour, ls="--", label=f"second layer {name}: train")
        ends = (
            f"{part} {theory[part][-1]:.3f} ± {theory.curve(part)[1][-1]:.3f}" for part in ("train_error", "test_error")
        )
        print(f"at t = {T_MAX:g}: {', '.join(ends)}; readout {theory['readout'][-1].round(3)}\n")
        if rate:
            for unit in range(2):
                style: dict[str, Any] = {"color": COLOURS[2 + unit], "label": f"unit {unit + 1}"}
                draw(right, theory, runs, "readout", np.s_[:, unit], MARKERS[2 + unit], **style)
                right.axhline(TEACHER[unit], color=COLOURS[2 + unit], ls=":", lw=1)
    left.axhline(NOISE**2, color="grey", ls=":", lw=1)
    left.text(0.3, NOISE**2, "label noise", color="grey", fontsize="small", va="bottom")
    left.set(ylabel="error", ylim=(0, None))
    right.set(ylabel="second layer")
    right.set_title("dotted: the teacher's", loc="left", fontsize="medium")
    left.set_title(f"points: SGD, $d = {DIM}$; lines: the limit", loc="left", fontsize="medium")
    for ax in (left, right):
        ax.set(xlabel="time  $t = \\eta k/d$", xlim=(0, None))
        ax.legend(frameon=False, fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "trained_readout.png")
