"""Many points at once: phase diagrams, on this machine or on many, of which no finished point is ever lost."""

from .outline import Outline, plan_sweep
from .result import Sweep
from .run import sweep

__all__ = ["Outline", "Sweep", "plan_sweep", "sweep"]
