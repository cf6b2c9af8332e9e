"""One process that computes: it takes orders from a pipe, can be told to stop, and ends with the server."""

import contextlib
import importlib
import signal
import threading
from collections.abc import Callable
from ctypes import c_long
from multiprocessing.connection import Connection
from typing import NamedTuple

from ..errors import InputError


class Order(NamedTuple):
    """Work to do: `kind` is one of the module's `KINDS`, functions of a query and of `tell`."""

    number: int
    kind: str
    query: str


class Answer(NamedTuple):
    """To an order: a part, a file, or how it ended ('done', 'refused', 'failed', 'stopped'), which is the last one."""

    word: str
    name: str = ""
    content: bytes = b""


def main(pipe: Connection, stopped: c_long, module: str) -> None:
    """Serve orders until the pipe closes; SIGTERM ends the one whose number is in `stopped`, shared memory."""
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
            pipe.send(Answer("file" if name else "part", name, content))
        go_on()

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the terminal is the server's business
    functions: dict[str, Callable[..., None]] = importlib.import_module(module).KINDS
    with contextlib.suppress(EOFError, OSError):  # without a server there is nothing to live for
        while True:
            order: Order = pipe.recv()
            word, why = "done", ""
            try:
                current = order.number
                try:
                    go_on()  # it may have been stopped before it began
                    functions[order.kind](order.query, tell)
                finally:
                    current = -1
            except InputError as error:
                word, why = "refused", str(error)
            except KeyboardInterrupt:
                word = "stopped"
            except Exception as error:
                text = " ".join(str(error).split())[:300]
                word, why = "failed", f"the computation failed: {type(error).__name__}: {text}"
            pipe.send(Answer(word, content=why.encode()))
