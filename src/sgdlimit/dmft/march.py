"""The causal march: `init`, then `step` for i = 0, 1, …: row i of every kernel needs only rows before it.

Pure functions of one replica. `advance` carries all replicas over a range of steps in one compiled call; `trace`
is the whole march as one function, to be differentiated (forward) or vmapped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..problem import Problem, observables
from . import data_side, gaussian, history
from .data_side import DataSide, Keys
from .noise import Grid
from .response import Estimator, Exact, Paper, Probes
from .weights import Linear, Teacher, WeightSide


@dataclass(frozen=True)
class Setup:
    """Sizes and choices that fix the compiled program; everything else is traced."""

    samples: int
    particles: int
    blocks: int
    block: int
    response: Estimator
    weights: WeightSide
    derivative: bool
    """R* from the derivative in r*, rather than by Gaussian integration by parts."""
    dtype: str
    kernels: bool = False
    metrics: tuple[tuple[str, Callable[..., Any]], ...] = ()

    @property
    def threshold(self) -> float:
        """Smallest relative pivot."""
        return gaussian.THRESHOLD[self.dtype]

    @property
    def needs_details(self) -> bool:
        """Whether the response estimator is the paper's."""
        return isinstance(self.response, Paper)

    @property
    def constant_stiffness(self) -> bool:
        """Whether ∇h is the same for all weights."""
        return isinstance(self.weights, Linear)

    @property
    def weight_response(self) -> Estimator:
        """Estimator on the side of the weights; the paper's processes concern the data side."""
        return Exact() if isinstance(self.response, Exact) else Probes(control=False)


class State(NamedTuple):
    """One replica after some steps."""

    data: DataSide
    weights: Any
    records: dict[str, Any]
    """What is kept of every step: training observables, C_θ(i,i), C_θ(i,*), Γ, R_ℓ."""


def make_keys(key: Any, replicas: int) -> Keys:
    """Independent random streams for every replica."""
    streams = jax.random.split(key, (len(Keys._fields), replicas))
    return Keys(*(streams[i] for i in range(len(Keys._fields))))


def init(problem: Problem, algorithm: Any, setup: Setup, grid: Grid, teacher: Teacher, keys: Keys) -> State:
    """Before step 0."""
    data = data_side.init(problem, algorithm, setup, keys)
    weights = setup.weights.init(problem, setup, teacher, keys)
    m, shape = problem.width, (setup.blocks, setup.block)
    observed = observables.on_samples(problem) | dict(setup.metrics)
    records = {f"train_{name}": history.empty(*shape) for name in observed}
    records |= {"norm": history.empty(*shape, m, m), "overlap": history.empty(*shape, m, problem.k)}
    records |= {"Gamma": history.empty(*shape, m, m), "largest_response": history.empty(*shape)}
    if setup.kernels:
        kernel = history.empty_kernel(*shape, m)
        records |= {"C_theta": kernel, "R_ell": kernel, "R_ell_equal": history.empty(*shape, m, m)}
    return State(data, weights, records)


def _step(
    problem: Problem,
    algorithm: Any,
    setup: Setup,
    grid: Grid,
    teacher: Teacher,
    keys: Any,
    data: Any,
    weights: Any,
    i: Any,
) -> Any:
    rows = setup.weights.rows(weights)
    return data_side.step(problem, algorithm, setup, grid, keys, teacher.root, data, i, rows)


def step(
    problem: Problem, algorithm: Any, setup: Setup, grid: Grid, teacher: Teacher, keys: Keys, state: State, i: Any
) -> State:
    """Row i of the data side, row i+1 of the weights."""
    before = setup.weights.write(state.weights, i)
    data, averages, seen = _step(problem, algorithm, setup, grid, teacher, keys, state.data, before, i)
    seen = seen | {
        "norm": setup.weights.moments(before, i),
        "overlap": setup.weights.rows(before)[1] @ teacher.root[problem.width :].T,
        "Gamma": averages.gamma,
        "largest_response": jnp.max(jnp.abs(averages.response)),
    }
    if setup.kernels:
        W, W_start, _, _ = setup.weights.rows(before)
        along = jnp.einsum("ac,xjbc->xjab", W_start, before.W_start)
        seen |= {"C_theta": along + history.apply(before.W, W, i + 1)}
        seen |= {"R_ell": averages.response, "R_ell_equal": averages.equal}
    records = {name: history.put(part, i, seen[name]) for name, part in state.records.items()}
    weights = setup.weights.advance(problem, setup, grid, teacher, keys, before, averages, i)
    return State(data, weights, records)


@partial(jax.jit, static_argnames="setup")
def start(problem: Problem, algorithm: Any, setup: Setup, grid: Grid, teacher: Teacher, keys: Any) -> State:
    """`init` for every replica; every stream of `keys` has one key each."""
    return jax.vmap(lambda own: init(problem, algorithm, setup, grid, teacher, own))(keys)


@partial(jax.jit, static_argnames="setup", donate_argnames="state")
def advance(
    problem: Problem,
    algorithm: Any,
    setup: Setup,
    grid: Grid,
    teacher: Teacher,
    keys: Any,
    state: State,
    first: Any,
    last: Any,
) -> State:
    """Steps first … last−1 of every replica."""

    def one(i: Any, state: State) -> State:
        return jax.vmap(lambda own, s: step(problem, algorithm, setup, grid, teacher, own, s, i))(keys, state)

    return jax.lax.fori_loop(first, last, one, state)


def trace(
    problem: Problem, algorithm: Any, setup: Setup, grid: Grid, teacher: Teacher, keys: Keys, steps: int
) -> State:
    """The march of one replica as one function of its arguments."""
    state = init(problem, algorithm, setup, grid, teacher, keys)
    return jax.lax.fori_loop(
        0, steps + 1, lambda i, s: step(problem, algorithm, setup, grid, teacher, keys, s, i), state
    )
