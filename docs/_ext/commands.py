"""The page of the command line, from the commands themselves."""

from pathlib import Path
from typing import Any

import typer.main
from sphinx.application import Sphinx

PAGE = Path(__file__).parent.parent / "api" / "commands.md"
HEAD = """# Command line

Every command has `--help`. Exit status: 0; 1 if `compare` finds a difference; 2 for input that cannot be used; 3 for a
result that was written and is not what was asked for; 130 after Ctrl-C.
"""


def cell(text: Any) -> str:
    """Within a row of a table."""
    return " ".join(str(text or "").split()).replace("|", "\\|")


def words_of(command: Any) -> str:
    """Its help without the formatting characters, examples as code."""
    text = (command.help or "").replace("\b", "").strip()
    parts = [part.strip() for part in text.split("\n\n")]
    shown = []
    for part in parts:
        example = part.startswith("Example")
        _, _, line = part.partition(":")
        shown.append(f"```\n{line.strip()}\n```" if example else part)
    return "\n\n".join(shown)


def section(name: str, command: Any) -> str:
    """One command: what it does, and its arguments and options."""
    rows = []
    for parameter in command.params:
        option = parameter.param_type_name == "option"
        spelled = ", ".join(f"`{word}`" for word in [*parameter.opts, *parameter.secondary_opts]) if option else ""
        if parameter.name == "help":
            continue
        rows.append(f"| {spelled or f'`{parameter.name.upper()}`'} | {cell(getattr(parameter, 'help', ''))} |")
    table = "\n".join(["| | |", "|---|---|", *rows])
    return f"## `sgdlimit {name}`\n\n{words_of(command)}\n\n{table if rows else ''}\n"


def page() -> str:
    """All commands, in the order of `sgdlimit --help`."""
    from sgdlimit.cli.app import app as application

    group: Any = typer.main.get_command(application)
    commands = getattr(group, "commands", {})
    return HEAD + "\n" + "\n".join(section(name, command) for name, command in commands.items())


def write(app: Sphinx) -> None:
    """Only where it has changed, so that it is not built again."""
    text = page()
    if not PAGE.exists() or PAGE.read_text() != text:
        PAGE.write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Before sources are looked for."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
