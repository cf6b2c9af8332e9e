"""Average the weights, or decay the learning rate?

Ridge regression by hot SGD, δ = 3, τ = 1. At a constant rate the noise of the batches holds the test error at 0.51,
where gradient flow reaches 0.358. At t = 10 an exponential mean of the weights, over 2 units of time, and their mean
since t = 5 have 0.413, and a rate that falls as a cosine has 0.403: an average takes away 63 % of what the noise
costs, the schedule 70 %, and the exponential mean needs no plan of how long training will last. Left: test errors.
Right: the same above gradient flow. Lines: exact limit, with a band of two errors. Points: SGD, mean and two standard
errors.

    python examples/ema_or_decay.py ema_or_decay.png
"""

import dataclasses
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

T_MAX, DIM, TRIALS = 10.0, 800, 16
ALGORITHM = sl.SGD(temperature=1.0, batch_size=4)
PROBLEM = sl.Problem(
    loss=sl.Square(), penalty=sl.Ridge(0.05), sample_ratio=3.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
)
DECAYING = dataclasses.replace(PROBLEM, schedule=sl.CosineDecay(T_MAX))
AVERAGES = {"ema": sl.EMA(0.5), "mean": sl.RunningMean(start=T_MAX / 2)}


def main(output: Any) -> dict[str, sl.Report]:
    times = np.linspace(0.0, T_MAX, 41)
    size: dict[str, Any] = {"dim": DIM, "trials": TRIALS, "times": times[::4]}
    theory = sl.solve(PROBLEM, ALGORITHM, times=times, averages=AVERAGES, dt=0.05, samples=524288)
    runs = sl.simulate(PROBLEM, ALGORITHM, averages=AVERAGES, **size)
    slower = sl.least_squares(DECAYING, ALGORITHM, times=times), sl.simulate(DECAYING, ALGORITHM, **size)
    flow = sl.least_squares(PROBLEM, sl.GradientFlow(), times=times)
    pairs = {
        "constant rate, last weights": (theory, runs),
        "EMA over 2 units of time": (theory.averages["ema"], runs.averages["ema"]),
        f"mean since $t$ = {T_MAX / 2:g}": (theory.averages["mean"], runs.averages["mean"]),
        "rate that falls as a cosine": slower,
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")
    reports, floor = {}, flow["test_error"]
    for (name, (line, points)), colour, marker in zip(pairs.items(), COLOURS, MARKERS, strict=False):
        reports[name] = sl.compare(line, points)
        print(name, reports[name], sep="\n")
        (value, doubt), (mean, error) = line.curve("test_error"), points.curve("test_error")
        for ax, low, shown in ((left, 0.0 * floor, 1), (right, floor, 3)):
            above = value - low
            ax.plot(times[shown:], above[shown:], color=colour, label=name)
            ax.fill_between(
                times[shown:], (above - 2 * doubt)[shown:], (above + 2 * doubt)[shown:], color=colour, alpha=0.2, lw=0
            )
            ax.errorbar(size["times"][1:], (mean - low[::4])[1:], 2 * error[1:], color=colour, fmt=marker, ms=4)
        print(
            f"{name}: test error at t = {T_MAX:g} {value[-1]:.4f} ± {doubt[-1]:.4f}, above the flow "
            f"{value[-1] - floor[-1]:.4f}, train error {line['train_error'][-1]:.4f}\n"
        )
    left.plot(times[1:], floor[1:], color="black", ls=":", label="gradient flow")
    print(f"gradient flow: {floor[-1]:.4f}")
    left.set(ylabel="test error", ylim=(0.3, 1.0))
    right.set(ylabel="test error above that of gradient flow", yscale="log")
    right.set_yticks([0.05, 0.1, 0.2, 0.5], ["0.05", "0.1", "0.2", "0.5"])
    right.minorticks_off()
    left.set_title(f"points: SGD, $d = {DIM}$; lines: the limit", loc="left", fontsize="medium")
    for ax in (left, right):
        ax.set(xlabel="time  $t = \\eta k/d$", xlim=(0, None))
        ax.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize="small")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ema_or_decay.png")
