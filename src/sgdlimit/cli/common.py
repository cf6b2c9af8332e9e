"""What every command shares: the application, guarded errors, Ctrl-C, checks of output files."""

import contextlib
import errno
import functools
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .._version import __version__
from ..errors import InputError, Interrupted, reject, told_by_status
from .start import INTERRUPTED, leave, outcome, wrote

if TYPE_CHECKING:
    from ..results import Result

T = TypeVar("T")

app = typer.Typer(
    help="Exact high-dimensional learning curves of SGD, beside real SGD runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

UNSURE = 3
"""Exit status of a result that is not what was asked for: diverged, unreliable, out of time; it has been written."""
STATUS = {"complete": 0, "interrupted": INTERRUPTED}
"""Exit status by how the result ended; all others are UNSURE."""


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
    os.environ["MPLBACKEND"] = "Agg"  # drawing that needs no display


def command(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command: errors in one line, exit status 2 for bad input, 130 for Ctrl-C."""

    def register(body: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(body)
        def guarded(*args: object, **kwargs: object) -> None:
            try:
                body(*args, **kwargs)
            except SystemExit as end:
                typer.echo(f"error: a function of the problem file ended the program: sys.exit({end.code})", err=True)
                raise typer.Exit(2) from None
            except (InputError, OSError) as error:
                if getattr(error, "errno", None) == errno.EPIPE:
                    raise  # whoever reads has enough
                typer.echo(f"error: {error}", err=True)
                raise typer.Exit(2) from None
            except KeyboardInterrupt as stop:
                typer.echo(f"interrupted: {str(stop) or outcome()}", err=True)
                raise typer.Exit(INTERRUPTED) from None

        return app.command(epilog=f"Example: `{example}`")(guarded)

    return register


def writable(path: Path, force: bool, kinds: tuple[str, ...]) -> None:
    """Refuse, before any work, a file that cannot or should not be written."""
    if path.suffix.lower() not in kinds:
        raise reject("--output", path, f"its name must end in {' or '.join(kinds)}")
    from ..results.files import destination

    destination("--output", path, force, "say --force to replace it")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Here Ctrl-C is a KeyboardInterrupt; elsewhere the command leaves at once."""
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _again
    try:
        yield
    finally:
        sys.unraisablehook = sys.__unraisablehook__
        signal.signal(signal.SIGINT, leave)


def _again(lost: "sys.UnraisableHookArgs") -> None:
    """A KeyboardInterrupt that fell into a callback of the garbage collector, where jax has one, comes once more."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    main = threading.main_thread().ident
    later = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT])  # to wake it, should it sleep
    later.daemon = True
    later.start()


def quiet(compute: Callable[[], T]) -> T:
    """Run, turning warnings about the result into nothing: it says how it ended, and so do we.

    After Ctrl-C the best result so far, where there is one.
    """
    with interruptible(), told_by_status():
        try:
            return compute()
        except Interrupted as stop:
            return stop.result


def finish(result: "Result", output: Path, force: bool) -> None:
    """Save and describe a result; if it is not what was asked for, say so and exit with a status that says so too.

    One that was interrupted does not take the place of what was asked for: run.interrupted.nc instead of run.nc.
    """
    if result.status == "interrupted":
        output, force = output.with_suffix(f".interrupted{output.suffix}"), True
    with interruptible():
        try:
            result.save(output, overwrite=force)
        except InputError as error:  # the disk filled up or the folder went away: the result is put elsewhere
            try:
                saved = result.save(Path(tempfile.mkdtemp(prefix="sgdlimit-")) / output.name)
            except (InputError, OSError):
                raise error from None
            raise InputError(f"{error}; the result is in {saved}") from None
    said = wrote(output)
    typer.echo(repr(result))
    typer.echo(said)
    if status := STATUS.get(result.status, UNSURE):
        typer.echo(f"warning: {result.status}{f': {result.message}' * bool(result.message)}", err=True)
        raise typer.Exit(status)


def read_result(path: Path, average: str | None) -> Any:
    """A result from its file, or what it has of an average of the iterates."""
    from ..results import load

    result = load(path)
    if average is None:
        return result
    if average not in result.averages:
        known = ", ".join(result.averages) or "none"
        raise reject("--average", average, f"{path} has averages of the iterates: {known}")
    return result.averages[average]


def write_picture(axes: object, output: Path, dpi: int) -> None:
    """Write the picture that the axes belong to, whole or not at all."""
    import numpy as np

    from ..results.files import destination, replace

    content = io.BytesIO()
    np.ravel(np.asarray(axes, dtype=object))[0].figure.savefig(content, format=output.suffix[1:].lower(), dpi=dpi)
    replace(destination("--output", output, overwrite=True), content.getvalue(), "--output")
