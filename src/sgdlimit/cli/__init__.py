"""The command line. It computes nothing of its own; heavy modules are imported by the command that needs them."""

from .app import main

__all__ = ["main"]
