"""What is known exactly: least squares as Volterra equations, on the limit law or on the user's data; infinite data."""

from .least_squares import least_squares, least_squares_on_data
from .online import online

__all__ = ["least_squares", "least_squares_on_data", "online"]
