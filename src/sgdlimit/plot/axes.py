"""The axes that a picture is drawn on: the user's or new ones, their names, clocks, scales and ticks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from ..errors import reject
from ..results import Result
from ..sweep.result import logarithmic

Given = Axes | Sequence[Axes] | np.ndarray
"""One or several axes, as a user may give them."""
if TYPE_CHECKING:
    import xarray
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
CLOCKS = {"time": "time  $t = \\eta k / d$", "epochs": "epochs  $t / \\tau\\delta$"}
"""What an axis can show, and how it is printed."""
COUNTED = 8
"""Whole numbers along an axis that all have a tick."""


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


def reading(result: Result, x: str) -> np.ndarray:
    """The times of a result as `x` counts them.

    epochs: t/(τδ); of batches of a share b of the data, b for each update.
    """
    if x not in CLOCKS:
        raise reject("x", repr(x), f"it must be one of {', '.join(CLOCKS)}")
    if x == "time":
        return result.time
    algorithm, options = result.algorithm, result.about.get("options") or {}
    step = options.get("dt") or (result.about.get("diagnostics") or {}).get("step_time")
    ratio = 0.0
    if (problem := result.about.get("problem")) is not None:
        ratio = float(problem["sample_ratio"])
    elif options.get("samples") and options.get("dim"):  # the user's own matrix
        ratio = options["samples"] / options["dim"]
    if algorithm is None:
        why = "its algorithm holds a function of yours"
    elif algorithm.discrete:
        if step:
            return result.time / float(step) * float(getattr(algorithm, "batch_fraction", 1.0))
        why = "the result does not say its step"
    elif not ratio:
        why = "the result does not say how many samples it has"
    elif not np.isfinite(ratio):
        why = "infinite data are never seen twice, and have no epochs"
    elif not algorithm.noise_temperature:
        why = f"{type(algorithm).__name__} at τ = 0 draws no samples, and has no epochs"
    elif algorithm.scheduled:
        why = "the batch changes in time, and epochs with it"
    else:
        return result.time / (algorithm.noise_temperature * ratio)
    raise reject("x", x, f"{why}; draw it over x='time' ({result.title()})")


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
