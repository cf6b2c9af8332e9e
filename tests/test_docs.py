"""The documents tell the truth: blocks of Python and commands run as they stand, every name and example is there.

`python` blocks of a page run one after another in one namespace and one empty folder, `sgdlimit` lines of its other
blocks between them. `py` blocks are for machines that a test has not: job queue and MPI are played by this one.
"""

import ast
import codeop
import inspect
import re
import shlex
import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from test_gallery import module_of
from test_notation import NAME, find
from typer.testing import CliRunner

import sgdlimit as sl

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", flags=re.S | re.M)
QUICK = ("figure", "verify", "frameworks")
"""Commands that take minutes: they are run with --quick, in a test of their own."""
ENDLESS = ("explore",)
"""Commands that do not end; their own tests start them."""
FAST = ("docs/conventions.md", "docs/sweeps.md")


def written(path: Path) -> bool:
    """Not made by the build."""
    made = path.parent == DOCS / "gallery" or path == DOCS / "api" / "commands.md"
    return not made and "_build" not in path.parts


PAGES = [ROOT / "README.md", *(path for path in sorted(DOCS.rglob("*.md")) if written(path))]


def blocks(path: Path) -> list[tuple[str, str]]:
    """(kind, text) of what is run, in the order of the page: python, py, or the sgdlimit lines of another block."""
    found = []
    for kind, text in FENCE.findall(path.read_text()):
        if kind in ("python", "py"):
            found.append((kind, text))
        elif kind in ("", "sh"):
            found += [("sgdlimit", line) for line in text.splitlines() if line.startswith("sgdlimit ")]
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_python(text: str, page: str, namespace: dict) -> None:
    exec(compile(text, page, "exec"), namespace)
    plt.close("all")


def run_command(line: str) -> None:
    """As a shell would, with `> file`."""
    from sgdlimit.cli.app import app

    words = shlex.split(line, comments=True)[1:]
    target = words[-1] if ">" in words else None
    words = words[: words.index(">")] if target else words
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a shell prints them; what they say is in the exit status
        done = CliRunner().invoke(app, words + ["--quick"] * (words[0] in QUICK))
    assert done.exit_code == 0, f"{line}\n{done.output}"
    if target:
        Path(target).write_text(done.stdout)


class Queue:
    """Stands for a cluster of dask-jobqueue: as many threads of this process as it would have jobs, at most two."""

    def __new__(cls, **words):
        assert {"cores", "memory", "walltime"} <= set(words)
        from distributed import LocalCluster

        cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
        cluster.adapt = lambda minimum, maximum: None  # type: ignore[method-assign]
        return cluster


@pytest.fixture
def elsewhere(monkeypatch):
    """Packages of machines that this is not."""
    queue, mpi, futures = (types.ModuleType(name) for name in ("dask_jobqueue", "mpi4py", "mpi4py.futures"))
    queue.SLURMCluster = Queue  # type: ignore[attr-defined]
    futures.MPIPoolExecutor = lambda: ThreadPoolExecutor(2)  # type: ignore[attr-defined]
    for module in (queue, mpi, futures):
        monkeypatch.setitem(sys.modules, module.__name__, module)


RUNNING = [path for path in PAGES if blocks(path)]


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=name_of(p), marks=() if name_of(p) in FAST else pytest.mark.slow) for p in RUNNING],
)
def test_page_runs(path, tmp_path, monkeypatch, elsewhere):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict = {"__name__": "__main__"}
    for kind, text in blocks(path):
        if kind != "sgdlimit":
            run_python(text, name_of(path), namespace)
        elif text.split()[1] not in QUICK + ENDLESS:
            run_command(text)


LONG = sorted(
    {text for path in RUNNING for kind, text in blocks(path) if kind == "sgdlimit" and text.split()[1] in QUICK}
)


@pytest.mark.slow
@pytest.mark.parametrize("line", LONG, ids=lambda line: line.split()[1])
def test_long_command_runs(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_command(line)
    assert list(tmp_path.glob("*.png"))


def test_fast_pages_and_quick_commands_exist():
    """No word of the lists above is out of date."""
    from sgdlimit.cli.app import app

    names = {name_of(path) for path in RUNNING}
    assert set(FAST) <= names
    assert len(names) > 10
    listing = CliRunner().invoke(app, ["--help"]).output
    assert all(command in listing for command in QUICK)
    assert len(LONG) == len(QUICK)


def test_every_block_of_python_is_run():
    """No block escapes by another spelling or by indentation."""
    for path in PAGES:
        marked = re.findall(r"(?:```|~~~|:::)\s*(?:py|python|pycon|ipython\w*)\b", path.read_text())
        assert len(marked) == sum(kind in ("python", "py") for kind, _ in blocks(path)), path


@pytest.mark.parametrize("path", RUNNING, ids=name_of)
def test_calls_of_a_page_are_possible(path):
    """Of those pages too that are slow to run: whatever is called of the package exists and takes these arguments."""
    calls = [
        node
        for kind, text in blocks(path)
        if kind != "sgdlimit"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and re.fullmatch(r"sl(\.\w+)+", ast.unparse(node.func))
    ]
    for call in calls:
        signature = inspect.signature(attrgetter(ast.unparse(call.func).removeprefix("sl."))(sl))
        unpacked = any(isinstance(part, ast.Starred) for part in call.args) or any(not k.arg for k in call.keywords)
        fits = signature.bind_partial if unpacked else signature.bind
        fits(*call.args, **{word.arg: word.value for word in call.keywords if word.arg})


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_blocks_can_be_pasted_into_a_prompt(path):
    """At Python's prompt an indented block ends with an empty line."""
    for kind, text in blocks(path):
        waiting: list[str] = []
        for line in [*text.splitlines(), ""] if kind == "python" else []:
            waiting.append(line)
            if codeop.compile_command("\n".join(waiting)) is not None:
                waiting = []
        assert "".join(waiting) == ""


def test_loop_of_pytorch():
    """The one block that needs a package which is not installed: where it is, its weights are those of NumPy."""
    page = (DOCS / "conventions.md").read_text()
    (block,) = re.findall(r"```\{code-block\} python\n:name: pytorch\n\n(.*?)```", page, flags=re.S)
    compile(block, "conventions.md", "exec")
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    n, d, tau, ridge, steps = 60, 20, 0.05, 0.1, 30
    X, y = rng.normal(size=(n, d)) / np.sqrt(d), rng.choice([-1.0, 1.0], size=n)
    names: dict = {"X": torch.tensor(X), "y": torch.tensor(y), "tau": tau, "B": n, "ridge": ridge, "steps": steps}
    exec(compile(block, "conventions.md", "exec"), names)
    algorithm, end = sl.SGD(tau, batch_size=n), tau * n * steps / d
    runs = sl.simulate_on_data(
        X, y, algorithm, loss=sl.Logistic(), penalty=sl.Ridge(ridge), times=[0.0, end], trials=1, dtype="float64"
    )
    np.testing.assert_allclose(names["theta"].detach().numpy(), runs["theta"][0, -1, :, 0], atol=1e-12)


def test_links_between_documents():
    """Files that a page links to are there."""
    for path in PAGES:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text()):
            assert (path.parent / target).exists(), (name_of(path), target)


def test_every_page_is_in_the_contents():
    """Reached from the front page, directly or by the contents of the reference."""
    listed = {DOCS / "index.md"}
    for index in (DOCS / "index.md", DOCS / "api" / "index.md"):
        for part in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text(), flags=re.S):
            entries = [line for line in part.splitlines() if line and not line.startswith(":")]
            listed |= {index.parent / f"{entry}.md" for entry in entries}
    assert {path for path in PAGES if path.is_relative_to(DOCS)} <= listed


def test_reference_has_every_public_name():
    documented = set()
    for path in (DOCS / "api").glob("*.md"):
        documented |= set(re.findall(r"^\.\. auto\w+:: sgdlimit\.(\S+)$", path.read_text(), flags=re.M))
    modules = {"grid", "plot", "references", "testing"}
    public = {name for name in sl.__all__ if name not in modules | {"__version__"}}
    public |= {f"plot.{name}" for name in sl.plot.__all__ if name.islower()}
    public |= {f"{module}.{name}" for module in ("references", "testing") for name in getattr(sl, module).__all__}
    assert public - documented == set()
    for name in documented:
        assert find(f"sgdlimit.{name}") is not None
    text = (DOCS / "api" / "index.md").read_text()
    assert all(f"`sgdlimit.{module}`" in text for module in modules)


@pytest.mark.parametrize("name", sorted(set(NAME.findall((DOCS / "theory.md").read_text()))))
def test_name_of_the_theory_exists(name):
    assert find(name) is not None


def extension(name: str):
    """A module of docs/_ext, where its own packages are installed."""
    pytest.importorskip("sphinx")
    return module_of(DOCS / "_ext" / f"{name}.py")


def test_every_example_has_a_card_and_a_page():
    pages = extension("example_pages")
    found = pages.examples()
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")}
    grid = pages.cards(found)
    assert {example.stem for example in found} == scripts
    for example in found:
        assert f":link: gallery/{example.stem}\n" in grid
        assert example.picture == (DOCS / "gallery" / f"{example.stem}.png").exists()
        assert (f"gallery/{example.stem}.png" in grid) == example.picture
        assert example.title[:20] in (ROOT / "examples" / f"{example.stem}.py").read_text()
        assert example.text
        assert f"python examples/{example.stem}.py" in pages.page(example)


def test_docstrings_as_text():
    rewrite = extension("docstrings").paragraphs
    lines = ["Curves of `solve`, θ* and |w|².", "", "tol: how well `x_y`", "    it is known.", "a, b: two", "", "End."]
    assert rewrite(lines) == [
        r"Curves of ``solve``, θ\* and \|w\|².", "", "", "- **tol**: how well ``x_y``", "  it is known.", "",
        "- **a, b**: two", "", "End.", "",
    ]  # fmt: skip


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path):
    """What `make docs` does; nothing but local files in what it writes."""
    for package in ("furo", "latex2mathml", "myst_parser", "sphinx_copybutton", "sphinx_design", "ziamath"):
        pytest.importorskip(package)
    build = pytest.importorskip("sphinx.cmd.build")
    assert build.build_main(["-b", "html", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path)]) == 0
    built = list(tmp_path.rglob("*.html"))
    assert len(built) > len(PAGES)
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"'](?:https?:)?//", flags=re.I)
    for page in built:
        assert not loaded.search(page.read_text()), page
    assert (tmp_path / "theory.html").read_text().count("<math") > 20
