"""Children that a fork makes after jax has started: its threads do not come along, and the first computation hangs."""

import os
import sys

from .errors import reject

_orphaned = False


def _mark() -> None:
    """In a child just forked: whether the parent had jax running."""
    global _orphaned
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: bridge is not None)
    _orphaned = _orphaned or bool(started())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark)


def refuse_orphans() -> None:
    """Refuse to compute where jax would hang."""
    if _orphaned:
        why = "jax does not survive a fork; start workers with multiprocessing.get_context('spawn') or 'forkserver'"
        raise reject("process", "a child forked after jax had started", why)
