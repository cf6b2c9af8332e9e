"""The user's own matrix as a model of the language: spectrum, and teacher or classes, without their sample bias."""

from .model import Fitted, model_of_data, solve_on_data

__all__ = ["Fitted", "model_of_data", "solve_on_data"]
