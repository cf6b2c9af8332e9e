"""What every call promises: a finite result that says how it ended, or an `InputError` that names an argument."""

import json
import re
import time
import warnings
from typing import Any

import numpy as np
from language import Call

import sgdlimit as sl
from sgdlimit.results.variables import split

STATUS = ("complete", "tolerance missed", "budget", "diverged", "unreliable", "interrupted")
HEAD = re.compile(r"^([\w.=\[\]'\- ]+): got ")
"""Every refusal begins with the argument's name."""
REFUSAL_SECONDS = 20.0
"""A refusal comes before any work; looking at a problem compiles a little, on a machine that may be busy."""
ROUNDING = 1e-4


class Broken(AssertionError):
    """A promise that was not kept."""


def holds(condition: Any, words: str) -> None:
    """An assertion that says what is wrong."""
    if not condition:
        raise Broken(words)


def named(error: sl.InputError) -> str:
    """The argument that a refusal names."""
    found = HEAD.match(str(error))
    holds(found, f"a refusal that names no argument: {error}")
    assert found is not None
    return found.group(1)


def attempt(made: Call) -> tuple[Any, str]:
    """The result of a call, or None and the argument that was refused. Stray warnings break a promise."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, refused = made(), ""
        except sl.InputError as error:
            result, refused = None, named(error)
    for warning in caught:
        ours = warning.category.__module__.startswith("sgdlimit")
        stray = issubclass(warning.category, RuntimeWarning) and not ours
        holds(not stray, f"a stray warning from {warning.filename}:{warning.lineno}: {warning.message}")
    return result, refused


def keeps_its_word(made: Call) -> str:
    """Make a valid call; how it ended, in a word or two."""
    result, refused = attempt(made)
    if result is None:
        return f"refused: {refused.split('.')[-1]}"
    asked = made.arguments.get("t_max") or made.arguments["times"][-1]
    sound(result, asked)
    return result.status


def sound(result: Any, asked: float) -> None:
    """Finite curves of one length, errors that are not negative, an ending in words."""
    holds(result.status in STATUS, f"status {result.status!r}")
    holds(result.status == "complete" or result.message, f"{result.status} without a message")
    t = result.time
    holds(np.all(np.isfinite(t)) and np.all(np.diff(t) > 0), f"times {t}")
    # a step, whatever its length, may be rounded to a whole update
    slack = 0.0 if isinstance(result, sl.Solution) else float(result.about["diagnostics"]["step_time"])
    if result.status == "complete":
        holds(len(t) and abs(t[-1] - asked) <= slack + 0.126, f"complete, but ends at {t[-1:]} of {asked}")
    for name, (dims, values) in result.variables.items():
        lengths = dict(zip(dims, values.shape, strict=True))
        for axis, coordinate in result.coords.items():
            holds(lengths.get(axis, len(coordinate)) == len(coordinate), f"{name}: {lengths}, {axis} {len(coordinate)}")
        holds(np.all(np.isfinite(values)), f"{result.status}, but {name} is not finite")
        if split(name)[1] not in ("", "_replicas"):
            holds(np.all(values >= 0), f"{name} is negative")
    if isinstance(result, sl.Runs) and len(t):
        _possible(result)
    holds(repr(result) and result._repr_html_(), "no summary")
    json.dumps(result.about, allow_nan=False)


def _possible(runs: Any) -> None:
    """What holds exactly at finite size: norms are Gram matrices, and |θᵀθ*|² ≤ |θ|²|θ*|²."""
    norm = np.asarray(runs["norm"], dtype=np.float64)
    size = np.max(np.abs(norm), initial=1e-30)
    holds(np.min(np.linalg.eigvalsh(norm)) >= -ROUNDING * size, "norm is no Gram matrix")
    if "overlap" in runs and "theta_star" in runs:
        teacher = np.mean(np.asarray(runs["theta_star"], dtype=np.float64) ** 2, axis=1)
        own = np.diagonal(norm, axis1=2, axis2=3)
        bound = np.sqrt(np.maximum(own, 0)[..., None] * teacher[:, None, None, :])
        holds(np.all(np.abs(runs["overlap"]) <= bound * (1 + ROUNDING) + ROUNDING * size**0.5), "overlap beyond norms")


def refused_by_name(made: Call, names: tuple[str, ...]) -> str:
    """Make a call with one wrong argument; it must be refused at once, under one of the names."""
    begin = time.perf_counter()
    result, refused = attempt(made)
    seconds = time.perf_counter() - begin
    holds(result is None, "accepted")
    words = set(re.split(r"\W+", refused))
    holds(words & set(names), f"refused as {refused!r} in place of {' or '.join(names)}")
    holds(seconds < REFUSAL_SECONDS, f"refused after {seconds:.1f} s")
    return f"refused: {names[0]}"
