"""Early stopping: a share p of the labels is flipped; when should SGD on the logistic loss stop?

δ = 1.5, τ = 0.5, λ = 0.001. Left: test loss, SGD at d = 1500 over its limit, with a star at its minimum. Right: the
zero–one test error, with a star at the same time. The more labels are flipped, the earlier to stop: the test loss is
lowest at t = 5.9, 3.4 and 1.25 for p = 5, 10 and 20 %, and by t = 12 it has risen by 0.017, 0.060 and 0.159. The
zero–one error has no such minimum: it keeps falling after the star, at p = 20 % from 0.415 to 0.404, and then stays.

    python examples/early_stopping.py early_stopping.png
"""

import sys

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

FLIPPED = (0.05, 0.1, 0.2)
RATIO, RIDGE, TEMPERATURE, BATCH = 1.5, 1e-3, 0.5, 5
T_MAX, DIM, TRIALS = 12.0, 1500, 20


def flipping(r_star, z):
    return jnp.where(r_star >= 0, 1.0, -1.0) * jnp.where(z < 0, -1.0, 1.0)


LABELS = sl.Labels(flipping, binary=True)


def classification(flipped):
    return sl.Problem(
        loss=sl.Logistic(),
        labels=LABELS,
        penalty=sl.Ridge(RIDGE),
        sample_ratio=RATIO,
        teacher=sl.Normal(1.0),
        noise=sl.Uniform(-flipped, 1 - flipped),  # negative with probability p
    )


def main(output):
    algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH)
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")
    reports = {}
    for flipped, colour, marker in zip(FLIPPED, COLOURS, MARKERS, strict=False):
        problem = classification(flipped)
        theory = sl.solve(problem, algorithm, t_max=T_MAX, samples=32768)
        runs = sl.simulate(problem, algorithm, dim=DIM, trials=TRIALS, times=np.linspace(0, T_MAX, 13)[1:])
        reports[f"p = {flipped:g}"] = report = sl.compare(theory, runs, ["test_loss", "test_error", "train_error"])
        best = theory["test_loss"].argmin()
        for ax, name in zip(axes, ("test_loss", "test_error"), strict=True):
            mean, error = runs.curve(name)
            ax.errorbar(runs.time, mean, 2 * error, color=colour, fmt=marker, ms=4, label=f"$p = {flipped:g}$")
            value, error = theory.curve(name)
            ax.plot(theory.time, value, color=colour)
            ax.plot(theory.time[best], value[best], "*", color=colour, ms=13, mec="black", zorder=4)
            stop, late = (f"{value[i]:.4f} ± {error[i]:.4f} at t = {theory.time[i]:g}" for i in (best, -1))
            print(f"p = {flipped:g}, {name}: {stop}, {late}")
        print(report, "\n")
    axes[0].plot([], [], "*", color="white", mec="black", ms=12, label="lowest test loss")
    axes[0].set_ylabel("test loss")
    axes[1].set(ylabel="test error", ylim=(0.25, 0.46))
    for ax in axes:
        ax.set(xlabel="time  $t = \\eta k/d$", xlim=(0, None))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize="small")
    axes[0].set_title(f"points: SGD, $d = {DIM}$; lines: the limit", loc="left", fontsize="medium")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "early_stopping.png")
