"""`tangents` and `processes`: the march of `sl.solve` with the whole past kept and another way to the response.

`processes` has the paper's own: ρ_ℓ, D_ℓ, D_r (`eq:dmft_disc_process`).
"""

import time as clock
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack, final

import jax.numpy as jnp
from numpy.typing import ArrayLike

from .._machine import keep_programs
from .._types import Array
from ..algorithms import Algorithm
from ..control import stages
from ..control.marches import Stage
from ..control.question import Averages, Given, asked
from ..control.stages import Outcome
from ..dmft.response import Answer, Local, Response, Tangents
from ..dmft.system import Start, Step, System
from ..dmft.training import of_samples
from ..errors import check_words, reject
from ..execute.crew import alone, precisely
from ..problem import Problem, fields
from ..results import Solution
from ..solver import finished

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


class Processes(NamedTuple):
    """ρ_ℓ, D_ℓ and ∇ℓ·D_r of every earlier step k, times Z_k: (rows, rows, m, …, M); of every step ℓ, ∇ℓ, γ, B(t)/B."""

    rho: Array
    D_ell: Array
    D_r: Array
    force: Array
    force_r: Array
    dt: Array
    portion: Array


@final
@dataclass(frozen=True)
class Paper(Response):
    """R_ℓ = E[ρ_ℓ] + sqrt(τδ) E[D_ℓ] (`eq:R_ell`, `eq:R_ell_planted`, `eq:dmft_disc_func`), discretised. Memory K²M.

    In place of `Tangents`, with the whole past kept and Gaussian increments. With a teacher, ℓ and its derivatives see
    r* as well.
    """

    def init(self, system: System) -> Processes:
        """Return processes of which no row is written: zero, B(t)/B is one."""
        _, m, _, M = system.shape
        rows, dtype = system.memory.size, system.dtype
        pair, one = (rows, rows, m, m, M), (rows, m, M)
        shapes = (pair, pair, (rows, rows, m, M), one, (rows, m, m, M), (rows,), (rows,))
        return Processes(*(jnp.zeros(shape, dtype) for shape in shapes))._replace(portion=jnp.ones(rows, dtype))

    def step(
        self, system: System, step: Step, start: Start, state: Processes, rho: Array, here: Local
    ) -> tuple[Answer, Processes]:
        """Return Γ_i and 𝓡(i, j) = γ_j R_ℓ(i, j), (rows, m, m), and the processes with row i written."""
        slope = here.slope(here.r)
        bend = of_samples(fields.force_rr, system.problem, step.t, start, here.r)
        algorithm, dtype = system.algorithm, state.rho.dtype
        delta = jnp.asarray(system.problem.sample_ratio, dtype)
        tau = jnp.asarray(algorithm.noise_temperature, dtype)
        R = rho.astype(dtype)
        # Itô, left point. eq:dmft_disc_rhor (eq:rho_r, eq:rho_r_planted)
        rho_r = -jnp.einsum("kac,kjcbs->jabs", R, state.rho) - jnp.einsum("jac,jcbs->jabs", R, state.force_r)
        rho_r = rho_r / delta
        # eq:dmft_disc_Dr (eq:D_r, eq:D_r_planted)
        D_r = -jnp.einsum("kac,kjcs->jas", R, state.D_r) / delta
        D_r = D_r - jnp.sqrt(tau / delta) * jnp.einsum("jac,jcs->jas", R, state.force)
        bracket = -jnp.einsum("kac,kjcbs->jabs", R, state.D_ell) / delta
        # eq:dmft_disc_rhol (eq:rho_ell, eq:rho_ell_planted), eq:dmft_disc_Drhol (eq:D_ell, eq:D_ell_planted)
        rho_ell = jnp.einsum("acs,jcbs->jabs", slope, rho_r)
        bent = jnp.einsum("abcs,jcs->jabs", bend, D_r)
        D_ell = jnp.einsum("acs,jcbs->jabs", slope, bracket) + jnp.einsum("jacs,jcbs->jabs", bent, rho_r)
        # D_ℓ is linear in the noise of step j, and so is what it multiplies: sqrt(τ(t_j)) twice.
        noisy = D_ell / state.portion[:, None, None, None]
        R_ell = jnp.mean(rho_ell + jnp.sqrt(tau * delta) * noisy, axis=-1)
        response = (state.dt[:, None, None] * R_ell).astype(jnp.float64)
        turned = jnp.einsum("acs,jcs->jas", slope, D_r)
        portion = algorithm.portion(step.t + step.dt / 2) if algorithm.scheduled else 1.0
        new = (here.Z * rho_ell, here.Z * D_ell, here.Z * turned, here.force, slope, step.dt, portion)
        written = (past.at[step.number].set(jnp.asarray(row, dtype)) for past, row in zip(state, new, strict=True))
        gamma = jnp.mean(slope, axis=-1).astype(jnp.float64)
        equal = -jnp.einsum("acs,cbs->ab", slope, slope).astype(jnp.float64) / system.samples
        return Answer(gamma, response, equal / system.problem.sample_ratio), Processes(*written)


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
    refuse_rows(problem)
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
    return finished(question, Outcome(reached, 1, reached.compiling, "complete", ""), begin, f"DMFT, {name}")


def check_size(problem: Problem, steps: int, name: str) -> None:
    """Refuse more steps than a sample can hold pairs of."""
    units = problem.width * problem.rows
    if steps * units > MOST:
        why = f"{name} holds the square of steps times width, {MOST} at most, for every sample"
        why += "; take a larger dt or a shorter t_max, or use sl.solve"
        raise reject("dt", f"{steps} steps at width {units}", why)


def refuse_rows(problem: Problem) -> None:
    """Refuse samples with several rows, which the paper does not have."""
    if isinstance(problem, Problem) and problem.rows > 1:
        raise reject("rows", problem.rows, "the paper's own methods know one row a sample; use sl.references.tangents")
