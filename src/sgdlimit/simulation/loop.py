"""The loop over updates: compiled inside, a host loop outside for progress, Ctrl-C and divergence."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import Algorithm
from ..algorithms.base import FreshData, StoredData
from ..algorithms.minibatch import FLOYD_LIMIT
from .trial import Trial, observe, snapshot

BOUND = 1e10
"""A norm θᵀθ/d beyond this counts as divergence; single precision still holds it."""
WORK = 1e9
"""Multiply-adds between two looks at the clock: a fraction of a second."""

observe_jit = jax.jit(observe)
snapshot_jit = jax.jit(snapshot)


class Keys(NamedTuple):
    """Independent streams: batches, the noise of a step, the start of the algorithm's state."""

    draws: Any
    steps: Any
    start: Any


class Plan(NamedTuple):
    """What to do when: updates after which to record, and after which to keep the weights."""

    step_time: float
    record: np.ndarray
    keep: np.ndarray


class Trace(NamedTuple):
    """What a trial left behind."""

    recorded: list[dict[str, np.ndarray]]
    kept: list[dict[str, np.ndarray]]
    diverged: tuple[float, float] | None
    """Last good time and first bad one, or None."""


def window(algorithm: Algorithm, samples: int) -> int:
    """Updates whose batches are drawn together: at most 1024, 2¹⁶ rows, or about 2²⁰ random numbers if sorted."""
    batch = getattr(algorithm, "batch_size", 1)
    rows = 2**20 // max(samples, 1) if batch > FLOYD_LIMIT else 2**16 // batch
    return max(1, min(1024, rows))


@partial(jax.jit, static_argnums=(2, 3))
def _draws(algorithm: Algorithm, key: Any, count: int, samples: int, first: Any) -> Any:
    if samples == 0:  # fresh data: only the number of rows matters
        return jnp.zeros((count, getattr(algorithm, "batch_size", 1)), dtype=jnp.int32)
    return algorithm.draws(key, first, count, samples)


@jax.jit
def _start(algorithm: Algorithm, data: Any, key: Any) -> Any:
    return algorithm.start_updates(key, data)


@jax.jit
def _advance(
    algorithm: Algorithm,
    data: Any,
    theta: Any,
    state: Any,
    table: Any,
    first: Any,
    lo: Any,
    hi: Any,
    dt: Any,
    key: Any,
) -> Any:
    """Updates lo … hi−1; `table` holds the draws of updates from `first` on. Also whether θ is still bounded."""

    def body(k: Any, carry: Any) -> Any:
        theta, state = carry
        draw = jax.tree.map(lambda rows: rows[k - first], table)
        return algorithm.update(data, theta, state, k * dt, dt, draw, jax.random.fold_in(key, k))

    theta, state = jax.lax.fori_loop(lo, hi, body, (theta, state))
    size = jnp.mean(theta**2)
    return theta, state, jnp.isfinite(size) & (size < BOUND)


def _pieces(plan: Plan, algorithm: Algorithm, data: Any, theta: Any, span: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of updates: cut at records, at windows of draws, and by work."""
    if isinstance(data, StoredData) and not hasattr(algorithm, "batch_size"):
        span = max(1, int(WORK / (2 * data.X.size * theta.shape[1])))
    last = int(plan.record[-1])
    cuts = np.unique(np.concatenate([plan.record, plan.keep, np.arange(0, last, span), [0, last]])).astype(int)
    yield from zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def run(
    trial: Trial,
    theta: Any,
    algorithm: Algorithm,
    plan: Plan,
    keys: Keys,
    advanced: Callable[[int], bool],
) -> Trace:
    """March one trial. `advanced(step)` is told of progress and answers whether to go on."""
    samples = 0 if isinstance(trial.data, FreshData) else int(trial.data.X.shape[0])
    span, dt = window(algorithm, samples), plan.step_time
    state = _start(algorithm, trial.data, keys.start)
    record, keep = set(plan.record.tolist()), set(plan.keep.tolist())
    trace = Trace([], [], None)

    def look(k: int) -> None:
        if k in record:
            trace.recorded.append({n: np.asarray(v) for n, v in observe_jit(trial, theta).items()})
        if k in keep:
            trace.kept.append({n: np.asarray(v) for n, v in snapshot_jit(trial, theta).items()})

    look(0)
    table, first = None, -1
    for lo, hi in _pieces(plan, algorithm, trial.data, theta, span):
        if lo // span * span != first:
            first = lo // span * span
            table = _draws(algorithm, keys.draws, span, samples, first)
        theta, state, bounded = _advance(algorithm, trial.data, theta, state, table, first, lo, hi, dt, keys.steps)
        if not bool(bounded):
            return trace._replace(diverged=(lo * dt, hi * dt))
        look(hi)
        if not advanced(hi):
            break
    return trace


def compile_for(prepare: Callable[[], tuple[Trial, Any, Keys]], algorithm: Algorithm, plan: Plan, samples: int) -> Any:
    """Compile everything a run needs, by doing it with no updates; parts that do not depend on each other at once.

    Returns what `prepare` made. `samples` is n, 0 for infinite data.
    """
    here = jnp.zeros(()).dtype == jnp.float64

    def alone(part: Callable[..., Any], *arguments: Any) -> Any:
        with jax.enable_x64(here):  # the precision is a setting of the thread
            return jax.block_until_ready(part(*arguments))

    with ThreadPoolExecutor(3) as pool:
        drawing = pool.submit(alone, _draws, algorithm, jax.random.key(0), window(algorithm, samples), samples, 0)
        trial, theta, keys = prepare()
        looking = [pool.submit(alone, part, trial, theta) for part in (observe_jit, snapshot_jit)]
        state = _start(algorithm, trial.data, keys.start)
        table = drawing.result()
        alone(_advance, algorithm, trial.data, theta, state, table, 0, 0, 0, plan.step_time, keys.steps)
        for done in looking:
            done.result()
    return trial, theta, keys
