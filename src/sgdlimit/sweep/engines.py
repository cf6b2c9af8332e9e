"""Where tasks run: in this process, in processes of our own, in an executor of the user's, on a Dask cluster.

An engine takes an iterator of tasks and gives (task, outcome) as they are finished, in any order. It draws a task only
when it is about to run it, so that the caller may look first whether somebody else has done it meanwhile. Whatever dies
under way, every task that was drawn is given back: computed, or failed with the reason.
"""

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Any

import jax

from ..errors import reject, whole
from ..execute.crew import MOST, check_pickles, chosen, many
from .tasks import Outcome, Task, failed, perform, perform_elsewhere, performing

Finished = Generator[tuple[Task, Outcome], None, None]

PATIENCE = 10.0
"""Seconds in which a scheduler must answer."""
RETRIES = 2
"""How often a task is sent again that was lost, as when its process died."""
POLL = 1.0
"""Seconds between two looks at an executor: a lost scheduler does not announce itself."""
AHEAD = 256
"""Workers that an executor is taken to have which does not say how many."""

Engine = Callable[[Iterator[Task]], Finished]


def choose(executor: Any, example: Task) -> Engine:
    """The engine that the user means; no other is accepted.

    example: one of the tasks, which must be fit to be sent there.
    """
    if executor is None:
        return _here
    if hasattr(executor, "__index__") and not isinstance(executor, bool):
        count = whole("executor", executor, least=1, most=4096, why="a number of processes must be from 1 to 4096")
        check_pickles(example)
        return partial(_processes, count)
    if isinstance(executor, str) and "://" in executor:
        return partial(_scheduler, executor)
    given = chosen(executor)
    assert given is not None
    if isinstance(given, ProcessPoolExecutor) or type(given).__module__.startswith("mpi4py"):
        check_pickles(example)
    return partial(_executor, given)


def _here(tasks: Iterator[Task]) -> Finished:
    """In this process. Points that `solve` alone computes at once: in one program on a GPU, on a CPU by threads that
    share draws, with the bits of the single call; others one after another."""
    for first in tasks:
        if first.kind != "solve":
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


def _through(
    submit: Callable[[Task], Future[Outcome]],
    tasks: Iterator[Task],
    trouble: str,
    ahead: int,
    gone: Callable[[], bool] = lambda: False,
) -> Finished:
    """By an executor, which is given so many tasks at a time. `trouble`: what is said of tasks that it lost."""
    running: dict[Future[Outcome], Task] = {}
    sent: Counter[str] = Counter()

    def send(task: Task) -> None:
        sent[task.key] += 1
        try:
            future = submit(task)
        except Exception as error:  # it takes no more
            future = Future[Outcome]()
            future.set_exception(error)
        running[future] = task

    try:
        while True:
            while len(running) < ahead and (task := next(tasks, None)) is not None:
                send(task)
            if not running:
                return
            done, _ = futures.wait(running, POLL, futures.FIRST_COMPLETED)
            if gone():
                done = {future for future in running if future.cancel() or future.done()}
            for future in done:
                task = running.pop(future)
                try:
                    outcome = future.result()
                except Exception as error:
                    # forgotten, broken, or shut down, which a closed client says in words of its own
                    if not (isinstance(error, futures.CancelledError | RuntimeError) or gone()):
                        outcome = failed(f"{type(error).__name__}: {error}")
                    elif sent[task.key] <= RETRIES:
                        send(task)
                        continue
                    else:
                        outcome = failed(trouble.format(sent[task.key]))
                yield task, outcome
    finally:
        for future in running:
            future.cancel()


def _executor(executor: Executor, tasks: Iterator[Task]) -> Finished:
    """One of the user's own: threads, processes, MPI (`mpi4py.futures.MPIPoolExecutor`), a Dask cluster, ….

    The scheduler of a cluster tries a task again whose worker died; what it forgot, restarted, is sent again.
    """
    function = perform if isinstance(executor, ThreadPoolExecutor) else perform_elsewhere
    client = getattr(executor, "_client", None)  # of a dask cluster
    ahead = 4 * (getattr(executor, "_max_workers", None) or AHEAD)
    trouble = "the executor, or its scheduler, broke {} times; finished points are kept, run again with a new one"
    submit = partial(executor.submit, function)
    return _through(submit, tasks, trouble, ahead, lambda: getattr(client, "status", "") == "closed")


def _scheduler(address: str, tasks: Iterator[Task]) -> Finished:
    """The cluster at an address, by a client of our own."""
    try:
        from distributed import Client

        client = Client(address, timeout=PATIENCE)
    except ImportError:
        raise reject("executor", address, "a Dask cluster needs `pip install 'sgdlimit[dask]'`") from None
    except (OSError, ValueError) as error:
        said = str(error).split("\n")[0][:80]
        why = f"no scheduler answers there within {PATIENCE:g} s ({said}); start one with `dask scheduler`"
        raise reject("executor", address, why) from None
    with client:
        yield from _executor(client.get_executor(pure=False), tasks)


def _processes(workers: int, tasks: Iterator[Task]) -> Finished:
    """New processes (spawn), each in a pool of its own: one that dies takes no other task with it."""
    new = partial(ProcessPoolExecutor, 1, multiprocessing.get_context("spawn"), _begin)
    pools = [new() for _ in range(workers)]
    latest: list[Future[Outcome] | None] = [None] * workers

    def submit(task: Task) -> Future[Outcome]:
        place = next(place for place, future in enumerate(latest) if future is None or future.done())
        try:
            future = pools[place].submit(perform_elsewhere, task)
        except BrokenExecutor:  # its process died
            pools[place] = new()
            future = pools[place].submit(perform_elsewhere, task)
        latest[place] = future
        return future

    trouble = "its process died {} times; killed, or out of memory"
    try:
        pools[0].submit(os.getpid).result()
        yield from _through(submit, tasks, trouble, workers)
    except BrokenExecutor:
        why = 'worker processes do not start; a script must call sweep under `if __name__ == "__main__":`'
        raise reject("executor", workers, f"{why}, or with executor=None") from None
    finally:  # now, in the middle of a point if need be
        running = [process for pool in pools for process in (getattr(pool, "_processes", None) or {}).values()]
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()


def _begin() -> None:
    """In a worker: Ctrl-C is the parent's business, and without a parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
