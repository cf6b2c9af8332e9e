"""Who computes what, and when: a few processes, each with a queue before it.

Equal work is done once, for all who wait for it, and kept for a while. Long work that nobody waits for any more is
stopped; what takes too long ends with its process, and another is started. An executor of the standard library gives
neither parts of an answer on the way, nor an end to what has begun.
"""

import asyncio
import contextlib
import importlib
import itertools
import multiprocessing
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from ctypes import c_long
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

from ..errors import InputError

MOST = 64
"""Computations that wait or run, and as many that are done and remembered."""


class Kind(NamedTuple):
    """How computations of one kind are treated."""

    process: str
    """Which process computes it."""
    seconds: float
    """After which it is ended."""
    long: bool = False
    """Ends early once nobody waits for it. A short one does not: it may be compiling, which serves the next one."""


KINDS = {
    "curves": Kind("rough", 30.0),
    "kernels": Kind("kernels", 60.0),
    "runs": Kind("long", 120.0, True),
    "refined": Kind("long", 90.0, True),
}


def main(pipe: Connection, stopped: c_long, module: str) -> None:
    """Serve orders, as a process that computes, until the pipe closes.

    An order is a number, one of the module's `KINDS`, functions of a query and of `tell`, and the query. SIGTERM ends
    the one whose number is in `stopped`, shared memory. An answer is 'part' or 'file', or at last how it ended ('done',
    'refused', 'failed', 'stopped'), then a name and content.
    """
    current = -1
    telling = threading.Lock()

    def go_on() -> None:
        if current == stopped.value:
            raise KeyboardInterrupt

    def interrupted(*_: object) -> None:
        if not telling.locked():  # half a message would be the last one
            go_on()

    def tell(content: bytes, name: str = "") -> None:
        with telling:
            pipe.send(("file" if name else "part", name, content))
        go_on()

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the terminal is the server's business
    functions: dict[str, Callable[..., None]] = importlib.import_module(module).KINDS
    with contextlib.suppress(EOFError, OSError):  # without a server there is nothing to live for
        while True:
            number, kind, query = pipe.recv()
            word, why = "done", ""
            try:
                current = number
                try:
                    go_on()  # it may have been stopped before it began
                    functions[kind](query, tell)
                finally:
                    current = -1
            except InputError as error:
                word, why = "refused", str(error)
            except KeyboardInterrupt:
                word = "stopped"
            except Exception as error:
                text = " ".join(str(error).split())[:300]
                word, why = "failed", f"the computation failed: {type(error).__name__}: {text}"
            pipe.send((word, "", why.encode()))


class Trouble(Exception):
    """An answer that is none: a word for the page, and a sentence for its reader."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word, self.words = word, {"error": word, "message": message}


class Computation:
    """One piece of work, with all that it has said so far."""

    def __init__(self, number: int, kind: str, query: str) -> None:
        self.number, self.kind, self.query = number, kind, query
        self.followers, self.left = 0, False
        self.parts: list[bytes] = []
        self.files: dict[str, bytes] = {}
        self.ended: Trouble | bool = False
        """True: done."""
        self.changed = asyncio.Event()

    def hear(self, word: str, name: str, content: bytes) -> None:
        """One answer to its order."""
        if word == "part":
            self.parts.append(content)
        elif word == "file":
            self.files[name] = content
        else:
            self.ended = word == "done" or Trouble(word, content.decode())
        self.changed.set()
        self.changed = asyncio.Event()


class _Worker:
    """The server's end of one process, and the work that waits for it."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._context = multiprocessing.get_context("spawn")  # jax does not survive a fork
        self._process: SpawnProcess | None = None
        self._pipe: Connection
        self._stopped = self._context.RawValue("l", 0)
        self.queue: asyncio.Queue[Computation] = asyncio.Queue()
        self.current: Computation | None = None

    def start(self) -> None:
        """Begin the process, unless it runs."""
        if self._process is None:
            self._pipe, other = self._context.Pipe()
            arguments = (other, self._stopped, self._module)
            self._process = self._context.Process(target=main, args=arguments, daemon=True)
            self._process.start()
            other.close()

    def end(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def stop(self) -> None:
        """Tell the process to end what it does; it answers that it has."""
        if self.current is not None and self._process is not None:
            self._stopped.value = self.current.number
            self._process.terminate()

    async def run(self, work: Computation, seconds: float) -> None:
        """One computation to its end, or to that of its time."""
        self.current = work
        try:
            self.start()
            self._pipe.send((work.number, work.kind, work.query))
            async with asyncio.timeout(seconds):
                while not work.ended:
                    work.hear(*await asyncio.to_thread(self._pipe.recv))  # an error if the process is gone
        except TimeoutError:
            self.end()
            words = f"it took longer than {seconds:g} s and was ended; take a smaller problem, or run the Python text"
            work.hear("time", "", words.encode())
        except Exception as error:
            self.end()
            words = f"the process that computed it died ({type(error).__name__}); it may have run out of memory"
            work.hear("failed", "", words.encode())


class Pool:
    """Processes and what they have to do. Lives in one event loop."""

    def __init__(
        self, module: str = "sgdlimit.explore.work", kinds: Mapping[str, Kind] = KINDS, most_open: int = MOST
    ) -> None:
        self._kinds, self._most_open = kinds, most_open
        self._workers = {kind.process: _Worker(module) for kind in kinds.values()}
        self._works: dict[tuple[str, str], Computation] = {}
        """Those that wait, run or are kept, the latest used last, by kind and query."""
        self._numbers = itertools.count(1)
        self._tasks = [asyncio.create_task(self._serve(worker)) for worker in self._workers.values()]

    def warm(self, *kinds: str) -> None:
        """Start the processes for these kinds of work before there is any: importing takes a second."""
        for kind in kinds:
            self._workers[self._kinds[kind].process].start()

    def submit(self, kind: str, query: str) -> Computation:
        """The computation that answers a query, begun unless it is there; a `Trouble` if there is no room."""
        work = self._works.pop((kind, query), None)
        if work is None or work.left or isinstance(work.ended, Trouble):
            if sum(not other.ended for other in self._works.values()) >= self._most_open:
                raise Trouble("full", "too many requests are waiting; try again in a few seconds")
            work = Computation(next(self._numbers), kind, query)
            self._workers[self._kinds[kind].process].queue.put_nowait(work)
        self._works[kind, query] = work
        for key in [key for key, other in self._works.items() if other.ended][:-MOST]:
            del self._works[key]
        return work

    async def follow(self, work: Computation) -> AsyncIterator[bytes]:
        """All parts, those that are there and those to come; a `Trouble` if it does not end well."""
        work.followers += 1
        seen = 0
        try:
            while True:
                while seen < len(work.parts):
                    seen += 1
                    yield work.parts[seen - 1]
                if isinstance(work.ended, Trouble):
                    raise work.ended
                if work.ended:
                    return
                await work.changed.wait()
        finally:
            work.followers -= 1
            if not work.followers and not work.ended:
                self._leave(work)

    def _leave(self, work: Computation) -> None:
        """Nobody waits for it: whoever asks for the same from now on needs another one."""
        kind = self._kinds[work.kind]
        worker = self._workers[kind.process]
        if work is not worker.current:
            work.hear("stopped", "", b"")
        elif kind.long:
            work.left = True
            worker.stop()

    async def _serve(self, worker: _Worker) -> None:
        """One computation after the other, but those that were left before they began."""
        while True:
            work = await worker.queue.get()
            if not work.ended:
                await worker.run(work, self._kinds[work.kind].seconds)

    async def stop(self) -> None:
        """End all processes; nothing that waits begins any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self._workers.values():
            worker.end()
