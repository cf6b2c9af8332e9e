"""Work → records: threads of this process, one program for many problems, or an executor of the user's.

A solution is a `Talk`: a generator that yields what is `Wanted` and is sent what was `Done`. `alone` carries one to its
end, `many` several, whose work is handed out as it comes, or put together by shape where a device has room for it.
Nothing of a talk waits for another.
"""

import math
import os
import pickle
import threading
import time as clock
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jax

from .. import _machine as machine
from .._tree import shapes_of
from ..dmft.planning import Level
from ..dmft.work import Records, Work, joined
from ..errors import reject, whole
from ..progress import Progress
from .loop import March, Several, Stopped, along
from .place import Place, Shared, stacked

T = TypeVar("T")

MOST = 128
"""Solutions at a time on a GPU: more do not fill it better."""
SMALLER = 8
"""Batches of fewer are filled up to the full size, or to so many times fewer: every size is a program to compile."""
PATIENCE = 0.2
"""Seconds after which Ctrl-C is looked for."""

_COMPILED: set[Hashable] = set()
"""Shapes of marches that this process has compiled, for the record of time spent on it."""


class Wanted(NamedTuple):
    """Work to be done at one place, in this order; nothing of it is begun after a deadline (`time.perf_counter`)."""

    works: list[Work]
    place: Place
    deadline: float = math.inf


class Done(NamedTuple):
    """What came out of each piece of work, None where it was too late to begin it; and seconds spent on compiling."""

    records: list[Records | None]
    compiling: float = 0.0


Talk = Generator[Wanted, Done, T]
"""A solution that says what it wants next, and returns in the end."""
Answers = Generator[tuple[int, Any], None, None]
"""The number of what was asked, and its result or what it raised."""
Came = Records | BaseException | None
"""What came of a slice: its records, what went wrong, or nothing where it was too late to begin."""


@contextmanager
def precise(double: bool = True) -> Iterator[None]:
    """Return a context in which arrays may be double precision, and products are not rounded to less than single.

    It is a setting of the thread. Some accelerators keep only 10 bits of a single-precision factor if they are let.
    """
    with jax.enable_x64(double), jax.default_matmul_precision("highest"):
        yield


def precisely(talk: Talk[T]) -> Talk[T]:
    """Return the talk under `precise`, in whichever thread it goes on; not where it waits."""
    step: Callable[[], Wanted] = partial(next, talk)
    while True:
        with precise():
            try:
                wanted = step()
            except StopIteration as end:
                return end.value
        try:
            step = partial(talk.send, (yield wanted))
        except BaseException as error:
            step = partial(talk.throw, error)


def alone(talk: Talk[T], progress: bool | None = None, executor: Executor | None = None) -> T:
    """Return what a talk does in the end; what goes wrong with its work, Ctrl-C too, is thrown where it waits."""
    with Progress("solve", 0, progress) as bar:
        return _carried(talk, lambda wanted: _done(wanted, bar, executor))


def _carried(talk: Talk[T], do: Callable[[Wanted], Done]) -> T:
    """What a talk returns whose work is done so."""
    step: Callable[[], Wanted] = partial(next, talk)
    while True:
        try:
            wanted = step()
        except StopIteration as end:
            return end.value
        try:
            step = partial(talk.send, do(wanted))
        except BaseException as error:
            step = partial(talk.throw, error)


def _silent(steps: int) -> None:
    """Where nobody shows how far the work is: many solutions have one bar, of their caller's."""


# --- one slice of replicas ---


@dataclass(frozen=True)
class _Slice:
    """A slice of a piece of work, at its place."""

    work: Work
    level: Level
    place: Place
    deadline: float

    @property
    def kept(self) -> bool:
        return self.place.kept.get(self.work.name) is not None

    @property
    def shape(self) -> Hashable:
        """A key that is equal for slices that one compiled program serves."""
        return jax.tree.structure(self.work.system), len(self.work.replicas)

    def march(self) -> March:
        """Return the march of the slice, with all that it draws."""
        return March(self.work.system, self.place.start(self.work), self.level)

    def found(self, records: Records) -> Records:
        """Return the records, once they are kept: on file, or in memory, where they serve the next stage."""
        if self.place.kept.kept or not self.work.system.kernels:
            self.place.kept.put(self.work.name, records.packed())
        return records

    def run(self, told: Callable[[int], None], stop: threading.Event) -> Records | None:
        """Return its records, from where they are kept, or by marching; None where it is too late to begin."""
        if (done := self.place.kept.get(self.work.name)) is not None:
            told(self.work.steps)
            return Records.unpacked(done)
        if stop.is_set():
            raise Stopped
        if clock.perf_counter() > self.deadline:
            return None
        with precise():
            self.place.check(self.work)
            (records,) = along(
                self.march(), len(self.level.times), keep=self.work.keep, stop=stop,
                told=lambda steps: told(steps * len(self.work.replicas)),
                kept=self.place.kept, name=f"{self.work.name} begun",
            )  # fmt: skip
        return self.found(records)


def _slices(wanted: Wanted) -> list[list[_Slice]]:
    """Of every piece of work, in the order in which they are begun."""
    with precise():
        levels = [work.level for work in wanted.works]
        return [
            [_Slice(piece, level, wanted.place, wanted.deadline) for piece in wanted.place.cut(work)]
            for work, level in zip(wanted.works, levels, strict=True)
        ]


def _gathered(slices: list[list[_Slice]], found: Sequence[Records | None], compiling: float = 0.0) -> Done:
    """Slices of each piece of work side by side."""
    rest, out = iter(found), list[Records | None]()
    for own in slices:
        parts = [next(rest) for _ in own]
        sound = [part for part in parts if part is not None]
        out.append(joined(sound) if len(sound) == len(parts) else None)
    return Done(out, compiling)


# --- one solution ---


def _done(wanted: Wanted, bar: Progress, executor: Executor | None) -> Done:
    slices = _slices(wanted)
    flat = [own for part in slices for own in part]
    bar.more(sum(work.steps for work in wanted.works))
    if executor is not None:
        return _gathered(slices, _elsewhere(flat, executor, bar.advance))
    bar.phase("compiling")
    compiling = _compiled(flat)
    bar.phase("")
    workers = wanted.place.workers([own.work for own in flat])
    return _gathered(slices, _side_by_side(flat, bar.advance, workers), compiling)


def _compiled(slices: list[_Slice]) -> float:
    """Seconds that compiling takes: one step of every new shape, so that it is timed apart."""
    begin = clock.perf_counter()
    for own in slices:
        if own.shape not in _COMPILED and not own.kept and begin <= own.deadline:
            with precise():
                own.place.check(own.work)
                along(own.march(), 1, told=_silent, stop=threading.Event())
            _COMPILED.add(own.shape)
    return clock.perf_counter() - begin


def _ended(tasks: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Tasks as they end; a signal is seen between two looks, whichever thread it reaches."""
    waiting = set(tasks)
    while waiting:
        done, waiting = wait(waiting, timeout=PATIENCE, return_when=FIRST_COMPLETED)
        yield from done


def _side_by_side(slices: list[_Slice], told: Callable[[int], None], most: int) -> list[Records | None]:
    """So many at once, in threads: compiled programs on a CPU use several cores badly.

    One that fails, or Ctrl-C, ends the others at their next chunk.
    """
    stop = threading.Event()
    if min(len(slices), most) < 2:
        return [own.run(told, stop) for own in slices]
    with ThreadPoolExecutor(most, "sgdlimit") as pool:
        futures = [pool.submit(own.run, told, stop) for own in slices]
        try:
            for future in _ended(futures):
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# --- an executor of the user's ---


def chosen(executor: object) -> Executor | None:
    """Return the executor that the user means, None for this process; one that cannot work is refused."""
    if executor is None:
        return None
    if callable(given := getattr(executor, "get_executor", None)):  # a dask Client
        executor = given(pure=False)
    if not isinstance(executor, Executor):
        why = "it must be None, a concurrent.futures executor, or a dask Client"
        raise reject("executor", repr(executor), why)
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        why = "jax does not survive a fork; give mp_context=multiprocessing.get_context('spawn'), or a number"
        raise reject("executor", "a ProcessPoolExecutor that forks", why)
    return executor


def _elsewhere(slices: list[_Slice], executor: Executor, told: Callable[[int], None]) -> list[Records | None]:
    """By whoever the executor has; what a checkpoint keeps is not done again."""
    missing = [own for own in slices if not own.kept and clock.perf_counter() <= own.deadline]
    if missing and type(executor).__module__.startswith(("concurrent.futures.process", "mpi4py")):
        check_pickles(missing[0].work)
    futures = {executor.submit(performed, own.work): own for own in missing}
    try:
        for future in _ended(futures):
            futures[future].place.kept.put(futures[future].work.name, future.result().packed())
            told(futures[future].work.steps)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    found = [own.place.kept.get(own.work.name) for own in slices]
    return [None if arrays is None else Records.unpacked(arrays) for arrays in found]


def performed(work: Work) -> Records:
    """Return the records of all of a slice, in a process that knows nothing else of the solution."""
    with precise():
        march, keep = March(work.system, stacked(work.draws()), work.level), work.keep
        (records,) = along(march, len(march.level.times), keep=keep, told=_silent, stop=threading.Event())
    return records


def check_pickles(work: object) -> None:
    """Refuse what cannot be sent to processes, which know functions by their names."""
    try:
        pickle.dumps(work)
    except Exception as error:
        why = "processes know functions by name: define them with def at the top level of a module"
        raise reject("executor", f"{type(error).__name__}: {error}", f"{why}, or run in this process") from None


# --- many solutions ---


def many(talks: Sequence[Callable[[Shared], Talk[Any]]], most: int | None = None, joint: bool | None = None) -> Answers:
    """Yield the number and the result of every talk as they come, or what it raised.

    Each is given values that all share.
    most: at a time. joint: whether marches of equal shape are put together into one program; left out, on all but CPUs,
    which a single march keeps busy.
    """
    joint = jax.default_backend() != "cpu" if joint is None else joint
    usual = MOST if joint else 1 + machine.cores()
    most = usual if most is None else whole("most", most, least=1, why="it must be a whole number ≥ 1")
    if not joint:
        yield from _apart(talks, most)
        return
    waves = -(-len(talks) // most)
    for first, last in pairwise(len(talks) * i // max(1, waves) for i in range(waves + 1)):  # equal parts
        yield from _together(talks, range(first, last))


@contextmanager
def _threads(most: int, stop: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """So many threads, or a few more than there are cores; what they do ends with the context."""
    pool = ThreadPoolExecutor(min(most, 1 + (os.cpu_count() or 1)), "sgdlimit")
    try:
        yield pool
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _apart(talks: Sequence[Callable[[Shared], Talk[Any]]], most: int) -> Answers:
    """So many talks at a time, one a thread; their work is done by as many others."""
    shared, stop = Shared(), threading.Event()
    with _threads(most, stop) as hands, _threads(most, stop) as pool:

        def do(wanted: Wanted) -> Done:
            slices = _slices(wanted)
            tasks = [hands.submit(own.run, _silent, stop) for part in slices for own in part]
            return _gathered(slices, [task.result() for task in tasks])

        numbers = {pool.submit(lambda talk=talk: _carried(talk(shared), do)): i for i, talk in enumerate(talks)}
        for future in _ended(numbers):
            yield numbers.pop(future), future.exception() or future.result()  # nothing is held that was given


def _together(talks: Sequence[Callable[[Shared], Talk[Any]]], numbers: range) -> Answers:
    """These talks at once: where all of them wait, their work is put together."""
    shared, stop = Shared(), threading.Event()
    open_ = {number: talks[number](shared) for number in numbers}
    steps: dict[int, Callable[[], Wanted]] = {number: partial(next, talk) for number, talk in open_.items()}
    with _threads(len(numbers), stop) as pool:
        while open_:
            tasks = {number: pool.submit(step) for number, step in steps.items()}
            slices: dict[int, list[list[_Slice]]] = {}
            for number, task in tasks.items():
                if (error := next(_ended([task])).exception()) is None:
                    slices[number] = _slices(task.result())
                else:
                    del open_[number]
                    yield number, error.value if isinstance(error, StopIteration) else error
            task = pool.submit(_by_shape, slices, sizes(len(numbers)), stop)
            error, steps = next(_ended([task])).exception(), {}
            for number, own in slices.items():
                parts, talk = [error] if error else task.result()[number], open_[number]
                wrong = [part for part in parts if isinstance(part, BaseException)]
                sound = [part for part in parts if not isinstance(part, BaseException)]
                steps[number] = partial(talk.throw, wrong[0]) if wrong else partial(talk.send, _gathered(own, sound))


def sizes(most: int) -> list[int]:
    """Return sizes of batches: the largest, rounded up to three binary digits so that sweeps share programs, and few
    smaller."""
    unit = 2 ** max(most.bit_length() - 3, 0)
    size, found = -(-most // unit) * unit, []
    while size > 1:
        found.append(size)
        size = -(-size // SMALLER)
    return [1, *reversed(found)]


def _by_shape(asked: dict[int, list[list[_Slice]]], batches: list[int], stop: threading.Event) -> dict[int, list[Came]]:
    """What came of all slices that talks wait for, those of equal shape in one program."""
    found: dict[int, list[Came]] = {number: [None for part in parts for _ in part] for number, parts in asked.items()}
    groups: dict[Hashable, list[tuple[int, int, _Slice]]] = defaultdict(list)
    with precise():
        for number, parts in asked.items():
            for i, own in enumerate(own for part in parts for own in part):
                apart = own.work.keep or own.work.system.kernels or own.place.kept.kept or own.kept
                march = None if apart else own.march()
                key = (number, i) if march is None else (len(own.level.times), shapes_of((*march[:2], own.level.steps)))
                groups[key].append((i, number, own))
    for group in groups.values():
        group.sort(key=lambda item: item[0])  # slices that draw the same lie together
        records = _batches([own for *_, own in group], batches, stop)
        for (i, number, _), part in zip(group, records, strict=True):
            found[number][i] = part
    return found


def _batches(slices: list[_Slice], batches: list[int], stop: threading.Event) -> list[Came]:
    """Of equal shape: one that fails goes again in smaller batches, so that only those fail who do so alone."""
    size, out = batches[-1], []
    for first in range(0, len(slices), size):
        part = slices[first : first + size]
        if stop.is_set():
            raise Stopped
        try:
            out += _batch(part, min(b for b in batches if b >= len(part)), stop)
        except Exception as error:
            if len(part) == 1:
                out.append(error)
                continue
            if not isinstance(error, MemoryError | jax.errors.JaxRuntimeError):
                words = f"{len(part)} solutions cannot be computed in one program, fewer are tried: {error!r}"
                warnings.warn(words, RuntimeWarning, stacklevel=2)
            out += _batches(part, [b for b in batches if b < len(part)], stop)
    return out


def _batch(slices: list[_Slice], points: int, stop: threading.Event) -> list[Records | None]:
    """In one program, of so many points."""
    if len(slices) == 1:
        return [slices[0].run(_silent, stop)]
    if clock.perf_counter() > min(own.deadline for own in slices):
        return [None] * len(slices)
    with precise():
        program = Several([own.march() for own in slices], points)
        found = along(program, len(slices[0].level.times), told=_silent, stop=stop)
    return [own.found(records) for own, records in zip(slices, found, strict=True)]
