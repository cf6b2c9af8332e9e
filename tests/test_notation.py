"""docs/notation.md is true: its names exist, the code cites its equations, and no label of the paper is missing."""

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "notation.md").read_text()
PAPER = ROOT.parent / "shared" / "paper.tex"
NAME = re.compile(r"`(sgdlimit(?:\.\w+)+)`")
LABEL = re.compile(r"`((?:eq|prop|lem|thm|cor|tab|fig|ass|app|sec):[^`]+)`")
KINDS = ("eq", "prop", "lem", "thm", "cor", "tab", "fig")
"""Labels that the two tables must hold; sections and assumptions may be cited."""


def section(title: str) -> list[list[str]]:
    """Cells of the rows of the one table under a heading; a line that breaks the table is an error."""
    lines = PAGE.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
    rows = [i for i, line in enumerate(lines) if line.startswith("|")]
    assert rows == list(range(rows[0], rows[-1] + 1)), f"the table under {title} is broken"
    return [[cell.strip() for cell in lines[i].strip("|").split("|")] for i in rows[2:]]


IMPLEMENTED, LEFT_OUT = section("Equations"), section("Not implemented")


def find(name: str):
    """The object behind a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
            continue
        for attribute in parts[cut:]:
            thing = getattr(thing, attribute)
        return thing
    raise AssertionError(name)


@pytest.mark.parametrize("name", sorted(set(NAME.findall(PAGE))))
def test_name_exists(name):
    assert find(name) is not None


def cites(name: str, label: str) -> bool:
    """Whether the object or its module names the label."""
    return re.search(rf"{re.escape(label)}(?![\w-])", inspect.getsource(inspect.getmodule(find(name)))) is not None


@pytest.mark.parametrize("row", IMPLEMENTED, ids=lambda row: row[0])
def test_code_cites_the_equation(row):
    """Every label of a row is named in the source of one of its functions, and every function's names one of them."""
    paper, what, where = row
    labels, names = LABEL.findall(paper), NAME.findall(where)
    assert what
    assert names
    for label in labels:
        assert any(cites(name, label) for name in names), f"none of {names} cites {label}"
    for name in names:
        assert not labels or any(cites(name, label) for label in labels), f"{name} cites none of {labels}"


def test_every_label_has_its_place():
    """Each label of an equation or statement stands in the first column of exactly one table."""
    assert all(reason and LABEL.findall(paper) for paper, reason in LEFT_OUT)
    placed = Counter(label for row in IMPLEMENTED + LEFT_OUT for label in LABEL.findall(row[0]))
    assert len(placed) > 100
    assert [label for label, count in placed.items() if count > 1] == []
    if not PAPER.exists():
        return
    labels = set(re.findall(r"\\label\{([^}]+)\}", PAPER.read_text()))
    assert set(LABEL.findall(PAGE)) <= labels
    assert {label for label in labels if label.split(":")[0] in KINDS} - set(placed) == set()
