"""How far a result can be trusted: how its computation ended, in one word, and what was checked, with numbers."""

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from scipy.special import fdtri, stdtrit

from ..errors import reject
from .variables import total_error


@final
class Status(enum.StrEnum):
    """How a computation ended; every result has one of these words."""

    COMPLETE = "complete"
    MISSED = "tolerance missed"
    BUDGET = "budget"
    """Time ran out before the tolerance was met."""
    DIVERGED = "diverged"
    UNRELIABLE = "unreliable"
    """A check failed: the values, or their errors, should not be believed."""
    INTERRUPTED = "interrupted"


ERROR = 0.10
"""An error above this share of its curve makes the curve unreliable."""
SPREAD = 0.05
"""Replicas that drift apart matter once the standard error is above this share of the curve."""
GROUPS = 0.10
"""Two groups of replicas matter once they are this share of the curve apart."""
TAIL = 0.02
"""One replica that makes up the spread matters once the standard error is above this share of the curve."""
RARE = 1e-5
"""False-alarm rate of one test on one curve; some fifty are made for a solution."""
STEADY = 2.0
"""Factor by which spreads that do not run away grow over the second half of the time: as √t or t."""
DOUBLING = 2.0
"""Growth of the norm over the last quarter of the time, beyond which it is asked whether it slows down."""
STEADILY = 0.85
"""Logarithm of that growth over that of the quarter before: 1 for exponentials, log(4/3)/log(3/2) = 0.71 for powers."""
SOARING = 20.0
"""Growth over the last quarter that no power below ten shows."""
SEPARATION = {4: 600.0, 6: 56.0, 8: 22.5, 12: 11.6, 16: 8.5, 24: 6.3, 32: 5.4, 64: 4.2, 128: 3.7, 256: 3.4, 1024: 3.1}
"""By number of replicas: what `_separation` of a Gaussian sample exceeds at the rate RARE (simulated)."""


@final
@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    value: float
    limit: float | None
    """None: a report, which cannot fail."""
    passed: bool
    words: str
    """What the value is, where it was found, and what it means."""

    @classmethod
    def most(cls, name: str, value: float, limit: float, words: str) -> "Check":
        """Passes up to the limit; a value that is no number fails."""
        return cls(name, float(value), float(limit), bool(value <= limit), words)

    @classmethod
    def least(cls, name: str, value: float, limit: float, words: str) -> "Check":
        """Passes from the limit on; a value that is no number fails."""
        return cls(name, float(value), float(limit), bool(value >= limit), words)

    @classmethod
    def report(cls, name: str, value: float, words: str) -> "Check":
        """A number to be known; it has no limit."""
        return cls(name, float(value), None, True, words)

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" (limit {self.limit:.2g})"
        return f"{self.name} {self.value:.2g}{limit}: {self.words}"


@final
class Quality(tuple[Check, ...]):
    """What was checked: a tuple of `Check`. Empty where nothing was, as for exact limits and files of old."""

    @property
    def passed(self) -> bool:
        """Whether no check failed; true where there was none."""
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self if not check.passed)

    def named(self, name: str) -> Check | None:
        """The check of that name; None if there is none."""
        return next((check for check in self if check.name == name), None)

    def __add__(self, other: Iterable[Check]) -> "Quality":  # type: ignore[override]
        return Quality((*self, *other))

    def __repr__(self) -> str:
        if not self:
            return "nothing was checked"
        width = max(len(check.name) for check in self)
        rows = [
            f"{check.name:<{width}}  {check.value:>9.3g}  {'' if check.limit is None else f'{check.limit:.3g}':>8}  "
            f"{'' if check.limit is None else 'passed' if check.passed else 'FAILED':<6}  {check.words}"
            for check in self
        ]
        return "\n".join([f"{'check':<{width}}  {'value':>9}  {'limit':>8}", *rows])

    def to_words(self) -> list[dict[str, Any]]:
        """For a file, as JSON; what is not finite becomes a word."""
        return [
            {key: str(x) if isinstance(x, float) and not math.isfinite(x) else x for key, x in vars(check).items()}
            for check in self
        ]

    @classmethod
    def from_words(cls, words: Any) -> "Quality":
        """From a file; what `to_words` would not write is refused."""
        try:
            parts = [(w["name"], float(w["value"]), w["limit"], w["passed"], w["words"]) for w in words]
            found = [Check(str(n), v, None if lim is None else float(lim), ok, str(t)) for n, v, lim, ok, t in parts]
            if all(isinstance(check.passed, bool) for check in found):
                return cls(found)
        except (TypeError, KeyError, ValueError):
            pass
        raise reject("quality", words, "it must be a list of checks: name, value, limit, passed, words")


def percent(share: float) -> str:
    """A share in words: '2.5 %'; 'more than 1000 %' from ten on."""
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %" if share < 10 else "more than 1000 %"


class Curve(NamedTuple):
    """A variable along time as `judge` reads it; axes after time are units."""

    value: np.ndarray
    """(times, …)"""
    stderr: np.ndarray
    systematic: np.ndarray
    """Time step, memory, bias: what all replicas share."""
    replicas: np.ndarray | None = None
    """(replicas, times, …)"""


def share(error: np.ndarray, scale: float) -> float:
    """Largest error relative to the scale of its curve; errors that are infinite are unknown and not counted."""
    known = error[~np.isposinf(error)]
    largest = float(np.max(known, initial=0.0))
    if largest == 0:
        return 0.0
    return largest / scale if math.isfinite(largest) and scale > 0 else math.inf


def scale(name: str, values: Mapping[str, np.ndarray]) -> float:
    """Largest value of a curve; of what may vanish by symmetry (overlap, intercept) at least the norm or its root."""
    size = float(np.max(np.abs(values[name]), initial=0.0))
    if name in ("overlap", "mean_overlap", "intercept") and "norm" in values:
        norm = float(np.max(np.abs(values["norm"]), initial=0.0))
        size = max(size, min(norm, math.sqrt(norm)))
    return size


def judge(time: np.ndarray, curves: Mapping[str, Curve], scales: Mapping[str, float] | None = None) -> Quality:
    """What can be told about a solution from its curves alone; every number here is relative to the curve's scale.

    curves: those that must be right, by name ("norm" and "train_loss" are looked at for growth as well).
    scales: the size of a curve, where that is not its largest value. Checks, each failing above its limit:

    - "error of x": the largest total error, √(stderr² + systematic²); limit 0.10.
    - "replicas drift": the spread over replicas grew over the second half of the time by more than it does at random
      and by itself, and is large.
    - "replicas split": two groups of replicas, at late times, further apart than those of a Gaussian sample, and by a
      large share of the curve.
    - "heavy tails": one replica makes up more of the variance than in a Gaussian sample (Grubbs), where it is large.
    - "growth": the norm at least doubles over the last quarter of the time, does not slow down, and the training loss
      does not fall.

    Where two things must come together, the value is the smaller of the two, each in units of its limit, and the words
    give both. Append what the curves do not tell: `judge(...) + [Check.most("projection", 0.002, 0.01, "norm")]`. Keep
    `quality.to_words()` as `about["quality"]`; a solution is "unreliable" unless `quality.passed`.
    """
    time = np.asarray(time, dtype=np.float64)
    shown = {name: curve for name, curve in curves.items() if np.size(curve.value)}
    sizes = {name: curve.value for name, curve in shown.items()}
    given = {name: (scales or {}).get(name) or scale(name, sizes) for name in shown}
    checks = [_error(name, time, curve, given[name]) for name, curve in shown.items()]
    copies = {
        name: np.reshape(curve.replicas, (*np.shape(curve.replicas)[:2], -1)).astype(np.float64) / given[name]
        for name, curve in shown.items()
        if curve.replicas is not None and len(curve.replicas) > 3 and given[name] > 0 and len(time) > 1
    }
    copies = {name: values for name, values in copies.items() if np.all(np.isfinite(values))}
    for look in (_drift, _split, _tails):
        found = [look(name, time, values) for name, values in copies.items()]
        checks += [max(found, key=lambda check: check.value)] if found else []
    if "norm" in shown and len(time) > 3:
        checks.append(_growth(time, shown))
    return Quality(checks)


def _error(name: str, time: np.ndarray, curve: Curve, size: float) -> Check:
    error = total_error(curve.stderr, curve.systematic)
    worst = np.reshape(error, (len(time), -1)).max(axis=1)
    if not np.all(np.isfinite(curve.value)):
        return Check.most(f"error of {name}", math.inf, ERROR, "it is not finite")
    at = time[int(np.argmax(worst))]
    return Check.most(f"error of {name}", share(error, size), ERROR, f"share of the curve, largest at t = {at:.3g}")


def _both(name: str, first: np.ndarray, second: np.ndarray, words: Callable[[int], str]) -> Check:
    """Of entries with two values, each in units of its limit: fails where both are above; words about the worst."""
    smaller = np.minimum(first, second)
    worst = int(np.argmax(smaller))
    return Check.most(name, smaller[worst], 1.0, words(worst))


def _drift(name: str, time: np.ndarray, copies: np.ndarray) -> Check:
    count = len(copies)
    spread = copies.std(axis=0, ddof=1)
    middle = (time[0] + time[-1]) / 2
    half = np.array([np.interp(middle, time, column) for column in spread.T])
    growth, size = spread[-1] / np.maximum(half, 1e-12), spread[-1] / math.sqrt(count)
    # two variances of so many replicas differ by such a factor at random
    limit = STEADY * math.sqrt(fdtri(count - 1, count - 1, 1 - RARE))
    return _both("replicas drift", growth / limit, size / SPREAD, lambda e: (
        f"{name}: spread {min(growth[e], 999.0):.2g} times that at t = {middle:.3g} (limit {limit:.2g}), "
        f"standard error {percent(size[e])} of the curve (limit {percent(SPREAD)})"
    ))  # fmt: skip


def _split(name: str, time: np.ndarray, copies: np.ndarray) -> Check:
    late = time >= time[-1] - (time[-1] - time[0]) / 4
    apart, distance = _separation(copies[:, late].mean(axis=1).T)
    limit = _separation_limit(len(copies))
    return _both("replicas split", apart / limit, distance / GROUPS, lambda e: (
        f"{name}: two groups at late times, {min(apart[e], 999.0):.2g} of their spreads apart (limit {limit:.2g}), "
        f"{percent(distance[e])} of the curve (limit {percent(GROUPS)})"
    ))  # fmt: skip


def _separation_limit(count: int) -> float:
    return float(np.interp(math.log(count), np.log(list(SEPARATION)), list(SEPARATION.values())))


def _separation(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Best division of (entries, replicas) at a gap: distance of the groups' means in units of their spread, and as is.

    A group has two replicas and an eighth of all at least: one far out is no group, but a tail.
    """
    values = np.sort(values - values.mean(axis=1, keepdims=True), axis=1)
    count = values.shape[1]
    fewest = max(2, count // 8)
    cuts = np.arange(fewest, count - fewest + 1)
    below = np.cumsum(values, axis=1)[:, cuts - 1]
    distance = -below / (count - cuts) - below / cuts  # the mean over all is zero
    inside = np.sum(values**2, axis=1, keepdims=True) - cuts * (count - cuts) / count * distance**2
    spread = np.sqrt(np.maximum(inside, 1e-12 * distance**2 + 1e-300) / (count - 2))
    apart = distance / spread
    best = apart.argmax(axis=1)[:, None]
    return np.take_along_axis(apart, best, axis=1)[:, 0], np.take_along_axis(distance, best, axis=1)[:, 0]


def _tails(name: str, time: np.ndarray, copies: np.ndarray) -> Check:
    count = len(copies)
    squares = (copies - copies.mean(axis=0)) ** 2
    total = squares.sum(axis=0)
    widest = total.argmax(axis=0)[None, :]  # looked at where the spread of an entry is largest
    there = np.take_along_axis(total, widest, axis=0)[0]
    part = np.take_along_axis(squares.max(axis=0), widest, axis=0)[0] / np.maximum(there, 1e-300)
    size = np.sqrt(there / (count * (count - 1)))
    limit = _largest_share(stdtrit(count - 2, 1 - RARE / (2 * count)), count)
    return _both("heavy tails", part / limit, size / TAIL, lambda e: (
        f"{name}: one of {count} replicas makes {percent(part[e])} of the variance at t = {time[widest[0, e]]:.3g} "
        f"(limit {percent(limit)}), standard error {percent(size[e])} of the curve (limit {percent(TAIL)})"
    ))  # fmt: skip


def _largest_share(t: float, count: int) -> float:
    """Grubbs: the share of the sum of squares in one of `count` Gaussian values, from the quantile of Student's t."""
    return (count - 1) / count * t**2 / (count - 2 + t**2)


def _growth(time: np.ndarray, curves: Mapping[str, Curve]) -> Check:
    quarters = time[0] + (time[-1] - time[0]) * np.array([0.5, 0.75, 1.0])

    def at_quarters(name: str) -> np.ndarray:
        size = np.abs(curves[name].value).reshape(len(time), -1).max(axis=1)
        return np.interp(quarters, time, np.log(np.maximum(size, 1e-300)))

    before, last = np.exp(np.minimum(np.diff(at_quarters("norm")), 300.0))
    fell = "train_loss" in curves and bool(np.diff(at_quarters("train_loss"))[-1] < -1e-3)
    words = f"norm: {last:.3g}-fold over the last quarter, {before:.3g}-fold over the one before"
    if fell:
        return Check.report("growth", last, f"{words}; the training loss falls")
    slowing = math.log(last) / max(math.log(before), 1e-12)
    return Check.most("growth", min(last / DOUBLING, max(slowing / STEADILY, last / SOARING)), 1.0, words)
