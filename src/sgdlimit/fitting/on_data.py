"""`solve_on_data`: curves of SGD with any loss on the user's own matrix, by way of a model of it."""

import warnings
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, Unpack

from ..algorithms import Algorithm
from ..control.question import Given
from ..errors import Interrupted, UnreliableWarning
from ..own_data import as_matrix
from ..problem import LossLike, PenaltyLike, VectorField
from ..results import Solution
from ..results.quality import Quality
from ..solver import solve
from .assumptions import heat
from .model import model_of_data


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
    executor: Executor | None = None,
    progress: bool | None = None,
    **options: Unpack[Given],
) -> Solution:
    """Predicted curves of SGD from θ = 0 with any loss, to be set beside `sl.simulate_on_data(X, y, algorithm, …)`.

    The data are summed up by `sl.model_of_data`: Gaussian rows with the eigenvalues of the population, estimated from
    the sample, and two classes (labels of two values) or a linear teacher. `sl.solve` does the rest, and takes t_max
    and all that follows it. Train curves are those of n samples of the model, test curves of fresh ones; X_test and
    y_test serve to check that they are of the same law. How far the assumptions hold is in
    `about["diagnostics"]["assumptions"]`, and a warning names what does not.
    """
    fitted = model_of_data(X, y, loss=loss, penalty=penalty, bias=bias, X_test=X_test, y_test=y_test)
    if failed := "; ".join(map(str, fitted.assumptions.failed)):
        words = f"X: the model of these data is a rough one, and its curves may be off: {failed}"
        warnings.warn(words, UnreliableWarning, stacklevel=2)

    def told(solution: Solution) -> Solution:
        """With what the data say of the assumptions."""
        found = Quality([*fitted.assumptions, heat(float(algorithm.noise_temperature), as_matrix("X", X))])
        about = dict(solution.about)
        about["method"] = f"{about['method']}, on a model of data"
        about["options"] = about["options"] | {"data_samples": fitted.samples, "dim": fitted.dim}
        about["diagnostics"] = about["diagnostics"] | {"assumptions": found.to_words()}
        return replace(solution, about=about)

    try:
        return told(solve(fitted.problem, algorithm, t_max, executor=executor, progress=progress, **options))
    except Interrupted as stop:
        raise Interrupted(told(stop.result)) from None
