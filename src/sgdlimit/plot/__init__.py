"""Pictures. They compute nothing; every function takes and returns axes."""

from .curves import learning_curves

__all__ = ["learning_curves"]
