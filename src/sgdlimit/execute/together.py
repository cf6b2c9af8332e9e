"""Problems of equal shape side by side in one compiled program, for devices that a single one leaves idle."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import _machine as machine
from .._types import Array, Host, Scalar, Tree
from ..dmft import march
from ..dmft.march import State
from ..dmft.work import Values
from .loop import March, OnDevice
from .place import bytes_of

T = TypeVar("T")


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
        leaves.append(row[0] if once else _side_by_side(row))
    return Layout(jax.tree.structure(trees[0]), tuple(axes), tuple(kinds)), tuple(leaves)


def _same(leaf: object, other: object) -> bool:
    return leaf is other or (
        isinstance(leaf, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(leaf, other)
    )


def _side_by_side(row: Sequence[Tree]) -> Array | Host:
    return _joined(row) if any(isinstance(leaf, jax.Array) for leaf in row) else np.stack(row)


@jax.jit
def _joined(row: Sequence[Tree]) -> Array:
    return jnp.stack(row)


def _plainly(compiled: Callable[..., T]) -> Callable[..., T]:
    """The function that `jax.jit` was given: to be a part of another program."""
    return compiled.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]


@partial(jax.jit, static_argnames="layout")
def _begin(layout: Layout, points: Leaves) -> State:
    return jax.vmap(lambda *own: _plainly(march.begin)(*layout.tree(own)), in_axes=layout.axes)(*points)


@partial(jax.jit, static_argnames=("layout", "grid"), donate_argnames="state", compiler_options=march.OPTIONS)
def _advance(
    layout: Layout, points: Leaves, state: State, grid: Layout, chunk: Leaves, count: Scalar
) -> tuple[State, OnDevice]:
    """`march.advance` of every point; all take the same number of steps."""

    def one(own: Leaves, state: State, steps: Leaves) -> tuple[State, OnDevice]:
        return _plainly(march.advance)(*layout.tree(own), state, grid.tree(steps), count)

    return jax.vmap(one, in_axes=(layout.axes, 0, grid.axes))(points, state, chunk)


class Several:
    """Marches of equal shape as one program, the last repeated up to a number of points."""

    def __init__(self, marches: list[March], points: int) -> None:
        if why := machine.lack(points * _bytes(marches[0])):
            raise MemoryError(why)
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
        points = len(next(iter(values.values())))
        return [{name: part[i][:, :count] for name, part in values.items()} for i in range(points)]


def _bytes(own: March) -> float:
    """What one of them holds: its state, and two chunks of records."""
    replicas = len(own.start.z)
    records = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in march.recorded(own.system).values())
    return bytes_of(own.system, replicas) + 2 * replicas * march.CHUNK * records
