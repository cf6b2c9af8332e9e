"""Benign overfitting: when does fitting the noise of every label cost nothing?

Linear regression without a penalty, fewer samples than dimensions, until every noisy label is fitted (the train error
falls below a thousandth). A tenth as many strong directions as samples carry half of the variance and all of the
teacher; a tail of weak directions carries the other half. Left: test error against the time per sample, t/δ, for flat
tails of 1.5 to 8 directions a sample. Right: what is left of it above the noise at the end, against the tail's
effective rank a sample, (tr Σ)²/tr Σ² of the tail over n; square: a tail of eight directions a sample that falls, a
tenth of them with 30 times the variance of the rest. Line and crosses: exact limit; points: SGD, mean ± 2 standard
errors.

The noise that is fitted hides in the tail: what it costs falls with the effective rank (Bartlett et al. 2020), from 1.6
times the noise itself at rank 1.5 to a quarter of it at rank 8, of which the strong directions have nearly half. The
number of directions says little: the tail of eight that falls costs three times as much as the flat one.

    python examples/benign_overfitting.py benign_overfitting.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

NOISE, STRONG, FIRST = 0.5, 0.1, 0.1
"""Scale of the label noise; strong directions a sample; share of the tail that may be steeper."""
TAILS = [(1.5, 1.0), (3.0, 1.0), (8.0, 1.0), (8.0, 30.0)]
"""Weak directions a sample, and how steep their variances fall."""
ALGORITHM = sl.SGD(temperature=0.5, batch_size=4)
SAMPLES, TRIALS = 400, 8
TIMES = np.append(0.0, np.geomspace(0.2, 50.0, 20))
"""In passes at unit learning rate, t/δ."""


def problem(tail: float, steepness: float) -> sl.Problem:
    """`tail` weak directions a sample, the first of them with `steepness` times the variance of the others."""
    share = np.array([STRONG, FIRST * tail, (1 - FIRST) * tail]) / (STRONG + tail)
    weak = np.array([steepness, 1.0])
    variance = np.array([0.5 / share[0], *(0.5 * weak / (share[1:] @ weak))])
    data = sl.Spectrum(variance, share, [np.sqrt(2.0), 0.0, 0.0])  # r* has variance 1
    noise, teacher = sl.Normal(NOISE), sl.Normal(1.0)
    return sl.Problem(
        loss=sl.Square(), labels=sl.Linear(), teacher=teacher, noise=noise, sample_ratio=1 / (STRONG + tail), data=data
    )


def rank(tail: float, steepness: float) -> float:
    """Effective rank of the tail over the number of samples."""
    share, weak = np.array([FIRST, 1 - FIRST]), np.array([steepness, 1.0])
    return float(tail * (share @ weak) ** 2 / (share @ weak**2))


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")
    reports, ends = {}, []
    for i, (tail, steepness) in enumerate(TAILS):
        own = problem(tail, steepness)
        delta = own.sample_ratio
        theory = sl.solve(own, ALGORITHM, times=delta * TIMES, samples=8192)
        runs = sl.simulate(own, ALGORITHM, dim=round(SAMPLES / delta), trials=TRIALS, times=delta * TIMES[2::2])
        label = f"{tail:g} a sample" + (f", steep {steepness:g}" if steepness > 1 else "")
        reports[label] = sl.compare(theory, runs, ["train_error", "test_error"])
        value, (mean, error) = theory.curve("test_error")[0], runs.curve("test_error")
        ends.append((rank(tail, steepness), value[-1], mean[-1], error[-1]))
        excess = f"{value[-1] - NOISE**2:.4f} | {mean[-1] - NOISE**2:.4f} ± {error[-1]:.4f}"
        print(f"{label}: rank {ends[-1][0]:.3g}, train error {theory['train_error'][-1]:.2g}, excess {excess}")
        print(reports[label])
        if steepness == 1:
            left.plot(TIMES[1:], value[1:], color=COLOURS[i], label=label)
            left.errorbar(runs.time / delta, mean, 2 * error, color=COLOURS[i], marker=MARKERS[i], ms=3.5, ls="")
    left.axhline(NOISE**2, color="0.6", lw=0.8)
    left.set(xscale="log", xlabel="time per sample  $t/\\delta$", ylabel="test error", ylim=(0.2, 0.9))
    left.legend(frameon=False, fontsize="small", title="flat tail", title_fontsize="small")
    at, value, mean, error = (np.array(part) for part in zip(*ends, strict=True))
    flat = np.array([steepness == 1 for _, steepness in TAILS])
    right.plot(at[flat], value[flat] - NOISE**2, color=COLOURS[0], marker="x", label="flat tails")
    right.plot(at[~flat], value[~flat] - NOISE**2, color=COLOURS[1], marker="x", ls="", label="a falling tail of 8")
    for part, colour, marker in ((flat, COLOURS[0], "o"), (~flat, COLOURS[1], "s")):
        right.errorbar(at[part], mean[part] - NOISE**2, 2 * error[part], color=colour, marker=marker, ms=4, ls="")
    right.set(xscale="log", yscale="log", xlabel="effective rank of the tail a sample", ylabel="excess test error")
    for axis, ticks in ((right.xaxis, [1.5, 2, 3, 4, 6, 8]), (right.yaxis, [0.05, 0.1, 0.2, 0.4])):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "benign_overfitting.png")
