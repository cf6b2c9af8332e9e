"""SGD with momentum: does friction change more than the learning rate?

Heavy-ball SGD is a problem of width 2 with weights (θ, v): the force of the loss acts on v alone, and the field
θ' = v, v' = −κv − gradient stands in place of the penalty's. A step of `sl.SGD` on it is v ← βv − η·gradient,
θ ← θ + (η/d)·v, with the usual momentum β = 1 − ηκ/d. Left: heavy ball against plain SGD of learning rate η/κ after the
same number of steps. Right: the mean square velocity, and τ·train/(2κ), the heat that the batches feed into it.
Lines: exact limit, with a band of two errors. Points: SGD, with standard error.

For the square loss the stationary states are the same: friction only divides learning rate and temperature by κ. On the
way there heavy ball is the slower one. At t = 5.6 the test errors are 0.40 (plain: 0.39) for κ = 2, and 0.49 (0.43) for
κ = 0.7, whose fast directions oscillate: its test error rests at 0.6 around t = 2.

    python examples/momentum.py momentum.png
"""

import sys
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

FRICTIONS = (0.7, 2.0)
RIDGE, TEMPERATURE, BATCH = 0.01, 0.4, 4
T_MAX, DIM, TRIALS = 5.6, 800, 16
SHARED: dict[str, Any] = {"sample_ratio": 3.0, "teacher": sl.Rademacher(1.0), "noise": sl.Normal(0.5)}
PLAIN = sl.Problem(loss=sl.Square(), penalty=sl.Ridge(RIDGE), **SHARED)
FORCE = sl.VectorField(
    lambda r, r_star, z: jnp.stack([0.0 * r[0], r[0] - r_star - z]),
    loss=lambda r, y: 0.5 * (r[0] - y) ** 2,
    predict=lambda r: r[0],
)


def heavy_ball(friction: float) -> tuple[sl.Solution, sl.Runs]:
    drift = sl.VectorField(lambda theta: jnp.stack([-theta[1], friction * theta[1] + RIDGE * theta[0]]))
    problem = sl.Problem(loss=FORCE, penalty=drift, width=2, teacher_width=1, **SHARED)
    algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH)
    theory = sl.solve(problem, algorithm, t_max=T_MAX, dt=0.08, samples=32768)
    return theory, sl.simulate(problem, algorithm, dim=DIM, trials=TRIALS, times=np.linspace(0.0, T_MAX, 11))


def draw(ax: Any, theory: sl.Solution, runs: sl.Runs, name: str, entry: Any, **style: Any) -> None:
    """Line with a band of two standard errors for the theory, points for the runs."""
    (line, doubt), (mean, error) = theory.curve(name), runs.curve(name)
    line, doubt, mean, error = (part[entry] for part in (line, doubt, mean, error))
    marker, label = style.pop("marker"), style.pop("label")
    ax.plot(theory.time, line, label=label, **style)
    ax.fill_between(theory.time, line - 2 * doubt, line + 2 * doubt, alpha=0.15, lw=0, **style)
    ax.errorbar(runs.time, mean, error, marker=marker, ms=4, ls="", **style)


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.7), layout="constrained")
    reports = {}
    for friction, colour, marker in zip(FRICTIONS, COLOURS, MARKERS, strict=False):
        theory, runs = heavy_ball(friction)
        label = f"heavy ball, κ = {friction:g}"
        reports[label] = sl.compare(theory, runs, ["train_error", "test_error", "overlap", "norm"])
        print(label, reports[label], sep="\n")
        draw(left, theory, runs, "test_error", ..., color=colour, marker=marker, label=label)
        plain = sl.least_squares(PLAIN, sl.SGD(TEMPERATURE / friction), t_max=T_MAX / friction)
        left.plot(friction * plain.time, plain["test_error"], color=colour, ls=":", label="plain SGD at η/κ")
        print(f"test error at the end: {theory['test_error'][-1]:.3f}, of plain SGD {plain['test_error'][-1]:.3f}")
        draw(right, theory, runs, "norm", np.s_[:, 1, 1], color=colour, marker=marker, label=f"κ = {friction:g}")
        heat = TEMPERATURE * theory["train_error"] / (2 * friction)
        right.plot(theory.time, heat, color=colour, ls=":", label="$\\tau\\,$train$/(2\\kappa)$")
        print(f"mean square velocity at the end: {theory['norm'][-1, 1, 1]:.4f}; τ·train/(2κ) = {heat[-1]:.4f}")
    left.set(xlabel="time  $t = \\eta k / d$", ylabel="test error")
    right.set(xlabel="time  $t = \\eta k / d$", ylabel="mean square velocity  $|v|^2 / d$")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "momentum.png")
