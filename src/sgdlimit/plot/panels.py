"""The axes that a picture is drawn on, the user's or new ones, and how names stand on them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from ..errors import reject

Given = Axes | Sequence[Axes] | np.ndarray
"""One or several axes, as a user may give them."""
if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a default for a type needs Python 3.13 elsewhere

    Same = TypeVar("Same", bound=Given, default=np.ndarray)
else:
    Same = Given
"""The axes that a user gave and gets back; an array of new ones where none were given."""
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


def panels(axes: Same | None, count: int, what: str, width: float, height: float) -> tuple[Same, list[Axes]]:
    """The axes to return and the same as a list: the user's, or a new row of `count` (inches each).

    Their frames lose the upper and the right side.
    """
    if axes is None:
        size = (width * count, height)
        axes = cast("Same", plt.subplots(1, count, figsize=size, squeeze=False, layout="constrained")[1][0])
    flat = np.ravel(np.asarray(axes, dtype=object)).tolist()
    if len(flat) != count:
        raise reject("axes", f"{len(flat)} axes", f"give one for each of the {count} {what}")
    for ax in flat:
        ax.spines[["top", "right"]].set_visible(False)
    return axes, flat


def single(axes: Given | None, width: float, height: float) -> Axes:
    """The user's axes, or new ones (inches), dressed alike."""
    return panels(axes, 1, "picture", width, height)[1][0]


def printed(name: str) -> str:
    """A name on an axis, 'temperature  $\\tau = \\eta/B$'; one that is not known as it stands, without underscores."""
    words, symbol = NAMES.get(name.split(".")[-1], (name.replace("_", " "), ""))
    return f"{words}  ${symbol}$" if symbol else words


def valued(name: str, value: object) -> str:
    """A name with its value, '$\\tau$ = 0.4'."""
    words, symbol = NAMES.get(name.split(".")[-1], (name.replace("_", " "), ""))
    sign = f"${symbol.split(' = ')[0]}$" if symbol else words
    return f"{sign} = {value:.3g}".replace("inf", "∞") if isinstance(value, int | float) else f"{sign}: {value}"
