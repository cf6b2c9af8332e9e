"""Where tasks run: in this process, in processes of our own, in an executor of the user's, on a Dask cluster.

An engine takes an iterator of tasks and gives (task, outcome) as they are finished, in any order. It draws a task only
when it is about to run it, so that the caller may look first whether somebody else has done it meanwhile. Whatever dies
under way, every task that was drawn is given back: computed, or failed with the reason.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures import BrokenExecutor as Broken
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

from ..errors import InputError, reject, whole
from .tasks import Outcome, Task, failed, perform, perform_elsewhere, performing, settle_down

Finished = Generator[tuple[Task, Outcome], None, None]
Perform = Callable[[Task], Outcome]

PATIENCE = 10.0
"""Seconds in which a scheduler must answer."""
POLL = 1.0
"""Seconds between two looks at a cluster: cancelled tasks and lost schedulers do not announce themselves."""
AHEAD = 64
"""Tasks handed to an executor of the user's at a time, at least: who knows how many workers it has."""


def _nothing(task: Task | None = None) -> None:
    """Where nothing has to be checked, or closed."""


class Engine(NamedTuple):
    """Where tasks run."""

    run: Callable[[Iterator[Task]], Finished]
    workers: int | None
    """How many run at a time; None: it may change."""
    check: Callable[[Any], None]
    """Refuse a task that could not be sent."""
    close: Callable[[], Any] = _nothing
    """Give back what was opened for it, whether it ran or not."""


def choose(executor: Any, retries: int) -> Engine:
    """The engine that the user means; one that cannot work is refused now."""
    if executor is None:
        return Engine(lambda tasks: in_process(tasks, perform), 1, _nothing)
    if executor == "processes" or (hasattr(executor, "__index__") and not isinstance(executor, bool)):
        count = os.cpu_count() or 1 if executor == "processes" else executor
        count = whole("executor", count, least=1, most=4096, why="a number of processes must be from 1 to 4096")
        _refuse_children()
        return Engine(lambda tasks: processes(tasks, count, retries), count, _pickles)
    if isinstance(executor, str):
        return _scheduler(executor, retries)
    if isinstance(executor, Executor):
        return _executor(executor)
    if type(executor).__module__.split(".")[0] == "distributed" and hasattr(executor, "scheduler_info"):
        return Engine(lambda tasks: cluster(tasks, executor, retries), None, _nothing)
    why = "it must be None, a number of processes, 'processes', a concurrent.futures executor, a dask Client,"
    raise reject("executor", repr(executor), f"{why} or the address of a scheduler, 'tcp://host:8786'")


def in_process(tasks: Iterator[Task], perform: Perform) -> Finished:
    """Here. Points that `solve` alone computes at once: in one program on a GPU, on a CPU by threads that share draws,
    with the bits of the single call; others one after another. Programs serve all that differ in numbers alone."""
    import jax

    from ..execute.crew import MOST, many

    first = next(tasks, None)
    if first is None:
        return
    if any(call.kind != "solve" for call in first.calls):
        yield from ((task, perform(task)) for task in chain([first], tasks))
        return
    wave, rest = MOST, chain([first], tasks)
    if jax.default_backend() == "cpu":
        yield first, perform(first)  # alone: threads would all compile what it does
        wave, rest = 4 * (os.cpu_count() or 1), tasks
    while some := list(islice(rest, wave)):
        for number, outcome in many([partial(performing, task) for task in some]):
            if isinstance(outcome, BaseException):
                raise outcome
            yield some[number], outcome


# --- processes of our own ---


def processes(tasks: Iterator[Task], workers: int, retries: int) -> Finished:
    """New processes (spawn), fresh ones after a death; a task whose process dies is tried again, alone."""
    pool = _pool(workers)
    try:
        while True:
            running: dict[Future[Outcome], Task] = {}
            try:
                yield from _through(pool, tasks, perform, 2 * workers, running)
                return
            except Broken:
                _stop(pool)
                pool = _pool(workers)
                # Who of them killed its process is not known: alone, it cannot harm others.
                for task in list(running.values()):
                    for _ in range(retries):
                        try:
                            yield task, _outcome(_submitted(pool, perform, task), task)
                            break
                        except Broken:
                            _stop(pool)
                            pool = _pool(workers)
                    else:
                        words = f"its process died {retries + 1} times; killed, or out of memory"
                        yield task, failed(task, words)
    finally:
        _stop(pool)


def _pool(workers: int) -> ProcessPoolExecutor:
    """Processes that have started: one that cannot is told at once."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _begin)
    try:
        pool.submit(os.getpid).result()
    except Broken:
        _stop(pool)
        why = 'worker processes do not start; a script must call sweep under `if __name__ == "__main__":`'
        raise reject("executor", workers, f"{why}, or with executor=None") from None
    return pool


def _begin() -> None:
    """In a worker: Ctrl-C is the parent's business, and without a parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    settle_down()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the processes now, in the middle of a point if need be."""
    running = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in running:
        process.terminate()


def _refuse_children() -> None:
    """A script without a guard runs again in every worker, and would start workers of its own."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        why = 'a worker began to run the script anew; call sweep under `if __name__ == "__main__":`'
        raise reject("executor", "a sweep inside a worker", why)


# --- executors ---


def _executor(executor: Executor) -> Engine:
    """One of the user's own: threads, processes, MPI (`mpi4py.futures.MPIPoolExecutor`), …."""
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        why = "jax does not survive a fork; give mp_context=multiprocessing.get_context('spawn'), or executor=2"
        raise reject("executor", "a ProcessPoolExecutor that forks", why)
    threads = isinstance(executor, ThreadPoolExecutor)
    by_name = isinstance(executor, ProcessPoolExecutor) or type(executor).__module__.startswith("mpi4py")
    workers = getattr(executor, "_max_workers", None)
    ahead = max(AHEAD, 4 * (workers or 1))

    def run(tasks: Iterator[Task]) -> Finished:
        running: dict[Future[Outcome], Task] = {}
        try:
            yield from _through(executor, tasks, perform if threads else perform_elsewhere, ahead, running)
        except Broken as error:
            words = f"the executor broke ({type(error).__name__}); run again with a new one"
            for task in (*running.values(), *tasks):
                yield task, failed(task, words)
        finally:
            for future in running:
                future.cancel()

    return Engine(run, workers, _pickles if by_name else _nothing)


def _through(
    executor: Executor, tasks: Iterator[Task], perform: Perform, ahead: int, running: dict[Future[Outcome], Task]
) -> Finished:
    """Tasks through an executor, so many at a time; if it breaks, `running` holds those that have no outcome."""
    while True:
        while len(running) < ahead and (task := next(tasks, None)) is not None:
            running[_submitted(executor, perform, task)] = task
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda future: isinstance(future.exception(), Broken)):
            outcome = _outcome(future, running[future])
            yield running.pop(future), outcome


def _outcome(future: Future[Outcome], task: Task) -> Outcome:
    """Of a finished future. A point's own errors are part of its outcome; others befall it on the way there or back."""
    try:
        return future.result()
    except Broken:
        raise
    except Exception as error:
        return failed(task, f"{type(error).__name__}: {error}")


def _submitted(executor: Executor, perform: Perform, task: Task) -> Future[Outcome]:
    """The future of a task; one that has failed where the executor takes no more."""
    try:
        return executor.submit(perform, task)
    except RuntimeError as error:  # broken, or shut down
        refused: Future[Outcome] = Future()
        refused.set_exception(error if isinstance(error, Broken) else Broken(str(error)))
        return refused


def _pickles(task: Task) -> None:
    """Processes know functions by their names."""
    try:
        pickle.dumps(task)
    except InputError as error:
        raise InputError(f"{error}; or run in this process (executor=None), or on a dask cluster") from None
    except Exception as error:
        why = "processes know functions by name: define them with def at the top level of a module"
        raise reject("executor", f"{type(error).__name__}: {error}", f"{why}, or run in this process") from None


# --- a Dask cluster ---


def _scheduler(address: str, retries: int) -> Engine:
    """The cluster at an address, with a client of our own."""
    if "://" not in address:
        raise reject(
            "executor", repr(address), "it must be 'processes' or the address of a scheduler: 'tcp://host:8786'"
        )
    try:
        from distributed import Client
    except ImportError:
        raise reject("executor", address, "a Dask cluster needs `pip install 'sgdlimit[dask]'`") from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        said = str(error).split("\n")[0][:80]
        why = f"no scheduler answers there within {PATIENCE:g} s ({said}); start one with `dask scheduler`"
        raise reject("executor", address, why) from None

    return Engine(lambda tasks: cluster(tasks, client, retries), None, _nothing, client.close)


def cluster(tasks: Iterator[Task], client: Any, retries: int) -> Finished:
    """Through a `distributed.Client`. The scheduler tries a task again whose worker died; we, one that it forgot.

    A scheduler that restarts cancels what it had; the client finds it again, and the tasks are sent once more.
    """
    running: dict[Any, Task] = {}
    lost: Counter[str] = Counter()
    try:
        while True:
            while len(running) < _ahead(client) and (task := next(tasks, None)) is not None:
                running[_sent(client, task)] = task
            if not running:
                return
            _wait(running)
            for future in [future for future in running if future.status != "pending"]:
                task = running.pop(future)
                outcome = _fetched(future, task)
                if outcome is not None:
                    yield task, outcome
                elif client.status == "closed":
                    running[future] = task
                    raise Broken("the scheduler is gone")
                elif lost[task.key] < retries:
                    lost[task.key] += 1
                    running[_sent(client, task)] = task
                else:
                    yield task, failed(task, f"the scheduler lost it {retries + 1} times")
    except Broken as error:
        words = f"{error}; finished points are kept, run again when there is one"
        for task in (*running.values(), *tasks):
            yield task, failed(task, words)
    finally:
        with contextlib.suppress(Exception):  # a client that is closed cancels nothing
            client.cancel(list(running))


def _ahead(client: Any) -> int:
    """Tasks sent at a time: workers may come and go."""
    with contextlib.suppress(OSError):  # a scheduler that restarts does not tell
        return max(AHEAD, 4 * sum(client.nthreads().values()))
    return AHEAD


def _sent(client: Any, task: Task) -> Any:
    if client.status == "closed":
        raise Broken("the scheduler is gone")
    return client.submit(perform_elsewhere, task, pure=False)


def _wait(running: dict[Any, Task]) -> None:
    """Until one is finished, or for a while: a lost one is seen in its status."""
    from distributed import wait as wait_for

    with contextlib.suppress(TimeoutError, CancelledError):
        wait_for(list(running), timeout=POLL, return_when="FIRST_COMPLETED")


def _fetched(future: Any, task: Task) -> Outcome | None:
    """Of a finished task; None: the scheduler forgot it."""
    if future.status == "error":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            return failed(task, "its workers died one after another; killed, or out of memory")
        return failed(task, f"{type(error).__name__}: {error}")
    if future.status != "finished":
        return None
    try:
        return future.result()
    except (CancelledError, OSError):
        return None
