"""How weights are trained: one small final class an algorithm."""

from .base import Algorithm, Weighted
from .flows import SGF, GradientFlow, PersistentSGD, ProportionalSGD
from .minibatch import SGD, ShuffledSGD

__all__ = ["SGD", "SGF", "Algorithm", "GradientFlow", "PersistentSGD", "ProportionalSGD", "ShuffledSGD", "Weighted"]
