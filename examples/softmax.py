"""Softmax regression with three classes: what does a hotter SGD cost, in cross-entropy and in mistakes?

A student of width 3 gives every class a score r_a = θ_aᵀx and is trained on the cross-entropy log Σ_a e^{r_a} − r_y,
`sl.MultiClass(3)`. The teacher, too, has three scores, and the label is its largest; one label in ten is the next
class instead. δ = 4, λ = 0.02. Left: cross-entropy, right: share of mistakes; lines are the limit, points SGD at d =
600.

At t = 8 the cooler SGD, τ = 0.1, has a test cross-entropy of 0.787 and 33.6 % mistakes, the hotter, τ = 1, 0.854 and
37.7 %; on the training set they make 13.5 % and 19.4 %, more than the labels that were replaced. Guessing makes 66.7
%.

    python examples/softmax.py softmax.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

CLASSES, WRONG = 3, 0.1
RATIO, RIDGE, T_MAX, DIM, TRIALS, BATCH = 4.0, 0.02, 8.0, 600, 12, 6
TEMPERATURES = (0.1, 1.0)


PROBLEM = sl.Problem(
    loss=sl.MultiClass(CLASSES),
    labels=sl.ArgMax(wrong=WRONG),
    penalty=sl.Ridge(RIDGE),
    sample_ratio=RATIO,
    teacher=sl.Normal(1.0),
    width=CLASSES,
)


def main(output: Any) -> dict[str, sl.Report]:
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.7), layout="constrained")
    times, reports = np.linspace(0.0, T_MAX, 25), {}
    for tau, colour, marker in zip(TEMPERATURES, COLOURS, MARKERS, strict=False):
        algorithm = sl.SGD(tau, batch_size=BATCH)
        theory = sl.solve(PROBLEM, algorithm, times=times, samples=16384, dt=0.1)
        runs = sl.simulate(PROBLEM, algorithm, dim=DIM, trials=TRIALS, times=times[2::2])
        reports[f"τ = {tau:g}"] = sl.compare(theory, runs, ["train_loss", "test_loss", "train_error", "test_error"])
        for ax, kind in zip(axes, ("loss", "error"), strict=True):
            for side, style, fill in (("test", "-", colour), ("train", "--", "white")):
                value, error = theory.curve(f"{side}_{kind}")
                label = f"$\\tau$ = {tau:g}, {side}"
                ax.plot(times, value, color=colour, ls=style, label=label)
                mean, bar = runs.curve(f"{side}_{kind}")
                ax.errorbar(runs.time, mean, 2 * bar, color=colour, fmt=marker, ms=4, mfc=fill)
                print(f"τ = {tau:g}, {side} {kind}: {value[-1]:.4f} ± {error[-1]:.4f} at t = {T_MAX:g}, least "
                      f"{value.min():.4f} at t = {times[value.argmin()]:.2g}")  # fmt: skip
        print(reports[f"τ = {tau:g}"], "\n")
    axes[0].set(ylabel="cross-entropy", xlabel="time  $t = \\eta k/d$", xlim=(0, None))
    axes[1].set(ylabel="share of mistakes", xlabel="time  $t = \\eta k/d$", xlim=(0, None), ylim=(0, 0.7))
    axes[1].axhline(WRONG, color="grey", lw=0.8, ls=":")
    axes[1].text(T_MAX, WRONG, "labels replaced", color="grey", fontsize="small", ha="right", va="bottom")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False, fontsize="small", ncols=2, title=f"points: SGD, $d$ = {DIM}, ± 2 standard errors")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "softmax.png")
