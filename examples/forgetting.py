"""How much is forgotten, how fast?

Logistic regression on one teacher, then on another, δ = 3, τ = 0.5. The first task is learned to a test error of 0.191.
Four units of time on the second one bring it back to 0.40 where the teachers are at right angles, and to 0.29 at an
overlap of one half; at 0.9 the second task teaches the first, whose error falls to 0.164 before it rises. Forgetting
begins slowly: in the first fifth of a unit at right angles the second error falls by 0.023, the first rises by 0.008.
What was learned before is in the way: from zero the second task gets to 0.191, after one at right angles to 0.230; an
overlap of one half ends where no first task does (0.187), one of 0.9 at 0.149. Left: error on the first task. Right: on
the second. Lines: exact limit, with a band of two errors. Points: SGD whose weights go on, d = 400, mean and two
standard errors.

    python examples/forgetting.py forgetting.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

LAST, DIM, TRIALS = 4.0, 400, 12
OVERLAPS = (0.0, 0.5, 0.9)
ALGORITHM = sl.SGD(temperature=0.5, batch_size=4)
NAMES = ["train_loss", "test_loss", "train_error", "test_task_0_error", "test_task_1_error", "overlap", "norm"]
TASK = {
    "loss": sl.Logistic(),
    "labels": sl.Sign(),
    "penalty": sl.Ridge(0.05),
    "sample_ratio": 3.0,
    "teacher": sl.Normal(1.0),
}


def main(output: Any) -> dict[str, sl.Report]:
    times, reports = np.linspace(0.0, LAST, 21), {}
    stages = [(sl.Problem(**TASK), ALGORITHM, times), (sl.Problem(**TASK), ALGORITHM, times)]
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.9), sharey=True, layout="constrained")
    chains = [sl.chain(stages, teacher_overlap=overlap, dt=0.1, samples=131072) for overlap in OVERLAPS]
    for overlap, theory, colour, marker in zip(OVERLAPS, chains, COLOURS, MARKERS, strict=False):
        runs = sl.simulate_chain(stages, dim=DIM, trials=TRIALS, teacher_overlap=overlap, seed=1)
        for task, ax in enumerate(axes):
            name = f"test_task_{task}_error"
            (value, doubt), (mean, error) = theory.curve(name), runs.curve(name)
            ax.plot(theory.time, value, color=colour, label=f"{overlap:g}")
            ax.fill_between(theory.time, value - 2 * doubt, value + 2 * doubt, color=colour, alpha=0.2, lw=0)
            for part in (slice(0, 21, 4), slice(21 + 4, None, 4)):
                ax.errorbar(runs.time[part], mean[part], 2 * error[part], color=colour, fmt=marker, ms=4)
            told = ", ".join(f"{value[21 + at]:.3f} at {at * LAST / 20:g}" for at in (0, 1, 2, 5, 10, 20))
            print(f"overlap {overlap:g}, task {task + 1}: {value[0]:.3f}, then in the second stage {told}")
        for stage, pair in enumerate(zip(theory, runs, strict=True)):
            reports[f"overlap {overlap:g}, stage {stage + 1}"] = report = sl.compare(*pair, NAMES)
            print(f"overlap {overlap:g}, stage {stage + 1}", report, sep="\n")
    # a first task is a second one that is learned from zero
    alone = axes[1].plot(LAST + times, chains[0][0]["test_task_0_error"], color="black", ls="--", lw=1.2)
    for ax, name in zip(axes, ("first", "second"), strict=True):
        ax.axvline(LAST, color="black", ls=":", lw=1)
        ax.set(xlabel="time  $t = \\eta k/d$, of both stages", xlim=(0, 2 * LAST), ylim=(0, 0.52))
        ax.set_title(f"error on the {name} task", loc="left", fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="test error")
    lines, names = axes[0].get_legend_handles_labels()
    small = {"loc": "lower left", "frameon": False, "fontsize": "small"}
    axes[0].legend(lines, names, title="overlap of the teachers", title_fontsize="small", **small)
    axes[1].legend(alone, ["the same from $\\theta = 0$"], **small)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "forgetting.png")
