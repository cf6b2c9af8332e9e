"""Before anything else: Ctrl-C that no import can swallow, and three streams whatever the shell has closed."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
_written: list[str] = []
"""Files that the command has written."""


def outcome() -> str:
    """What there is when Ctrl-C comes."""
    return f"wrote {', '.join(_written)}" if _written else "nothing was written"


def wrote(*files: Any) -> str:
    """Remember what was written, and say so."""
    _written[:] = map(str, files)
    return outcome()


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
    sys.unraisablehook = _again
    try:
        yield
    finally:
        sys.unraisablehook = sys.__unraisablehook__
        signal.signal(signal.SIGINT, _leave)


def _again(lost: Any) -> None:
    """A KeyboardInterrupt that fell into a callback of the garbage collector, where jax has one, comes once more."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    main = threading.main_thread().ident
    later = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT])  # to wake it, should it sleep
    later.daemon = True
    later.start()


def _leave(*_: Any) -> NoReturn:
    """Extension modules and callbacks swallow a KeyboardInterrupt while they are imported; nothing swallows this."""
    with contextlib.suppress(OSError):
        os.write(2, f"interrupted: {outcome()}\n".encode(errors="backslashreplace"))
    os._exit(INTERRUPTED)


def _streams() -> None:
    """Open what is closed, lest an output file take its number; and print every letter, if need be by its code."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
