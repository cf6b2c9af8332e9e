"""Problems and algorithms as plain words: to store in a result, to read from TOML, to list for the user."""

import dataclasses
import importlib.util
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import algorithms, problem
from .errors import InputError, reject
from .problem.activations import ACTIVATIONS
from .problem.entries import Entries
from .problem.labels import LabelRule
from .problem.laws import EntryLaw
from .problem.losses import LossLike
from .problem.penalties import PenaltyLike
from .problem.schedules import ScheduleLike

ROOMS: dict[str, type] = {
    "loss": LossLike,
    "labels": LabelRule,
    "penalty": PenaltyLike,
    "law": EntryLaw,
    "schedule": ScheduleLike,
    "data": problem.DataLaw,
    "entries": Entries,
    "algorithm": algorithms.Algorithm,
}
"""Places in a problem or a call, and what stands there: public subclasses, which `sgdlimit models` lists."""

LAW_FIELDS = ("teacher", "noise", "init")

Find = Callable[[str, Any], Callable[..., Any]]
"""The function that stands at a place, from the word that stands there; an InputError if there is none."""


def models(room: str) -> dict[str, Any]:
    """The classes that can stand in a room, by name."""
    house = algorithms if room == "algorithm" else problem
    found = [ROOMS[room]]
    for cls in found:
        found += cls.__subclasses__()
    if room in ("loss", "penalty"):
        found.append(problem.VectorField)
    public = (cls for cls in found[1:] if getattr(house, cls.__name__, None) is cls)
    return {cls.__name__: cls for cls in public if dataclasses.is_dataclass(cls)}


def _wrapper(room: str) -> str | None:
    """The class that makes a user's function stand in a room; None where there is none."""
    return next((name for name, cls in models(room).items() if "fn" in cls.__dataclass_fields__), None)


def to_words(value: Any) -> Any:
    """Numbers, strings, lists and dictionaries that say what `value` is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        words = {f.name: to_words(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": type(value).__name__, **words}
    if callable(value):
        return _function_words(value)
    if isinstance(value, np.ndarray | jax.Array):
        return to_words(np.asarray(value).tolist())
    if isinstance(value, np.generic):
        return to_words(value.item())
    if isinstance(value, tuple | list):
        return [to_words(v) for v in value]
    if isinstance(value, dict):
        return {str(key): to_words(v) for key, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for them
    return value


def _function_words(fn: Callable[..., Any]) -> Any:
    for name, known in ACTIVATIONS.items():
        if fn is known:
            return name
    try:
        source = textwrap.dedent(inspect.getsource(fn)).strip()
    except (OSError, TypeError):
        source = ""
    return {"function": getattr(fn, "__qualname__", repr(fn)), "source": source}


def _key(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()


def from_words(room: str, words: Any, where: str, find: Find) -> Any:
    """The object that `words` describe; `where` names it in errors, `find` finds the user's functions."""
    wrapper = _wrapper(room)
    if isinstance(words, str):
        words = {"fn": words, "name": wrapper} if ":" in words and wrapper else {"name": words}
    if not isinstance(words, dict) or "name" not in words:
        example = ', "file.py:function"' if wrapper else ""
        raise reject(where, words, f"write a name{example}, or a table with a name")
    known = models(room)
    by_key = {_key(name): name for name in known}
    if room == "entries":  # "sparse" for SparseEntries, as in sl.simulate
        by_key |= {key.removesuffix("entries"): name for key, name in by_key.items()}
    name = by_key.get(_key(str(words["name"])))
    if name is None:
        raise reject(where, words["name"], f"unknown model; it must be one of {', '.join(known)}")
    cls = known[name]
    allowed = inspect.signature(cls).parameters
    arguments = {}
    for key, value in words.items():
        if key == "name":
            continue
        if key not in allowed:
            options = ", ".join(allowed) or "no parameters"
            raise reject(f"{where}.{key}", value, f"{name} has {options}")
        arguments[key] = _argument(f"{where}.{key}", key, value, find)
    try:
        return cls(**arguments)
    except TypeError as error:
        raise reject(where, words["name"], str(error).split("__init__() ")[-1]) from None


def _argument(where: str, key: str, value: Any, find: Find) -> Any:
    # A loss within a loss may be one of ours, or a function of the user's: "file.py:function", or stored words of it.
    if key == "loss" and isinstance(value, str | dict) and (":" if isinstance(value, str) else "function") not in value:
        return from_words("loss", value, where, find)
    if key == "covariance" and isinstance(value, str | dict):
        return from_words("data", value, where, find)
    if key == "batch_share":
        return from_words("schedule", value, where, find)
    if key in ("fn", "predict", "error", "activation", "loss"):
        if isinstance(value, str) and value in ACTIVATIONS:
            return ACTIVATIONS[value]
        return None if value is None else find(where, value)
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def in_files(folder: Path) -> Find:
    """Functions written 'file.py:function', in files that the user names in a file of his own: they are run."""

    def find(where: str, value: Any) -> Callable[..., Any]:
        if not isinstance(value, str) or ":" not in value:
            raise reject(where, value, f'it must be "file.py:function" or one of {", ".join(ACTIVATIONS)}')
        file, _, name = value.rpartition(":")
        path = folder / file
        try:
            there = path.suffix == ".py" and path.is_file()
        except (OSError, ValueError):
            there = False
        if not there:
            raise reject(where, value, f"there is no Python file {path}")
        spec = importlib.util.spec_from_file_location(f"sgdlimit_user_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise reject(where, value, f"{path.name} does not run: {type(error).__name__}: {error}") from error
        fn = getattr(module, name, None)
        if not callable(fn):
            raise reject(where, value, f"{path.name} has no function {name}")
        return fn

    return find


def among(functions: Mapping[str, Callable[..., Any]]) -> Find:
    """Functions that the caller passed, by place ('loss.fn') or by the name stored there: no file is run."""

    def find(where: str, value: Any) -> Callable[..., Any]:
        name = value.get("function") if isinstance(value, dict) else value
        for key in (where, name):
            if isinstance(key, str) and key in functions:
                return functions[key]
        raise reject(where, name, f'a function of the user\'s; pass it: sl.load(path, functions={{"{where}": fn}})')

    return find


NOWHERE = among({})
"""Finds no function: for words that should hold none."""


def problem_from_words(words: dict[str, Any], find: Find = NOWHERE) -> "problem.Problem":
    """A Problem from the table `[problem]` of a TOML file, or from a stored result."""
    rooms = {"loss": "loss", "labels": "labels", "penalty": "penalty", "schedule": "schedule", "data": "data"}
    rooms |= dict.fromkeys(LAW_FIELDS, "law")
    numbers = ("sample_ratio", "width", "teacher_width", "bias")
    arguments: dict[str, Any] = {}
    for key, value in words.items():
        if key == "name" or (value is None and key in ("teacher", "teacher_width")):
            continue
        if key in rooms:
            arguments[key] = from_words(rooms[key], value, key, find)
        elif key in numbers:
            arguments[key] = math.inf if value == "inf" else value
        else:
            raise reject(f"problem.{key}", value, f"unknown key; use {', '.join([*rooms, *numbers])}")
    for key in ("loss", "sample_ratio"):
        if key not in arguments:
            raise reject(f"problem.{key}", "nothing", "the table [problem] must give it")
    return problem.Problem(**arguments)


def algorithm_from_words(words: Any, find: Find = NOWHERE) -> Any:
    """An algorithm from the table `[algorithm]` of a TOML file, or from a stored result."""
    return from_words("algorithm", words, "algorithm", find)


def rebuild(
    words: dict[str, Any] | None, make: Callable[[Any, Find], Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """The object behind stored words; None where it held a function that the caller has not passed."""
    if words is None:
        return None
    try:
        return make(words, among(functions))
    except InputError:
        return None


def short(value: Any) -> str:
    """A default value as the user would write it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}()"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
