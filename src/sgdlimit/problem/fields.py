"""The one place where autodiff turns a Problem into ℓ, ∇ℓ, ∇²ℓ, h, ∇h (`ass:func`).

Every function takes one sample in canonical shapes, r: (m,), r*: (k,), z: (), θ: (m,), and is to be vmapped; r: (L, m)
and r*: (L, k) where a sample has L rows. Users see no axis where a width is 1, and None where there is no teacher.
`VectorField` is the general form of the paper: fields that need not be gradients.
"""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import function, model, static
from .._types import Array, Host, Scalar
from .parameters import bound, given, named, signature
from .schedules import times_of_breaks

if TYPE_CHECKING:
    from .problem import Problem


def as_user(v: Array) -> Any:
    """The user's view of units, the last axis: without it for width 1, None for width 0. A scalar, as z, stays."""
    if jnp.ndim(v) == 0:
        return v
    if v.ndim > 1:
        return None if v.shape[-1] == 0 else v[..., 0] if v.shape[-1] == 1 else v
    return None if v.shape[0] == 0 else v[0] if v.shape[0] == 1 else v


TIME_NAMES = ("t", "time")


def _time(fn: Callable[..., Any]) -> tuple[str, int] | None:
    """The name by which `fn` takes the time, and its place; None if it takes none."""
    for place, taken in enumerate((signature(fn) or {}).values()):
        if taken.name in TIME_NAMES:
            return taken.name, sys.maxsize if taken.kind is taken.KEYWORD_ONLY else place
    return None


@model
class VectorField:
    """A field in place of a gradient, as `loss=` (ℓ) or as `penalty=` (h).

    As a loss: `fn(r, r_star, z, t)`, shape of `r`. As a penalty: `fn(theta, t)`, shape of `theta`. The parameter
    for time is recognised by its name (`t` or `time`), wherever it stands, and may be left out.
    It may jump, and must be finite. A field has no loss of its own: give `loss(r, y)`, `predict(r)`,
    `error(prediction, y)` to have them reported.
    `parameters` are numbers that `fn` takes by name after r, r_star, z or theta; another value does not compile it
    again. `loss`, `predict` and `error` are given those that their signatures name.
    `breaks` are times at which it jumps: steps end there. They are found where they lie apart by a millionth of the
    run or more; name those of a shorter burst.
    """

    fn: Callable[..., Any] = function()
    loss: Callable[..., Any] | None = function(default=None)
    predict: Callable[..., Any] | None = function(default=None)
    error: Callable[..., Any] | None = function(default=None)
    parameters: Mapping[str, Any] = named(1, TIME_NAMES)
    breaks: Any = static(times_of_breaks, default=())
    timed = property(lambda self: _time(self.fn) is not None)  # whether the function takes the time
    smooth = quadratic = False
    prox = None

    def at(self, t: Scalar, *state: Array) -> Any:
        """The field at time t and the state (r, r_star, z) or (theta,), in canonical shapes."""
        state, time, numbers = tuple(map(as_user, state)), _time(self.fn), given(self)
        if time is None:
            return self.fn(*state, **numbers)
        name, place = time
        if place > len(state):  # behind a parameter
            return self.fn(*state, **numbers, **{name: t})
        return self.fn(*state[:place], t, *state[place:], **numbers)


def label(problem: "Problem", r_star: Array, z: Array) -> Scalar:
    """y = f(r*, z); by the class z of a mixture, which has no teacher."""
    return problem.labels(None if problem.data.classes else as_user(r_star), z)


def loss(problem: "Problem", r: Array, r_star: Array, z: Array) -> Scalar:
    """L(r, y) at the label of the sample, a scalar."""
    rule = problem.loss
    if isinstance(rule, VectorField):
        assert rule.loss is not None
        rule = bound(rule.loss, rule)
    return rule(as_user(r), label(problem, r_star, z))


def pull(problem: "Problem", t: Scalar, r: Array, r_star: Array, z: Array) -> Array:
    """∇_r L, or the field, in the shape of r: the force without the schedule."""
    if isinstance(problem.loss, VectorField):
        return jnp.reshape(problem.loss.at(t, r, r_star, z), r.shape)
    return jax.grad(loss, argnums=1)(problem, r, r_star, z)


def force(problem: "Problem", t: Scalar, r: Array, r_star: Array, z: Array) -> Array:
    """ℓ_t(r, r*; z) = s(t) ∇_r L, in the shape of r (`eq:sgd_planted`)."""
    return _scheduled(problem, t, pull(problem, t, r, r_star, z), r)


def _scheduled(problem: "Problem", t: Scalar, value: Array, like: Array) -> Array:
    """s(t) times the value, as precise as the state; s itself is as precise as t, which may be more."""
    dtype = jnp.promote_types(like.dtype, jnp.float32)
    return factor(problem, t, dtype) * value.astype(dtype)


def factor(problem: "Problem", t: Scalar, dtype: Any) -> Array:
    """s(t), of this precision."""
    return jnp.asarray(problem.schedule(t)).astype(dtype)


def force_r(problem: "Problem", t: Scalar, r: Array, r_star: Array, z: Array) -> Array:
    """∇_r ℓ_t, shape (m, m): derivative index last."""
    return jax.jacfwd(force, argnums=2)(problem, t, r, r_star, z)


def force_rr(problem: "Problem", t: Scalar, r: Array, r_star: Array, z: Array) -> Array:
    """∇²_r ℓ_t, shape (m, m, m) (`eq:D_ell`)."""
    return jax.jacfwd(force_r, argnums=2)(problem, t, r, r_star, z)


def lean(problem: "Problem", t: Scalar, theta: Array) -> Array:
    """∇H, or the field, shape (m,): the drift without the schedule."""
    if isinstance(problem.penalty, VectorField):
        return jnp.reshape(problem.penalty.at(t, theta), theta.shape)
    penalty = problem.penalty
    return jax.grad(lambda v: penalty(as_user(v)))(theta)


def drift(problem: "Problem", t: Scalar, theta: Array) -> Array:
    """h_t(θ) = s(t) ∇H, shape (m,)."""
    return _scheduled(problem, t, lean(problem, t, theta), theta)


def drift_theta(problem: "Problem", t: Scalar, theta: Array) -> Array:
    """∇_θ h_t, shape (m, m)."""
    return jax.jacfwd(drift, argnums=2)(problem, t, theta)


def prox(problem: "Problem", t: Scalar, step: Scalar, theta: Array) -> Array:
    """The x that minimises ½|x − θ|² + step·s(t)·H(x), shape (m,), where the penalty has a formula for it."""
    assert problem.penalty.prox is not None
    return problem.penalty.prox(theta, step * problem.schedule(t))


LINEARITY_SCALES = (1e-2, 0.3, 1.0, 10.0, 100.0)
"""Sizes of θ at which a penalty is tested for linearity of its gradient."""


def linear_drift(problem: "Problem", t_max: float, knots: Host | tuple[()] = ()) -> bool:
    """Whether h_t(θ) = Λ_t θ on [0, t_max], of a user's penalty too: compared at random points of several sizes, at 65
    times and at `knots`, where h changes, to a relative 1e-5 (float32)."""
    if problem.penalty.quadratic:
        return True
    times = np.linspace(0.0, t_max, 65)
    if len(knots):  # in steps of 64: few programs
        times = np.append(times, np.resize(knots, 64 * -(-len(knots) // 64)))
    return bool(_curvature(problem, times) < 1e-5)


@jax.jit
def _curvature(problem: "Problem", times: Host) -> Array:
    """Largest relative deviation of h from its linear part at zero."""
    m = problem.width
    direction = jax.random.normal(jax.random.key(0), (8, m))
    points = jnp.concatenate([scale * direction for scale in LINEARITY_SCALES])

    def mismatch(t: Scalar) -> Array:
        at_zero = drift(problem, t, jnp.zeros(m))
        slope = drift_theta(problem, t, jnp.zeros(m))
        value = jax.vmap(lambda v: drift(problem, t, v))(points)
        size = jnp.linalg.norm(points, axis=1) * (jnp.max(jnp.abs(slope)) + 1e-30)
        curved = jnp.linalg.norm(value - points @ slope.T, axis=1) / jnp.maximum(size, 1e-30)
        flat = jnp.max(jnp.abs(value)) == 0
        return jnp.where(flat, 0.0, jnp.maximum(jnp.max(curved), jnp.max(jnp.abs(at_zero)) > 0))

    return jnp.max(jax.vmap(mismatch)(times))
