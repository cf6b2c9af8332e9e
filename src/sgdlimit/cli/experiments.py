"""`sgdlimit figure | verify | frameworks`: the paper, reproduced and tested."""

from pathlib import Path
from typing import Annotated

import typer

from .common import Force, Output, command, headless, writable_together, write_together

Quick = Annotated[bool, typer.Option("--quick", help="A smaller version, for a first look.")]
RandomSeed = Annotated[int, typer.Option("--seed", help="Random seed.")]


@command("sgdlimit figure --output figure.png")
def figure(
    output: Output = Path("figure.png"), quick: Quick = False, seed: RandomSeed = 0, force: Force = False
) -> None:
    """Draw the paper's experiment: logistic regression, runs and laws, and the table of how they agree.

    Writes the picture as PNG and PDF, and the table as TXT beside them.
    """
    writable_together(output, force)
    headless()
    from ..figures import FULL, QUICK, paper_figure
    from ..plot import paper_figure as draw

    result = paper_figure(QUICK if quick else FULL, seed=seed)
    write_together(draw(result), result.table(), output)


@command("sgdlimit verify --output verify.png")
def verify(
    output: Output = Path("verify.png"), quick: Quick = False, seed: RandomSeed = 0, force: Force = False
) -> None:
    """Put the theorems to the test: distances to the limit against d and against the time step, with fitted rates.

    Writes the picture as PNG and PDF, and the table as TXT beside them.
    """
    writable_together(output, force)
    headless()
    from ..plot import verification as draw
    from ..verification import FULL, QUICK
    from ..verification import verify as compute

    result = compute(QUICK if quick else FULL, seed=seed)
    write_together(draw(result), result.table(), output)


@command("sgdlimit frameworks --output frameworks.png")
def frameworks(
    output: Output = Path("frameworks.png"), quick: Quick = False, seed: RandomSeed = 0, force: Force = False
) -> None:
    """Ask every framework for the same runs: where does each hold, and where does it fail?

    Online SGD, proportional batches, homogenised SGD, gradient flow, SGF and SGD, and the gap between the last two
    against the temperature. Writes the picture as PNG and PDF, and the tables as MD beside them.
    """
    writable_together(output, force, ".md")
    headless()
    from ..frameworks import FULL, QUICK, table
    from ..plot import frameworks as draw

    result = table(QUICK if quick else FULL, seed=seed)
    write_together(draw(result)["gap"], result.page(), output, ".md")
