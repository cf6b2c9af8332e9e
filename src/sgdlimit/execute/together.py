"""Problems of equal shape side by side in one compiled program, for devices that a single one leaves idle."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _machine as machine
from ..dmft import march
from ..dmft.work import Values
from .loop import March
from .place import bytes_of


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


def stack(trees: Sequence[Any]) -> tuple[Layout, tuple[Any, ...]]:
    """Side by side. Leaves that are the same array in all are kept once; plain numbers never, so that the program does
    not depend on which of them differ."""
    axes, kinds, leaves = [], [], []
    for row in zip(*(jax.tree.leaves(tree) for tree in trees), strict=True):
        kind = type(row[0]) if type(row[0]) in (bool, int, float) else None
        once = kind is None and all(_same(leaf, row[0]) for leaf in row)
        axes.append(None if once else 0)
        kinds.append(kind)
        leaves.append(row[0] if once else _side_by_side(row))
    return Layout(jax.tree.structure(trees[0]), tuple(axes), tuple(kinds)), tuple(leaves)


def _same(leaf: Any, other: Any) -> bool:
    return leaf is other or (
        isinstance(leaf, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(leaf, other)
    )


def _side_by_side(row: Sequence[Any]) -> Any:
    return _joined(row) if any(isinstance(leaf, jax.Array) for leaf in row) else np.stack(row)


@jax.jit
def _joined(row: Sequence[Any]) -> Any:
    return jnp.stack(row)


def _plainly(compiled: Callable[..., Any]) -> Any:
    """The function that `jax.jit` was given: to be a part of another program."""
    return compiled.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]


@partial(jax.jit, static_argnames="layout")
def _begin(layout: Layout, points: Any) -> Any:
    return jax.vmap(lambda *own: _plainly(march.begin)(*layout.tree(own)), in_axes=layout.axes)(*points)


@partial(jax.jit, static_argnames=("layout", "grid"), donate_argnames="state", compiler_options=march.OPTIONS)
def _advance(layout: Layout, points: Any, state: Any, grid: Layout, chunk: Any, count: Any) -> Any:
    """`march.advance` of every point; all take the same number of steps."""

    def one(own: Any, state: Any, steps: Any) -> Any:
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

    def begin(self) -> Any:
        """The states before step 0."""
        return _begin(self.layout, self.leaves)

    def advance(self, state: Any, at: np.ndarray, count: int) -> tuple[Any, Any]:
        """The states after `count` of the steps `at`, and what was recorded."""
        chunk = tuple(
            leaf[at] if axis is None else leaf[:, at] for leaf, axis in zip(self.steps, self.grid.axes, strict=True)
        )
        return _advance(self.layout, self.leaves, state, self.grid, chunk, count)

    def read(self, records: Any, count: int) -> list[Values]:
        """Records of the first `count` steps of each march, on the host."""
        values = {name: np.asarray(part) for name, part in records.items()}
        points = len(next(iter(values.values())))
        return [{name: part[i][:, :count] for name, part in values.items()} for i in range(points)]


def _bytes(own: March) -> float:
    """What one of them holds: its state, and two chunks of records."""
    replicas = len(own.start.z)
    records = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in march.recorded(own.system).values())
    return bytes_of(own.system, replicas) + 2 * replicas * march.CHUNK * records
