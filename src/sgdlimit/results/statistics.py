"""From replicas to numbers with errors, for every Monte Carlo theory alike."""

import math
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from .variables import Variable


class Estimate(NamedTuple):
    """A mean over replicas, its Monte Carlo error, and the errors that the replicas share, where they are known."""

    value: np.ndarray
    stderr: np.ndarray
    step_error: np.ndarray | None = None
    """Left from the time step."""
    projection_error: np.ndarray | None = None
    """Left from the projection of the memory."""
    bias_error: np.ndarray | None = None
    """Of a mean of marches that each feed on finite samples."""
    replicas: np.ndarray | None = None
    """(replicas, …): independent copies, for a test of the curve as a whole; None: not kept."""


def widening(replicas: int) -> float:
    """Few replicas know their spread poorly: Student's t at three sigma, over three.

    With it three standard errors cover 99.73 % whatever the number of replicas, and `x_stderr` reads as Gaussian.
    """
    from scipy.special import ndtr, stdtrit

    return float(stdtrit(replicas - 1, ndtr(3.0))) / 3.0


HUGE = 2.0**400
"""A power of two: dividing by it rounds nothing."""


def over_replicas(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of (replicas, …); replicas share nothing, so their spread is honest."""
    values = np.asarray(values, dtype=np.float64)
    count = len(values)
    unit = HUGE if np.max(np.abs(values), initial=0.0) > HUGE else 1.0  # squares of what diverges would overflow
    spread = unit * (values / unit).std(axis=0, ddof=1) / math.sqrt(count)
    return values.mean(axis=0), widening(count) * spread


def total_error(*parts: Any) -> Any:
    """Everything that is uncertain about a variable together: the root of the sum of the squares of its errors.

    The one place where errors are added up; large ones do not overflow. Arrays of numpy or xarray, or numbers.
    """
    return reduce(np.hypot, parts)


def variables(name: str, dims: tuple[str, ...], estimate: Estimate) -> dict[str, Variable]:
    """`x` and what stands beside it: `x_stderr`, and its other errors and `x_replicas` where they are known."""
    out = {name: Variable(dims, estimate.value), f"{name}_stderr": Variable(dims, estimate.stderr)}
    for part in ("step_error", "projection_error", "bias_error"):
        if (values := getattr(estimate, part)) is not None:
            out[f"{name}_{part}"] = Variable(dims, values)
    if estimate.replicas is not None:
        replicas = np.asarray(estimate.replicas, dtype=np.float64)
        out[f"{name}_replicas"] = Variable(("replica", *dims), replicas)
    return out


STANDS_OUT = 3.0
"""Standard errors from which a mean difference is no noise: at one of many times two are often passed."""


def beyond_noise(gap: np.ndarray) -> np.ndarray:
    """Size of the mean of differences (replicas, times, …) where it stands out from their noise; else zero.

    The largest of many entries is larger: of N normal ones its square is about 2 log N more.
    """
    limit = STANDS_OUT**2 + 2 * math.log(max(math.prod(gap.shape[2:]), 1))
    return np.sqrt(np.maximum(gap.mean(axis=0) ** 2 - limit * gap.var(axis=0, ddof=1) / len(gap), 0.0))
