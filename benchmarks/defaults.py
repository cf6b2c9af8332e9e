"""What a default call costs: seconds of the first and of a second call, how it ended, and what it knows.

    python benchmarks/defaults.py                   # all of them
    python benchmarks/defaults.py erf tanh --seeds 3
    PYTHONPATH=path/to/other/src python benchmarks/defaults.py erf      # another version, beside it

The first call compiles what no cache holds; the others have new seeds, and compile only sizes that are new.
"""

import argparse
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgdlimit as sl

NAMES = ("train_loss", "test_loss", "train_error", "test_error", "overlap", "norm")
erf = jax.scipy.special.erf


def network(activation: Any, width: int, **more: Any) -> sl.Problem:
    """A network with a teacher of two units, from a random start."""
    loss = sl.TwoLayer(activation, **more)
    return sl.Problem(
        loss=loss, labels=sl.TwoLayerLabels(activation), sample_ratio=2.0, teacher=sl.Normal(1.0),
        init=sl.Normal(0.5), width=width, teacher_width=2,
    )  # fmt: skip


PAPER = sl.Problem(
    loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.01), sample_ratio=2.0, teacher=sl.Normal(1.0),
    noise=sl.Normal(0.1),
)  # fmt: skip
STUDENT = sl.Problem(
    loss=sl.Loss(lambda r, y: 2 * jnp.log1p((y - r) ** 2 / 0.75)), penalty=sl.Ridge(0.05), sample_ratio=2.0,
    teacher=sl.Normal(1.0), noise=sl.Normal(0.5),
)  # fmt: skip
HOT = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
CASES: dict[str, tuple[sl.Problem, float, float, float]] = {
    "logistic": (PAPER, 0.4, 10.0, 1e-2),
    "erf": (network(erf, 2), 0.5, 10.0, 1e-2),
    "tanh": (network(jnp.tanh, 3), 0.5, 8.0, 1e-2),
    "student": (STUDENT, 0.3, 8.0, 1e-2),
    "wide": (network(jnp.tanh, 8, readout=8**-0.5), 0.5, 6.0, 3e-2),
    "hot": (HOT, 1.8, 10.0, 1e-2),
}
"""Problem, temperature of SGD, t_max and tolerance."""


def known(solution: sl.Solution) -> str:
    """The largest total error of every curve, in percent of its largest value."""
    parts = []
    for name in NAMES:
        value, error = solution.curve(name)
        parts.append(f"{name} {100 * np.max(error) / np.max(np.abs(value)):.2g}")
    return ", ".join(parts)


def main() -> None:
    """Run the calls that are named, and print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for case in args.cases:
        problem, temperature, t_max, tol = CASES[case]
        for seed in range(args.seeds):
            begin = time.perf_counter()
            solution = sl.solve(problem, sl.SGD(temperature), t_max=t_max, tol=tol, seed=seed, progress=False)
            took = time.perf_counter() - begin
            print(f"{case:9} seed {seed}: {took:6.2f} s, {solution.status}; errors in %: {known(solution)}", flush=True)


if __name__ == "__main__":
    main()
