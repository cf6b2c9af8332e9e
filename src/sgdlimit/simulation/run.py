"""`simulate` and `simulate_on_data`: validate, plan, and say how each trial comes about."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import grid
from .._cache import keep_programs
from ..algorithms import Algorithm
from ..algorithms.base import StoredData, check_share, require
from ..errors import flag, real, reject, seed_number, whole
from ..limits.on_data import read_data
from ..problem import Labels, NoPenalty, Point, Problem, Square
from ..problem.entries import resolve as resolve_entries
from ..problem.problem import check_start
from ..results import Runs
from .execute import Job, execute
from .loop import Keys, Plan
from .trial import RowsTest, Trial, build

FLOW_STEP = 0.01
"""Default step of the integrators of gradient flow and SGF."""
DISCRETE_STEP = 0.05
"""Default step of the algorithms that live in discrete time."""
GAUSSIAN_TEST = 2**13
"""Fresh samples for test averages when they cost nothing (Gaussian entries)."""
MOST_UPDATES = 2e9
"""Updates are counted in 32 bits."""
ROWS_TEST = 2048
"""Fresh samples for test averages when each is a row of d entries."""


def simulate(
    problem: Problem,
    algorithm: Algorithm,
    *,
    dim: int,
    trials: int = 10,
    t_max: float | None = None,
    times: Any = None,
    dt: float | None = None,
    seed: int = 0,
    entries: Any = "gaussian",
    snapshots: Any = None,
    test_samples: int | None = None,
    dtype: str = "float32",
    workers: int | None = None,
    progress: bool | None = None,
) -> Runs:
    """Run the algorithm at dimension d on n = δd samples, `trials` times with independent data.

    times: when to record (default: 51 points up to `t_max`), rounded to whole updates; the result holds the true times.
    dt: step of the algorithms that have none of their own (default 0.01 for flows, 0.05 for proportional batches).
    entries: law of √d·x: 'gaussian', 'rademacher', 'uniform', 'sparse', or fn(key, shape) of mean 0 and variance 1.
    snapshots: times at which weights and pre-activations are kept (default: the last recorded one).
    test_samples: fresh samples behind a test average; workers: trials run at once (default: one a core).
    """
    keep_programs()
    require(problem, algorithm)
    dim = whole("dim", dim, least=2, why="d must be a whole number ≥ 2")
    samples = 0 if problem.infinite_data else round(problem.sample_ratio * dim)
    if not problem.infinite_data and samples < 1:
        raise reject("dim", dim, f"n = δd rounds to 0 at δ = {problem.sample_ratio:g}; raise dim")
    law = resolve_entries(entries)
    fresh = (GAUSSIAN_TEST if law.gaussian else ROWS_TEST) if test_samples is None else test_samples
    fresh = whole("test_samples", fresh, least=1, why="it must be a whole number ≥ 1")
    plan, step = _plan(algorithm, problem, dim, samples, dt, grid.resolve(t_max, times), snapshots)
    check_start(problem)
    root = jax.random.key(seed_number(seed))

    def prepare(index: int) -> tuple[Trial, Any, Keys]:
        key = jax.random.fold_in(root, index)
        trial, theta = build(problem, law, dim, samples, fresh, jax.random.fold_in(key, 0))
        return trial, theta, _keys(key)

    job = Job("simulation", problem, algorithm, plan, prepare, samples, dim, None)
    options = {"t_max": float(plan.record[-1] * plan.step_time), "dt": step, "entries": law, "test_samples": fresh}
    return execute(job, trials=trials, dtype=dtype, workers=workers, progress=progress, seed=seed, options=options)


def simulate_on_data(
    X: Any,
    y: Any,
    algorithm: Algorithm,
    *,
    loss: Any = None,
    penalty: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    binary: bool = False,
    trials: int = 10,
    t_max: float | None = None,
    times: Any = None,
    dt: float | None = None,
    seed: int = 0,
    snapshots: Any = None,
    dtype: str = "float32",
    workers: int | None = None,
    progress: bool | None = None,
) -> Runs:
    """Run the algorithm from θ = 0 on the user's own matrix; trials differ only in the draws of the algorithm.

    Rows are samples; the penalty enters as H/d and time is t = ηk/d, as in `simulate`. `binary=True`: labels ±1.
    """
    X, y, X_test, y_test = read_data(X, y, X_test, y_test)
    flag("binary", binary)
    n, dim = X.shape
    problem = Problem(
        loss=Square() if loss is None else loss,
        labels=Labels(_own_label, binary=binary),
        penalty=NoPenalty() if penalty is None else penalty,
        sample_ratio=n / dim,
        noise=Point(0.0),
    )
    require(problem, algorithm)
    if binary and not np.all(np.abs(y) == 1):
        raise reject("y", y[np.abs(y) != 1][0], "binary labels must be ±1; recode them")
    check_start(problem, z=y)
    plan, step = _plan(algorithm, problem, dim, n, dt, grid.resolve(t_max, times), snapshots)
    root = jax.random.key(seed_number(seed))

    def prepare(index: int) -> tuple[Trial, Any, Keys]:
        float_type = jnp.zeros(()).dtype
        rows = jnp.asarray(X, dtype=float_type)
        data = StoredData(problem, rows, jnp.zeros((n, 0)), jnp.asarray(y, dtype=float_type))
        test = None
        if X_test is not None:
            fresh = jnp.asarray(X_test, dtype=float_type)
            test = RowsTest(fresh, jnp.zeros((len(X_test), 0)), jnp.asarray(y_test, dtype=float_type))
        return (
            Trial(data, jnp.zeros((dim, 0)), test),
            jnp.zeros((dim, 1)),
            _keys(jax.random.fold_in(root, index)),
        )

    job = Job("simulation on data", problem, algorithm, plan, prepare, n, dim, X)
    options = {"t_max": float(plan.record[-1] * plan.step_time), "dt": step}
    return execute(job, trials=trials, dtype=dtype, workers=workers, progress=progress, seed=seed, options=options)


def _own_label(r_star: Any, z: Any) -> Any:
    """The user's labels travel as z."""
    return z


def _keys(key: Any) -> Keys:
    return Keys(*(jax.random.fold_in(key, i) for i in (1, 2, 3)))


def _plan(
    algorithm: Algorithm,
    problem: Problem,
    dim: int,
    samples: int,
    dt: float | None,
    times: np.ndarray,
    snapshots: Any,
) -> tuple[Plan, float | None]:
    """Whole updates at which to record; and the step, where it was a choice."""
    algorithm.check_simulation(problem, samples)
    has_own = algorithm.rows is not None
    if dt is not None and has_own:
        raise reject("dt", dt, f"the step of {type(algorithm).__name__} is η/d = τB/d; leave dt out")
    if dt is None:
        dt = DISCRETE_STEP if algorithm.discrete else FLOW_STEP
    dt = float(real("dt", dt, above=0, why="it must be a positive time step"))
    step = algorithm.step_time(dim, dt)
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
    return Plan(step, record, keep), None if has_own else dt
