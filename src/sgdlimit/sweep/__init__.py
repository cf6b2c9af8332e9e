"""Many points at once: phase diagrams, on this machine or on many, of which no finished point is ever lost."""

from .lines import critical_line
from .refine import refine
from .result import Sweep
from .run import Outline, plan_sweep, sweep
from .stopping import best_time

__all__ = ["Outline", "Sweep", "best_time", "critical_line", "plan_sweep", "refine", "sweep"]
