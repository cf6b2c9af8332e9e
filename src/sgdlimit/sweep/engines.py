"""Where tasks run: in this process, in processes of our own, in an executor of the user's, on a Dask cluster.

An engine takes an iterator of tasks and gives (task, outcome) as they are finished, in any order. It draws a task only
when it is about to run it, so that the caller may look first whether somebody else has done it meanwhile. Whatever dies
under way, every task that was drawn is given back: computed, or failed with the reason.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import reject, whole
from ..execute.crew import MOST, check_pickles, many, refuse_fork
from .tasks import Outcome, Task, failed, perform, perform_elsewhere, performing

if TYPE_CHECKING:
    from distributed import Client

Finished = Generator[tuple[Task, Outcome], None, None]
Perform = Callable[[Task], Outcome]

PATIENCE = 10.0
"""Seconds in which a scheduler must answer."""
POLL = 1.0
"""Seconds between two looks at an executor: a lost scheduler does not announce itself."""
AHEAD = 64
"""Tasks handed to an executor of the user's at a time, at least: who knows how many workers it has."""


def _nothing(*_: Task) -> None:
    """Where every task can go, and nothing has to be closed."""


class Engine(NamedTuple):
    """A place where tasks run, and what must be known of it beforehand."""

    run: Callable[[Iterator[Task]], Finished]
    workers: int | None
    """How many run at a time; None: it may change."""
    check: Callable[[Task], None] = _nothing
    """Refuse a task that could not be sent."""
    close: Callable[[], object] = _nothing
    """Give back what was opened for it, whether it ran or not."""


def choose(executor: object, retries: int) -> Engine:
    """The engine that the user means; one that cannot work is refused now."""
    if executor is None:
        return Engine(lambda tasks: in_process(tasks, perform), 1)
    if executor == "processes" or (hasattr(executor, "__index__") and not isinstance(executor, bool)):
        count = os.cpu_count() or 1 if executor == "processes" else executor
        count = whole("executor", count, least=1, most=4096, why="a number of processes must be from 1 to 4096")
        return Engine(lambda tasks: processes(tasks, count, retries), count, check_pickles)
    if isinstance(executor, str):
        client = _connected(executor)
        return _cluster(client, retries)._replace(close=client.close)
    if isinstance(executor, Executor):
        return _executor(executor, retries)
    if "distributed" in sys.modules:  # who has a client has imported it
        from distributed import Client

        if isinstance(executor, Client):
            return _cluster(executor, retries)
    why = "it must be None, a number of processes, 'processes', a concurrent.futures executor, a dask Client,"
    raise reject("executor", repr(executor), f"{why} or the address of a scheduler, 'tcp://host:8786'")


def in_process(tasks: Iterator[Task], perform: Perform) -> Finished:
    """Here. Points that `solve` alone computes at once: in one program on a GPU, on a CPU by threads that share draws,
    with the bits of the single call; others one after another. Programs serve all that differ in numbers alone."""
    import jax

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


# --- executors: ours, the user's, a cluster's ---


class Way(NamedTuple):
    """How tasks go to an executor."""

    submit: Callable[[Task], Future[Outcome]]
    ahead: Callable[[], int]
    """How many it is given at a time."""
    retries: int
    """How often a task is sent again whose executor broke, or forgot it."""
    trouble: str
    """What is then said of it, with a place for how often it was sent."""
    gone: Callable[[], bool] = lambda: False
    """Whether nothing will come back any more, and nobody says so."""


def _through(way: Way, tasks: Iterator[Task]) -> Finished:
    """Tasks through an executor. A point's own errors are part of its outcome; others befall it on the way."""
    running: dict[Future[Outcome], Task] = {}
    sent: Counter[str] = Counter()

    def send(task: Task) -> None:
        sent[task.key] += 1
        running[_submitted(way, task)] = task

    try:
        while True:
            while len(running) < way.ahead() and (task := next(tasks, None)) is not None:
                send(task)
            if not running:
                return
            done, _ = futures.wait(running, POLL, futures.FIRST_COMPLETED)
            if way.gone():
                done = {future for future in running if future.cancel() or future.done()}
            for future in done:
                task = running.pop(future)
                try:
                    outcome = future.result()
                except (futures.CancelledError, BrokenExecutor):
                    if sent[task.key] <= way.retries:
                        send(task)
                        continue
                    outcome = failed(task, way.trouble.format(sent[task.key]))
                except Exception as error:
                    outcome = failed(task, f"{type(error).__name__}: {error}")
                yield task, outcome
    finally:
        for future in running:
            future.cancel()


def _submitted(way: Way, task: Task) -> Future[Outcome]:
    """The future of a task; one that has failed where the executor takes no more."""
    try:
        return way.submit(task)
    except Exception as error:
        refused: Future[Outcome] = Future()
        refused.set_exception(BrokenExecutor(str(error)) if isinstance(error, RuntimeError) else error)
        return refused


def _executor(executor: Executor, retries: int) -> Engine:
    """One of the user's own: threads, processes, MPI (`mpi4py.futures.MPIPoolExecutor`), …."""
    refuse_fork(executor)
    function = perform if isinstance(executor, futures.ThreadPoolExecutor) else perform_elsewhere
    by_name = isinstance(executor, ProcessPoolExecutor) or type(executor).__module__.startswith("mpi4py")
    workers = getattr(executor, "_max_workers", None)
    trouble = "the executor broke, {} times; run again with a new one"
    way = Way(partial(executor.submit, function), lambda: max(AHEAD, 4 * (workers or 1)), retries, trouble)
    return Engine(partial(_through, way), workers, check_pickles if by_name else _nothing)


def _cluster(client: "Client", retries: int) -> Engine:
    """A Dask cluster. Its scheduler tries a task again whose worker died; what it forgot, restarted, is sent again."""

    def gone() -> bool:
        return client.status == "closed"

    def submit(task: Task) -> Future[Outcome]:
        if gone():
            raise BrokenExecutor
        return executor.submit(perform_elsewhere, task)

    def ahead() -> int:
        try:
            threads: Any = client.nthreads()  # of all workers, which may come and go
            return max(AHEAD, 4 * sum(threads.values()))
        except Exception:  # a scheduler that restarts, or is gone, does not tell
            return AHEAD

    executor = client.get_executor(pure=False)
    trouble = "the scheduler lost it {} times, or is gone; finished points are kept, run again when there is one"
    return Engine(partial(_through, Way(submit, ahead, retries, trouble, gone)), None)


def _connected(address: str) -> "Client":
    """A client of our own to the scheduler at an address."""
    if "://" not in address:
        why = "it must be 'processes' or the address of a scheduler: 'tcp://host:8786'"
        raise reject("executor", repr(address), why)
    try:
        from distributed import Client
    except ImportError:
        raise reject("executor", address, "a Dask cluster needs `pip install 'sgdlimit[dask]'`") from None
    try:
        return Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        said = str(error).split("\n")[0][:80]
        why = f"no scheduler answers there within {PATIENCE:g} s ({said}); start one with `dask scheduler`"
        raise reject("executor", address, why) from None


def processes(tasks: Iterator[Task], workers: int, retries: int) -> Finished:
    """New processes (spawn), each in a pool of its own: one that dies takes no other task with it."""
    pools = [_pool() for _ in range(workers)]
    latest: list[Future[Outcome] | None] = [None] * workers

    def submit(task: Task) -> Future[Outcome]:
        place = next(place for place, future in enumerate(latest) if future is None or future.done())
        try:
            future = pools[place].submit(perform_elsewhere, task)
        except BrokenExecutor:  # its process died
            pools[place] = _pool()
            future = pools[place].submit(perform_elsewhere, task)
        latest[place] = future
        return future

    trouble = "its process died {} times; killed, or out of memory"
    try:
        pools[0].submit(os.getpid).result()
        yield from _through(Way(submit, lambda: workers, retries, trouble), tasks)
    except BrokenExecutor:
        why = 'worker processes do not start; a script must call sweep under `if __name__ == "__main__":`'
        raise reject("executor", workers, f"{why}, or with executor=None") from None
    finally:  # now, in the middle of a point if need be
        running = [process for pool in pools for process in (getattr(pool, "_processes", None) or {}).values()]
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin)


def _begin() -> None:
    """In a worker: Ctrl-C is the parent's business, and without a parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
