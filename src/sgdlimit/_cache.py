"""Compiled programs are kept in the user's cache folder, so that a new process need not compile them again."""

import contextlib
import os
from functools import cache
from pathlib import Path


@cache
def keep_programs() -> None:
    """Tell jax, once in a process, where to keep programs, unless the user has; silent where nothing can be written.

    `SGDLIMIT_CACHE` names another folder, or is empty for none.
    """
    import jax

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
