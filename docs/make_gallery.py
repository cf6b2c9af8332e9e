"""Pictures of the gallery: every script of `examples/` run once, its picture made small for `docs/gallery/`.

    python docs/make_gallery.py [NAME ...]

Scripts run one after another at low priority. One whose picture was made from the same code is skipped, so that after a
stop the same command goes on. `pictures.json` holds the hashes.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).resolve().parent
EXAMPLES, PICTURES = DOCS.parent / "examples", DOCS / "gallery"
LARGEST = 60_000
"""Bytes of a picture."""
WIDTHS = (1000, 900, 800, 700, 600, 500)
"""Pixels, tried in turn until a picture is small enough."""


def fingerprint(script: Path) -> str:
    """Of what a script does: its text after the docstring."""
    text = script.read_text(encoding="utf-8")
    first = ast.parse(text).body[0]
    begin = first.end_lineno if isinstance(first, ast.Expr) else 0
    return hashlib.sha256("\n".join(text.splitlines()[begin:]).encode()).hexdigest()


def kept() -> dict[str, str]:
    """The fingerprints of the scripts that pictures were made from, by name."""
    index = PICTURES / "pictures.json"
    return json.loads(index.read_text()) if index.exists() else {}


def shrink(picture: Path, output: Path) -> None:
    """The picture with few colours, as wide as the size allows."""
    with Image.open(picture) as image:
        plain = Image.new("RGB", image.size, "white")
        plain.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    for width in WIDTHS:
        if width < plain.width:
            small = plain.resize((width, round(plain.height * width / plain.width)), Image.Resampling.LANCZOS)
        else:
            small = plain
        # an octree keeps the colours of thin lines beside those of a map
        few = small.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(output, optimize=True)
        if output.stat().st_size <= LARGEST:
            return
    raise SystemExit(f"{output}: more than {LARGEST} bytes at {WIDTHS[-1]} pixels; draw less")


def make(script: Path) -> float:
    """Run one script and keep its picture; how many seconds it took."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / f"{script.stem}.png"
        subprocess.run(
            ["nice", "-n", "19", sys.executable, str(script), str(picture)], check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "MPLBACKEND": "agg"},
        )  # fmt: skip
        shrink(picture, PICTURES / f"{script.stem}.png")
    return time.perf_counter() - begin


def main(names: list[str]) -> None:
    """Make what is missing or old, of all scripts or of those named."""
    PICTURES.mkdir(exist_ok=True)
    scripts = sorted(EXAMPLES.glob("*.py"))
    unknown = set(names) - {script.stem for script in scripts}
    if unknown:
        raise SystemExit(f"no such example: {', '.join(sorted(unknown))}")
    for script in scripts:
        found, now = kept(), fingerprint(script)
        there = (PICTURES / f"{script.stem}.png").exists()
        if (names and script.stem not in names) or (there and found.get(script.stem) == now):
            continue
        print(f"{script.stem}: ", end="", flush=True)
        seconds = make(script)
        (PICTURES / "pictures.json").write_text(
            json.dumps(kept() | {script.stem: now}, indent=1, sort_keys=True) + "\n"
        )
        print(f"{seconds:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
