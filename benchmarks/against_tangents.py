"""The response by regression beside exact tangents of every sample: means, spread and bias, on the same random numbers.

    python benchmarks/against_tangents.py                      # every case, 40 replicas of 1024 samples and unit
    python benchmarks/against_tangents.py committee momentum --samples 512 2048

Both march on one grid of the same steps. z: the mean difference of the replicas over its standard error, the largest of
losses, overlap and norm at four times. Bias: that difference over the largest value of the curve. Variance: that of the
tangents over that of the regression, the geometric mean over these times; above one the regression knows more.
"""

import argparse
import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from coverage import CASES as HARD
from coverage import COVERED, logistic

import sgdlimit as sl

NAMES = ("train_loss", "test_loss", "overlap", "norm")
MIXTURE = sl.Problem(
    loss=sl.Logistic(), labels=sl.ByClass([1.0, -1.0]), penalty=sl.Ridge(0.1), sample_ratio=2.0,
    data=sl.Mixture([1.0, -0.5], weights=[0.3, 0.7]), bias=True,
)  # fmt: skip
MOMENTUM = sl.Problem(
    loss=sl.VectorField(
        lambda r, r_star, z: jnp.stack([0.0 * r[0], r[0] - r_star - z]), loss=lambda r, y: 0.5 * (r[0] - y) ** 2
    ),
    penalty=sl.VectorField(lambda theta: jnp.stack([-theta[1], 0.1 * theta[0] + theta[1]])),
    sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5), width=2, teacher_width=1,
)  # fmt: skip
LAWS = [
    sl.GradientFlow(), sl.SGF(0.6), sl.SGD(0.6), sl.ShuffledSGD(0.6), sl.ProportionalSGD(0.3),
    sl.PersistentSGD(0.3, correlation_time=1.0),
]  # fmt: skip
CASES: dict[str, tuple[sl.Problem, Any, float]] = {name: HARD[name] for name in COVERED}
CASES |= {type(law).__name__: (logistic(), law, 4.0) for law in LAWS}
CASES |= {
    "momentum": (MOMENTUM, sl.SGF(0.3), 4.0),
    "groups": (logistic(data=sl.Spectrum([3.0, 0.5], [0.2, 0.8])), sl.SGD(0.4), 4.0),
    "mixture": (MIXTURE, sl.SGD(0.4), 4.0),
    "particles": (logistic(penalty=sl.SmoothL1(0.3, 0.2), teacher=sl.SparseNormal(0.2, 2.0)), sl.SGD(0.5), 4.0),
}
STEPS = 64
"""As many as tangents are kept for, over the width."""


def beside(case: str, samples: int, replicas: int) -> str:
    """One line of the table."""
    problem, algorithm, t_max = CASES[case]
    steps = STEPS // (1 if problem.width == 1 else 2)
    dt = 1.0 if algorithm.discrete else min(t_max, 4.0) / steps
    t_max = steps * dt / 2 if algorithm.discrete else min(t_max, 4.0)
    words: dict[str, Any] = {
        "t_max": t_max, "dt": dt, "samples": samples * problem.width * replicas, "replicas": replicas,
        "extrapolate": False, "seed": 1,
    }  # fmt: skip
    found, whole = (run(problem, algorithm, progress=False, **words) for run in (sl.solve, sl.references.tangents))
    largest, bias, ratios = 0.0, 0.0, []
    for name in NAMES if problem.k else [name for name in NAMES if name != "overlap"]:
        ours, theirs = (np.asarray(solution.copies(name)) for solution in (found, whole))
        at = np.linspace(0, len(found.time) - 1, 5).astype(int)[1:]
        gap, size = (ours - theirs)[:, at], np.max(np.abs(whole[name]))
        error = np.maximum(gap.std(axis=0, ddof=1) / np.sqrt(len(gap)), 1e-6 * size)
        largest = max(largest, float(np.max(np.abs(gap.mean(axis=0)) / error)))
        bias = max(bias, float(np.max(np.abs(gap.mean(axis=0))) / size))
        spread = [part[:, at].var(axis=0, ddof=1).ravel() for part in (theirs, ours)]
        seen = spread[1] > (1e-6 * size) ** 2
        ratios += list(np.log(spread[0][seen] / spread[1][seen]))
    return f"z ≤ {largest:.1f}, bias ≤ {bias:.1e}, variance {np.exp(np.mean(ratios)):.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case", help=", ".join(CASES))
    parser.add_argument("--samples", type=int, nargs="+", default=[1024], help="of one replica and unit")
    parser.add_argument("--replicas", type=int, default=40)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for case in args.cases:
        for samples in args.samples:
            begin = time.perf_counter()
            print(f"{case:20} {samples:5}: {beside(case, samples, args.replicas)}", end="", flush=True)
            print(f" ({time.perf_counter() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
