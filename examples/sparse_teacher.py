"""Sparse teacher: how much does a rounded ℓ₁ penalty gain over ridge when nine weights in ten are zero?

Square loss, δ = 0.8, τ = 0.2. Left: test error, SGD at d = 1000 over the limit (exact for ridge, particles for ℓ₁).
Right: the weights that should be zero, in SGD and in the limit. At t = 12 the test error is 0.338 with the best ridge,
0.182 with ℓ₁ at λ = 0.05 and 0.082 at λ = 0.2, where label noise alone is 0.04: ridge leaves every idle weight
Gaussian, ℓ₁ gathers them near zero.

    python examples/sparse_teacher.py sparse_teacher.png
"""

import math
import sys

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

DENSITY, RATIO, NOISE = 0.1, 0.8, 0.2
TEMPERATURE, BATCH = 0.2, 5
T_MAX, DIM, TRIALS = 12.0, 1000, 40
PENALTIES = {
    "ridge, λ = 0.02": sl.Ridge(0.02),
    "rounded ℓ₁, λ = 0.05": sl.SmoothL1(0.05, smoothing=0.1),
    "rounded ℓ₁, λ = 0.2": sl.SmoothL1(0.2, smoothing=0.1),
}


def main(output):
    algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH)
    figure, (curves, weights) = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")
    bins = np.linspace(-2.5, 2.5, 151)
    reports = {}
    for (name, penalty), colour, marker in zip(PENALTIES.items(), COLOURS, MARKERS, strict=False):
        problem = sl.Problem(
            loss=sl.Square(),
            penalty=penalty,
            sample_ratio=RATIO,
            teacher=sl.SparseNormal(DENSITY, scale=1 / math.sqrt(DENSITY)),
            noise=sl.Normal(NOISE),
        )
        runs = sl.simulate(problem, algorithm, dim=DIM, trials=TRIALS, times=np.linspace(0, T_MAX, 11)[1:])
        idle = runs["theta_star"][..., 0] == 0
        weights.hist(runs["theta"][:, -1, :, 0][idle], bins, density=True, color=colour, alpha=0.35)
        if isinstance(penalty, sl.Ridge):
            theory = sl.least_squares(problem, algorithm, t_max=T_MAX)
            # θ is a multiple of θ* plus a Gaussian of this variance.
            variance = theory["norm"][-1, 0, 0] - theory["overlap"][-1, 0, 0] ** 2
            middle = (bins[1:] + bins[:-1]) / 2
            height = np.exp(-(middle**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        else:
            theory = sl.solve(problem, algorithm, t_max=T_MAX, dt=0.1, samples=16384, snapshots=[T_MAX])
            height, _ = np.histogram(theory["theta"][-1, :, 0][theory["theta_star"][:, 0] == 0], bins, density=True)
        weights.stairs(height, bins, color=colour, lw=1.3)
        mean, error = runs.curve("test_error")
        curves.errorbar(runs.time, mean, 2 * error, color=colour, fmt=marker, ms=4, label=name)
        curves.plot(theory.time, theory["test_error"], color=colour)
        value, error = theory.curve("test_error")
        reports[name] = report = sl.compare(theory, runs, ["train_error", "test_error", "overlap", "norm"])
        print(f"{name}: test error {value[-1]:.3f} ± {error[-1]:.3f} at t = {T_MAX:g}\n{report}\n")
    curves.axhline(NOISE**2, color="grey", lw=0.8, ls=":")
    curves.text(0.1, NOISE**2, "label noise", color="grey", fontsize="small", va="bottom")
    curves.set(xlabel="time  $t = \\eta k/d$", ylabel="test error", xlim=(0, None), ylim=(0, None))
    curves.legend(frameon=False, fontsize="small")
    weights.set(xlabel=f"weights $\\theta$ where $\\theta^* = 0$, at $t = {T_MAX:g}$", ylabel="density", xlim=(-1, 1))
    weights.set_title(f"shaded: SGD, $d = {DIM}$; outline: the limit", loc="left", fontsize="medium")
    curves.set_title(f"points: SGD, $d = {DIM}$; lines: the limit", loc="left", fontsize="medium")
    for ax in (curves, weights):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparse_teacher.png")
