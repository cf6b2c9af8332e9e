"""A two-layer network at late times: which law do its weights have, and does it show the teacher's?

Two erf units with readouts 1 and 0.5 learn a teacher of the same kind whose weights are all ±1, from δ = 4 samples a
dimension with label noise 0.3, by SGD at τ = 0.2 up to t = 50. Rows: the two units. Filled: all weights of the runs
at d = 500. Black: the law that the theory gives for one weight.

The unit of readout 1 has one peak at t = 1 and two at t = 8 and 50, at ±0.64 and ±0.88, of widths 0.40 and 0.54: it
knows the sign of most of the teacher's weights, cosine 0.85. The other has the teacher's weights in it as well, at
±0.38 with cosine 0.42, but under noise of width 0.83, and never shows two peaks. What comes between t = 8 and 50 is
mostly label noise: the train error falls from 0.091 to 0.059, the test error rises from 0.169 to 0.186. Wasserstein
distances of theory and runs are 0.007 to 0.019.

    python examples/late_network.py late_network.png
"""

import sys
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import wasserstein_distance

import sgdlimit as sl
from sgdlimit.plot import COLOURS

READOUTS, RATIO, NOISE, TEMPERATURE, BATCH = (1.0, 0.5), 4.0, 0.3, 0.2, 5
SNAPSHOTS, DIM, TRIALS = (1.0, 8.0, 50.0), 500, 12
erf = jax.scipy.special.erf
PROBLEM = sl.Problem(
    loss=sl.TwoLayer(erf, readout=READOUTS),
    labels=sl.TwoLayerLabels(erf, readout=READOUTS),
    sample_ratio=RATIO,
    teacher=sl.Rademacher(1.0),
    noise=sl.Normal(NOISE),
    init=sl.Normal(0.5),
    width=2,
)


def main(output: Any) -> dict[str, sl.Report]:
    algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH)
    times = np.union1d(sl.grid.geometric(SNAPSHOTS[-1], first=0.1, points=21), SNAPSHOTS)
    theory = sl.solve(PROBLEM, algorithm, times=times, samples=16384, snapshots=SNAPSHOTS)
    runs = sl.simulate(PROBLEM, algorithm, dim=DIM, trials=TRIALS, times=times[-1:4:-2][::-1], snapshots=SNAPSHOTS)
    report = sl.compare(theory, runs, ["train_error", "test_error", "overlap", "norm"])
    print(report)
    figure, table = plt.subplots(2, len(SNAPSHOTS), figsize=(9.2, 5.0), layout="constrained", sharex=True)
    for unit, row in enumerate(table):
        row[0].set_ylabel(f"density, readout {READOUTS[unit]:g}")
        for i, t in enumerate(SNAPSHOTS):
            law, seen = theory["theta"][i, :, unit], runs["theta"][:, i, :, unit]
            edges = np.linspace(-2.6, 2.6, 66)
            row[i].hist(seen.ravel(), edges, density=True, color=COLOURS[0], alpha=0.45, label=f"SGD, $d$ = {DIM}")
            middle, density = (edges[1:] + edges[:-1]) / 2, np.histogram(law, edges, density=True)[0]
            row[i].plot(middle, density, color="black", label="DMFT")
            row[i].set(xlabel=f"weight  $\\theta_{unit}$", title=f"$t$ = {t:g}")
            star, own = theory["theta_star"][:, unit], np.mean(law * theory["theta_star"][:, unit])
            width = np.std(law - own * star)
            at = list(times).index(t)
            cosine = theory["overlap"][at, unit, unit] / np.sqrt(theory["norm"][at, unit, unit])
            distance = wasserstein_distance(law, seen.ravel())
            peaks = f"peaks at ±{abs(own):.2f}, each of width {width:.2f}, cosine with the teacher's unit {cosine:.3f}"
            print(f"t = {t:g}, readout {READOUTS[unit]:g}: {peaks}; Wasserstein distance to the runs {distance:.3f}")
    for name in ("train_error", "test_error"):
        print(name, ", ".join(f"{theory[name][list(times).index(t)]:.4f} at t = {t:g}" for t in SNAPSHOTS))
    table[0, 0].legend(frameon=False, fontsize="x-small")
    figure.savefig(output, dpi=150)
    return {"committee": report}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "late_network.png")
