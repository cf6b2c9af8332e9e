"""A sparse teacher: does a smooth L1 penalty find it better than a ridge?

Logistic regression with one weight in ten of the teacher non-zero. Both penalties at the strength that is best for each
among those tried; a smooth L1 is not quadratic, so the theory carries its weights by particles. Left: test error in
time, theory dashed, SGD solid with a band of one standard deviation. Right: the test error at the end against the
strength of the penalty.

    python examples/sparse_teacher.py sparse_teacher.png
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS

TEMPERATURE, T_MAX = 0.5, 6.0
DIM, TRIALS = 1000, 16
STRENGTHS = (0.02, 0.1, 0.3, 0.5)
PENALTIES = {"ridge": sl.Ridge, "smooth L1": lambda strength: sl.SmoothL1(strength, 0.05)}


def problem(penalty):
    return sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=penalty, sample_ratio=1.5, noise=sl.Normal(0.3),
        teacher=sl.SparseNormal(density=0.1, scale=3.0),
    )  # fmt: skip


def main(output):
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.5), layout="constrained")
    algorithm, times, reports = sl.SGD(TEMPERATURE, batch_size=4), np.linspace(0.6, T_MAX, 10), {}
    for index, (name, penalty) in enumerate(PENALTIES.items()):
        theories = [
            sl.solve(problem(penalty(strength)), algorithm, T_MAX, dt=0.1, samples=8192, extrapolate=True)
            for strength in STRENGTHS
        ]
        ends = [theory["test_error"][-1] for theory in theories]
        best = int(np.argmin(ends))
        runs = sl.simulate(
            problem(penalty(STRENGTHS[best])), algorithm, dim=DIM, trials=TRIALS, times=times, seed=index
        )
        reports[name] = sl.compare(theories[best], runs, ["train_error", "test_error", "overlap", "norm"])
        print(f"{name}, strength {STRENGTHS[best]}: test error {ends[best]:.4f}\n{reports[name]}\n")
        mean, spread = runs["test_error"].mean(axis=0), runs["test_error"].std(axis=0, ddof=1)
        colour = COLOURS[index]
        left.fill_between(runs.time, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)
        left.plot(runs.time, mean, color=colour, lw=1.6, label=f"{name}, λ = {STRENGTHS[best]:g}: SGD, $d$ = {DIM}")
        left.plot(theories[best].time, theories[best]["test_error"], color="black", ls="--", lw=1)
        errors = [2 * theory.curve("test_error")[1][-1] for theory in theories]
        right.errorbar(STRENGTHS, ends, errors, color=colour, marker="os"[index], ms=4, capsize=2, label=name)
    left.plot([], [], color="black", ls="--", lw=1, label="DMFT")
    left.set(xlabel="time  $t = \\eta k/d$", ylabel="test error", xlim=(0, T_MAX), ylim=(None, 0.45))
    right.set(xlabel="strength of the penalty λ", ylabel=f"test error at $t$ = {T_MAX:g}", xscale="log")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparse_teacher.png")
