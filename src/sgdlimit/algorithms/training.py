"""How a run takes a step: the gradient of every sample, and what the parts of a `Step` make of their mean.

All in units of time: a drift U moves θ by −dt·s·ρ·U, with dt = η/d for batches. For a batch with the mean gradient G it
is U = d·G + ∇H, and of a trained parameter rate·(mean of ∂L/∂g). So one arithmetic serves θ, trained parameters, the
intercept, their velocities, and every algorithm.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._random import normal
from .._types import Array, Key, Scalar, Tree
from ..errors import reject
from ..problem import Problem, fields, trained
from .rates import Seen
from .samples import INTERCEPT, Batch, Data, FreshData, StoredData, Weights, forces, pulls
from .step import Step

RENEWED = 0.005
"""Time after which averages over the whole training set, which a rate asks for, are taken anew by algorithms that see a
few samples a step."""
FRESH = 1024
"""Samples behind such an average where the data are infinite."""
TINY = 1e-8
"""What Adam adds to the root of the mean square, as in PyTorch."""
ILL = "ill rate"
"""Of the state: the first factor that was none, 0 so far."""

Parts = dict[str, Any]
"""What the parts of a step carry from update to update, by name."""


class Gradients(NamedTuple):
    """Of every sample: ℓ in the shape of r, and the slopes (samples, …) in what all share, with their rates."""

    ell: Array
    shared: dict[str, Array]

    def times(self, weight: Array) -> "Gradients":
        """Every sample's gradients times its own weight (rows,)."""
        return jax.tree.map(lambda v: v * _column(weight, v), self)

    def kept(self, used: Array) -> "Gradients":
        """Those of the samples that are used, zeros for the others."""
        return jax.tree.map(lambda v: jnp.where(_column(used, v), v, 0.0), self)

    def means(self, count: Scalar) -> dict[str, Array]:
        """Sums over samples of the shared slopes, over `count`."""
        return {name: jnp.sum(value, axis=0) / count for name, value in self.shared.items()}


def _column(each: Array, like: Array) -> Array:
    """A number for every sample (rows,), with as many axes as what it meets."""
    return each.reshape(-1, *[1] * (like.ndim - 1))


def gradients(problem: Problem, how: Step, t: Scalar, weights: Weights, rows: Batch | StoredData) -> Gradients:
    """Gradients of the samples; with the schedule where the step is plain, otherwise without it and clipped."""
    now, r = trained.at(problem, weights.shared), weights.preactivations(rows.X)
    ell = (forces if how.plain else pulls)(now, t, r, rows)
    own = {name: value for name, value in weights.shared.items() if name != INTERCEPT}
    shared: dict[str, Array] = {}
    if own:
        shared = jax.vmap(partial(trained.slopes, problem, own))(r, rows.r_star, rows.z)
        scale = fields.factor(problem, t, r.dtype) if how.plain else 1.0
        shared = {name: scale * value for name, value in shared.items()}
    if problem.bias:
        shared[INTERCEPT] = ell if ell.ndim == 2 else jnp.sum(ell, axis=1)
    found = Gradients(ell, shared)
    if how.clip is None or how.clip.per != "sample":
        return found
    return found.times(how.clip.factor(lengths(rows.X, ell)))


def lengths(X: Array, ell: Array) -> Array:
    """|Σ_l x_l ℓ_lᵀ|² of every sample, over its rows: the squared length of its gradient in θ."""
    if X.ndim == 3:
        return jnp.sum((X @ X.mT) * (ell @ ell.mT), axis=(1, 2))
    return jnp.sum(X**2, axis=1) * jnp.sum(ell**2, axis=1)


def leans(problem: Problem, t: Scalar, theta: Array) -> Array:
    """∇H applied row-wise to θ, shape (d, m)."""
    return jax.vmap(lambda v: fields.lean(problem, t, v))(theta)


# --- what is carried along ---


def start_parts(how: Step, weights: Weights) -> Parts:
    """The state of the parts of a step at θ⁰."""
    parts: Parts = {}
    if how.momentum is not None:
        parts["velocity"] = jax.tree.map(jnp.zeros_like, weights)
    rule = how.rate
    if rule is None:
        return parts
    if rule.by_coordinate:
        parts["mean"] = parts["square"] = jnp.zeros_like(weights.theta)
        parts["steps"] = jnp.zeros((), weights.theta.dtype)
        return parts
    parts["rate"] = jax.tree.map(lambda value: jnp.asarray(value, weights.theta.dtype), rule.start())
    parts[ILL] = jnp.zeros((), weights.theta.dtype)
    if "distance" in rule.needs:
        parts["start"] = weights.theta
    if wide := _wide(how):
        parts["known"] = dict.fromkeys(wide, jnp.zeros((), weights.theta.dtype))
        parts["age"] = jnp.zeros((), jnp.int32)
    return parts


def _wide(how: Step) -> tuple[str, ...]:
    """What the rate asks for of the whole training set."""
    if how.rate is None or how.rate.by_batch:
        return ()
    return tuple(name for name in ("train_loss", "force") if name in how.rate.needs)


def _averaged(data: Data, how: Step, t: Scalar, weights: Weights, key: Key) -> dict[str, Array]:
    """Those averages, over the stored data or over fresh ones."""
    rows = data.batch(jnp.zeros(FRESH, jnp.int32), jax.random.fold_in(key, 2)) if isinstance(data, FreshData) else data
    out, dtype = {}, weights.theta.dtype
    if "train_loss" in _wide(how):
        out["train_loss"] = mean_loss(data.problem, weights, rows).astype(dtype)
    if "force" in _wide(how):
        ell = gradients(data.problem, how, t, weights, rows).ell
        out["force"] = jnp.mean(lengths(rows.X, ell)).astype(dtype)
    return out


def mean_loss(problem: Problem, weights: Weights, rows: Batch | StoredData) -> Array:
    """The mean of L over these samples."""
    now = trained.at(problem, weights.shared)
    return jnp.mean(jax.vmap(partial(fields.loss, now))(weights.preactivations(rows.X), rows.r_star, rows.z))


def renewed(data: Data, how: Step, t: Scalar, weights: Weights, parts: Parts, dt: Scalar, key: Key) -> Parts:
    """The state with averages over the training set that are at most RENEWED old, in a whole number of updates."""
    if "known" not in parts:
        return parts
    every = jnp.maximum(1, jnp.round(RENEWED / dt).astype(jnp.int32))
    known = jax.lax.cond(
        parts["age"] % every == 0, lambda: _averaged(data, how, t, weights, key), lambda: parts["known"]
    )
    return parts | {"known": known, "age": (parts["age"] + 1) % every}


# --- an adaptive rate ---


def seen_by(rule: Any, data: Data, weights: Weights, parts: Parts, **more: Any) -> Seen:
    """What a rule knows of a step: of the weights what it asks for, and what was found beside them."""
    theta = weights.theta
    dim, needs = len(theta), rule.needs
    if "norm" in needs:
        more["norm"] = theta.T @ theta / dim
    if "overlap" in needs:
        assert data.theta_star is not None
        more["overlap"] = theta.T @ data.theta_star[:, : data.problem.read] / dim
    if "distance" in needs:
        more["distance"] = jnp.sum((theta - parts["start"]) ** 2) / dim
    return Seen(**more)


def rated(how: Step, data: Data, weights: Weights, parts: Parts, dt: Scalar, **found: Any) -> tuple[Scalar, Parts]:
    """ρ of the next step, 1 without a rule, and the state after it; `found` is what `Seen` takes.

    A factor that is negative or not finite becomes NaN, at which the run ends; the state keeps it.
    """
    rule = how.rate
    if rule is None or rule.by_coordinate:
        return 1.0, parts
    seen = seen_by(rule, data, weights, parts, **parts.get("known", {}), **found)
    dtype = weights.theta.dtype
    given = jnp.asarray(rule.factor(parts["rate"], seen), dtype)
    sound = (given >= 0) & jnp.isfinite(given)
    ill = (parts[ILL] == 0) & ~sound & jnp.isfinite(jnp.sum(weights.theta))
    after = jax.tree.map(lambda value: jnp.asarray(value, dtype), rule.after(parts["rate"], seen, dt))
    return jnp.where(sound, given, jnp.nan), parts | {"rate": after, ILL: jnp.where(ill, given, parts[ILL])}


def cause(how: Step, state: Tree) -> float | None:
    """The factor for which a run ended, where a rate gave one that is negative or not finite."""
    parts = state[1] if isinstance(state, tuple) and len(state) == 2 else state
    if how.rate is None or not isinstance(parts, dict) or ILL not in parts:
        return None
    value = float(parts[ILL])
    return None if value == 0 else value


# --- the step itself ---


def by_coordinate(how: Step, parts: Parts, drift: Weights, dt: Scalar) -> tuple[Weights, Parts]:
    """Adam: the drift of θ becomes √d·scale·m̂/(√v̂ + tiny), of the means m and v of g = U/d and of its square."""
    rule, dim = how.rate, len(drift.theta)
    g, steps, forget = drift.theta / dim, parts["steps"] + 1, dt / rule.window  # 1 − β₂
    mean = rule.beta1 * parts["mean"] + (1 - rule.beta1) * g
    square = (1 - forget) * parts["square"] + forget * g**2
    left = -jnp.expm1(steps * jnp.log1p(-forget))  # 1 − β₂ᵏ
    root = jnp.sqrt(square / left) + TINY
    moved = jnp.sqrt(1.0 * dim) * rule.scale * mean / (1 - rule.beta1**steps) / root
    kept = {"mean": mean, "square": square, "steps": steps}
    return drift._replace(theta=moved), parts | jax.tree.map(lambda new: new.astype(g.dtype), kept)


def stepped(
    how: Step, weights: Weights, parts: Parts, drift: Weights, rho: Scalar, s: Scalar, dt: Scalar, key: Key
) -> tuple[Weights, Parts]:
    """The weights after a step along a drift U without schedule and rate, and the state of the parts."""
    theta, (one, two) = weights.theta, jax.random.split(jax.random.fold_in(key, 1))
    if how.gradient_noise is not None:
        noise = how.gradient_noise / jnp.sqrt(dt) * normal(one, theta.shape)
        drift = drift._replace(theta=drift.theta + noise.astype(theta.dtype))
    if how.rate is not None and how.rate.by_coordinate:
        drift, parts = by_coordinate(how, parts, drift, dt)
    drift = jax.tree.map(lambda v: (rho * s * v).astype(v.dtype), drift)
    if how.momentum is not None:
        drift, velocity = _followed(how, parts["velocity"], drift, dt)
        parts = parts | {"velocity": velocity}
    moved = jax.tree.map(lambda v, u: v - jnp.asarray(dt, v.dtype) * u, weights, drift)
    if how.weight_noise is not None:
        noise = how.weight_noise * jnp.sqrt(dt) * normal(two, theta.shape)
        moved = moved._replace(theta=moved.theta + noise.astype(theta.dtype))
    if (decay := how.decayed) is not None:
        moved = moved._replace(theta=moved.theta - (dt * s * decay * theta).astype(theta.dtype))
    return moved, parts


def _followed(how: Step, velocity: Weights, drift: Weights, dt: Scalar) -> tuple[Weights, Weights]:
    """What moves the weights in place of the drift U, and the velocity u: u ← βu + gU; as PyTorch, with u = 0 first.

    A friction has β = 1 − κ·dt and g = dt, so that u = −v for the v of `Momentum`; a fixed β has g = 1. Nesterov adds
    the newest gradient once more: βu + gU with the new u.
    """
    momentum = how.momentum
    fixed = momentum.friction is None
    beta, gain = (momentum.beta, 1.0) if fixed else (1 - momentum.friction * dt, dt)

    def follow(u: Array, drift: Array) -> Array:
        return (beta * u + gain * drift).astype(u.dtype)

    velocity = jax.tree.map(follow, velocity, drift)
    return jax.tree.map(follow, velocity, drift) if momentum.ahead else velocity, velocity


# --- what is refused before any work ---


def check_parts(how: Step, problem: Problem, dt: float) -> None:
    """Refuse parts that this problem, or steps of this length, do not have."""
    rule = how.rate
    if how.friction is not None and how.friction * dt > 1:
        why = f"1 − κ·η/d must not be negative, and a step lasts {dt:.3g}; lower κ or the step, or give beta="
        raise reject("Step.momentum", f"friction {how.friction:g}", why)
    if rule is None:
        return
    name = type(rule).__name__
    if rule.by_coordinate:
        if rule.window < dt:
            why = f"1 − β₂ = η/(d·window) must be at most 1, and a step lasts {dt:.3g}; raise window or dim"
            raise reject(f"{name}.window", rule.window, why)
        return
    if "train_loss" in rule.needs and not problem.has_loss:
        raise reject(f"Step.rate={name}", "a field without a loss", "it reads the loss; give VectorField(loss=...)")
    if "overlap" in rule.needs and not problem.read:
        raise reject(f"Step.rate={name}", "overlap", "there is no teacher; read the norm or the loss")
    _check_factor(how, problem)


def _check_factor(how: Step, problem: Problem) -> None:
    """Refuse a rate whose factor is no number."""
    rule, name = how.rate, f"Step.rate={type(how.rate).__name__}"
    units = {"norm": (problem.width, problem.width), "overlap": (problem.width, problem.read)}
    seen = {part: jax.ShapeDtypeStruct(units.get(part, ()), jnp.float32) for part in Seen._fields}
    try:
        found = jax.eval_shape(lambda seen: jnp.asarray(rule.factor(rule.start(), Seen(**seen))), seen)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise reject(name, f"{type(error).__name__}: {first}", "it must be written in jax.numpy") from error
    if found.shape != ():
        why = "it must be one number; with several units norm and overlap are matrices"
        raise reject(name, f"a factor of shape {found.shape}", why)
