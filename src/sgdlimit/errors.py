"""Errors that name the argument, what was given, what is allowed and what to do about it.

Functions that answer one question take the same words; one that cannot serve a word says who can.
"""

import functools
import inspect
import math
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import get_annotations
from typing import Any, ParamSpec, TypeVar, get_args

P = ParamSpec("P")
R = TypeVar("R")


class InputError(ValueError):
    """An argument that cannot be used. One line: argument, value, remedy. Exit status 2 on the command line."""


class MissingError(InputError, KeyError):
    """A name that a result does not hold; a `KeyError` as well, as for any mapping."""

    __str__ = Exception.__str__  # a KeyError would quote the sentence


class DivergenceWarning(RuntimeWarning):
    """A computation stopped before its last time because a quantity grew without bound."""


class ToleranceWarning(RuntimeWarning):
    """A result that is not known as well as was asked for: its message says how well it is."""


class UnreliableWarning(RuntimeWarning):
    """A result whose values or errors should not be believed: `solution.quality` says why."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after work that has something to show: `result` is the best so far, with status 'interrupted'."""

    def __init__(self, result: Any) -> None:
        super().__init__(f"{result.message}; `.result` of this exception has what there is")
        self.result = result


class SweepWarning(RuntimeWarning):
    """A sweep with points that failed: their `reason` says why."""


@contextmanager
def told_by_status() -> Iterator[None]:
    """Return a context without the warnings that a result repeats in its status; all others are heard."""
    with warnings.catch_warnings():
        for kind in (DivergenceWarning, ToleranceWarning, UnreliableWarning, SweepWarning):
            warnings.simplefilter("ignore", kind)
        yield


def reject(argument: str, given: Any, why: str, kind: type[InputError] = InputError) -> InputError:
    """The error for one bad argument; `why` says what is allowed and the remedy."""
    return kind(f"{_line(argument)}: got {_line(given)}; {why}")


def _line(given: Any) -> str:
    """One short line that any terminal shows as it stands."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(given)).split())
    return text if len(text) <= 120 else text[:117] + "..."


def traced(value: Any) -> bool:
    """Whether jax is tracing the value: it has no number yet, and checks must let it pass."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.core.Tracer)


def real(
    argument: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = sys.float_info.max,
    why: str,
) -> Any:
    """A finite number within bounds as a float (a traced one as it is), or an InputError that says why not."""
    if traced(value):
        return value
    if isinstance(value, str | bytes | bool):
        raise reject(argument, repr(value), why)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise reject(argument, repr(value), why) from None
    if not number > above or not least <= number <= most:
        raise reject(argument, value, why)
    return number


def whole(argument: str, value: Any, *, least: int, most: int = 2**31 - 1, why: str) -> int:
    """An integer within bounds, or an InputError that says why not."""
    try:
        number = operator.index(value)
    except TypeError:
        raise reject(argument, repr(value), why) from None
    if isinstance(value, bool) or not least <= number <= most:
        raise reject(argument, value, why)
    return number


def instance(argument: str, value: Any, kind: Any, remedy: str) -> None:
    """Refuse a value of the wrong kind, among them a class in place of an object."""
    if not isinstance(value, kind):
        given = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
        raise reject(argument, given, f"it must be {remedy}")


def flag(argument: str, value: Any) -> bool:
    """True or False, or an InputError."""
    if not isinstance(value, bool):
        raise reject(argument, repr(value), "it must be True or False")
    return value


def precision(dtype: Any) -> str:
    """'float32' or 'float64', said as a word or as numpy and jax have it, or an InputError."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    if name not in ("float32", "float64"):
        raise reject("dtype", repr(dtype), "it must be 'float32' or 'float64'")
    return str(name)


def seed_number(value: Any) -> int:
    """A random seed: the generator takes 32 bits."""
    return whole("seed", value, least=0, most=2**32 - 1, why="it must be a whole number from 0 to 2³² − 1")


def elsewhere(remedies: dict[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse these arguments, which the function does not have, each with its remedy; None says nothing.

    All others are Python's to judge. A warning in the function counts one frame more.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() & remedies:
                if (value := kwargs.pop(name)) is not None:
                    raise reject(name, repr(value), f"sl.{function.__name__} does not take it: {remedies[name]}")
            return function(*args, **kwargs)

        return checked

    return register


def parameters_of(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """All words that a function takes, those of a typed `**further` too, each with its default (None for these)."""
    found: dict[str, inspect.Parameter] = {}
    for name, taken in inspect.signature(function).parameters.items():
        if taken.kind is not taken.VAR_KEYWORD or not get_args(taken.annotation):
            found[name] = taken
            continue
        for kind in get_args(taken.annotation):
            found |= {
                word: taken.replace(name=word, kind=taken.KEYWORD_ONLY, default=None) for word in get_annotations(kind)
            }
    return found


def check_words(function: str, given: Mapping[str, object], known: type) -> None:
    """Refuse words that a typed dictionary does not have, as Python does for a function that does not take them."""
    for name in given.keys() - get_annotations(known).keys():
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def words(names: str, remedy: str) -> dict[str, str]:
    """One remedy for several names."""
    return dict.fromkeys(names.split(), remedy)


DOUBLE = words("dtype", "it computes in double precision; leave it out")
