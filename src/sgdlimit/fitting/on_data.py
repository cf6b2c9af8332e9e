"""`solve_on_data`: curves of SGD with any loss on the user's own matrix, by way of a model of it."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from numpy.typing import ArrayLike

from .._vocabulary import elsewhere, words
from ..algorithms import Algorithm
from ..errors import Interrupted
from ..own_data import as_matrix
from ..problem import VectorField
from ..problem.losses import LossLike
from ..problem.penalties import PenaltyLike
from ..results import Solution
from ..results.quality import Quality
from ..solver import solve
from .assumptions import heat
from .model import model_of_data, warn_of_assumptions

_REMEDIES = words(
    "snapshots metrics weight_metrics dtype kernels functions",
    "a model stands for the data; take sl.solve(sl.model_of_data(X, y).problem, …), which does",
)


@elsewhere(_REMEDIES)
def solve_on_data(
    X: Any,
    y: Any,
    algorithm: Algorithm,
    *,
    loss: LossLike | VectorField | None = None,
    penalty: PenaltyLike | VectorField | None = None,
    bias: bool = False,
    X_test: Any = None,
    y_test: Any = None,
    t_max: float | None = None,
    times: ArrayLike | None = None,
    tol: float | None = None,
    variables: str | Sequence[str] | None = None,
    max_seconds: float | None = None,
    max_bytes: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    dt: float | None = None,
    samples: int | None = None,
    replicas: int = 16,
    seed: int = 0,
    progress: bool | None = None,
) -> Solution:
    """Predicted curves of SGD from θ = 0 with any loss, to be set beside `sl.simulate_on_data(X, y, algorithm, …)`.

    The data are summed up by `sl.model_of_data`: Gaussian rows with the eigenvalues of the population, estimated from
    the sample, and two classes (labels of two values) or a linear teacher. `sl.solve` does the rest, and takes t_max,
    times, tol and what follows it. Train curves are those of n samples of the model, test curves of fresh ones; X_test
    and y_test serve to check that they are of the same law. How far the assumptions hold is in
    `about["diagnostics"]["assumptions"]`, and a warning names what does not.
    """
    fitted = model_of_data(X, y, loss=loss, penalty=penalty, bias=bias, X_test=X_test, y_test=y_test)
    warn_of_assumptions(fitted)

    def told(solution: Solution) -> Solution:
        """With what the data say of the assumptions."""
        found = Quality([*fitted.assumptions, heat(float(algorithm.noise_temperature), as_matrix("X", X))])
        about = dict(solution.about)
        about["method"] = f"{about['method']}, on a model of data"
        about["options"] = about["options"] | {"data_samples": fitted.samples, "dim": fitted.dim}
        about["diagnostics"] = about["diagnostics"] | {"assumptions": found.to_words()}
        return replace(solution, about=about)

    try:
        solution = solve(
            fitted.problem, algorithm, t_max, times=times, tol=tol, variables=variables, max_seconds=max_seconds,
            max_bytes=max_bytes, checkpoint=checkpoint, dt=dt, samples=samples, replicas=replicas, seed=seed,
            progress=progress,
        )  # fmt: skip
    except Interrupted as stop:
        raise Interrupted(told(stop.result)) from None
    return told(solution)
