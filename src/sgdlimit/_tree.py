"""Frozen dataclasses that jax can look into.

Numbers (λ, δ, τ, scales) are leaves, so changing them never recompiles; functions and sizes are structure. A function
counts with all that it reads (`_fingerprint`): it is compiled anew when a global or a closure of its changes.
Rebuilding a tree inside jax skips `__post_init__`, so that checks run on the user's values only.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, dataclass_transform, final

import jax
import numpy as np

from ._fingerprint import Same, Snapshot, holds_function
from ._types import Tree
from .errors import real, reject

Cls = TypeVar("Cls", bound=type)
Check = Callable[[str, Any], Any]
"""What a field stores of the value that was given, from its name in errors and that value; or an InputError."""


def static(check: Check | None = None, **kwargs: Any) -> Any:
    """Return a dataclass field that is structure: hashable, and compared when a program is compiled."""
    return dataclasses.field(metadata={"static": True, "check": check}, **kwargs)


def leaf(*, default: Any = dataclasses.MISSING, **bounds: Any) -> Any:
    """Return a dataclass field that holds one number, within bounds as `errors.real` takes them."""
    return dataclasses.field(default=default, metadata={"check": functools.partial(real, **bounds)})


def function(what: str = "written in jax.numpy", **default: Any) -> Any:
    """Return a static field that holds a function of the user's, or None where that is its default."""

    def check(argument: str, value: Any) -> Any:
        if not callable(value) and (value is not None or not default):
            raise reject(argument, repr(value), f"it must be a function {what}")
        return value

    return static(check, **default)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static, leaf, function))
def model(cls: Cls) -> Cls:
    """Make a class final, a frozen dataclass and a tree; fields are checked before its own `__post_init__`."""
    own = cls.__dict__.get("__post_init__")

    def __post_init__(self: Any) -> None:
        for part in dataclasses.fields(self):
            if check := part.metadata.get("check"):
                settle(self, **{part.name: check(f"{cls.__name__}.{part.name}", getattr(self, part.name))})
            if settled := part.metadata.get("settled"):  # from other fields, too
                settle(self, **{part.name: settled(self)})
        if own is not None:
            own(self)

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    return final(tree(dataclasses.dataclass(frozen=True)(cls)))


def settle(obj: Any, **values: Any) -> None:
    """Store checked values in a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(obj, name, value)


def tree(cls: Cls) -> Cls:
    """Register a frozen dataclass as a tree that jax looks into, and return it."""
    fields = dataclasses.fields(cls)
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    structure = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten(obj: Any) -> tuple[tuple[Tree, ...], tuple[Hashable, ...]]:
        fixed = (getattr(obj, name) for name in structure)
        return tuple(getattr(obj, n) for n in leaves), tuple(Snapshot(v) if holds_function(v) else v for v in fixed)

    def unflatten(meta: tuple[Hashable, ...], data: tuple[Tree, ...]) -> Any:
        obj = object.__new__(cls)
        fixed = (part.value if type(part) is Snapshot else part for part in meta)
        settle(obj, **dict(zip(structure + leaves, (*fixed, *data), strict=True)))
        return obj

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def values_of(tree: Tree) -> Hashable:
    """Return a key that is equal for trees of numbers and arrays with the same structure and the same values."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return structure, tuple((array.shape, array.dtype.str, array.tobytes()) for array in arrays)


def shapes_of(tree: Tree) -> Hashable:
    """Return a key that is equal for trees of equal structure, shapes and types, which one program can serve."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)


def identity_of(tree: Tree) -> Hashable:
    """Return a key that is equal for trees that hold the very same arrays."""
    return tuple(Same(leaf) for leaf in jax.tree.leaves(tree))
