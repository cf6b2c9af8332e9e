"""`simulate`: validate, plan, run the trials side by side, label what comes out."""

import contextlib
import os
import threading
import time as clock
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import grid
from ..algorithms import Algorithm
from ..algorithms.base import StoredData
from ..errors import DivergenceWarning, real, reject, whole
from ..limits.least_squares import divergence_words, ridge_of
from ..limits.on_data import read_data
from ..limits.spectrum import stable_temperature, stable_temperature_on
from ..problem import Constant, Labels, NoPenalty, Point, Problem, Square
from ..problem.entries import resolve as resolve_entries
from ..problem.observables import UNITS
from ..problem.problem import check_start
from ..progress import Progress
from ..results import Runs, Variable
from ..results.provenance import provenance
from .loop import Keys, Plan, Trace, compile_for, run
from .trial import RowsTest, Trial, build

FLOW_STEP = 0.01
"""Default step of the integrators of gradient flow and SGF."""
DISCRETE_STEP = 0.05
"""Default step of the algorithms that live in discrete time."""
GAUSSIAN_TEST = 2**13
"""Fresh samples for test averages when they cost nothing (Gaussian entries)."""
ROWS_TEST = 2048
"""Fresh samples for test averages when each is a row of d entries."""

DIMS = {
    "norm": ("student", "student_"),
    "overlap": ("student", "teacher"),
    "theta": ("coordinate", "student"),
    "theta_star": ("coordinate", "teacher"),
    "r": ("sample", "student"),
    "r_star": ("sample", "teacher"),
    "z": ("sample",),
}
"""Axes of a variable beyond trial and time (or snapshot)."""

CONSTANT = ("theta_star", "r_star", "z")
"""Kept with the snapshots, but the same at all of them."""


class _Job(NamedTuple):
    """What the trials have in common, whichever way their data come about."""

    problem: Problem
    algorithm: Algorithm
    plan: Plan
    prepare: Callable[[int], tuple[Trial, Any, Keys]]
    """Data, θ⁰ and keys of a trial."""


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
    if not isinstance(problem, Problem):
        raise reject("problem", repr(problem), "it must be an sl.Problem")
    dim = whole("dim", dim, least=2, why="d must be a whole number ≥ 2")
    samples = 0 if problem.infinite_data else round(problem.sample_ratio * dim)
    if not problem.infinite_data and samples < 1:
        raise reject("dim", dim, f"n = δd rounds to 0 at δ = {problem.sample_ratio:g}; raise dim")
    law = resolve_entries(entries)
    fresh = (GAUSSIAN_TEST if law.gaussian else ROWS_TEST) if test_samples is None else test_samples
    fresh = whole("test_samples", fresh, least=1, why="it must be a whole number ≥ 1")
    plan, step = _plan(algorithm, problem, dim, samples, dt, grid.resolve(t_max, times), snapshots)
    check_start(problem)
    root = jax.random.key(whole("seed", seed, least=0, why="it must be a whole number ≥ 0"))

    def prepare(index: int) -> tuple[Trial, Any, Keys]:
        key = jax.random.fold_in(root, index)
        trial, theta = build(problem, law, dim, samples, fresh, jax.random.fold_in(key, 0))
        return trial, theta, _keys(key)

    options = {
        "dim": dim,
        "samples": samples or None,
        "trials": trials,
        "t_max": float(plan.record[-1] * plan.step_time),
        "dt": step,
        "entries": law,
        "test_samples": fresh,
        "dtype": dtype,
    }
    return _execute(
        _Job(problem, algorithm, plan, prepare), trials, dtype, workers, progress, seed, options, "simulation"
    )


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
    n, dim = X.shape
    problem = Problem(
        loss=Square() if loss is None else loss,
        labels=Labels(_own_label, binary=binary),
        penalty=NoPenalty() if penalty is None else penalty,
        sample_ratio=n / dim,
        noise=Point(0.0),
    )
    if binary and not np.all(np.abs(y) == 1):
        raise reject("y", y[np.abs(y) != 1][0], "binary labels must be ±1; recode them")
    plan, step = _plan(algorithm, problem, dim, n, dt, grid.resolve(t_max, times), snapshots)
    root = jax.random.key(whole("seed", seed, least=0, why="it must be a whole number ≥ 0"))

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

    options = {"dim": dim, "samples": n, "trials": trials, "dt": step, "dtype": dtype}
    job = _Job(problem, algorithm, plan, prepare)
    return _execute(job, trials, dtype, workers, progress, seed, options, "simulation on data", X)


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
    if not isinstance(algorithm, Algorithm):
        raise reject("algorithm", repr(algorithm), "it must be an algorithm such as sl.SGD(temperature=0.4)")
    algorithm.check_simulation(problem, samples)
    has_own = hasattr(algorithm, "batch_size")
    if dt is None:
        dt = DISCRETE_STEP if algorithm.discrete else FLOW_STEP
    elif has_own:
        raise reject("dt", dt, f"the step of {type(algorithm).__name__} is η/d = τB/d; leave dt out")
    dt = real("dt", dt, above=0, why="it must be a positive time step")
    step = algorithm.step_time(dim, dt)
    record = np.unique(np.round(times / step).astype(np.int64))
    if record[-1] < 1:
        raise reject("t_max", times[-1], f"it is shorter than one update, which lasts {step:.4g}; raise t_max or dim")
    keep = record[-1:]
    if snapshots is not None:
        wanted = grid.resolve(None, np.atleast_1d(np.asarray(snapshots, dtype=float)))
        keep = np.unique(np.round(wanted / step).astype(np.int64))
        if keep[-1] > record[-1]:
            raise reject("snapshots", wanted[-1], f"it lies beyond the last recorded time {record[-1] * step:.4g}")
    return Plan(step, record, keep), None if has_own else dt


@contextlib.contextmanager
def _precision(dtype: Any) -> Iterator[None]:
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in ("float32", "float64"):
        raise reject("dtype", dtype, "it must be float32 or float64")
    with jax.enable_x64(name == "float64"):
        yield


def _execute(
    job: _Job,
    trials: int,
    dtype: str,
    workers: int | None,
    progress: bool | None,
    seed: int,
    options: dict[str, Any],
    method: str,
    X: np.ndarray | None = None,
) -> Runs:
    trials = whole("trials", trials, least=1, why="it must be a whole number ≥ 1")
    cores = os.cpu_count() or 1
    if workers is None:
        workers = cores if jax.default_backend() == "cpu" else 1
    workers = min(trials, whole("workers", workers, least=1, why="it must be a whole number ≥ 1"))
    last = int(job.plan.record[-1])
    halt = threading.Event()
    horizon = [last]  # once a trial has diverged, the others need not go further than it did
    lock = threading.Lock()
    began = clock.perf_counter()
    with _precision(dtype):
        pass
    with Progress("simulating", trials * last, progress) as bar:

        def march(index: int, prepared: Any = None) -> Trace:
            with _precision(dtype):
                trial, theta, keys = job.prepare(index) if prepared is None else prepared
                done = 0

                def advanced(step: int) -> bool:
                    nonlocal done
                    bar.advance(step - done)
                    done = step
                    return not halt.is_set() and step < horizon[0]

                trace = run(trial, theta, job.algorithm, job.plan, keys, advanced)
                if trace.diverged is not None:
                    with lock:
                        horizon[0] = min(horizon[0], round(trace.diverged[1] / job.plan.step_time))
                return trace

        bar.phase("compiling")
        with _precision(dtype):
            prepared = compile_for(lambda: job.prepare(0), job.algorithm, job.plan, options["samples"] or 0)
        bar.phase("")
        compiled = clock.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            try:
                futures = [pool.submit(march, 0, prepared)]
                del prepared
                futures += [pool.submit(march, i) for i in range(1, trials)]
                wait(futures, return_when=FIRST_EXCEPTION)
                traces = [future.result() for future in futures]
            except BaseException:
                halt.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    finished = clock.perf_counter()
    status, message = _ending(job, traces, X)
    if status != "complete":
        warnings.warn(message, DivergenceWarning, stacklevel=3)
    variables, coords = _label(job, traces)
    about = provenance(
        method,
        job.problem,
        job.algorithm,
        seed=seed,
        options=options,
        status=status,
        message=message,
        diagnostics={
            "seconds": round(finished - compiled, 3),
            "compile_seconds": round(compiled - began, 3),
            "updates": last,
            "step_time": job.plan.step_time,
            "workers": workers,
        },
    )
    return Runs(variables, coords, about)


def _ending(job: _Job, traces: list[Trace], X: np.ndarray | None) -> tuple[str, str]:
    bad = [(trace.diverged, index) for index, trace in enumerate(traces) if trace.diverged is not None]
    if not bad:
        return "complete", ""
    (before, after), index = min(bad)
    tau = getattr(job.algorithm, "temperature", None)
    limit = None if tau is None else _largest_stable(job.problem, X)
    return "diverged", divergence_words(tau, limit, f"t between {before:.4g} and {after:.4g} (trial {index})")


def _largest_stable(problem: Problem, X: np.ndarray | None) -> float | None:
    """The largest stable temperature where theory gives one: least squares without a schedule."""
    ridge = ridge_of(problem.penalty)
    if ridge is None or not isinstance(problem.loss, Square) or not isinstance(problem.schedule, Constant):
        return None
    if X is None:
        return stable_temperature(problem.sample_ratio, ridge)
    eigenvalues = np.linalg.svd(X, compute_uv=False) ** 2 * X.shape[1] / X.shape[0]
    return stable_temperature_on(eigenvalues, np.full(len(eigenvalues), 1 / X.shape[1]), ridge)


def _label(job: _Job, traces: list[Trace]) -> tuple[dict[str, Variable], dict[str, np.ndarray]]:
    """Stack trials; after a divergence keep only the times that every trial reached."""
    plan = job.plan
    reached = min(len(trace.recorded) for trace in traces)
    kept = min(len(trace.kept) for trace in traces)
    variables: dict[str, Variable] = {}
    names = traces[0].recorded[0] if reached else {}
    for name in sorted(names, key=lambda n: list(UNITS).index(n)):
        values = np.stack([np.stack([record[name] for record in trace.recorded[:reached]]) for trace in traces])
        variables[name] = Variable(("trial", "time", *DIMS.get(name, ())), values)
    for name in traces[0].kept[0] if kept else {}:
        if name in CONSTANT:
            values = np.stack([trace.kept[0][name] for trace in traces])
            variables[name] = Variable(("trial", *DIMS[name]), values)
        else:
            values = np.stack([np.stack([snap[name] for snap in trace.kept[:kept]]) for trace in traces])
            variables[name] = Variable(("trial", "snapshot", *DIMS[name]), values)
    coords = {
        "trial": np.arange(len(traces)),
        "time": plan.record[:reached] * plan.step_time,
        "student": np.arange(job.problem.width),
        "student_": np.arange(job.problem.width),
    }
    if job.problem.k:
        coords["teacher"] = np.arange(job.problem.k)
    if kept:
        coords["snapshot"] = plan.keep[:kept] * plan.step_time
    return variables, coords
