"""The user's own averages ψ(r, r*, z) and ψ(θ, θ*), in canonical shapes and checked before any work."""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp

from ..errors import reject
from ..problem import Problem, fields
from ..problem.parameters import BY_NAME, signature
from ..problem.trained import starts, trained_of
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
    reads: tuple[str, ...] = ()
    """Trained parameters that it takes by name."""

    def __call__(self, *arguments: jax.Array, **values: jax.Array) -> Any:
        """ψ of vectors over units; the user's function takes plain numbers where there is one unit."""
        return self.fn(*(fields.as_user(x) if x.ndim else x for x in arguments), **values)


def on_samples(problem: Problem, metrics: object) -> Named:
    """The user's averages over samples, by name: functions of (r, r_star, z) that return a real scalar.

    One that names a trained parameter after these three, or takes any name, is given the value that it has now.
    """
    shapes = (problem.sample_shape(problem.width), problem.sample_shape(problem.read), ())
    return _checked("metrics", metrics, shapes, "(r, r_star, z)", INTERNAL, starts(problem))


def on_weights(problem: Problem, metrics: object) -> Named:
    """The user's averages over weights, by name: functions of (theta, theta_star) that return a real scalar."""
    taken = (*INTERNAL, *trained_of(problem))
    return _checked("weight_metrics", metrics, ((problem.width,), (problem.read,)), "(theta, theta_star)", taken, {})


def at(metrics: Named, values: Mapping[str, Any]) -> dict[str, Callable[..., jax.Array]]:
    """The user's averages by name as functions of (r, r_star, z), at these values of trained parameters."""
    return {name: _with(fn, values) for name, fn in metrics}


def _with(fn: Callable[..., jax.Array], values: Mapping[str, Any]) -> Callable[..., jax.Array]:
    reads = fn.reads if isinstance(fn, Own) else ()
    return partial(fn, **{name: values[name] for name in reads}) if reads else fn


def _reads(fn: Callable[..., object], state: int, names: Collection[str]) -> tuple[str, ...]:
    """Those of the names that a function takes after its first arguments."""
    takes = (signature(fn) or {}).values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = [taken.name for taken in takes if taken.kind in by_place][:state]
    own = {taken.name for taken in takes if taken.kind in BY_NAME}
    any_name = any(taken.kind is taken.VAR_KEYWORD for taken in takes)
    return tuple(name for name in names if name not in first and (any_name or name in own))


def _checked(
    argument: str,
    metrics: object,
    shapes: tuple[tuple[int, ...], ...],
    takes: str,
    taken: Collection[str],
    now: Mapping[str, jax.Array],
) -> Named:
    if metrics is None:
        return ()
    if not isinstance(metrics, Mapping):
        raise reject(argument, repr(metrics), "it must be a mapping from names to functions")
    found = []
    for name, fn in metrics.items():
        if not isinstance(name, str) or not name.isidentifier() or reserved(name) or name in taken:
            raise reject(argument, repr(name), "a name must be an identifier that is not in use, such as 'margin'")
        here = f"{argument}[{name!r}]"
        if not callable(fn):
            raise reject(here, repr(fn), f"it must be a function of {takes}")
        own = Own(fn, _reads(fn, len(shapes), now))
        struct = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
        try:
            result = jax.eval_shape(own, *map(struct, shapes), **{part: struct(now[part].shape) for part in own.reads})
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise reject(here, first, f"it must run on {takes} and be written in jax.numpy") from error
        if getattr(result, "shape", None) != () or jnp.issubdtype(result.dtype, jnp.complexfloating):
            raise reject(here, f"a result {result}", f"it must return a real scalar of {takes}")
        found.append((name, own))
    return tuple(found)
