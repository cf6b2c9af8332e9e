"""Before anything else: Ctrl-C that no import can swallow, and three streams whatever the shell has closed.

Only modules that Python has loaded by itself are imported here: the moment before `begin` is as short as can be.
"""

import _signal  # pyright: ignore[reportMissingImports]  # `signal` without enumerations, which take 10 ms to load
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
_written: "list[str]" = []
"""Files that the command has written."""


def begin() -> None:
    """Answer Ctrl-C by leaving at once (unless the shell said to ignore it), and make sure that there are streams."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, leave)
    # open what is closed, lest an output file take its number; and print every letter, if need be by its code
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def outcome() -> str:
    """One line: the files that the command has written so far, or that there are none."""
    return f"wrote {', '.join(_written)}" if _written else "nothing was written"


def wrote(*files: object) -> str:
    """Remember what was written, and say so."""
    _written[:] = map(str, files)
    return outcome()


def leave(*_: object) -> "NoReturn":
    """Extension modules and callbacks swallow a KeyboardInterrupt while they are imported; nothing swallows this."""
    try:
        os.write(2, f"interrupted: {outcome()}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(INTERRUPTED)
