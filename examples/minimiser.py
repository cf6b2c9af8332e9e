"""Where does training end? Logistic regression at long times, against the minimiser that scikit-learn finds.

F(θ) = (1/n) Σ log(1 + e^{−y r}) + (1/d) Σ ½λθ² has one minimiser. scikit-learn minimises ½|θ|² + C Σ log(1 + e^{−y
r}), which is the same for C = d/(nλ) = 1/(δλ). δ = 2, labels sign(r* + z), noise ½. Left: test loss along time of
gradient flow (solid) and of SGD at τ = 0.5 (dashed), both from `sl.solve`; points at the end: scikit-learn at d =
600, mean of 20 data sets. Right: norm and overlap at the end against λ.

Gradient flow ends where scikit-learn does: at λ = 0.1, 0.3 and 1 with test losses 0.511, 0.550 and 0.614
(scikit-learn: 0.5145 ± 0.0016, 0.5521 ± 0.0009, 0.6150 ± 0.0005), norms and overlaps within 0.7 %. SGD at a constant
learning rate does not get there: its noise keeps it at 0.518, 0.556 and 0.618.

    python examples/minimiser.py minimiser.png
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS
from sgdlimit.results import Variable

RATIO, NOISE, TEMPERATURE, T_MAX, DIM, DATA_SETS = 2.0, 0.5, 0.5, 60.0, 600, 20
STRENGTHS = (0.1, 0.3, 1.0)
COMPARED = ("train_loss", "test_loss", "overlap", "norm")


def problem(strength: float) -> sl.Problem:
    return sl.Problem(
        loss=sl.Logistic(),
        labels=sl.Sign(),
        penalty=sl.Ridge(strength),
        sample_ratio=RATIO,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(NOISE),
    )


def minimisers(strength: float) -> sl.Runs:
    """scikit-learn on fresh data sets, as runs that are recorded once, at the end."""
    rng, found = np.random.default_rng(0), {name: [] for name in COMPARED}
    for _ in range(DATA_SETS):
        theta_star = rng.normal(size=DIM)
        X, X_test = (rng.normal(size=(count, DIM)) / np.sqrt(DIM) for count in (round(RATIO * DIM), 8 * DIM))
        y, y_test = (np.sign(rows @ theta_star + NOISE * rng.normal(size=len(rows))) for rows in (X, X_test))
        model = LogisticRegression(C=1 / (RATIO * strength), fit_intercept=False, tol=1e-8, max_iter=1000).fit(X, y)
        theta = model.coef_[0]
        found["train_loss"].append(np.mean(np.logaddexp(0, -y * (X @ theta))))
        found["test_loss"].append(np.mean(np.logaddexp(0, -y_test * (X_test @ theta))))
        found["overlap"].append([[theta @ theta_star / DIM]])
        found["norm"].append([[theta @ theta / DIM]])
    axes = {"overlap": ("student", "teacher"), "norm": ("student", "student_")}
    values = {n: Variable(("trial", "time", *axes.get(n, ())), np.array(v)[:, None]) for n, v in found.items()}
    return sl.Runs(values, {"trial": np.arange(DATA_SETS), "time": np.array([T_MAX])})


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.7), layout="constrained", width_ratios=(1.4, 1.0))
    times, reports, ends = sl.grid.geometric(T_MAX, first=0.1, points=33), {}, []
    for strength, colour in zip(STRENGTHS, COLOURS, strict=False):
        flow = sl.solve(problem(strength), sl.GradientFlow(), times=times, samples=16384)
        sgd = sl.solve(problem(strength), sl.SGD(TEMPERATURE), times=times, samples=16384)
        fitted = minimisers(strength)
        reports[f"λ = {strength:g}"] = report = sl.compare(flow, fitted, COMPARED)
        print(f"λ = {strength:g}, C = {1 / (RATIO * strength):g}\n{report}")
        left.plot(times[1:], flow["test_loss"][1:], color=colour, label=f"$\\lambda$ = {strength:g}")
        left.plot(times[1:], sgd["test_loss"][1:], color=colour, ls="--")
        mean, error = (part[-1] for part in fitted.curve("test_loss"))
        left.errorbar(1.25 * T_MAX, mean, 2 * error, color=colour, fmt="o", ms=5, capsize=3)
        limits = f"flow {flow['test_loss'][-1]:.4f}, SGD {sgd['test_loss'][-1]:.4f}"
        print(f"    test loss at the end: {limits}, scikit-learn {mean:.4f} ± {error:.4f}")
        ends.append((flow, fitted))
        off = (f"{name} {100 * report[name].relative:.2g} %" for name in ("norm", "overlap"))
        print(f"    largest relative difference: {', '.join(off)}\n")
    for name, colour, marker in zip(("norm", "overlap"), COLOURS, MARKERS, strict=False):
        right.plot(STRENGTHS, [flow[name][-1, 0, 0] for flow, _ in ends], color=colour, label=name)
        pairs = np.array([[part[-1, 0, 0] for part in fitted.curve(name)] for _, fitted in ends])
        right.errorbar(STRENGTHS, pairs[:, 0], 2 * pairs[:, 1], color=colour, fmt=marker, ms=5, capsize=3)
    left.plot([], [], color="0.3", label="gradient flow")
    left.plot([], [], color="0.3", ls="--", label=f"SGD, $\\tau$ = {TEMPERATURE:g}")
    left.errorbar([], [], [], color="0.3", fmt="o", ms=5, capsize=3, label=f"scikit-learn, $d$ = {DIM}, ± 2 s.e.")
    left.set(xscale="log", xlabel="time  $t = \\eta k/d$", ylabel="test loss", ylim=(0.48, 0.78))
    right.set(
        xscale="log", yscale="log", xlabel="ridge  $\\lambda = 1/\\delta C$", ylabel="at the end: lines, the limit"
    )
    left.legend(frameon=False, fontsize="small", ncols=2)
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "minimiser.png")
