"""Where the work of one solution is done: how much memory there is, what is kept of it, what is shared."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import _machine as machine
from .._tree import shapes_of, values_of
from .._types import Tree
from ..dmft import march, planning
from ..dmft.noise import ROLES, ROUNDS, rows_within
from ..dmft.system import Start, System
from ..dmft.work import Work
from ..errors import reject
from ..results.checkpoint import Checkpoint

T = TypeVar("T")

SHARED_PART = 16
"""Values that are shared may hold this part of the memory."""


class Room(NamedTuple):
    """Bytes that marches may take: `max_bytes`, or less where the machine has less."""

    begun: float
    """When the solution was begun. They decide how many samples and replicas go together, which its numbers depend on:
    one that is carried on elsewhere keeps them."""
    now: float
    """Here."""

    @classmethod
    def of(cls, max_bytes: float, kept: Checkpoint) -> "Room":
        """Return the bytes that are here, and those that were there when the work of a checkpoint was begun."""
        now = min(max_bytes, machine.memory())
        return cls(kept.begun_with("max_bytes", now), now)


class _Made:
    """A value that one thread makes while the others wait for it."""

    def __init__(self) -> None:
        self.lock, self.made, self.size = threading.Lock(), False, 0
        self.value: Any = None


class Shared:
    """Values by key, each made once, for all who ask; the oldest go where they hold too much memory."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, _Made] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of this key, which is `make()` where there is none yet."""
        with self._lock:
            entry = self._values.setdefault(key, _Made())
            self._values.move_to_end(key)
        with entry.lock:
            if not entry.made:
                entry.value, entry.made = make(), True
                entry.size = sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(entry.value))
        with self._lock:
            room = machine.memory() / SHARED_PART
            while len(self._values) > 1 and sum(entry.size for entry in self._values.values()) > room:
                self._values.popitem(last=False)
        return entry.value


@dataclass(frozen=True)
class Place:
    """Of one solution: its room, what is finished of it, and draws that others may use too."""

    room: Room
    kept: Checkpoint = field(default_factory=lambda: Checkpoint(None, {}))
    shared: Shared = field(default_factory=Shared)

    def cut(self, work: Work) -> list[Work]:
        """Return the work in equal slices of replicas, as many in each as go together best and fit, one at least."""
        system, replicas = work.system, len(work.replicas)
        size = planning.tile(system, replicas)
        while size > 1 and (replicas % size or bytes_of(system, size) > self.room.begun):
            size -= 1
        return work.cut(size)

    def start(self, piece: Work) -> Start:
        """Return what the replicas of a slice draw, on the device; the same for all grids."""
        system, problem = piece.system, piece.system.problem
        laws = (problem.noise_law, problem.init, problem.star) if piece.draws_weights else problem.noise_law
        sizes = (problem.width, problem.k, system.samples, system.dtype, piece.replicas, piece.draws_weights)
        relation = problem.data.relation
        of_rows = problem.rows, problem.read, None if relation is None else relation.root
        key = "start", sizes, of_rows, piece.seed, piece.turn, values_of((laws, system.groups))
        return self.shared(key, lambda: stacked(piece.draws()))

    def check(self, piece: Work) -> None:
        """Refuse so many replicas at a time where they do not fit."""
        total = bytes_of(piece.system, len(piece.replicas))
        if not (why := machine.lack(total, self.room.now)):
            return
        begun = self.room.begun
        if total <= begun:
            why += f": the work in the checkpoint was begun with {begun:.4g} bytes, and smaller pieces would change it"
            raise reject("max_bytes", f"{self.room.now:.4g}", f"{why}; go on with as many, or name a new checkpoint")
        why += "; take fewer samples, or, where the whole past is kept, fewer steps"
        raise reject("samples", piece.system.samples, why)

    def fitting(self, system: System, wanted: int) -> int:
        """Return the samples of one march that are wanted, halved until they fit, but no fewer than the system has."""
        while wanted > system.samples and bytes_of(replace(system, samples=wanted), 1) > self.room.begun:
            wanted //= 2
        return wanted

    def workers(self, pieces: list[Work]) -> int:
        """Return how many slices are marched at once: as many as there are cores, and memory for."""
        most = machine.cores()
        largest = max((bytes_of(piece.system, len(piece.replicas)) for piece in pieces), default=0.0)
        while most > 1 and machine.lack(most * largest, self.room.now):
            most -= 1
        return most


def stacked(draws: list[Start]) -> Start:
    """Return replicas side by side, on the device; spread over all devices where there are several."""
    numbers: Tree = (np.stack(parts) for parts in zip(*draws, strict=True))
    start = Start(*numbers)
    start = start._replace(key=jax.random.wrap_key_data(start.key))
    devices = jax.devices()
    if len(devices) == 1 or len(draws) % len(devices):
        return jax.device_put(start)
    mesh = jax.sharding.Mesh(np.asarray(devices), ("replica",))
    return jax.device_put(start, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("replica")))


_STATES: dict[Hashable, float] = {}
"""Bytes of the state of one replica, by the shapes of its system."""


def bytes_of(system: System, replicas: int) -> float:
    """Return the bytes that a march holds at most: its state, the next one, and products on the way."""
    shape = shapes_of(system)
    if shape not in _STATES:
        _STATES[shape] = _state_bytes(system)
    return 3.0 * replicas * _STATES[shape]


def _state_bytes(system: System) -> float:
    (g, m, k, M), problem = system.shape, system.problem
    size = m + k + system.groups.unseen.shape[1] + 2
    r_star = (*problem.sample_shape(problem.read), system.samples)
    drawn = (size, M), (system.samples,), r_star, (g, m + k, M), (ROLES, g + ROUNDS, M), (rows_within(system.groups), M)
    numbers: Tree = (jax.ShapeDtypeStruct(shape, system.dtype) for shape in drawn)
    shapes = jax.eval_shape(partial(march.init, system), Start(*numbers, key=jax.random.key(0)))
    on_the_way = (g - 1) * (m + ROLES) * M * jnp.dtype(system.dtype).itemsize  # vectors and signs of each group
    return float(sum(part.size * part.dtype.itemsize for part in jax.tree.leaves(shapes))) + on_the_way
