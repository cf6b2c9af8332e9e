"""What a function reads: functions of one fingerprint compute the same, and a change of what is read changes it.

jax compiles a user's function together with what it reads from outside: globals, closures, defaults, attributes. These
are looked at whenever a function is handed to jax, through the user's own helpers, modules, classes and objects.
Installed packages are taken for constant, and what cannot be looked into counts by identity. What a function only
writes to (a counter, a list it appends to) is not read.
"""

import copyreg
import dis
import enum
import functools
import hashlib
import os
import sys
import sysconfig
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
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
PLAIN = (int, bool, float, complex, str, bytes, type(None), type(...))
OPAQUE = (jax.core.Tracer, enum.Enum)
CONTAINERS = (list, dict, set, deque, defaultdict, OrderedDict)
EMPTY, NOTHING = types.CellType(), (lambda: None).__code__
OPEN = ("types.SimpleNamespace", "argparse.Namespace")
"""Objects of the standard library that hold the user's values."""
ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM", "STORE_ATTR"))
READING = ATTRIBUTES | {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "IMPORT_NAME"}
READING |= {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
"""Instructions of Python that look up a name outside."""
RECORDERS = frozenset(("append", "extend", "add", "update", "insert", "clear"))
"""Methods of containers that tell the caller nothing."""


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


def fingerprint(value: object) -> Hashable:
    """A key of a function and of all that it reads now.

    jax itself keeps what it found in the bodies of loops and in jitted helpers, and copies of NumPy arrays: where one
    of these was seen before with another content, jax forgets everything.
    """
    walk = _Walk()
    key = walk.look(value)
    token = hash((key, *(id(array) for array, _ in walk.arrays), *map(id, walk.functions)))
    if token not in _SETTLED:
        met = walk.arrays + [(fn, _Walk().look(fn)) for fn in walk.functions]
        if any([_changed(thing, content) for thing, content in met]):  # all are noted
            jax.clear_caches()
        _SETTLED.add(token)
    return key


def digest(value: object) -> str:
    """A fingerprint in letters, the same in another process."""
    return hashlib.sha256(repr(fingerprint(value)).encode()).hexdigest()


def holds_function(value: object) -> bool:
    """Whether `value` is a function or a tuple with one inside."""
    return callable(value) or (type(value) is tuple and any(holds_function(v) for v in value))


_LAST: dict[int, int] = {}
"""What was last seen in an array or a function, by id."""
_SETTLED: set[int] = set()
"""Looks that showed what `_LAST` holds: the next ones that show the same need not compare."""


def _changed(value: object, content: Hashable) -> bool:
    """Whether an object was seen before with another content."""
    place, now = id(value), hash(content)
    if place not in _LAST:
        weakref.finalize(value, _forget, place)
    before = _LAST.get(place, now)
    if _LAST.get(place) != now:
        _LAST[place] = now
        _SETTLED.clear()
    return before != now


def _forget(place: int) -> None:
    """An object is gone, and another may come to lie in its place."""
    _LAST.pop(place, None)
    _SETTLED.clear()


class _Code(NamedTuple):
    """A piece of code by its content, and the names that it looks up; nested functions included."""

    content: Hashable
    names: frozenset[str]
    """Globals, variables of the functions around it, imports; attributes begin with a dot."""
    records: frozenset[str]
    """Of these, those that are only added to, where they are containers."""
    state: frozenset[str]
    """Names that it sets."""


@functools.lru_cache(maxsize=4096)
def _read(code: types.CodeType) -> _Code:
    """What a piece of code reads and writes, found in its instructions, once for each code."""
    steps = list(dis.get_instructions(code))
    names, read, state = set(), set(), set()
    for here, after, later in zip(steps, [*steps[1:], None], [*steps[2:], None, None], strict=False):
        kind = here.opname
        name = f".{here.argval}" if kind in ATTRIBUTES else here.argval
        if kind in ("STORE_ATTR", "STORE_GLOBAL") or (kind == "STORE_DEREF" and name in code.co_freevars):
            state.add(name)
        elif kind in READING:
            names.add(name)
            if not _recorded(after, later):
                read.add(name)
    constants: list[Hashable] = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _read(constant)
            constants.append(inner.content)
            names |= inner.names
            read |= inner.names - inner.records
            state |= inner.state
        else:
            constants.append(tuple(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant))
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    tables = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    content = code.co_code, code.co_exceptiontable, arguments, tables, tuple(constants)
    return _Code(content, frozenset(names), frozenset(names - read), frozenset(state))


def _recorded(after: dis.Instruction | None, later: dis.Instruction | None) -> bool:
    """Whether a value just loaded is only written into: x.append(…), x[k] = …, x[k] += …."""
    if after is None:
        return False
    if after.opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return after.argval in RECORDERS
    if later is None or not after.opname.startswith("LOAD_"):
        return False
    return later.opname == "STORE_SUBSCR" or (later.opname == "COPY" and later.arg == 2)


@functools.lru_cache(maxsize=4096)
def _constant(module: object, file: str | None = None) -> bool:
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


def _closed(kind: type) -> bool:
    """Whether objects of a class are not looked into: those of jax and of the standard library."""
    root = kind.__module__.partition(".")[0]
    library = root in sys.stdlib_module_names and f"{kind.__module__}.{kind.__qualname__}" not in OPEN
    return library or root in ("jax", "jaxlib")


def _array(value: np.ndarray) -> Hashable:
    content = value.tobytes()
    if len(content) > WHOLE:
        content = hashlib.blake2b(content, digest_size=32).digest()
    return np.ndarray, str(value.dtype), value.shape, content


_FIXED: dict[int, Hashable] = {}
"""Keys of jax arrays, which do not change, by id."""


def _jax_array(value: jax.Array) -> Hashable:
    if id(value) not in _FIXED:
        typed_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        content = _array(np.asarray(jax.random.key_data(value) if typed_key else value))
        _FIXED[id(value)] = jax.Array, str(value.dtype), value.weak_type, content
        weakref.finalize(value, _FIXED.pop, id(value), None)
    return _FIXED[id(value)]


PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    functools.partial: lambda value: (value.func, value.args, value.keywords),
    staticmethod: lambda value: (value.__func__,),
    classmethod: lambda value: (value.__func__,),
    property: lambda value: (value.fget,),
    functools.cached_property: lambda value: (value.func,),
    tuple: tuple,
    list: tuple,
    deque: tuple,
    set: lambda value: sorted(value, key=repr),
    frozenset: lambda value: sorted(value, key=repr),
    dict: dict.items,
    types.MappingProxyType: types.MappingProxyType.items,
}
"""What objects of Python's own classes, and of classes made from them, consist of."""


class _Walk:
    """One look at a value and all below it; objects met twice are noted by their number."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, Any]] = {}
        self.arrays: list[tuple[Any, Hashable]] = []
        self.functions: list[types.FunctionType] = []
        self.depth = 0
        self.names: frozenset[str] = frozenset()
        """What the function that is looked at names: of modules, only such attributes are looked at."""

    def look(self, value: Any) -> Hashable:
        """The key of any value."""
        if type(value) in PLAIN:
            return type(value), repr(value)
        if self.depth > DEPTH:
            return Same(value)
        if not issubclass(type(value), types.ModuleType):
            if id(value) in self.seen:
                return "again", self.seen[id(value)][0]
            self.seen[id(value)] = len(self.seen), value
        self.depth += 1
        try:
            return self.inside(value, type(value))
        except Exception:  # whatever the user's object does when it is looked at
            return Same(value)
        finally:
            self.depth -= 1

    def each(self, values: Iterable[Any]) -> tuple[Hashable, ...]:
        return tuple([self.look(value) for value in values])

    def inside(self, value: Any, kind: type) -> Hashable:
        if kind is types.FunctionType:
            return self.function(value)
        if isinstance(value, OPAQUE):
            return Same(value)
        if isinstance(value, types.ModuleType):
            mine = not _constant(value.__name__, vars(value).get("__file__"))
            named = sorted(name for name in vars(value) if mine and f".{name}" in self.names)
            return Same(value), self.each((name, vars(value)[name]) for name in named)
        if isinstance(value, type):
            return self.cls(value)
        if isinstance(value, jax.Array):
            return _jax_array(value)
        if isinstance(value, np.generic):
            return np.generic, _array(np.asarray(value))
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                return self.look(value.tolist())
            self.arrays += [(value, _array(value))] * value.flags.writeable
            return _array(value)
        if made_of := next((PARTS[cls] for cls in kind.__mro__ if cls in PARTS), None):
            return kind, self.each(made_of(value)), self.each(getattr(value, "__dict__", {}).items())
        if isinstance(value, types.MethodType):
            return kind, self.look(value.__func__), self.owner(value.__self__, value.__func__)
        if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
            bound = value.__self__ is not None and not isinstance(value.__self__, types.ModuleType)
            return (kind, value.__name__, self.look(value.__self__)) if bound else Same(value)
        if "__wrapped__" in getattr(value, "__dict__", ()):  # jax.jit, jax.custom_jvp, functools.lru_cache
            mine = not _constant(getattr(value, "__module__", None))
            return Same(value), self.each(part for part in vars(value).values() if mine and callable(part))
        return self.owner(value, getattr(kind, "__call__", None))  # noqa: B004

    def function(self, fn: types.FunctionType) -> Hashable:
        """Code, defaults, and what the code names; a wrapper's own globals are those of its package, and constant."""
        if _constant(fn.__module__):
            return Same(fn)
        self.functions.append(fn)
        code, space = _read(fn.__code__), fn.__globals__
        found: dict[str, Any] = {}
        if not _constant(space.get("__name__"), space.get("__file__")):
            found = {name: sys.modules[name] for name in code.names if name in sys.modules}
            found |= {name: space[name] for name in code.names if name in space}
        around = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        found |= {name: cell.cell_contents for name, cell in around if name in code.names and cell != EMPTY}
        before, self.names = self.names, code.names
        try:
            own = self.each((fn.__defaults__, fn.__kwdefaults__, fn.__dict__))
            return code.content, own, self.read(found, code)
        finally:
            self.names = before

    def read(self, values: dict[str, Any], code: _Code) -> tuple[Hashable, ...]:
        """Values by name; not what the code sets, nor containers that it only adds to."""
        written = [name for name in values if name in code.records and type(values[name]) in CONTAINERS]
        read = sorted(values.keys() - code.state - set(written))
        return tuple([(name, self.look(values[name])) for name in read])

    def cls(self, value: type) -> Hashable:
        """A class of the user's, with its bases: constants and methods."""
        mine = [c for c in value.__mro__ if c is not object and not _constant(c.__module__)]
        parts = [item for c in mine for item in vars(c).items()]
        return Same(value), self.each(
            (name, part) for name, part in parts if not name.startswith("__") or isinstance(part, types.FunctionType)
        )

    def owner(self, value: Any, method: Any) -> Hashable:
        """An object whose `method` is called: its class and its attributes, less those that the method records."""
        kind = type(value)
        if isinstance(value, type):
            return self.look(value)
        if _closed(kind):
            return Same(value)
        slots = [slot for slot in copyreg._slotnames(kind) if hasattr(value, slot)]  # type: ignore[attr-defined]
        names = [*slots, *getattr(value, "__dict__", ())]
        content = {f".{name}": object.__getattribute__(value, name) for name in names}
        code = _read(getattr(method, "__code__", NOTHING))
        made_of = self.look(kind), self.read(content, code)
        # attributes tell everything, unless a part of the class is written in C (no Py_TPFLAGS_HEAPTYPE)
        whole = (slots or hasattr(value, "__dict__")) and all(c is object or c.__flags__ & 1 << 9 for c in kind.__mro__)
        return made_of if whole else (Same(value), *made_of)
