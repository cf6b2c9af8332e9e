"""Pictures. They compute nothing; every function takes and returns axes."""

from .curves import COLOURS, learning_curves
from .paper import paper_figure
from .scaling import scaling, verification

__all__ = ["COLOURS", "learning_curves", "paper_figure", "scaling", "verification"]
