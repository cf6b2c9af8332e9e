"""Who computes what, and when: a bounded queue before a few worker processes.

A client has one piece of work of a kind; a newer one takes its place (the latest wins). Equal work is done once, for
all who wait for it, and kept for a while. Work that takes too long ends with its process, and another is started. Rough
curves go before everything else, and long work never has all the workers.
"""

import asyncio
import contextlib
import multiprocessing
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .worker import Answer, Order, Stop, main

MOST_WAITING = 64
"""Pieces of work in the queue."""
MOST_BYTES = 64 * 2**20
"""Of finished work that is kept."""
WORKERS = 3


class Kind(NamedTuple):
    """How one kind of work is treated."""

    priority: int
    seconds: float
    """After which it is ended."""
    long: bool
    """Ends early once nobody waits for it. Short work does not: it may be compiling, which serves the next one."""


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


ENDINGS = {
    "refused": "",
    "failed": "the computation failed: ",
    "stopped": "a newer request took its place",
}


@dataclass(eq=False)
class Job:
    """One piece of work, with all that it has said so far."""

    number: int
    kind: str
    query: str
    key: tuple[str, str]
    clients: set[str] = field(default_factory=set)
    parts: list[bytes] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    ended: Trouble | bool = False
    """True: done."""
    stopping: bool = False
    """Told to stop: whoever asks for the same now needs another one."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.parts)) + sum(map(len, self.files.values()))

    def tell(self) -> None:
        """Wake all who wait."""
        self.changed.set()
        self.changed = asyncio.Event()


class _Worker:
    """The server's end of one process."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: Any = None
        self._pipe: Any = None
        self.answers: asyncio.Queue[Answer | None] = asyncio.Queue()

    def start(self) -> None:
        """Unless it runs."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")  # jax does not survive a fork
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=main, args=(other, self._module), daemon=True)
        self._process.start()
        other.close()
        self.answers = asyncio.Queue()
        arguments = self._pipe, self.answers, asyncio.get_running_loop()
        threading.Thread(target=_read, args=arguments, daemon=True).start()

    def send(self, message: Order | Stop) -> None:
        """To the process; one that is gone says so by itself."""
        with contextlib.suppress(OSError):
            self._pipe.send(message)

    def end(self) -> None:
        """At once."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    @property
    def pid(self) -> int | None:
        """Of its process."""
        return None if self._process is None else self._process.pid


def _read(pipe: Any, answers: "asyncio.Queue[Answer | None]", loop: asyncio.AbstractEventLoop) -> None:
    """Answers of a process, into the server's loop; None when it is gone."""
    answer: Answer | None
    while True:
        try:
            answer = pipe.recv()
        except Exception:  # a process may die in the middle of a message
            answer = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(answers.put_nowait, answer)
        if answer is None:
            return


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
        self._running: dict[int, Job] = {}
        self._waiting: list[Job] = []
        self._done: OrderedDict[tuple[str, str], Job] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    def warm(self, place: int = 0) -> None:
        """Start a worker before there is work for it: importing takes a second."""
        if place < len(self._workers):
            self._workers[place].start()

    @property
    def pids(self) -> list[int]:
        """Of the processes that run now."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def submit(self, client: str, kind: str, query: str) -> Job:
        """Work for a client, in place of what it had of this kind; a `Trouble` if there is no room."""
        key = kind, query
        if key in self._done:
            self._done.move_to_end(key)
            return self._done[key]
        for job in [*self._waiting, *self._running.values()]:
            if job.kind == kind and job.key != key:
                self.leave(client, job)
        alike = [j for j in [*self._waiting, *self._running.values()] if j.key == key and not j.stopping]
        job = alike[0] if alike else None
        if job is None:
            if len(self._waiting) >= self._most_waiting:
                raise Trouble("full", "too many requests are waiting; try again in a few seconds")
            self._count += 1
            job = Job(self._count, kind, query, key)
            self._waiting.append(job)
        job.clients.add(client)
        self._dispatch()
        return job

    def leave(self, client: str, job: Job) -> None:
        """The client does not wait any longer; what nobody waits for is dropped."""
        if client not in job.clients:
            return
        job.clients.discard(client)
        if job.clients or job.ended:
            job.tell()
            return
        if job in self._waiting:
            self._waiting.remove(job)
            job.ended = Trouble("superseded", ENDINGS["stopped"])
        else:
            for place, running in self._running.items():
                if running is job and self._kinds[job.kind].long:
                    job.stopping = True
                    self._workers[place].send(Stop(job.number))
        job.tell()

    async def follow(self, client: str, job: Job) -> AsyncIterator[bytes]:
        """All parts, those that are there and those to come; a `Trouble` if it does not end well."""
        seen = 0
        try:
            while True:
                while seen < len(job.parts):
                    seen += 1
                    yield job.parts[seen - 1]
                if isinstance(job.ended, Trouble):
                    raise job.ended
                if job.ended:
                    return
                if client not in job.clients:
                    raise Trouble("superseded", ENDINGS["stopped"])
                await job.changed.wait()
        finally:
            self.leave(client, job)

    def _dispatch(self) -> None:
        """Give waiting work to idle workers: short work to the first, whose programs are warm, long work to others."""
        for job in sorted(self._waiting, key=lambda j: (self._kinds[j.kind].priority, j.number)):
            idle = [place for place in range(len(self._workers)) if place not in self._running]
            if not idle:
                return
            place = idle[0]
            if self._kinds[job.kind].long:
                busy = sum(self._kinds[j.kind].long for j in self._running.values())
                if busy >= max(1, len(self._workers) - 2):
                    continue
                warm = [p for p in idle if self._workers[p].pid is not None and p > 0]
                place = (warm or [p for p in idle if p > 0] or idle)[0]
            self._waiting.remove(job)
            self._running[place] = job
            task = asyncio.create_task(self._run(place, job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, place: int, job: Job) -> None:
        """One job on one worker, to its end or to that of its time."""
        worker, seconds = self._workers[place], self._kinds[job.kind].seconds
        try:
            worker.start()
            worker.send(Order(job.number, job.kind, job.query))
            async with asyncio.timeout(seconds):
                while not job.ended:
                    self._heard(job, worker, await worker.answers.get())
        except TimeoutError:
            worker.end()
            words = f"it took longer than {seconds:g} s and was ended; take a smaller problem, or run the Python text"
            job.ended = Trouble("time", words)
        except asyncio.CancelledError:
            worker.end()
            raise
        except Exception as error:
            worker.end()
            job.ended = Trouble("failed", f"{ENDINGS['failed']}{type(error).__name__}: {error}")
        finally:
            self._running.pop(place, None)
            self._keep(job)
            job.tell()
            self._dispatch()

    def _heard(self, job: Job, worker: _Worker, answer: Answer | None) -> None:
        """One answer of the worker that does the job."""
        if answer is None:
            worker.end()
            job.ended = Trouble("failed", "the process that computed it died; it may have run out of memory")
        elif answer.number != job.number:
            return
        elif answer.word == "part":
            job.parts.append(answer.content)
            job.tell()
        elif answer.word == "file":
            job.files[answer.name] = answer.content
        elif answer.word == "done":
            job.ended = True
        else:
            word = "superseded" if answer.word == "stopped" else answer.word
            job.ended = Trouble(word, ENDINGS[answer.word] + answer.content.decode())

    def _keep(self, job: Job) -> None:
        """Finished work, as much as there is room for."""
        if job.ended is True:
            self._done[job.key] = job
            while sum(kept.size for kept in self._done.values()) > MOST_BYTES:
                self._done.popitem(last=False)

    async def stop(self) -> None:
        """End all processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self._workers:
            worker.end()
