"""Run prepared trials side by side, watch for divergence and Ctrl-C, and label what comes out."""

import os
import threading
import time as clock
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import DTypeLike

from .._fingerprint import digest
from .._machine import cores, memory
from ..algorithms import Algorithm
from ..algorithms.iterates import IterateAverage
from ..algorithms.samples import Weights
from ..errors import DivergenceWarning, Interrupted, precision, reject, whole
from ..exact.stability import divergence_words, largest_stable
from ..execute.crew import precise
from ..measure.pace import stiff_words
from ..problem import Problem
from ..progress import Progress
from ..results import Runs, Variable, provenance
from ..results.checkpoint import Checkpoint, identity
from ..results.variables import coordinates, dims, ordered
from .loop import ENDED, RATE, Plan, Trace, compile_for, run
from .trial import Trial

MOST_TRIALS = 100_000
"""Far more than any average needs, and few enough to be lined up at once."""


class Ensemble(NamedTuple):
    """What the trials have in common, whichever way their data come about."""

    method: str
    problem: Problem
    algorithm: Algorithm
    plan: Plan
    prepare: Callable[[int], tuple[Trial, Weights, jax.Array]]
    """Data, the weights at t = 0 and the key of a trial."""
    samples: int
    """n; 0 for infinite data."""
    dim: int
    seed: int
    matrix: np.ndarray | None
    """The user's own X, if the data are not drawn."""
    owner: dict[str, object]
    """By name, what a trial's numbers come from beside problem, algorithm, seed, plan and precision."""
    options: dict[str, object]
    """What the result says of how it was asked for, beside size and times."""
    averages: Mapping[str, IterateAverage] = MappingProxyType({})


def _workers(job: Ensemble, trials: int, workers: int | None, double: bool) -> int:
    """As many trials at once as there are cores, or the user says, and as fit into memory."""
    workers = whole("workers", cores() if workers is None else workers, least=1, why="it must be a whole number ≥ 1")
    rows = job.problem.rows * (job.samples or job.algorithm.rows or 1)
    each = 2.0 * rows * job.dim * (8 if double else 4)  # X, twice while it is drawn
    if each > memory():
        raise reject("dim", job.dim, f"the data of a trial take {each / 1e9:.3g} GB, too much here; lower it")
    return int(min(trials, workers, memory() / each))


def _owner(job: Ensemble, dtype: str) -> dict[str, str]:
    """Whose a checkpoint is. The number of trials is no part of it: more of them go on from the same file."""
    said = {"method": job.method, "dim": job.dim, "dtype": dtype}
    seen = {"step": job.plan.step_time, "times": job.plan.record, "snapshots": job.plan.keep} | job.owner
    seen |= {"averages": tuple(job.averages.items())} if job.averages else {}
    return identity(job.problem, job.algorithm, job.seed, **said, **{name: digest(part) for name, part in seen.items()})


def execute(
    job: Ensemble,
    trials: int,
    *,
    dtype: DTypeLike,
    workers: int | None,
    progress: bool | None,
    checkpoint: str | os.PathLike[str] | None,
    watch: Callable[[int, float, dict[str, np.ndarray]], None] | None = None,
) -> Runs:
    """Run all trials, a few at a time; the first error or Ctrl-C stops them all.

    What Ctrl-C leaves are the finished trials; where there are none yet, those that run, as far as all have come.
    """
    why = f"it must be a whole number from 1 to {MOST_TRIALS}"
    trials = whole("trials", trials, least=1, most=MOST_TRIALS, why=why)
    if watch is not None and not callable(watch):
        raise reject("watch", repr(watch), "it must be a function watch(trial, time, values), or None")
    dtype = precision(dtype)
    double, last, step = dtype == "float64", int(job.plan.record[-1]), job.plan.step_time
    workers = _workers(job, trials, workers, double)
    kept = Checkpoint(checkpoint, {} if checkpoint is None else _owner(job, dtype))
    began = compiled = clock.perf_counter()
    pieces = {index: kept.get(f"trial {index}") for index in range(trials)}
    traces = {index: Trace(piece) for index, piece in pieces.items() if piece is not None}
    left = [index for index in range(trials) if index not in traces]
    prepared: dict[int, tuple[Trial, Weights, jax.Array]] = {}
    halt, stopped = threading.Event(), False
    # once a trial has diverged, the others need not go further than it did
    ends = [last, *(round(trace.diverged[1] / step) for trace in traces.values() if trace.diverged is not None)]
    with Progress("simulating", trials * last, progress) as bar, kept.keeping():
        bar.advance(len(traces) * last)

        def advanced(begin: int, end: int) -> bool:
            bar.advance(end - begin)
            return not halt.is_set() and end < min(ends)

        def march(index: int) -> None:
            if halt.is_set():
                return
            with precise(double):
                own = prepared.pop(index, None) or job.prepare(index)
                told = None if watch is None else partial(watch, index)
                traces[index] = trace = run(*own, job.algorithm, job.plan, dict(job.averages), advanced, told)
                if trace.diverged is not None:
                    ends.append(round(trace.diverged[1] / step))
                if kept.kept and _ended(job, trace):
                    kept.put(f"trial {index}", trace.values)

        if left:
            bar.phase("compiling")
            with precise(double):
                prepared[left[0]] = job.prepare(left[0])
                compile_for(*prepared[left[0]], job.algorithm, job.plan, dict(job.averages))
            bar.phase("")
        compiled = clock.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            try:
                futures = [pool.submit(march, index) for index in left]
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    future.result()
            except BaseException as error:
                halt.set()
                pool.shutdown(wait=True, cancel_futures=True)
                # the trials that have ended, or else all that have left the start
                whole_ones = {i: trace for i, trace in traces.items() if _ended(job, trace)}
                traces = whole_ones or {i: trace for i, trace in traces.items() if trace.times > 1}
                stopped = isinstance(error, KeyboardInterrupt) and bool(traces)
                if not stopped:
                    raise
    finished = clock.perf_counter()
    status, message = _ending(job, traces)
    if stopped:
        status, message = "interrupted", kept.told(_reached(job, traces, trials) + f"; {message}" * bool(message))
    elif status != "complete":
        warnings.warn(message, DivergenceWarning, stacklevel=3)
    size = {"dim": job.dim, "samples": job.samples or None, "trials": trials, "dtype": dtype}
    seconds = {"seconds": round(finished - compiled, 3), "compile_seconds": round(compiled - began, 3)}
    about = provenance(
        job.method, job.problem, job.algorithm, seed=job.seed, status=status, message=message,
        options={"t_max": float(last * step)} | job.options | size,
        diagnostics=seconds | {"updates": last, "step_time": step, "workers": workers},
    )  # fmt: skip
    runs = Runs(*_label(job, traces), about)
    if stopped:
        raise Interrupted(runs)
    return runs


def _ended(job: Ensemble, trace: Trace) -> bool:
    """Whether a trial has come to its end, good or bad."""
    return trace.diverged is not None or trace.times == len(job.plan.record)


def _reached(job: Ensemble, traces: dict[int, Trace], trials: int) -> str:
    """How far interrupted work came."""
    if any(_ended(job, trace) for trace in traces.values()):
        return f"{len(traces)} of {trials} trials were finished"
    last, wanted = job.plan.record[[min(trace.times for trace in traces.values()) - 1, -1]] * job.plan.step_time
    return f"{len(traces)} of {trials} trials had come to t = {last:.4g} of {wanted:.4g}"


def _ending(job: Ensemble, traces: dict[int, Trace]) -> tuple[str, str]:
    """Status and message: whether a trial diverged, when, and what theory knows of it."""
    bad = [(trace.diverged, index) for index, trace in traces.items() if trace.diverged is not None]
    if not bad:
        return "complete", ""
    (before, after), index = min(bad)
    if (rate := traces[index].rate) is not None:
        rule = type(job.algorithm.how.rate).__name__
        why = f"{rule} gave the factor {rate:.4g} between t = {before:.4g} and {after:.4g} (trial {index})"
        return "diverged", f"ended where the rate is no positive number: {why}"
    tau = getattr(job.algorithm, "temperature", None) if job.algorithm.how.plain else None
    limit = None if tau is None else largest_stable(job.problem, matrix=job.matrix, algorithm=job.algorithm)
    words = divergence_words(tau, limit, f"t between {before:.4g} and {after:.4g} (trial {index})")
    begun = [np.max(np.abs(trace.values["norm"][0])) for trace in traces.values() if trace.times]
    stiff = stiff_words(job.problem, job.algorithm.stable, job.plan.step_time, 3 * max([1.0, *begun]) ** 0.5)
    if stiff and job.algorithm.rows is not None:
        stiff += " (it is τ·batch_size/dim)"
    return "diverged", words + stiff


def _label(job: Ensemble, found: dict[int, Trace]) -> tuple[dict[str, Variable], dict[str, np.ndarray]]:
    """Stack trials; after a divergence, or Ctrl-C, keep only the times that every trial reached."""
    plan, numbers = job.plan, sorted(found)
    traces = [found[i] for i in numbers]
    reached, kept = (min(len(trace.values.get(name, ())) for trace in traces) for name in ("norm", "theta"))
    variables = {}
    names = ordered(name for name in traces[0].values if name not in (ENDED, RATE))
    for name in sorted(names, key=lambda name: "time" not in dims(name)):
        # what neither moves nor is recorded is the same at all snapshots
        rows = slice(reached) if "time" in dims(name) else slice(kept) if "snapshot" in dims(name) else 0
        if reached if "time" in dims(name) else kept:
            values = np.stack([trace.values[name][rows] for trace in traces])
            variables[name] = Variable(("trial", *dims(name, values.ndim - 1)), values)
    coords = {"trial": np.asarray(numbers)} | coordinates(variables, plan.record[:reached] * plan.step_time)
    return variables, coords | ({"snapshot": plan.keep[:kept] * plan.step_time} if kept else {})
