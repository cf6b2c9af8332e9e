"""The one table of what a result may hold: every variable with its axes, its meaning, and what may stand beside it.

Below it, for every Monte Carlo theory alike, from replicas to numbers with errors.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from ..errors import reject


class Variable(NamedTuple):
    """An array and the names of its axes."""

    dims: tuple[str, ...]
    values: np.ndarray


class Entry(NamedTuple):
    """What is known of a variable by its name."""

    dims: tuple[str, ...]
    """Names of its axes in a theory; runs have `trial` before them."""
    meaning: str
    comparable: bool = False
    """Whether a theory and runs mean the same number by it, at every time."""


AXES = {
    "time": "t = ηk/d",
    "earlier": "t' of a two-time kernel",
    "snapshot": "times at which draws are kept",
    "student": "unit of the student",
    "student_": "second unit of the student",
    "teacher": "unit of the teacher",
    "direction": "direction of the means of rows",
    "group": "group of coordinates of equal variance in the data",
    "coordinate": "coordinate of the weights",
    "sample": "training sample",
    "row": "row of a sample",
    "trial": "independent run",
    "replica": "independent solution",
}
"""Names of axes and what runs along them."""

_units = ("student", "student_")

TABLE = {
    "train_loss": Entry(("time",), "mean of L over the training samples, penalty not included", True),
    "test_loss": Entry(("time",), "mean of L over fresh samples, penalty not included", True),
    "train_error": Entry(("time",), "mean error over the training samples", True),
    "test_error": Entry(("time",), "mean error over fresh samples", True),
    "overlap": Entry(("time", "student", "teacher"), "θᵀθ*/d", True),
    "mean_overlap": Entry(("time", "student", "direction"), "θᵀa/d, a the directions of the means of rows", True),
    "norm": Entry(("time", *_units), "θᵀθ/d", True),
    "intercept": Entry(("time", "student"), "β of r = θᵀx + β", True),
    "readout": Entry(("time", "student"), "second layer of the network", True),
    "bias": Entry(("time", "student"), "biases of the hidden units", True),
    "output_bias": Entry(("time",), "bias of the network's output", True),
    "overlap_by_group": Entry(("time", "group", "student", "teacher"), "θᵀθ*/d_q over the d_q coordinates of a group"),
    "norm_by_group": Entry(("time", "group", *_units), "θᵀθ/d_q over the d_q coordinates of a group"),
    "C_theta": Entry(("time", "earlier", *_units), "E[θ(t) θ(t')ᵀ]"),
    "R_theta": Entry(("time", "earlier", *_units), "E[∂θ(t)/∂u(t')]"),
    "R_ell": Entry(("time", "earlier", *_units), "E[∂ℓ(t)/∂w(t')]"),
    "Gamma": Entry(("time", *_units), "E[∇_r ℓ(t)]"),
    "theta": Entry(("snapshot", "coordinate", "student"), "weights, one row per coordinate"),
    "theta_star": Entry(("coordinate", "teacher"), "teacher weights"),
    "r": Entry(("snapshot", "sample", "student"), "pre-activations of the training samples"),
    "r_star": Entry(("sample", "teacher"), "teacher pre-activations of the training samples"),
    "z": Entry(("sample",), "label noise of the training samples"),
}
"""Variables in the order in which a result lists them; the user's own metrics follow."""

COMPARABLE = tuple(name for name, entry in TABLE.items() if entry.comparable)
PARAMETERS = ("readout", "bias", "output_bias")
"""Of a network; trained, each has as many axes as the user gave it: `dims`."""
OF_SAMPLES = tuple(name for name, entry in TABLE.items() if "sample" in entry.dims)
"""Of every sample: with an axis for its rows where it has several, and z as many as a label of the user's has."""
TWO_TIME = tuple(name for name, entry in TABLE.items() if "earlier" in entry.dims)

BESIDE = {
    "_stderr": "standard error of {}",
    "_step_error": "estimated error of {} from the time step",
    "_projection_error": "estimated error of {} from the projection of the memory",
    "_bias_error": "estimated bias of {} from the finite samples of one march",
    "_replicas": "independent solutions whose mean is {}",
}
"""Endings of what stands beside a variable of a theory, in words."""

SYSTEMATIC = ("_step_error", "_projection_error", "_bias_error")
"""Those that all replicas share: their spread does not tell them."""


OF = "."
"""Between the name of an average of the iterates and that of a variable: `ema.norm` is the norm of θ̄."""


def bare(name: str) -> str:
    """`norm` of `ema.norm`: a variable of an average means for θ̄ what it does for θ."""
    return name.rpartition(OF)[2]


def split(name: str) -> tuple[str, str]:
    """('norm', '_stderr') of 'norm_stderr', ('norm', '') of 'norm'."""
    ending = next((ending for ending in BESIDE if name.endswith(ending)), "")
    return name.removesuffix(ending), ending


def dims(name: str, count: int | None = None) -> tuple[str, ...]:
    """Axes of a variable of a theory, time included; a metric of the user's is a curve.

    count: how many axes it has, where that is known: trained parameters have as many as the user gave them, one number
    serves all units of a network, and pre-activations of samples with several rows have one more.
    """
    base, ending = split(bare(name))
    axes = TABLE[base].dims if base in TABLE else ("time",)
    axes = ("replica", *axes) if ending == "_replicas" else axes
    if count == len(axes) + 1 and base in ("r", "r_star"):  # a sample has several rows
        place = axes.index("sample") + 1
        return (*axes[:place], "row", *axes[place:])
    if count is not None:
        axes = axes[:count] + tuple(f"{base}_{i}" for i in range(count - len(axes)))
    return axes


def meaning(name: str) -> str:
    """Of a variable, of what stands beside it, or of an axis; a metric of the user's speaks for itself."""
    average, _, own = name.rpartition(OF)
    if average:
        return f"{meaning(own)}, of the average {average}"
    base, ending = split(name)
    if ending:
        return BESIDE[ending].format(base)
    return TABLE[name].meaning if name in TABLE else AXES.get(name, name)


def ordered(names: Iterable[str]) -> list[str]:
    """As in the table; others after them, as they come; those of averages of the iterates last, one after the other."""
    place = {name: index for index, name in enumerate(TABLE)}
    return sorted(names, key=lambda name: (name.rpartition(OF)[0], place.get(bare(name), len(place))))


def coordinates(variables: Mapping[str, Variable], time: np.ndarray) -> dict[str, np.ndarray]:
    """Along the axes of these variables: times, and numbers from 0 where they count units or groups."""
    sizes = {axis: size for own in variables.values() for axis, size in zip(own.dims, own.values.shape, strict=True)}
    counted = ("student", "student_", "teacher", "direction", "group", "row")
    earlier = {"earlier": time} if "earlier" in sizes else {}
    return {"time": time} | earlier | {axis: np.arange(sizes[axis]) for axis in counted if axis in sizes}


def reserved(name: str) -> bool:
    """Whether a metric of the user's may not have this name."""
    taken = name in TABLE or name in AXES or f"train_{name}" in TABLE
    return taken or name.startswith(("train_", "test_")) or name.endswith(tuple(BESIDE))


def chosen(wanted: object) -> tuple[str, ...]:
    """Names that a user gave as `variables`: one, or several."""
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted) if isinstance(wanted, Iterable) else (wanted,)
    if not names:
        raise reject("variables", repr(wanted), "name one or more, such as 'train_error', or leave it out")
    for name in names:
        if not isinstance(name, str):
            raise reject("variables", repr(name), "it must be a name, such as 'train_error'")
    return tuple(map(str, names))


def neighbours(name: object, held: Iterable[str]) -> str:
    """What to say of a name that is not held: the one that was perhaps meant, and all there are."""
    names = [n for n in held if not split(n)[1]]
    near = difflib.get_close_matches(str(name), names, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"it has {', '.join(names) or 'nothing'}"


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


def estimated(name: str, estimate: Estimate) -> dict[str, Variable]:
    """`x` and what stands beside it: `x_stderr`, and its other errors and `x_replicas` where they are known."""
    axes = dims(name, np.ndim(estimate.value))
    out = {name: Variable(axes, estimate.value), f"{name}_stderr": Variable(axes, estimate.stderr)}
    for part in ("step_error", "projection_error", "bias_error"):
        if (values := getattr(estimate, part)) is not None:
            out[f"{name}_{part}"] = Variable(axes, values)
    if estimate.replicas is not None:
        replicas = np.asarray(estimate.replicas, dtype=np.float64)
        out[f"{name}_replicas"] = Variable(("replica", *axes), replicas)
    return out


STANDS_OUT = 3.0
"""Standard errors from which a mean difference is no noise: at one of many times two are often passed."""


def beyond_noise(gap: np.ndarray) -> np.ndarray:
    """Size of the mean of differences (replicas, times, …) where it stands out from their noise; else zero.

    The largest of many entries is larger: of N normal ones its square is about 2 log N more.
    """
    limit = STANDS_OUT**2 + 2 * math.log(max(math.prod(gap.shape[2:]), 1))
    return np.sqrt(np.maximum(gap.mean(axis=0) ** 2 - limit * gap.var(axis=0, ddof=1) / len(gap), 0.0))
