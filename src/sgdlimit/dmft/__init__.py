"""The limit at finite δ: dynamical mean-field theory, solved by one causal march."""

from .march import curves

__all__ = ["curves"]
