"""How weights are trained: one small final class an algorithm; what its step does; averages of the iterates."""

from .base import Algorithm, Weighted
from .flows import SGF, GradientFlow, PersistentSGD, ProportionalSGD
from .iterates import EMA, IterateAverage, RunningMean
from .minibatch import SGD, ShuffledSGD
from .private import DPSGD
from .rates import AdaGradNorm, Adam, AdamW, DoG, Normalised, Polyak, Rate, RateRule, RMSprop, StochasticPolyak
from .step import Clip, HeavyBall, Momentum, Nesterov, Step

__all__ = [
    "DPSGD", "EMA", "SGD", "SGF", "AdaGradNorm", "Adam", "AdamW", "Algorithm", "Clip", "DoG", "GradientFlow",
    "HeavyBall", "IterateAverage", "Momentum", "Nesterov", "Normalised", "PersistentSGD", "Polyak", "ProportionalSGD",
    "RMSprop", "Rate", "RateRule", "RunningMean", "ShuffledSGD", "Step", "StochasticPolyak", "Weighted",
]  # fmt: skip
