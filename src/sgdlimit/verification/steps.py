"""Time steps: the strong error of Euler–Maruyama, and the discrete DMFT system against the continuous one."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Key
from ..algorithms import SGF
from ..algorithms.samples import drifts, forces, gather
from ..errors import UnreliableWarning
from ..exact import least_squares
from ..exact.least_squares import covers
from ..problem import Problem
from ..problem.rows import GaussianEntries
from ..results import Solution
from ..simulation.trial import build
from ..solver import solve
from .laws import Scaling, between_moments


@partial(jax.jit, static_argnames=("dim", "samples", "steps", "strides"))
def _strong(
    problem: Problem, tau: float, t_max: float, key: Key, dim: int, samples: int, steps: int, strides: Sequence[int]
) -> jax.Array:
    """sup_t |θ − θ_γ|²/d and sup_t |r − r_γ|²/n for every stride, on one Brownian path; t on the coarse grid."""
    data_key, path_key = jax.random.split(key)
    trial, start = build(problem, GaussianEntries(), dim, samples, 1, data_key, problem.data.at(dim))
    data, fine, delta = trial.data, t_max / steps, samples / dim
    draw = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(path_key, i), (samples,)))
    walk = jnp.sqrt(fine) * draw(jnp.arange(steps))

    def path(stride: int) -> jax.Array:
        """Weights after every step of length `stride` in units of the fine one."""
        dt = stride * fine

        def step(theta: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            """`eq:sgf_disc` with the Brownian increment given."""
            t, increment = at
            ell = forces(problem, t, data.X @ theta, data)
            Z = dt + jnp.sqrt(tau * delta) * increment
            theta = theta - dt * drifts(problem, t, theta) - gather(data.X, Z[:, None] * ell) / delta
            return theta, theta

        increments = walk.reshape(-1, stride, samples).sum(axis=1)
        return jax.lax.scan(step, start.theta, (dt * jnp.arange(len(increments)), increments))[1]

    def apart(stride: int) -> jax.Array:
        gap = path(stride) - exact[stride - 1 :: stride]
        moved = jax.vmap(lambda gap: data.X @ gap)(gap)
        return jnp.stack([jnp.max(jnp.sum(part**2, (1, 2))) / part.shape[1] for part in (gap, moved)])

    exact = path(1)
    return jnp.stack([apart(stride) for stride in strides])


def strong_error(
    problem: Problem,
    temperature: float,
    *,
    dim: int,
    t_max: float = 2.0,
    steps: int = 2048,
    strides: Sequence[int] = (8, 16, 32, 64, 128, 256),
    trials: int = 6,
    seed: int = 0,
) -> list[Scaling]:
    """`lem:sgf_discrete`: E sup_t |θ − θ_γ|²/d and E sup_t |r − r_γ|²/n against γ, both bounded by Cγ.

    θ is Euler–Maruyama with `steps` steps on the same Brownian path; γ are multiples of its step. `sup` runs over the
    grid of γ. Every stride must divide `steps`.
    """
    samples = round(float(problem.sample_ratio) * dim)
    keys = jax.random.split(jax.random.key(seed), trials)
    size = (dim, samples, steps, tuple(strides))
    with jax.default_matmul_precision("highest"):
        found = np.stack([np.asarray(_strong(problem, temperature, t_max, key, *size)) for key in keys])
    gammas = [t_max * stride / steps for stride in strides]
    return [
        Scaling.of_trials(f"{label}, d = {dim}", "γ", gammas, list(found[:, :, i].T))
        for i, label in enumerate(("weights θ", "pre-activations r"))
    ]


def _covariance(solution: Solution, at: Sequence[float]) -> np.ndarray:
    """Second moments of (θ^{t1}, …, θ^{tL}, θ*) for width 1."""
    index = [int(np.argmin(np.abs(solution.time - t))) for t in at]
    C = solution["C_theta"][np.ix_(index, index)][:, :, 0, 0]
    C = np.tril(C) + np.tril(C, -1).T
    c = solution["overlap"][index, 0, :]
    rho = np.eye(c.shape[1]) if solution.problem is None else solution.problem.gram()[1:, 1:]
    return np.block([[C, c], [c.T, rho]])


def discretisation(
    problem: Problem,
    temperature: float,
    *,
    times: Sequence[float] = (1.0, 2.0),
    gammas: Sequence[float] = (0.25, 0.125, 0.0625, 0.03125),
    samples: int = 2**16,
    replicates: int = 4,
    seed: int = 0,
) -> list[Scaling]:
    """`lem:dmft_discrete`: the system with step γ against the continuous one, for SGF, width 1 and a linear penalty.

    W₂ of the joint (Gaussian) law of (θ^{t1}, …, θ^{tL}, θ*) and the difference of the training loss, a functional of
    the law of r. The continuous system is the Volterra solution where there is one, else the extrapolated march at the
    smallest γ. The errors come from independent solutions.
    """
    algorithm, last = SGF(temperature), max(times)
    options: dict[str, Any] = {"samples": samples, "kernels": True}
    if covers(problem, algorithm):
        grid = np.linspace(0.0, last, 2 * round(last / min(gammas)) + 1)
        exact = [least_squares(problem, algorithm, times=grid, kernels=True)] * replicates
    else:
        seeds = range(1000 + seed, 1000 + seed + replicates)
        exact = [solve(problem, algorithm, last, dt=min(gammas), seed=one, **options) for one in seeds]
    rows: dict[str, list[np.ndarray]] = {"W₂ of the weights": [], "training loss": []}
    for gamma in gammas:
        plain = options | {"dt": gamma, "extrapolate": False}
        # the error of large steps is what is asked about
        with warnings.catch_warnings(action="ignore", category=UnreliableWarning):
            found = [solve(problem, algorithm, last, seed=seed + i, **plain) for i in range(replicates)]
        zero = np.zeros(len(times) + problem.k)
        pairs = list(zip(found, exact, strict=True))
        gaps = [between_moments(zero, _covariance(a, times), zero, _covariance(b, times)) for a, b in pairs]
        rows["W₂ of the weights"].append(np.array(gaps))
        shift = np.array([a["train_loss"][-1] - b["train_loss"][-1] for a, b in pairs])
        rows["training loss"].append(shift * np.sign(shift.mean()))
    return [Scaling.of_trials(label, "γ", list(gammas), parts) for label, parts in rows.items()]
