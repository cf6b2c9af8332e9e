"""The limit at finite δ: dynamical mean-field theory, solved by one causal march."""

from .pure import curves

__all__ = ["curves"]
