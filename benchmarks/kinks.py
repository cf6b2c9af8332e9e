"""Losses and penalties with kinks: the theory beside SGD itself at growing dimension.

    python benchmarks/kinks.py                              # d = 500, 1000, 2000
    python benchmarks/kinks.py hinge relu --dims 500 1000

One line a problem and dimension: p of one test over all curves, the largest z of each curve, and the mean difference of
each curve over its largest value, in percent, with its error.
"""

import argparse
import time
from typing import Any

import numpy as np

import sgdlimit as sl

NAMES = ("train_loss", "test_loss", "overlap", "norm")
SHARED: dict[str, Any] = {"sample_ratio": 1.5, "teacher": sl.Normal(1.0), "noise": sl.Normal(0.3)}
SPARSE: dict[str, Any] = SHARED | {"teacher": sl.SparseNormal(0.3, 1.5)}
RELU: dict[str, Any] = {"readout": (1.0, -0.5, 0.5)}
CASES = {
    "hinge": sl.Problem(loss=sl.Hinge(), labels=sl.Sign(), penalty=sl.Ridge(0.05), **SHARED),
    "absolute": sl.Problem(loss=sl.Absolute(), penalty=sl.Ridge(0.05), **SHARED),
    "quantile": sl.Problem(loss=sl.Quantile(0.8), penalty=sl.Ridge(0.05), **SHARED),
    "L1": sl.Problem(loss=sl.Square(), penalty=sl.L1(0.3), **SPARSE),
    "relu": sl.Problem(
        loss=sl.TwoLayer("relu", **RELU), labels=sl.TwoLayerLabels("relu", readout=(1.0, 0.5)), init=sl.Normal(0.5),
        width=3, teacher_width=2, **SHARED,
    ),
}  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case", help=", ".join(CASES))
    parser.add_argument("--dims", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--trials", type=int, default=16)
    args = parser.parse_args()
    times, algorithm = [1.0, 2.0, 4.0], sl.SGD(0.6, batch_size=2)
    for case in args.cases:
        begin = time.perf_counter()
        theory = sl.solve(CASES[case], algorithm, times=times, tol=5e-3, seed=1, progress=False)
        print(f"{case}: theory {time.perf_counter() - begin:.1f} s, {theory.status}", flush=True)
        for dim in args.dims:
            runs = sl.simulate(
                CASES[case], algorithm, dim=dim, trials=args.trials, times=times, seed=dim, progress=False
            )
            report, parts = sl.compare(theory, runs), []
            for name in NAMES:
                value, error = theory.curve(name)
                each = np.asarray(runs[name])
                gap, size = each.mean(axis=0) - value, np.max(np.abs(value))
                off = float(100 * np.sqrt(np.mean(gap**2)) / size)
                noise = float(100 * np.sqrt(np.mean(error**2 + each.var(axis=0, ddof=1) / len(each))) / size)
                parts.append(f"{name} {off:.2f} ± {noise:.2f} % (z {report[name].largest:.1f})")
            print(f"  d = {dim}: p = {report.p_value:.3f}; {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
