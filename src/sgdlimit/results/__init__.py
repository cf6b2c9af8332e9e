"""What comes out: labelled arrays that say where they come from, saved as netCDF."""

from .result import Result, Runs, Solution, Variable
from .storage import load, save

__all__ = ["Result", "Runs", "Solution", "Variable", "load", "save"]
