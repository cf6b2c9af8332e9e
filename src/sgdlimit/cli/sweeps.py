"""`sgdlimit sweep`: phase diagrams from a problem file."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import SweepWarning, reject
from .common import UNSURE, Force, Output, Problem, command, quiet, writable
from .start import wrote


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
    found = quiet(lambda: run(specification.problem, specification.algorithm, **arguments), SweepWarning)
    found.save(output, overwrite=force)
    said = wrote(output)
    typer.echo(repr(found))
    typer.echo(f"{said}; its points are kept in {store}")
    broken = [line for line in found.failed if line["status"] == "failed"]
    if broken:
        typer.echo(f"warning: {len(broken)} points failed; the first: {broken[0]['reason']}", err=True)
        raise typer.Exit(UNSURE)
