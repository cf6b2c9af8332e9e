"""The command line. It computes nothing of its own; heavy modules are imported by the command that needs them."""

from .start import begin


def main() -> None:
    """Entry point: Ctrl-C is answered from the first moment, so everything else is imported after it."""
    begin()
    from .app import main as run

    run()


__all__ = ["main"]
