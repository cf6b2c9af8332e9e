"""Clipping under heavy-tailed noise: the gradient of every sample, or that of the whole batch?

Least squares, δ = 4, τ = 0.2, batches of 8; the noise is Student's t with two degrees of freedom, cut at ±10. Without
clipping the error of the weights ends at 1.45, above the 1 that it began with. With every sample clipped it ends at
0.44, at the best threshold 0.4; with the batch clipped at 0.49, at the best threshold 0.1: one wild label then takes
its seven neighbours along, and the threshold of the other kind, 0.4, leaves 0.80. Left: against time. Right: at t = 5
against the threshold. Lines: exact limit. Points: SGD, mean and two standard errors.

    python examples/clipping.py clipping.png
"""

import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

THRESHOLDS = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
LARGEST, TEMPERATURE, BATCH = 10.0, 0.2, 8
T_MAX, DIM, TRIALS = 5.0, 600, 12
KINDS = {"sample": "every sample clipped", "batch": f"batch of {BATCH} clipped"}


VARIANCE = LARGEST**2 - LARGEST * np.sqrt(LARGEST**2 + 2) + 2 * np.arcsinh(LARGEST / np.sqrt(2))


def draw_noise(key: Any, shape: tuple[int, ...]) -> Any:
    """Student's t with two degrees of freedom, a normal number over the root mean square of two, cut at ±LARGEST."""
    normal = jax.random.normal(key, (3, *shape))
    return jnp.clip(normal[0] / jnp.sqrt(jnp.mean(normal[1:] ** 2, axis=0)), -LARGEST, LARGEST)


# Said for errors of labels, which this example does not show: it shows the error of the weights.
warnings.filterwarnings("ignore", message=".*averages under this heavy-tailed noise")

PROBLEM = sl.Problem(
    loss=sl.Square(), penalty=sl.Ridge(0.05), sample_ratio=4.0, teacher=sl.Rademacher(1.0),
    noise=sl.Law(draw_noise, mean=0.0, second_moment=VARIANCE),
)  # fmt: skip


def weight_error(result: sl.Solution | sl.Runs) -> np.ndarray:
    """|θ − θ*|²/d, for a teacher of norm 1."""
    return result["norm"][..., 0, 0] - 2 * result["overlap"][..., 0, 0] + 1


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")
    times, reports = np.linspace(0.0, T_MAX, 11), {}
    for (per, name), colour, marker in zip(KINDS.items(), COLOURS, MARKERS, strict=False):
        found = []
        for threshold in THRESHOLDS:
            algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH, step=sl.Step(clip=sl.Clip(threshold, per=per)))
            theory = sl.solve(PROBLEM, algorithm, t_max=T_MAX, dt=0.1, samples=16384, variables=["overlap", "norm"])
            runs = sl.simulate(PROBLEM, algorithm, dim=DIM, trials=TRIALS, times=times, seed=1)
            label = f"{name} at {threshold:g}"
            reports[label] = sl.compare(theory, runs, ["overlap", "norm"])
            found.append((theory, weight_error(runs)))
            print(
                f"{label}: {weight_error(theory)[-1]:.4f}, SGD {weight_error(runs)[:, -1].mean():.4f}", reports[label]
            )
        ends = np.array([weight_error(theory)[-1] for theory, _ in found])
        points = np.array([(runs[:, -1].mean(), runs[:, -1].std() / np.sqrt(TRIALS)) for _, runs in found])
        right.plot(THRESHOLDS, ends, color=colour, label=name)
        right.errorbar(THRESHOLDS, points[:, 0], 2 * points[:, 1], color=colour, fmt=marker, ms=4)
        best = int(ends.argmin())
        theory, runs = found[best]
        left.plot(theory.time, weight_error(theory), color=colour, label=f"{name} at {THRESHOLDS[best]:g}")
        spread = 2 * runs.std(axis=0) / np.sqrt(TRIALS)
        left.errorbar(times, runs.mean(axis=0), spread, color=colour, fmt=marker, ms=4)
        print(f"{name}: best at {THRESHOLDS[best]:g}, {ends[best]:.4f}\n")
    plain = sl.least_squares(PROBLEM, sl.SGD(TEMPERATURE), t_max=T_MAX)
    error = weight_error(plain)
    print(f"not clipped: {error[-1]:.4f}, lowest {error.min():.4f} at t = {plain.time[error.argmin()]:.2f}")
    left.plot(plain.time, error, color="black", ls=":", label="not clipped")
    right.axhline(error[-1], color="black", ls=":", label="not clipped")
    left.set(xlabel="time  $t = \\eta k/d$", ylabel="error of the weights  $|\\theta - \\theta_*|^2/d$", xlim=(0, None))
    right.set(xlabel="threshold of the clipping", xscale="log", ylabel=f"error of the weights at $t$ = {T_MAX:g}")
    right.set_xticks(THRESHOLDS, [f"{threshold:g}" for threshold in THRESHOLDS])
    right.minorticks_off()
    left.set_title(f"points: SGD, $d = {DIM}$; lines: the limit", loc="left", fontsize="medium")
    for ax in (left, right):
        ax.set_ylim(0, 1.7)
        ax.legend(frameon=False, fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "clipping.png")
