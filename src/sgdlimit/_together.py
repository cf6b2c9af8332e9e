"""Threads that compute alike: what is equal is made once, and work of equal shape is done in one program.

A `Meeting` is held in every thread of a batch. `meet(work, key, item)` hands in an item and waits; when all threads
wait, one of them calls `work` with all items of one key. `shared(key, make)` makes a value for all. Outside a meeting
both are plain calls, and there `side_by_side` is many calls at once.
"""

import contextlib
import threading
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from . import _machine as machine
from ._fingerprint import Same

SHARED_PART = 16
"""Values that threads share may hold this part of the memory."""

_thread = threading.local()


class Dismissed(BaseException):
    """The meeting is over before its end: somebody pressed Ctrl-C."""


class _Item:
    """What one thread waits for."""

    def __init__(self, work: Callable[[list[Any]], list[Any]], key: Hashable, item: Any) -> None:
        self.work, self.item = work, item
        config: Any = jax.config
        self.settings = config.jax_enable_x64, config.jax_default_matmul_precision  # of this thread
        self.key = work, key, self.settings
        self.done, self.value = False, None
        self.error: BaseException | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class _Shared:
    """A value that one thread makes while the others wait for it."""

    def __init__(self) -> None:
        self.lock, self.made, self.value, self.size = threading.Lock(), False, None, 0


@final
class Meeting:
    """Where threads wait for one another.

    joint: whether work is put together; if not, values are shared and everything else is done by each thread itself.
    sizes: of batches, rising; the last is the largest. Each is a program to be compiled.
    """

    def __init__(self, joint: bool, sizes: Sequence[int] = (1,)) -> None:
        self.joint, self.sizes = joint, tuple(sizes)
        self._change = threading.Condition()
        self._present, self._waiting, self._over = 0, list[_Item](), False
        self._values: OrderedDict[Hashable, _Shared] = OrderedDict()

    def expect(self, count: int) -> None:
        """So many threads will come: none begins the work before all are there."""
        with self._change:
            self._present += count

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """In a thread that was expected: it is there, until it leaves."""
        _thread.meeting = self
        try:
            yield
        finally:
            _thread.meeting = None
            with self._change:
                self._present -= 1
                self._change.notify_all()  # the others may have waited for this thread alone

    def dismiss(self) -> None:
        """Whoever waits, or comes to wait, is sent away."""
        with self._change:
            self._over = True
            self._change.notify_all()

    def check(self) -> None:
        """Leave if the meeting is over."""
        if self._over:
            raise Dismissed

    def wait(self, item: _Item) -> Any:
        """Until the item is done, by the thread that finds all others waiting."""
        with self._change:
            self._waiting.append(item)
            self._change.wait_for(lambda: item.done or self._over or self._all_wait)
            if not item.done:
                self.check()
            items, self._waiting = ([], self._waiting) if item.done else (self._waiting, [])
        if items:
            self._work(items)
        return item.result()

    @property
    def _all_wait(self) -> bool:
        return 0 < self._present <= len(self._waiting)

    def _work(self, items: list[_Item]) -> None:
        """What all wait for, shape by shape; the most last, so that meanwhile the others go on."""
        groups: dict[Hashable, list[_Item]] = defaultdict(list)
        for item in items:
            groups[item.key].append(item)
        try:
            for group in sorted(groups.values(), key=len):
                x64, precision = group[0].settings
                with jax.enable_x64(x64), jax.default_matmul_precision(precision):
                    self._perform(group, len(self.sizes) - 1)
        except BaseException as error:
            self._settle(items, [None] * len(items), error)
            raise

    def _perform(self, group: list[_Item], rank: int) -> None:
        """In batches; one that fails goes again in smaller ones, so that only those fail who do so alone."""
        size = self.sizes[rank]
        for first in range(0, len(group), size):
            part = group[first : first + size]
            self.check()
            try:
                values = part[0].work([item.item for item in part])
            except Exception as error:
                if len(part) > 1:
                    if not isinstance(error, MemoryError | jax.errors.JaxRuntimeError):
                        words = f"{len(part)} solutions cannot be computed in one program, fewer are tried: {error!r}"
                        warnings.warn(words, RuntimeWarning, stacklevel=2)
                    fewer = max(r for r in range(rank) if self.sizes[r] < len(part))
                    self._perform(part, fewer)
                else:
                    self._settle(part, [None], error)
            else:
                self._settle(part, values)

    def _settle(self, group: list[_Item], values: Sequence[Any], error: BaseException | None = None) -> None:
        with self._change:
            for item, value in zip(group, values, strict=True):
                if not item.done:
                    item.value, item.error, item.done = value, error, True
            self._change.notify_all()

    def share(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """A value for all, kept while it is not pushed out by newer ones."""
        with self._change:
            entry = self._values.setdefault(key, _Shared())
            self._values.move_to_end(key)
        with entry.lock:
            if not entry.made:
                entry.value, entry.made = make(), True
                entry.size = sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(entry.value))
        with self._change:
            room = machine.memory() / SHARED_PART
            while len(self._values) > 1 and sum(entry.size for entry in self._values.values()) > room:
                self._values.popitem(last=False)
        return entry.value


def held() -> Meeting | None:
    """The meeting of this thread."""
    return getattr(_thread, "meeting", None)


def check() -> None:
    """Leave a meeting that is over; between pieces of long work."""
    if (meeting := held()) is not None:
        meeting.check()


def meet(work: Callable[[list[Any]], list[Any]], key: Callable[[], Hashable], item: Any) -> Any:
    """work([item])[0]; in a meeting together with all items of equal key that wait at the same time."""
    check()
    meeting = held()
    if meeting is None or not meeting.joint:
        return work([item])[0]
    return meeting.wait(_Item(work, key(), item))


def shared(key: Callable[[], Hashable], make: Callable[[], Any]) -> Any:
    """make(); in a meeting once for every key."""
    meeting = held()
    return make() if meeting is None else meeting.share(key(), make)


def side_by_side(tasks: Sequence[Callable[[], Any]], most: int) -> list[Any]:
    """What all of them return, so many at once in threads; in turn inside a meeting, whose threads are busy already.

    One that fails, or Ctrl-C, ends the others where they `check`. Compiled programs on a CPU use several cores badly.
    """
    if min(len(tasks), most) < 2 or held() is not None:
        return [task() for task in tasks]
    config: Any = jax.config
    meeting, x64, precision = Meeting(joint=False), config.jax_enable_x64, config.jax_default_matmul_precision
    meeting.expect(len(tasks))

    def one(task: Callable[[], Any]) -> Any:
        with meeting.attended(), jax.enable_x64(x64), jax.default_matmul_precision(precision):
            meeting.check()
            return task()

    with ThreadPoolExecutor(most, "sgdlimit") as pool:
        futures = [pool.submit(one, task) for task in tasks]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in futures if future in done and future.exception() is not None]
            return [future.result() for future in failed or futures]
        except BaseException:
            meeting.dismiss()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def values_of(tree: Any) -> Hashable:
    """Everything in a tree of numbers and arrays on the host, as a key."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return structure, tuple((array.shape, array.dtype.str, array.tobytes()) for array in arrays)


def shapes_of(tree: Any) -> Hashable:
    """Structure, shapes and types of a tree, as a key: what of equal shapes can be done in one program."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)


def identity_of(tree: Any) -> Hashable:
    """The very arrays of a tree, as a key."""
    return tuple(Same(leaf) for leaf in jax.tree.leaves(tree))


class Layout(NamedTuple):
    """How trees of equal shapes lie side by side."""

    structure: Any
    axes: tuple[int | None, ...]
    """Of every leaf: 0 where trees differ, None where all have the same."""
    scalars: tuple[type | None, ...]
    """Of every leaf that is a plain number, its type: it takes the precision of what it meets."""

    def tree(self, leaves: Any) -> Any:
        """One of them, inside vmap."""
        plain = [
            leaf if kind is None else jnp.asarray(kind(0)).at[()].set(leaf)  # weakly typed, as a plain number is
            for leaf, kind in zip(leaves, self.scalars, strict=True)
        ]
        return jax.tree.unflatten(self.structure, plain)


class Stack(NamedTuple):
    """Trees of equal shapes side by side."""

    layout: Layout
    leaves: tuple[Any, ...]
    size: int


def stack(trees: Sequence[Any], same: bool = True) -> Stack:
    """Side by side; leaves that are the same array in all are kept once (if so wished), plain numbers never, so that
    the program does not depend on which of them differ. Repeated at the end up to one of the meeting's sizes."""
    meeting = held()
    sizes = (len(trees),) if meeting is None else meeting.sizes
    trees = [*trees, *[trees[-1]] * (min(size for size in sizes if size >= len(trees)) - len(trees))]
    rows = list(zip(*(jax.tree.leaves(tree) for tree in trees), strict=True))
    axes, kinds, leaves = [], [], []
    for row in rows:
        kind = type(row[0]) if type(row[0]) in (bool, int, float) else None
        once = same and kind is None and all(_same(leaf, row[0]) for leaf in row)
        axes.append(None if once else 0)
        kinds.append(kind)
        leaves.append(row[0] if once else _side_by_side(row))
    return Stack(Layout(jax.tree.structure(trees[0]), tuple(axes), tuple(kinds)), tuple(leaves), len(trees))


def _same(leaf: Any, other: Any) -> bool:
    return leaf is other or (
        isinstance(leaf, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(leaf, other)
    )


def _side_by_side(row: Sequence[Any]) -> Any:
    on_device = any(isinstance(leaf, jax.Array) for leaf in row)
    return _joined(row) if on_device else np.stack(row)


def unjitted(fn: Any) -> Any:
    """The function that `jax.jit` was given: to be a part of another program."""
    return fn.__wrapped__


@jax.jit
def _joined(row: Sequence[Any]) -> Any:
    return jnp.stack(row)


@partial(jax.jit, static_argnames=("fn", "layout"))
def _mapped(fn: Any, layout: Layout, leaves: Any) -> Any:
    return jax.vmap(lambda *own: fn(*layout.tree(own)), in_axes=layout.axes)(*leaves)


def mapped(fn: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> list[Any]:
    """fn of every tuple of arguments, in one program; results on the host."""
    layout, leaves, _ = stack(items)
    out = jax.tree.map(np.asarray, _mapped(fn, layout, leaves))
    return [jax.tree.map(lambda part, i=i: part[i], out) for i in range(len(items))]
