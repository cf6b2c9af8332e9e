"""`sgdlimit sweep`: phase diagrams from a problem file."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import SweepWarning, reject
from .common import UNSURE, Force, Problem, command, quiet, writable
from .start import wrote

SHOWN = 40
"""Points that a dry run lists before it cuts short."""


@command("sgdlimit sweep ridge.toml --output diagram.nc --workers 2")
def sweep(
    problem: Problem,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (netCDF).")] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder that keeps finished points; beside the output if not given.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; by default all points run in this one.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Dask cluster to use: tcp://host:8786.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the points and estimate what they take.")] = False,
    force: Force = False,
) -> None:
    """Compute learning curves over the axes of the table `[sweep]`: a phase diagram.

    Every finished point is kept in the store: run again after an interruption, or with more points, it goes on.
    """
    if workers is not None and scheduler is not None:
        raise reject("--workers", workers, "the scheduler has workers of its own; give one of the two")
    if output is None and not dry_run:
        raise reject("--output", "nothing", "name a file to write, such as diagram.nc, or say --dry-run")
    if output is not None:
        writable(output, force, (".nc",))
        store = output.with_suffix(".store") if store is None else store
    from ..sweep import plan_sweep
    from ..sweep import sweep as run
    from .specification import read, sweep_arguments

    specification = read(problem)
    arguments = sweep_arguments(specification)
    arguments["store"] = store
    arguments["executor"] = workers if scheduler is None else scheduler
    if dry_run:
        outline = quiet(lambda: plan_sweep(specification.problem, specification.algorithm, **arguments))
        for point in outline.points[:SHOWN]:
            said = ", ".join(f"{name} = {_short(value)}" for name, value in point.items() if name != "stored")
            typer.echo(f"{said}{'  (stored)' * point['stored']}")
        if len(outline.points) > SHOWN:
            typer.echo(f"… and {len(outline.points) - SHOWN} more")
        typer.echo(repr(outline)[1:-1])
        return
    assert output is not None
    found = quiet(lambda: run(specification.problem, specification.algorithm, **arguments), SweepWarning)
    found.save(output, overwrite=force)
    said = wrote(output)
    typer.echo(repr(found))
    typer.echo(f"{said}; its points are kept in {store}")
    broken = [line for line in found.failed if line["status"] == "failed"]
    if broken:
        typer.echo(f"warning: {len(broken)} points failed; the first: {broken[0]['reason']}", err=True)
        raise typer.Exit(UNSURE)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
