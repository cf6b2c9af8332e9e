"""The loop over updates: compiled inside, a host loop outside for progress, Ctrl-C and divergence."""

import heapq
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import Algorithm
from ..algorithms.iterates import IterateAverage
from ..algorithms.minibatch import FLOYD_LIMIT
from ..algorithms.samples import Data, Weights
from ..algorithms.training import cause
from ..exact.stability import BOUND
from ..results.variables import COMPARABLE, OF
from .trial import Trial, observe, snapshot

WORK = 1e9
"""Multiply-adds between two looks at the clock: a fraction of a second."""
PIECES = 32
"""Stretches between records that one compiled call can hold."""

_snapshot = jax.jit(snapshot)
_start = jax.jit(lambda algorithm, key, data, weights: algorithm.start_updates(key, data, weights))
"""What the algorithm carries from update to update: a tree of its own."""


class Plan(NamedTuple):
    """What to do when: updates after which to record, and after which to keep the weights."""

    step_time: float
    record: np.ndarray
    keep: np.ndarray


ENDED = "diverged between"
"""Name of the two times of a divergence in a trace; no name of a user's has a space."""
RATE = "diverged at a rate of"
"""Of the factor of a user's rate that was none, where that ended a trial."""


class Trace(NamedTuple):
    """What a trial left behind."""

    values: dict[str, np.ndarray]
    """By name, as far as it came: what was recorded, (times, …), and what was kept, (snapshots, …)."""

    @property
    def times(self) -> int:
        """Records that were made."""
        return len(self.values.get("norm", ()))

    @property
    def diverged(self) -> list[float] | None:
        """Last good time and first bad one, or None."""
        return self.values[ENDED].tolist() if ENDED in self.values else None

    @property
    def rate(self) -> float | None:
        """The factor of a rate for which it ended, negative or not finite, or None."""
        return float(self.values[RATE]) if RATE in self.values else None


def _stacked(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def window(algorithm: Algorithm, samples: int) -> int:
    """Updates whose batches are drawn together: at most 1024, 2¹⁶ rows, or about 2²⁰ random numbers if sorted."""
    batch = algorithm.rows or 1
    count = 2**20 // max(samples, 1) if batch > FLOYD_LIMIT else 2**16 // batch
    return max(1, min(1024, count))


@partial(jax.jit, static_argnums=(2, 3))
def _draws(algorithm: Algorithm, key: jax.Array, count: int, samples: int, first: int) -> Any:
    """What `count` updates from `first` on draw, a row each: a tree of the algorithm's own."""
    if samples == 0:  # fresh data: only the number of rows matters
        return jnp.zeros((count, algorithm.rows or 1), dtype=jnp.int32)
    return algorithm.draws(key, first, count, samples)


Averages = dict[str, IterateAverage]


class Moving(NamedTuple):
    """What updates carry along."""

    weights: Weights
    state: Any
    """The algorithm's own tree."""
    means: dict[str, Weights]
    """θ̄ with all that is trained, by the name of the average."""


@jax.jit
def _advance(
    algorithm: Algorithm,
    averages: Averages,
    trial: Trial,
    moving: Moving,
    table: Any,
    first: int,
    pieces: jax.Array,
    dt: float,
    key: jax.Array,
) -> tuple[Moving, jax.Array, dict[str, jax.Array]]:
    """Updates lo … hi−1 for each row (lo, hi, look) of `pieces`; `table` holds the draws of updates from `first` on.

    Also, after each piece, whether the weights are still bounded, and the observables where `look` is not zero.
    """

    def update(k: jax.Array, moving: Moving) -> Moving:
        draw = jax.tree.map(lambda rows: rows[k - first], table)
        here, own = k * dt, jax.random.fold_in(key, k)
        weights, state = algorithm.update(trial.data, moving.weights, moving.state, here, dt, draw, own)
        shares = {name: average.share((k + 1) * dt, dt) for name, average in averages.items()}
        return Moving(weights, state, {name: _nearer(moving.means[name], weights, shares[name]) for name in shares})

    def look(moving: Moving) -> dict[str, jax.Array]:
        seen = observe(trial, moving.weights)
        for name, mean in moving.means.items():
            seen |= {name + OF + own: value for own, value in observe(trial, mean).items()}
        return seen

    nothing = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), jax.eval_shape(look, moving))

    def advance(moving: Moving, piece: jax.Array) -> tuple[Any, Any]:
        lo, hi, wanted = piece
        moving = jax.lax.fori_loop(lo, hi, update, moving)
        seen = jax.lax.cond(wanted != 0, lambda: look(moving), lambda: nothing)
        return moving, (_bounded(moving.weights), seen)

    moving, (bounded, seen) = jax.lax.scan(advance, moving, pieces)
    return moving, bounded, seen


def _nearer(mean: Weights, weights: Weights, share: Any) -> Weights:
    """θ̄ + share·(θ − θ̄), of all that is trained."""
    return jax.tree.map(lambda own, new: own + jnp.asarray(share, own.dtype) * (new - own), mean, weights)


def _bounded(weights: Weights) -> jax.Array:
    """Whether mean squares are finite, and not so large that they count as a divergence."""
    sizes = [jnp.mean(part**2) for part in (weights.theta, *weights.shared.values())]
    return jnp.all(jnp.stack([jnp.isfinite(size) & (size < BOUND) for size in sizes]))


def _calls(plan: Plan, algorithm: Algorithm, data: Data, theta: Any, span: int) -> Iterator[list[tuple[int, int]]]:
    """Ranges of updates, cut at records and at windows of draws, gathered into calls of bounded length and work."""
    work = span
    if data.samples and algorithm.rows is None:
        work = max(1, int(WORK / (2 * data.samples * theta.size)))
    last, chunk = int(plan.record[-1]), min(span, work)
    stops = set(plan.keep.tolist())
    cuts = heapq.merge(plan.record.tolist(), plan.keep.tolist(), range(0, last, chunk))
    call = [(0, 0)]
    for lo, hi in pairwise(cut for cut, _ in groupby(cuts)):
        begun = call[0][0]
        if len(call) == PIECES or lo // span != begun // span or hi - begun > work or lo in stops:
            yield call
            call = []
        call.append((lo, hi))
    yield call


def run(
    trial: Trial,
    weights: Weights,
    key: jax.Array,
    algorithm: Algorithm,
    plan: Plan,
    averages: Averages,
    advanced: Callable[[int, int], bool],
    watch: Callable[[float, dict[str, np.ndarray]], None] | None = None,
) -> Trace:
    """March one trial. `advanced(from, to)` hears of updates and answers whether to go on; `watch` of every record."""
    samples = trial.data.samples
    span, dt = window(algorithm, samples), plan.step_time
    # independent streams: batches, the noise of a step, the start of the algorithm's state
    draws, steps, start = (jax.random.fold_in(key, i) for i in (1, 2, 3))
    moving = Moving(weights, _start(algorithm, start, trial.data, weights), dict.fromkeys(averages, weights))
    record, keep = set(plan.record.tolist()), set(plan.keep.tolist())
    recorded: list[dict[str, np.ndarray]] = []
    kept: list[dict[str, np.ndarray]] = []
    table, first = None, -1
    for call in _calls(plan, algorithm, trial.data, weights.theta, span):
        begin, end = call[0][0], call[-1][1]
        if begin // span * span != first:
            first = begin // span * span
            table = _draws(algorithm, draws, span, samples, first)
        pieces = np.full((PIECES, 3), (end, end, 0), dtype=np.int32)
        pieces[: len(call)] = [(lo, hi, hi in record) for lo, hi in call]
        moving, bounded, seen = _advance(algorithm, averages, trial, moving, table, first, pieces, dt, steps)
        good, values = np.asarray(bounded), {name: np.asarray(value) for name, value in seen.items()}
        for i, (lo, hi) in enumerate(call):
            if not good[i] or (hi in record and not _finite(values, i)):
                ended = {ENDED: np.array([lo * dt, hi * dt])}
                ill = cause(algorithm.how, moving.state)
                ended |= {} if ill is None else {RATE: np.array(ill)}
                return Trace(_stacked(recorded) | _stacked(kept) | ended)
            if hi in record:
                recorded.append({name: value[i] for name, value in values.items()})
                if watch is not None:
                    watch(hi * dt, recorded[-1])
        if end in keep:
            kept.append({name: np.asarray(value) for name, value in _snapshot(trial, moving.weights).items()})
        if not advanced(begin, end):
            break
    return Trace(_stacked(recorded) | _stacked(kept))


def _finite(values: dict[str, np.ndarray], i: int) -> bool:
    """Whether a record is sound: a loss may overflow while θ is still bounded; a user's metric may be what it likes."""
    return all(np.all(np.isfinite(values[name][i])) for name in COMPARABLE if name in values)


def compile_for(
    trial: Trial, weights: Weights, key: jax.Array, algorithm: Algorithm, plan: Plan, averages: Averages
) -> None:
    """Compile all that a run needs, by a run without updates."""
    start = np.zeros(1, dtype=np.int64)
    run(trial, weights, key, algorithm, plan._replace(record=start, keep=start), averages, lambda *_: True)
