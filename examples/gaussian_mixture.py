"""Two Gaussian classes, uneven in number: does the noise of small batches help to tell them apart?

Logistic regression with an intercept and hardly any ridge on rows x = ±v/d + u, one class three times as frequent as
the other: the setting in which the theory of SGD with batches of a fixed share b of the data was first written down
(Mignacco, Krzakala, Urbani and Zdeborová, 2020), and its counterpart with small batches at temperature τ. The two are
chosen so that a sample's increments have the same variance, γ(1/b − 1) = τδ. Left: train and test error against time.
Right: the intercept. Lines: exact limit. Points: runs, mean ± 2 standard errors.

Here noise does not help. Gradient flow has a test error of 0.125 at t = 1 and 0.136 at t = 10, small batches 0.171 and
0.141; batches of a fifth go the same way as small ones, although their samples are drawn otherwise, only their
intercept, in its steps of half a unit of time, runs ahead. The overfitting of gradient flow is the slow rise of its
test error; SGD has not begun with it, and its train error at t = 10 is that of gradient flow at t = 6.

    python examples/gaussian_mixture.py gaussian_mixture.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

PROBLEM = sl.Problem(
    loss=sl.Logistic(),
    labels=sl.ByClass(),
    penalty=sl.Ridge(1e-3),
    sample_ratio=2.0,
    data=sl.Mixture([1.2, -1.2], weights=[0.75, 0.25]),
    bias=True,
)
ALGORITHMS = {
    "gradient flow": sl.GradientFlow(),
    "batches of a fifth, steps of 0.5": sl.ProportionalSGD(batch_fraction=0.2),
    "small batches, $\\tau$ = 1": sl.SGD(temperature=1.0, batch_size=4),
}
T_MAX, STEP, DIM, TRIALS = 10.0, 0.5, 800, 12


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")
    times, reports = np.arange(0.0, T_MAX + STEP, STEP), {}
    for (label, algorithm), colour, marker in zip(ALGORITHMS.items(), COLOURS, MARKERS, strict=False):
        own: dict[str, Any] = {"dt": STEP} if algorithm.discrete else {}
        theory = sl.solve(PROBLEM, algorithm, times=times, samples=32768, **own)
        runs = sl.simulate(PROBLEM, algorithm, dim=DIM, trials=TRIALS, times=times[::2], **own)
        reports[label] = sl.compare(theory, runs)
        ends = ", ".join(f"{name} {np.ravel(theory[name][-1])[0]:.3f}" for name in ("train_error", "test_error"))
        print(f"{label}\n{reports[label]}\nat the end: {ends}, intercept {theory['intercept'][-1, 0]:.3f}")
        for ax, name in ((left, "train_error"), (left, "test_error"), (right, "intercept")):
            values = theory[name].reshape(len(times), -1)[:, 0]
            mean, error = (part.reshape(len(runs.time), -1)[:, 0] for part in runs.curve(name))
            ax.plot(times, values, color=colour, ls="--" if name == "train_error" else "-",
                    label=None if name == "train_error" else label)  # fmt: skip
            ax.errorbar(runs.time, mean, 2 * error, color=colour, marker=marker, ms=3.5, ls="")
    left.set(xlabel="time  $t$", ylabel="error: train (dashed), test", ylim=(0.0, 0.22))
    right.set(xlabel="time  $t$", ylabel="intercept  $\\beta$")
    right.legend(frameon=False, fontsize="small", loc="lower right")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "gaussian_mixture.png")
