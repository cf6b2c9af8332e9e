"""One grid for many problems of equal shape at once: the march of `run`, side by side in one program.

Where threads meet (`_together`), `along` waits for the others. Problems, algorithms and draws lie along a leading axis;
what all share, as the draws of one seed, is held once. One that diverges goes on, without a number, and is cut off.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _machine as machine
from .._together import Layout, check, held, meet, shapes_of, stack, unjitted
from ..progress import Progress
from ..results.checkpoint import Checkpoint
from . import march, run
from .checks import bytes_of
from .planning import Level
from .run import Records
from .system import Start, System


class March(NamedTuple):
    """What one thread asks for."""

    system: System
    start: Start
    level: Level
    bar: Progress


def along(
    system: System, start: Start, level: Level, keep: np.ndarray, bar: Progress, kept: Checkpoint, name: str
) -> Records:
    """`run.along`, together with other threads; alone where draws or kernels are kept, or a file keeps the state."""
    alone = len(keep) > 0 or system.kernels or kept.kept or kept.get(name) is not None
    if alone or held() is None:
        return run.along(system, start, level, keep, bar, kept, name)
    asked = March(system, start, level, bar)
    found = meet(_marched, lambda: (len(level.times), shapes_of((system, start, level.steps))), asked)
    kept.put(name, run.packed(found))
    return found


@partial(jax.jit, static_argnames="layout")
def _begin(layout: Layout, points: Any) -> Any:
    return jax.vmap(lambda *own: unjitted(march.begin)(*layout.tree(own)), in_axes=layout.axes)(*points)


@partial(jax.jit, static_argnames=("layout", "grid"), donate_argnames="state", compiler_options=march.OPTIONS)
def _advance(layout: Layout, points: Any, state: Any, grid: Layout, chunk: Any, count: Any) -> Any:
    """`march.advance` of every point; all take the same number of steps."""

    def one(own: Any, state: Any, steps: Any) -> Any:
        return unjitted(march.advance)(*layout.tree(own), state, grid.tree(steps), count)

    return jax.vmap(one, in_axes=(layout.axes, 0, grid.axes))(points, state, chunk)


def _bytes(own: March) -> float:
    """What one of them holds: its state, and two chunks of records."""
    replicas = len(own.start.z)
    records = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in march.recorded(own.system).values())
    return bytes_of(own.system, replicas) + 2 * replicas * march.CHUNK * records


def _marched(asked: list[March]) -> list[Records]:
    if len(asked) > 1:
        return _side_by_side(asked)
    own, nothing = asked[0], Checkpoint(None, {})
    return [run.along(own.system, own.start, own.level, np.zeros(0, dtype=int), own.bar, nothing, "")]


def _side_by_side(asked: list[March]) -> list[Records]:
    """Chunk by chunk, as `run.along` does: a chunk is read while the next one runs."""
    first = asked[0]
    points, grids = stack([(own.system, own.start) for own in asked]), stack([own.level.steps for own in asked])
    if why := machine.lack(points.size * _bytes(first)):
        raise MemoryError(why)  # fewer at a time
    total, size = len(first.level.times), march.CHUNK
    layout, leaves = points.layout, jax.device_put(points.leaves)
    state = _begin(layout, leaves)
    parts: list[list[dict[str, np.ndarray]]] = [[] for _ in asked]
    ends = [(0, "")] * len(asked)
    waiting: tuple[int, Any] | None = None

    def read(steps: int, device: dict[str, Any]) -> None:
        values = {name: np.asarray(part) for name, part in device.items()}
        for i, own in enumerate(asked):
            reached, reason = ends[i]
            if not reason:
                here = {name: part[i][:, :steps] for name, part in values.items()}
                sound, reason = run.sound(here, steps)
                parts[i].append({name: part[:, :sound] for name, part in here.items()})
                ends[i] = reached + sound, reason
            own.bar.advance(steps * len(own.start.z))

    for begin in range(0, total, size):
        check()
        index = np.minimum(np.arange(begin, begin + size), total - 1)
        chunk = tuple(
            leaf[index] if axis is None else leaf[:, index]
            for leaf, axis in zip(grids.leaves, grids.layout.axes, strict=True)
        )
        steps = min(size, total - begin)
        state, records = _advance(layout, leaves, state, grids.layout, chunk, steps)
        if waiting is not None:
            read(*waiting)
            if all(reason for _, reason in ends):
                waiting = None
                break
        waiting = steps, records
    if waiting is not None:
        read(*waiting)
    return [Records(run.in_turn(own), {}, *end) for own, end in zip(parts, ends, strict=True)]
