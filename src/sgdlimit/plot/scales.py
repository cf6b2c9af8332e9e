"""Axes of a diagram: numbers, logarithms or words; ticks of logarithmic ones."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from ..sweep.reading import logarithmic
from .panels import printed

if TYPE_CHECKING:
    import xarray

COUNTED = 8
"""Whole numbers along an axis that all have a tick."""


class Axis(NamedTuple):
    """One axis of a diagram, as it is drawn."""

    name: str
    at: np.ndarray
    """Numbers, or places 0, 1, … of words and of axes with an infinite value."""
    words: list[str]
    """Tick labels where places are numbered; empty otherwise."""
    log: bool

    @classmethod
    def of(cls, dataset: "xarray.Dataset", name: str) -> "Axis":
        """The axis that a coordinate makes; one whose values are spaced geometrically is logarithmic."""
        values = np.asarray(dataset[name])
        if values.dtype.kind in "fiu" and np.all(np.isfinite(values)):
            return cls(name, values.astype(float), [], logarithmic(values, dataset[name].attrs.get("scale")))
        words = [f"{value:g}" if values.dtype.kind == "f" else str(value) for value in values]
        return cls(name, np.arange(len(values), dtype=float), [word.replace("inf", "∞") for word in words], False)

    def dress(self, axes: Axes, side: str) -> None:
        """Give the x or the y axis of a picture its scale, ticks and label."""
        ruler: Ruler = getattr(axes, f"{side}axis")
        ruler.set_label_text(printed(self.name))
        if self.words:
            ruler.set_ticks(self.at, self.words)
        elif self.log:
            axes.set(**{f"{side}scale": "log"})
            few(ruler, self.at.min(), self.at.max())
        elif len(self.at) <= COUNTED and np.all(self.at % 1 == 0):
            ruler.set_ticks(self.at)

    @property
    def edges(self) -> np.ndarray:
        """Edges of the cells around the values, halfway to their neighbours."""
        at = np.log(self.at) if self.log else self.at
        if len(at) == 1:
            return np.array([self.at[0] / 1.5, self.at[0] * 1.5]) if self.log else self.at[0] + np.array([-0.5, 0.5])
        middle = (at[1:] + at[:-1]) / 2
        edges = np.concatenate([[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]])
        return np.exp(edges) if self.log else edges


def few(ruler: Ruler, low: float, high: float) -> None:
    """Ticks of a logarithmic axis at 1, 2, 5, …, if it has less than three decades."""
    ruler.set_minor_formatter(NullFormatter())
    if high < 1000 * low:
        ruler.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ruler.set_minor_locator(NullLocator())
