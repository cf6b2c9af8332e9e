"""The clocks of a run: time t = ηk/d, and epochs, in each of which n samples are drawn."""

import numpy as np

from .algorithms import Algorithm
from .errors import InputError, reject
from .results import Result

CLOCKS = {"time": "time  $t = \\eta k / d$", "epochs": "epochs  $t / \\tau\\delta$"}
"""What an axis can show, and how it is printed."""
TIME = "draw it over x='time'"


def reading(result: Result, x: str) -> np.ndarray:
    """The times of a result as `x` counts them.

    epochs: t/(τδ); of batches of a share b of the data, b for each update.
    """
    if x not in CLOCKS:
        raise reject("x", repr(x), f"it must be one of {', '.join(CLOCKS)}")
    if x == "time":
        return result.time
    algorithm = result.algorithm
    if not isinstance(algorithm, Algorithm):
        raise reject("x", x, f"{result.title()}: its algorithm holds a function of yours; {TIME}")
    try:
        return _epochs(result, algorithm)
    except InputError as error:
        raise InputError(f"{error} ({result.title()})") from None


def _epochs(result: Result, algorithm: Algorithm) -> np.ndarray:
    if algorithm.discrete:
        return result.time / _step(result) * float(getattr(algorithm, "batch_fraction", 1.0))
    problem, options = result.about.get("problem"), result.about.get("options") or {}
    if problem is not None:
        ratio = float(problem["sample_ratio"])
    elif options.get("samples") and options.get("dim"):  # the user's own matrix
        ratio = options["samples"] / options["dim"]
    else:
        raise reject("x", "epochs", f"the result does not say how many samples it has; {TIME}")
    if not np.isfinite(ratio):
        raise reject("x", "epochs", f"infinite data are never seen twice, and have no epochs; {TIME}")
    temperature = algorithm.noise_temperature
    if not temperature:
        raise reject("x", "epochs", f"{type(algorithm).__name__} at τ = 0 draws no samples, and has no epochs; {TIME}")
    if algorithm.scheduled:
        raise reject("x", "epochs", f"the batch changes in time, and epochs with it; {TIME}")
    return result.time / (temperature * ratio)


def _step(result: Result) -> float:
    """The real step of an algorithm that has one."""
    step = (result.about.get("options") or {}).get("dt") or (result.about.get("diagnostics") or {}).get("step_time")
    if not step:
        raise reject("x", "a result that does not say its step", TIME)
    return float(step)
