"""The limit at finite δ: dynamical mean-field theory, solved by one causal march."""

from .solver import solve

__all__ = ["solve"]
