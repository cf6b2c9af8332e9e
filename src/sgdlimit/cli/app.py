"""The commands: the paper's experiments, and `solve | simulate | sweep | compare | plot | models | explore`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import reject
from .common import UNSURE, app, command, finish, interruptible, quiet, read_result, writable, write_picture
from .start import INTERRUPTED, wrote

Problem = Annotated[Path, typer.Argument(help="Problem file (TOML); `sgdlimit models --example` prints one.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
TMax = Annotated[float | None, typer.Option(help="Last time t = ηk/d; overrides [run].t_max.")]
Checkpoint = Annotated[Path | None, typer.Option(help="File to resume from and to keep up to date (dmft, simulate).")]
Seed = Annotated[int | None, typer.Option(help="Random seed; overrides [run].seed.")]
Average = Annotated[str | None, typer.Option(help="Of the iterates: the average of this name in every result.")]
Quick = Annotated[bool, typer.Option("--quick", help="A smaller version, for a first look.")]
RandomSeed = Annotated[int, typer.Option("--seed", help="Random seed.")]
PICTURE = (".png", ".pdf")


@command("sgdlimit figure --output figure.png")
def figure(
    output: Output = Path("figure.png"), quick: Quick = False, seed: RandomSeed = 0, force: Force = False
) -> None:
    """Draw the paper's experiment: logistic regression, runs and laws, and the table of how they agree.

    Writes the picture as PNG and PDF, and the table as TXT beside them.
    """
    _check(output, force)
    from .. import figures, plot

    result = figures.paper_figure(figures.QUICK if quick else figures.FULL, seed=seed)
    _write(plot.paper_figure(result), result.table(), output)


@command("sgdlimit verify --output verify.png")
def verify(
    output: Output = Path("verify.png"), quick: Quick = False, seed: RandomSeed = 0, force: Force = False
) -> None:
    """Put the theorems to the test: distances to the limit against d and against the time step, with fitted rates.

    Writes the picture as PNG and PDF, and the table as TXT beside them.
    """
    _check(output, force)
    from .. import plot, verification

    result = verification.verify(verification.QUICK if quick else verification.FULL, seed=seed)
    _write(plot.verification(result), result.table(), output)


@command("sgdlimit frameworks --output frameworks.png")
def frameworks(
    output: Output = Path("frameworks.png"), quick: Quick = False, seed: RandomSeed = 0, force: Force = False
) -> None:
    """Ask every framework for the same runs: where does each hold, and where does it fail?

    Online SGD, proportional batches, homogenised SGD, gradient flow, SGF and SGD. Writes the picture as PNG and PDF,
    and the table as MD beside them.
    """
    _check(output, force, ".md")
    from .. import frameworks, plot

    result = frameworks.table(frameworks.QUICK if quick else frameworks.FULL, seed=seed)
    _write(plot.frameworks(result), result.page(), output, ".md")


def _check(output: Path, force: bool, page: str = ".txt") -> None:
    """Refuse, before any work, a picture whose PNG, PDF or page of numbers cannot be written."""
    writable(output, force, PICTURE)
    for kind in (*PICTURE, page):
        writable(output.with_suffix(kind), force, (kind,))


def _write(axes: object, text: str, output: Path, page: str = ".txt") -> None:
    """Write the picture as PNG and PDF, and its numbers on a page beside them and on the screen."""
    import matplotlib

    from ..results.files import destination, replace

    with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
        for kind in PICTURE:
            write_picture(axes, output.with_suffix(kind), dpi=300)
    replace(destination("--output", output.with_suffix(page), overwrite=True), f"{text}\n".encode(), "--output")
    said = wrote(*(output.with_suffix(kind) for kind in (*PICTURE, page)))
    typer.echo(f"{text}\n{said}")


@command("sgdlimit solve ridge.toml --output theory.nc")
def solve(
    problem: Problem,
    output: Output,
    theory: Annotated[str, typer.Option(help="auto, dmft, least-squares or online.")] = "auto",
    t_max: TMax = None,
    dt: Annotated[float | None, typer.Option(help="Time step (dmft); overrides [run].dt.")] = None,
    samples: Annotated[int | None, typer.Option(help="Monte Carlo samples (dmft, online).")] = None,
    extrapolate: Annotated[bool | None, typer.Option(help="To the limit of small steps (dmft; on by itself).")] = None,
    seed: Seed = None,
    kernels: Annotated[bool | None, typer.Option(help="Also write the two-time kernels (dmft, least-squares).")] = None,
    tol: Annotated[float | None, typer.Option(help="Error of a curve relative to its largest value (dmft).")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after so long with the best so far (dmft).")] = None,
    checkpoint: Checkpoint = None,
    force: Force = False,
) -> None:
    """Predict learning curves in the limit, for any loss (dmft), or exactly where that is known.

    auto takes least squares (Volterra) for ridge regression, online for infinite data, and dmft for everything else.
    """
    writable(output, force, (".nc",))
    from .specification import read, solve_specification

    given = {"t_max": t_max, "dt": dt, "samples": samples, "extrapolate": extrapolate, "seed": seed, "kernels": kernels}
    given |= {"tol": tol, "max_seconds": max_seconds, "checkpoint": checkpoint}
    specification = read(problem).override(**given)
    finish(quiet(lambda: solve_specification(specification, theory)), output, force)


@command("sgdlimit simulate ridge.toml --dim 1024 --trials 10 --output runs.nc")
def simulate(
    problem: Problem,
    output: Output,
    dim: Annotated[int | None, typer.Option(help="Dimension d; overrides [run].dim.")] = None,
    trials: Annotated[int | None, typer.Option(help="Independent runs; overrides [run].trials.")] = None,
    t_max: TMax = None,
    seed: Seed = None,
    checkpoint: Checkpoint = None,
    force: Force = False,
) -> None:
    """Run the algorithm at finite size, several times with independent data."""
    writable(output, force, (".nc",))
    from .specification import read, simulate_specification

    specification = read(problem).override(dim=dim, trials=trials, t_max=t_max, seed=seed, checkpoint=checkpoint)
    finish(quiet(lambda: simulate_specification(specification)), output, force)


@command("sgdlimit sweep ridge.toml --output diagram.nc --workers 2")
def sweep(
    problem: Problem,
    output: Output,
    store: Annotated[
        Path | None, typer.Option(help="Folder that keeps finished points; beside the output if not given.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; by default all points run in this one.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Dask cluster to use: tcp://host:8786.")] = None,
    force: Force = False,
) -> None:
    """Compute learning curves over the axes of the table `[sweep]`: a phase diagram.

    Every finished point is kept in the store: run again after an interruption, or with more points, it goes on.
    """
    if workers is not None and scheduler is not None:
        raise reject("--workers", workers, "the scheduler has workers of its own; give one of the two")
    writable(output, force, (".nc",))
    from ..sweep import sweep as run
    from .specification import read, sweep_arguments

    specification = read(problem)
    arguments = sweep_arguments(specification)
    arguments["store"] = store = output.with_suffix(".store") if store is None else store
    arguments["executor"] = workers if scheduler is None else scheduler
    found = quiet(lambda: run(specification.problem, specification.algorithm, **arguments))
    found.save(output, overwrite=force)
    said = wrote(output)
    typer.echo(repr(found))
    typer.echo(f"{said}; its points are kept in {store}")
    broken = [line for line in found.failed if line["status"] == "failed"]
    if broken:
        typer.echo(f"warning: {len(broken)} points failed; the first: {broken[0]['reason']}", err=True)
        raise typer.Exit(UNSURE)


@command("sgdlimit compare runs.nc theory.nc")
def compare(
    first: Annotated[Path, typer.Argument(help="Result file.")],
    second: Annotated[Path, typer.Argument(help="Result file.")],
    within: Annotated[float, typer.Option(help="Exit with status 1 if any |z| is larger.")] = 4.0,
    false_alarm: Annotated[
        float | None,
        typer.Option(help="Judge whole curves by one test instead: exit with status 1 if its p-value is smaller."),
    ] = None,
    average: Average = None,
) -> None:
    """Compare two results: point by point in units of the combined standard error, and whole curves by one test."""
    from ..comparison import compare as compare_results

    report = compare_results(*(read_result(path, average) for path in (first, second)))
    agree = report.agrees(within, false_alarm=false_alarm)
    typer.echo(repr(report))
    if not agree:
        point = f"max |z| = {report.largest:.2f} is above {within:g}"
        whole = f"p = {report.p_value:.2g} is below {false_alarm}"
        passed = report.sigma <= within if false_alarm is None else report.p_value >= false_alarm
        wide = f"the errors of {', '.join(report.unresolved)} are too large"
        words = f"cannot tell: {wide}" if passed else f"disagree: {point if false_alarm is None else whole}"
        typer.echo(words, err=True)
        raise typer.Exit(1)


@command("sgdlimit plot runs.nc theory.nc --output curves.png")
def plot(
    results: Annotated[list[Path], typer.Argument(help="Result files.")],
    output: Output,
    variable: Annotated[list[str] | None, typer.Option(help="What to draw; may be repeated.")] = None,
    x: Annotated[str, typer.Option(help="Against time or epochs.")] = "time",
    log_time: Annotated[bool, typer.Option(help="Logarithmic axis of time or epochs.")] = False,
    log_value: Annotated[bool, typer.Option(help="Logarithmic value axis.")] = False,
    average: Average = None,
    force: Force = False,
) -> None:
    """Draw learning curves of results."""
    writable(output, force, (".png", ".pdf", ".svg"))
    from ..plot import learning_curves

    loaded = [read_result(path, average) for path in results]
    axes = learning_curves(*loaded, variables=variable, x=x, log_time=log_time, log_value=log_value)
    write_picture(axes, output, dpi=200)
    typer.echo(wrote(output))


@command("sgdlimit models --example > ridge.toml")
def models(
    name: Annotated[str | None, typer.Argument(help="Show one model only.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a problem file to start from.")] = False,
) -> None:
    """List losses, labels, penalties, laws, schedules and algorithms, with their parameters."""
    from .specification import EXAMPLE, list_models

    typer.echo(EXAMPLE if example else list_models(name), nl=not example)


@command("sgdlimit explore")
def explore(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but the loopback opens it to others.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name under which a browser may ask; may be repeated.")
    ] = None,
) -> None:
    """Open a local page: choose a problem, drag sliders, and see curves, kernels and runs at once.

    Needs the extra: pip install "sgdlimit[explore]". Ctrl-C ends it.
    """
    from ..explore.serve import explore as serve

    with interruptible():
        serve(host, port, browser=browser, hosts=tuple(allow_host or ()))


def main() -> None:
    """Run the command that the shell named, and leave at once after Ctrl-C."""
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            # Compiled work may still run in threads that Python cannot stop: leave without tearing them down.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise
