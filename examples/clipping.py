"""Gradient clipping under heavy-tailed noise: clip every sample, or the whole batch?

X.

    python examples/clipping.py clipping.png
"""

import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS, MARKERS

THRESHOLDS = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
FREEDOM, TEMPERATURE, BATCH = 3, 0.2, 8
T_MAX, DIM, TRIALS = 5.0, 600, 12
KINDS = {"sample": "every sample clipped", "batch": f"batch of {BATCH} clipped"}


def draw_noise(key: Any, shape: tuple[int, ...]) -> Any:
    """Student's t: a normal number over the root mean square of others."""
    normal = jax.random.normal(key, (1 + FREEDOM, *shape))
    return normal[0] / jnp.sqrt(jnp.mean(normal[1:] ** 2, axis=0))


# Said for errors of labels, which this example does not show: it shows the error of the weights.
warnings.filterwarnings("ignore", message=".*averages under this heavy-tailed noise")

PROBLEM = sl.Problem(
    loss=sl.Square(), penalty=sl.Ridge(0.05), sample_ratio=4.0, teacher=sl.Rademacher(1.0),
    noise=sl.Law(draw_noise, mean=0.0, second_moment=FREEDOM / (FREEDOM - 2)),
)  # fmt: skip


def weight_error(result: sl.Solution | sl.Runs) -> np.ndarray:
    """|θ − θ*|²/d, for a teacher of norm 1."""
    return result["norm"][..., 0, 0] - 2 * result["overlap"][..., 0, 0] + 1


def main(output: Any) -> dict[str, sl.Report]:
    reports = {}
    for (per, name), colour, marker in zip(KINDS.items(), COLOURS, MARKERS, strict=False):
        ends = []
        for threshold in THRESHOLDS:
            step = sl.Step(clip=sl.Clip(threshold, per=per))
            algorithm = sl.SGD(TEMPERATURE, batch_size=BATCH, step=step)
            theory = sl.solve(PROBLEM, algorithm, t_max=T_MAX, dt=0.1, samples=16384, variables=["overlap", "norm"])
            runs = sl.simulate(PROBLEM, algorithm, dim=DIM, trials=TRIALS, times=np.linspace(0, T_MAX, 6))
            rep = sl.compare(theory, runs, ["overlap", "norm"])
            we = weight_error(runs)[:, -1]
            print(per, threshold, theory.status, weight_error(theory)[-1].round(4), we.mean().round(4), (we.std() / np.sqrt(TRIALS)).round(4), we.min().round(3), we.max().round(3), rep.verdict, rep.p_value)
    plain = sl.least_squares(PROBLEM, sl.SGD(TEMPERATURE), t_max=T_MAX)
    print("square", weight_error(plain)[-1], weight_error(plain).min())
    return reports


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "clipping.png")
