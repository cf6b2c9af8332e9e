"""Pictures. They compute nothing; every function takes and returns axes."""

from .agreement import agreement
from .curves import COLOURS, learning_curves
from .frameworks import frameworks, gaps
from .paper import paper_figure
from .scaling import scaling, verification

__all__ = ["COLOURS", "agreement", "frameworks", "gaps", "learning_curves", "paper_figure", "scaling", "verification"]
