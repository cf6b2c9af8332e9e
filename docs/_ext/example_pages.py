"""The gallery: a card and a page for every script of examples/, from its docstring and its picture, if it has one."""

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

from sphinx.application import Sphinx

HERE = Path(__file__).parent.parent
EXAMPLES, PICTURES, NOTEBOOKS = HERE.parent / "examples", HERE / "gallery", HERE / "notebooks"


class Example(NamedTuple):
    """One script."""

    stem: str
    title: str
    text: list[str]
    """Paragraphs after the first line."""
    picture: bool
    notebook: bool
    first: int
    """Line of the script after its docstring."""


def read(path: Path) -> Example:
    """What a script says of itself; the line that says how to run it is left to the page."""
    tree = ast.parse(path.read_text())
    words = ast.get_docstring(tree) or path.stem
    title, *text = (re.sub(r"\s+", " ", part).strip() for part in words.split("\n\n"))
    text = [part for part in text if not part.startswith("python examples/")]
    picture, notebook = PICTURES / f"{path.stem}.png", NOTEBOOKS / f"{path.stem}.ipynb"
    first = (tree.body[0].end_lineno or 0) + 2 if ast.get_docstring(tree) else 1
    return Example(path.stem, title.rstrip("."), text, picture.exists(), notebook.exists(), first)


def examples() -> list[Example]:
    """In the order of the list in gallery.md; those that it does not have last."""
    listed = re.findall(r"^\| `examples/(\w+)\.py", (HERE / "gallery.md").read_text(), flags=re.M)
    order = {stem: place for place, stem in reversed(list(enumerate(listed)))}
    found = sorted(EXAMPLES.glob("*.py"), key=lambda path: (order.get(path.stem, len(order)), path.stem))
    return [read(path) for path in found]


def escaped(text: str) -> str:
    """Words of a docstring as Markdown: code stays, asterisks and underscores are themselves."""
    parts = text.split("`")
    return "`".join(part if odd % 2 else re.sub(r"([*_|$])", r"\\\1", part) for odd, part in enumerate(parts))


def card(example: Example) -> str:
    """A thumbnail over the question."""
    image = f":img-top: gallery/{example.stem}.png\n:img-alt: Picture of examples/{example.stem}.py\n"
    head = f":::{{grid-item-card}}\n:link: gallery/{example.stem}\n:link-type: doc\n:class-card: example\n"
    return f"{head}{image if example.picture else ''}\n{escaped(example.title)}\n:::\n"


def cards(found: list[Example]) -> str:
    """All of them on one grid."""
    return "::::{grid} 1 2 2 3\n:gutter: 3\n\n" + "\n".join(map(card, found)) + "::::\n"


def page(example: Example) -> str:
    """Title, picture, what it shows, how to run it, and its source."""
    picture = f"![Picture of examples/{example.stem}.py]({example.stem}.png)\n\n" if example.picture else ""
    run = f"```\npython examples/{example.stem}.py {example.stem}.png\n```\n"
    link = f"{{download}}`{example.stem}.ipynb <../notebooks/{example.stem}.ipynb>`"
    notebook = f"\nThe same as a notebook: {link}.\n" if example.notebook else ""
    text = "\n\n".join(map(escaped, example.text))
    source = (
        f"```{{literalinclude}} ../../examples/{example.stem}.py\n:language: python\n:lines: {example.first}-\n```\n"
    )
    return f"---\norphan: true\n---\n\n# {escaped(example.title)}\n\n{picture}{text}\n\n{run}{notebook}\n{source}"


def write(app: Sphinx) -> None:
    """Pages that are not in version control; unchanged ones are left alone, so that they are not built again."""
    PICTURES.mkdir(exist_ok=True)
    found = examples()
    pages = {example.stem: page(example) for example in found}
    for name, text in (pages | {"cards": cards(found)}).items():
        target = PICTURES / f"{name}.md"
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Before sources are looked for."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
