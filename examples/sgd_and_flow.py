"""What does stochastic gradient flow miss of SGD? The gap between their training errors, along time and temperature.

SGF puts Gaussian noise in place of the draws of samples: mean and variance are right, the rest is not. For the square
loss no more enters, and the two agree; for the logistic loss (δ = 2, λ = 0.01, the paper's experiment) they do not.
Left: train error of SGD minus that of SGF, two laws of `sl.solve`, along time (lines, with bands of two standard
errors), and real SGD at two dimensions minus the law of SGF (points, open at d = 200). Right: the gap at t = 6
against τ.

SGF errs less than SGD. The gap is largest early on and shrinks with time: at τ = 4 from 0.045 at t = 1 to 0.030 at t
= 6. At t = 6 it is 0.0009 ± 0.0006 for τ = 0.5, 0.0028 ± 0.0008 for 1, 0.0085 ± 0.0009 for 2 and 0.0298 ± 0.0013 for
4. It is no effect of finite size: at τ = 4 runs have 0.032 ± 0.003 at d = 200 and 0.033 ± 0.003 at d = 800. The law
of SGD agrees with the runs at d = 800 at every τ; that of SGF is 10 sigmas away at τ = 4.

    python examples/sgd_and_flow.py sgd_and_flow.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

PROBLEM = sl.Problem(
    loss=sl.Logistic(),
    labels=sl.Sign(),
    penalty=sl.Ridge(0.01),
    sample_ratio=2.0,
    teacher=sl.Normal(1.0),
    noise=sl.Normal(0.1),
)
TEMPERATURES, T_MAX, BATCH = (0.5, 1.0, 2.0, 4.0), 6.0, 2
SIZES = {200: 40, 800: 16}  # dimension: trials


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.7), layout="constrained", width_ratios=(1.3, 1.0))
    times, reports, ends = np.linspace(0.0, T_MAX, 13), {}, []
    for tau, colour in zip(TEMPERATURES, COLOURS, strict=False):
        law, flow = (
            sl.solve(PROBLEM, algorithm, times=times, samples=2**18, dt=0.1) for algorithm in (sl.SGD(tau), sl.SGF(tau))
        )
        (value, error), (base, base_error) = law.curve("train_error"), flow.curve("train_error")
        gap, bar = value - base, np.hypot(error, base_error)
        left.plot(times[1:], gap[1:], color=colour, label=f"$\\tau$ = {tau:g}")
        left.fill_between(times[1:], (gap - 2 * bar)[1:], (gap + 2 * bar)[1:], color=colour, alpha=0.2, lw=0)
        ends.append([(gap[-1], bar[-1])])
        for (dim, trials), marker in zip(SIZES.items(), MARKERS, strict=False):
            runs = sl.simulate(PROBLEM, sl.SGD(tau, batch_size=BATCH), dim=dim, trials=trials, times=times[2::2])
            mean, spread = runs.curve("train_error")
            shown = {"fmt": marker, "ms": 4, "mfc": "white" if dim == min(SIZES) else colour}
            left.errorbar(runs.time, mean - base[2::2], 2 * spread, color=colour, **shown)
            ends[-1].append((mean[-1] - base[-1], np.hypot(spread[-1], base_error[-1])))
            if dim == max(SIZES):
                reports[f"τ = {tau:g}, law of SGD"] = sl.compare(law, runs, ["train_error", "test_error", "norm"])
                other = sl.compare(flow, runs, ["train_error"])
                print(f"τ = {tau:g}: law of SGD against runs\n{reports[f'τ = {tau:g}, law of SGD']}")
                print(f"    law of SGF against the same runs: {other.sigma:.1f} sigmas, p = {other.p_value:.2g}")
        print("    gap of the laws: " + ", ".join(f"{gap[i]:.3f} at t = {times[i]:g}" for i in (2, 6, 12)))
        laws, *runs = (f"{gap:.4f} ± {bar:.4f}" for gap, bar in ends[-1])
        sizes = ", ".join(f"{gap} at d = {dim}" for gap, dim in zip(runs, SIZES, strict=True))
        print(f"    train error, SGD − SGF at t = {T_MAX:g}: laws {laws}; runs {sizes}\n")
    found = np.array(ends)  # τ, (laws, runs at each size), (gap, error)
    names = ["the two laws", *(f"SGD, $d$ = {dim}" for dim in SIZES)]
    for index, (name, marker) in enumerate(zip(names, ("*", *MARKERS), strict=False)):
        place = np.array(TEMPERATURES) * 1.06 ** (index - 1)
        style = {"color": "black" if index == 0 else "0.45", "fmt": marker, "ms": 9 if index == 0 else 4}
        fill = {"mfc": "white"} if index == 1 else {}
        right.errorbar(place, found[:, index, 0], 2 * found[:, index, 1], label=name, capsize=2, **style, **fill)
    seen = np.flatnonzero(found[:, 0, 0] > 3 * found[:, 0, 1])
    power = np.polyfit(np.log(TEMPERATURES)[seen], np.log(found[seen, 0, 0]), 1)[0]
    print(f"from τ = {TEMPERATURES[seen[0]]:g} to {TEMPERATURES[-1]:g} the gap grows as τ^{power:.1f}")
    left.axhline(0.0, color="0.6", lw=0.8)
    left.set(xlabel="time  $t = \\eta k/d$", ylabel="train error, SGD − SGF", xlim=(0, None), ylim=(-0.006, 0.068))
    right.set(xlabel="temperature  $\\tau$", ylabel=f"the same at $t$ = {T_MAX:g}", xscale="log")
    right.set_yscale("symlog", linthresh=2e-3)
    right.axhline(0.0, color="0.6", lw=0.8)
    right.set_xticks(TEMPERATURES, [f"{tau:g}" for tau in TEMPERATURES])
    right.minorticks_off()
    left.legend(frameon=False, fontsize="small", title="lines: laws; points: SGD runs", title_fontsize="small", ncols=4)
    right.legend(frameon=False, fontsize="small", title="± 2 standard errors", title_fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sgd_and_flow.png")
