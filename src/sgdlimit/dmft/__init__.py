"""The limit at finite δ: dynamical mean-field theory, solved by one causal march."""

from .pure import curves
from .solver import plan, solve

__all__ = ["curves", "plan", "solve"]
