"""What the last release offered is still there: names, arguments in their places, variables, commands and options.

`tests/data/public.txt` is the surface of that release. What is new may be missing there; nothing in it may be missing
here. At a release, `python tests/test_stability.py` writes it anew.
"""

import enum
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml

import sgdlimit as sl
from sgdlimit.cli.app import app
from sgdlimit.cli.specification import run_keys
from sgdlimit.dmft import curves
from sgdlimit.errors import parameters_of
from sgdlimit.results.quality import Status
from sgdlimit.results.variables import BESIDE, TABLE
from sgdlimit.solver import solve_many

ROOT = Path(__file__).parent.parent
RELEASE = ROOT / "tests" / "data" / "public.txt"
TAKEN = inspect.Parameter
RESULTS = (sl.Solution, sl.Runs, sl.Report, sl.Sweep, sl.Fitted)
"""Of models the constructor is public; the contracts of their rooms, by which rooms talk to each other, are not."""
PLACED = (TAKEN.POSITIONAL_ONLY, TAKEN.POSITIONAL_OR_KEYWORD, TAKEN.VAR_POSITIONAL)


def spoken(function) -> str:
    """'a b? | c?': arguments by place, those by name after the bar, a question mark where they may be left out."""
    words = {True: [], False: []}
    for name, taken in parameters_of(function).items():
        optional = taken.default is not TAKEN.empty or taken.kind in (TAKEN.VAR_POSITIONAL, TAKEN.VAR_KEYWORD)
        if name != "self":
            words[taken.kind in PLACED].append(name + "?" * optional)
    return " ".join([*words[True], "|", *words[False]])


def members(name: str, cls: type) -> Iterator[tuple[str, str]]:
    """Methods with their arguments, and properties."""
    for own in dir(cls):
        what = inspect.getattr_static(cls, own)
        if own.startswith("_"):
            continue
        method = inspect.isfunction(what) or isinstance(what, classmethod | staticmethod)
        yield f"{name}.{own}", spoken(getattr(cls, own)) if method else ""


def surface() -> dict[str, str]:
    """Everything that docs/stability.md calls public, by name."""
    found: dict[str, str] = {}
    for name in sl.__all__:
        what = getattr(sl, name)
        if inspect.isclass(what):
            found[name] = "class" if issubclass(what, Exception) else spoken(what)
            found |= dict(members(name, what)) if what in RESULTS else {}
        elif inspect.ismodule(what):
            here = [part for part, value in vars(what).items() if getattr(value, "__module__", "") == what.__name__]
            own = {part: getattr(what, part) for part in getattr(what, "__all__", here) if part[0] != "_"}
            found |= {f"{name}.{part}": spoken(value) if callable(value) else "" for part, value in own.items()}
        else:
            found[name] = spoken(what) if callable(what) else ""
    found |= {"dmft.curves": spoken(curves), "solver.solve_many": spoken(solve_many)}
    found |= {f"variable {name}": " ".join(entry.dims) for name, entry in TABLE.items()}
    found |= {f"beside {ending}": "" for ending in BESIDE}
    found |= {f"status {word}": "" for word in Status}
    found |= {f"run {key}": "" for key in run_keys()}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        found |= {f"command {name} {option}": "" for part in command.params for option in part.opts}
    return {name: " ".join(words.split()) for name, words in found.items()}


def broken(old: str, new: str) -> str:
    """What a call that was good with `old` arguments meets with `new` ones; empty: nothing."""
    (placed, named), (placed_, named_) = ([part.split() for part in words.split("|")] for words in (old, new))
    known = {word.rstrip("?"): word.endswith("?") for word in placed_ + named_}
    for word in placed + named:
        name, optional = word.rstrip("?"), word.endswith("?")
        if name not in known:
            return f"{name} is gone"
        if optional and not known[name]:
            return f"{name} must now be given"
    before, now = ([word.rstrip("?") for word in words] for words in (placed, placed_))
    if now[: len(before)] != before:
        return f"places have changed from {before} to {now}"
    asked = [name for name, optional in known.items() if not optional]
    fresh = [name for name in asked if name not in {word.rstrip("?") for word in placed + named}]
    return f"{fresh} must be given, and did not exist" if fresh else ""


def released() -> dict[str, str]:
    lines = [line for line in RELEASE.read_text().splitlines() if line and not line.startswith("#")]
    return {name: words.strip() for name, _, words in (line.partition(":") for line in lines)}


def test_nothing_public_is_gone():
    """Removed only after it was deprecated (docs/stability.md): then take it out of the file, too."""
    now, before = surface(), released()
    assert len(before) > 200
    faults = []
    for name, words in before.items():
        if name not in now:
            faults.append(f"{name} is gone")
        elif "|" in words and "|" in now[name]:
            faults += [f"{name}: {fault}"] if (fault := broken(words, now[name])) else []
        elif words != now[name]:
            faults.append(f"{name} was {words!r} and is {now[name]!r}")
    assert faults == []


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("a b? | c?", "a b? | c? d?", ""),
        ("a b? | c?", "a b? c? |", ""),
        ("a b? | c?", "a b? |", "c is gone"),
        ("a b? | c?", "b? a | c?", "places"),
        ("a b? | c?", "a z? b? | c?", "places"),
        ("a b? | c?", "a | b? c?", "places"),
        ("a b? | c?", "a b? | c", "c must now be given"),
        ("a b? | c?", "a b? | c? d", "did not exist"),
    ],
)
def test_what_breaks_a_call_is_seen(old, new, word):
    assert word in broken(old, new)
    assert bool(word) == bool(broken(old, new))


def test_status_words_are_few():
    assert issubclass(Status, enum.StrEnum)
    page = (ROOT / "docs" / "stability.md").read_text()
    assert "six words of `status`" in page
    assert len(Status) == 6


def test_one_version_everywhere():
    """The package, the citation, the README and the newest section of the changelog."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == sl.__version__
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert newest is not None
    assert newest[1] == sl.__version__
    readme = (ROOT / "README.md").read_text()
    assert f"version = {{{sl.__version__}}}" in readme
    paper = citation["preferred-citation"]
    assert paper["title"] in " ".join(readme.split())
    assert all(f"{who['family-names']}, {who['given-names']}" in readme for who in paper["authors"])


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_do_what_the_project_says():
    """Every supported Python is tested, and every target and file that a workflow names exists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert supported[0] == project["requires-python"].removeprefix(">=")
    assert {path.stem for path in WORKFLOWS} >= {"checks", "docs", "release", "slow"}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            assert job["timeout-minutes"] > 0
            assert job.get("strategy", {}).get("matrix", {}).get("python", supported) == supported
            commands = [step["run"] for step in job["steps"] if "run" in step]
            assert set(re.findall(r"\bmake ([\w-]+)", " ".join(commands))) <= targets, path.name
            assert all((ROOT / name).exists() for name in re.findall(r"(?:src|benchmarks)/\S+", " ".join(commands)))


def test_issue_forms_ask_for_what_is_needed():
    forms = {path.stem: path.read_text() for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"bug", "config", "feature", "wrong_curve"}
    for name in ("bug", "feature", "wrong_curve"):
        form = yaml.safe_load(forms[name])
        assert {"name", "description", "body"} <= set(form)
        kinds = [part["type"] for part in form["body"]]
        assert set(kinds) <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert any(part.get("validations", {}).get("required") for part in form["body"])
    assert "sgdlimit --version" in forms["bug"]
    assert "theory.save(" in forms["wrong_curve"]


if __name__ == "__main__":
    head = f"# The public surface of sgdlimit {sl.__version__}: see tests/test_stability.py.\n"
    RELEASE.write_text(head + "".join(f"{name}: {words}\n".replace(": \n", ":\n") for name, words in surface().items()))
