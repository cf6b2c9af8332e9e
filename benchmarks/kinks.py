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


Case = tuple[sl.Problem, sl.Algorithm, dict[str, Any]]
"""Problem, algorithm, and what else `solve` and `simulate` are told."""


def beside(cases: dict[str, Case], about: str | None, times: list[float]) -> None:
    """Print the table of the cases that the command line names."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(cases), metavar="case", help=", ".join(cases))
    parser.add_argument("--dims", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--tol", type=float, default=5e-3)
    args = parser.parse_args()
    for case in args.cases:
        problem, algorithm, words = cases[case]
        begin = time.perf_counter()
        theory = sl.solve(problem, algorithm, times=times, tol=args.tol, seed=1, progress=False, **words)
        print(f"{case}: theory {time.perf_counter() - begin:.1f} s, {theory.status} {theory.message}", flush=True)
        for dim in args.dims:
            runs = sl.simulate(
                problem, algorithm, dim=dim, trials=args.trials, times=times, seed=dim, progress=False, **words
            )
            pairs = {"": (theory, runs)} | {
                f"{name}.": (theory.averages[name], runs.averages[name]) for name in theory.averages
            }
            for name, (mine, other) in pairs.items():
                report = sl.compare(mine, other)
                parts = [line(mine, other, report, curve) for curve in report.variables]
                print(f"  {name}d = {dim}: p = {report.p_value:.3f}; {', '.join(parts)}", flush=True)


def line(theory: sl.Solution, runs: sl.Runs, report: sl.Report, name: str) -> str:
    """How far one curve is from the runs' mean, over its largest value, and the largest z."""
    value, error = theory.curve(name)
    each = np.asarray(runs[name])
    gap, size = each.mean(axis=0) - value, np.max(np.abs(value))
    off = float(100 * np.sqrt(np.mean(gap**2)) / size)
    noise = float(100 * np.sqrt(np.mean(error**2 + each.var(axis=0, ddof=1) / len(each))) / size)
    return f"{name} {off:.2f} ± {noise:.2f} % (z {report[name].largest:.1f})"


if __name__ == "__main__":
    beside({name: (p, sl.SGD(0.6, batch_size=2), {}) for name, p in CASES.items()}, __doc__, [1.0, 2.0, 4.0])
