"""One training sample in the limit: r, its force, and the averages that drive the weights.

r_i = w_i − (1/δ) Σ_{j<i} R_w(i,j) F_j with F_j = Z_j ℓ_j (`eq:dmft_disc_r`; in continuous time `eq:r`, with a teacher
`eq:r_planted`), for M samples at once, and their averages `eq:dmft_disc_func`. R_w = Σ_q p_q s_q R_θ^q is R_θ for iid
data. Averages carry the mean of Z_i given the past, over γ_i, so that they hold for correlated increments.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._types import Array, Tree
from ..problem import fields, observables
from ..problem.mixture import Push, push
from ..results.metrics import CONTROL, SOFT
from . import noise
from .response import Local, of_samples
from .samples import each, moments
from .system import Start, Step, System

FIRST = 2**31 - 1
"""Folded into the key for the state of the increments; no step has this number."""


class DataState(NamedTuple):
    """The past of M samples."""

    forces: Array
    """Moments of F_j, (n, m, M)."""
    response: Tree
    """What the response keeps of it."""
    increments: Tree
    """What the algorithm keeps of it."""


class Averages(NamedTuple):
    """What the weights need from step i."""

    gamma: Array
    """Γ_i, (m, m)."""
    response: Array
    """κ: coefficients of 𝓡(i, ·), (n, m, m)."""
    with_basis: Array
    """E[ℓ_i · coordinates of (w_0, w*)], (m, m+k)."""
    force: Array
    """F_i, (m, M): what the noise of the weights is mixed from."""
    push: Push = Push()
    """What moves the means of a mixture and an intercept."""


def combine(coefficients: Array, past: Array) -> Array:
    """Return Σ_{n,b} coefficients[n, a, b] past[n, b, …]: one plain matrix product, whatever follows."""
    n, a, b = coefficients.shape
    rows = coefficients.transpose(1, 0, 2).reshape(a, n * b)
    return (rows @ past.reshape(n * b, -1)).reshape(a, *past.shape[2:])


def init(system: System, start: Start) -> DataState:
    """Return the state of the samples before their first step: they have no past."""
    _, m, _, M = system.shape
    key = jax.random.fold_in(start.key, FIRST)
    return DataState(
        forces=jnp.zeros((system.memory.size, m, M), system.dtype),
        response=system.response.init(system),
        increments=system.algorithm.start_increments(key, (M,), system.problem.sample_ratio),
    )


def step(
    system: System, step: Step, start: Start, state: DataState, rho: Array, w: Array, shift: Array, f: Array
) -> tuple[DataState, Averages, dict[str, Array]]:
    """Return the state after step i, averages for the weights, and what is recorded of the samples.

    Given are R_w(i,·) by its coefficients ρ, w_i, what moves its class, and f = Σ_j R_w(i,j) F_j.
    """
    problem, dtype, (_, m, k, _) = system.problem, system.dtype, system.shape
    delta = jnp.asarray(problem.sample_ratio, dtype)
    r_star, t = start.r_star, step.t
    r = w + shift - f / delta  # eq:dmft_disc_r
    force = of_samples(fields.force, problem, t, r, start)
    increments, Z, expected = noise.increments(system, state.increments, start, step)
    driven = force if expected is None else expected * force
    here = Local(r, w, shift, force, driven, Z, expected)
    answer, response = system.response.step(system, step, start, state.response, rho, here)
    F = Z * force  # dL of eq:Sigma_ell, eq:Sigma_ell_planted
    averages = Averages(
        gamma=answer.gamma,
        response=answer.kappa,
        with_basis=moments(driven, start.basis[: m + k]),
        force=F,
        push=push(problem, start.z, driven),
    )
    chosen = observables.on_samples(problem) | dict(system.metrics)
    values = {name: each(fn)(r, r_star, start.z) for name, fn in chosen.items()}
    seen = {f"train_{name}": jnp.mean(value).astype(jnp.float64) for name, value in values.items()}
    for name, fn in chosen.items():
        seen[CONTROL.format(name)] = jnp.mean(each(fn)(w + shift, r_star, start.z)).astype(jnp.float64)
    if (soft := observables.softened(problem, r, r_star, start.z)) is not None:
        seen[SOFT] = soft.astype(jnp.float64)
    seen["Gamma"] = answer.gamma
    if system.kernels:
        assert answer.equal is not None
        seen |= {"response": answer.kappa, "equal": answer.equal}
    past = system.memory.push(step.memory, state.forces, F)
    return DataState(past, response, increments), averages, seen
