"""Private learning: what does differential privacy cost, and how many samples pay for it?

Logistic regression by gradient descent, every sample's gradient clipped at C = 0.5, with Gaussian noise σ on every
step. Noise σ = C√t/(δμ) makes all that is published up to time t μ-Gaussian private, whatever the step: a step of
length γ is C√γ/(δσ)-private, and squares add up. At μ = 1, which is ε = 4.4 at a failure probability of 1e-5, the
test error is above that without privacy by 0.10 at δ = 1, by 0.029 at δ = 4 and by 0.004 at δ = 16: the price falls
almost as δ^−2, faster than the error itself, which goes from 0.27 to 0.10. Left: test error. Right: the price. Lines:
exact limit. Points on the left: gradient descent, mean and two standard errors.

    python examples/private_sgd.py private_sgd.png
"""

import dataclasses
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

RATIOS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
SHOWN = (1.0, 4.0, 16.0)
"""Where runs are made beside the theory."""
PRIVACY = (0.5, 1.0, 2.0)
"""μ of Gaussian differential privacy: smaller is more private."""
CLIP, T_MAX, DT, DIM, TRIALS = 0.5, 4.0, 0.1, 500, 10
PROBLEM = sl.Problem(
    loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.05), sample_ratio=1.0, teacher=sl.Normal(1.0),
    noise=sl.Normal(0.2),
)  # fmt: skip


def private(ratio: float, mu: float) -> sl.ProportionalSGD:
    """Gradients clipped at C, and the noise that makes the whole run μ-private, σ = C√t/(δμ); none for μ = ∞."""
    return sl.ProportionalSGD(1.0, step=sl.Step(clip=CLIP, gradient_noise=CLIP * np.sqrt(T_MAX) / (ratio * mu)))


def epsilon(mu: float, failure: float = 1e-5) -> float:
    """ε of (ε, δ)-differential privacy that a μ-private run has at this probability of failure δ."""

    def excess(e: float) -> float:
        return float(norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu)) - failure

    return float(brentq(excess, 0.0, 100.0))  # type: ignore[arg-type]


def main(output: Any) -> dict[str, sl.Report]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")
    reports, free = {}, np.zeros(len(RATIOS))
    for mu, colour, marker in zip((np.inf, *PRIVACY), COLOURS, MARKERS, strict=False):
        ends, points = [], []
        for ratio in RATIOS:
            problem, algorithm = dataclasses.replace(PROBLEM, sample_ratio=ratio), private(ratio, mu)
            theory = sl.solve(problem, algorithm, t_max=T_MAX, dt=DT, samples=8192)
            ends.append(theory["test_error"][-1])
            if ratio in SHOWN:
                runs = sl.simulate(problem, algorithm, dim=DIM, trials=TRIALS, times=[0.0, T_MAX], dt=DT)
                reports[f"δ = {ratio:g}, μ = {mu:g}"] = report = sl.compare(theory, runs)
                print(f"δ = {ratio:g}, μ = {mu:g}", report, sep="\n")
                points.append((ratio, *(part[-1] for part in runs.curve("test_error"))))
        free = np.array(ends) if np.isinf(mu) else free
        told = "not private" if np.isinf(mu) else f"$\\mu = {mu:g}$  ($\\varepsilon$ = {epsilon(mu):.1f})"
        left.plot(RATIOS, ends, color=colour, label=told)
        left.errorbar(*np.array(points).T[:2], 2 * np.array(points)[:, 2], color=colour, fmt=marker, ms=4)
        price = np.array(ends) - free
        print(f"μ = {mu:g}, {told}: test error {np.round(ends, 4)}, price {price.round(4)}\n")
        if np.isfinite(mu):
            right.plot(RATIOS, price, color=colour, label=told)
    right.plot(RATIOS[2:], 0.08 * RATIOS[2:] ** -2.0, color="grey", ls=":", label="$\\delta^{-2}$")
    left.set(ylabel="test error", ylim=(0, 0.5))
    left.set_title(f"points: gradient descent, $d = {DIM}$; lines: the limit", loc="left", fontsize="medium")
    right.set(ylabel="price: test error above the one without privacy", yscale="log")
    for ax in (left, right):
        ax.set(xlabel="samples a dimension  $\\delta$", xscale="log")
        ax.set_xticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS])
        ax.minorticks_off()
        ax.legend(frameon=False, fontsize="small")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "private_sgd.png")
