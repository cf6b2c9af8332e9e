"""Finished points on disk: a folder that survives kills, may be shared, and is read without this package.

    store.json          what the folder is, and the numerical version of its points
    points/HASH.npz     a finished point, under the hash of its inputs. `about` is a line of JSON: its inputs, the
                        values along the axes, words such as status, and the shapes and axes of arrays; `numbers` are
                        all arrays end to end, in the order of the shapes

Only the process that called `sweep` writes. A point is put down once, whole, so that a kill at any moment loses nothing
that was finished, and two sweeps that put down the same point write the same.
"""

import io
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import final

import numpy as np

from ..describe import to_words
from ..errors import reject
from ..results import files
from ..results.variables import Variable
from .tasks import Outcome, Task, numerical_version

FORMAT = 4
"""Version of this layout; others are refused."""
TRIAL = 65536
"""Bytes that are written, and removed, before any work: a disk that has no room for these has none for points."""


@final
class Store:
    """The folder `path`; it is made if its parent is there."""

    def __init__(self, path: object) -> None:
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise reject("store", repr(path), "it must be the name of a folder, such as 'diagram'")
        self.folder = Path(path)
        self._points, sign = self.folder / "points", self.folder / "store.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise reject("store", self.folder, "it is no folder; name another")
        if not self.folder.parent.is_dir():
            raise reject("store", self.folder, f"the folder {self.folder.parent} does not exist; create it first")
        try:
            self.folder.mkdir(exist_ok=True)
            if not sign.exists():
                others = any(not path.name.startswith(".") for path in self.folder.iterdir())
                if others and not sign.exists():  # nobody has begun a store there since we looked
                    raise reject("store", self.folder, "the folder holds other files; name a new one")
                about = {"sgdlimit_store": FORMAT, "numerical version": numerical_version(), "layout": __doc__}
                files.replace(sign, json.dumps(about, indent=1).encode(), "store")
            self._check(sign)
            self._points.mkdir(exist_ok=True)
            trial = self._points / f".trial-{os.urandom(8).hex()}"
            files.replace(trial, b"\0" * TRIAL, "store")
            trial.unlink()
        except OSError as error:
            said = error.strerror or str(error)
            raise reject("store", self.folder, f"{said}: points could not be kept there; name another") from None

    def _check(self, sign: Path) -> None:
        """Refuse points of another version."""
        try:
            about = json.loads(sign.read_bytes())
            layout, version = int(about["sgdlimit_store"]), str(about["numerical version"])
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise reject("store", sign, f"it cannot be read ({type(error).__name__}); name a new folder") from None
        if version != numerical_version():
            why = f"its points were computed by {version}, these are by {numerical_version()}"
            raise reject("store", self.folder, f"{why}; name a new folder, or go back to those versions")
        if layout != FORMAT:
            why = f"it has layout {layout}, this sgdlimit reads {FORMAT}; name a new folder"
            raise reject("store", self.folder, why)

    def keys(self) -> set[str]:
        """The hashes of all points that are there."""
        return {name.removesuffix(".npz") for name in os.listdir(self._points) if name.endswith(".npz")}

    def __contains__(self, key: str) -> bool:
        return self._file(key).exists()

    def _file(self, key: str) -> Path:
        return self._points / f"{key}.npz"

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep a finished point; it is there, whole, when this returns."""
        arrays = {name: found.values for name, found in outcome.arrays.items()}
        words = {name: array.tolist() for name, array in arrays.items() if array.dtype.kind == "U"}
        numbers = {name: array for name, array in arrays.items() if name not in words}
        inputs = {
            "problem": to_words(task.problem), "algorithm": to_words(task.algorithm),
            "kind": task.kind, "options": to_words(dict(task.options)),
            "seed": task.seed, "times": task.times.tolist(),
        }  # fmt: skip
        dims = {name: found.dims for name, found in outcome.arrays.items()}
        shapes = {name: array.shape for name, array in numbers.items()}
        about = {"inputs": inputs, "labels": task.labels, "words": words, "dims": dims, "shapes": shapes}
        flat = np.concatenate([np.zeros(0), *(np.ravel(array) for array in numbers.values())])
        content = io.BytesIO()
        np.savez(content, about=np.asarray(json.dumps(about, default=str).encode()), numbers=flat)
        files.replace(self._file(task.key), content.getvalue(), "store", settled=False)

    def load(self, keys: Iterable[str]) -> dict[str, Outcome]:
        """Those of these points that are there, by their hash."""
        found = {key: self._read(self._file(key)) for key in self.keys().intersection(keys)}
        return {key: outcome for key, outcome in found.items() if outcome is not None}

    def _read(self, path: Path) -> Outcome | None:
        """A point; None if it is gone, or damaged: then it goes, and is computed again."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                about, flat = json.loads(stored["about"].item()), stored["numbers"]
            arrays = {name: np.asarray(words) for name, words in about["words"].items()}
            for name, shape in about["shapes"].items():
                size = math.prod(shape)
                arrays[name], flat = flat[:size].reshape(shape), flat[size:]
            return Outcome({n: Variable(tuple(about["dims"][n]), array) for n, array in arrays.items()}, lasting=True)
        except Exception:  # whatever numpy and zip raise on damaged bytes
            path.unlink(missing_ok=True)
            return None
