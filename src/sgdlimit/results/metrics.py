"""The user's own averages ψ(r, r*, z) and ψ(θ, θ*), in canonical shapes and checked before any work."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp

from ..errors import reject
from ..problem import Problem, fields
from ..problem.trained import trained_of
from .variables import reserved

SOFT = "soft_error"
"""The softened zero-one error, which tells how grids differ."""
CONTROL = "{} of w"
"""What a train average is on the fresh pre-activation of the same samples; no name of a user's has a space."""
INTERNAL = (SOFT, "fresh_norm", "fresh_overlap", "own", "rest", "along", "response", "equal")
"""Recorded by the march, not for users."""

Named = tuple[tuple[str, Callable[..., jax.Array]], ...]


@final
@dataclass(frozen=True)
class Own:
    """ψ(r, r*, z) or ψ(θ, θ*) as the user wrote it; equal functions compare equal, and so compile once."""

    fn: Callable[..., object]

    def __call__(self, *arguments: jax.Array) -> Any:
        """ψ of vectors over units; the user's function takes plain numbers where there is one unit."""
        return self.fn(*(fields.as_user(x) if x.ndim else x for x in arguments))


def on_samples(problem: Problem, metrics: object) -> Named:
    """The user's averages over samples, by name: functions of (r, r_star, z) that return a real scalar."""
    return _checked("metrics", metrics, ((problem.width,), (problem.k,), ()), "(r, r_star, z)", INTERNAL)


def on_weights(problem: Problem, metrics: object) -> Named:
    """The user's averages over weights, by name: functions of (theta, theta_star) that return a real scalar."""
    taken = (*INTERNAL, *trained_of(problem))
    return _checked("weight_metrics", metrics, ((problem.width,), (problem.k,)), "(theta, theta_star)", taken)


def _checked(
    argument: str, metrics: object, shapes: tuple[tuple[int, ...], ...], takes: str, taken: Collection[str]
) -> Named:
    if metrics is None:
        return ()
    if not isinstance(metrics, Mapping):
        raise reject(argument, repr(metrics), "it must be a mapping from names to functions")
    for name, fn in metrics.items():
        if not isinstance(name, str) or not name.isidentifier() or reserved(name) or name in taken:
            raise reject(argument, repr(name), "a name must be an identifier that is not in use, such as 'margin'")
        here = f"{argument}[{name!r}]"
        if not callable(fn):
            raise reject(here, repr(fn), f"it must be a function of {takes}")
        try:
            result = jax.eval_shape(Own(fn), *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise reject(here, first, f"it must run on {takes} and be written in jax.numpy") from error
        if getattr(result, "shape", None) != () or jnp.issubdtype(result.dtype, jnp.complexfloating):
            raise reject(here, f"a result {result}", f"it must return a real scalar of {takes}")
    return tuple((name, Own(fn)) for name, fn in metrics.items())
