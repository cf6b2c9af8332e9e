"""Problems and algorithms as plain words: to store in a result, to read from TOML, to list for the user."""

import dataclasses
import importlib.util
import inspect
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import algorithms, problem
from .errors import InputError, reject

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "erf": jax.scipy.special.erf,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
}
"""Functions that have a name in TOML files."""

ROOMS: dict[str, tuple[str, ...]] = {
    "loss": ("Square", "Logistic", "Huber", "SmoothHinge", "Exponential", "TwoLayer", "Loss", "VectorField"),
    "labels": ("Linear", "Sign", "Logit", "Noise", "TwoLayerLabels", "Labels"),
    "penalty": ("NoPenalty", "Ridge", "SmoothL1", "Quartic", "Penalty", "VectorField"),
    "law": ("Normal", "Point", "Rademacher", "Uniform", "SparseNormal", "Law"),
    "schedule": ("Constant", "PowerDecay", "CosineDecay", "Schedule"),
    "entries": ("GaussianEntries", "RademacherEntries", "UniformEntries", "SparseEntries", "CustomEntries"),
    "algorithm": ("GradientFlow", "SGF", "SGD", "ShuffledSGD", "ProportionalSGD", "PersistentSGD"),
}
"""What can stand where: the models that `sgdlimit models` lists."""

WRAPPERS = {
    "loss": "Loss",
    "labels": "Labels",
    "penalty": "Penalty",
    "law": "Law",
    "schedule": "Schedule",
    "entries": "CustomEntries",
}
"""The class that makes a user's function stand in a room."""

LAW_FIELDS = ("teacher", "noise", "init")


def models(room: str) -> dict[str, Any]:
    """The classes that can stand in a room, by name."""
    return {name: getattr(algorithms if room == "algorithm" else problem, name) for name in ROOMS[room]}


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
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
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


def from_words(room: str, words: Any, where: str, folder: Path | None = None) -> Any:
    """The object that `words` describe; `where` names it in errors, `folder` is where 'file.py:fn' is looked up."""
    if isinstance(words, str):
        words = {"fn": words, "name": WRAPPERS[room]} if ":" in words and room in WRAPPERS else {"name": words}
    if not isinstance(words, dict) or "name" not in words:
        example = ', "file.py:function"' if room in WRAPPERS else ""
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
        arguments[key] = _argument(f"{where}.{key}", key, value, folder)
    try:
        return cls(**arguments)
    except TypeError as error:
        raise reject(where, words["name"], str(error).split("__init__() ")[-1]) from None


def _argument(where: str, key: str, value: Any, folder: Path | None) -> Any:
    if key == "loss" and (isinstance(value, dict) or (isinstance(value, str) and ":" not in value)):
        return from_words("loss", value, where, folder)
    if key == "batch_share":
        return from_words("schedule", value, where, folder)
    if key in ("fn", "predict", "error", "activation", "loss"):
        return None if value is None else function(where, value, folder)
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def function(where: str, value: Any, folder: Path | None) -> Callable[..., Any]:
    """A function by name (an activation) or as 'file.py:function'."""
    if isinstance(value, str) and value in ACTIVATIONS:
        return ACTIVATIONS[value]
    if not isinstance(value, str) or ":" not in value:
        raise reject(where, value, f'it must be "file.py:function" or one of {", ".join(ACTIVATIONS)}')
    file, _, name = value.rpartition(":")
    path = (folder or Path()) / file
    if not path.is_file() or path.suffix != ".py":
        raise reject(where, value, f"there is no Python file {path}")
    spec = importlib.util.spec_from_file_location(f"sgdlimit_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise reject(where, value, f"{path.name} does not run: {type(error).__name__}: {error}") from error
    fn = getattr(module, name, None)
    if not callable(fn):
        raise reject(where, value, f"{path.name} has no function {name}")
    return fn


def problem_from_words(words: dict[str, Any], folder: Path | None = None) -> "problem.Problem":
    """A Problem from the table `[problem]` of a TOML file, or from a stored result."""
    rooms = {"loss": "loss", "labels": "labels", "penalty": "penalty", "schedule": "schedule"}
    rooms |= dict.fromkeys(LAW_FIELDS, "law")
    numbers = ("sample_ratio", "width", "teacher_width")
    arguments: dict[str, Any] = {}
    for key, value in words.items():
        if key == "name" or (value is None and key in ("teacher", "teacher_width")):
            continue
        if key in rooms:
            arguments[key] = from_words(rooms[key], value, key, folder)
        elif key in numbers:
            arguments[key] = math.inf if value == "inf" else value
        else:
            raise reject(f"problem.{key}", value, f"unknown key; use {', '.join([*rooms, *numbers])}")
    for key in ("loss", "sample_ratio"):
        if key not in arguments:
            raise reject(f"problem.{key}", "nothing", "the table [problem] must give it")
    return problem.Problem(**arguments)


def algorithm_from_words(words: Any, folder: Path | None = None) -> Any:
    """An algorithm from the table `[algorithm]` of a TOML file, or from a stored result."""
    return from_words("algorithm", words, "algorithm", folder)


def rebuild(words: dict[str, Any] | None, make: Callable[[dict[str, Any]], Any]) -> Any:
    """The object behind stored words; None where it held a user's function, which words cannot bring back."""
    if words is None:
        return None
    try:
        return make(words)
    except InputError:
        return None


def short(value: Any) -> str:
    """A default value as the user would write it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}()"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
