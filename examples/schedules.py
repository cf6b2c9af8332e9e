"""Decay the learning rate, or grow the batch?

Logistic regression at a high temperature τ = η/B. A schedule s(t) on the learning rate slows the flow and cools it; a
batch that grows as 1/s cools it at full speed. On the clock ∫s dt the two are the same process in the limit, so a
growing batch reaches the same weights sooner: the last panel shows both on that clock. The theory (dashed) and 16 runs
of SGD at d = 1000 agree for every schedule, in train and test error, overlap and norm.

    python examples/schedules.py schedules.png
"""

import sys

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS

TEMPERATURE, T_MAX = 2.0, 6.0
BATCH, LARGEST = 8, 64
DIM, TRIALS = 1000, 16


def growing(u):
    """Share of the largest batch in use: B/s, where s = exp(−u) is the rate 1/(1 + t) on its clock u = log(1 + t)."""
    return jnp.minimum(1.0, BATCH / LARGEST * jnp.exp(u))


def problem(schedule):
    return sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.05), sample_ratio=2.0, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.3), schedule=schedule,
    )  # fmt: skip


CASES = {
    "constant": (problem(sl.Constant()), sl.SGD(TEMPERATURE, batch_size=BATCH)),
    "rate falls as $1/(1+t)$": (problem(sl.PowerDecay(1.0, 1.0)), sl.SGD(TEMPERATURE, batch_size=BATCH)),
    # The temperature is that of the largest batch; the smallest, an eighth of it, starts as the others do.
    "batch grows as $e^t$": (
        problem(sl.Constant()),
        sl.SGD(TEMPERATURE * BATCH / LARGEST, batch_size=LARGEST, batch_share=sl.Schedule(growing)),
    ),
}


def main(output):
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4), layout="constrained")
    times, reports = np.linspace(0.5, T_MAX, 12), {}
    for index, (name, (case, algorithm)) in enumerate(CASES.items()):
        theory = sl.solve(case, algorithm, times=np.linspace(0, T_MAX, 61), samples=16384)
        runs = sl.simulate(case, algorithm, dim=DIM, trials=TRIALS, times=times, seed=index)
        reports[name] = sl.compare(theory, runs, ["train_error", "test_error", "overlap", "norm"])
        print(f"{name}: {reports[name]}\n")
        for ax, curve in zip(axes, ("train_error", "test_error", "test_error"), strict=True):
            falls = name.startswith("rate")
            if ax is axes[2] and name == "constant":
                continue
            clock = np.log1p if ax is axes[2] and falls else np.asarray
            mean, error = runs.curve(curve)
            band = (mean - 2 * error, mean + 2 * error)
            ax.fill_between(clock(runs.time), *band, color=COLOURS[index], alpha=0.3, lw=0)
            ax.plot(clock(theory.time), theory[curve], color=COLOURS[index], ls="--", label=name)
            ax.set(xlabel="time  $t = \\eta k/d$", ylabel=curve.replace("_", " "))
            ax.spines[["top", "right"]].set_visible(False)
    axes[2].set(xlabel="clock  $\\int s\\,dt$", xlim=(0, np.log1p(T_MAX)))
    axes[0].legend(
        frameon=False, fontsize="small", title="dashed: theory; bands: SGD ± 2 errors", title_fontsize="small"
    )
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "schedules.png")
