"""One process that computes: it takes work from a pipe, can be told to stop, and ends with the server."""

import importlib
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NamedTuple

from ..errors import InputError

Functions = dict[str, Callable[..., None]]
"""By kind of work: what computes it, a function of a query and of `tell`."""


class Order(NamedTuple):
    """Work to do: `kind` is a function of the module that a worker serves. Its number alone means: stop it."""

    number: int
    kind: str
    query: str


class Answer(NamedTuple):
    """About one order: a part, a file, or how it ended ('done', 'refused', 'failed', 'stopped')."""

    number: int
    word: str
    name: str = ""
    content: bytes = b""


class _Serving:
    """What a worker is at, and what it was told to stop."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.orders: SimpleQueue[Order] = SimpleQueue()
        self._current, self._stopped = -1, -2
        self._telling = threading.Lock()

    def listen(self) -> None:
        """Take orders and stops, while the main thread works; without a server there is nothing to live for."""
        while True:
            try:
                message: Order | int = self._pipe.recv()
            except (EOFError, OSError):
                os._exit(0)
            if isinstance(message, Order):
                self.orders.put(message)
            else:
                self._stopped = message
                # to the main thread, which may sleep
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def interrupted(self, *_: object) -> None:
        """End the current order, if it is to be stopped; Ctrl-C of the terminal is the server's business."""
        if not self._telling.locked():  # half a message would be the last one
            self._go_on()

    def _go_on(self) -> None:
        if self._current == self._stopped:
            raise KeyboardInterrupt

    def serve(self, order: Order, functions: Functions) -> None:
        """Do what an order says, and tell how it ended."""

        def tell(content: bytes, name: str = "") -> None:
            self._tell(Answer(order.number, "file" if name else "part", name, content))
            self._go_on()

        word, why = "done", ""
        try:
            self._current = order.number
            try:
                self._go_on()  # it may have been stopped before it began
                functions[order.kind](order.query, tell)
            finally:
                self._current = -1
        except InputError as error:
            word, why = "refused", str(error)
        except KeyboardInterrupt:
            word = "stopped"
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            word, why = "failed", f"the computation failed: {type(error).__name__}: {text}"
        self._tell(Answer(order.number, word, content=why.encode()))

    def _tell(self, answer: Answer) -> None:
        with self._telling:
            self._pipe.send(answer)


def main(pipe: Connection, module: str) -> None:
    """Serve orders until the pipe closes. Runs in a process of its own."""
    serving = _Serving(pipe)
    signal.signal(signal.SIGINT, serving.interrupted)
    threading.Thread(target=serving.listen, daemon=True).start()
    functions: Functions = importlib.import_module(module).KINDS
    while True:
        serving.serve(serving.orders.get(), functions)
