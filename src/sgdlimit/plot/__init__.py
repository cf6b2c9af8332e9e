"""Pictures. They compute nothing; every function takes and returns axes."""

from .agreement import agreement
from .curves import COLOURS, MARKERS, learning_curves
from .distributions import distributions
from .frameworks import frameworks, gaps
from .kernels import kernels
from .paper import paper_figure
from .scaling import scaling, verification

__all__ = [
    "COLOURS",
    "MARKERS",
    "agreement",
    "distributions",
    "frameworks",
    "gaps",
    "kernels",
    "learning_curves",
    "paper_figure",
    "scaling",
    "verification",
]
