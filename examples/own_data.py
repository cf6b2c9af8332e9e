"""Your own data, with the logistic loss: what the theory of Gaussian data says of two tables of scikit-learn.

Diabetes, above or below the median, and digits, threes against the rest; features standardised, rows scaled to norm
about 1. The tables are summed up by two Gaussian classes, with the eigenvalues of the population and the part of the
difference of means in each, estimated from the training rows; lines are the limit of such data, points SGD on the
tables themselves, mean ± 2 standard errors over its draws. Neither table is as the limit has it: their effective
ranks are 5 of 10 and 16 of 52, threes and the rest do not have one covariance, rows differ in length; a warning says
so, `sl.model_of_data` in numbers. The train loss is off by less than 1 % all the same. The test loss of a table
is that of its 133 or 540 rows, the prediction one over fresh rows: some percent of standard error, which is printed.

    python examples/own_data.py own_data.png
"""

import sys
import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split

import sgdlimit as sl
from sgdlimit.plot import COLOURS

WORDS: dict[str, Any] = {"loss": sl.Logistic(), "penalty": sl.Ridge(0.1), "bias": True}
ALGORITHM, TRIALS, TIMES = sl.SGD(temperature=0.1), 20, np.linspace(0.0, 8.0, 17)
TABLES = {"diabetes, above the median": load_diabetes, "digits, threes against the rest": load_digits}


def prepare(load: Any) -> tuple[np.ndarray, ...]:
    """Train and test parts, scaled by what is known from the training part."""
    X, y = load(return_X_y=True)
    y = np.where(y > np.median(y) if load is load_diabetes else y == 3, 1.0, -1.0)
    X, X_test, y, y_test = map(np.asarray, train_test_split(X, y, test_size=0.3, random_state=0))
    keep = X.std(axis=0) > 0.1 * X.std()  # pixels that hardly ever change
    X, X_test = X[:, keep], X_test[:, keep]
    centre, spread = X.mean(axis=0), X.std(axis=0)
    X, X_test = (X - centre) / spread, (X_test - centre) / spread
    size = np.sqrt(np.mean(np.sum(X**2, axis=1)))
    return X / size, y, X_test / size, y_test


def spread_of_test(runs: sl.Runs, X: np.ndarray, y: np.ndarray) -> float:
    """Standard error of the last test loss over test sets of this size, by the weights that SGD ended with."""
    theta, beta = runs["theta"][0, 0, :, 0], runs["intercept"][0, -1, 0]
    loss = np.logaddexp(0.0, -y * (X @ theta + beta))
    return float(loss.std() / np.sqrt(len(y)))


def main(output: Any) -> dict[str, sl.Report]:
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")
    reports = {}
    for ax, (name, load) in zip(axes, TABLES.items(), strict=True):
        X, y, X_test, y_test = prepare(load)
        words: dict[str, Any] = WORDS | {"X_test": X_test, "y_test": y_test}
        runs = sl.simulate_on_data(X, y, ALGORITHM, times=TIMES, trials=TRIALS, **words)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sl.UnreliableWarning)  # printed below
            theory = sl.solve_on_data(X, y, ALGORITHM, times=runs.time, samples=65536, **words)
        print(f"{name}: {sl.model_of_data(X, y, **words)}")
        reports[name] = sl.compare(theory, runs, ["train_loss", "test_loss"])
        for curve, colour in zip(("train_loss", "test_loss"), COLOURS, strict=False):
            value, (mean, error) = theory.curve(curve)[0], runs.curve(curve)
            ax.plot(runs.time, value, color=colour, label=curve.replace("_", " "))
            ax.errorbar(runs.time, mean, 2 * error, color=colour, marker="o", ms=3.5, ls="")
            print(f"  {curve}: off by at most {np.max(np.abs(value / mean - 1)):.4f}")
        share = spread_of_test(runs, X_test, y_test) / runs.curve("test_loss")[0][-1]
        print(f"  standard error of the test loss over test sets of {len(y_test)}: {share:.4f}")
        ax.set_title(f"{name}: {X.shape[0]} samples, {X.shape[1]} features", loc="left", fontsize="small")
        ax.set(xlabel="time  $t$", ylabel="logistic loss")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")
    figure.savefig(output, dpi=150)
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "own_data.png")
