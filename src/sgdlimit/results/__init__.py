"""What comes out: labelled arrays that say where they come from, saved as netCDF."""

from .quality import Check, Curve, Quality, Status, judge
from .result import Result, Runs, Solution, Variable, provenance
from .storage import load, save

__all__ = [
    "Check", "Curve", "Quality", "Result", "Runs", "Solution", "Status", "Variable", "judge", "load", "provenance",
    "save",
]  # fmt: skip
