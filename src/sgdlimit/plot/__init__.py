"""Pictures. They compute nothing; every function takes and returns axes."""

from .curves import learning_curves
from .experiments import frameworks, paper_figure, scaling, verification
from .looks import COLOURS, MARKERS
from .sweeps import critical_line, phase_diagram

__all__ = [
    "COLOURS", "MARKERS", "critical_line", "frameworks", "learning_curves", "paper_figure", "phase_diagram", "scaling",
    "verification",
]  # fmt: skip
