"""Problems and algorithms as plain words: to store in a result, to read from TOML, to list for the user."""

import dataclasses
import inspect
import math
import os
import re
import runpy
import textwrap
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import jax
import numpy as np

from . import algorithms, problem
from .errors import reject
from .problem.losses import ACTIVATIONS
from .problem.rows import Entries
from .problem.schedules import ScheduleLike

ROOMS: dict[str, type] = {
    "loss": problem.LossLike,
    "labels": problem.LabelRule,
    "penalty": problem.PenaltyLike,
    "law": problem.EntryLaw,
    "start": problem.Towards,
    "schedule": ScheduleLike,
    "data": problem.DataLaw,
    "entries": Entries,
    "trained": problem.Trained,
    "algorithm": algorithms.Algorithm,
    "step": algorithms.Step,
    "clip": algorithms.Clip,
    "momentum": algorithms.Momentum,
    "rate": algorithms.RateRule,
    "average": algorithms.IterateAverage,
}
"""Places in a problem or a call, and what stands there: public subclasses, which `sgdlimit models` lists."""

PLACES = dict(loss="loss", labels="labels", penalty="penalty", teacher="law", noise="law", init="start", data="data",
              covariance="data", schedule="schedule", batch_share="schedule", step="step", clip="clip",
              momentum="momentum", rate="rate", readout="trained", bias="trained", output_bias="trained",
              inverse_temperature="trained", core="trained", directions="law")  # fmt: skip
"""Arguments that are models themselves, and the room of each."""
ELSE = {"start": "law"}
"""What may also stand in a room: a start is as well the law of a coordinate."""
OF_ALGORITHMS = ("algorithm", "step", "clip", "momentum", "rate", "average")
FUNCTIONS = ("fn", "predict", "error", "activation")
"""Arguments that are functions."""

Find = Callable[[str, Any], Callable[..., Any]]
"""The function that stands at a place, from the word that stands there; an InputError if there is none."""


def models(room: str) -> dict[str, Any]:
    """The classes that can stand in a room, by name."""
    house = algorithms if room in OF_ALGORITHMS else problem
    found = [ROOMS[room]]
    for cls in found:
        found += cls.__subclasses__()
    if room in ("loss", "penalty"):
        found.append(problem.VectorField)
    public = (cls for cls in found if getattr(house, cls.__name__, None) is cls)
    return {cls.__name__: cls for cls in public if dataclasses.is_dataclass(cls)}


def to_words(value: Any) -> Any:
    """Numbers, strings, lists and dictionaries that say what `value` is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        words = {f.name: to_words(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return {"name": type(value).__name__, **words}
    if callable(value):
        return _function_words(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return to_words(np.asarray(value).tolist())
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
    except (OSError, TypeError, SyntaxError, TokenError):  # TokenError: where its file is no Python, or has changed
        source = ""
    return {"function": getattr(fn, "__qualname__", repr(fn)), "source": source}


def _key(name: str) -> str:
    """A name as it may be written: without regard to case, spaces, hyphens and underscores."""
    return re.sub("[-_ ]", "", name).lower()


def from_words(room: str, words: Any, where: str, find: Find) -> Any:
    """The object that `words` describe; `where` names it in errors, `find` finds the user's functions."""
    known = models(room) | (models(ELSE[room]) if room in ELSE else {})
    if isinstance(words, dict) and "name" not in words and len(known) == 1:
        words = {"name": next(iter(known)), **words}
    wrapper = next((name for name, cls in known.items() if "fn" in cls.__dataclass_fields__), None)
    if isinstance(words, str):
        words = {"fn": words, "name": wrapper} if ":" in words and wrapper else {"name": words}
    if not isinstance(words, dict) or "name" not in words:
        example = ', "file.py:function"' if wrapper else ""
        raise reject(where, words, f"write a name{example}, or a table with a name")
    by_key = {_key(name): cls for name, cls in known.items()}
    if room == "entries":  # "sparse" for SparseEntries, as in sl.simulate
        by_key |= {key.removesuffix("entries"): cls for key, cls in by_key.items()}
    cls = by_key.get(_key(str(words["name"])))
    if cls is None:
        raise reject(where, words["name"], f"unknown model; it must be one of {', '.join(known)}")
    return _made(cls, words, where, find)


def _made(cls: Any, words: dict[str, Any], where: str, find: Find) -> Any:
    """An object of the class, from a table of its arguments; those that are nothing keep their defaults."""
    given = {key: value for key, value in words.items() if key != "name" and value is not None}
    allowed = inspect.signature(cls).parameters
    for key, value in given.items():
        if key not in allowed:
            raise reject(f"{where}.{key}", value, f"{cls.__name__} has {', '.join(allowed) or 'no parameters'}")
    for key, parameter in allowed.items():
        if parameter.default is parameter.empty and key not in given:
            raise reject(f"{where}.{key}", "nothing", f"{cls.__name__} needs it")
    places = {key: f"{where}.{key}".removeprefix("problem.") for key in given}
    arguments = {key: _argument(cls, key, value, places[key], find) for key, value in given.items()}
    try:
        return cls(**arguments)
    except TypeError as error:
        raise reject(where, cls.__name__, str(error)) from None


def _argument(cls: type, key: str, value: Any, where: str, find: Find) -> Any:
    """What stands for an argument: a model, a function, numbers."""
    if isinstance(value, list):
        return _listed(value)
    if key == "parameters" and isinstance(value, dict):
        return {name: _argument(cls, "readout", part, f"{where}.{name}", find) for name, part in value.items()}
    if key in FUNCTIONS or (cls is problem.VectorField and key == "loss"):
        return ACTIVATIONS[value] if isinstance(value, str) and value in ACTIVATIONS else find(where, value)
    if key in PLACES and (isinstance(value, str | dict) or (cls is problem.Problem and key != "bias")):
        return from_words(PLACES[key], value, where, find)
    return float(value) if value in ("inf", "-inf") else value


def _listed(value: Any) -> Any:
    """Lists of numbers as tuples, at any depth."""
    return tuple(_listed(part) for part in value) if isinstance(value, list) else value


def in_files(folder: Path) -> Find:
    """Functions written 'file.py:function', in files that the user names in a file of his own: they are run."""

    def find(where: str, value: Any) -> Callable[..., Any]:
        if not isinstance(value, str) or ":" not in value:
            raise reject(where, value, f'it must be "file.py:function" or one of {", ".join(ACTIVATIONS)}')
        file, _, name = value.rpartition(":")
        path = folder / file
        if path.suffix != ".py" or not os.path.isfile(path):
            raise reject(where, value, f"there is no Python file {path}")
        try:
            fn = runpy.run_path(str(path), run_name=f"sgdlimit_user_{path.stem}").get(name)
        except (Exception, SystemExit) as error:
            raise reject(where, value, f"{path.name} does not run: {type(error).__name__}: {error}") from error
        if not callable(fn):
            raise reject(where, value, f"{path.name} has no function {name}")
        return fn

    return find


def nowhere(where: str, value: Any) -> Callable[..., Any]:
    """No function at all: for words of results, from which none comes back, and for words that should hold none."""
    raise reject(where, value, "a function of the user's, which no file of results brings back")


def problem_from_words(words: dict[str, Any], find: Find = nowhere) -> "problem.Problem":
    """A Problem from the table `[problem]` of a TOML file, or from a stored result."""
    return _made(problem.Problem, words, "problem", find)


def algorithm_from_words(words: Any, find: Find = nowhere) -> Any:
    """An algorithm from the table `[algorithm]` of a TOML file, or from a stored result."""
    return from_words("algorithm", words, "algorithm", find)
