"""The march as a pure function: to be differentiated (forward mode), vmapped, or put inside a larger computation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import Algorithm
from ..problem import Problem
from . import march
from .noise import Grid
from .plan import blocks_for, padded
from .response import estimator
from .solver import BLOCK, second_moments
from .weights import Linear, Particles


def curves(
    problem: Problem,
    algorithm: Algorithm,
    times: Any,
    *,
    key: Any,
    samples: int = 2048,
    linear: bool = True,
    response: str = "probes",
    dtype: str = "float64",
) -> dict[str, jax.Array]:
    """One replica of `solve` on the grid `times` (from 0): training averages, `norm`, `overlap` and `Gamma`.

    δ, τ, λ, the schedule and `key` may be traced; the laws of teacher and start must be numbers. `linear=False` for a
    penalty that is not quadratic. Nothing is checked. Call it inside `jax.enable_x64(True)`. Derivatives with respect
    to δ and τ exist for `SGF` and `GradientFlow`, whose increments are smooth.
    """
    grid = np.asarray(times, dtype=np.float64)
    steps, block = len(grid) - 1, BLOCK
    setup = march.Setup(
        samples=samples,
        particles=samples,
        blocks=blocks_for(steps + 1, block),
        block=block,
        response=estimator(response, algorithm.independent),
        weights=Linear() if linear else Particles(),
        derivative=problem.k > 0 and bool(problem.labels.smooth),
        dtype=dtype,
    )
    fine = jnp.asarray(padded(grid, setup.blocks * block))
    keys = jax.tree.map(lambda stream: stream[0], march.make_keys(key, 1))
    state = march.trace(problem, algorithm, setup, Grid(fine, 1), second_moments(problem), keys, steps)
    flat = {
        name: part.reshape(setup.blocks * block, *part.shape[2:])[: steps + 1] for name, part in state.records.items()
    }
    return {name: part for name, part in flat.items() if name != "largest_response"}
