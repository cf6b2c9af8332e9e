"""`tangents` and `processes`: the march of `sl.solve` with the whole past kept and another way to the response."""

import time as clock
from collections.abc import Callable, Mapping
from typing import Any

import jax

from ... import grid
from ..._cache import keep_programs
from ...algorithms import Algorithm
from ...errors import reject
from ...problem import Problem
from ...results import Solution
from .. import stages
from ..checks import check_choices, refuse_kinks
from ..response import Response
from ..solver import asked, finished
from ..stages import Outcome
from ..tangents import Tangents
from .paper import Paper

MOST = 288
"""Steps times width: a sample holds the square of it."""


def tangents(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    dt: float | None = None,
    times: Any = None,
    samples: int | None = None,
    seed: int = 0,
    replicas: int = 16,
    kernels: bool = False,
    extrapolate: bool | None = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    dtype: str = "float32",
    progress: bool | None = None,
) -> Solution:
    """The curves of `sl.solve` from exact tangents of every sample, with the whole past kept: an oracle for few steps.

    Where `sl.solve` finds Γ and 𝓡 by regression, here 𝓡(i,j) = E[∂ℓ_i/∂w_j] is an average of derivatives
    (`eq:dell_dw_disc`), and nothing is projected on functions of the past. The loss must have two derivatives. One
    stage, with the steps and samples that are named or the first ones of `sl.solve`; no tolerance is promised. Words
    mean what they mean there. With the same seed, dt and samples both march through the same random numbers.
    """
    words = {"dt": dt, "times": times, "samples": samples, "seed": seed, "replicas": replicas, "kernels": kernels}
    words |= {"extrapolate": extrapolate, "metrics": metrics, "dtype": dtype, "progress": progress}
    return _marched(problem, algorithm, t_max, Tangents(), "tangents", words)


def processes(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    dt: float | None = None,
    times: Any = None,
    samples: int | None = None,
    seed: int = 0,
    replicas: int = 16,
    kernels: bool = False,
    extrapolate: bool | None = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    dtype: str = "float32",
    progress: bool | None = None,
) -> Solution:
    """The same from the processes ρ_ℓ, D_ℓ, D_r of the paper's rigorous system, for `sl.SGF` and `sl.GradientFlow`.

    R_ℓ = E[ρ_ℓ] + √(τδ) E[D_ℓ] (`eq:R_ell`, `eq:R_ell_planted`), with increments that must be Gaussian. Words are those
    of `sl.references.tangents`.
    """
    if isinstance(algorithm, Algorithm) and not (algorithm.gaussian or algorithm.noise_temperature == 0):
        why = "the paper's processes need Gaussian increments; take sl.SGF, or use sl.references.tangents"
        raise reject("algorithm", type(algorithm).__name__, why)
    words = {"dt": dt, "times": times, "samples": samples, "seed": seed, "replicas": replicas, "kernels": kernels}
    words |= {"extrapolate": extrapolate, "metrics": metrics, "dtype": dtype, "progress": progress}
    return _marched(problem, algorithm, t_max, Paper(), "processes", words)


def _marched(
    problem: Problem, algorithm: Algorithm, t_max: Any, response: Response, name: str, given: dict[str, Any]
) -> Solution:
    """One stage with this response and the whole past."""
    begin = clock.perf_counter()
    keep_programs()
    check_choices(problem, algorithm, given["extrapolate"], given["kernels"])
    refuse_kinks(problem, float(grid.resolve(t_max, given["times"])[-1]), f"sl.references.{name}")
    given |= {"extrapolate": given["extrapolate"] is not False}
    ask = asked(problem, algorithm, t_max, response, dense=True, **given, **UNASKED)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        check_size(problem, len(ask.steps(0).times) - 1, f"sl.references.{name}")
        stage = stages.one_stage(ask, stages.first_work(ask))
    outcome = Outcome(stage, 1, stage.found.compiling, "complete", "")
    return finished(ask, outcome, begin, f"DMFT, {name}")


def check_size(problem: Problem, steps: int, name: str) -> None:
    """Refuse more steps than a sample can hold pairs of."""
    if steps * problem.width > MOST:
        why = f"{name} holds the square of steps times width, {MOST} at most, for every sample"
        why += "; take a larger dt or a shorter t_max, or use sl.solve"
        raise reject("dt", f"{steps} steps at width {problem.width}", why)


UNASKED: dict[str, Any] = dict.fromkeys(
    ("tol", "variables", "max_seconds", "max_bytes", "checkpoint", "functions", "snapshots", "weight_metrics",
     "test_data")
)  # fmt: skip
"""What `sl.solve` can be asked for and a reference cannot."""
