"""The theorems of the paper, put to the test: distances that must vanish, and the rate at which they do."""

from .everything import FULL, QUICK, Verification, verify
from .laws import Scaling, distances
from .steps import discretisation, strong_error

__all__ = ["FULL", "QUICK", "Scaling", "Verification", "discretisation", "distances", "strong_error", "verify"]
