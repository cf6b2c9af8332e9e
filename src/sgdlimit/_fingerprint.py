"""What a function reads: functions of one fingerprint compute the same, and a change of what is read changes it.

jax compiles a user's function together with what it reads from outside: globals, closures, defaults, attributes. These
are looked at whenever a function is handed to jax, through the user's own helpers, modules, classes and objects.
Installed packages are taken for constant, and what cannot be looked into counts by identity.
"""

import enum
import functools
import hashlib
import os
import sys
import sysconfig
import types
import weakref
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, final

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "sgdlimit")
"""Constant wherever they lie; so are the standard library and all that is installed."""
LIBRARY = sysconfig.get_path("stdlib") + os.sep
PLAIN = (int, bool, float, complex, str, bytes, type(None), type(...))


@final
class Same:
    """An object that counts by identity; it is held, so that its id is not given away."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        """Without an address: by the name of the object or of its class."""
        named: Any = self.value if hasattr(self.value, "__name__") else type(self.value)
        return f"same {getattr(named, '__module__', '')} {getattr(named, '__qualname__', named.__name__)}"


@final
@dataclass(frozen=True, slots=True)
class Snapshot:
    """A function, or a tuple that holds some, as it is now: equal to another that would compute the same."""

    value: Any = field(compare=False)
    key: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", fingerprint(self.value))


_LAST: dict[int, int] = {}  # what was last seen in a function or an array, by id
_SETTLED: set[int] = set()  # looks that showed what `_LAST` holds: the next ones that show the same need not compare


def fingerprint(value: object) -> Hashable:
    """A key of a function and of all that it reads now.

    jax itself keeps what it found in the bodies of loops and in jitted helpers, and copies of NumPy arrays: where one
    of these was seen before with another content, jax forgets everything.
    """
    walk = _Walk()
    key = walk.look(value)
    token = hash((key, *map(id, walk.met)))
    if token not in _SETTLED:
        now = {id(thing): hash(_Walk().look(thing)) for thing in walk.met}
        for thing in walk.met:
            if id(thing) not in _LAST:
                weakref.finalize(thing, _forget, id(thing))
        if any(_LAST.get(place, content) != content for place, content in now.items()):
            jax.clear_caches()
            _SETTLED.clear()
        _LAST.update(now)
        _SETTLED.add(token)
    return key


def _forget(place: int) -> None:
    """An object is gone, and another may come to lie in its place."""
    _LAST.pop(place, None)
    _SETTLED.clear()


def digest(value: object) -> str:
    """A fingerprint in letters, the same in another process."""
    return hashlib.sha256(repr(fingerprint(value)).encode()).hexdigest()


def holds_function(value: object) -> bool:
    """Whether `value` is a function or a tuple with one inside."""
    return callable(value) or (type(value) is tuple and any(holds_function(v) for v in value))


@functools.lru_cache(maxsize=4096)
def _read(code: types.CodeType) -> tuple[Hashable, frozenset[str]]:
    """A piece of code by its content, wherever it stands, and all names that it looks up; nested functions included."""
    content: list[Hashable] = [code.co_code, code.co_exceptiontable, code.co_argcount, code.co_posonlyargcount]
    content += [code.co_kwonlyargcount, code.co_flags, code.co_varnames, code.co_freevars, code.co_cellvars]
    names = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, more = _read(constant)
            content.append(inner)
            names |= more
        else:
            content.append(tuple(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant))
    return (*content, code.co_names), frozenset(names)


@functools.lru_cache(maxsize=4096)
def _mine(module: object) -> bool:
    """Whether a module is the user's own: neither of Python nor installed."""
    root = str(module).partition(".")[0]
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    if file is None or root in PACKAGES:
        return root not in PACKAGES and root not in sys.stdlib_module_names
    return not (file.startswith(LIBRARY) or "site-packages" in file or "dist-packages" in file)


def _array(value: np.ndarray) -> Hashable:
    return str(value.dtype), value.shape, hashlib.blake2b(value.tobytes(), digest_size=32).digest()


class _Walk:
    """One look at a value and all below it; objects met twice are noted by their number."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, Any]] = {}
        self.met: list[Any] = []
        """What may change without being another object, and what jax may have kept."""

    def look(self, value: Any, names: frozenset[str] = frozenset()) -> Hashable:
        """The key of any value; of the user's modules, only the attributes of these names count."""
        if type(value) in PLAIN:
            return type(value), repr(value)
        if not issubclass(type(value), types.ModuleType):
            if id(value) in self.seen:
                return "again", self.seen[id(value)][0]
            self.seen[id(value)] = len(self.seen), value
        try:
            return self.inside(value, type(value), names)
        except Exception:  # whatever the user's object does when it is looked at, or it has no end
            return Same(value)

    def each(self, values: Iterable[Any]) -> tuple[Hashable, ...]:
        return tuple([self.look(value) for value in values])

    def inside(self, value: Any, kind: type, names: frozenset[str]) -> Hashable:
        if kind is types.FunctionType:
            return self.function(value)
        if kind in (tuple, list):
            return kind, self.each(value)
        if kind in (dict, types.MappingProxyType):
            return kind, self.each(value.items())
        if kind in (set, frozenset):
            return kind, self.each(sorted(value, key=repr))
        if isinstance(value, jax.core.Tracer | enum.Enum):
            return Same(value)
        if isinstance(value, types.ModuleType):
            named = sorted(names & vars(value).keys()) if _mine(value.__name__) else ()
            return Same(value), self.each((name, vars(value)[name]) for name in named)
        if isinstance(value, type):
            parts = [item for cls in value.__mro__ if _mine(cls.__module__) for item in vars(cls).items()]
            read = ((n, part) for n, part in parts if not n.startswith("__") or isinstance(part, types.FunctionType))
            return Same(value), self.each(read)
        if isinstance(value, jax.Array):
            plain = jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
            return kind, str(value.dtype), value.weak_type, _array(np.asarray(plain))
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            self.met += [value] * (isinstance(value, np.ndarray) and value.flags.writeable)
            return kind, _array(np.asarray(value))
        if isinstance(value, property | staticmethod | classmethod):
            return kind, self.look(value.fget if isinstance(value, property) else value.__func__)
        if "__wrapped__" in getattr(value, "__dict__", ()):  # jax.jit, functools.lru_cache and the like
            return kind, self.each(vars(value).items())
        if kind.__module__.partition(".")[0] in ("jax", "jaxlib"):
            return Same(value)
        made_of = value.__reduce_ex__(4)  # as for a pickle: a name; or a class, its arguments, attributes, items
        if isinstance(made_of, str):
            return kind, made_of
        return kind, self.each(made_of[:3]), self.each(entry for items in made_of[3:5] for entry in items or ())

    def function(self, fn: types.FunctionType) -> Hashable:
        """Code, defaults, and what the code names; a wrapper's own globals are those of its package, and constant."""
        if not _mine(fn.__module__):
            return Same(fn)
        self.met.append(fn)
        content, names = _read(fn.__code__)
        found: dict[str, Any] = {}
        if _mine(fn.__globals__.get("__name__")):
            found = {name: space[name] for space in (sys.modules, fn.__globals__) for name in names if name in space}
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            found[name] = cell.cell_contents if cell != types.CellType() else None
        own = self.each((fn.__defaults__, fn.__kwdefaults__, fn.__dict__))
        return content, own, tuple([(name, self.look(found[name], names)) for name in sorted(found)])
