"""`Solution` (a theory) and `Runs` (a simulation): the same labelled arrays, with and without a trial axis.

The arrays are plain numpy, so that the core needs no xarray; `.dataset` builds the xarray view when asked.
"""

import abc
import contextlib
import datetime
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

import jax
import numpy as np
from numpy.typing import ArrayLike

from .._version import __version__
from ..algorithms import Algorithm
from ..describe import algorithm_from_words, problem_from_words, to_words
from ..errors import InputError, MissingError, reject
from ..problem import EntryLaw, Problem, Towards
from .quality import ERROR, Quality, Status, percent, scale, share
from .variables import OF, SYSTEMATIC, Variable, meaning, neighbours, split, total_error

if TYPE_CHECKING:
    import xarray

PARTS = ("loss", "labels", "penalty", "sample_ratio", "teacher", "noise", "init", "data", "rows", "bias")
"""Of a problem that a summary tells."""
USUAL = (None, False, {"name": "Iid"})
"""What most problems share, and no summary tells."""


def _told(part: str, value: object) -> bool:
    """Whether a summary tells a part of a problem."""
    return value not in USUAL and (part, value) != ("rows", 1)


@dataclass(frozen=True, repr=False, eq=False)
class Result(abc.ABC):
    """Labelled arrays and where they come from.

    variables: arrays by name; coords: the values along an axis, where it has any.
    about: plain words: method, problem, algorithm, seed, version, options, status, message, quality, diagnostics.
    """

    variables: Mapping[str, Variable]
    coords: Mapping[str, np.ndarray]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        status = self.about.get("status", Status.COMPLETE)
        if status not in list(Status):
            raise reject("status", repr(status), f"it must be one of {', '.join(Status)}")
        _ = self.quality  # refuses words that are none

    def __getitem__(self, name: str) -> np.ndarray:
        """The array of one variable or coordinate."""
        if name not in self:
            raise reject("name", repr(name), neighbours(name, (*self.variables, *self.coords)), MissingError)
        return self.coords[name] if name in self.coords else self.variables[name].values

    def __contains__(self, name: object) -> bool:
        return name in self.variables or name in self.coords

    @property
    def time(self) -> np.ndarray:
        """The recorded times, t = ηk/d."""
        return self.coords["time"]

    @property
    def status(self) -> str:
        """How the computation ended: complete, tolerance missed, budget, diverged, unreliable or interrupted."""
        return str(self.about.get("status", Status.COMPLETE))

    @property
    def message(self) -> str:
        """Why it ended so, in words."""
        return self.about.get("message", "")

    @property
    def success(self) -> bool:
        """Whether every requested time was reached, as well as was asked for, and nothing speaks against it."""
        return self.status == Status.COMPLETE

    @property
    def quality(self) -> Quality:
        """What was checked, with numbers; empty where nothing was."""
        return Quality.from_words(self.about.get("quality") or ())

    @property
    def curves(self) -> tuple[str, ...]:
        """Variables along time alone, a number or a matrix over units each."""
        own = {name: variable for name, variable in self.variables.items() if OF not in name}
        axes = {name: [dim for dim in variable.dims if dim != "trial"] for name, variable in own.items()}
        return tuple(n for n in axes if not split(n)[1] and axes[n][:1] == ["time"] and "earlier" not in axes[n])

    @property
    def averages(self) -> dict[str, Self]:
        """What was found of averages of the iterates, by their names: each a result of its own."""
        found: dict[str, dict[str, Variable]] = {}
        for name, variable in self.variables.items():
            average, of, own = name.partition(OF)
            if of:
                found.setdefault(average, {})[own] = variable
        about = {key: value for key, value in self.about.items() if key != "quality"}
        method = about.get("method", "")
        return {
            name: type(self)(own, self.coords, about | {"method": f"{method}, average {name} of the iterates"})
            for name, own in found.items()
        }

    def error_share(self, name: str) -> float:
        """Largest error of a curve relative to its largest value; as it was judged, where it was."""
        judged = self.quality.named(f"error of {name}")
        if judged is not None:
            return judged.value
        sizes = {n: self.curve(n)[0] for n in {name, "norm"} & set(self.variables)}
        return share(self.curve(name)[1], scale(name, sizes)) if np.all(np.isfinite(sizes[name])) else np.inf

    @property
    def unreliable(self) -> dict[str, float]:
        """Curves whose error exceeds 10 % of their largest value, and that share."""
        shares = {name: self.error_share(name) for name in self.curves}
        return {name: found for name, found in shares.items() if found > ERROR}

    @property
    def problem(self) -> Problem | None:
        """The Problem, rebuilt from the stored words; None if it held a function of the user's."""
        return self._rebuilt("problem", problem_from_words)

    @property
    def algorithm(self) -> Algorithm | None:
        """The algorithm, rebuilt in the same way."""
        return self._rebuilt("algorithm", algorithm_from_words)

    def _rebuilt(self, part: str, make: Callable[[Any], Any]) -> Any:
        words = self.about.get(part)
        with contextlib.suppress(InputError):
            return None if words is None else make(words)

    @cached_property
    def dataset(self) -> "xarray.Dataset":
        """The same arrays as an `xarray.Dataset`."""
        import xarray

        data = {n: (v.dims, v.values, {"long_name": meaning(n)}) for n, v in self.variables.items()}
        coords = {n: (n, v, {"long_name": meaning(n)}) for n, v in self.coords.items()}
        return xarray.Dataset(data, coords, {"title": self.title()})

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write netCDF, whole or not at all; a file already there is kept unless `overwrite`."""
        from .storage import save

        return save(self, path, overwrite)

    @abc.abstractmethod
    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard error of one variable along time."""

    @abc.abstractmethod
    def systematic(self, name: str) -> np.ndarray:
        """The part of the error that all copies share, along time."""

    @abc.abstractmethod
    def copies(self, name: str) -> np.ndarray | None:
        """Independent copies of one variable along time, first axis; None if there are none."""

    @abc.abstractmethod
    def title(self) -> str:
        """One line that says what this is."""

    def lines(self) -> list[tuple[str, str]]:
        """The summary: what each line is about, and what it says."""
        span = f" from {self.time[0]:g} to {self.time[-1]:g}" if len(self.time) else ""
        poor = ", ".join(f"{name} ({percent(found)})" for name, found in self.unreliable.items())
        words = self.about.get("problem") or {}
        lines = [
            ("problem", ", ".join(f"{key} {spoken(words[key])}" for key in PARTS if _told(key, words.get(key)))),
            ("algorithm", spoken(self.about.get("algorithm"))),
            ("time", f"{len(self.time)} points{span}"),
            *((name, self._course(name)) for name in self.variables if not split(name)[1] and OF not in name),
            ("averages", ", ".join(self.averages)),
            ("ended", f"{self.status}: {self.message}".removesuffix(": ")),
            ("tolerance", self._tolerance()),
            *(("failed", str(check)) for check in self.quality.failed if not check.name.startswith("error of ")),
            ("warning", f"the error exceeds {percent(ERROR)} of the curve: {poor}" if poor else ""),
        ]
        return [(key, text) for key, text in lines if text]

    def _course(self, name: str) -> str:
        """Axes of a variable; of a curve also where it starts and ends, on average over units."""
        text = f"({', '.join(self.variables[name].dims)})"
        if name not in self.curves or not self.variables[name].values.size:
            return text
        mean, error = (_diagonal(part) for part in self.curve(name))
        first = self.curve(name)[0][0]
        units = "" if first.size == 1 else "mean diagonal " if first.ndim > 1 else "mean "
        last = f"{mean[-1]:.5g}" + (f" ± {error[-1]:.2g}" if 0 < error[-1] < np.inf else "")
        return f"{text}  {units}{mean[0]:.5g} → {last}"

    def _tolerance(self) -> str:
        """What was asked for, and the largest error of the curves that were judged."""
        tol = (self.about.get("options") or {}).get("tol")
        judged = [(check.value, check.name) for check in self.quality if check.name.startswith("error of ")]
        if tol is None:
            return ""
        return f"{tol:g}" + (f"; {max(judged)[1]}: {max(judged)[0]:.2g}" if judged else "")

    def __repr__(self) -> str:
        width = max(len(key) for key, _ in self.lines())
        return "\n".join([f"<{self.title()}>", *(f"  {k:<{width}}  {v}" for k, v in self.lines())])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(key)}</th><td>{escape(text)}</td></tr>" for key, text in self.lines())
        return f"<strong>{escape(self.title())}</strong><table>{rows}</table>"


@final
@dataclass(frozen=True, repr=False, eq=False)
class Solution(Result):
    """A theoretical prediction.

    A Monte Carlo variable `x` has `x_stderr` beside it, `x_step_error`, `x_projection_error` and `x_bias_error` where
    they are known, and `x_replicas`, the independent solutions whose mean it is.
    """

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The variable and its error: Monte Carlo, time step, memory and bias together (zero for an exact one)."""
        return self[name], self._error(name, ("_stderr", *SYSTEMATIC))

    def systematic(self, name: str) -> np.ndarray:
        """Time step, memory and the bias of finite samples together."""
        return self._error(name, SYSTEMATIC)

    def _error(self, name: str, endings: tuple[str, ...]) -> np.ndarray:
        """Those errors that are known, together."""
        parts = [self[name + ending] for ending in endings if name + ending in self.variables]
        return total_error(np.zeros(self[name].shape), *parts)

    def copies(self, name: str) -> np.ndarray | None:
        """The replicas of a Monte Carlo variable."""
        found = self.variables.get(f"{name}_replicas")
        return None if found is None else found.values

    def end(self, teacher_overlap: ArrayLike | None = None, teacher: EntryLaw | None = None) -> Towards:
        """The start of a new problem where this one ended, `init=solution.end()`: training goes on with fresh data.

        θ⁰ has the second moments that θ has at the last time, and its overlap with the teacher, which the new problem
        keeps. In the limit of a quadratic penalty no more is needed; otherwise θ⁰ is Gaussian beside the teacher, and θ
        need not be. The numbers are taken as they are: their errors are not carried on. A velocity, a rate or trained
        parameters start anew.

        teacher_overlap: correlation of a new teacher with the old one, a number from −1 to 1 (unit by unit), or a
            matrix (old units, new units): θ⁰ then has the overlap with it that follows.
        teacher: law of the new teacher, where it is not that of the old one.
        """
        from .ends import end_of

        return end_of(self, teacher_overlap, teacher)

    def title(self) -> str:
        """A line with the method that predicted the curves."""
        return f"Solution: {self.about.get('method', 'theory')}"


@final
@dataclass(frozen=True, repr=False, eq=False)
class Runs(Result):
    """Independent runs at finite size; the first axis of every recorded variable is `trial`."""

    @property
    def trials(self) -> int:
        """The number of independent runs."""
        return len(self.coords["trial"])

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean over trials and its standard error (infinite for a single trial, which cannot know it)."""
        values = np.asarray(self[name], dtype=np.float64)
        mean = values.mean(axis=0)
        if len(values) < 2:
            return mean, np.full_like(mean, np.inf)
        return mean, values.std(axis=0, ddof=1) / np.sqrt(len(values))

    def systematic(self, name: str) -> np.ndarray:
        """Zero along time: independent trials share no error."""
        return np.zeros(self[name].shape[1:])

    def copies(self, name: str) -> np.ndarray | None:
        """The trials one by one, first axis."""
        return np.asarray(self[name], dtype=np.float64)

    def title(self) -> str:
        """A line with the number of trials and their size, such as 'Runs: 8 trials, dim=400'."""
        options = self.about.get("options", {})
        size = ", ".join(f"{key}={options[key]}" for key in ("dim", "samples") if options.get(key) is not None)
        return f"Runs: {self.trials} trial{'s' * (self.trials != 1)}" + (f", {size}" if size else "")


def _diagonal(values: np.ndarray) -> np.ndarray:
    """Mean over equal units of (time, unit, unit), over all units of other shapes."""
    if values.ndim == 3:
        values = np.diagonal(values, axis1=1, axis2=2)
    return values.reshape(len(values), -1).mean(axis=1)


def spoken(words: object) -> str:
    """A stored model as it is written in Python: 'Ridge(strength=0.1)'."""
    if isinstance(words, dict) and "function" in words:
        return str(words["function"])
    if not isinstance(words, dict) or "name" not in words:
        return "" if words is None else str(words)
    said = ((k, v) for k, v in words.items() if k != "name" and v is not None and v != {"name": "Constant"})
    inside = ", ".join(f"{k}={spoken(v)}" for k, v in said)
    return f"{words['name']}({inside})"


def provenance(
    method: str,
    problem: object,
    algorithm: object,
    *,
    seed: int | None = None,
    options: Mapping[str, object] | None = None,
    status: str = "complete",
    message: str = "",
    diagnostics: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """The `about` of a result: what was computed and how it ended, by which versions and when, as plain words."""
    return {
        "method": method,
        "problem": to_words(problem),
        "algorithm": to_words(algorithm),
        "seed": seed,
        "options": {key: to_words(value) for key, value in (options or {}).items()},
        "status": status,
        "message": message,
        "diagnostics": {key: to_words(value) for key, value in (diagnostics or {}).items()},
        "sgdlimit_version": __version__,
        "jax_version": jax.__version__,
        "numpy_version": np.__version__,
        "python_version": platform.python_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
