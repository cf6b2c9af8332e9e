"""How weights are trained: one small final class an algorithm."""

from .base import Algorithm, Weighted
from .flows import SGF, GradientFlow
from .minibatch import SGD, ShuffledSGD
from .proportional import PersistentSGD, ProportionalSGD

__all__ = ["SGD", "SGF", "Algorithm", "GradientFlow", "PersistentSGD", "ProportionalSGD", "ShuffledSGD", "Weighted"]
