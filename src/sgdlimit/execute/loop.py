"""One grid on the host: chunk by chunk, so that progress, Ctrl-C and divergence are seen in time.

One march, or several problems of equal shape side by side in one program. One that diverges among them goes on, without
a number, and is cut off.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _machine as machine
from .._types import Array, Host, Scalar, Tree
from ..dmft import march
from ..dmft.march import State
from ..dmft.planning import Level
from ..dmft.system import Start, System
from ..dmft.work import Records, Values, in_turn, sound
from ..results.checkpoint import Checkpoint
from .place import bytes_of

OnDevice = dict[str, Array]
"""Records of a chunk of steps by name, which the device may still be at."""


class Stopped(BaseException):
    """The work is given up before its end: somebody pressed Ctrl-C, or another part of it failed."""


class March(NamedTuple):
    """One slice of replicas on one grid, with what it draws: a program of its own."""

    system: System
    start: Start
    level: Level

    def begin(self) -> State:
        """Return the state of all replicas before step 0."""
        return march.begin(self.system, self.start)

    def advance(self, state: State, at: Host, count: int) -> tuple[State, OnDevice]:
        """Return the state after `count` of the steps `at`, and what was recorded."""
        chunk = jax.tree.map(lambda part: part[at], self.level.steps)
        return march.advance(self.system, self.start, state, chunk, count)

    def read(self, records: OnDevice, count: int) -> list[Values]:
        """Return the records of the first `count` steps, on the host."""
        return [{name: np.asarray(part)[:, :count] for name, part in records.items()}]

    def look(self, state: State, i: int) -> Values:
        """Return draws of the effective processes before step i."""
        here = jax.tree.map(lambda part: part[i], self.level.steps)
        return jax.tree.map(np.asarray, march.look(self.system, self.start, state, here))


# --- problems of equal shape side by side in one program, for devices that a single one leaves idle ---


STACK = jax.jit(jnp.stack)
Leaves = tuple[Array | Host, ...]
"""Of trees that lie side by side."""


class Layout(NamedTuple):
    """How trees of equal shapes lie side by side."""

    structure: Tree
    axes: tuple[int | None, ...]
    """Of every leaf: 0 where trees differ, None where all have the same."""
    scalars: tuple[type | None, ...]
    """Of every leaf that is a plain number, its type: it takes the precision of what it meets."""

    def tree(self, leaves: Leaves) -> Tree:
        """Return one of the trees from its own leaves, inside vmap."""
        plain = [
            leaf if kind is None else jnp.asarray(kind(0)).at[()].set(leaf)  # weakly typed, as a plain number is
            for leaf, kind in zip(leaves, self.scalars, strict=True)
        ]
        return jax.tree.unflatten(self.structure, plain)


def stack(trees: Sequence[Tree]) -> tuple[Layout, Leaves]:
    """Return trees side by side: how they lie, and their leaves.

    Leaves that are the same array in all are kept once; plain numbers never, so that the program does not depend on
    which of them differ.
    """
    axes, kinds, leaves = [], [], []
    for row in zip(*(jax.tree.leaves(tree) for tree in trees), strict=True):
        kind = type(row[0]) if type(row[0]) in (bool, int, float) else None
        once = kind is None and all(_same(leaf, row[0]) for leaf in row)
        axes.append(None if once else 0)
        kinds.append(kind)
        leaves.append(
            row[0] if once else (STACK if any(isinstance(leaf, jax.Array) for leaf in row) else np.stack)(row)
        )
    return Layout(jax.tree.structure(trees[0]), tuple(axes), tuple(kinds)), tuple(leaves)


def _same(leaf: object, other: object) -> bool:
    return leaf is other or (
        isinstance(leaf, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(leaf, other)
    )


@partial(jax.jit, static_argnames="layout")
def _begin(layout: Layout, points: Leaves) -> State:
    return jax.vmap(lambda *own: march.begin(*layout.tree(own)), in_axes=layout.axes)(*points)


@partial(jax.jit, static_argnames=("layout", "grid"), donate_argnames="state", compiler_options=march.OPTIONS)
def _advance(
    layout: Layout, points: Leaves, state: State, grid: Layout, chunk: Leaves, count: Scalar
) -> tuple[State, OnDevice]:
    """`march.advance` of every point, as a part of this program; all take the same number of steps."""
    plainly = march.advance.__wrapped__  # pyright: ignore[reportAttributeAccessIssue]

    def one(own: Leaves, state: State, steps: Leaves) -> tuple[State, OnDevice]:
        return plainly(*layout.tree(own), state, grid.tree(steps), count)

    return jax.vmap(one, in_axes=(layout.axes, 0, grid.axes))(points, state, chunk)


class Several:
    """Marches of equal shape as one program, the last repeated up to a number of points."""

    def __init__(self, marches: list[March], points: int) -> None:
        if why := machine.lack(points * _bytes(marches[0])):
            raise MemoryError(why)
        self.count = len(marches)
        marches = [*marches, *[marches[-1]] * (points - len(marches))]
        self.layout, leaves = stack([(own.system, own.start) for own in marches])
        self.leaves = jax.device_put(leaves)
        self.grid, self.steps = stack([own.level.steps for own in marches])

    def begin(self) -> State:
        """Return the states of all points before step 0."""
        return _begin(self.layout, self.leaves)

    def advance(self, state: State, at: Host, count: int) -> tuple[State, OnDevice]:
        """Return the states after `count` of the steps `at`, and what was recorded."""
        chunk = tuple(
            leaf[at] if axis is None else leaf[:, at] for leaf, axis in zip(self.steps, self.grid.axes, strict=True)
        )
        return _advance(self.layout, self.leaves, state, self.grid, chunk, count)

    def read(self, records: OnDevice, count: int) -> list[Values]:
        """Return the records of the first `count` steps of each march, on the host."""
        values = {name: np.asarray(part) for name, part in records.items()}
        return [{name: part[i][:, :count] for name, part in values.items()} for i in range(self.count)]


def _bytes(own: March) -> float:
    """What one of them holds: its state, and two chunks of records."""
    replicas = len(own.start.z)
    records = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in march.recorded(own.system).values())
    return bytes_of(own.system, replicas) + 2 * replicas * march.CHUNK * records


# --- either of them, chunk by chunk ---


def along(
    program: March | Several,
    total: int,
    *,
    keep: tuple[int, ...] = (),
    told: Callable[[int], None],
    stop: threading.Event,
    kept: Checkpoint | None = None,
    name: str = "",
) -> list[Records]:
    """Return the records of every march over all steps, or up to where all of them have diverged.

    `told` hears how many steps are done; a single march that is not finished is `kept` under a name. A chunk's records
    are read while the next one runs: nothing waits for the host.
    """
    size, kept = march.CHUNK, kept or Checkpoint(None, {})
    stops = sorted({*range(size, total, size), *(i for i in keep if i > 0), total})
    state = program.begin()
    several = program.count if isinstance(program, Several) else 1
    parts: list[list[Values]] = [[] for _ in range(several)]
    ends = [(0, "")] * several
    draws: dict[int, Values] = {}
    waiting: tuple[int, OnDevice] | None = None
    first = 0
    if (found := kept.get(name)) is not None:
        leaves, structure = jax.tree.flatten(state)
        state = jax.tree.unflatten(structure, [_like(found.pop(f"state {i}"), leaf) for i, leaf in enumerate(leaves)])
        first, old = int(found.pop("first")), Records.unpacked(found)
        parts, ends, draws = [[old.values]], [(old.reached, "")], old.draws
        stops = [last for last in stops if last > first]

    def read(pending: tuple[int, OnDevice]) -> bool:
        """Whether some march goes on."""
        count, device = pending
        for i, values in enumerate(program.read(device, count)):
            reached, reason = ends[i]
            if not reason:
                good, reason = sound(values, count)
                parts[i].append({name: part[:, :good] for name, part in values.items()})
                ends[i] = reached + good, reason
        told(count)
        return not all(reason for _, reason in ends)

    for last in stops:
        if stop.is_set():
            raise Stopped
        if first in keep:
            assert isinstance(program, March)
            draws[first] = program.look(state, first)
        at = np.minimum(np.arange(first, first + size), total - 1)
        state, records = program.advance(state, at, last - first)
        if waiting is not None and not read(waiting):
            waiting = None
            break
        waiting, first = (last - first, records), last
        if kept.due and last < total:
            goes_on, waiting = read(waiting), None
            if not goes_on:
                break
            so_far = Records(in_turn(parts[0]), draws, ends[0][0], "").packed()
            leaves = {f"state {i}": _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
            kept.put(name, so_far | leaves | {"first": np.asarray(first)})
    if waiting is not None:
        read(waiting)
    kept.drop(name)
    return [
        Records(in_turn(own), {i: d for i, d in draws.items() if i < reached}, reached, reason)
        for own, (reached, reason) in zip(parts, ends, strict=True)
    ]


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Array) -> Host:
    """Of a state, which the next chunk takes over: a copy; keys by their words."""
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(array: Host, leaf: Array) -> Array:
    """Back on the device, as `leaf` is."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array))
    return jax.device_put(array.copy(), leaf.sharding)  # the next chunk takes it over, the checkpoint keeps its own
