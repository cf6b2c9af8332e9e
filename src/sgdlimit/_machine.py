"""What the machine has: memory and cores, as far as this process may take them."""

import math
import os
from functools import cache
from pathlib import Path

import jax

SHARE = 0.7
"""Part of the memory that a computation may take."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container says how much it may have (cgroup 2, cgroup 1)."""

TAKEN_ALONG = 2**18
"""Of logistic regression on an H200: 8192 samples take .040 s, 2²⁰ take .162 (`benchmarks/march.py --device`)."""


@cache
def memory() -> float:
    """Bytes that may be taken: of the device, or of the host or container, whichever has less."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return SHARE * ((device.memory_stats() or {}).get("bytes_limit") or math.inf)
    known = [_bytes_in(Path(name)) for name in LIMITS]
    if hasattr(os, "sysconf"):
        known.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    return SHARE * min(known)


def cores() -> int:
    """That may be busy at once with work of this process; one where a device does it."""
    if jax.default_backend() != "cpu" or len(jax.devices()) > 1:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def idle() -> int:
    """Samples that a device takes along in the time that a step of a march costs it anyway; a CPU is always busy."""
    return 0 if jax.default_backend() == "cpu" else TAKEN_ALONG


def lack(needed: float, there: float | None = None) -> str:
    """What is missing, in words, where so many bytes are more than are there; else nothing."""
    there = memory() if there is None else there
    return f"{needed / 2**30:.3g} GiB would be needed, of which {there / 2**30:.3g} are there" if needed > there else ""


def ran_out(error: Exception) -> bool:
    """Whether it says that memory, of the host or a device, was not there after all: others may hold it."""
    text = str(error)
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()


def _bytes_in(file: Path) -> float:
    try:
        return float(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return math.inf
