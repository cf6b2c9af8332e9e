"""sgdlimit: exact high-dimensional learning curves of SGD, beside real SGD runs.

Describe a problem once; predict its learning curves in the limit n, d → ∞ and run SGD on it at finite size.
Names are imported when first used, so that `import sgdlimit` and the command line start at once. Nothing of the
standard library is imported here that Python has not loaded by itself: until the command line has begun, Ctrl-C is a
traceback.
"""

# ruff: noqa: F403, F405  # the names of `problem` are listed there
import sys

from ._version import __version__

TYPE_CHECKING = False  # as `typing` has it, which takes 10 ms to load
if TYPE_CHECKING:
    from typing import Any

    from . import grid, plot, references, testing
    from .algorithms import *
    from .chain import Chain, chain, simulate_chain
    from .comparison import Report, compare
    from .errors import DivergenceWarning, InputError, Interrupted, SweepWarning, ToleranceWarning, UnreliableWarning
    from .exact import least_squares, least_squares_on_data, online
    from .fitting import Fitted, model_of_data, solve_on_data
    from .from_torch import FromTorch, from_torch
    from .problem import *
    from .results import Runs, Solution, load
    from .simulation import simulate, simulate_on_data
    from .solver import plan, solve
    from .sweep import Sweep, best_time, critical_line, sweep

__all__ = [
    "DPSGD", "EMA", "L1", "SGD", "SGF", "Absolute", "AdaGradNorm", "Adam", "AdamW", "Algorithm", "ArgMax",
    "Attention", "AttentionLabels", "ByClass", "Chain", "Clip", "Constant", "Contrastive", "CosineDecay", "DataLaw",
    "DivergenceWarning", "DoG", "EntryLaw", "Exponential", "Fitted", "FromTorch", "GradientFlow", "HeavyBall",
    "Hinge", "Huber", "Iid", "InputError", "Interrupted", "IterateAverage", "LabelRule", "Labels", "Law", "Linear",
    "ListwiseLabels", "ListwiseRanking", "Logistic", "Logit", "Loss", "LossLike", "MaxPool", "MeanPool", "Mixture",
    "Momentum", "MultiClass", "Nesterov", "NoPenalty", "Noise", "Normal", "Normalised", "PairwiseLabels",
    "PairwiseRanking", "Penalty", "PenaltyLike", "PersistentSGD", "Point", "Polyak", "PoolLabels", "PowerDecay",
    "PowerLaw", "Problem", "ProportionalSGD", "Quantile", "Quartic", "RMSprop", "Rademacher", "RandomFeatures",
    "Rate", "RateRule", "Report", "Ridge", "RunningMean", "Runs", "SameSide", "Schedule", "Sequence", "ShuffledSGD",
    "Sign", "SmoothHinge", "SmoothL1", "Solution", "SparseEntries", "SparseNormal", "Spectrum", "Square", "Step",
    "StochasticPolyak", "Sweep", "SweepWarning", "ToleranceWarning", "Towards", "Trained", "TwoLayer",
    "TwoLayerLabels", "Uniform", "UnreliableWarning", "VectorField", "Weighted", "__version__", "best_time",
    "chain", "compare", "critical_line", "from_torch", "grid", "least_squares", "least_squares_on_data", "load",
    "model_of_data", "online", "plan", "plot", "references", "simulate", "simulate_chain", "simulate_on_data",
    "solve", "solve_on_data", "sweep", "testing",
]  # fmt: skip

_ROOMS = (
    "errors", "problem", "algorithms", "exact", "solver", "simulation", "fitting", "results", "comparison",
    "sweep", "chain", "from_torch",
)  # fmt: skip
"""Where public names live, in the order in which data walks through the house."""
_MODULES = ("grid", "plot", "references", "testing")


def __getattr__(name: str) -> "Any":
    import importlib

    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in __all__:
        for room in _ROOMS:
            value = getattr(importlib.import_module(f".{room}", __name__), name, None)
            if value is not None:
                globals()[name] = value
                return value
    raise AttributeError(f"module 'sgdlimit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(type(sys)):
    """`sgdlimit.sweep` is the function, also once its room, which has the same name, is imported; others alike."""

    def __setattr__(self, name: str, value: "Any") -> None:
        if name not in ("sweep", "chain", "from_torch") or not isinstance(value, type(sys)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
