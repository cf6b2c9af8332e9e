"""Functions that answer one question take the same words; one that cannot serve a word says who can."""

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import get_annotations
from typing import ParamSpec, TypeVar, get_args

from .errors import reject

P = ParamSpec("P")
R = TypeVar("R")


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
