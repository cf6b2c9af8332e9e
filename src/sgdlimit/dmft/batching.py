"""Many solutions at once: every call of `solve` in a thread of its own, and what they compute put together.

On a GPU, marches and averages of problems of equal shape are one program, as many at a time as memory allows. On a CPU,
which a single march keeps busy, nothing is gained by that: threads share draws, and fill the cores; every solution is
that of the single call, to the last bit.
"""

import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax

from .._together import Dismissed, Meeting
from ..algorithms import Algorithm
from ..errors import whole
from ..problem import Problem
from ..progress import Progress
from ..results import Solution
from .solver import solve

MOST = 128
"""Solutions at a time on a GPU: more do not fill it better."""
SMALLER = 8
"""Batches of fewer are filled up to the full size, or to so many times fewer: every size is a program to compile."""
PATIENCE = 0.2
"""Seconds after which Ctrl-C is looked for."""

Call = tuple[Problem, Algorithm, Mapping[str, Any]]
"""Problem, algorithm, and the other arguments of `solve`."""
Answers = Generator[tuple[int, Any], None, None]
"""The number of what was asked, and its result or what it raised."""


def solve_many(
    calls: Sequence[Call], most: int | None = None, *, joint: bool | None = None, progress: bool | None = None
) -> Answers:
    """The number and the solution of every call, as they come, or what it raised.

    most: at a time. joint: whether marches are put together into one program; left out, on all but CPUs.
    """

    def one(number: int) -> Solution:
        problem, algorithm, options = calls[number]
        return solve(problem, algorithm, **{**options, "progress": False})

    with Progress("solve", len(calls), progress) as bar:
        for found in at_once([partial(one, number) for number in range(len(calls))], most, joint):
            bar.advance()
            yield found


def at_once(works: Sequence[Callable[[], Any]], most: int | None = None, joint: bool | None = None) -> Answers:
    """Functions that call `solve`, each in a thread: number and result of every one, as they come."""
    joint = jax.default_backend() != "cpu" if joint is None else joint
    usual = MOST if joint else 1 + (os.cpu_count() or 1)
    most = usual if most is None else whole("most", most, least=1, why="it must be a whole number ≥ 1")
    for first, last in _waves(len(works), most if joint else len(works)):
        yield from _wave(works, range(first, last), min(most, last - first), joint)


def _waves(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Equal parts of at most so many."""
    if not count:
        return
    waves = -(-count // most)
    edges = [count * i // waves for i in range(waves + 1)]
    yield from pairwise(edges)


def sizes(most: int) -> list[int]:
    """Of batches: the largest, rounded up to three binary digits so that sweeps share programs, and few smaller."""
    unit = 2 ** max(most.bit_length() - 3, 0)
    size, found = -(-most // unit) * unit, []
    while size > 1:
        found.append(size)
        size = -(-size // SMALLER)
    return [1, *reversed(found)]


def _next(done: queue.SimpleQueue[Any]) -> Any:
    """The next answer; Ctrl-C is seen in time, whichever thread the system tells of it."""
    while True:
        try:
            return done.get(timeout=PATIENCE)
        except queue.Empty:
            continue


def _wave(works: Sequence[Callable[[], Any]], numbers: range, workers: int, joint: bool) -> Answers:
    """These functions, by so many threads."""
    meeting = Meeting(joint, sizes(workers))
    todo, done = queue.SimpleQueue[int](), queue.SimpleQueue[tuple[int, Any]]()
    for number in numbers:
        todo.put(number)

    def work() -> None:
        with meeting.attended():
            while True:
                try:
                    number = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    meeting.check()
                    done.put((number, works[number]()))
                except Dismissed:
                    return
                except BaseException as error:  # whatever a user's function raises: somebody waits for the answer
                    done.put((number, error))

    meeting.expect(workers)
    threads = [threading.Thread(target=work, name=f"solve {i}", daemon=True) for i in range(workers)]
    try:
        for thread in threads:
            thread.start()
        for _ in numbers:
            yield _next(done)
    finally:
        meeting.dismiss()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
