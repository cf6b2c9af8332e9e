"""What must hold before a march begins: steps, samples, and derivatives that exist."""

import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import SGD, SGF, Algorithm, GradientFlow, ShuffledSGD
from ..errors import flag, reject
from ..problem import (
    Exponential,
    Huber,
    Logistic,
    NoPenalty,
    Problem,
    Quartic,
    Ridge,
    SmoothHinge,
    SmoothL1,
    Square,
    fields,
)

SMOOTH = (Square, Logistic, Exponential, Huber, SmoothHinge, NoPenalty, Ridge, Quartic, SmoothL1)
"""Losses and penalties whose gradients are known to be continuous; all others are looked at."""
MEMORY_SHARE = 0.7
"""Part of the machine's memory that histories may take."""
FEWEST_DRAWS = 64
"""Draws of samples, over the whole march of a replica, below which SGD's own noise is not seen."""
LINES = 64
"""Random lines along which forces are searched for jumps."""
CELLS = 256
REACH = 8.0
"""A line runs this far to both sides."""
BISECTIONS = 45


def _jump(fn: Any, start: Any) -> tuple[Any, Any]:
    """Largest jump of fn along a line through `start` in each unit's direction, and where it is.

    The cell where fn changes most beyond the integral of its derivative is bisected down to rounding: the change
    across a cell of no width is a jump, whatever the slopes.
    """

    def along(a: Any) -> tuple[Any, Any]:
        direction = jnp.eye(start.shape[0])[a]

        def value(x: Any) -> Any:
            return fn(start + x * direction)

        edges = jnp.linspace(-REACH, REACH, CELLS + 1)
        f = jax.vmap(value)(edges)
        slope = jax.vmap(jax.jacfwd(value))(edges)
        gap = jnp.max(jnp.abs(jnp.diff(f, axis=0) - (slope[1:] + slope[:-1]) * (REACH / CELLS)), axis=1)
        cell = jnp.argmax(gap)

        def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = ends
            middle = (low + high) / 2
            left = jnp.max(jnp.abs(value(middle) - value(low))) > jnp.max(jnp.abs(value(high) - value(middle)))
            return jnp.where(left, low, middle), jnp.where(left, middle, high)

        low, high = jax.lax.fori_loop(0, BISECTIONS, halve, (edges[cell], edges[cell + 1]))
        size = jnp.max(jnp.abs(value(high) - value(low))) / (1e-30 + jnp.max(jnp.abs(f)))
        return size, (start + high * direction)[a]

    sizes, places = jax.vmap(along)(jnp.arange(start.shape[0]))
    worst = jnp.argmax(sizes)
    return sizes[worst], places[worst]


@jax.jit
def _jumps(problem: Problem, w: Any, z: Any, t: Any) -> tuple[Any, Any]:
    """Relative jumps of ℓ and h at time t, and their places."""
    m = problem.width
    force = jax.vmap(lambda a, b, c: _jump(lambda v: fields.force(problem, t, v, b, c), a))
    drift = jax.vmap(lambda a: _jump(lambda v: fields.drift(problem, t, v), a))
    # off the lattice of round numbers, where a kink would fall on the edge of a cell
    return force(w[:, :m] + 1e-3, w[:, m:], z), drift(w[:, :m] + 1e-3)


@jax.jit
def _curvature(problem: Problem, w: Any, z: Any, times: Any) -> tuple[Any, Any]:
    """E∇ℓ and E∇h at the start, (times, m, m)."""
    m = problem.width

    def at(t: Any) -> tuple[Any, Any]:
        slopes = jax.vmap(lambda a, b, c: fields.force_r(problem, t, a, b, c))(w[:, :m], w[:, m:], z)
        stiff = jax.vmap(lambda v: fields.drift_theta(problem, t, v))(w[:, :m])
        return jnp.mean(slopes, axis=0), jnp.mean(stiff, axis=0)

    return jax.lax.map(at, times)


def check_fields(problem: Problem, algorithm: Any, grid: np.ndarray) -> float:
    """How much of Euler's stability limit the steps use; refused where it is more than all of it at the start.

    Refused as well: a force or a penalty whose gradient jumps.

    The stability limit is that of the square loss of the same mean curvature at the start: γ s(t) (Γ(1+δ^−½)² + Λ) ≤ 2.
    Algorithms that live in discrete time have no such limit: their step is real.
    """
    values, vectors = np.linalg.eigh(problem.gram())
    rng = np.random.default_rng(0)
    w = rng.standard_normal((256, len(values))) @ (vectors * np.sqrt(np.clip(values, 0, None))).T
    z = np.asarray(problem.noise_law.spread_out(rng.random((256, 2)), jax.random.key(0)), dtype=np.float64)
    some = np.unique(np.linspace(0, len(grid) - 2, 32).round().astype(int))
    some = np.unique([*some, int(np.argmax(np.diff(grid)))])
    with jax.enable_x64(True):
        if not isinstance(problem.loss, SMOOTH) or not isinstance(problem.penalty, SMOOTH):
            for t in (grid[0], grid[-1] / 2, grid[-1]):  # a field of time may begin without its jump
                _refuse_jumps(*_jumps(problem, w[:LINES], z[:LINES], t))
        if algorithm.discrete:
            return 0.0
        gamma, stiff = _curvature(problem, w, z, grid[some])
    total = np.asarray(gamma) * (1 + problem.sample_ratio**-0.5) ** 2 + np.asarray(stiff)
    pace = np.max(np.linalg.eigvalsh((total + np.swapaxes(total, 1, 2)) / 2), axis=1)
    steps = np.diff(grid)[some]
    worst = int(np.argmax(pace * steps))
    if pace[worst] * steps[worst] > 2:
        limit = 2 / pace[worst]
        why = f"explicit Euler is unstable above {limit:.3g} here; take dt ≤ {limit / 2:.2g}"
        raise reject("dt", f"{steps[worst]:.4g}", why)
    return float(max(pace[worst] * steps[worst], 0.0)) / 2


def _refuse_jumps(force: Any, drift: Any) -> None:
    for argument, (sizes, places), remedy in (
        ("loss", force, "smooth the loss there (sl.SmoothHinge, sl.Huber, a softplus)"),
        ("penalty", drift, "smooth the penalty there (sl.SmoothL1)"),
    ):
        sizes = np.nan_to_num(np.asarray(sizes), nan=np.inf)  # a derivative that is not a number is no derivative
        if np.max(sizes) > 1e-6:
            where = float(np.asarray(places)[np.argmax(sizes)])
            why = f"the theory needs its derivative, which autodiff would take for zero; {remedy}"
            raise reject(argument, f"a gradient that jumps, near {where:.4g}", why)


def check_samples(samples: int, per_replica: int, replicas: int, rows: int, block: int, problem: Problem) -> None:
    """Refuse fewer samples than the covariance of all steps needs."""
    m = problem.width
    needed = math.ceil(1.25 * m * (rows + block)) + m + problem.k + 2
    if per_replica < needed:
        raise reject(
            "samples",
            samples,
            f"{rows} steps of width {m} need at least {needed} samples in each of {replicas} replicas: "
            f"take samples ≥ {needed * replicas}, a larger dt or fewer replicas",
        )


def check_choices(
    problem: Problem, algorithm: Algorithm, extrapolate: Any, response: Any, method: Any, dtype: Any, kernels: Any
) -> None:
    """Refuse combinations that have no meaning."""
    flag("kernels", kernels)
    if problem.infinite_data:
        raise reject("sample_ratio", "inf", "this theory is for finite δ; with infinite data use sl.online")
    for argument, value in (("response", response), ("method", method), ("dtype", dtype)):
        if not isinstance(value, str):
            raise reject(argument, repr(value), "it must be a word, such as the default")
    if response not in ("probes", "exact", "paper"):
        raise reject("response", response, "it must be 'probes', 'exact' or 'paper'")
    if response == "paper" and not isinstance(algorithm, SGF | GradientFlow):
        name = type(algorithm).__name__
        raise reject("response", response, f"the paper's processes need Gaussian increments, not {name}; use 'probes'")
    if method not in ("march", "fixed-point"):
        raise reject("method", method, "it must be 'march' or 'fixed-point'")
    if dtype not in ("float32", "float64"):
        raise reject("dtype", dtype, "it must be 'float32' or 'float64'")
    if flag("extrapolate", extrapolate) and algorithm.discrete:
        raise reject("extrapolate", True, f"the step of {type(algorithm).__name__} is real; leave extrapolate out")


def check_memory(setup: Any, problem: Problem, replicas: int) -> None:
    """Refuse histories that do not fit."""
    m, k = problem.width, problem.k * setup.derivative
    rows = setup.blocks * setup.block
    size = 8 if setup.dtype == "float64" else 4
    shapes = jax.eval_shape(lambda: setup.response.init(setup.blocks, setup.block, m, setup.samples, setup.dtype))
    response = sum(part.size * part.dtype.itemsize for part in jax.tree.leaves(shapes))
    kernel = 8 * (rows * m) ** 2 * 5
    total = replicas * (rows * (2 * m + m * k + 4 * m) * setup.samples * size + response + kernel)
    if jax.default_backend() != "cpu" or not hasattr(os, "sysconf"):
        return
    memory = MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total > memory:
        raise reject(
            "samples",
            setup.samples * replicas,
            f"{rows} steps of so many samples need {total / 2**30:.1f} GiB, of which {memory / 2**30:.1f} are there; "
            "take fewer samples, a larger dt, or dtype='float32'",
        )


def check_draws(algorithm: Algorithm, problem: Problem, per_replica: int, times: np.ndarray) -> None:
    """Refuse a law whose samples are hardly ever drawn: its noise would be missed, and no spread would tell."""
    if not isinstance(algorithm, SGD | ShuffledSGD) or algorithm.temperature == 0:
        return
    t_max = float(times[-1])
    draws = per_replica * t_max / (float(algorithm.temperature) * problem.sample_ratio)
    if algorithm.scheduled:  # ∫dt/τ(t) in place of t_max/τ
        draws *= np.diff(times) @ np.asarray(jax.vmap(algorithm.portion)(times[:-1])) / t_max
    if draws < FEWEST_DRAWS:
        name = type(algorithm).__name__
        why = f"up to t = {t_max:g} only {draws:.2g} samples of a replica would be drawn (rate 1/τδ)"
        raise reject("samples", per_replica, f"{why}; take more samples, or sl.SGF in place of {name}")
