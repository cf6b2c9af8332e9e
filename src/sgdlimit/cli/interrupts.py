"""Work that has something to put away when Ctrl-C comes."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

from .start import leave


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Here Ctrl-C is a KeyboardInterrupt; elsewhere the command leaves at once."""
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _again
    try:
        yield
    finally:
        sys.unraisablehook = sys.__unraisablehook__
        signal.signal(signal.SIGINT, leave)


def _again(lost: "sys.UnraisableHookArgs") -> None:
    """A KeyboardInterrupt that fell into a callback of the garbage collector, where jax has one, comes once more."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    main = threading.main_thread().ident
    later = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT])  # to wake it, should it sleep
    later.daemon = True
    later.start()
