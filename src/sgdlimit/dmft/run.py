"""Run one grid on the host: chunk by chunk, so that progress, Ctrl-C and divergence are seen in time."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._together import check
from ..exact.stability import BOUND
from ..progress import Progress
from ..results.checkpoint import Checkpoint
from . import march
from .planning import Level
from .system import Start, System

CHECKED = ("train_loss", "train_error", "norm", "overlap", "intercept", "Gamma")
"""What must stay finite; a user's own metric may be what it likes."""


@dataclass(frozen=True)
class Records:
    """One value a replica and step, (replicas, steps reached, …)."""

    values: dict[str, np.ndarray]
    draws: dict[int, dict[str, np.ndarray]]
    """By step: draws of the effective processes."""
    reached: int
    """Steps whose numbers are sound."""
    reason: str
    """What is wrong with the next, if anything."""


def sound(values: dict[str, np.ndarray], count: int) -> tuple[int, str]:
    """How many of the steps are sound, and what is wrong with the next."""
    first, reason = count, ""
    for name in CHECKED:
        if name not in values:
            continue
        here = values[name][:, :count].astype(np.float64)
        here = here.reshape(len(here), here.shape[1], -1)
        bad = ~np.all(np.isfinite(here), axis=(0, 2))
        large = np.any(np.abs(here) > BOUND, axis=(0, 2)) if name == "norm" else np.zeros_like(bad)
        lost = np.flatnonzero(np.logical_or(bad, large))
        if len(lost) and (at := int(lost[0])) < first:
            first, reason = at, f"{name} is not finite" if bad[at] else f"θᵀθ/d beyond {BOUND:g}"
    return first, reason


def along(
    system: System, start: Start, level: Level, keep: np.ndarray, bar: Progress, kept: Checkpoint, name: str
) -> Records:
    """All replicas of `start` over all steps of a grid, or up to where one of them diverges.

    A chunk's records are read while the next one runs: nothing waits for the host. What a checkpoint has of this march
    is not done again.
    """
    if (done := kept.get(name)) is not None:
        bar.advance(len(level.times) * len(start.z))
        return _unpacked(done)
    found = _along(system, start, level, keep, bar, kept, f"{name} begun")
    if kept.kept or not system.kernels:  # what is kept in memory serves the next stage
        kept.put(name, packed(found))
    return found


def _along(
    system: System, start: Start, level: Level, keep: np.ndarray, bar: Progress, kept: Checkpoint, begun: str
) -> Records:
    total = len(level.times)
    size = march.CHUNK
    stops = sorted({*range(size, total, size), *(int(i) for i in keep if i > 0), total})
    state = march.begin(system, start)
    parts: list[dict[str, np.ndarray]] = []
    draws: dict[int, dict[str, np.ndarray]] = {}
    waiting: tuple[int, Any] | None = None
    first, reached, reason = 0, 0, ""
    if (middle := kept.get(begun)) is not None:
        first, reached = int(middle.pop("first")), int(middle.pop("reached"))
        leaves, structure = jax.tree.flatten(state)
        state = jax.tree.unflatten(structure, [_like(middle.pop(f"state {i}"), leaf) for i, leaf in enumerate(leaves)])
        old = _unpacked(middle)
        parts, draws = [old.values], old.draws
        stops = [stop for stop in stops if stop > first]

    def read(pending: tuple[int, Any]) -> None:
        nonlocal reached, reason
        count, device = pending
        values = {name: np.asarray(part)[:, :count] for name, part in device.items()}
        good, reason = sound(values, count)
        parts.append({name: part[:, :good] for name, part in values.items()})
        reached += good
        bar.phase("")
        bar.advance(count * len(start.z))

    for last in stops:
        check()
        if first in keep:
            draws[first] = _look(system, start, state, level, first)
        index = np.minimum(np.arange(first, first + size), total - 1)
        chunk = jax.tree.map(lambda part, at=index: part[at], level.steps)
        state, records = march.advance(system, start, state, chunk, last - first)
        if waiting is not None:
            read(waiting)
            if reason:
                waiting = None
                break
        waiting, first = (last - first, records), last
        if kept.due and last < total:
            read(waiting)
            waiting = None
            if reason:
                break
            so_far = packed(Records(in_turn(parts), draws, reached, ""))
            leaves = {f"state {i}": _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
            kept.put(begun, so_far | leaves | {"first": np.asarray(first), "reached": np.asarray(reached)})
    if waiting is not None:
        read(waiting)
    kept.drop(begun)
    return Records(in_turn(parts), {i: d for i, d in draws.items() if i < reached}, reached, reason)


def in_turn(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Records of one chunk after the other."""
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    """Of a state, which the next chunk takes over: a copy; keys by their words."""
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(array: np.ndarray, leaf: Any) -> Any:
    """Back on the device, as `leaf` is."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(array))
    return jax.device_put(array.copy(), leaf.sharding)  # the next chunk takes it over, the checkpoint keeps its own


def packed(records: Records) -> dict[str, np.ndarray]:
    """Records as arrays by name, for a file."""
    draws = {f"draw {i} {name}": part for i, own in records.draws.items() for name, part in own.items()}
    values = {f"value {name}": part for name, part in records.values.items()}
    return values | draws | {"end": np.asarray([str(records.reached), records.reason])}


def _unpacked(arrays: dict[str, np.ndarray]) -> Records:
    values = {name.removeprefix("value "): part for name, part in arrays.items() if name.startswith("value ")}
    draws: dict[int, dict[str, np.ndarray]] = {}
    for name, part in arrays.items():
        if name.startswith("draw "):
            _, i, own = name.split(" ", 2)
            draws.setdefault(int(i), {})[own] = part
    reached, reason = (str(word) for word in arrays["end"])
    return Records(values, draws, int(reached), reason)


def stack(draws: list[Start]) -> Start:
    """Replicas side by side, on the device; spread over all devices where there are several."""
    start = Start(*(np.stack(parts) for parts in zip(*draws, strict=True)))
    start = start._replace(key=jax.random.wrap_key_data(start.key))
    devices = jax.devices()
    if len(devices) == 1 or len(draws) % len(devices):
        return jax.device_put(start)
    mesh = jax.sharding.Mesh(np.asarray(devices), ("replica",))
    return jax.device_put(start, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("replica")))


def _look(system: System, start: Start, state: Any, level: Level, i: int) -> dict[str, np.ndarray]:
    here = jax.tree.map(lambda part: part[i], level.steps)
    return {name: np.asarray(part) for name, part in march.look(system, start, state, here).items()}


def joined(parts: list[Records]) -> Records:
    """Batches of replicas side by side, up to the first step that any of them lost."""
    worst = min(parts, key=lambda part: part.reached)
    reached = worst.reached
    values = {
        name: np.concatenate([part.values[name][:, :reached] for part in parts], axis=0) for name in parts[0].values
    }
    steps = [i for i in parts[0].draws if i < reached]
    draws = {
        i: {name: np.concatenate([part.draws[i][name] for part in parts]) for name in parts[0].draws[i]} for i in steps
    }
    return Records(values, draws, reached, worst.reason)


def mean(parts: list[Records]) -> Records:
    """Of several marches of each replica; draws are the first's."""
    first = parts[0]
    if len(parts) == 1:
        return first
    values = {
        name: np.asarray(np.mean([part.values[name] for part in parts], axis=0, dtype=np.float64))
        for name in first.values
    }
    return Records(values, first.draws, first.reached, first.reason)
