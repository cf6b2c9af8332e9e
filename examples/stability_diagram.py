"""How hot may SGD run? The largest stable temperature against δ, for the square and for the logistic loss.

λ = 0.1, noise of standard deviation 0.5. Left, square loss, exact: above a temperature that is known (dashed) the noise
feeds on itself and the loss grows without bound; the boundary of the points that diverged lies around it. Long before
that training is useless: above the other line the training loss at t = 6 is above that of the start. Right, logistic
loss, `sl.solve`: its gradients are bounded, nothing diverges, and what remains is the second line, train loss = log 2.

    python examples/stability_diagram.py stability_diagram.png
"""

import math
import sys

import matplotlib.pyplot as plt
import numpy as np
import xarray

import sgdlimit as sl
from sgdlimit.exact.stability import largest_stable

RIDGE, NOISE, T_MAX, DIM, TRIALS = 0.1, 0.5, 6.0, 600, 20
COMMON = {"penalty": sl.Ridge(RIDGE), "sample_ratio": 2.0, "teacher": sl.Normal(1.0), "noise": sl.Normal(NOISE)}
SQUARE = sl.Problem(loss=sl.Square(), **COMMON)
LOGISTIC = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), **COMMON)
START = {"square": (1 + NOISE**2) / 2, "logistic": math.log(2)}  # loss of θ = 0


def told(title, line):
    print(title)
    for ratio, row in line.to_dataframe().iterrows():
        error = math.hypot(row["temperature_stderr"], row["temperature_interpolation_error"])
        print(f"  δ = {ratio:<6.3g} τ = {row['temperature']:.3g} ± {error:.2g} {row['reason']}")


def main(output):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.6), layout="constrained")
    over = {"sample_ratio": np.geomspace(0.25, 8.0, 13), "temperature": np.linspace(1.0, 3.0, 21)}
    square = sl.sweep(SQUARE, sl.SGF(1.0), over=over, kind="least_squares", t_max=T_MAX)
    unstable = sl.critical_line(square, "status", "diverged", along="temperature")
    useless = sl.critical_line(square, "train_loss", START["square"], along="temperature")
    exact = [largest_stable(SQUARE, ratio) for ratio in over["sample_ratio"]]
    known = xarray.Dataset({"temperature": ("sample_ratio", exact)}, unstable.coords, {"along": "temperature"})
    lines = {"no better than the start": useless, "boundary of divergence": unstable, "largest stable, exact": known}
    sl.plot.phase_diagram(square, "train_loss", axes=left, lines=lines, contours=0)
    told("square loss, boundary of divergence", unstable)
    print("  exact: " + ", ".join(f"{limit:.3g}" for limit in exact))
    told("square loss, no better than the start", useless)

    hotter = {"sample_ratio": np.geomspace(0.5, 8.0, 6), "temperature": np.geomspace(2.0, 32.0, 7)}
    logistic = sl.sweep(LOGISTIC, sl.SGF(1.0), over=hotter, t_max=T_MAX, tol=5e-2, variables=["train_loss"])
    line = sl.critical_line(logistic, "train_loss", START["logistic"], along="temperature")
    sl.plot.phase_diagram(logistic, "train_loss", axes=right, lines={"no better than the start": line})
    told("logistic loss, no better than the start", line)

    times = np.linspace(0.0, T_MAX, 7)
    reports = {}
    theory = sl.least_squares(SQUARE, sl.SGF(1.2), times=times)
    runs = sl.simulate(SQUARE, sl.SGF(1.2), dim=DIM, trials=TRIALS, times=times[1:])
    reports["square, τ = 1.2"] = sl.compare(theory, runs, ["train_loss", "test_loss"])
    theory = sl.solve(LOGISTIC, sl.SGF(8.0), times=times, tol=3e-2, variables=["train_loss", "test_loss"])
    runs = sl.simulate(LOGISTIC, sl.SGF(8.0), dim=DIM, trials=TRIALS, times=times[1:])
    reports["logistic, τ = 8"] = sl.compare(theory, runs, ["train_loss", "test_loss"])
    for label, report in reports.items():
        print(f"{label}\n{report}\n")
    for ax, title in ((left, "square loss"), (right, "logistic loss")):
        ax.text(0.02, 0.03, title, transform=ax.transAxes, color="white", fontsize="medium")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "stability_diagram.png")
