"""What every command shares: the application, guarded errors, checks of output files."""

import functools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .._version import __version__
from ..errors import DivergenceWarning, InputError, reject

app = typer.Typer(
    help="Exact high-dimensional learning curves of SGD, beside real SGD runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Problem = Annotated[Path, typer.Argument(help="Problem file (TOML); `sgdlimit models --example` prints one.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
TMax = Annotated[float | None, typer.Option(help="Last time t = ηk/d; overrides [run].t_max.")]
Seed = Annotated[int | None, typer.Option(help="Random seed; overrides [run].seed.")]

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
DIVERGED = 3
"""Exit status of a computation that diverged; what it reached has been written."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sgdlimit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Exact high-dimensional learning curves of SGD, beside real SGD runs."""


def command(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command: errors in one line, exit status 2 for bad input, 130 for Ctrl-C."""

    def register(body: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(body)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                body(*args, **kwargs)
            except InputError as error:
                typer.echo(f"error: {error}", err=True)
                raise typer.Exit(2) from None
            except KeyboardInterrupt:
                typer.echo("interrupted: nothing was written", err=True)
                raise typer.Exit(INTERRUPTED) from None

        return app.command(epilog=f"Example: `{example}`")(guarded)

    return register


def writable(path: Path, force: bool, kinds: tuple[str, ...]) -> None:
    """Refuse, before any work, a file that cannot or should not be written."""
    if path.suffix.lower() not in kinds:
        raise reject("--output", path, f"its name must end in {' or '.join(kinds)}")
    if not path.parent.is_dir():
        raise reject("--output", path, f"the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise reject("--output", path, "it is a folder; name a file in it")
    if not os.access(path.parent, os.W_OK):
        raise reject("--output", path, f"the folder {path.parent} cannot be written to; choose another")
    if path.exists() and not force:
        raise reject("--output", path, "the file exists; name another, or say --force to replace it")


def quiet(compute: Any) -> Any:
    """Run, turning divergence warnings into nothing: the result says how it ended, and so do we."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return compute()


def finish(result: Any, output: Path) -> None:
    """Save and describe a result; a divergence is an exit status of its own."""
    result.save(output)
    typer.echo(repr(result))
    typer.echo(f"wrote {output}")
    if not result.success:
        typer.echo(f"warning: {result.message}", err=True)
        raise typer.Exit(DIVERGED)


def headless() -> None:
    """Draw without a display."""
    import matplotlib

    matplotlib.use("Agg")


PICTURE = (".png", ".pdf")


def writable_together(output: Path, force: bool, page: str = ".txt") -> None:
    """Refuse, before any work, a picture whose PNG, PDF or page of numbers cannot be written."""
    writable(output, force, PICTURE)
    for kind in (*PICTURE, page):
        writable(output.with_suffix(kind), force, (kind,))


def write_together(figure: Any, text: str, output: Path, page: str = ".txt") -> None:
    """The picture as PNG and PDF; the numbers on a page beside them and on the screen."""
    import matplotlib

    with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
        for kind in PICTURE:
            figure.savefig(output.with_suffix(kind), dpi=300)
    output.with_suffix(page).write_text(text + "\n", encoding="utf-8")
    typer.echo(text)
    typer.echo(f"wrote {', '.join(str(output.with_suffix(kind)) for kind in (*PICTURE, page))}")
