"""`sgdlimit figure | solve | simulate | compare | plot | models`."""

import functools
import os
import sys
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


def _command(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
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


def _writable(path: Path, force: bool, kinds: tuple[str, ...]) -> None:
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


def _quiet(compute: Any) -> Any:
    """Run, turning divergence warnings into nothing: the result says how it ended, and so do we."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        return compute()


def _finish(result: Any, output: Path) -> None:
    result.save(output)
    typer.echo(repr(result))
    typer.echo(f"wrote {output}")
    if not result.success:
        typer.echo(f"warning: {result.message}", err=True)
        raise typer.Exit(DIVERGED)


@_command("sgdlimit figure --output figure.png")
def figure(
    output: Output = Path("figure.png"),
    quick: Annotated[bool, typer.Option(help="A smaller version, in seconds.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    force: Force = False,
) -> None:
    """Draw SGD runs of ridge regression on the exact curve, and print how they agree."""
    _writable(output, force, (".png", ".pdf", ".svg"))
    import matplotlib

    matplotlib.use("Agg")
    from ..figures import ridge_figure
    from ..plot import learning_curves

    result = ridge_figure(dim=400, trials=4, seed=seed) if quick else ridge_figure(seed=seed)
    axes: Any = learning_curves(*result.runs, *result.theories)
    axes[0].figure.savefig(output, dpi=200)
    for theory, report in zip(result.theories, result.reports, strict=True):
        typer.echo(f"τ = {theory.about['algorithm']['temperature']:g}: {report}\n")
    typer.echo(f"wrote {output}")


@_command("sgdlimit solve ridge.toml --output theory.nc")
def solve(
    problem: Problem,
    output: Output,
    theory: Annotated[str, typer.Option(help="auto, dmft, least-squares or online.")] = "auto",
    t_max: TMax = None,
    dt: Annotated[float | None, typer.Option(help="Time step (dmft); overrides [run].dt.")] = None,
    samples: Annotated[int | None, typer.Option(help="Monte Carlo samples (dmft, online).")] = None,
    extrapolate: Annotated[bool | None, typer.Option(help="Remove the time-step error (dmft).")] = None,
    seed: Seed = None,
    kernels: Annotated[bool | None, typer.Option(help="Also write the two-time kernels (dmft, least-squares).")] = None,
    force: Force = False,
) -> None:
    """Predict learning curves in the limit, for any loss (dmft), or exactly where that is known.

    auto takes least squares (Volterra) for ridge regression, online for infinite data, and dmft for everything else.
    """
    _writable(output, force, (".nc",))
    from .specification import read, solve_specification

    given = {"t_max": t_max, "dt": dt, "samples": samples, "extrapolate": extrapolate, "seed": seed, "kernels": kernels}
    specification = read(problem).override(**given)
    _finish(_quiet(lambda: solve_specification(specification, theory)), output)


@_command("sgdlimit simulate ridge.toml --dim 1024 --trials 10 --output runs.nc")
def simulate(
    problem: Problem,
    output: Output,
    dim: Annotated[int | None, typer.Option(help="Dimension d; overrides [run].dim.")] = None,
    trials: Annotated[int | None, typer.Option(help="Independent runs; overrides [run].trials.")] = None,
    t_max: TMax = None,
    seed: Seed = None,
    force: Force = False,
) -> None:
    """Run the algorithm at finite size, several times with independent data."""
    _writable(output, force, (".nc",))
    from .specification import read, simulate_specification

    specification = read(problem).override(dim=dim, trials=trials, t_max=t_max, seed=seed)
    _finish(_quiet(lambda: simulate_specification(specification)), output)


@_command("sgdlimit compare runs.nc theory.nc")
def compare(
    first: Annotated[Path, typer.Argument(help="Result file.")],
    second: Annotated[Path, typer.Argument(help="Result file.")],
    within: Annotated[float, typer.Option(help="Exit with status 1 if any |z| is larger.")] = 4.0,
) -> None:
    """Compare two results point by point, in units of the combined standard error."""
    from ..comparison import compare as compare_results
    from ..results import load

    report = compare_results(load(first), load(second))
    typer.echo(repr(report))
    if not report.agrees(within):
        typer.echo(f"disagree: max |z| = {report.largest:.2f} is above {within:g}", err=True)
        raise typer.Exit(1)


@_command("sgdlimit plot runs.nc theory.nc --output curves.png")
def plot(
    results: Annotated[list[Path], typer.Argument(help="Result files.")],
    output: Output,
    variable: Annotated[list[str] | None, typer.Option(help="What to draw; may be repeated.")] = None,
    log_time: Annotated[bool, typer.Option(help="Logarithmic time axis.")] = False,
    log_value: Annotated[bool, typer.Option(help="Logarithmic value axis.")] = False,
    force: Force = False,
) -> None:
    """Draw learning curves of results."""
    _writable(output, force, (".png", ".pdf", ".svg"))
    import matplotlib

    matplotlib.use("Agg")
    from ..plot import learning_curves
    from ..results import load

    loaded = [load(path) for path in results]
    axes: Any = learning_curves(*loaded, variables=variable, log_time=log_time, log_value=log_value)
    axes[0].figure.savefig(output, dpi=200)
    typer.echo(f"wrote {output}")


@_command("sgdlimit models --example > ridge.toml")
def models(
    name: Annotated[str | None, typer.Argument(help="Show one model only.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a problem file to start from.")] = False,
) -> None:
    """List losses, labels, penalties, laws, schedules and algorithms, with their parameters."""
    from .specification import EXAMPLE, list_models

    typer.echo(EXAMPLE if example else list_models(name), nl=not example)


def main() -> None:
    """Entry point."""
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            # Compiled work may still run in threads that Python cannot stop: leave without tearing them down.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise
