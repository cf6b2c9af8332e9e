"""What a function reads. Functions of one fingerprint compute the same; one whose surroundings change, changes it.

jax compiles a user's function together with what it reads from outside: globals, closures, defaults, attributes. These
are looked at whenever a function is handed to jax, through the user's own helpers, modules, classes and objects.
Installed packages are taken for constant, and what cannot be looked into counts by identity. What a function only
records (a counter, a list it appends to) is not read.
"""

import dis
import enum
import functools
import hashlib
import os
import struct
import sys
import sysconfig
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, final

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

DEPTH = 24
"""Levels of functions in objects in functions… that are followed; below, identity counts."""
WHOLE = 1024
"""Bytes of an array that are kept as they are; of more, a digest."""
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "sgdlimit")
"""Constant wherever they lie; so are the standard library and all that is installed."""
LIBRARY = sysconfig.get_path("stdlib") + os.sep
OPEN = ("types.SimpleNamespace", "argparse.Namespace")
"""Objects of the standard library that hold the user's values."""
PLAIN = (int, bool, str, bytes, type(None), complex, type(...))
OPAQUE = (jax.core.Tracer, enum.Enum)
BUILTIN = (types.BuiltinMethodType, types.MethodWrapperType)
CONTAINERS = (list, dict, set, deque, defaultdict)
RECORDERS = frozenset(("append", "extend", "add", "update", "insert", "clear"))
"""Methods of containers that tell the caller nothing."""
STAGED = frozenset(("scan", "cond", "switch", "while_loop", "fori_loop", "map", "associative_scan", "reduce"))
STAGED |= {"jit", "checkpoint", "remat", "custom_root", "custom_linear_solve", "odeint"}
"""Names under which jax keeps what it finds in a function."""
LOAD_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
LOAD_CELL = frozenset(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"))
LOAD_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"))


@final
class Same:
    """An object that counts by identity; it is held, so that its id is not given away."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@final
class Snapshot:
    """A function, or a tuple that holds some, as it is now: equal to another that would compute the same."""

    __slots__ = ("_hash", "key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key = fingerprint(value)
        self._hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        return type(other) is Snapshot and self._hash == other._hash and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return repr(self.value)


def fingerprint(value: Any) -> Hashable:
    """A key of a function and of all that it reads now."""
    walk = _Walk()
    key = walk.look(value, 0, ())
    if walk.outdated():
        jax.clear_caches()
    return key


def digest(value: Any) -> str:
    """A fingerprint in letters, the same in another process."""
    return hashlib.sha256("\n".join(_words(fingerprint(value))).encode()).hexdigest()


def _words(key: Any) -> Iterable[str]:
    """What a fingerprint holds, without addresses: code by its instructions, what counts by identity by its name."""
    if isinstance(key, tuple | frozenset):
        parts = [list(_words(part)) for part in key]
        for part in sorted(parts) if isinstance(key, frozenset) else parts:
            yield "("
            yield from part
            yield ")"
    elif isinstance(key, types.CodeType):
        yield f"code {key.co_code.hex()} {key.co_names} {key.co_varnames} {key.co_freevars}"
        for constant in key.co_consts:
            yield from _words(constant)
    elif isinstance(key, Same):
        named = key.value if hasattr(key.value, "__name__") else type(key.value)
        yield f"same {getattr(named, '__module__', '')} {getattr(named, '__qualname__', named.__name__)}"
    elif isinstance(key, type):
        yield _full_name(key)
    else:
        yield repr(key)


def holds_function(value: Any) -> bool:
    """Whether `value` is a function or a tuple with one inside."""
    return callable(value) or (type(value) is tuple and any(holds_function(v) for v in value))


class Reads(NamedTuple):
    """What a piece of code looks up outside, nested functions included."""

    names: tuple[str, ...]
    """Globals."""
    cells: frozenset[str]
    """Variables of the functions around it."""
    attributes: tuple[str, ...]
    imports: tuple[str, ...]
    records: frozenset[str]
    """Globals, cells and attributes that it only adds to, where they are containers."""
    assigned: frozenset[str]
    """Attributes that it sets: its own state."""
    staged: bool
    """Whether it names one of jax's loops or branches."""


@functools.lru_cache(maxsize=4096)
def reads(code: types.CodeType) -> Reads:
    """Found in the bytecode, once for each code."""
    steps = list(dis.get_instructions(code))
    names, cells, attributes, imports, read, stored = set(), set(), set(), set(), set(), set()
    assigned: set[str] = set()
    for here, after, later in zip(steps, [*steps[1:], None], [*steps[2:], None, None], strict=False):
        kind, name = here.opname, here.argval
        if kind == "STORE_GLOBAL" or (kind == "STORE_DEREF" and name in code.co_freevars):
            stored.add(name)
        elif kind == "STORE_ATTR":
            assigned.add(name)
        elif kind == "IMPORT_NAME":
            imports.add(name)
        elif kind in LOAD_GLOBAL or kind in LOAD_CELL or kind in LOAD_ATTRIBUTE:
            found = names if kind in LOAD_GLOBAL else cells if kind in LOAD_CELL else attributes
            found.add(name)
            if not _recorded(after, later):
                read.add(name)
    every = names | cells | attributes
    cells &= set(code.co_freevars)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            below = reads(inner)
            own = below.cells & set(code.co_freevars)
            seen = {*below.names, *own, *below.attributes}
            every |= seen
            read |= seen - below.records
            names |= set(below.names)
            cells |= own
            attributes |= set(below.attributes)
            imports |= set(below.imports)
            assigned |= below.assigned
    return Reads(
        tuple(sorted(names - stored)),
        frozenset(cells - stored),
        tuple(sorted(attributes)),
        tuple(sorted(imports)),
        frozenset(every - read),
        frozenset(assigned),
        not STAGED.isdisjoint(names | attributes),
    )


def _recorded(after: Any, later: Any) -> bool:
    """Whether a value just loaded is only written into: x.append(…), x[k] = …, x[k] += …."""
    if after is None:
        return False
    if after.opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return after.argval in RECORDERS
    if later is None or not after.opname.startswith("LOAD_"):
        return False
    return later.opname == "STORE_SUBSCR" or (later.opname == "COPY" and later.arg == 2)


@functools.lru_cache(maxsize=4096)
def _constant(module: Any, file: Any = None) -> bool:
    """Whether a module belongs to a package that does not change."""
    if not isinstance(module, str) or module in ("__main__", "__mp_main__"):
        return False
    root = module.partition(".")[0]
    if root in PACKAGES:
        return True
    file = file or getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return root in sys.stdlib_module_names
    return file.startswith(LIBRARY) or "site-packages" in file or "dist-packages" in file


@functools.lru_cache(maxsize=4096)
def _closed(kind: type) -> bool:
    """Whether objects of a class are not looked into: those of jax and of the standard library."""
    root = kind.__module__.partition(".")[0]
    if root in ("jax", "jaxlib"):
        return True
    return root in sys.stdlib_module_names and _constant(kind.__module__) and _full_name(kind) not in OPEN


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _pure(kind: type) -> bool:
    """Whether objects of a class are made of their attributes alone: no part of it is written in C."""
    return all(cls is object or cls.__flags__ & 1 << 9 for cls in kind.__mro__)  # Py_TPFLAGS_HEAPTYPE


_DIGESTS: dict[int, tuple[Any, Hashable]] = {}
"""Of jax arrays, which do not change, by id; with a weak reference that clears the entry."""


def _jax_array(value: jax.Array) -> Hashable:
    known = _DIGESTS.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    typed_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    raw = np.asarray(jax.random.key_data(value) if typed_key else value)
    digest = (jax.Array, str(value.dtype), value.weak_type, _numpy_array(raw))
    place = id(value)
    _DIGESTS[place] = (weakref.ref(value, lambda _: _DIGESTS.pop(place, None)), digest)
    return digest


def _numpy_array(value: np.ndarray) -> Hashable:
    content = value.tobytes()
    if len(content) > WHOLE:
        content = hashlib.blake2b(content, digest_size=32).digest()
    return np.ndarray, value.dtype, value.shape, content


_LAST: dict[int, tuple[Any, int]] = {}
"""What was last seen in an array or a function, by id; with a weak reference that clears the entry."""


def _changed(value: Any, content: Hashable) -> bool:
    """Whether an object was seen before with another content."""
    place, now = id(value), hash(content)
    known = _LAST.get(place)
    met = known is not None and known[0]() is value
    if known is None or not met or known[1] != now:
        _LAST[place] = (weakref.ref(value, lambda _: _LAST.pop(place, None)), now)
    return met and known is not None and known[1] != now


class _Walk:
    """One look at a function; objects met twice are noted by their number."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []
        self.arrays: list[tuple[np.ndarray, Hashable]] = []
        self.staged = False

    def outdated(self) -> bool:
        """Whether jax itself may hold what is no longer so.

        It keeps a converted copy of a NumPy array of 64 bits for as long as a program lives, and what it found in the
        bodies of loops and in jitted helpers for as long as these functions live.
        """
        changes = [_changed(array, content) for array, content in self.arrays]
        if self.staged:
            functions = [fn for fn in self.kept if type(fn) is types.FunctionType and not _constant(fn.__module__)]
            changes += [_changed(fn, _Walk().look(fn, 0, ())) for fn in functions]
        return any(changes)

    def look(self, value: Any, depth: int, attributes: tuple[str, ...]) -> Hashable:
        """The key of any value; of a module, only `attributes` are looked at."""
        kind = type(value)
        if kind in PLAIN:
            return (kind, repr(value)) if kind is complex else (kind, value)
        if kind is float:
            return kind, struct.pack("d", value)
        if depth > DEPTH:
            return Same(value)
        if issubclass(kind, types.ModuleType):
            return self.module(value, depth, attributes)
        known = self.seen.get(id(value))
        if known is not None:
            return "again", known
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        try:
            return self.inside(value, kind, depth + 1, attributes)
        except Exception:  # whatever the user's object does when it is looked at
            return Same(value)

    def inside(self, value: Any, kind: type, depth: int, attributes: tuple[str, ...]) -> Hashable:
        if kind is types.FunctionType:
            return self.function(value, depth)
        if isinstance(value, OPAQUE):
            return Same(value)
        if isinstance(value, jax.Array):
            return _jax_array(value)
        if isinstance(value, np.generic):
            return np.generic, value.dtype, value.tobytes()
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                return Same(value), self.look(value.tolist(), depth, attributes)
            content = _numpy_array(value)
            if value.dtype.itemsize >= 8 and value.flags.writeable:
                self.arrays.append((value, content))
            return content
        if isinstance(value, tuple | list | deque):
            return kind, *self.each(value, depth, attributes), *self.state(value, depth, attributes)
        if isinstance(value, dict | types.MappingProxyType):
            items = [(self.look(k, depth, attributes), self.look(v, depth, attributes)) for k, v in value.items()]
            return kind, *items, *self.state(value, depth, attributes)
        if isinstance(value, set | frozenset):
            return kind, frozenset(self.each(value, depth, attributes))
        if isinstance(value, type):
            return self.cls(value, depth)
        if isinstance(value, functools.partial):
            return kind, *self.each((value.func, value.args, value.keywords), depth, attributes)
        if isinstance(value, types.MethodType):
            return kind, self.look(value.__func__, depth, ()), self.owner(value.__self__, value.__func__, depth)
        if isinstance(value, BUILTIN):
            owner = value.__self__
            if owner is None or isinstance(owner, types.ModuleType):
                return Same(value)
            return kind, value.__name__, self.look(owner, depth, ())
        if isinstance(value, staticmethod | classmethod):
            return kind, self.look(value.__func__, depth, ())
        if isinstance(value, property):
            return kind, self.look(value.fget, depth, ())
        if isinstance(value, functools.cached_property):
            return kind, self.look(value.func, depth, ())
        if "__wrapped__" in getattr(
            value, "__dict__", ()
        ):  # jax.jit, jax.custom_jvp, functools.lru_cache of a function
            if _constant(getattr(value, "__module__", None)):
                return Same(value)
            self.staged = True
            return Same(value), *(self.look(v, depth, ()) for v in vars(value).values() if callable(v))
        return self.owner(value, getattr(kind, "__call__", None), depth)  # noqa: B004

    def each(self, values: Iterable[Any], depth: int, attributes: tuple[str, ...]) -> list[Hashable]:
        return [self.look(v, depth, attributes) for v in values]

    def state(self, value: Any, depth: int, attributes: tuple[str, ...]) -> list[Hashable]:
        """Attributes of an object that is a container too."""
        return self.each(getattr(value, "__dict__", {}).values(), depth, attributes)

    def module(self, value: types.ModuleType, depth: int, attributes: tuple[str, ...]) -> Hashable:
        space = vars(value)
        if _constant(value.__name__, space.get("__file__")):
            return Same(value)
        return Same(value), *((n, self.look(space[n], depth + 1, attributes)) for n in attributes if n in space)

    def function(self, fn: types.FunctionType, depth: int) -> Hashable:
        """Code, defaults, and what the code names; a wrapper's own globals are those of its package, and constant."""
        if _constant(fn.__module__):
            return Same(fn)
        code, space = fn.__code__, fn.__globals__
        found = reads(code)
        here = found.attributes
        self.staged |= found.staged
        parts: list[Hashable] = [code]
        if fn.__defaults__ is not None or fn.__kwdefaults__ is not None:
            parts += self.each((fn.__defaults__, fn.__kwdefaults__), depth, here)
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
            if name in found.cells:
                try:
                    parts.append(self.named(name, cell.cell_contents, found, depth))
                except ValueError:
                    parts.append((name, "empty"))
        if not _constant(space.get("__name__"), space.get("__file__")):
            parts += [self.named(name, space[name], found, depth) for name in found.names if name in space]
            parts += [self.look(sys.modules.get(name), depth, here) for name in found.imports]
        if fn.__dict__:
            parts += [(name, self.look(v, depth, here)) for name, v in fn.__dict__.items()]
        return tuple(parts)

    def named(self, name: str, value: Any, found: Reads, depth: int) -> Hashable:
        if name in found.records and type(value) in CONTAINERS:
            return name
        return name, self.look(value, depth, found.attributes)

    def cls(self, value: type, depth: int) -> Hashable:
        """A class of the user's, with its bases: constants and methods."""
        parts: list[Hashable] = [Same(value)]
        for cls in value.__mro__:
            if cls is not object and not _constant(cls.__module__):
                for name, part in tuple(vars(cls).items()):
                    if not _special(name) or isinstance(part, types.FunctionType):
                        parts.append((name, self.look(part, depth, ())))
        return tuple(parts)

    def owner(self, value: Any, method: Any, depth: int) -> Hashable:
        """An object whose `method` is called: its class and its attributes, less those that the method records."""
        kind = type(value)
        if isinstance(value, type):
            return self.look(value, depth, ())
        if _closed(kind):
            return Same(value)
        code = getattr(method, "__code__", None)
        found = None if code is None else reads(code)
        content = dict(getattr(value, "__dict__", {}))
        slots = [slot for cls in kind.__mro__ for slot in _slots(cls)]
        content |= {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
        parts: list[Hashable] = [self.look(kind, depth, ())]
        for name, part in content.items():
            if found is not None and name in found.assigned:
                continue
            parts.append((name, self.look(part, depth, ())) if found is None else self.named(name, part, found, depth))
        transparent = _pure(kind) and (slots or hasattr(value, "__dict__"))
        return tuple(parts) if transparent else (Same(value), *parts)


def _special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return tuple(s for s in ((slots,) if isinstance(slots, str) else slots) if s not in ("__dict__", "__weakref__"))
