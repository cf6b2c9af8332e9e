"""The solver against all tangents and the whole past, on the same random numbers: what regression and memory cost.

    python benchmarks/moments_against_dense.py

Largest difference over a run, relative to the largest value of the curve; beside it, in the same units, its standard
error over paired replicas, and the solver's own estimate of what its memory leaves.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgdlimit as sl

NAMES = ("train_loss", "overlap", "norm")
SIZE: dict[str, Any] = {"samples": 2048, "replicas": 4, "seed": 1}


def logistic(**more: Any) -> sl.Problem:
    chosen: dict[str, Any] = {"labels": sl.Sign(), "penalty": sl.Ridge(0.01), "noise": sl.Normal(0.1)}
    chosen["teacher"] = sl.Normal(1.0)
    return sl.Problem(loss=sl.Logistic(), sample_ratio=2.0, **(chosen | more))


def momentum(friction: float) -> sl.Problem:
    """Heavy ball: weights (θ, v), the force on v alone."""
    return sl.Problem(
        loss=sl.VectorField(
            lambda r, r_star, z: jnp.stack([0.0 * r[0], r[0] - r_star - z]), loss=lambda r, y: 0.5 * (r[0] - y) ** 2
        ),
        penalty=sl.VectorField(lambda theta: jnp.stack([-theta[1], friction * theta[1] + 0.01 * theta[0]])),
        sample_ratio=3.0, teacher=sl.Rademacher(1.0), noise=sl.Normal(0.5), width=2, teacher_width=1,
    )  # fmt: skip


COMMITTEE: dict[str, Any] = {
    "loss": sl.TwoLayer(jax.scipy.special.erf),
    "labels": sl.TwoLayerLabels(jax.scipy.special.erf),
    "teacher": sl.Normal(1.0),
    "init": sl.Normal(0.5),
}
JUMP = sl.Schedule(lambda t: jnp.where(t < 2.0, 1.0, 0.2))
SPARSE = logistic(penalty=sl.SmoothL1(0.1, 0.1), teacher=sl.SparseNormal(0.2, 2.0))
WELL = logistic(penalty=sl.Penalty(lambda theta: 0.5 * (theta**2 - 1) ** 2), teacher=sl.Rademacher(1.0))
SQUARE = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.3))
CASES: dict[str, tuple[sl.Problem, Any, dict[str, Any]]] = {
    "gradient flow": (logistic(), sl.GradientFlow(), {"t_max": 8.0, "dt": 0.1}),
    "SGF": (logistic(), sl.SGF(0.5), {"t_max": 8.0, "dt": 0.1}),
    "SGD": (logistic(), sl.SGD(0.5), {"t_max": 8.0, "dt": 0.1}),
    "SGD, reshuffled": (logistic(), sl.ShuffledSGD(1.0), {"t_max": 8.0, "dt": 0.1}),
    "proportional": (logistic(), sl.ProportionalSGD(0.3), {"t_max": 8.0, "dt": 0.2}),
    "proportional, γ·curvature near 2": (SQUARE, sl.ProportionalSGD(0.7), {"t_max": 20.0, "dt": 0.5}),
    "persistent": (logistic(), sl.PersistentSGD(0.3, 1.0), {"t_max": 8.0, "dt": 0.2}),
    "momentum, friction 0.7": (momentum(0.7), sl.SGD(0.4), {"t_max": 6.0, "dt": 0.1}),
    "momentum, friction 0.2, t = 12": (momentum(0.2), sl.SGD(0.1), {"t_max": 12.0, "dt": 0.2}),
    "schedule that jumps": (logistic(schedule=JUMP), sl.SGD(0.5), {"t_max": 4.0, "dt": 0.025}),
    "geometric times": (logistic(), sl.SGD(0.5), {"times": sl.grid.geometric(20.0, 0.1, 30), "dt": 0.2}),
    "committee, width 2": (sl.Problem(sample_ratio=2.0, width=2, **COMMITTEE), sl.SGD(0.5), {"t_max": 6.0, "dt": 0.1}),
    "committee, width 3": (sl.Problem(sample_ratio=3.0, width=3, **COMMITTEE), sl.SGD(0.5), {"t_max": 3.0, "dt": 0.1}),
    "particles, smooth L1": (SPARSE, sl.SGD(0.5), {"t_max": 6.0, "dt": 0.1}),
    "particles, double well": (WELL, sl.SGD(0.5), {"t_max": 4.0, "dt": 0.1}),
    "particles, reshuffled": (SPARSE, sl.ShuffledSGD(1.0), {"t_max": 6.0, "dt": 0.1}),
}


def main(only: list[str]) -> None:
    print(f"{'case':34s} {'functions':>9s}   " + "   ".join(f"{name:>10s} (its error; memory)" for name in NAMES))
    for case, (problem, algorithm, grid) in CASES.items():
        if only and not any(word in case for word in only):
            continue
        found, whole = (function(problem, algorithm, **grid, **SIZE) for function in (sl.solve, sl.references.tangents))
        cells = []
        for name in NAMES:
            size, gaps = np.max(np.abs(whole[name])), found[f"{name}_replicas"] - whole[f"{name}_replicas"]
            gap, error = np.max(np.abs(gaps.mean(axis=0))), np.max(gaps.std(axis=0, ddof=1)) / np.sqrt(len(gaps))
            memory = np.max(found[f"{name}_projection_error"])
            cells.append(f"{gap / size:10.1e} ({error / size:9.1e}; {memory / size:6.1e})")
        print(f"{case:34s} {found.about['options']['functions']:9d}   " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
