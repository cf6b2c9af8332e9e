"""The archives of a release, as a stranger meets them: built, installed into an empty environment, and used."""

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import sgdlimit as sl

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def tool(*command, cwd) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    tool(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def fresh(built, tmp_path_factory) -> Path:
    """The programs of an environment that has the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    wheel = next(built.glob("*.whl"))
    tool(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    return folder / "bin"


def test_the_wheel_holds_the_package_and_nothing_else(built):
    wheel = next(built.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = {name.partition("/")[2] for name in archive.namelist() if ".dist-info/" in name}
    listed = tool("git", "ls-files", "src", cwd=ROOT).split()
    assert inside == {name.removeprefix("src/") for name in listed}
    assert "sgdlimit/py.typed" in inside
    assert {"METADATA", "RECORD", "entry_points.txt", "licenses/LICENSE"} <= about
    print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB, {len(inside)} files")


def test_the_source_archive_can_be_worked_with(built):
    """All that git has: tests with their data, documents, benchmarks, examples."""
    archive = next(built.glob("*.tar.gz"))
    with tarfile.open(archive) as content:
        inside = {name.partition("/")[2] for name in content.getnames()}
    listed = set(tool("git", "ls-files", cwd=ROOT).split())
    assert listed <= inside
    assert inside - listed <= {"PKG-INFO"}
    print(f"{archive.name}: {archive.stat().st_size / 1024:.0f} KiB, {len(inside)} files")


def test_the_first_curve_of_the_readme(fresh, tmp_path):
    """Outside of the clone, ignoring paths of this process."""
    (tmp_path / "first.py").write_text(
        re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[0]
    )
    out = tool(fresh / "python", "-I", "first.py", cwd=tmp_path)
    assert "all curves together" in out
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "No broken requirements" in tool(fresh / "python", "-I", "-m", "pip", "check", cwd=tmp_path)
    code = "import time; t = time.perf_counter(); import sgdlimit as sl; sl.Problem, sl.simulate; "
    code += "print(time.perf_counter() - t, sl.__file__)"
    seconds, where = min(tool(fresh / "python", "-I", "-c", code, cwd=tmp_path).split() for _ in range(3))
    assert Path(where).is_relative_to(fresh.parent)
    assert float(seconds) < 2.0
    print(f"import: {float(seconds):.2f} s")


def test_the_command_line_of_the_readme(fresh, tmp_path):
    (tmp_path / "ridge.toml").write_text(tool(fresh / "sgdlimit", "models", "--example", cwd=tmp_path))
    assert tool(fresh / "sgdlimit", "--version", cwd=tmp_path).strip() == f"sgdlimit {sl.__version__}"
    tool(fresh / "sgdlimit", "solve", "ridge.toml", "--output", "theory.nc", cwd=tmp_path)
    tool(fresh / "sgdlimit", "simulate", "ridge.toml", "--output", "runs.nc", cwd=tmp_path)
    assert "agree" in tool(fresh / "sgdlimit", "compare", "runs.nc", "theory.nc", cwd=tmp_path)
    tool(fresh / "sgdlimit", "plot", "runs.nc", "theory.nc", "--output", "curves.png", cwd=tmp_path)
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_types_of_the_package_are_seen_by_its_users(fresh, tmp_path):
    """`py.typed` is where a type checker looks: in the installed package."""
    (tmp_path / "mine.py").write_text("import sgdlimit as sl\n\nreveal_type(sl.solve)\nsl.SGF(temperature=[])\n")
    check = [sys.executable, "-m", "pyright", "--pythonpath", fresh / "python", "mine.py"]
    done = subprocess.run([str(part) for part in check], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search(r'Type of "sl.solve" is "\(problem: Problem, algorithm: Algorithm,.*-> Solution"', done.stdout)
