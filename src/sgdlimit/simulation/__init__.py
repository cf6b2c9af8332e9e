"""Finite size: real runs of every algorithm on data drawn from the problem, or on the user's own."""

from .run import simulate, simulate_on_data

__all__ = ["simulate", "simulate_on_data"]
