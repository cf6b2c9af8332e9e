"""Frozen dataclasses that jax can look into.

Numbers (λ, δ, τ, scales) are leaves, so changing them never recompiles; functions and sizes are structure. A function
counts with all that it reads (`_fingerprint`): it is compiled anew when a global or a closure of its changes.
Rebuilding a tree inside jax skips `__post_init__`, so that checks run on the user's values only.
"""

import dataclasses
from typing import Any, TypeVar

import jax

from ._fingerprint import Snapshot, holds_function

Cls = TypeVar("Cls", bound=type)


def static(**kwargs: Any) -> Any:
    """Declare a dataclass field as structure (hashable, compared at compile time)."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def settle(obj: Any, **values: Any) -> None:
    """Store checked values in a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(obj, name, value)


def tree(cls: Cls) -> Cls:
    """Register a frozen dataclass as a jax pytree."""
    fields = dataclasses.fields(cls)
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    structure = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(obj, n) for n in leaves), tuple(_seal(getattr(obj, n)) for n in structure)

    def unflatten(meta: tuple[Any, ...], data: tuple[Any, ...]) -> Any:
        obj = object.__new__(cls)
        settle(obj, **dict(zip(structure + leaves, (*map(_unseal, meta), *data), strict=True)))
        return obj

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def _seal(value: Any) -> Any:
    return Snapshot(value) if holds_function(value) else value


def _unseal(value: Any) -> Any:
    return value.value if type(value) is Snapshot else value
