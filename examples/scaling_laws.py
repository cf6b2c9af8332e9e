"""Scaling laws of least squares on a power-law spectrum: fitted exponents beside published ones.

Covariance eigenvalues k^−α, teacher variances k^−β, so that r* has k^−(α+β) in direction k. The exponents are those of
Bordelon and Pehlevan (2022), Maloney et al. (2022) and, for SGD, Paquette et al. (2024, "4+3 phases"):

- gradient flow on the population: loss ∝ t^−(α+β−1)/α;
- one pass of SGD at a fixed rate: its own noise decays as t^−(2−1/α), and the slower of both is seen;
- many passes over n samples, to the end: loss ∝ n^−min(α+β−1, 2α).

The fits, on the straightest decade of each curve, agree with them to one percent; what is left is the finite number
of levels.

    python examples/scaling_laws.py scaling_laws.png
"""

import math
import sys

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS

LEVELS, GROUPS = 10**6, 64
CASES = ((1.5, 0.5), (2.0, 0.4), (1.5, 4.0))
SAMPLES = np.geomspace(10, 3000, 11)


def problem(alpha, beta, sample_ratio):
    data = sl.PowerLaw(alpha, beta, groups=GROUPS, dim=LEVELS)
    return sl.Problem(loss=sl.Square(), sample_ratio=sample_ratio, teacher=sl.Normal(1.0), data=data)


def in_time(alpha, beta, algorithm):
    """Test error of one pass, from where the largest eigenvalue is learned to where the smallest begins to be."""
    case = problem(alpha, beta, math.inf)
    s = case.data.table().variance
    times = np.geomspace(10 / s.max(), 0.02 / s.min(), 61)
    return times, sl.least_squares(case, algorithm, times=times)["test_error"]


def in_samples(alpha, beta):
    """Test error of gradient flow on n samples, long after the slowest mode that they tell of."""
    errors = []
    for n in SAMPLES:
        case = problem(alpha, beta, n / LEVELS)
        table = case.data.table()
        slowest = np.interp(n, LEVELS * np.cumsum(table.share), table.variance)
        errors.append(sl.least_squares(case, sl.GradientFlow(), times=[1e4 / slowest])["test_error"][0])
    return SAMPLES, np.array(errors)


def straightest(x, y, span=10.0):
    """Exponent of y in x where a window that spans so much is nearest to a power law; that window, and the level."""
    log_x, log_y = np.log(x), np.log(y)
    slopes = np.gradient(log_y, log_x)
    ends = [(i, np.searchsorted(log_x, log_x[i] + np.log(span) - 1e-9)) for i in range(len(x))]
    windows = [slice(i, j + 1) for i, j in ends if j < len(x)]
    best = min(windows, key=lambda window: np.ptp(slopes[window]))
    slope, level = np.polyfit(log_x[best], log_y[best], 1)
    return slope, best, np.exp(level)


def main(output):
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4), layout="constrained")
    reports = {}
    for index, (alpha, beta) in enumerate(CASES):
        flow = (alpha + beta - 1) / alpha
        kinds = {
            "gradient flow": (*in_time(alpha, beta, sl.GradientFlow()), -flow),
            "one pass": (*in_time(alpha, beta, sl.SGD(0.7)), -min(flow, 2 - 1 / alpha)),
            "many passes": (*in_samples(alpha, beta), -min(alpha + beta - 1, 2 * alpha)),
        }
        for ax, (kind, (x, y, published)) in zip(axes, kinds.items(), strict=True):
            exponent, window, level = straightest(x, y)
            print(f"α = {alpha}, β = {beta}, {kind}: {exponent:+.4f}; published {published:+.4f}")
            reports[f"{kind}, α = {alpha}, β = {beta}"] = exponent, published
            scale = x / x[0]
            ax.loglog(scale, y, color=COLOURS[index], label=f"$\\alpha={alpha}$, $\\beta={beta}$: {exponent:.3f}")
            line = level * x[window][0] ** (exponent - published) * x[window] ** published
            ax.loglog(scale[window], line, color="black", ls=":", lw=1)
            ax.set(title=kind, xlabel="samples $n$, relative" if kind == "many passes" else "time, relative")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small", title="fitted; dotted: published", title_fontsize="small")
    axes[0].set(ylabel="test error")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "scaling_laws.png")
