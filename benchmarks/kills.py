"""Kills and full disks: is every file whole, is the old one there, and does work go on to the same bits?

SIGKILL at random moments while a process saves over an existing file again and again; while it solves, and while it
simulates, with a checkpoint that is written as often as can be: it is started again until it ends, and the result must
be that of an undisturbed run to the last bit. Then disks that fill up under a save, by a limit on the size of files, by
a disk of one megabyte where one can be mounted, and by a flush that fails. Prints counts; the exit status is 1 if
anything was lost. `python benchmarks/kills.py [kills of each kind] [full disks]`
"""

import contextlib
import errno
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import sgdlimit as sl
from sgdlimit.dmft import march
from sgdlimit.results import Variable, checkpoint

LONGEST = 0.2
"""Seconds until a kill of a save at most: tens of saves."""


def version(number: int, points: int = 20_000) -> sl.Solution:
    """A result all of whose numbers say which version it is."""
    values = np.full(points, float(number))
    about = {"method": f"version {number}", "status": "complete"}
    return sl.Solution({"train_loss": Variable(("time",), values)}, {"time": np.arange(float(points))}, about)


def which(path: Path) -> int:
    """The version that a file holds; an InputError or AssertionError if it is none."""
    result = sl.load(path)
    number = int(result.about["method"].split()[1])
    np.testing.assert_array_equal(result["train_loss"], number)
    return number


def save_for_ever(path: Path) -> None:
    """What is killed: version after version over the same file."""
    number = 1
    print("up", flush=True)
    while True:
        version(number).save(path, overwrite=True)
        number += 1


def logistic() -> sl.Problem:
    """What is solved and simulated."""
    return sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.01), sample_ratio=2.0,
        teacher=sl.Normal(1.0), noise=sl.Normal(0.1),
    )  # fmt: skip


def solved(path: Path) -> sl.Solution:
    """Several stages of many short marches."""
    return sl.solve(logistic(), sl.SGD(0.4), t_max=4.0, tol=0.02, snapshots=[1.0], checkpoint=path)


def simulated(path: Path) -> sl.Runs:
    """Many short trials, two at a time."""
    return sl.simulate(logistic(), sl.SGD(0.4), dim=200, trials=60, t_max=12.0, workers=2, checkpoint=path)


TASKS: dict[str, Callable[[Path], sl.Solution | sl.Runs]] = {"solve": solved, "simulate": simulated}


def do(task: str, folder: Path) -> None:
    """What is killed: a checkpoint after every trial and every few steps of a march, then the result."""
    checkpoint.EVERY = checkpoint.COSTS = 0.0
    march.CHUNK = 16
    print("up", flush=True)
    TASKS[task](folder / "run.ckpt").save(folder / "result.nc", overwrite=True)


class Work(NamedTuple):
    """What is killed."""

    command: list[str]
    """It prints a line when it begins."""
    longest: float
    """Seconds until a kill, at most."""
    verdict: Callable[[bool], str]
    """What a kill, or the end of the work (True), has left, in a few words; 'whole' is good."""
    last: Callable[[], None]
    """Once more, without a kill."""


def save_work(folder: Path) -> Work:
    """Saving over a file that is there."""
    path = folder / "run.nc"
    version(0).save(path)

    def verdict(_: bool) -> str:
        try:
            which(path)
        except (sl.InputError, AssertionError) as error:
            return f"damaged: {error}"
        return "whole"

    command = [sys.executable, __file__, "--save", str(path)]
    return Work(command, LONGEST, verdict, lambda: version(0).save(path, overwrite=True) and None)


def resumed_work(task: str, folder: Path) -> Work:
    """Work with a checkpoint: after a kill it is whole or not there, and at the end the bits are right."""
    command = [sys.executable, __file__, "--do", task, str(folder)]
    path, result = folder / "run.ckpt", folder / "result.nc"

    def undisturbed() -> float:
        path.unlink(missing_ok=True)
        process = started(command)
        begin = time.perf_counter()
        assert process.wait() == 0
        return time.perf_counter() - begin

    undisturbed()  # compiles
    longest, reference = undisturbed(), sl.load(result)
    path.unlink()

    def verdict(ended: bool) -> str:
        if not ended:
            return "whole" if sound(path) else "damaged"
        found = sl.load(result)
        same = all(
            np.array_equal(values, found.dataset[name], equal_nan=True) for name, values in reference.dataset.items()
        )
        path.unlink()
        return "resumed to the same bits" if same else "resumed to other bits"

    def last() -> None:
        assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0

    return Work(command, longest, verdict, last)


def sound(path: Path) -> bool:
    """Whether a checkpoint can be read, or none has been written yet."""
    try:
        checkpoint.Checkpoint(path, {})
    except sl.InputError as error:
        return "belongs to another" in str(error)  # nobody's work: told only of a file that is whole
    return True


WORKS: dict[str, Callable[[Path], Work]] = {
    "save": save_work,
    "solve": lambda folder: resumed_work("solve", folder),
    "simulate": lambda folder: resumed_work("simulate", folder),
}


def started(command: list[str]) -> "subprocess.Popen[bytes]":
    """A process that has begun its work."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def ended(command: list[str], after: float) -> bool:
    """Start, kill; whether it was too late for that."""
    process = started(command)
    try:
        assert process.wait(after) == 0, f"{command} failed"
        return True
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def kills(name: str, count: int, seed: int = 0) -> bool:
    """Kill so often, at random moments; whether nothing was lost."""
    rng, begin = random.Random(seed), time.perf_counter()
    found: Counter[str] = Counter()
    midway = killed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        work = WORKS[name](folder)
        while killed < count:
            late = ended(work.command, rng.uniform(0, work.longest))
            found[work.verdict(late)] += 1
            killed += not late
            midway += bool(list(folder.glob(".*.part")))
        work.last()
        found[work.verdict(True)] += 1
        left = len(list(folder.glob(".*.part")))
    words = f"{name}: {killed} kills in {time.perf_counter() - begin:.0f} s, {midway} of them while a file was written"
    print(f"{words}: {dict(found)}; stray files left: {left}", flush=True)
    return set(found) <= {"whole", "resumed to the same bits"} and not left


def old_file(folder: Path) -> Path:
    """A small version 0, to be replaced by a larger one."""
    return version(0, points=100).save(folder / "run.nc")


@contextlib.contextmanager
def size_limit(folder: Path) -> Iterator[Path]:
    """No file of this process grows beyond a random size."""
    path, limits = old_file(folder), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (random.randrange(1, 300_000), limits[1]))
    try:
        yield path
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def failing_flush(folder: Path) -> Iterator[Path]:
    """A disk that finds out late."""
    path, real = old_file(folder), os.fsync

    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = refuse
    try:
        yield path
    finally:
        os.fsync = real


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of one megabyte, filled but for a random rest."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        path = old_file(folder)
        with contextlib.suppress(OSError), (folder / "rest").open("wb", buffering=0) as rest:
            rest.write(b"x" * random.randrange(750_000, 1_100_000))
        yield path
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def may_mount() -> bool:
    """Only root may; elsewhere the other two kinds must do."""
    try:
        with tempfile.TemporaryDirectory() as place, small_disk(Path(place)):
            return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False


def refused(path: Path) -> str:
    """Save on a full disk: how that ends."""
    before = path.read_bytes()
    try:
        version(1).save(path, overwrite=True)
    except sl.InputError as error:
        named = f"the disk of {path.parent}" in str(error)
        intact = path.read_bytes() == before and which(path) == 0
        clean = not list(path.parent.glob(".*.part"))
        return "refused, old file intact" if named and intact and clean else f"lost: {error}"
    return "it fitted"


def full_disks(count: int, seed: int = 0) -> bool:
    """Disks that fill up, of every kind that can be had; whether the old file is there each time."""
    random.seed(seed)
    kinds = (size_limit, failing_flush, small_disk) if may_mount() else (size_limit, failing_flush)
    found: Counter[str] = Counter()
    for i in range(count):
        kind = kinds[i % len(kinds)]
        with tempfile.TemporaryDirectory() as place, kind(Path(place)) as path:
            found[f"{kind.__name__}: {refused(path)}"] += 1
    print(f"full disks: {count} tries: {dict(found)}; the interpreter lives")
    return all(key.endswith("old file intact") for key in found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--save"]:
        save_for_ever(Path(sys.argv[2]))
    if sys.argv[1:2] == ["--do"]:
        do(sys.argv[2], Path(sys.argv[3]))
        sys.exit()
    numbers = [int(word) for word in sys.argv[1:]] + [100, 20][len(sys.argv) - 1 :]
    good = [kills(name, numbers[0]) for name in WORKS]
    sys.exit(not all([*good, full_disks(numbers[1])]))
