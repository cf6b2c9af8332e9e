"""When to stop, and what that gives: least squares on noisy labels over samples and temperature.

λ = 0, label noise of variance 0.25; exact limit, 16 × 15 points up to t = 64. Left: the time at which the test error is
lowest; it grows with δ, from 0.52 to 5.4 at the lowest temperature, and with τ. Right: the test error there. With few
samples the noise of SGD costs little (δ = 1/4: from 1.062 at τ = 0.1 to 1.075 at 0.8), with many it does (δ = 8: from
0.296 to 0.431). Above the line the best time gains less than 1 % on not training at all; at δ = 8 that is τ = 1.62 ±
0.04, well below the largest stable temperature, τ = 2. SGD at d = 800 agrees at three points.

    python examples/stopping_diagram.py stopping_diagram.png
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl

NOISE, T_MAX, DIM, TRIALS, BATCH = 0.5, 64.0, 800, 20, 8
OVER = {"sample_ratio": np.geomspace(0.25, 8.0, 16), "temperature": np.linspace(0.1, 2.06, 15)}
SIMULATED = ((0.5, 0.2), (2.0, 0.2), (2.0, 0.8))
START = 1 + NOISE**2  # test error of θ = 0


def regression(ratio):
    return sl.Problem(loss=sl.Square(), sample_ratio=ratio, teacher=sl.Normal(1.0), noise=sl.Normal(NOISE))


def main(output):
    times = sl.grid.geometric(T_MAX, first=0.05, points=49)
    diagram = sl.sweep(regression(1.0), sl.SGD(0.3), over=OVER, kind="least_squares", times=times)
    best = sl.best_time(diagram, "test_error")
    useless = sl.critical_line(best, "test_error", 0.99 * START, along="temperature")
    figure, axes = plt.subplots(1, 2, figsize=(10.4, 4.6), layout="constrained", sharey=True)
    sl.plot.phase_diagram(best, "best_time", log_value=True, axes=axes[0])
    sl.plot.phase_diagram(best, "test_error", lines={"above it stopping gains less than 1 %": useless}, axes=axes[1])
    axes[1].set_ylabel("")
    print(useless.to_dataframe()[["temperature", "temperature_interpolation_error", "reason"]].to_string(), "\n")

    reports = {}
    for ratio, tau in SIMULATED:
        algorithm = sl.SGD(tau, batch_size=BATCH)
        theory = sl.least_squares(regression(ratio), algorithm, times=times)
        runs = sl.simulate(regression(ratio), algorithm, dim=DIM, trials=TRIALS, times=np.geomspace(0.5, 16.0, 11))
        reports[f"δ = {ratio:g}, τ = {tau:g}"] = report = sl.compare(theory, runs, ["train_error", "test_error"])
        here = best.sel(sample_ratio=ratio, temperature=tau, method="nearest")
        stop = f"t = {float(here['best_time']):.2f} ± {float(here['best_time_interpolation_error']):.2f}"
        print(f"δ = {ratio:g}, τ = {tau:g}: the nearest point stops at {stop}\n{report}\n")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "stopping_diagram.png")
