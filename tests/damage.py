"""Files that were harmed: problem files (TOML) and results (netCDF), and how a reader must take them."""

import contextlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from promises import Broken, holds, named

import sgdlimit as sl
from sgdlimit.cli.specification import EXAMPLE, read

# --- problem files ---

FUNCTIONS = """\
import jax.numpy as jnp


def loss(r, y):
    return jnp.log(jnp.cosh(r - y))


def shrink(t):
    return 1 / (1 + t)
"""
"""The file beside the problem files whose functions they name."""

PROBLEM_FILES = (
    EXAMPLE,
    """\
[problem]
loss = { name = "TwoLayer", activation = "erf", readout = [1.0, 0.5] }
labels = { name = "TwoLayerLabels", activation = "erf" }
penalty = { name = "SmoothL1", strength = 0.1, smoothing = 0.2 }
sample_ratio = inf
teacher = "Normal"
init = { name = "Uniform", low = -1.0, high = 1.0 }
width = 2
teacher_width = 3

[algorithm]
name = "SGF"
temperature = 0.4
batch_share = { name = "PowerDecay", scale = 2.0, exponent = 0.5 }

[run]
times = [0.0, 0.5, 2.0]
samples = 4096
replicas = 8
""",
    """\
[problem]
loss = "functions.py:loss"
labels = { name = "Noise", binary = true }
penalty = { name = "Quartic", strength = 0.1 }
sample_ratio = 3
noise = { name = "Rademacher", scale = 1.0 }
schedule = "functions.py:shrink"

[algorithm]
name = "PersistentSGD"
batch_fraction = 0.3
correlation_time = 1.0

[run]
t_max = 2
dt = 0.1
kernels = true
entries = "sparse"
functions = 16
""",
)

SCRAPS = (
    "=", "[", "]", "{", "}", '"', "'", "\n", "\\", "#", ".", ",", "-", "1e999", "nan", "-inf", "inf", "true", "0x",
    "\0", "\ud7ff", "é", "9" * 30, "9" * 5000, "[" * 200, "1979-05-27T07:32:00Z", "[[run]]\n", "[problem]\n", "''",
    "1_000", "name", '"SGD"', "[problem.loss]\n", "a.b.c = 1\n", '"functions.py:"', '"../functions.py:loss"',
    '"/:x"', "{}",
)  # fmt: skip
"""What is put into a problem file."""
VALUES = (
    "0", "-1", "1", "3", "0.5", "1e300", "1e999", "nan", "inf", "-inf", "true", '""', '"Square"', '"SGD"', '"Normal"',
    '"functions.py:loss"', '"functions.py:none"', '"erf"', '"inf"', "[]", "[1, 2, 3]", "[0.0, 0.0]", '["a"]', "{}",
    "{ name = 3 }", '{ name = "Loss" }', '{ name = "Normal", scale = -1 }', '{ name = "Ridge", strength = "x" }',
    "[[1]]", '{ name = "SGD", temperature = 0.1, batch_size = 2.5 }', "9" * 30, "9" * 5000, "07:32:00", "1979-05-27",
    "0xff",
)  # fmt: skip
"""TOML that is right, in the wrong place."""


@st.composite
def problem_file(draw: Any) -> bytes:
    """A problem file with one to three wounds."""
    text = draw(st.sampled_from(PROBLEM_FILES))
    for _ in range(draw(st.integers(1, 3))):
        text = draw(_wound(text))
    data = text.encode("utf-8", "surrogatepass")
    if data and draw(st.integers(0, 9)) == 3:  # bytes that are no text
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes([draw(st.integers(128, 255))]) + data[at + 1 :]
    return data


@st.composite
def _wound(draw: Any, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    kind = draw(st.sampled_from(("value", "value", "value", "repeat", "drop", "swap", "insert", "flip", "nest", "cut")))
    at, line = draw(st.integers(0, len(text))), draw(st.integers(0, len(lines) - 1))
    if kind == "cut":
        return text[:at]
    if kind == "drop":
        return "".join(lines[:line] + lines[line + 1 :])
    if kind == "swap":
        other = draw(st.integers(0, len(lines) - 1))
        lines[line], lines[other] = lines[other], lines[line]
        return "".join(lines)
    if kind == "repeat":
        return "".join(lines[: line + 1] + lines[line:])
    if kind == "insert":
        return text[:at] + draw(st.sampled_from(SCRAPS)) + text[at:]
    if kind == "flip":
        return text[:at] + draw(st.characters(codec="utf-8")) + text[at + 1 :]
    before, sign, _ = lines[line].partition("=")
    if not sign:
        return text
    if kind == "nest":
        depth = draw(st.sampled_from((1, 10, 100, 1000, 3000)))
        value = draw(st.sampled_from(("[" * depth + "]" * depth, '{name="Loss",loss=' * depth + "1" + "}" * depth)))
    else:
        value = draw(st.sampled_from(VALUES))
    lines[line] = f"{before}= {value}\n"
    return "".join(lines)


def reads_or_refuses(data: bytes) -> str:
    """Read a problem file: a specification, or a refusal that names what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.toml"
        path.write_bytes(data)
        (Path(folder) / "functions.py").write_text(FUNCTIONS)
        try:
            read(path)
        except sl.InputError as error:
            named(error)
            return "refused"
    return "read"


# --- results ---


def results() -> dict[str, Any]:
    """Results of every kind, small."""
    linear = sl.Problem(loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0))
    algorithm = sl.SGD(0.3, batch_size=2)
    return {
        "exact.nc": sl.least_squares(linear, algorithm, times=np.linspace(0, 1, 11), kernels=True),
        "runs.nc": sl.simulate(linear, algorithm, dim=20, trials=3, t_max=1.0),
        "online.nc": sl.online(linear, algorithm, t_max=1.0, samples=64, replicas=3),
    }


@dataclass(frozen=True)
class Harm:
    """What is done to a file of the name `file`."""

    file: str
    kind: str
    places: tuple[float, ...]
    """As shares of the file's length."""
    size: int
    word: str = ""

    def apply(self, data: bytes) -> bytes:
        """The bytes after it."""
        data_, spots = bytearray(data), [int(share * (len(data) - 1)) for share in self.places]
        for at in spots:
            if self.kind == "bit":
                data_[at] ^= 1 << (self.size % 8)
            elif self.kind == "zero":
                data_[at : at + self.size] = bytes(len(data_[at : at + self.size]))
            elif self.kind == "ones":
                data_[at : at + self.size] = b"\xff" * len(data_[at : at + self.size])
            elif self.kind == "copy":
                data_[at : at + self.size] = data_[: len(data_[at : at + self.size])]
        if self.kind == "cut":
            del data_[spots[0] :]
        elif self.kind == "remove":
            del data_[spots[0] : spots[0] + self.size]
        elif self.kind == "append":
            data_ += b"\x89HDF" * self.size
        return bytes(data_)


BYTES = ("bit", "bit", "bit", "zero", "ones", "copy", "cut", "remove", "append")
EDITS = ("drop", "nan", "shorten", "text", "about", "kind", "format", "rename", "group")
WORDS = ("", "null", "3", "[]", "{}", '{"problem": 3}', '{"status": 7}', '{"options": []}', '{"algorithm": "x:y"}', "{")


@st.composite
def harm(draw: Any) -> Harm:
    """Harm to bytes, or through the library that wrote them."""
    file = draw(st.sampled_from(("exact.nc", "online.nc", "runs.nc")))
    kind = draw(st.sampled_from(BYTES + EDITS))
    places = tuple(draw(st.lists(st.floats(0, 1), min_size=1, max_size=4)))
    return Harm(file, kind, places, draw(st.sampled_from((1, 2, 3, 7, 64, 512, 4096))), draw(st.sampled_from(WORDS)))


def harmed(folder: Path, what: Harm, target: Path) -> None:
    """Write the harmed file."""
    data = (folder / what.file).read_bytes()
    if what.kind in BYTES:
        target.write_bytes(what.apply(data))
        return
    import h5py

    target.write_bytes(data)
    with h5py.File(target, "r+") as opened:
        names = sorted(opened)
        name = names[int(what.places[0] * (len(names) - 1))]
        values: Any = opened[name]
        if what.kind in ("drop", "rename", "group", "text", "shorten"):
            old = np.asarray(values)
            del opened[name]
            if what.kind == "rename":
                opened[f"other_{name}"] = old
            elif what.kind == "group":
                opened.create_group(name)
            elif what.kind == "text":
                opened[name] = "text"
            elif what.kind == "shorten":
                opened[name] = old[: len(old) // 2] if old.ndim else old
        elif what.kind == "nan":
            with contextlib.suppress(TypeError, ValueError):
                values[...] = np.nan
        elif what.kind == "about":
            opened.attrs["sgdlimit_about"] = what.word
        else:
            opened.attrs[f"sgdlimit_{what.kind}"] = what.word or 99


def loads_or_refuses(folder: Path, what: Harm) -> str:
    """Load a harmed file and use it: what was written, or a refusal; after an edit, whatever one can use."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / what.file
        harmed(folder, what, path)
        try:
            found = sl.load(path)
        except sl.InputError as error:
            named(error)
            return "refused"
        right = sl.load(folder / what.file)
        try:
            use(found, right)
        except sl.InputError as error:
            return f"loaded, then refused: {named(error)}"
    same = set(found.variables) == set(right.variables) and json.dumps(found.about) == json.dumps(right.about)
    for name in right.variables if same else ():
        same = same and np.array_equal(found[name], right[name], equal_nan=True)
    if not same and what.kind in BYTES:
        raise Broken("loaded, but it is not what was written")
    return "intact" if same else "edited"


def use(found: Any, right: Any) -> None:
    """What one does with a result."""
    holds(repr(found) and found._repr_html_(), "no summary")
    _ = found.problem, found.algorithm, found.dataset, found.status, found.success
    repr(sl.compare(found, right))
