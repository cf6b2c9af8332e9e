"""Finished points on disk: a folder that survives kills, may be shared, and is read without this package.

    store.json          what the folder is, and the numerical version of its points
    points/HASH.npz     points just finished, one file each: all numbers end to end (`numbers`), and JSON that says
                        what they are (`about`)
    packs/NAME.nc       netCDF-4 files of many points: a dimension `point`, along it their hashes (`key`), all that went
                        in (`inputs`, JSON) and the values along the axes; in the group of a kind its variables

Only the process that called `sweep` writes. A point is put down once, under the hash of its inputs. Now and then loose
points are packed, under a lock: the pack first, then the loose files go, so that a kill at any moment loses nothing,
and a point that is in both places is the same in both.
"""

import contextlib
import hashlib
import json
import os
import secrets
import time as clock
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, final

from ..describe import to_words
from ..errors import reject
from ..results import files
from ..results.storage import seal
from . import packs
from .packs import Block, Loose, block
from .tasks import Outcome, Task, numerical_version

try:
    import fcntl
except ImportError:  # Windows: points stay loose
    fcntl = None

FORMAT = 1
"""Version of this layout; a later one is refused."""
LOOSE = 256
"""Loose points that are packed while a sweep runs; a file each is slow to read."""
FEW = 64
"""Loose points that are worth a pack when a sweep ends."""
PACK = 4096
"""Points in one pack at most."""
TICK = 2 * 10**9
"""Nanoseconds in which a folder may change twice and show the same time."""
TRIAL = 65536
"""Bytes that are written, and removed, before any work: a disk that has no room for these has none for points."""


@final
class Store:
    """The folder `path`; it is made if its parent is there."""

    def __init__(self, path: Any) -> None:
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise reject("store", repr(path), "it must be the name of a folder, such as 'diagram'")
        self.folder = Path(path)
        self._loose, self._packed = self.folder / "points", self.folder / "packs"
        self._open()
        self._rows: dict[str, tuple[Path, int]] = {}
        """Pack and row of every packed point."""
        self._known: dict[Path, int] = {}
        """Packs that were looked into, with their size."""
        self._seen = -1
        self._written = 0

    def _open(self) -> None:
        """Refuse what is no store, one of another version, and what cannot be written."""
        sign = self.folder / "store.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise reject("store", self.folder, "it is no folder; name another")
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        if not sign.exists() and any(not path.name.startswith(".") for path in there):
            raise reject("store", self.folder, "the folder holds other files; name a new one")
        if not self.folder.parent.is_dir():
            raise reject("store", self.folder, f"the folder {self.folder.parent} does not exist; create it first")
        try:
            self.folder.mkdir(exist_ok=True)
            if not sign.exists():
                about = {"sgdlimit_store": FORMAT, "numerical version": numerical_version(), "layout": __doc__}
                files.replace(sign, json.dumps(about, indent=1).encode(), "store")
            for folder in (self._loose, self._packed):
                folder.mkdir(exist_ok=True)
            trial = self._loose / f".trial-{secrets.token_hex(8)}"
            files.replace(trial, b"\0" * TRIAL, "store")
            trial.unlink()
        except OSError as error:
            said = error.strerror or str(error)
            raise reject("store", self.folder, f"{said}: points could not be kept there; name another") from None
        self._check(sign)

    def _check(self, sign: Path) -> None:
        try:
            about = json.loads(sign.read_bytes())
            layout, version = int(about["sgdlimit_store"]), str(about["numerical version"])
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise reject("store", sign, f"it cannot be read ({type(error).__name__}); name a new folder") from None
        if layout > FORMAT:
            raise reject("store", self.folder, f"it was made by {version}; upgrade sgdlimit to read it")
        if version != numerical_version():
            why = f"its points were computed by {version}, these are by {numerical_version()}"
            raise reject("store", self.folder, f"{why}; name a new folder, or go back to those versions")

    # --- which points there are ---

    def keys(self) -> set[str]:
        """Hashes of all points."""
        self._refresh()
        return {*self._rows, *(path.stem for path in self._files())}

    def __contains__(self, key: str) -> bool:
        if key in self._rows or self._file(key).exists():
            return True
        self._refresh()
        return key in self._rows

    def _file(self, key: str) -> Path:
        return self._loose / f"{key}.npz"

    def _files(self) -> list[Path]:
        """Loose points."""
        with os.scandir(self._loose) as found:
            return [self._loose / entry.name for entry in found if entry.name.endswith(".npz")]

    def _refresh(self) -> None:
        """Look into packs that have come since."""
        changed = self._packed.stat().st_mtime_ns
        if changed == self._seen and clock.time_ns() - changed > TICK:
            return
        for path in sorted(self._packed.glob("*.nc")):
            size = path.stat().st_size
            if self._known.get(path) != size:
                if not packs.whole(path):
                    why = "this file of the store is damaged; delete it, and its points are computed again"
                    raise reject("store", path, why)
                for row, key in enumerate(packs.keys_of(path)):
                    self._rows[key] = (path, row)
                self._known[path] = size
        self._seen = changed

    # --- reading and writing points ---

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep a finished point; it is there, whole, when this returns."""
        content = packs.write_loose(_inputs(task), task.labels, outcome)
        files.replace(self._file(task.key), content, "store", settled=False)
        self._written += 1
        if self._written % max(LOOSE // 4, 1) == 0:
            self.pack(LOOSE)

    def load(self, keys: Iterable[str]) -> Iterator[Block]:
        """Points, those of a pack together, in any order; those that are not there, or damaged, are left out."""
        wanted = set(keys)
        loose = {path.stem for path in self._files()} & wanted
        for key in loose:
            found = packs.read_loose(self._file(key))
            if found is not None:
                wanted.discard(key)
                yield block(key, found)
        self._refresh()  # after the loose ones: what is packed meanwhile is found here
        packed: dict[Path, list[int]] = {}
        for key in wanted & self._rows.keys():
            path, row = self._rows[key]
            packed.setdefault(path, []).append(row)
        for path, rows in packed.items():
            yield packs.read_pack(path, sorted(rows))

    def pack(self, least: int) -> None:
        """Put loose points together, if there are so many and nobody else is at it."""
        if len(self._files()) < least:
            return
        with self._locked("packing") as alone:
            if not alone:
                return
            self._refresh()
            groups: dict[Any, list[tuple[str, Loose]]] = {}
            for path in self._files():
                if path.stem in self._rows:  # a kill came between packing and removing
                    path.unlink(missing_ok=True)
                elif (found := packs.read_loose(path)) is not None:
                    groups.setdefault(found.layout, []).append((path.stem, found))
            for points in groups.values():
                for begin in range(0, len(points), PACK):
                    self._write(points[begin : begin + PACK])

    def _write(self, points: list[tuple[str, Loose]]) -> None:
        """One pack; when it is safe, its loose points go."""
        keys = [key for key, _ in points]
        name = hashlib.sha256("".join(keys).encode()).hexdigest()[:16]
        files.replace(self._packed / f"{name}.nc", seal(packs.netcdf(keys, [point for _, point in points])), "store")
        for key in keys:
            self._file(key).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[bool]:
        """Whether this process has the lock of that name; it is given back at the end, or when the process dies."""
        if fcntl is None:
            yield False
            return
        with (self.folder / f".{name}").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    @contextlib.contextmanager
    def at_work(self) -> Iterator[bool]:
        """While a sweep runs: whether it is the only one here. Others may come later, and are not told."""
        if fcntl is None:
            yield True
            return
        with (self.folder / ".working").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except OSError:
                alone = False
            fcntl.flock(file, fcntl.LOCK_SH)
            yield alone


def _inputs(task: Task) -> dict[str, Any]:
    """What a reader without this package wants to know of a point."""
    calls = {kind: {name: to_words(value) for name, value in options.items()} for kind, options in task.calls}
    return {
        "problem": to_words(task.problem), "algorithm": to_words(task.algorithm), "calls": calls, "seed": task.seed,
        "times": task.times.tolist(), "only the last time": task.final,
    }  # fmt: skip
