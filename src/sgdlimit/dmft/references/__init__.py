"""What the march is tested against: the paper's processes, and its damped fixed point."""

from .fixed_point import solve_by_iteration
from .paper import Paper

__all__ = ["Paper", "solve_by_iteration"]
