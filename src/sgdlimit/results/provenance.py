"""Where a result comes from, in plain words."""

import datetime
import platform
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from .._version import __version__
from ..describe import to_words


def provenance(
    method: str,
    problem: object,
    algorithm: object,
    *,
    seed: int | None = None,
    options: Mapping[str, object] | None = None,
    status: str = "complete",
    message: str = "",
    diagnostics: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """The `about` of a result: what was computed and how it ended, by which versions and when, as plain words."""
    return {
        "method": method,
        "problem": to_words(problem),
        "algorithm": to_words(algorithm),
        "seed": seed,
        "options": {key: to_words(value) for key, value in (options or {}).items()},
        "status": status,
        "message": message,
        "diagnostics": {key: to_words(value) for key, value in (diagnostics or {}).items()},
        "sgdlimit_version": __version__,
        "jax_version": jax.__version__,
        "numpy_version": np.__version__,
        "python_version": platform.python_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
