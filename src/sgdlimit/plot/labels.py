"""Names of axes and variables as they are printed."""

from typing import Any

NAMES = {
    "time": ("time", "t = \\eta k / d"),
    "best_time": ("best time to stop", "t"),
    "sample_ratio": ("samples per dimension", "\\delta = n/d"),
    "temperature": ("temperature", "\\tau = \\eta/B"),
    "learning_rate": ("learning rate", "\\eta"),
    "batch_size": ("batch size", "B"),
    "batch_fraction": ("batch fraction", "b"),
    "correlation_time": ("correlation time", "t_c"),
    "strength": ("penalty", "\\lambda"),
    "width": ("width", "m"),
    "teacher_width": ("width of the teacher", "k"),
    "t_max": ("last time", "t"),
}
"""Words and symbol by the last part of a name."""


def printed(name: str) -> str:
    """'temperature  $\\tau = \\eta/B$'; a name that is not known as it stands, without underscores."""
    words, symbol = NAMES.get(name.split(".")[-1], (name.replace("_", " "), ""))
    return f"{words}  ${symbol}$" if symbol else words


def valued(name: str, value: Any) -> str:
    """'$\\tau$ = 0.4'."""
    words, symbol = NAMES.get(name.split(".")[-1], (name.replace("_", " "), ""))
    sign = f"${symbol.split(' = ')[0]}$" if symbol else words
    if not isinstance(value, int | float):
        return f"{sign}: {value}"
    return f"{sign} = {value:.3g}".replace("inf", "∞")
