"""Infinite data (δ → ∞, `eq:dmft_infinite_data_planted`): one-pass SGD for any loss.

Where h is linear, the second moments of (θ, θ*) close among themselves: ordinary differential equations. Otherwise
the law of θ is carried by particles. Averages over (w, w*, z) use scrambled Sobol points, weighted so that all first
and second moments are exact (control variates), independent in each replica; the spread over replicas is the standard
error.
"""

import math
import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import grid
from ..algorithms import Algorithm
from ..errors import DivergenceWarning, real, reject, whole
from ..problem import Problem, fields, observables
from ..problem.laws import EntryLaw
from ..problem.problem import check_start
from ..progress import Progress
from ..results import Solution, Variable
from ..results.provenance import provenance

BOUND = 1e10
"""A norm θᵀθ/d beyond this counts as divergence."""


class Nodes(NamedTuple):
    """Points that averages are taken over, and the fixed second moments of the teacher."""

    normals: Any
    """(N, m+k), standard normal under the weights."""
    z: Any
    """(N,)."""
    weights: Any
    """(N,), summing to 1."""
    teacher_root: Any
    """(k, k): w* = root · normals."""
    teacher_inverse: Any
    """(k, k): pseudo-inverse of C_θ(*, *)."""


PER_REPLICA = Nodes(0, 0, 0, None, None)  # type: ignore[arg-type]
"""Which parts differ between replicas, for vmap."""


def _points(samples: int, size: int, law: EntryLaw, seed: int, key: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sobol normals, draws of z, and weights near 1/N that make all first and second moments exact."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    uniform = qmc.Sobol(size + 2, scramble=True, rng=rng).random(samples)
    uniform = np.clip(uniform, 1e-15, 1 - 1e-15)
    x, z = ndtri(uniform[:, :size]), law.spread_out(uniform[:, size:], key)
    mean, second = (moment.item() for moment in law.moments(1))
    both = np.column_stack([x, z])
    pairs = np.triu_indices(size + 1)
    monomials = np.column_stack([np.ones(samples), both, both[:, pairs[0]] * both[:, pairs[1]]])
    target = np.concatenate([[1.0], np.zeros(size), [mean], np.where(pairs[0] == pairs[1], 1.0, 0.0)])
    target[-1] = second
    for entry, (i, j) in enumerate(zip(*pairs, strict=True)):
        if j == size and i < size:
            target[1 + size + 1 + entry] = 0.0
    # The smallest correction of equal weights that meets the targets: the regression estimator of control variates.
    missing = target - monomials.mean(axis=0)
    correction = monomials @ np.linalg.lstsq(monomials.T @ monomials / samples, missing, rcond=1e-12)[0]
    return x, z, (1 + correction) / samples


def _root(matrix: Any) -> Any:
    """Symmetric square root of a positive semidefinite matrix; rounding below zero counts as zero."""
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * jnp.sqrt(jnp.clip(values, 0.0, None))) @ vectors.T


def _samples(nodes: Nodes, Q: Any, c: Any) -> tuple[Any, Any]:
    """w (N, m) and w* (N, k), jointly Gaussian with E wwᵀ = Q, E ww*ᵀ = c."""
    m = Q.shape[0]
    w_star = nodes.normals[:, m:] @ nodes.teacher_root.T
    slope = c @ nodes.teacher_inverse
    return w_star @ slope.T + nodes.normals[:, :m] @ _root(Q - slope @ c.T).T, w_star


def _average(nodes: Nodes, Q: Any, c: Any, fn: Any) -> Any:
    """E fn(w, w*, z); fn returns a tree of arrays."""
    values = jax.vmap(fn)(*_samples(nodes, Q, c), nodes.z)
    return jax.tree.map(lambda v: jnp.einsum("n...,n->...", v, nodes.weights), values)


def _moments(problem: Problem, nodes: Nodes, t: Any, Q: Any, c: Any) -> tuple[Any, Any, Any]:
    """E[ℓ wᵀ], E[ℓ w*ᵀ] and C_ℓ = E[ℓ ℓᵀ]."""

    def products(w: Any, w_star: Any, z: Any) -> tuple[Any, Any, Any]:
        ell = fields.force(problem, t, w, w_star, z)
        return jnp.outer(ell, w), jnp.outer(ell, w_star), jnp.outer(ell, ell)

    return _average(nodes, Q, c, products)


@jax.jit
def _observe(problem: Problem, nodes: Nodes, Q: Any, c: Any) -> dict[str, Any]:
    chosen = observables.on_samples(problem)
    names = tuple(chosen)
    values = _average(nodes, Q, c, lambda r, s, z: tuple(chosen[n](r, s, z) for n in names))
    return dict(zip(names, values, strict=True))


@jax.jit
def _velocity(problem: Problem, tau: Any, nodes: Nodes, t: Any, Q: Any, c: Any) -> tuple[Any, Any]:
    """dQ/dt and dc/dt for h = Λθ. By Gaussian integration by parts Γ and Γ* appear only inside E[ℓ wᵀ], E[ℓ w*ᵀ]."""
    stiffness = fields.drift_theta(problem, t, jnp.zeros(problem.width))

    def one(nodes: Nodes, Q: Any, c: Any) -> tuple[Any, Any]:
        with_w, with_star, square = _moments(problem, nodes, t, Q, c)
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

    samples: points of each Gaussian average; replicas: independent repetitions behind the standard errors.
    particles, dt: number of particles a replica and time step, used only if the penalty's gradient is not linear.
    """
    if not isinstance(algorithm, Algorithm):
        raise reject("algorithm", repr(algorithm), "it must be an algorithm such as sl.SGF(temperature=0.4)")
    if algorithm.multi_pass_only:
        name = type(algorithm).__name__
        raise reject("algorithm", name, "a fraction of infinite data is no batch; use sl.SGD(τ) or sl.SGF(τ)")
    t = grid.resolve(t_max, times)
    samples = whole("samples", samples, least=64, why="a Gaussian average needs at least 64 points")
    replicas = whole("replicas", replicas, least=2, why="a standard error needs at least 2 replicas")
    particles = whole("particles", particles, least=64, why="at least 64 particles")
    dt = real("dt", dt, above=0, why="it must be a positive time step")
    check_start(problem)
    tau = float(algorithm.noise_temperature)
    with jax.enable_x64(True), Progress("online", 1.0, progress) as bar:
        noise_key, weight_key, path_key = jax.random.split(jax.random.key(seed), 3)
        nodes = _nodes(problem, samples, replicas, seed, noise_key)
        linear = fields.linear_drift(problem, float(t[-1]))
        bar.phase("compiling")
        if linear:
            Q, c, reached = _march_moments(problem, tau, nodes, t, replicas, bar)
        else:
            Q, c, reached = _march_particles(problem, tau, nodes, t, replicas, particles, dt, weight_key, path_key, bar)
        observed: dict[str, Any] = (
            {}
            if not reached
            else jax.vmap(
                jax.vmap(partial(_observe, problem), in_axes=(PER_REPLICA, 0, 0)),
                in_axes=(None, 0, 0),
            )(nodes, Q[:reached], c[:reached])
        )
    status, message = "complete", ""
    if reached < len(t):
        status = "diverged"
        before = t[reached - 1] if reached else 0.0
        message = f"diverged between t = {before:.4g} and {t[reached]:.4g}: θᵀθ/d beyond {BOUND:g}"
        warnings.warn(message, DivergenceWarning, stacklevel=2)
    variables: dict[str, Variable] = {}

    def add(names: tuple[str, ...], dims: tuple[str, ...], values: Any) -> None:
        values = np.asarray(values, dtype=np.float64)
        mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(replicas)
        for name in names:
            variables[name] = Variable(dims, mean)
            variables[f"{name}_stderr"] = Variable(dims, error)

    for name, values in observed.items():
        add((f"train_{name}", f"test_{name}"), ("time",), values)
    add(("norm",), ("time", "student", "student_"), Q[:reached])
    coords = {"time": t[:reached], "student": np.arange(problem.width), "student_": np.arange(problem.width)}
    if problem.k:
        add(("overlap",), ("time", "student", "teacher"), c[:reached])
        coords["teacher"] = np.arange(problem.k)
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


def _nodes(problem: Problem, samples: int, replicas: int, seed: int, key: Any) -> Nodes:
    m, k = problem.width, problem.k
    teacher = problem.gram()[m:, m:]
    law = problem.noise_law
    points = [_points(samples, m + k, law, seed * 1_000_003 + i, jax.random.fold_in(key, i)) for i in range(replicas)]
    normals, z, weights = (jnp.asarray(np.stack(part)) for part in zip(*points, strict=True))
    if not k:
        return Nodes(normals, z, weights, jnp.zeros((0, 0)), jnp.zeros((0, 0)))
    inverse = jnp.asarray(np.linalg.pinv(teacher, hermitian=True))
    return Nodes(normals, z, weights, _root(jnp.asarray(teacher)), inverse)


def _start(problem: Problem, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    m, gram = problem.width, problem.gram()
    repeat = (replicas, 1, 1)
    return np.tile(gram[:m, :m], repeat), np.tile(gram[:m, m:], repeat)


def _march_moments(
    problem: Problem, tau: float, nodes: Nodes, t: np.ndarray, replicas: int, bar: Progress
) -> tuple[Any, Any, int]:
    """Integrate the moment equations of all replicas together, to a relative 1e-8."""
    from scipy.integrate import solve_ivp

    Q0, c0 = _start(problem, replicas)
    cut = Q0.size
    farthest = 0.0

    def unpack(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return state[:cut].reshape(Q0.shape), state[cut:].reshape(c0.shape)

    def velocity(s: float, state: np.ndarray) -> np.ndarray:
        nonlocal farthest
        dQ, dc = _velocity(problem, tau, nodes, s, *unpack(state))
        bar.phase("")
        bar.advance(max(0.0, s - farthest) / t[-1])
        farthest = max(farthest, s)
        return np.concatenate([np.asarray(dQ).ravel(), np.asarray(dc).ravel()])

    def too_large(s: float, state: np.ndarray) -> float:
        size = np.max(np.abs(state[:cut]))
        return BOUND - size if np.isfinite(size) else -1.0

    too_large.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    start = np.concatenate([Q0.ravel(), c0.ravel()])
    out = solve_ivp(velocity, (0.0, t[-1]), start, method="DOP853", t_eval=t, rtol=1e-8, atol=1e-10, events=too_large)
    reached = len(out.t)
    states = out.y.T if reached else np.zeros((0, len(start)))
    Q = states[:, :cut].reshape(reached, *Q0.shape)
    c = states[:, cut:].reshape(reached, *c0.shape)
    return jnp.asarray(Q), jnp.asarray(c), reached


def _match(sample: Any, gram: Any) -> Any:
    """Particles whose sample second moments are exactly `gram` (linear map; null directions stay null)."""

    def power(matrix: Any, exponent: float) -> Any:
        values, vectors = jnp.linalg.eigh(matrix)
        kept = values > 1e-12 * jnp.max(jnp.abs(values), initial=1e-300)
        return (vectors * jnp.where(kept, jnp.where(kept, values, 1.0) ** exponent, 0.0)) @ vectors.T

    observed = sample.T @ sample / len(sample)
    return sample @ (power(gram, 0.5) @ power(observed, -0.5)).T


@jax.jit
def _advance_particles(
    problem: Problem,
    tau: Any,
    nodes: Nodes,
    theta: Any,
    theta_star: Any,
    t: Any,
    h: Any,
    first: Any,
    steps: Any,
    key: Any,
) -> Any:
    """`steps` stochastic Heun steps of size h; the noise does not depend on θ, so this is of weak order two."""
    m = theta.shape[1]

    def drift(s: Any, x: Any) -> tuple[Any, Any]:
        Q, c = x.T @ x / len(x), x.T @ theta_star / len(x)
        _, with_star, square = _moments(problem, nodes, s, Q, c)
        gamma = _average(nodes, Q, c, lambda w, v, z: fields.force_r(problem, s, w, v, z))
        gamma_star = (with_star - gamma @ c) @ nodes.teacher_inverse
        pull = jax.vmap(lambda v: fields.drift(problem, s, v))(x)
        return -(pull + x @ gamma.T + theta_star @ gamma_star.T), square

    def step(i: Any, x: Any) -> Any:
        s = t + i * h
        normal = jax.random.normal(jax.random.fold_in(key, first + i), (len(x), m))
        slope, square = drift(s, x)
        guess = x + h * slope + jnp.sqrt(tau * h) * normal @ _root(square)
        slope_, square_ = drift(s + h, guess)
        return x + h / 2 * (slope + slope_) + jnp.sqrt(tau * h) * normal @ _root((square + square_) / 2)

    return jax.lax.fori_loop(0, steps, step, theta)


def _march_particles(
    problem: Problem,
    tau: float,
    nodes: Nodes,
    t: np.ndarray,
    replicas: int,
    particles: int,
    dt: float,
    weight_key: Any,
    path_key: Any,
    bar: Progress,
) -> tuple[Any, Any, int]:
    m = problem.width
    gram = jnp.asarray(problem.gram())

    def draw(key: Any) -> Any:
        theta, theta_star = problem.sample_weights(key, particles)
        return _match(jnp.concatenate([theta, theta_star], axis=1).astype(jnp.float64), gram)

    both = jax.vmap(draw)(jax.random.split(weight_key, replicas))
    theta, theta_star = both[..., :m], both[..., m:]
    in_axes = (None, None, PER_REPLICA, 0, 0, None, None, None, None, 0)
    advance = jax.jit(jax.vmap(_advance_particles, in_axes=in_axes))
    path_keys = jax.random.split(path_key, replicas)
    now, first = 0.0, 0
    Qs, cs = [], []
    for target in t:
        if target > now:
            steps = max(1, math.ceil((target - now) / dt - 1e-9))
            h = (target - now) / steps
            theta = advance(problem, tau, nodes, theta, theta_star, now, h, first, steps, path_keys)
            bar.phase("")
            bar.advance((target - now) / t[-1])
            now, first = target, first + steps
        Q = jnp.einsum("rna,rnb->rab", theta, theta) / particles
        if not bool(jnp.all(jnp.isfinite(Q)) & (jnp.max(Q) < BOUND)):
            break
        Qs.append(Q)
        cs.append(jnp.einsum("rna,rnb->rab", theta, theta_star) / particles)
    empty = (0, replicas, m)
    if not Qs:
        return jnp.zeros((*empty, m)), jnp.zeros((*empty, problem.k)), 0
    return jnp.stack(Qs), jnp.stack(cs), len(Qs)
