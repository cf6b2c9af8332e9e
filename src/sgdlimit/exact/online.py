"""Infinite data (δ → ∞, `eq:dmft_infinite_data`, `eq:dmft_infinite_data_planted`): one-pass SGD for any loss.

Where h is linear, the second moments of (θ, θ*) close among themselves. Otherwise the law of θ is carried by particles
(`infinite`). The spread over independent replicas is the standard error.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from .. import grid
from .._machine import keep_programs, lack
from ..algorithms import Algorithm, IterateAverage, Rate
from ..algorithms.base import check_share, require
from ..algorithms.iterates import named_averages
from ..errors import DOUBLE, DivergenceWarning, UnreliableWarning, elsewhere, real, reject, seed_number, whole, words
from ..measure.averages import Array, Nodes, make_nodes, observe
from ..measure.pace import heat_of, knots_of, moving_of
from ..problem import Problem, fields, observables
from ..problem.mixture import place
from ..problem.problem import FEWEST_RARE, Rare, check_start, check_tails
from ..progress import Progress
from ..results import Solution, provenance
from ..results import metrics as own
from ..results.variables import OF, Estimate, over_replicas
from .infinite import WeightMoments, first_paces, march_moments, over, start_of
from .labels import labelled
from .particles import march_particles
from .stability import BOUND, ending, largest_stable
from .training import INTERCEPT, WEIGHTS, Averages, averaged, block_of, blocks, knots_of_averages

FEWEST = 256  # points of an average of one replica, as in `solve`
TOLERANCE = 1e-2  # what makes up less than a tenth of this need not be seen among the points
COPIES = 3.0  # of every array of points that are held at once, on the way from one to the next
_FINITE = "sl.solve with a large sample_ratio"
_REMEDIES = DOUBLE | words("snapshots weight_metrics", f"it has moments, no draws; take sl.simulate, or {_FINITE}")
_REMEDIES |= words("kernels", f"it follows one time; take {_FINITE}")
_REMEDIES |= words("test_data", f"train and test are one with infinite data; take {_FINITE}")
_REMEDIES |= words("tol variables", "errors fall with samples, and with dt where the penalty is not quadratic")
_REMEDIES |= words("checkpoint max_seconds", "it takes seconds; leave it out")
_REMEDIES |= words("functions", "with infinite data nothing of the past is remembered; leave it out")


@elsewhere(_REMEDIES)
def online(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    times: ArrayLike | None = None,
    samples: int = 131_072,
    replicas: int = 8,
    particles: int = 8192,
    dt: float = 0.02,
    seed: int = 0,
    metrics: Mapping[str, Callable[..., ArrayLike]] | None = None,
    averages: Mapping[str, IterateAverage] | None = None,
    progress: bool | None = None,
) -> Solution:
    """Learning curves with infinite data; the problem's own δ plays no part, and train equals test.

    samples: points of the averages over all replicas (in each a power of two, at least 256).
    replicas: independent repetitions, whose spread is the standard error.
    particles, dt: number of particles a replica and largest time step, used only if the penalty's gradient is not
        linear; then `x_step_error` is what steps twice as large show. Groups of coordinates share them evenly.
    metrics: further averages by name, ψ(r, r_star, z) and trained parameters, as in `solve`: `train_name` and
        `test_name`.
    averages: running means of the weights by name, such as {"ema": sl.EMA(0.5)}; `solution.averages["ema"]` is what was
        found of one.
    """
    keep_programs()
    require(problem, algorithm)
    if algorithm.multi_pass_only:
        name = type(algorithm).__name__
        raise reject("algorithm", name, "a fraction of infinite data is no batch; use sl.SGD(τ) or sl.SGF(τ)")
    t = grid.resolve(t_max, times)
    check_share(algorithm, t)
    means = dict(named_averages(averages, float(t[-1])))
    samples = whole("samples", samples, least=64, why="it must be a whole number ≥ 64")
    replicas = whole("replicas", replicas, least=2, most=4096, why="a standard error needs 2 to 4096 replicas")
    each = 2 ** (max(-(-samples // replicas), FEWEST) - 1).bit_length()
    particles = whole("particles", particles, least=64, why="at least 64 particles")
    dt = real("dt", dt, above=0, why="it must be a positive time step")
    seed = seed_number(seed)
    extra = own.on_samples(problem, metrics)
    _check_memory(problem, each, replicas, particles, len(blocks(algorithm, means)))
    rare, heavy = check_start(problem), check_tails(problem, fresh=True, bounded=algorithm.how.bounded)
    _check_rare(problem, rare, heavy, each, replicas)
    knots = knots_of([*moving_of(problem), *heat_of(algorithm)], float(t[-1]))
    knots = np.union1d(knots, knots_of_averages(means))
    with jax.enable_x64(True), Progress("online", 1.0, progress) as bar:
        nodes = make_nodes(problem, each, replicas, seed)
        _check_rate(problem, algorithm, means, nodes)
        linear = fields.linear_drift(problem, float(t[-1]), knots)
        bar.phase("compiling")
        if linear:
            paths = [march_moments(problem, algorithm, means, nodes, t, knots, bar)]
        else:
            paths = march_particles(problem, algorithm, means, nodes, t, knots, particles, dt, seed, bar)
        observed = [_every(problem, algorithm, means, nodes, t, path.at, extra) for path in paths]
    (found, *coarser), reached = observed, len(paths[0].at.norm)
    tau, limit = float(algorithm.noise_temperature), largest_stable(problem, math.inf, algorithm=algorithm)
    when = ""
    if reached < len(t):
        remedy = "" if linear else f"; where the penalty is stiff, a dt below {dt:g} mends it"
        if isinstance(algorithm.how.rate, Rate):
            remedy += "; or the user's rate is not finite there"
        cause, before = paths[0].failure or f"θᵀθ/d beyond {BOUND:g}", t[reached - 1] if reached else 0.0
        when = f"t between {before:.4g} and {t[reached]:.4g} ({cause}{remedy})"
    status, message = ending(tau, limit, when)
    if status == "diverged":
        warnings.warn(message, DivergenceWarning, stacklevel=3)
    elif (known := len(paths[-1].at.norm)) < reached:
        unknown = f"steps twice as large diverge before t = {t[known]:.4g}: the error of dt = {dt:g} is not known"
        status, message = "unreliable", f"{unknown}; take a smaller dt"
        warnings.warn(message, UnreliableWarning, stacklevel=3)
    order = 2 if problem.penalty.smooth else 1
    estimates = {}
    for name, value in found.items():  # nothing is known of the step error where steps twice as large reach no time
        error = [_step_error(value, other.get(name, value[:, :0]), order) for other in coarser]
        estimates[name] = Estimate(*over_replicas(value), *error, replicas=value)
    options = {"t_max": float(t[-1]), "samples": each * replicas, "replicas": replicas}
    if means:
        options |= {"averages": means}
    if not linear:
        options |= {"particles": particles, "dt": dt}
    method = f"online limit ({'moment equations' if linear else 'particles'})"
    about = provenance(method, problem, algorithm, seed=seed, options=options, status=status, message=message)
    return Solution(*labelled(estimates, t[:reached]), about)


def _check_rare(problem: Problem, rare: Rare, heavy: tuple[str, ...], each: int, replicas: int) -> None:
    """Refuse averages over points among which too few of the rare events are that they rest on."""
    known = {"error"} if observables.square_of_sum(problem) else set()
    need, which = rare.fewest(TOLERANCE, without=known | {name.split("_")[1] for name in heavy})
    if each < need:
        why = f"{each} points a replica; {need} would hold {FEWEST_RARE} of the rare events that the {which} rests on"
        raise reject("samples", each * replicas, f"{why}; take {need * replicas} or more, or make them less rare")


def _check_rate(problem: Problem, algorithm: Algorithm, averages: Averages, nodes: Nodes) -> None:
    """Refuse a rate that reads a loss where there is none, and a user's that is not finite or negative at the start."""
    rate = algorithm.how.rate
    if rate is None:
        return
    name = type(rate).__name__
    if "train_loss" in rate.needs and not problem.has_loss:
        why = f"{name} reads the loss, and a field has none; give sl.VectorField(fn, loss=...)"
        raise reject("loss", "VectorField", why)
    if isinstance(rate, Rate):
        start = start_of(problem, algorithm, averages, len(nodes.z))
        paces = np.asarray(first_paces(problem, algorithm, nodes, start))
        if len(bad := paces[~(np.isfinite(paces) & (paces >= 0))]):
            raise reject("Rate.fn", bad[0], "a rate must be finite and ≥ 0 at all times; here it is not at the start")


def _check_memory(problem: Problem, each: int, replicas: int, particles: int, count: int) -> None:
    """Refuse averages that do not fit: points with the products E[ℓwᵀ], E[ℓw*ᵀ], E[ℓℓᵀ] of every replica at once, or
    particles with so many blocks of m numbers."""
    m, k = problem.width, problem.k
    products = problem.rows * (m + k) + 2 + m * (2 * m + k)
    monomials = problem.rows * (m + k + 2) * (m + k + 3) // 2  # of one replica, while its weights are made
    carried = 0 if problem.penalty.quadratic else replicas * particles * ((count + 1) * m + k)
    points = each * (replicas * products + monomials)
    for name, given, numbers in (("samples", each * replicas, points), ("particles", particles, carried)):
        if why := lack(COPIES * 8.0 * numbers):
            raise reject(name, given, f"{why}; take fewer {name}, or fewer replicas")


def _every(
    problem: Problem, algorithm: Algorithm, averages: Averages, nodes: Nodes, t: np.ndarray, at: WeightMoments,
    metrics: own.Named,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Every variable of the weights and of their averages, (replicas, times, …)."""
    held, m = blocks(algorithm, averages), problem.width
    found = _found(problem, nodes, at.norm[..., :m, :m], at.overlap[..., :m, :], at.beside.shared[WEIGHTS], metrics)
    for name, average in averages.items():
        block = block_of(name)
        here = slice(m * held.index(block), m * (held.index(block) + 1))
        factor, plain = averaged(average, t[: len(at.norm)])

        def taken(own: Array, weights: Array, power: int, factor=factor, plain=plain) -> np.ndarray:
            axes = (slice(None), *[None] * (np.ndim(own) - 1))
            return (factor**power)[axes] * np.asarray(own) + plain[axes] * np.asarray(weights)

        norm = taken(at.norm[..., here, here], at.norm[..., :m, :m], 2)
        overlap = taken(at.overlap[..., here, :], at.overlap[..., :m, :], 1)
        shared = {of: taken(v, at.beside.shared[WEIGHTS][of], 1) for of, v in at.beside.shared[block].items()}
        own_found = _found(problem, nodes, norm, overlap, shared, metrics)
        found |= {f"{name}{OF}{of}": values for of, values in own_found.items()}
    return found


def _found(
    problem: Problem, nodes: Nodes, norm: Array, overlap: Array, shared: Mapping[str, Any],
    metrics: own.Named,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Every variable of weights with these second moments in every group, (replicas, times, …)."""
    share, s = problem.data.table()[:2]
    fresh, (Q, c) = ([over(part, of) for of in (norm, overlap)] for part in (share * s, share))
    at = place(problem, c, shared.get(INTERCEPT), shared)
    observed = observe(problem, nodes, *fresh, metrics=metrics, at=at)
    found = {f"{side}_{name}": values for name, values in observed.items() for side in ("train", "test")}
    overlaps = {name: own for name, own in observables.overlaps(problem, c).items() if own.size}
    found |= {"norm": Q} | overlaps | dict(shared)
    return {name: np.moveaxis(np.asarray(values, dtype=np.float64), 1, 0) for name, values in found.items()}


def _step_error(fine: np.ndarray, coarse: np.ndarray, order: int) -> np.ndarray:
    """Of a rule of this weak order: 1/(2^order − 1) of what twice the step changes, and of how well that is known.

    Heun's is two, and one near a kink of the penalty. The largest of neighbouring times, since the change may pass
    through zero.
    """
    sound = np.isfinite(coarse).all(axis=tuple(i for i in range(coarse.ndim) if i != 1))  # a loss may overflow
    reached = min(fine.shape[1], int(np.argmin(np.append(sound, False))))
    change, unsure = over_replicas(fine[:, :reached] - coarse[:, :reached])
    error = np.hypot(change, unsure) / (2**order - 1)
    error = np.concatenate([error, np.abs(fine[:, reached:].mean(axis=0))])  # not known: as large as the curve
    if not len(error):
        return error
    padded = np.pad(error, [(1, 1)] + [(0, 0)] * (error.ndim - 1), mode="edge")
    return np.max([padded[:-2], padded[1:-1], padded[2:]], axis=0)
