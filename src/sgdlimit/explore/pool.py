"""Who computes what, and when: a bounded queue before a few worker processes.

A client has one computation of a kind; a newer one takes its place (the latest wins). Equal ones are done once, for all
who wait for them, and kept for a while. One that takes too long ends with its process, and another is started. Rough
curves go before everything else, and long computations never have all the workers. An executor of the standard library
gives neither parts of an answer on the way, nor an end to what has begun.
"""

import asyncio
import contextlib
import itertools
import multiprocessing
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

from .worker import Answer, Order, main

MOST_WAITING = 64
"""Computations in the queue."""
MOST_BYTES = 64 * 2**20
"""Of finished ones that are kept."""
WORKERS = 3


class Kind(NamedTuple):
    """How computations of one kind are treated."""

    priority: int
    seconds: float
    """After which it is ended."""
    long: bool
    """Ends early once nobody waits for it. A short one does not: it may be compiling, which serves the next one."""


KINDS = {
    "curves": Kind(0, 30.0, False),
    "kernels": Kind(1, 60.0, False),
    "runs": Kind(2, 120.0, True),
    "refined": Kind(3, 90.0, True),
}


class Trouble(Exception):
    """An answer that is none: a word for the page, and a sentence for its reader."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word, self.message = word, message


def _superseded() -> Trouble:
    return Trouble("superseded", "a newer request took its place")


class _Worker:
    """The server's end of one process."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: SpawnProcess | None = None
        self._pipe: Connection

    def start(self) -> None:
        """Begin the process, unless it runs."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")  # jax does not survive a fork
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=main, args=(other, self._module), daemon=True)
            self._process.start()
            other.close()

    def send(self, message: Order | int) -> None:
        """Tell the process what to do, or the number of what to stop; one that is gone says so by itself."""
        with contextlib.suppress(OSError):
            self._pipe.send(message)

    async def answer(self) -> Answer:
        """The next answer, or an error if the process is gone."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pipe.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._pipe.fileno())
        return self._pipe.recv()

    def end(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    @property
    def pid(self) -> int | None:
        """The number that the system gave its process."""
        return None if self._process is None else self._process.pid


@dataclass(eq=False)
class Computation:
    """One piece of work, with all that it has said so far."""

    number: int
    kind: str
    query: str
    clients: set[str] = field(default_factory=set)
    parts: list[bytes] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    worker: _Worker | None = None
    """Who does it; None: it waits."""
    ended: Trouble | bool = False
    """True: done."""
    stopping: bool = False
    """Told to stop: whoever asks for the same now needs another one."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> tuple[str, str]:
        """Equal for computations with the same answer."""
        return self.kind, self.query

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return sum(map(len, self.parts)) + sum(map(len, self.files.values()))

    def hear(self, answer: Answer) -> None:
        """One answer of the worker that does it."""
        if answer.number != self.number:
            return
        if answer.word == "part":
            self.parts.append(answer.content)
            self.tell()
        elif answer.word == "file":
            self.files[answer.name] = answer.content
        elif answer.word == "stopped":
            self.ended = _superseded()
        else:
            self.ended = answer.word == "done" or Trouble(answer.word, answer.content.decode())

    def tell(self) -> None:
        """Wake all who wait for more of it."""
        self.changed.set()
        self.changed = asyncio.Event()


class Pool:
    """Workers and what they have to do. Lives in one event loop."""

    def __init__(
        self,
        workers: int = WORKERS,
        module: str = "sgdlimit.explore.work",
        kinds: Mapping[str, Kind] = KINDS,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._kinds, self._most_waiting = kinds, most_waiting
        self._workers = [_Worker(module) for _ in range(workers)]
        self._open: list[Computation] = []
        """Those that wait or run, the oldest first."""
        self._done: dict[tuple[str, str], Computation] = {}
        """Those that are kept, the latest used last."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()

    def warm(self, place: int = 0) -> None:
        """Start the first worker, or the last (−1), before there is work for it: importing takes a second."""
        self._workers[place].start()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes that run now."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def submit(self, client: str, kind: str, query: str) -> Computation:
        """Work for a client, in place of what it had of this kind; a `Trouble` if there is no room."""
        wanted = Computation(next(self._numbers), kind, query)
        if wanted.key in self._done:
            self._done[wanted.key] = self._done.pop(wanted.key)
            return self._done[wanted.key]
        for other in [other for other in self._open if other.kind == kind and other.query != query]:
            self.leave(client, other)
        alike = [other for other in self._open if other.key == wanted.key and not other.stopping]
        if alike:
            wanted = alike[0]
        elif sum(other.worker is None for other in self._open) >= self._most_waiting:
            raise Trouble("full", "too many requests are waiting; try again in a few seconds")
        else:
            self._open.append(wanted)
        wanted.clients.add(client)
        self._dispatch()
        return wanted

    def leave(self, client: str, work: Computation) -> None:
        """The client does not wait any longer; what nobody waits for is dropped."""
        if client not in work.clients:
            return
        work.clients.discard(client)
        if not work.clients and not work.ended:
            if work.worker is None:
                self._open.remove(work)
                work.ended = _superseded()
            elif self._kinds[work.kind].long:
                work.stopping = True
                work.worker.send(work.number)
        work.tell()

    async def follow(self, client: str, work: Computation) -> AsyncIterator[bytes]:
        """All parts, those that are there and those to come; a `Trouble` if it does not end well."""
        seen = 0
        try:
            while True:
                while seen < len(work.parts):
                    seen += 1
                    yield work.parts[seen - 1]
                if work.ended is True:
                    return
                if work.ended:
                    raise work.ended
                if client not in work.clients:
                    raise _superseded()
                await work.changed.wait()
        finally:
            self.leave(client, work)

    def _dispatch(self) -> None:
        """Give waiting work to idle workers: the first that is free, whose programs are warm; long work to the last."""
        most_long = max(1, len(self._workers) - 2)
        waiting = [work for work in self._open if work.worker is None]
        for work in sorted(waiting, key=lambda work: self._kinds[work.kind].priority):
            able = self._workers[-most_long:] if self._kinds[work.kind].long else self._workers
            busy = {other.worker for other in self._open}
            work.worker = next((worker for worker in able if worker not in busy), None)
            if work.worker is not None:
                task = asyncio.create_task(self._run(work, work.worker))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, work: Computation, worker: _Worker) -> None:
        """One computation on one worker, to its end or to that of its time."""
        seconds = self._kinds[work.kind].seconds
        try:
            worker.start()
            worker.send(Order(work.number, work.kind, work.query))
            async with asyncio.timeout(seconds):
                while not work.ended:
                    work.hear(await worker.answer())
        except TimeoutError:
            worker.end()
            words = f"it took longer than {seconds:g} s and was ended; take a smaller problem, or run the Python text"
            work.ended = Trouble("time", words)
        except Exception as error:
            worker.end()
            words = f"the process that computed it died ({type(error).__name__}); it may have run out of memory"
            work.ended = Trouble("failed", words)
        finally:
            self._open.remove(work)
            if work.ended is True:
                self._done[work.key] = work
                while sum(kept.size for kept in self._done.values()) > MOST_BYTES:
                    del self._done[next(iter(self._done))]
            work.tell()
            self._dispatch()

    async def stop(self) -> None:
        """End all processes; nothing that waits begins any more."""
        self._open = [work for work in self._open if work.worker is not None]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self._workers:
            worker.end()
