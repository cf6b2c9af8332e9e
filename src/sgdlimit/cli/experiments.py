"""`sgdlimit figure | verify | frameworks`: the paper, reproduced and tested."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import Force, Output, command, writable, write_picture
from .start import wrote

if TYPE_CHECKING:
    from ..plot.panels import Given

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


def _write(axes: "Given", text: str, output: Path, page: str = ".txt") -> None:
    """Write the picture as PNG and PDF, and its numbers on a page beside them and on the screen."""
    import matplotlib

    from ..results.files import destination, replace

    with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
        for kind in PICTURE:
            write_picture(axes, output.with_suffix(kind), dpi=300)
    replace(destination("--output", output.with_suffix(page), overwrite=True), f"{text}\n".encode(), "--output")
    said = wrote(*(output.with_suffix(kind) for kind in (*PICTURE, page)))
    typer.echo(f"{text}\n{said}")
