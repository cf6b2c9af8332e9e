"""What finite d leaves: the mean over runs against the limit."""

import warnings
from collections.abc import Sequence

import numpy as np

from ..algorithms import Algorithm
from ..errors import UnreliableWarning
from ..problem import Problem
from ..results.statistics import total_error
from ..simulation import simulate
from ..solver import solve
from .scaling import Scaling

OBSERVED = ("train_error", "test_error", "norm")


def bias(
    problem: Problem,
    algorithm: Algorithm,
    *,
    dims: Sequence[int],
    trials: Sequence[int],
    t_max: float,
    dt: float = 0.1,
    samples: int = 2**18,
    seed: int = 0,
    progress: bool | None = None,
) -> list[Scaling]:
    """|mean over runs − limit| at t_max against d, relative to the limit; with the errors of runs and theory."""
    law = solve(problem, algorithm, t_max=t_max, dt=dt, samples=samples, seed=seed, progress=progress)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in OBSERVED}
    for dim, count in zip(dims, trials, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreliableWarning)  # what few coordinates change is what is asked about
            runs = simulate(
                problem, algorithm, dim=dim, trials=count, times=[t_max], seed=seed + dim, progress=progress
            )
        for name in OBSERVED:
            value, error = (float(v.ravel()[-1]) for v in law.curve(name))
            mean, spread = (float(v.ravel()[-1]) for v in runs.curve(name))
            found[name].append((abs(mean - value) / value, total_error(spread, error) / value))
    return [
        Scaling(name.replace("_", " "), "d", np.array(dims, dtype=float), *np.array(pairs).T)
        for name, pairs in found.items()
    ]
