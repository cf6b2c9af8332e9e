"""Phase retrieval from a warm start: labels y = (r* + z)² hide the sign; how far does SGD get from a given overlap?

The loss compares rounded magnitudes, ½(√(r² + 1) − √(y + 1))²; teacher and start have non-zero means, so they overlap.
Shown is its growth for three starts at δ = 2 and δ = 4, τ = 0.2, SGD at d = 1000 over the limit. With four samples a
dimension the overlap grows to 0.50, 0.79 and 0.90 by t = 7 from 0.2, 0.4 and 0.6, while |θ|²/d is 0.76, 0.84 and 0.91:
SGD nears the teacher. With two it slows down early: from 0.2 it ends at 0.35 ± 0.02 with |θ|²/d = 0.90, still far.

    python examples/phase_retrieval.py phase_retrieval.png
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

RATIOS = (2.0, 4.0)
OVERLAPS = (0.2, 0.4, 0.6)  # at the start
ROUNDING, TEMPERATURE, BATCH = 1.0, 0.2, 10
T_MAX, DIM, TRIALS = 7.0, 1000, 16
MEAN = math.sqrt(2 / math.pi)  # of |N(0, 1)|


def magnitude(intensity):
    return jnp.sqrt(intensity + ROUNDING**2)


def loss(r, y):
    return 0.5 * (magnitude(r**2) - magnitude(y)) ** 2


def intensity(r_star, z):
    return (r_star + z) ** 2


def half_normal(key, shape):
    return jnp.abs(jax.random.normal(key, shape))


LOSS, LABELS = sl.Loss(loss, predict=jnp.square), sl.Labels(intensity)
TEACHER = sl.Law(half_normal, mean=MEAN, second_moment=1.0)


def retrieval(ratio, overlap):
    mean = overlap / MEAN
    reach = math.sqrt(3 * (1 - mean**2))  # E(θ⁰)² = 1 whatever the overlap
    init = sl.Uniform(mean - reach, mean + reach)
    noise = sl.Normal(0.1)
    return sl.Problem(loss=LOSS, labels=LABELS, sample_ratio=ratio, teacher=TEACHER, noise=noise, init=init)


def main(output):
    algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH)
    precise: dict[str, Any] = dict(t_max=T_MAX, samples=16384)
    size: dict[str, Any] = dict(dim=DIM, trials=TRIALS, times=np.linspace(0, T_MAX, 11)[1:])
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained", sharey=True)
    reports = {}
    for ax, ratio in zip(axes, RATIOS, strict=True):
        for overlap, colour, marker in zip(OVERLAPS, COLOURS, MARKERS, strict=False):
            problem = retrieval(ratio, overlap)
            theory, runs = sl.solve(problem, algorithm, **precise), sl.simulate(problem, algorithm, **size)
            report = sl.compare(theory, runs, ["overlap", "norm", "train_loss", "test_loss"])
            reports[f"δ = {ratio:g}, overlap {overlap:g}"] = report
            mean, error = (part[:, 0, 0] for part in runs.curve("overlap"))
            ax.errorbar(runs.time, mean, 2 * error, color=colour, fmt=marker, ms=4, label=f"from {overlap:g}")
            value, error = (part[:, 0, 0] for part in theory.curve("overlap"))
            ax.plot(theory.time, value, color=colour)
            norm = theory["norm"][-1, 0, 0]
            print(f"δ = {ratio:g}: overlap from {overlap:g} to {value[-1]:.3f} ± {error[-1]:.3f}, norm {norm:.3f}")
            print(report, "\n")
        ax.set(title=f"$\\delta = {ratio:g}$", xlabel="time  $t = \\eta k/d$", xlim=(0, None), ylim=(0, 1))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("overlap  $\\theta^\\top\\theta^*/d$")
    axes[1].legend(frameon=False, fontsize="small", title=f"points: SGD, $d = {DIM}$; lines: the limit")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "phase_retrieval.png")
