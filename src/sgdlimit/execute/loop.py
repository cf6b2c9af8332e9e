"""One grid on the host: chunk by chunk, so that progress, Ctrl-C and divergence are seen in time.

One march, or several problems of equal shape side by side in one program. One that diverges among them goes on, without
a number, and is cut off.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import numpy as np

from .._types import Array, Host
from ..dmft import march
from ..dmft.march import State
from ..dmft.planning import Level
from ..dmft.system import Start, System
from ..dmft.work import Records, Values, in_turn, sound
from ..results.checkpoint import Checkpoint

OnDevice = dict[str, Array]
"""Records of a chunk of steps by name, which the device may still be at."""


class Stopped(BaseException):
    """The work is given up before its end: somebody pressed Ctrl-C, or another part of it failed."""


class March(NamedTuple):
    """One slice of replicas on one grid, with what it draws."""

    system: System
    start: Start
    level: Level


class Program(Protocol):
    """A march, or several, as compiled calls."""

    def begin(self) -> State:
        """Return the state before step 0."""
        ...

    def advance(self, state: State, at: Host, count: int) -> tuple[State, OnDevice]:
        """Return the state after `count` of the steps `at`, and what was recorded."""
        ...

    def read(self, records: OnDevice, count: int) -> list[Values]:
        """Return the records of the first `count` steps of each march, on the host."""
        ...


class One:
    """One march as a program of its own."""

    def __init__(self, own: March) -> None:
        self.own = own

    def begin(self) -> State:
        """Return the state of all replicas before step 0."""
        return march.begin(self.own.system, self.own.start)

    def advance(self, state: State, at: Host, count: int) -> tuple[State, OnDevice]:
        """Return the state after `count` of the steps `at`, and what was recorded."""
        chunk = jax.tree.map(lambda part: part[at], self.own.level.steps)
        return march.advance(self.own.system, self.own.start, state, chunk, count)

    def read(self, records: OnDevice, count: int) -> list[Values]:
        """Return the records of the first `count` steps, on the host."""
        return [{name: np.asarray(part)[:, :count] for name, part in records.items()}]

    def look(self, state: State, i: int) -> Values:
        """Return draws of the effective processes before step i."""
        here = jax.tree.map(lambda part: part[i], self.own.level.steps)
        return {
            name: np.asarray(part) for name, part in march.look(self.own.system, self.own.start, state, here).items()
        }


class Middle(NamedTuple):
    """Where the state of a march that is not finished is kept, and under which name."""

    kept: Checkpoint
    name: str


def along(
    program: Program,
    total: int,
    *,
    marches: int = 1,
    keep: tuple[int, ...] = (),
    told: Callable[[int], None],
    stop: threading.Event,
    middle: Middle | None = None,
) -> list[Records]:
    """Return the records of every march over all steps, or up to where all of them have diverged.

    `told` hears how many steps are done. A chunk's records are read while the next one runs: nothing waits for the
    host.
    """
    size = march.CHUNK
    stops = sorted({*range(size, total, size), *(i for i in keep if i > 0), total})
    state = program.begin()
    parts: list[list[Values]] = [[] for _ in range(marches)]
    ends = [(0, "")] * marches
    draws: dict[int, Values] = {}
    waiting: tuple[int, OnDevice] | None = None
    first = 0
    if middle is not None and (found := middle.kept.get(middle.name)) is not None:
        first, state, old = _resumed(found, state)
        parts, ends, draws = [[old.values]], [(old.reached, "")], old.draws
        stops = [last for last in stops if last > first]

    def read(pending: tuple[int, OnDevice]) -> bool:
        """Whether some march goes on."""
        count, device = pending
        for i, values in enumerate(program.read(device, count)[:marches]):
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
            assert isinstance(program, One)
            draws[first] = program.look(state, first)
        at = np.minimum(np.arange(first, first + size), total - 1)
        state, records = program.advance(state, at, last - first)
        if waiting is not None and not read(waiting):
            waiting = None
            break
        waiting, first = (last - first, records), last
        if middle is not None and middle.kept.due and last < total:
            goes_on, waiting = read(waiting), None
            if not goes_on:
                break
            so_far = Records(in_turn(parts[0]), draws, ends[0][0], "").packed()
            leaves = {f"state {i}": _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
            middle.kept.put(middle.name, so_far | leaves | {"first": np.asarray(first)})
    if waiting is not None:
        read(waiting)
    if middle is not None:
        middle.kept.drop(middle.name)
    return [
        Records(in_turn(own), {i: d for i, d in draws.items() if i < reached}, reached, reason)
        for own, (reached, reason) in zip(parts, ends, strict=True)
    ]


def _resumed(found: Values, fresh: State) -> tuple[int, State, Records]:
    """The step, the state and the records of a march that was begun; `fresh`: a state of the same form."""
    leaves, structure = jax.tree.flatten(fresh)
    state = jax.tree.unflatten(structure, [_like(found.pop(f"state {i}"), leaf) for i, leaf in enumerate(leaves)])
    return int(found.pop("first")), state, Records.unpacked(found)


def _is_key(leaf: Array) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Array) -> Host:
    """Of a state, which the next chunk takes over: a copy; keys by their words."""
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(array: Host, leaf: Array) -> Array:
    """Back on the device, as `leaf` is."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(array))
    return jax.device_put(array.copy(), leaf.sharding)  # the next chunk takes it over, the checkpoint keeps its own
