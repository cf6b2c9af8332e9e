"""`sgdlimit explore`: the page on which curves follow the sliders."""

from typing import Annotated

import typer

from .common import command
from .interrupts import interruptible


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
