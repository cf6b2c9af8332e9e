"""Many points at once: phase diagrams, on this machine or on many, of which no finished point is ever lost."""

from .result import Sweep
from .run import Outline, plan_sweep, sweep

__all__ = ["Outline", "Sweep", "plan_sweep", "sweep"]
