"""Points of a sweep: which field the name of an axis means, and what every point computes with."""

import dataclasses
import difflib
import inspect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..describe import to_words
from ..errors import reject
from ..problem.parameters import Parameters
from ..results.result import spoken
from .tasks import Task

Path = tuple[str, ...]
"""Where a field is: ('problem', 'penalty', 'strength'), ('algorithm', 'temperature'), ('options', 'tol')."""


def axes_of(over: object) -> dict[str, tuple[object, ...]]:
    """Values along every axis, by its name, as the user gives them."""
    if not isinstance(over, Mapping) or not over:
        raise reject("over", repr(over), 'name axes and their values: over={"sample_ratio": [1.0, 2.0]}')
    return {name: _values(name, values) for name, values in over.items()}


def _values(name: str, values: Any) -> tuple[object, ...]:
    """Of one axis: a list, a tuple, a range or a one-dimensional array, not empty, none twice."""
    if hasattr(values, "__array__") and np.ndim(values) == 1:
        values = np.asarray(values).tolist()
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise reject(f"over[{name!r}]", repr(values), "it must be a list of values, such as [1.0, 2.0]")
    if not len(values):
        raise reject(f"over[{name!r}]", "no values", "an empty axis has no points; give at least one value, or drop it")
    plain = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    counts = Counter((type(value), value) for value in plain if isinstance(value, int | float | str))
    for (_, value), count in counts.items():
        if count > 1:
            raise reject(f"over[{name!r}]", value, "the value stands there twice; name it once")
    return plain


def changed(value: Any, changes: Mapping[Path, object]) -> Any:
    """`value`, such as a task, with new ones inside; the checks of every class that holds one run on all together."""
    if () in changes:
        return changes[()]
    within: dict[str, dict[Path, object]] = {}
    for (first, *rest), new in changes.items():
        within.setdefault(first, {})[tuple(rest)] = new
    if isinstance(value, dict):
        return {**value, **{name: changed(value.get(name), new) for name, new in within.items()}}
    parts = {name: changed(getattr(value, name), new) for name, new in within.items()}
    if "learning_rate" in parts:  # stands for the temperature, which then is not given
        parts = {"temperature": None, **parts}
    return dataclasses.replace(value, **parts)


def find(names: Sequence[str], base: Task, options: Iterable[str]) -> dict[str, Path]:
    """The field that every name means; no two may mean the same, or one the whole of which another is a part."""
    every = [*_within(base.problem, ("problem",)), ("algorithm",), *_within(base.algorithm, ("algorithm",))]
    every += [("options", name) for name in options]
    known = {".".join(path if path[0] == "algorithm" else path[1:]): path for path in every}
    paths = {name: _find(name, known) for name in names}
    for first, second in itertools.combinations(names, 2):
        short, long = sorted((paths[first], paths[second]), key=len)
        if long[: len(short)] == short:
            raise reject("over", f"{first!r} and {second!r}", f"both set {'.'.join(short)}; keep one of them")
    return paths


def _within(value: object, path: Path) -> Iterator[Path]:
    """Fields of a part of the problem or of the algorithm, and of the parts within; arguments that stand for fields."""
    if isinstance(value, Parameters):
        yield from ((*path, name) for name in value)
    elif dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        yield from ((*path, name) for name in inspect.signature(type(value)).parameters if name not in fields)
        for name in fields:
            yield (*path, name)
            yield from _within(getattr(value, name), (*path, name))


def _find(name: object, known: Mapping[str, Path]) -> Path:
    """The field of that whole name, or the one whose name ends so, parts between left out."""
    if not isinstance(name, str):
        raise reject("over", repr(name), "the name of an axis is a word, such as 'sample_ratio'")
    if (whole := name.removeprefix("problem.")) in known:
        return known[whole]
    parts = name.split(".")
    # its parts are met in this order on the way to the field
    ways = ((whole, path, iter(path)) for whole, path in known.items())
    found = [whole for whole, path, way in ways if path[-1] == parts[-1] and all(part in way for part in parts)]
    if len(found) == 1:
        return known[found[0]]
    if found:
        raise reject("over", repr(name), f"it may mean {' or '.join(found)}; write one of them")
    by_ending = {path[-1]: whole for whole, path in known.items()} | {whole: whole for whole in known}
    near = dict.fromkeys(by_ending[word] for word in difflib.get_close_matches(name, by_ending, n=3))
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise reject("over", repr(name), f"{hint}there are {', '.join(known)}")


def label(value: object) -> float | str:
    """A value along an axis as it is shown: a number or a word as it stands, anything else in short words."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return value
    return str(value) if value is None or isinstance(value, bool) else spoken(to_words(value))


def coordinate(values: Iterable[object]) -> np.ndarray:
    """Labels of the values along an axis: numbers where all are, words otherwise."""
    labels = [label(value) for value in values]
    numbers = all(isinstance(value, int | float) for value in labels)
    return np.asarray(labels) if numbers else np.asarray([str(value) for value in labels])
