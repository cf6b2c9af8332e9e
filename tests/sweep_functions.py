"""Functions at the top level of a module, as worker processes need them; some end the worker that calls them."""

import multiprocessing
import os
import signal
from pathlib import Path

FLAG = "SGDLIMIT_TEST_FLAG"
"""Environment variable: a file whose presence means death, once."""


def squared(r, y):
    return 0.5 * (r - y) ** 2


def deadly(r, y):
    """Kills every worker that traces it; harmless in the process of the tests."""
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.5 * (r - y) ** 2


def deadly_once(r, y):
    """Kills the first worker that traces it."""
    flag = Path(os.environ[FLAG])
    if multiprocessing.parent_process() is not None and flag.exists():
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.5 * (r - y) ** 2
