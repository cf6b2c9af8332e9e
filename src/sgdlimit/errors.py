"""Errors that name the argument, what was given, what is allowed and what to do about it."""

import math
from typing import Any


class InputError(ValueError):
    """An argument that cannot be used. One line: argument, value, remedy. Exit status 2 on the command line."""


class DivergenceWarning(RuntimeWarning):
    """A computation stopped before its last time because a quantity grew without bound."""


def reject(argument: str, given: Any, why: str) -> InputError:
    """The error for one bad argument; `why` says what is allowed and the remedy."""
    text = " ".join(str(given).split())
    if len(text) > 120:
        text = text[:117] + "..."
    return InputError(f"{argument}: got {text}; {why}")


def real(argument: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, why: str) -> float:
    """A finite number above (or at least) a bound, or an InputError that says why not."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise reject(argument, repr(value), why) from None
    if not math.isfinite(number) or number <= above or number < least:
        raise reject(argument, value, why)
    return number


def whole(argument: str, value: Any, *, least: int, why: str) -> int:
    """An integer of at least `least`, or an InputError that says why not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise reject(argument, repr(value), why)
    number = value.__index__()
    if number < least:
        raise reject(argument, value, why)
    return number
