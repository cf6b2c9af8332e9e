"""Double descent in time: when does the test error of SGD grow its peak at δ = n/d = 1?

Least squares, λ = 0, τ = 0.3, label noise of variance 0.25. Left: exact test error against δ at four times, and late
with a ridge. Right: in time at four δ. Points are SGD at d = 800. At t = 4 the error falls with δ and there is no peak;
at δ = 1 it is lowest, 0.667, at t = 2.6, and grows to 1.50 by t = 64, above the 1.25 of the start. At δ = 3 it ends at
0.404, hardly above its minimum 0.391. Stopping at t = 4 does about as well as λ = 0.1 at t = 64.

    python examples/double_descent.py double_descent.png
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

NOISE, TEMPERATURE, RIDGE = 0.5, 0.3, 0.1
TIMES = (1.0, 4.0, 16.0, 64.0)
U = np.linspace(-1, 1, 29)
RATIOS = 5.0 ** (U * np.abs(U))  # 0.2 to 5, closest to each other at 1
SIMULATED = (0.5, 1.0, 1.5, 3.0)
DIM, TRIALS, BATCH = 800, 20, 8


def regression(ratio, ridge=0.0):
    return sl.Problem(
        loss=sl.Square(),
        penalty=sl.Ridge(ridge),
        sample_ratio=ratio,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(NOISE),
    )


def main(output):
    algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH)
    figure, (against_ratio, in_time) = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained", sharey=True)

    bare = [sl.least_squares(regression(ratio), algorithm, times=TIMES)["test_error"] for ratio in RATIOS]
    late = [sl.least_squares(regression(r, RIDGE), algorithm, times=TIMES[-1:])["test_error"] for r in RATIOS]
    for curve, time, colour in zip(np.transpose(bare), TIMES, COLOURS, strict=False):
        against_ratio.plot(RATIOS, curve, color=colour, label=f"$t = {time:g}$")
    against_ratio.plot(RATIOS, late, "k--", label=f"$t = {TIMES[-1]:g}$, $\\lambda = {RIDGE}$")

    reports = {}
    fine = sl.grid.geometric(TIMES[-1], first=0.05, points=60)
    # The times of the left panel are among those of the runs.
    record = np.unique([*np.geomspace(0.25, TIMES[-1], 9), *TIMES])
    for ratio, colour, marker in zip(SIMULATED, COLOURS, MARKERS, strict=False):
        theory = sl.least_squares(regression(ratio), algorithm, times=fine)
        runs = sl.simulate(regression(ratio), algorithm, dim=DIM, trials=TRIALS, times=record)
        mean, error = runs.curve("test_error")
        in_time.errorbar(runs.time, mean, 2 * error, color=colour, fmt=marker, ms=4, label=f"$\\delta = {ratio:g}$")
        in_time.plot(fine[1:], theory["test_error"][1:], color=colour)
        for time, time_colour in zip(TIMES, COLOURS, strict=False):
            at = np.abs(runs.time - time).argmin()
            against_ratio.errorbar(ratio, mean[at], 2 * error[at], color=time_colour, fmt=marker, ms=4)
        reports[f"δ = {ratio:g}"] = report = sl.compare(theory, runs, ["train_error", "test_error", "norm"])
        best = theory["test_error"].argmin()
        lowest, last = theory["test_error"][[best, -1]]
        print(f"δ = {ratio:g}: lowest {lowest:.3f} at t = {fine[best]:.3g}, {last:.3f} at t = {fine[-1]:g}\n{report}\n")

    against_ratio.set(xscale="log", xlabel="samples per dimension  $\\delta = n/d$", ylabel="test error")
    against_ratio.set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
    against_ratio.xaxis.set_minor_formatter(NullFormatter())
    in_time.set(xscale="log", xlabel="time  $t = \\eta k/d$")
    against_ratio.set_title(f"points: SGD, $d = {DIM}$; lines: exact limit", loc="left", fontsize="medium")
    for ax in (against_ratio, in_time):
        ax.legend(frameon=False, fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "double_descent.png")
