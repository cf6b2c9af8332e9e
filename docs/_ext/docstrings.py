"""Docstrings of the package, plain words with `code` and lines such as "tol: how well …", as reStructuredText."""

import dataclasses
import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

NAMED = re.compile(r"(\w+(?:, \w+)*): (\S.*)")
"""A line that explains one or more arguments or fields."""
SPECIAL = re.compile(r"([\\*|_])")


def inline(text: str) -> str:
    """Single backticks are code; whatever else reStructuredText would read is meant as it stands."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backtick
        return SPECIAL.sub(r"\\\1", text.replace("`", "'"))
    return "".join(f"``{part}``" if odd % 2 and part else SPECIAL.sub(r"\\\1", part) for odd, part in enumerate(parts))


def paragraphs(lines: list[str]) -> list[str]:
    """Paragraphs as they are, explanations as a list, each with its continuation lines, examples as code."""
    out: list[str] = []
    listing = False
    for line in lines:
        words = line.strip()
        named = NAMED.fullmatch(line)
        if not words:
            out.append("")
            listing = False
        elif named:
            out += ["", f"- **{inline(named[1])}**: {inline(named[2])}"]
            listing = True
        elif listing:
            out.append(f"  {inline(words)}")
        else:
            out.append(inline(words))
    return [*out, ""]


def rewrite(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """In place, as autodoc asks."""
    lines[:] = paragraphs(lines)


def defaults(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Where a dataclass makes a default for every object, its name: `penalty = NoPenalty()`."""
    if not signature or not dataclasses.is_dataclass(thing):
        return None
    for field in dataclasses.fields(thing):
        factory = field.default_factory
        if factory is not dataclasses.MISSING and field.init:
            made = repr(factory()) if factory in (dict, list) else f"{getattr(factory, '__name__', 'made')}()"
            signature = signature.replace("<factory>", "{}" if made == "Parameters()" else made, 1)
    return signature, returned


def plainly(app: Sphinx, domain: str, kind: str, content: addnodes.desc_content) -> None:
    """`class`, not `final class`: nobody is told not to derive before deriving."""
    for annotation in list(content.parent.findall(addnodes.desc_annotation)):
        if kind == "class" and annotation.astext().startswith("final "):
            annotation.clear()
            annotation += nodes.Text("class ")


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to autodoc."""
    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-process-signature", defaults)
    app.connect("object-description-transform", plainly)
    return {"parallel_read_safe": True}
