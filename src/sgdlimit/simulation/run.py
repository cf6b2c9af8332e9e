"""`simulate` and `simulate_on_data`: validate, plan, and say how each trial comes about."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import grid
from .._machine import keep_programs
from .._tree import model, static
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..algorithms.iterates import IterateAverage, named_averages
from ..algorithms.samples import Batch, StoredData, Weights, start_weights
from ..algorithms.training import check_parts
from ..errors import real, reject, seed_number, whole
from ..measure.pace import COUNT, Curvature, curvature, moving_of, start_samples
from ..own_data import Matrix, read_data, signs
from ..problem import DataLaw, EntryLaw, LabelRule, Labels, NoPenalty, Point, Problem, Square, VectorField
from ..problem.data import tested, warn_of_rank
from ..problem.losses import LossLike
from ..problem.penalties import PenaltyLike
from ..problem.problem import check_start
from ..problem.rows import Entries, resolve_entries
from ..problem.schedules import resolving_step
from ..results import Runs
from ..results import metrics as own
from .execute import Ensemble, execute
from .loop import Plan
from .trial import Handed, Trial, build

FLOW_STEP = 0.01
"""Default step of the integrators of gradient flow and SGF."""
DISCRETE_STEP = 0.05
"""Default step of the algorithms that live in discrete time."""
GAUSSIAN_TEST = 2**13
"""Fresh samples for test averages when they cost nothing (Gaussian entries)."""
MOST_UPDATES = 2e9
"""Updates are counted in 32 bits."""
MOST_STEPS = 1e7
"""Steps of a flow that are taken unasked."""
ROWS_TEST = 2048
"""Fresh samples for test averages when each is a row of d entries."""


Handing = Callable[[int], Handed]
_HANDED: ContextVar[Handing | None] = ContextVar("handed", default=None)


@contextmanager
def handing(weights: Handing | None) -> Iterator[None]:
    """Return a context in which every trial of `simulate` starts from these, by its number, and draws no weights."""
    token = _HANDED.set(weights)
    try:
        yield
    finally:
        _HANDED.reset(token)


def simulate(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    dim: int,
    trials: int = 10,
    times: ArrayLike | None = None,
    dt: float | None = None,
    seed: int = 0,
    entries: str | Callable[..., jax.Array] | Entries = "gaussian",
    snapshots: ArrayLike | None = None,
    test_samples: int | None = None,
    metrics: Mapping[str, Callable[..., ArrayLike]] | None = None,
    weight_metrics: Mapping[str, Callable[..., ArrayLike]] | None = None,
    test_data: DataLaw | None = None,
    averages: Mapping[str, IterateAverage] | None = None,
    dtype: DTypeLike = "float32",
    checkpoint: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    watch: Callable[[int, float, dict[str, np.ndarray]], None] | None = None,
    progress: bool | None = None,
) -> Runs:
    """Run the algorithm at dimension d on n = δd samples, `trials` times with independent data.

    times: when to record (default: 51 points up to `t_max`), rounded to whole updates; the result holds the true times.
    dt: step of the algorithms that have none of their own: 0.05 by default for proportional batches; for flows 0.01, or
        less where the curvature of data or penalty at the start, or a burst of a schedule, asks for it.
    entries: law of √d·x: 'gaussian', 'rademacher', 'uniform', 'sparse', or fn(key, shape) of mean 0 and variance 1.
    snapshots: times at which weights and pre-activations are kept (default: the last recorded one).
    test_samples: fresh samples behind a test average; workers: trials run at once (default: one a core).
    metrics, weight_metrics: further averages by name, as in `solve`: ψ(r, r_star, z) and ψ(theta, theta_star).
    test_data: law of the samples of a test, where it is another than `problem.data`, as in `solve`.
    averages: of the iterates, by name, such as {"ema": sl.EMA(0.5)}: `runs.averages["ema"]` are the runs of θ̄.
    checkpoint: a file that keeps finished trials; called again after a kill, or with more trials, only those that are
        missing are run, and the result is the same to the last bit. Any other call is refused.
    watch: called as watch(trial, time, values) with every record while the runs go on, from the thread of the trial; an
        exception that it raises ends them all.

    Ctrl-C raises `sl.Interrupted`, a KeyboardInterrupt whose `result` has the finished trials; where there are none,
    those that were running, as far as all had come.
    """
    keep_programs()
    require(problem, algorithm)
    dim = whole("dim", dim, least=2, why="d must be a whole number ≥ 2")
    samples = 0 if problem.infinite_data else round(problem.sample_ratio * dim)
    if not problem.infinite_data and samples < 1:
        raise reject("dim", dim, f"n = δd rounds to 0 at δ = {problem.sample_ratio:g}; raise dim")
    warn_of_rank(problem.data, dim)
    law = resolve_entries(entries)
    gaussian = law.gaussian and not problem.data.rotated
    fresh = (GAUSSIAN_TEST if gaussian else ROWS_TEST) if test_samples is None else test_samples
    fresh = whole("test_samples", fresh, least=1, why="it must be a whole number ≥ 1")
    measured = own.on_samples(problem, metrics), own.on_weights(problem, weight_metrics)
    layout = problem.data.at(dim, tested(problem.data, test_data))
    wanted = grid.resolve(t_max, times)
    iterates = named_averages(averages, float(wanted[-1]))
    check_start(problem)
    pull = curvature(problem, float(wanted[-1]), *start_samples(problem))
    plan, step = _plan(algorithm, problem, dim, samples, dt, wanted, snapshots, pull)
    root, handed = jax.random.key(seed_number(seed)), _HANDED.get()

    def prepare(index: int) -> tuple[Trial, Weights, jax.Array]:
        key = jax.random.fold_in(root, index)
        own = None if handed is None else handed(index)
        trial, weights = build(problem, law, dim, samples, fresh, jax.random.fold_in(key, 0), layout, own)
        return replace(trial, on_samples=measured[0], on_weights=measured[1]), weights, key

    owner = {"entries": law, "test_samples": fresh, "metrics": measured, "test_data": test_data}
    options: dict[str, object] = {"dt": step, "entries": law, "test_samples": fresh}
    options |= {} if test_data is None else {"test_data": test_data}
    options |= {"averages": dict(iterates)} if iterates else {}
    means, name = dict(iterates), "simulation"
    job = Ensemble(name, problem, algorithm, plan, prepare, samples, dim, seed, None, owner, options, means)
    return execute(job, trials, dtype=dtype, workers=workers, progress=progress, checkpoint=checkpoint, watch=watch)


def simulate_on_data(
    X: Matrix,
    y: ArrayLike,
    algorithm: Algorithm,
    *,
    loss: LossLike | VectorField | None = None,
    penalty: PenaltyLike | VectorField | None = None,
    bias: bool = False,
    width: int = 1,
    init: EntryLaw | None = None,
    X_test: Matrix | None = None,
    y_test: ArrayLike | None = None,
    binary: bool | None = None,
    trials: int = 10,
    t_max: float | None = None,
    times: ArrayLike | None = None,
    dt: float | None = None,
    seed: int = 0,
    snapshots: ArrayLike | None = None,
    metrics: Mapping[str, Callable[..., ArrayLike]] | None = None,
    weight_metrics: Mapping[str, Callable[..., ArrayLike]] | None = None,
    averages: Mapping[str, IterateAverage] | None = None,
    dtype: DTypeLike = "float32",
    checkpoint: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> Runs:
    """Run the algorithm on the user's own data; trials differ in the draws of the algorithm, and of the start alone.

    X: (n, d), one row a sample, or (n, L, d) of samples with L rows, such as tokens, each of which the loss sees whole;
        y then may have any shape (n, …). The penalty enters as H/d and time is t = ηk/d, as in `simulate`.
    width: units. init: law of a coordinate of θ⁰; 0 by default.
    bias: an intercept β, from 0 and without penalty, β ← β − (η/d)·mean of ℓ. averages: as in `simulate`. binary:
        whether labels are ±1 and the error is zero–one; found out where not said. A metric ψ(r, r_star, z) gets the
        label as z.
    """
    keep_programs()
    rows, labels, fresh, fresh_labels = read_data(X, y, X_test, y_test, several=True)
    n, dim = rows.shape[0], rows.shape[-1]
    alone = labels.ndim == 1
    rule = Labels(_own_label, binary=signs(labels, binary)) if alone else OwnLabels(labels.shape[1:])
    problem = Problem(
        loss=Square() if loss is None else loss,
        labels=rule,
        penalty=NoPenalty() if penalty is None else penalty,
        sample_ratio=n / dim,
        noise=Point(0.0),
        bias=bias,
        width=width,
        init=Point(0.0) if init is None else init,
        rows=1 if rows.ndim == 2 else rows.shape[1],
    )
    seen = _with_constant(rows) if problem.bias else rows
    require(problem, algorithm)
    check_start(problem, z=labels)
    measured = own.on_samples(problem, metrics), own.on_weights(problem, weight_metrics)
    wanted = grid.resolve(t_max, times)
    iterates = named_averages(averages, float(wanted[-1]))
    some = labels[np.linspace(0, n - 1, min(n, COUNT)).astype(int)]
    # In single precision: its last digits depend on how many cores took part, and steps must not.
    top = float(np.float32(np.linalg.norm(seen.reshape(-1, seen.shape[-1]), 2))) ** 2 * dim / n
    scale = 0.0 if init is None else start_samples(problem)[0][: len(some)]
    w = scale + np.zeros((len(some), *problem.sample_shape(problem.width)))
    pull = curvature(problem, float(wanted[-1]), w, some, top)
    plan, step = _plan(algorithm, problem, dim, n, dt, wanted, snapshots, pull)
    root = jax.random.key(seed_number(seed))

    def prepare(index: int) -> tuple[Trial, Weights, jax.Array]:
        unread = problem.sample_shape(0)
        data = StoredData(problem, jnp.asarray(rows), jnp.zeros((n, *unread)), jnp.asarray(labels))
        test = None
        if fresh is not None:
            test = Batch(jnp.asarray(fresh), jnp.zeros((len(fresh), *unread)), jnp.asarray(fresh_labels))
        key = jax.random.fold_in(root, index)
        theta = problem.sample_weights(jax.random.fold_in(key, 0), dim)[0]
        return Trial(data, jnp.zeros((dim, 0)), test, None, *measured), start_weights(problem, theta), key

    owner = {"data": (rows, labels, fresh, fresh_labels), "metrics": measured}
    options: dict[str, object] = {"dt": step}
    options |= {"averages": dict(iterates)} if iterates else {}
    name = "simulation on data"
    job = Ensemble(name, problem, algorithm, plan, prepare, n, dim, seed, seen, owner, options, dict(iterates))
    return execute(job, trials, dtype=dtype, workers=workers, progress=progress, checkpoint=checkpoint)


def _with_constant(X: np.ndarray) -> np.ndarray:
    """Rows with the feature 1/√d last, whose weight √d β moves as an intercept does: for curvatures of both."""
    return np.concatenate([X, np.full((*X.shape[:-1], 1), X.shape[-1] ** -0.5)], axis=-1)


def _own_label(r_star: jax.Array, z: jax.Array) -> jax.Array:
    """The user's labels travel as z."""
    return z


@model
class OwnLabels(LabelRule):
    """The user's labels, of this shape, which travel as z."""

    shape: tuple[int, ...] = static()
    planted = False

    def __call__(self, r_star: Any, z: Any) -> jax.Array:
        """z itself; a number, of which nothing but its shape is looked at, as an array of that shape."""
        return jnp.broadcast_to(z, self.shape)


def _flow_step(algorithm: Algorithm, problem: Problem, dt: float | None, t_max: float, pull: Curvature) -> float:
    """A step that is accurate, schedules included; the user's own, if it is stable."""
    rate = pull.data + pull.penalty
    largest = algorithm.stable / rate if rate > 0 else np.inf
    if dt is not None and dt > largest:
        why = f"steps above {largest:.3g} grow at the curvature {rate:.3g} of the start; leave dt out, or take"
        raise reject("dt", f"{dt:.4g}", f"{why} dt ≤ {algorithm.accurate / rate:.2g}")
    if dt is not None:
        return dt
    how = algorithm.how
    pulls = (
        (pull.data, 1.0),
        (pull.penalty, 2.0),
        (float(how.friction or 0.0), 2.0),
        (float(how.decayed or 0.0), 2.0),
    )
    step = min([FLOW_STEP, *(share * algorithm.accurate / part for part, share in pulls if part > 0)])
    for name, part in [*moving_of(problem), ("batch_share", algorithm.batch_share)]:
        step = resolving_step(name, part, t_max, step)
    if t_max > MOST_STEPS * step:
        why = f"a curvature of {rate:.3g} asks for steps of {step:.2g}, more than {MOST_STEPS:.0e} of them"
        raise reject("t_max", f"{t_max:.4g}", f"{why}; lower t_max, or give dt")
    return step


def _plan(
    algorithm: Algorithm,
    problem: Problem,
    dim: int,
    samples: int,
    dt: float | None,
    times: np.ndarray,
    snapshots: ArrayLike | None,
    pull: Curvature,
) -> tuple[Plan, float | None]:
    """Whole updates at which to record; and the step, where it was a choice."""
    algorithm.check_simulation(problem, samples)
    if dt is not None and algorithm.rows is not None:
        raise reject("dt", dt, f"the step of {type(algorithm).__name__} is η/d = τB/d; leave dt out")
    if dt is not None:
        dt = float(real("dt", dt, above=0, why="it must be a positive time step"))
    if algorithm.discrete:
        dt = DISCRETE_STEP if dt is None else dt
    elif algorithm.rows is None:
        dt = _flow_step(algorithm, problem, dt, float(times[-1]), pull)
    step = algorithm.step_time(dim, dt or 0.0)
    check_parts(algorithm.how, problem, step)
    if times[-1] > MOST_UPDATES * step:
        remedy = "lower t_max, or raise the temperature, the batch size or dt"
        raise reject("t_max", times[-1], f"that is more than {MOST_UPDATES:.0e} updates of {step:.3g} each; {remedy}")
    check_share(algorithm, times)
    record = np.unique(np.round(times / step).astype(np.int64))
    if record[-1] < 1:
        raise reject("t_max", times[-1], f"it is shorter than one update, which lasts {step:.4g}; raise t_max or dim")
    keep = record[-1:]
    if snapshots is not None:
        wanted = grid.increasing("snapshots", snapshots)
        keep = np.unique(np.round(wanted / step).astype(np.int64))
        if keep[-1] > record[-1]:
            raise reject("snapshots", wanted[-1], f"it lies beyond the last recorded time {record[-1] * step:.4g}")
    return Plan(step, record, keep), dt
