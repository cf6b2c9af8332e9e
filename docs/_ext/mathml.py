"""Formulas as MathML, which browsers draw by themselves: no script, and nothing is fetched."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def inline(writer: Any, node: nodes.Element) -> None:
    """A formula within a line."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    """A formula on lines of its own, with its number where it has one."""
    number = f"<span class='eqno'>({get_node_equation_number(writer, node)})</span>" if node["number"] else ""
    anchor = f" id='{node['ids'][0]}'" if node["ids"] else ""
    writer.body.append(f"<div class='formula'{anchor}>{convert(node.astext(), display='block')}{number}</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both kinds as a renderer of its own."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
