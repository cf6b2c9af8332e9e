"""`tangents` and `processes`: the march of `sl.solve` with the whole past kept and another way to the response."""

import time as clock
from typing import TypedDict, Unpack

from numpy.typing import ArrayLike

from .._machine import keep_programs
from ..algorithms import Algorithm
from ..control import stages
from ..control.marches import Stage
from ..control.outcome import finished
from ..control.question import Averages, Given, asked
from ..control.stages import Outcome
from ..dmft.response import Response
from ..dmft.tangents import Tangents
from ..errors import check_words, reject
from ..execute.crew import alone, precisely
from ..problem import Problem
from ..results import Solution
from .paper import Paper

MOST = 288  # steps times width: a sample holds the square of it


class Words(TypedDict, total=False):
    """What a reference can be told; all words mean what they mean for `sl.solve`."""

    dt: float | None
    times: ArrayLike | None
    samples: int | None
    seed: int
    replicas: int
    kernels: bool
    extrapolate: bool | None
    metrics: Averages | None
    dtype: str


def tangents(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    progress: bool | None = None,
    **words: Unpack[Words],
) -> Solution:
    """Return the curves of `sl.solve` from exact tangents of every sample, with the whole past kept: an oracle.

    Where `sl.solve` finds Γ and 𝓡 by regression, here 𝓡(i,j) = E[∂ℓ_i/∂w_j] is an average of derivatives
    (`eq:dell_dw_disc`), and nothing is projected on functions of the past. The loss must have two derivatives. One
    stage, with the steps and samples that are named or the first ones of `sl.solve`; no tolerance is promised. With the
    same seed, dt and samples both march through the same random numbers.

    dt, times, samples, seed, replicas, kernels, extrapolate, metrics and dtype mean what they mean for `sl.solve`.
    """
    return _marched(problem, algorithm, t_max, Tangents(), "tangents", words, progress)


def processes(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    progress: bool | None = None,
    **words: Unpack[Words],
) -> Solution:
    """Return the curves of `sl.solve` from the processes ρ_ℓ, D_ℓ, D_r of the paper's rigorous system, for `sl.SGF`
    and `sl.GradientFlow`.

    R_ℓ = E[ρ_ℓ] + √(τδ) E[D_ℓ] (`eq:R_ell`, `eq:R_ell_planted`), with increments that must be Gaussian. Words are those
    of `sl.references.tangents`.
    """
    if isinstance(algorithm, Algorithm) and not (algorithm.gaussian or algorithm.noise_temperature == 0):
        why = "the paper's processes need Gaussian increments; take sl.SGF, or use sl.references.tangents"
        raise reject("algorithm", type(algorithm).__name__, why)
    return _marched(problem, algorithm, t_max, Paper(), "processes", words, progress)


def _marched(
    problem: Problem, algorithm: Algorithm, t_max: float | None, response: Response, name: str, words: Words,
    progress: bool | None,
) -> Solution:  # fmt: skip
    """One stage with this response and the whole past."""
    begin = clock.perf_counter()
    check_words(name, words, Words)
    keep_programs()
    question = asked(problem, algorithm, t_max, Given(**words), response=response, name=f"sl.references.{name}")
    check_size(problem, len(question.steps(0).times) - 1, f"sl.references.{name}")
    stage = Stage(question, stages.first_effort(question))
    reached = alone(precisely(stages.one_stage(stage)), progress)
    return finished(question, Outcome(reached, 1, reached.found.compiling, "complete", ""), begin, f"DMFT, {name}")


def check_size(problem: Problem, steps: int, name: str) -> None:
    """Refuse more steps than a sample can hold pairs of."""
    if steps * problem.width > MOST:
        why = f"{name} holds the square of steps times width, {MOST} at most, for every sample"
        why += "; take a larger dt or a shorter t_max, or use sl.solve"
        raise reject("dt", f"{steps} steps at width {problem.width}", why)
