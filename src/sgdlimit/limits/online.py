"""Infinite data (δ → ∞, `eq:dmft_infinite_data`, `eq:dmft_infinite_data_planted`): one-pass SGD for any loss.

Where h is linear, the second moments of (θ, θ*) close among themselves: ordinary differential equations. Otherwise
the law of θ is carried by particles (`particles`). The spread over independent replicas is the standard error.
"""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import grid
from .._cache import keep_programs
from ..algorithms import Algorithm
from ..algorithms.base import check_share, require
from ..errors import DivergenceWarning, real, reject, seed_number, whole
from ..problem import Problem, fields
from ..problem.problem import check_start
from ..progress import Progress
from ..results import Solution, Variable, statistics
from ..results.provenance import provenance
from ..results.statistics import Estimate, over_replicas
from ..results.variables import dims, ordered
from .averages import PER_REPLICA, Nodes, force_moments, make_nodes, observe
from .particles import march_particles
from .stability import BOUND, divergence_words, largest_stable


@jax.jit
def _velocity(problem: Problem, tau: Any, nodes: Nodes, t: Any, Q: Any, c: Any) -> tuple[Any, Any]:
    """dQ/dt and dc/dt of Q = C_θ(t,t), c = C_θ(t,*) by Itô's lemma on `eq:dmft_infinite_data_planted`, h = Λθ.

    By Gaussian integration by parts ΓQ + Γ*cᵀ = E[ℓ wᵀ] and Γc + Γ*C_θ(*,*) = E[ℓ w*ᵀ]: no derivative is needed.
    """
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))

    def one(nodes: Nodes, Q: Any, c: Any) -> tuple[Any, Any]:
        with_w, with_star, square = force_moments(problem, nodes, t, Q, c)
        pull = stiffness @ Q + with_w
        return -pull - pull.T + tau * square, -(stiffness @ c + with_star)

    return jax.vmap(one, in_axes=(PER_REPLICA, 0, 0))(nodes, Q, c)


def online(
    problem: Problem,
    algorithm: Algorithm,
    t_max: float | None = None,
    *,
    times: Any = None,
    samples: int = 16384,
    replicas: int = 8,
    particles: int = 8192,
    dt: float = 0.02,
    seed: int = 0,
    progress: bool | None = None,
) -> Solution:
    """Learning curves with infinite data; the problem's own δ plays no part, and train equals test.

    samples: points of each average (rounded up to a power of two).
    replicas: independent repetitions, whose spread is the standard error.
    particles, dt: number of particles a replica and time step, used only if the penalty's gradient is not linear.
    """
    keep_programs()
    require(problem, algorithm)
    if algorithm.multi_pass_only:
        name = type(algorithm).__name__
        raise reject("algorithm", name, "a fraction of infinite data is no batch; use sl.SGD(τ) or sl.SGF(τ)")
    t = grid.resolve(t_max, times)
    check_share(algorithm, t)
    samples = whole("samples", samples, least=64, why="an average needs at least 64 points")
    samples = 2 ** (samples - 1).bit_length()  # a power of two, as in `solve`
    replicas = whole("replicas", replicas, least=2, why="a standard error needs at least 2 replicas")
    particles = whole("particles", particles, least=64, why="at least 64 particles")
    dt = real("dt", dt, above=0, why="it must be a positive time step")
    seed = seed_number(seed)
    check_start(problem)
    tau = float(algorithm.noise_temperature)
    with jax.enable_x64(True), Progress("online", 1.0, progress) as bar:
        weight_key, path_key = jax.random.split(jax.random.key(seed))
        nodes = make_nodes(problem, samples, replicas, seed)
        linear = fields.linear_drift(problem, float(t[-1]))
        bar.phase("compiling")
        if linear:
            Q, c = _march_moments(problem, algorithm, nodes, t, replicas, bar)
        else:
            Q, c = march_particles(problem, algorithm, nodes, t, replicas, particles, dt, weight_key, path_key, bar)
        observed = observe(problem, nodes, Q, c)
    reached = len(Q)
    status, message = "complete", ""
    if reached < len(t):
        status = "diverged"
        before = t[reached - 1] if reached else 0.0
        limit = largest_stable(problem, math.inf, algorithm=algorithm)
        message = divergence_words(tau, limit, f"t between {before:.4g} and {t[reached]:.4g} (θᵀθ/d beyond {BOUND:g})")
        warnings.warn(message, DivergenceWarning, stacklevel=2)
    found = {f"{side}_{name}": values for name, values in observed.items() for side in ("train", "test")}
    found["norm"] = Q
    coords = {"time": t[:reached], "student": np.arange(problem.width), "student_": np.arange(problem.width)}
    if problem.k:
        found["overlap"] = c
        coords["teacher"] = np.arange(problem.k)
    variables: dict[str, Variable] = {}
    for name in ordered(found):
        copies = np.moveaxis(np.asarray(found[name], dtype=np.float64), 1, 0)
        estimate = Estimate(*over_replicas(copies), replicas=copies)
        variables |= statistics.variables(name, dims(name), estimate)
    options = {"t_max": float(t[-1]), "samples": samples, "replicas": replicas}
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


def _start(problem: Problem, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    m, gram = problem.width, problem.gram()
    repeat = (replicas, 1, 1)
    return np.tile(gram[:m, :m], repeat), np.tile(gram[:m, m:], repeat)


def _march_moments(
    problem: Problem, algorithm: Algorithm, nodes: Nodes, t: np.ndarray, replicas: int, bar: Progress
) -> tuple[Any, Any]:
    """C_θ(t,t) and C_θ(t,*) of all replicas, integrated together to a relative 1e-9, at the times reached."""
    from scipy.integrate import solve_ivp

    Q0, c0 = _start(problem, replicas)
    cut = Q0.size
    farthest = 0.0

    def unpack(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return state[:cut].reshape(Q0.shape), state[cut:].reshape(c0.shape)

    def velocity(s: float, state: np.ndarray) -> np.ndarray:
        nonlocal farthest
        dQ, dc = _velocity(problem, float(algorithm.temperature_at(s)), nodes, s, *unpack(state))
        bar.phase("")
        bar.advance(max(0.0, s - farthest) / t[-1])
        farthest = max(farthest, s)
        return np.concatenate([np.asarray(dQ).ravel(), np.asarray(dc).ravel()])

    def too_large(s: float, state: np.ndarray) -> float:
        size = np.max(np.abs(state[:cut]))
        return BOUND - size if np.isfinite(size) else -1.0

    too_large.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    start = np.concatenate([Q0.ravel(), c0.ravel()])
    out = solve_ivp(velocity, (0.0, t[-1]), start, method="DOP853", t_eval=t, rtol=1e-9, atol=1e-12, events=too_large)
    reached = len(out.t)
    states = out.y.T if reached else np.zeros((0, len(start)))
    Q = states[:, :cut].reshape(reached, *Q0.shape)
    c = states[:, cut:].reshape(reached, *c0.shape)
    return jnp.asarray(Q), jnp.asarray(c)
