"""sgdlimit: exact high-dimensional learning curves of SGD, beside real SGD runs.

Describe a problem once; predict its learning curves in the limit n, d → ∞ and run SGD on it at finite size.
"""

from typing import TYPE_CHECKING, Any

from . import grid
from ._version import __version__
from .algorithms import SGD, SGF, GradientFlow, PersistentSGD, ProportionalSGD, ShuffledSGD
from .errors import DivergenceWarning, InputError
from .limits import least_squares, least_squares_on_data, online
from .problem import (
    Constant,
    CosineDecay,
    Exponential,
    Huber,
    Labels,
    Law,
    Linear,
    Logistic,
    Logit,
    Loss,
    Noise,
    NoPenalty,
    Normal,
    Penalty,
    Point,
    PowerDecay,
    Problem,
    Quartic,
    Rademacher,
    Ridge,
    Schedule,
    Sign,
    SmoothHinge,
    SmoothL1,
    SparseNormal,
    Square,
    TwoLayer,
    TwoLayerLabels,
    Uniform,
    VectorField,
)
from .problem.entries import SparseEntries
from .results import Runs, Solution, load
from .simulate import simulate, simulate_on_data

if TYPE_CHECKING:
    from . import plot
    from .compare import Report, compare

_LAZY = {"plot": (".plot", None), "compare": (".compare", "compare"), "Report": (".compare", "Report")}


def __getattr__(name: str) -> Any:
    """Pictures and comparisons are imported when first used."""
    if name not in _LAZY:
        raise AttributeError(f"module 'sgdlimit' has no attribute {name!r}")
    import importlib

    module, attribute = _LAZY[name]
    loaded = importlib.import_module(module, __name__)
    value = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


__all__ = [
    "SGD",
    "SGF",
    "Constant",
    "CosineDecay",
    "DivergenceWarning",
    "Exponential",
    "GradientFlow",
    "Huber",
    "InputError",
    "Labels",
    "Law",
    "Linear",
    "Logistic",
    "Logit",
    "Loss",
    "NoPenalty",
    "Noise",
    "Normal",
    "Penalty",
    "PersistentSGD",
    "Point",
    "PowerDecay",
    "Problem",
    "ProportionalSGD",
    "Quartic",
    "Rademacher",
    "Report",
    "Ridge",
    "Runs",
    "SGD",
    "SGF",
    "Schedule",
    "ShuffledSGD",
    "Sign",
    "SmoothHinge",
    "SmoothL1",
    "Solution",
    "SparseEntries",
    "SparseNormal",
    "Square",
    "TwoLayer",
    "TwoLayerLabels",
    "Uniform",
    "VectorField",
    "__version__",
    "compare",
    "grid",
    "least_squares",
    "least_squares_on_data",
    "load",
    "online",
    "plot",
    "simulate",
    "simulate_on_data",
]
