"""The parts of a march put together, in one place."""

from ..algorithms import Algorithm
from ..problem import Problem
from ..problem.data import Table
from ..results.metrics import Named
from .integrator import Explicit, Implicit
from .memory import Memory
from .response import Regression, Response
from .system import System, groups_of
from .weight_side import Linear, Particles


def assemble(
    problem: Problem,
    algorithm: Algorithm,
    samples: int,
    memory: Memory,
    *,
    linear: bool = True,
    response: Response | None = None,
    tested: Table | None = None,
    dtype: str = "float32",
    metrics: Named = (),
    weight_metrics: Named = (),
    kernels: bool = False,
) -> System:
    """Return the system of a march of so many samples; `linear`: whether h = Λθ. Left out, the response is found by
    regression."""
    return System(
        problem, algorithm, groups_of(problem, tested), samples, memory=memory,
        weights=Linear() if linear else Particles(), response=response or Regression(),
        rule=Explicit() if algorithm.discrete else Implicit(), dtype=dtype,
        metrics=metrics, weight_metrics=weight_metrics, kernels=kernels,
    )  # fmt: skip
