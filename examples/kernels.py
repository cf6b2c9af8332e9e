"""What does SGD remember? Two-time kernels of logistic regression.

C_θ(t, t') is the overlap of the weights at two times, R_θ(t, t') the answer of a weight at time t to a push at t', R_ℓ
the answer of a sample's force to a push of its pre-activation. Heat maps: the exact limit. Right: C_θ against SGD,
θ(t)·θ(t')/d at all pairs of kept times (mean and standard error over trials).

C_θ agrees at all 28 pairs of times (max |z| = 2.8). The response is not a function of t − t' alone: a push at time 0
has shrunk to R_θ(2, 0) = 0.64 after two units of time, one at time 4 only to R_θ(6, 4) = 0.72, because the loss
flattens as margins grow. R_ℓ(0, 0) = −1/(16δ) = −1/32, since every sample has curvature ¼ at θ⁰ = 0.

    python examples/kernels.py kernels.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

T_MAX, DIM, TRIALS = 6.0, 800, 20
KEPT = np.arange(0.0, 7.0)
SHOWN = (1, 3, 6)
SYMBOLS = {"C_theta": "$C_\\theta$", "R_theta": "$R_\\theta$", "R_ell": "$R_\\ell$"}
ALGORITHM = sl.SGD(temperature=0.5, batch_size=4)
PROBLEM = sl.Problem(
    loss=sl.Logistic(),
    labels=sl.Sign(),
    penalty=sl.Ridge(0.02),
    sample_ratio=2.0,
    teacher=sl.Normal(1.0),
    noise=sl.Normal(0.1),
)


def main(output: Any) -> dict[str, sl.Report]:
    theory = sl.solve(PROBLEM, ALGORITHM, t_max=T_MAX, dt=0.05, samples=24576, kernels=True)
    runs = sl.simulate(PROBLEM, ALGORITHM, dim=DIM, trials=TRIALS, times=np.linspace(0.0, T_MAX, 11), snapshots=KEPT)
    report = sl.compare(theory, runs)
    print(report)

    theta = runs["theta"][..., 0]
    overlaps = theta @ theta.swapaxes(1, 2) / theta.shape[-1]  # (trial, snapshot, snapshot)
    mean, error = overlaps.mean(axis=0), overlaps.std(axis=0, ddof=1) / np.sqrt(len(overlaps))
    at = np.searchsorted(theory.time, KEPT - 1e-9)
    value, doubt = (part[np.ix_(at, at)][..., 0, 0] for part in theory.curve("C_theta"))
    pairs = np.tril_indices(len(KEPT))
    z = ((mean - value) / np.sqrt(error**2 + doubt**2 + (1e-5 * value.max()) ** 2))[pairs]
    print(f"C_theta at {z.size} pairs of times: max |z| = {np.abs(z).max():.2f}, rms z = {np.sqrt(np.mean(z**2)):.2f}")
    for start in (0, 4):
        print(f"R_theta({start + 2}, {start}) = {theory['R_theta'][at[start + 2], at[start], 0, 0]:.3f}")
    print(f"R_ell(0, 0) = {theory['R_ell'][0, 0, 0, 0]:.5f}")

    figure, axes = plt.subplots(2, 2, figsize=(8.4, 6.6), layout="constrained")
    axes = axes.ravel()
    for ax, name in zip(axes, ("C_theta", "R_theta", "R_ell"), strict=False):
        kernel = theory.dataset[name].isel(student=0, student_=0)
        shown = kernel.where((kernel.earlier <= kernel.time) | (name == "C_theta"))
        shown.plot.pcolormesh(ax=ax, x="earlier", add_labels=False)
        ax.set(xlabel="earlier time  $t'$", ylabel="time  $t$", title=SYMBOLS[name])
    for i, colour, marker in zip(SHOWN, COLOURS, MARKERS, strict=False):
        axes[3].plot(theory.time, theory["C_theta"][at[i], :, 0, 0], color=colour, label=f"$t$ = {KEPT[i]:g}")
        axes[3].errorbar(KEPT, mean[i], error[i], color=colour, marker=marker, ms=4, ls="")
    axes[3].plot([], [], color="grey", marker="o", ms=4, ls="", label=f"SGD, $d$ = {DIM}, {TRIALS} trials")
    axes[3].set(xlabel="other time  $t'$", ylabel="$C_\\theta(t, t')$", ylim=(-0.1, 2.9))
    axes[3].legend(frameon=False, fontsize="small")
    axes[3].spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return {"logistic regression": report}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "kernels.png")
