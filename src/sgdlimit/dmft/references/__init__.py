"""What the march is tested against: the paper's processes, and its damped fixed point."""

from .fixed_point import iterate
from .paper import Paper

__all__ = ["Paper", "iterate"]
