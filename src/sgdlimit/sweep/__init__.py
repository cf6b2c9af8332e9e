"""Many points at once: phase diagrams, on this machine or on many, of which no finished point is ever lost."""

from .lines import best_time, critical_line
from .result import Sweep
from .run import sweep

__all__ = ["Sweep", "best_time", "critical_line", "sweep"]
