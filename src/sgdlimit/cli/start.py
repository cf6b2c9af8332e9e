"""Before anything else: Ctrl-C that no import can swallow, and three streams whatever the shell has closed."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def begin() -> None:
    """Answer Ctrl-C by leaving at once (unless the shell said to ignore it), and make sure that there are streams."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    _streams()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Here Ctrl-C is a KeyboardInterrupt: work that has something to put away."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


def _leave(*_: Any) -> NoReturn:
    """Extension modules and callbacks swallow a KeyboardInterrupt while they are imported; nothing swallows this."""
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted: nothing was written\n")
    os._exit(INTERRUPTED)


def _streams() -> None:
    """Open what is closed, lest an output file take its number; and print every letter, if need be by its code."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
