"""Notebooks of the gallery, made from the scripts of `examples/`: the same text and code, without outputs.

    python docs/make_notebooks.py

The docstring becomes the first cell, imports and constants the second, every function one of its own, and the call of
`main` the last. Cells have fixed names, so that the same script gives the same file.
"""

import ast
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

DOCS = Path(__file__).resolve().parent
EXAMPLES, NOTEBOOKS = DOCS.parent / "examples", DOCS / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(script: Path) -> str:
    """The notebook of a script, as the text of its file."""
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree)
    assert docstring is not None, script.name
    cells = [new_markdown_cell(_prose(docstring, script))]
    cells += [new_code_cell(part) for part in _parts(text, tree)]
    cells.append(new_code_cell(f'reports = main("{script.stem}.png")'))
    for index, cell in enumerate(cells):
        cell["id"] = f"{script.stem}-{index}"
    made = new_notebook(cells=cells, metadata=METADATA)
    nbformat.validate(made)
    return nbformat.writes(made) + "\n"


def _prose(docstring: str, script: Path) -> str:
    """The question as a heading, the text below it; the command line is left to the scripts."""
    question, *rest = docstring.split("\n\n")
    shown = [part for part in rest if f"python examples/{script.name}" not in part]
    return "\n\n".join([f"# {' '.join(question.split())}", *shown])


def _parts(text: str, tree: ast.Module) -> list[str]:
    """The source between the docstring and the last block, cut before and after every function, comments included."""
    lines = text.splitlines()
    body = tree.body[1:]
    if isinstance(body[-1], ast.If):  # if __name__ == "__main__"
        body = body[:-1]
    parts: list[str] = []
    begin, function = _end(tree.body[0]), False
    for index, node in enumerate(body):
        own = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if index and (own or function):
            end = _end(body[index - 1])
            parts.append("\n".join(lines[begin:end]))
            begin = end
        function = own
    parts.append("\n".join(lines[begin : _end(body[-1])]))
    return [part.strip("\n") for part in parts if part.strip()]


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def main() -> None:
    """Write every notebook that is not there as it should be; remove those whose script is gone."""
    NOTEBOOKS.mkdir(exist_ok=True)
    scripts = {script.stem: script for script in sorted(EXAMPLES.glob("*.py"))}
    for name, script in scripts.items():
        path, made = NOTEBOOKS / f"{name}.ipynb", notebook(script)
        if not path.exists() or path.read_text(encoding="utf-8") != made:
            path.write_text(made, encoding="utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")
    for path in NOTEBOOKS.glob("*.ipynb"):
        if path.stem not in scripts:
            path.unlink()


if __name__ == "__main__":
    main()
