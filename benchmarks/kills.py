"""Kills and full disks: is every file whole, and is the old one there?

SIGKILL at random moments while a process saves over an existing file again and again; then disks that fill up under a
save, by a limit on the size of files, by a disk of one megabyte where one can be mounted, and by a flush that fails.
Prints counts; the exit status is 1 if any file was lost. `python benchmarks/kills.py [kills] [full disks]`
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

import numpy as np

import sgdlimit as sl
from sgdlimit.results import Variable

LONGEST = 0.2
"""Seconds until a kill at most: tens of saves."""


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


Work = tuple[list[str], Callable[[], str]]
"""A command to be killed, which prints a line when it begins, and what is left of it in a word: 'whole' is good."""


def save_work(folder: Path) -> Work:
    """Saving over a file that is there."""
    path = folder / "run.nc"
    version(0).save(path, overwrite=True)

    def verdict() -> str:
        try:
            which(path)
        except (sl.InputError, AssertionError) as error:
            return f"damaged: {error}"
        return "whole"

    return [sys.executable, __file__, "--save", str(path)], verdict


WORKS: dict[str, Callable[[Path], Work]] = {"save": save_work}


def kill(work: Work, after: float) -> str:
    """Start, kill, look."""
    command, verdict = work
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.kill()
    process.wait()
    return verdict()


def kills(name: str, count: int, seed: int = 0) -> bool:
    """Kill so often, at random moments; whether nothing was lost."""
    rng = random.Random(seed)
    found, midway = Counter(), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        work = WORKS[name](folder)
        for _ in range(count):
            found[kill(work, rng.uniform(0, LONGEST))] += 1
            midway += bool(list(folder.glob(".*.part")))
        save_work(folder)  # one more save, which lives
        left = len(list(folder.glob(".*.part")))
    print(f"{name}: {count} kills, {midway} of them while a file was written: {dict(found)}; stray files left: {left}")
    return set(found) == {"whole"} and not left


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
    numbers = [int(word) for word in sys.argv[1:]] + [100, 20][len(sys.argv) - 1 :]
    good = [kills(name, numbers[0]) for name in WORKS]
    sys.exit(not all([*good, full_disks(numbers[1])]))
