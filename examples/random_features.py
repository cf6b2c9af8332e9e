"""Double descent of random features, in time: more features, a worse test error, then a better one.

Linear regression on d features tanh(Fu) of D = d/ratio inputs, noisy linear labels of the inputs, 1.5 samples an input,
hardly any ridge. Left: test error against the number of features a sample, at three times: at early times it falls
with more features; as time goes on a peak grows where features are as many as samples (t = 50 000, theory alone).
Right: test error against time below, at and above the peak. Lines: exact limit under Gaussian equivalence. Points: SGF
on true features of 300 inputs, mean ± 2 standard errors.

    python examples/random_features.py random_features.png
"""

import sys
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

SAMPLES = 1.5
"""For each input dimension."""
INPUTS, TRIALS = 300, 8
RUN = SAMPLES * np.array([0.4, 1.0, 2.0])
RATIOS = np.union1d(SAMPLES * np.geomspace(0.2, 3.0, 24), RUN)
"""Features for each input dimension."""
ALGORITHM = sl.SGF(temperature=0.1)
TIMES = np.append(0.0, np.geomspace(0.5, 200.0, 25))
LATE = 5e4
"""Too late for runs."""
AT = (9, 25, 26)
"""Which of them are on the left."""


def problem(ratio: float) -> sl.Problem:
    """d features: time and samples are counted for each of them."""
    return sl.Problem(
        loss=sl.Square(),
        penalty=sl.Ridge(1e-3),
        sample_ratio=SAMPLES / ratio,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.4),
        data=sl.RandomFeatures(jnp.tanh, ratio),
    )


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")
    solved = {ratio: sl.least_squares(problem(ratio), ALGORITHM, times=np.append(TIMES, LATE)) for ratio in RATIOS}
    reports, runs = {}, {}
    for ratio in RUN:
        dim = round(ratio * INPUTS)
        runs[ratio] = sl.simulate(problem(ratio), ALGORITHM, dim=dim, trials=TRIALS, times=TIMES[1::2], dt=0.1)
        label = f"{ratio / SAMPLES:g} features a sample"
        reports[label] = sl.compare(solved[ratio], runs[ratio], ["train_error", "test_error"])
        print(f"{label}\n{reports[label]}")
    for at, colour, marker in zip(AT, COLOURS, MARKERS, strict=False):
        curve = [solved[ratio]["test_error"][at] for ratio in RATIOS]
        left.plot(RATIOS / SAMPLES, curve, color=colour, label=f"$t$ = {solved[RUN[0]].time[at]:.5g}")
        if at >= len(TIMES):
            continue
        values = [tuple(part[(at - 1) // 2] for part in runs[ratio].curve("test_error")) for ratio in RUN]
        mean, error = np.array(values).T
        left.errorbar(RUN / SAMPLES, mean, 2 * error, color=colour, marker=marker, ms=4, ls="")
    left.set(xscale="log", yscale="log", xlabel="features a sample", ylabel="test error")
    left.legend(frameon=False, fontsize="small")
    for ax, ticks in ((left.xaxis, [0.2, 0.5, 1, 2, 3]), (left.yaxis, [0.4, 0.6, 1.0, 1.5])):
        ax.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_ticks([], minor=True)
    for ratio, colour, marker in zip(RUN, COLOURS, MARKERS, strict=False):
        mean, error = runs[ratio].curve("test_error")
        right.plot(TIMES[1:], solved[ratio]["test_error"][1:-1], color=colour, label=f"{ratio / SAMPLES:g}")
        right.errorbar(runs[ratio].time, mean, 2 * error, color=colour, marker=marker, ms=4, ls="")
    right.set(xscale="log", yscale="log", xlabel="time  $t$", ylabel="test error", ylim=(0.33, 1.15))
    right.yaxis.set_ticks([0.4, 0.6, 0.8, 1.0], ["0.4", "0.6", "0.8", "1"])
    right.yaxis.set_ticks([], minor=True)
    right.legend(frameon=False, fontsize="small", title="features a sample", title_fontsize="small", loc="lower left")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "random_features.png")
