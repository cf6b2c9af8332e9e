"""Committee machines: what does it cost a two-layer network to see the same samples again?

Two hidden units with fixed readouts 1 and 0.4 learn a noisy teacher of the same kind, once with erf and once with a
ReLU rounded over a width 1/8. Multi-pass SGD draws from δ = 3 samples a dimension, one-pass SGD sees every sample once.
After the same number of updates, at t = 5, the test error is 0.195 for multi-pass and 0.131 for one-pass SGD with erf,
0.285 and 0.155 with the rounded ReLU; label noise is 0.09. The train error of multi-pass SGD ends at 0.092 and 0.122,
below what one-pass SGD reaches.

    python examples/committees.py committees.png
"""

import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

RATIO, NOISE, TEMPERATURE, BATCH = 3.0, 0.3, 0.3, 10
T_MAX, DIM, TRIALS = 5.0, 800, 16
# Readouts of (erf, erf, rounded ReLU, rounded ReLU) on the two units: one function compiles once for both networks.
# Units of equal readout would stay alike for ever in the limit, where nothing tells them apart.
READOUTS = {"erf": (1.0, 0.4, 0.0, 0.0), "rounded ReLU": (0.0, 0.0, 1.0, 0.4)}


def activations(r):
    return jnp.concatenate([jax.scipy.special.erf(r), jax.nn.softplus(8 * r) / 8])


def network(readout, ratio):
    return sl.Problem(
        loss=sl.TwoLayer(activations, readout=readout),
        labels=sl.TwoLayerLabels(activations, readout=readout),
        sample_ratio=ratio,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(NOISE),
        init=sl.Normal(0.5),
        width=2,
    )


def main(output):
    algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH)
    size: dict[str, Any] = dict(dim=DIM, trials=TRIALS, times=np.linspace(0, T_MAX, 11)[1:])
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained", sharey=True)
    reports = {}
    for ax, (name, readout) in zip(axes, READOUTS.items(), strict=True):
        again, fresh = network(readout, RATIO), network(readout, math.inf)
        theory = sl.solve(again, algorithm, t_max=T_MAX, samples=16384)
        online = sl.online(fresh, algorithm, times=np.linspace(0, T_MAX, 26), samples=16_384)
        runs, stream = sl.simulate(again, algorithm, **size), sl.simulate(fresh, algorithm, **size)
        reports[f"{name}, multi-pass"] = sl.compare(theory, runs, ["train_error", "test_error", "overlap"])
        reports[f"{name}, one-pass"] = sl.compare(online, stream, ["test_error", "overlap"])
        curves = (
            (theory, runs, "test_error", f"multi-pass, δ = {RATIO:g}: test"),
            (theory, runs, "train_error", f"multi-pass, δ = {RATIO:g}: train"),
            (online, stream, "test_error", "one-pass: test"),
        )
        for (limit, sgd, variable, label), colour, marker in zip(curves, COLOURS, MARKERS, strict=False):
            mean, error = sgd.curve(variable)
            ax.errorbar(sgd.time, mean, 2 * error, color=colour, fmt=marker, ms=4, label=label)
            ax.plot(limit.time, limit[variable], color=colour)
            print(f"{name}, {label}: {limit[variable][-1]:.3f} ± {limit.curve(variable)[1][-1]:.3f} at t = {T_MAX:g}")
        ax.axhline(NOISE**2, color="grey", lw=0.8, ls=":")
        ax.set(title=name, xlabel="time  $t = \\eta k/d$", xlim=(0, None))
        ax.spines[["top", "right"]].set_visible(False)
    for label, report in reports.items():
        print(f"{label}\n{report}\n")
    axes[0].set(ylabel="error", ylim=(0, None))
    axes[0].text(0.1, NOISE**2, "label noise", color="grey", fontsize="small", va="bottom")
    axes[0].legend(frameon=False, fontsize="small", title=f"points: SGD, $d = {DIM}$; lines: the limit")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "committees.png")
