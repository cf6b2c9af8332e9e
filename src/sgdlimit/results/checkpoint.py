"""Work that survives a kill: finished pieces, by name, in one file that is replaced as a whole.

A file begins with a magic word and a digest of the rest, an npz of all pieces and of who they belong to: problem,
algorithm, seed, options, versions and kind of machine. Another's is refused with the reason.
"""

import contextlib
import hashlib
import io
import json
import threading
import time as clock
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import final

import jax
import numpy as np

from .._fingerprint import digest
from .._version import __version__
from ..describe import to_words
from ..errors import reject
from . import files

MAGIC = b"sgdlimit checkpoint 2\n"
EVERY = 5.0
"""Seconds between two writings, at least."""
COSTS = 10.0
"""Between two, so many times what one takes: no more than a tenth of the time is spent on them."""

BEGUN = "begun with"
"""The piece that holds what the first process found on its machine, and decided by."""
SHORT = 60
"""Letters of a word that a message can show; a digest has 64."""


def numerical_version() -> str:
    """Numbers of another one may differ in their last bits."""
    return f"sgdlimit {__version__}, jax {jax.__version__}, numpy {np.__version__}"


def identity(problem: object, algorithm: object, seed: int, **options: object) -> dict[str, str]:
    """Who a piece of work belongs to, in words that are the same in another process."""
    device = jax.devices()[0]
    return {
        "problem": digest(problem),
        "algorithm": digest(algorithm),
        "seed": str(seed),
        **{name: json.dumps(to_words(value), sort_keys=True, default=str) for name, value in options.items()},
        "numerical version": numerical_version(),
        "machine": f"{device.platform} {device.device_kind}",
    }


@final
class Checkpoint:
    """Pieces of arrays by name, in memory, and in a file where a path is given; several threads may put."""

    def __init__(self, path: object, owner: Mapping[str, str]) -> None:
        self._pieces: dict[str, dict[str, np.ndarray]] = {}
        self._owner = dict(owner)
        self._target: Path | None = None
        self._lock = threading.RLock()
        self._written, self._cost = clock.perf_counter(), 0.0
        if path is not None:
            self._target = files.destination("checkpoint", path, overwrite=True)
            if self._target.exists():
                self._pieces = _read(self._target, self._owner)

    @property
    def kept(self) -> bool:
        """Whether pieces are kept in a file."""
        return self._target is not None

    @property
    def due(self) -> bool:
        """Whether the file is old enough to be written again."""
        return self.kept and clock.perf_counter() - self._written > max(EVERY, COSTS * self._cost)

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        """A finished piece; the dictionary is the caller's own."""
        piece = self._pieces.get(name)
        return None if piece is None else dict(piece)

    def begun_with(self, name: str, value: float) -> float:
        """What the work was begun with: this value, or where it goes on, that of then."""
        with self._lock:
            return float(self._pieces.setdefault(BEGUN, {}).setdefault(name, np.asarray(value)))

    def put(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """A piece is finished; it is written when that is due."""
        with self._lock:
            self._pieces[name] = arrays
            if self.due:
                self.write()

    def drop(self, name: str) -> None:
        """Forget a piece that another one contains."""
        with self._lock:
            self._pieces.pop(name, None)

    def write(self) -> None:
        """Write all pieces to the file, whole or not at all."""
        if self._target is None:
            return
        with self._lock:
            begin = clock.perf_counter()
            content = io.BytesIO()
            flat = {f"{name}/{key}": array for name, piece in self._pieces.items() for key, array in piece.items()}
            flat["owner"] = np.frombuffer(json.dumps(self._owner).encode(), np.uint8)
            np.savez(content, allow_pickle=False, **flat)  # pyright: ignore[reportArgumentType]
            payload = content.getvalue()
            files.replace(self._target, MAGIC + hashlib.sha256(payload).digest() + payload, "checkpoint")
            self._written = clock.perf_counter()
            self._cost = self._written - begin

    def told(self, words: str = "") -> str:
        """After Ctrl-C: these words, and where finished work is."""
        where = f"finished work is kept in {self._target}; the same call goes on from there"
        return "; ".join(part for part in (words, where * self.kept) if part)

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Work at whose end, good or bad, what is finished is written; Ctrl-C then tells where it is."""
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self.told()) from None
        finally:
            self.write()


def _read(target: Path, owner: Mapping[str, str]) -> dict[str, dict[str, np.ndarray]]:
    """The pieces of a file, if they are whole and belong to this work."""
    content = files.source("checkpoint", target).read_bytes()
    head = len(MAGIC) + 32
    if not content.startswith(MAGIC):
        raise reject("checkpoint", target, "it is no checkpoint of this version; name a new file")
    if hashlib.sha256(content[head:]).digest() != content[len(MAGIC) : head]:
        raise reject("checkpoint", target, "the file is damaged; delete it to begin anew")
    with np.load(io.BytesIO(content[head:]), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    known = json.loads(arrays.pop("owner").tobytes())
    for part in {**owner, **known}:
        theirs, ours = known.get(part, "none"), owner.get(part, "none")
        if theirs != ours:
            said = f" ({theirs}, not {ours})" if max(len(theirs), len(ours)) < SHORT else ""
            raise reject("checkpoint", target, f"it belongs to another {part}{said}; name a new file, or delete it")
    pieces: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        piece, _, key = name.rpartition("/")
        pieces.setdefault(piece, {})[key] = array
    return pieces
