"""One process that computes: it takes work from a pipe, can be told to stop, and ends with the server."""

import importlib
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple

from ..errors import InputError


class Order(NamedTuple):
    """Work to do: `kind` is a function of the module that a worker serves."""

    number: int
    kind: str
    query: str


class Stop(NamedTuple):
    """No more of that work, please."""

    number: int


class Answer(NamedTuple):
    """About one order: a part, a file, or how it ended ('done', 'refused', 'failed', 'stopped')."""

    number: int
    word: str
    name: str = ""
    content: bytes = b""


def main(pipe: Connection, module: str) -> None:
    """Serve orders until the pipe closes. Runs in a process of its own."""
    _Serving(pipe, module).forever()


class _Serving:
    def __init__(self, pipe: Connection, module: str) -> None:
        self._pipe, self._module = pipe, module
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._current, self._stopped = -1, -1
        self._telling = threading.Lock()

    def forever(self) -> None:
        """Ctrl-C of the terminal is the server's; here it means a `Stop` for what is being done."""
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._listen, daemon=True).start()
        kinds: dict[str, Callable[..., None]] = importlib.import_module(self._module).KINDS
        while True:
            self._serve(self._orders.get(), kinds)

    def _listen(self) -> None:
        """Orders and stops, while the main thread works; without a server there is nothing to live for."""
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                os._exit(0)
            if isinstance(message, Order):
                self._orders.put(message)
            else:
                self._stopped = message.number
                # to the main thread, which may sleep
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _interrupted(self, *_: Any) -> None:
        if not self._telling.locked():  # half a message would be the last one
            self._go_on()

    def _go_on(self) -> None:
        if self._current == self._stopped:
            raise KeyboardInterrupt

    def _serve(self, order: Order, kinds: dict[str, Callable[..., None]]) -> None:
        def tell(content: bytes, name: str = "") -> None:
            self._tell(Answer(order.number, "file" if name else "part", name, content))
            self._go_on()

        word, why = "done", ""
        try:
            self._current = order.number
            try:
                kinds[order.kind](order.query, tell)
            finally:
                self._current = -2
        except InputError as error:
            word, why = "refused", str(error)
        except KeyboardInterrupt:
            word = "stopped"
        except Exception as error:
            word, why = "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self._tell(Answer(order.number, word, content=why.encode()))

    def _tell(self, answer: Answer) -> None:
        with self._telling:
            self._pipe.send(answer)
