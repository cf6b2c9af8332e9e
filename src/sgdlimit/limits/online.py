"""Infinite data (δ → ∞, `eq:dmft_infinite_data`, `eq:dmft_infinite_data_planted`): one-pass SGD for any loss.

Where h is linear, the second moments of (θ, θ*) close among themselves: ordinary differential equations. Otherwise
the law of θ is carried by particles (`particles`). The spread over independent replicas is the standard error.
"""

import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import grid
from .._cache import keep_programs
from .._machine import lack
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..errors import DivergenceWarning, real, reject, seed_number, whole
from ..problem import Constant, Iid, Problem, fields
from ..problem.problem import check_start, check_tails
from ..problem.schedules import course
from ..problem.shift import Push, place
from ..progress import Progress
from ..results import Solution, Variable, statistics
from ..results.provenance import provenance
from ..results.statistics import Estimate, over_replicas
from ..results.variables import dims, ordered
from .averages import PER_REPLICA, Nodes, average, force_moments, make_nodes, observe
from .particles import march_particles
from .stability import BOUND, divergence_words, largest_stable

FEWEST = 256
"""Points of an average of one replica at least, as in `solve`."""
MOST_STEPS = 50_000
"""Steps of the moment equations that still take minutes."""
COPIES = 3.0
"""Of every array of points that are held at once, on the way from one to the next."""
LOOK_BACK = 32
"""Steps over which their length is averaged, to tell whether it still grows."""


class Weights(NamedTuple):
    """What is integrated, or what has come of it: (…, replicas, [g,] m, ·)."""

    norm: Any
    """Q = C_θ(t,t)."""
    overlap: Any
    """c = C_θ(t,*)."""
    intercept: Any
    """β, (…, replicas, m) where the student has one, else (…, replicas, 0)."""


@jax.jit
def _velocity(problem: Problem, tau: Any, nodes: Nodes, t: Any, state: Weights) -> Weights:
    """d/dt of Q, c and β by Itô's lemma on `eq:dmft_infinite_data_planted`, h = Λθ.

    By Gaussian integration by parts ΓQ + Γ*cᵀ = E[ℓ wᵀ] and Γc + Γ*C_θ(*,*) = E[ℓ w*ᵀ]: no derivative is needed.
    """
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))

    def one(nodes: Nodes, own: Weights) -> Weights:
        Q, c = own.norm, own.overlap
        at = place(problem, c, own.intercept)
        with_w, with_star, square, pushed = force_moments(problem, nodes, t, Q, c, at)
        pull = stiffness @ Q + with_w
        return Weights(-pull - pull.T + tau * square, -(stiffness @ c + with_star), _rise(own, pushed))

    return jax.vmap(one, in_axes=(PER_REPLICA, 0))(nodes, state)


def _rise(own: Weights, pushed: Push) -> Any:
    """dβ/dt."""
    return own.intercept if pushed.level is None else -pushed.level


class Groups(NamedTuple):
    """Coordinates of unlike variance, as the moment equations see them."""

    share: Any
    variance: Any
    teacher: Any
    """Second moments of θ*, (g, k, k)."""

    @classmethod
    def of(cls, problem: Problem) -> "Groups | None":
        """None where all coordinates are alike."""
        if isinstance(problem.data, Iid):
            return None
        table, m = problem.data.table(), problem.width
        return cls(table.share, table.variance, table.moments(problem.gram(), m)[:, m:, m:])

    def total(self, moments: Any) -> Any:
        """Of weights, from those of the groups, (…, g, m, ·)."""
        return jnp.einsum("q,...qab->...ab", self.share, moments)

    def fresh(self, moments: Any) -> Any:
        """Of a fresh sample's pre-activations."""
        return jnp.einsum("q,...qab->...ab", self.share * self.variance, moments)


@jax.jit
def _velocity_of(problem: Problem, groups: Groups, tau: Any, nodes: Nodes, t: Any, state: Weights) -> Weights:
    """The same group by group, (replicas, g, m, ·): θ^q feels s_q(Γθ + Γ*θ*) and the noise s_q τ C_ℓ.

    Γ* = (E[ℓ w*ᵀ] − Γ E[w w*ᵀ]) E[w*w*ᵀ]⁺ also for labels that jump. What averages over points miss of
    E[ℓ wᵀ] = Γ E[w wᵀ] + Γ* E[w* wᵀ] is shared out in proportion to the norms: one group is the equation above.
    The means of classes pull along θ*, without s_q.
    """
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))
    s = groups.variance[:, None, None]

    def one(nodes: Nodes, own: Weights) -> Weights:
        Q, c = own.norm, own.overlap
        w, w_star = groups.fresh(Q), groups.fresh(c)
        at = place(problem, groups.total(c), own.intercept)
        with_w, with_star, square, pushed = force_moments(problem, nodes, t, w, w_star, at)
        gamma = average(problem, nodes, w, w_star, at, lambda r, v, z: fields.force_r(problem, t, r, v, z))
        gamma_star = (with_star - gamma @ w_star) @ nodes.teacher_inverse
        missed = (with_w - gamma @ w - gamma_star @ w_star.T) @ jnp.linalg.pinv(w, hermitian=True)
        pull = stiffness @ Q + s * ((gamma + missed) @ Q + gamma_star @ jnp.swapaxes(c, 1, 2))
        toward = stiffness @ c + s * (gamma @ c + gamma_star @ groups.teacher)
        if pushed.means is not None:
            pull = pull + pushed.means @ jnp.swapaxes(c, 1, 2)
            toward = toward + pushed.means @ groups.teacher
        return Weights(-pull - jnp.swapaxes(pull, 1, 2) + tau * s * square, -toward, _rise(own, pushed))

    return jax.vmap(one, in_axes=(PER_REPLICA, 0))(nodes, state)


def online(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    times: Any = None,
    samples: int = 131_072,
    replicas: int = 8,
    particles: int = 8192,
    dt: float = 0.02,
    seed: int = 0,
    progress: bool | None = None,
) -> Solution:
    """Learning curves with infinite data; the problem's own δ plays no part, and train equals test.

    samples: points of the averages over all replicas (in each a power of two, at least 256).
    replicas: independent repetitions, whose spread is the standard error.
    particles, dt: number of particles a replica and largest time step, used only if the penalty's gradient is not
        linear; then `x_step_error` is what steps twice as large show. Groups of coordinates share them evenly.
    """
    keep_programs()
    require(problem, algorithm)
    if algorithm.multi_pass_only:
        name = type(algorithm).__name__
        raise reject("algorithm", name, "a fraction of infinite data is no batch; use sl.SGD(τ) or sl.SGF(τ)")
    t = grid.resolve(t_max, times)
    check_share(algorithm, t)
    samples = whole("samples", samples, least=64, why="it must be a whole number ≥ 64")
    replicas = whole("replicas", replicas, least=2, most=4096, why="a standard error needs 2 to 4096 replicas")
    each = 2 ** (max(-(-samples // replicas), FEWEST) - 1).bit_length()
    particles = whole("particles", particles, least=64, why="at least 64 particles")
    dt = real("dt", dt, above=0, why="it must be a positive time step")
    seed = seed_number(seed)
    _check_memory(problem, each, replicas, particles)
    check_start(problem)
    check_tails(problem)
    knots = _knots(problem, algorithm, float(t[-1]))
    with jax.enable_x64(True), Progress("online", 1.0, progress) as bar:
        weight_key, path_key = jax.random.split(jax.random.key(seed))
        nodes = make_nodes(problem, each, replicas, seed)
        linear = fields.linear_drift(problem, float(t[-1]))
        bar.phase("compiling")
        if linear:
            marched = _march_moments(problem, algorithm, nodes, t, replicas, knots, bar)
            coarse = None
        else:
            paths = march_particles(
                problem, algorithm, nodes, t, replicas, particles, dt, knots, weight_key, path_key, bar
            )
            marched, coarse = (Moments(Weights(*path), "") for path in paths)
        observed = [_found(problem, nodes, part.at) for part in (marched, coarse) if part is not None]
    found, reached = observed[0], len(marched.at.norm)
    status, message = _ending(problem, algorithm, t, reached, marched.failure)
    if status != "complete":
        warnings.warn(message, DivergenceWarning, stacklevel=2)
    coords = {"time": t[:reached], "student": np.arange(problem.width), "student_": np.arange(problem.width)}
    if problem.k:
        coords["teacher"] = np.arange(problem.k)
    variables: dict[str, Variable] = {}
    for name in ordered(found):
        step = None if coarse is None else _step_error(found[name], observed[1][name])
        estimate = Estimate(*over_replicas(found[name]), step_error=step, replicas=found[name])
        variables |= statistics.variables(name, dims(name), estimate)
    options = {"t_max": float(t[-1]), "samples": each * replicas, "replicas": replicas}
    if not linear:
        options |= {"particles": particles, "dt": dt}
    about = provenance(
        "online limit (moment equations)" if linear else "online limit (particles)",
        problem,
        algorithm,
        seed=seed,
        options=options,
        status=status,
        message=message,
    )
    return Solution(variables, coords, about)


def _check_memory(problem: Problem, each: int, replicas: int, particles: int) -> None:
    """Refuse averages that do not fit: points with the products E[ℓwᵀ], E[ℓw*ᵀ], E[ℓℓᵀ] of every replica at once."""
    m, k = problem.width, problem.k
    products = m + k + 2 + m * (2 * m + k)
    monomials = (m + k + 2) * (m + k + 3) // 2  # of one replica, while its weights are made
    carried = 0 if problem.penalty.quadratic else replicas * particles * (2 * m + k)
    parts = {"samples": each * (replicas * products + monomials), "particles": carried}
    for name, numbers in parts.items():
        if why := lack(COPIES * 8.0 * numbers):
            given = {"samples": each * replicas, "particles": particles}[name]
            raise reject(name, given, f"{why}; take fewer {name}, or fewer replicas")


class Moments(NamedTuple):
    """Of the weights at the times reached, and why no further."""

    at: Weights
    failure: str


def _found(problem: Problem, nodes: Nodes, at: Weights) -> dict[str, np.ndarray]:
    """Every variable, (replicas, times, …)."""
    groups = Groups.of(problem)
    seen = total = at.norm, at.overlap
    if groups is not None:
        seen, total = (tuple(map(part, seen)) for part in (groups.fresh, groups.total))
    observed = observe(problem, nodes, *seen, at=place(problem, total[1], at.intercept))
    found = {f"{side}_{name}": values for name, values in observed.items() for side in ("train", "test")}
    found["norm"] = total[0]
    if problem.k:
        found["overlap"] = total[1]
    if problem.bias:
        found["intercept"] = at.intercept
    return {name: np.moveaxis(np.asarray(values, dtype=np.float64), 1, 0) for name, values in found.items()}


def _step_error(fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """Of a rule of weak order two: a third of what twice the step changes, and of how well that is known.

    The largest of neighbouring times, since the change may pass through zero.
    """
    reached = min(fine.shape[1], coarse.shape[1])
    change, unsure = over_replicas(fine[:, :reached] - coarse[:, :reached])
    error = np.hypot(change, unsure) / 3
    error = np.concatenate([error, np.full((fine.shape[1] - reached, *error.shape[1:]), np.inf)])
    if not len(error):
        return error
    padded = np.pad(error, [(1, 1)] + [(0, 0)] * (error.ndim - 1), mode="edge")
    return np.max([padded[:-2], padded[1:-1], padded[2:]], axis=0)


def _ending(problem: Problem, algorithm: Algorithm, t: np.ndarray, reached: int, failure: str) -> tuple[str, str]:
    """Status and message: whether all times were reached, and whether theory says that it grows for ever."""
    tau = float(algorithm.noise_temperature)
    limit = largest_stable(problem, math.inf, algorithm=algorithm)
    if reached < len(t):
        before = t[reached - 1] if reached else 0.0
        cause = failure or f"θᵀθ/d beyond {BOUND:g}"
        return "diverged", divergence_words(tau, limit, f"t between {before:.4g} and {t[reached]:.4g} ({cause})")
    if limit is not None and tau >= limit:
        return "diverged", f"diverged: it grows without bound, τ = {tau:g}; the largest stable temperature is {limit:g}"
    return "complete", ""


def _knots(problem: Problem, algorithm: Algorithm, t_max: float) -> np.ndarray:
    """Times up to t_max at which the learning rate or the batch changes."""
    moving = [("schedule", problem.schedule), (f"{type(algorithm).__name__}.batch_share", algorithm.batch_share)]
    knots = [course(*item, t_max).knots() for item in moving if not isinstance(item[1], Constant)]
    return np.unique(np.concatenate([np.zeros(0), *knots]))


def _start(problem: Problem, replicas: int) -> Weights:
    m, gram = problem.width, problem.gram()
    level = np.zeros((replicas, m if problem.bias else 0))
    if not isinstance(problem.data, Iid):
        gram = problem.data.table().moments(gram, m)
        repeat = (replicas, 1, 1, 1)
        return Weights(np.tile(gram[:, :m, :m], repeat), np.tile(gram[:, :m, m:], repeat), level)
    repeat = (replicas, 1, 1)
    return Weights(np.tile(gram[:m, :m], repeat), np.tile(gram[:m, m:], repeat), level)


def _march_moments(
    problem: Problem,
    algorithm: Algorithm,
    nodes: Nodes,
    t: np.ndarray,
    replicas: int,
    knots: np.ndarray,
    bar: Progress,
) -> Moments:
    """C_θ(t,t), C_θ(t,*) and β of all replicas, integrated together to a relative 1e-9, at the times reached."""
    from scipy.integrate import DOP853

    first, groups = _start(problem, replicas), Groups.of(problem)
    cuts = np.cumsum([part.size for part in first])

    def parts(state: np.ndarray) -> Weights:
        """Of states (…, numbers)."""
        split = zip(np.split(state, cuts[:-1], axis=-1), first, strict=True)
        return Weights(*(part.reshape(*state.shape[:-1], *like.shape) for part, like in split))

    def velocity(s: float, state: np.ndarray) -> np.ndarray:
        tau = float(algorithm.temperature_at(s))
        if groups is None:
            found = _velocity(problem, tau, nodes, s, parts(state))
        else:
            found = _velocity_of(problem, groups, tau, nodes, s, parts(state))
        return np.concatenate([np.asarray(part).ravel() for part in found])

    start = np.concatenate([part.ravel() for part in first])
    stops = np.append(knots[knots < t[-1]], t[-1])
    states, failure = [start for at in t if at <= 0], ""
    with np.errstate(over="ignore", invalid="ignore"):
        solver = DOP853(velocity, 0.0, start, t[-1], rtol=1e-9, atol=1e-12)
        lengths: list[float] = []
        while solver.status == "running":
            # no step beyond the next change of the schedule: what lies behind it is not felt from here
            ahead = stops[np.searchsorted(stops, solver.t, side="right")]
            solver.max_step = max(ahead - solver.t, 16 * np.spacing(solver.t))
            failure = solver.step() or ""
            size = np.max(np.abs(solver.y[: cuts[0]]))
            if failure or not size < BOUND:
                break
            assert solver.t_old is not None
            bar.phase("")
            bar.advance((solver.t - solver.t_old) / t[-1])
            inner = solver.dense_output()
            reached = int(np.searchsorted(t, solver.t, side="right"))
            states += [inner(at) for at in t[len(states) : reached]]
            lengths.append(solver.t - solver.t_old)
            _refuse_endless(lengths, solver.t, t[-1])
    out = np.array(states).reshape(len(states), len(start))
    return Moments(Weights(*map(jnp.asarray, parts(out))), failure)


def _refuse_endless(lengths: list[float], now: float, last: float) -> None:
    """Refuse a time that steps of a length that no longer grows would not reach in minutes."""
    if len(lengths) % LOOK_BACK or len(lengths) < 4 * LOOK_BACK:
        return
    recent, before = np.mean(lengths[-LOOK_BACK:]), np.mean(lengths[-2 * LOOK_BACK : -LOOK_BACK])
    needed = (last - now) / recent
    if len(lengths) + needed > MOST_STEPS and recent < 1.2 * before:
        why = f"from t = {now:.4g} on steps of {recent:.2g} are stable, {needed:.2g} of them; lower t_max"
        raise reject("t_max", f"{last:.4g}", f"{why} (at most {MOST_STEPS} are taken)")
