"""Adam against SGD on a power-law spectrum: does a rate of its own help every direction?

Variances of the data fall as k^−2 over eight groups of directions; both algorithms read 24 samples a dimension. Adam
is behind at first, since it divides by gradients that are still large: after 6.7 samples a dimension its test loss is
0.049 against 0.041. At the end it is ahead, 0.028 against 0.031 of SGD at the best of three temperatures, and the
cosine with the teacher in the weakest group is 0.68 against 0.66. A rate of 1/√s for a group of variance s lets the
weak directions catch up; their noise grows with it, and the gain is small. Left: test loss. Right: cosines of three
groups. Lines: exact limit. Points: runs, on the left with two standard errors.

    python examples/adam_power_law.py adam_power_law.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

PROBLEM = sl.Problem(
    loss=sl.Huber(1.0), penalty=sl.Ridge(0.001), sample_ratio=4.0, teacher=sl.Rademacher(1.0), noise=sl.Normal(0.2),
    data=sl.PowerLaw(exponent=2.0, source=0.3, groups=8),
)  # fmt: skip
BATCH, SAMPLES = 2, 24.0
"""Size of a batch; samples a dimension that each algorithm reads in all."""
ADAM = sl.SGD(0.5, batch_size=BATCH, step=sl.Step(rate=sl.Adam(0.12)))
ALGORITHMS = {"SGD, τ = 0.4": sl.SGD(0.4, batch_size=BATCH), "Adam": ADAM}
OTHERS = {f"SGD, τ = {tau:g}": sl.SGD(tau, batch_size=BATCH) for tau in (0.2, 0.8)}
READ, DIM, TRIALS = np.append(0.0, SAMPLES * np.geomspace(0.01, 1.0, 19)), 1000, 8
GROUPS = (0, 3, 7)


def cosine(result: sl.Solution | sl.Runs) -> Any:
    """Overlap with the teacher over the product of the two lengths, group by group: (times, groups)."""
    table = PROBLEM.data.table()
    overlap, norm = (result.curve(name)[0].reshape(len(result.time), -1)
                     for name in ("overlap_by_group", "norm_by_group"))  # fmt: skip
    return overlap / np.maximum(table.factor * np.sqrt(norm), 1e-12)


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    reports, variance = {}, PROBLEM.data.table().variance
    for (name, algorithm), colour, marker, dash in zip(ALGORITHMS.items(), COLOURS, MARKERS, ("--", "-"), strict=False):
        tau = algorithm.temperature  # a run reads d/τ samples a unit of time
        theory = sl.solve(PROBLEM, algorithm, times=READ * tau, dt=0.04, samples=32768)
        runs = sl.simulate(PROBLEM, algorithm, dim=DIM, trials=TRIALS, times=READ[1::3] * tau)
        reports[name] = sl.compare(theory, runs)
        print(name, reports[name], theory.status, sep="\n")
        mean, error = runs.curve("test_loss")
        left.plot(READ[1:], theory["test_loss"][1:], color=colour, ls=dash, label=name)
        left.errorbar(READ[1::3], mean, 2 * error, color=colour, marker=marker, ms=4, ls="")
        lines, points = cosine(theory), cosine(runs)
        for group, shade in zip(GROUPS, COLOURS[2:], strict=False):
            right.plot(READ[1:], lines[1:, group], color=shade, ls=dash)
            right.plot(READ[1::3], points[:, group], color=shade, marker=marker, ms=4, ls="")
        for read in (-6, -1):
            print(
                f"{name}: after {READ[read]:.1f} samples a dimension test loss {theory['test_loss'][read]:.4f} ± "
                f"{theory.curve('test_loss')[1][read]:.4f}, cosines {lines[read].round(3)}"
            )
    for (name, algorithm), shade in zip(OTHERS.items(), ("0.7", "0.5"), strict=True):
        theory = sl.solve(PROBLEM, algorithm, times=READ * algorithm.temperature, dt=0.04, samples=32768)
        left.plot(READ[1:], theory["test_loss"][1:], color=shade, ls="--", lw=1, label=name)
        print(f"{name}: test loss {theory['test_loss'][-1]:.4f} ± {theory.curve('test_loss')[1][-1]:.4f}")
    for group, shade in zip(GROUPS, COLOURS[2:], strict=False):
        right.plot([], [], color=shade, label=f"$s$ = {variance[group]:.2g}")
    left.set(yscale="log", ylabel="test loss")
    left.set_yticks([0.03, 0.1, 0.3], ["0.03", "0.1", "0.3"])
    left.set_title(f"points: runs, $d = {DIM}$; lines: the limit", loc="left", fontsize="medium")
    right.set(ylabel="cosine with the teacher", ylim=(0, 1.02))
    right.set_title("solid: Adam; dashed: SGD, τ = 0.4", loc="left", fontsize="medium")
    left.legend(frameon=False, fontsize="small")
    right.legend(frameon=False, fontsize="small", title="variance of the group", title_fontsize="small")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="samples read, a dimension")
        ax.set_xticks([0.3, 1, 3, 10], ["0.3", "1", "3", "10"])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "adam_power_law.png")
