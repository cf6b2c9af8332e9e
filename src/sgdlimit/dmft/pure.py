"""The march as a pure function: to be differentiated (forward mode), vmapped, or put inside a larger computation."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from .._types import Array, Key
from ..algorithms import Algorithm
from ..problem import Problem
from ..results.metrics import INTERNAL
from . import march, memory, noise, planning
from .assemble import assemble
from .system import Start, System


def curves(
    problem: Problem,
    algorithm: Algorithm,
    times: ArrayLike,
    *,
    key: Key,
    samples: int = 2048,
    linear: bool = True,
    dtype: str = "float64",
) -> dict[str, Array]:
    """Return one replica of `solve` on the grid `times` (from 0): training averages, `norm` and `overlap`, by name.

    δ, τ, λ, the schedule and `key` may be traced; the laws of teacher and start must be numbers. `linear=False` for a
    penalty that is not quadratic. Nothing is checked, nothing extrapolated; `samples` is a power of two. Call it inside
    `jax.enable_x64(True)`. Derivatives with respect to δ and τ exist for `SGF` and `GradientFlow`, whose increments are
    smooth.
    """
    grid = np.asarray(times, dtype=np.float64)
    factors = memory.ALTERNATING if algorithm.discrete else ()
    kept = memory.Moments(memory.ladder(grid[-1], float(np.min(np.diff(grid)))), factors)
    system = assemble(problem, algorithm, samples, kept, linear=linear, dtype=dtype)
    level = planning.level(grid, 1, kept, dtype, algorithm.discrete)
    records = march.trace(system, _start(system, key), jax.tree.map(jnp.asarray, level.steps))
    return {name: part for name, part in records.items() if name.isidentifier() and name not in (*INTERNAL, "Gamma")}


def _start(system: System, key: Key) -> Start:
    """What `noise.draw` draws on the host, with jax's own random numbers."""
    problem, (g, m, k, M) = system.problem, system.shape
    z_key, normal_key, sign_key, weight_key, own = jax.random.split(key, 5)
    size, inner = m + k + system.groups.unseen.shape[1], noise.rows_within(system.groups)
    raw = jax.random.normal(normal_key, (size, M), jnp.float64)
    z = problem.sample_noise(z_key, M).astype(jnp.float64)
    basis, z = noise.orthonormal_basis(problem, raw, z, jnp)
    parts = (
        basis,
        z,
        noise.teacher_rows(system.groups, m, jnp) @ basis[:size],
        jnp.stack([noise.coordinates(problem, one, M, jnp) for one in jax.random.split(weight_key, g)]),
        jax.random.rademacher(sign_key, (noise.ROLES, g + noise.ROUNDS, M), jnp.float64),
        jax.random.rademacher(jax.random.fold_in(sign_key, 1), (inner, M), jnp.float64),
    )
    return Start(*(part.astype(system.dtype) for part in parts), key=own)
