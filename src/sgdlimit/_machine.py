"""What this process finds: memory and cores it may take, a folder of compiled programs, jax unless it was forked."""

import contextlib
import math
import os
import sys
from functools import cache
from pathlib import Path

import jax

from .errors import reject

SHARE = 0.7
"""Part of the memory that a computation may take."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container says how much it may have (cgroup 2, cgroup 1)."""

REGIONS, LIMIT_OF_REGIONS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
MOST_REGIONS = 0.6
"""Share of them that programs may take before they are forgotten."""
TAKEN_ALONG = 2**18
"""Of logistic regression on an H200: 8192 samples take .040 s, 2²⁰ take .162 (`benchmarks/march.py --device`)."""


@cache
def memory() -> float:
    """Bytes that may be taken: of the device, or of the host or container, whichever has less."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return SHARE * ((device.memory_stats() or {}).get("bytes_limit") or math.inf)
    known = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for name in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            known.append(float(Path(name).read_text()))
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


def keep_programs() -> None:
    """Have compiled programs kept on disk, and forget those in memory before there are more than a process may have."""
    _keep_on_disk()
    _forget_many()


@cache
def _keep_on_disk() -> None:
    """Tell jax, once in a process, to keep compiled programs in the user's cache folder, so that no new process need
    compile them again, unless the user has said where; silent where nothing can be written.

    `SGDLIMIT_CACHE` names another folder, or is empty for none.
    """
    named = os.environ.get("SGDLIMIT_CACHE")
    if jax.config.values.get("jax_compilation_cache_dir") is not None or named == "":
        return
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        folder = Path(named) if named else Path(home) / "sgdlimit" / f"jax-{jax.__version__}"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _forget_many() -> None:
    """Forget all programs where they take most of the regions of memory that a process may have: a solution takes about
    a hundred, and beyond 65 530 of them Linux ends the process. Those on disk are found again."""
    with contextlib.suppress(OSError):  # not Linux
        most = MOST_REGIONS * int(LIMIT_OF_REGIONS.read_text())
        if REGIONS.read_bytes().count(b"\n") > most:
            jax.clear_caches()


_orphaned = False


def _mark() -> None:
    """In a child just forked: whether the parent had jax running."""
    global _orphaned
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: bridge is not None)
    _orphaned = _orphaned or bool(started())


os.register_at_fork(after_in_child=_mark)


def refuse_orphans() -> None:
    """Refuse to compute in a child forked after jax had started: its threads did not come along, and it would hang."""
    if _orphaned:
        why = "jax does not survive a fork; start workers with multiprocessing.get_context('spawn') or 'forkserver'"
        raise reject("process", "a child forked after jax had started", why)
