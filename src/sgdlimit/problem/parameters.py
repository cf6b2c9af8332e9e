"""Numbers that a user's function takes by name. They are data: another value does not compile the function again."""

import functools
import inspect
import keyword
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import reject, traced

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@final
class Parameters(dict[str, Any]):
    """Names and their numbers: floats, and arrays that cannot be written to."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping) or self.keys() != other.keys():
            return False
        pairs = ((value, other[name]) for name, value in self.items())
        return all(a is b or (not (traced(a) or traced(b)) and np.array_equal(a, b)) for a, b in pairs)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]  # equal ones have equal names
        return hash(frozenset(self))


jax.tree_util.register_pytree_node(
    Parameters,
    lambda own: (tuple(own[name] for name in sorted(own)), tuple(sorted(own))),
    lambda names, values: Parameters(zip(names, values, strict=True)),
)


def finite(argument: str, value: Any, why: str, axes: Collection[int] = range(64)) -> np.ndarray:
    """An array of finite numbers that cannot be written to, with so many axes."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.array("of parts that do not fit")
    if array.dtype.kind not in "iuf" or array.ndim not in axes or not np.all(np.isfinite(array)):
        raise reject(argument, repr(value), f"it must be {why}")
    array = array.astype(float)
    array.flags.writeable = False
    return array


def number(argument: str, value: Any) -> Any:
    """A float, an array of them, or what jax is tracing."""
    if any(traced(part) for part in jax.tree.leaves(value)):
        return jnp.asarray(value)
    array = finite(argument, value, "a finite number, or an array of finite numbers")
    return array if array.ndim else float(array)


def comparable(argument: str, value: Any) -> Any:
    """A float, or tuples of floats, which can be compared and hashed; or what jax is tracing."""

    def tuples(part: Any) -> Any:
        return tuple(map(tuples, part)) if isinstance(part, list) else part

    found = number(argument, value)
    return tuples(found.tolist()) if isinstance(found, np.ndarray) else found


def signature(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """What a function takes, by name; None where Python cannot tell."""
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):  # a function of C: found out when it is called
        return None


def named(state: int, reserved: tuple[str, ...] = ()) -> Any:
    """A field of numbers that `fn` takes by name after its first `state` arguments; it is given `reserved` names."""
    settled = functools.partial(_settled, state=state, reserved=reserved)
    return field(default_factory=Parameters, metadata={"settled": settled})


def _settled(model: Any, state: int, reserved: tuple[str, ...]) -> Parameters:
    where, parameters, takes = f"{type(model).__name__}.parameters", model.parameters, signature(model.fn)
    if not isinstance(parameters, Mapping):
        raise reject(where, repr(parameters), "it must be a mapping from names to numbers, such as {'a': 1.0}")
    any_name = any(taken.kind is taken.VAR_KEYWORD for taken in (takes or {}).values())
    for name in parameters:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise reject(where, repr(name), "a name must be an identifier, such as 'a'")
        if name in reserved or (takes is not None and name in list(takes)[:state]):
            raise reject(where, repr(name), f"fn is given its own {name}; choose another name, after {name}")
        if takes is not None and not (takes[name].kind in BY_NAME if name in takes else any_name):
            raise reject(where, repr(name), f"fn takes ({', '.join(map(str, takes.values()))}); let it take {name} too")
    numbers = {name: number(f"{where}[{name!r}]", value) for name, value in parameters.items() if not _trained(value)}
    return Parameters({name: numbers.get(name, value) for name, value in parameters.items()})


def _trained(value: Any) -> bool:
    """Whether a number is a `trained.Trained`, which says itself where it starts."""
    return hasattr(value, "start") and hasattr(value, "rate")


def given(model: Any) -> dict[str, Any]:
    """The parameters of `model`, if it has any, as functions take them: arrays of jax; trained ones at their start."""
    parameters = getattr(model, "parameters", {})
    values = {name: value.start if _trained(value) else value for name, value in parameters.items()}
    return {name: value if isinstance(value, float) else jnp.asarray(value) for name, value in values.items()}


def bound(fn: Callable[..., Any], model: Any) -> Callable[..., Any]:
    """`fn` with those parameters of `model` that its signature names; `fn` itself where there are none."""
    parameters = given(model)
    named = parameters.keys() & set(signature(fn) or ()) if parameters else ()
    return functools.partial(fn, **{name: parameters[name] for name in named}) if named else fn
