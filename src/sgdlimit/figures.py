"""The package's own pictures: what is computed for them, in one place."""

import math
from typing import NamedTuple

from .algorithms import SGD
from .comparison import Report, compare
from .limits import least_squares
from .problem import Linear, Normal, Problem, Ridge, Square
from .results import Runs, Solution
from .simulation import simulate

TEMPERATURES = (0.1, 0.5, 1.0)


class RidgeFigure(NamedTuple):
    """Ridge regression at several temperatures: exact curves, SGD runs, and how they agree."""

    theories: list[Solution]
    runs: list[Runs]
    reports: list[Report]


def ridge_figure(dim: int = 2000, trials: int = 10, seed: int = 0, progress: bool | None = None) -> RidgeFigure:
    """SGD on ridge regression (δ = 2, λ = 0.1, σ = 0.5) against the Volterra equations."""
    problem = Problem(
        loss=Square(),
        labels=Linear(),
        penalty=Ridge(0.1),
        sample_ratio=2.0,
        teacher=Normal(1.0),
        noise=Normal(0.5),
    )
    theories, runs, reports = [], [], []
    for index, tau in enumerate(TEMPERATURES):
        algorithm = SGD(temperature=tau, batch_size=max(1, math.floor(2 / tau)))
        theory = least_squares(problem, algorithm, t_max=8.0)
        run = simulate(problem, algorithm, dim=dim, trials=trials, t_max=8.0, seed=seed + index, progress=progress)
        theories.append(theory)
        runs.append(run)
        reports.append(compare(run, theory))
    return RidgeFigure(theories, runs, reports)
