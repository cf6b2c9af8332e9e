"""Parameters that all samples share, trained with the weights: a second layer, biases, the scale of a loss.

A finite number of them moves by averages over the samples, dg/dt = −rate·E[∂L/∂g], and has no noise in the limit: one
sample moves it by O(1/n). At finite size g ← g − (η/d)·rate·(mean of ∂L/∂g over the batch). A `Trained` stands in the
loss in the place of a number; `at` puts the values that it has now there, after which a problem is like any other.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import leaf, model
from .._types import Array, Scalar
from ..errors import reject
from . import fields
from .parameters import Parameters, comparable

if TYPE_CHECKING:
    from .problem import Problem


@model
class Trained:
    """A number, or a list of numbers, that is trained with the weights: g ← g − (η/d)·rate·mean of ∂L/∂g.

    start: its value at t = 0. rate: its learning rate over that of the weights, in units of 1/d. Its curve is a
    variable of every result, under the name of the argument in whose place it stands.
    """

    start: Any = 0.0
    rate: float = leaf(default=1.0, least=0, why="it must be a number ≥ 0; 0 keeps the parameter where it starts")

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", comparable("Trained.start", self.start))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trained):
            return False
        return self is other or (self.rate == other.rate and np.array_equal(self.start, other.start))

    def __hash__(self) -> int:
        return hash((self.rate, np.shape(self.start)))


def now(value: Any) -> Any:
    """The number itself; of one that is trained, where it starts."""
    return value.start if isinstance(value, Trained) else value


def _is(part: Any) -> bool:
    return isinstance(part, Trained)


def _walk(part: Any, name: str) -> Iterator[tuple[str, Trained]]:
    """Trained parameters within a part, in the order in which jax meets them."""
    if _is(part):
        yield name, part
    elif isinstance(part, Parameters):
        for key in sorted(part):
            yield from _walk(part[key], key)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            if not field.metadata.get("static"):
                yield from _walk(getattr(part, field.name), field.name)


def trained_of(problem: "Problem") -> dict[str, Trained]:
    """Trained parameters of the loss by name."""
    return dict(_walk(problem.loss, "loss"))


TAKEN = ("time", "earlier", "snapshot", "student", "student_", "teacher", "direction", "group", "coordinate", "sample",
         "row", "trial", "replica", "norm", "overlap", "mean_overlap", "intercept", "C_theta", "R_theta", "R_ell",
         "Gamma", "theta", "theta_star", "r", "r_star", "z")  # fmt: skip
"""Names of results that no parameter may have."""


def _taken(name: str) -> bool:
    endings = ("_stderr", "_step_error", "_projection_error", "_bias_error", "_replicas", "_by_group")
    return name in TAKEN or name.startswith(("train_", "test_")) or name.endswith(endings)


def check_trained(problem: "Problem") -> None:
    """Refuse two of one name, names that results use, and those of a field that has no gradient in them."""
    names = [name for name, _ in _walk(problem.loss, "loss")]
    for name in names:
        if names.count(name) > 1:
            raise reject("loss", f"two trained parameters named {name!r}", "rename one of them: each has its own curve")
        if _taken(name):
            raise reject("loss", f"a trained parameter named {name!r}", "results have a curve of that name; rename it")
    if names and isinstance(problem.loss, fields.VectorField):
        why = "a field has no gradient in its parameters; write the loss itself, sl.Loss(fn, parameters=...)"
        raise reject("loss.parameters", f"{names[0]} = Trained(...)", why)
    for place in ("labels", "penalty", "schedule"):
        for name, _ in _walk(getattr(problem, place), place):
            raise reject(f"{place}.{name}", "Trained(...)", "parameters of the loss are trained; give a number here")


def at(problem: "Problem", values: Mapping[str, Any]) -> "Problem":
    """The problem with these values in the place of its trained parameters; all of them, or none."""
    names = [name for name, _ in _walk(problem.loss, "loss")]
    if not names or not values:
        return problem
    leaves, structure = jax.tree.flatten(problem, is_leaf=_is)
    left = iter(names)
    return jax.tree.unflatten(structure, [values[next(left)] if _is(part) else part for part in leaves])


def restarted(problem: "Problem", values: Mapping[str, Any]) -> "Problem":
    """The problem whose trained parameters of these names start from these values."""
    found = trained_of(problem)
    again = {name: Trained(values[name], part.rate) if name in values else part for name, part in found.items()}
    return at(problem, again)


def starts(problem: "Problem") -> dict[str, Array]:
    """Values at t = 0 by name."""
    return {name: jnp.asarray(part.start) for name, part in trained_of(problem).items()}


def slopes(problem: "Problem", values: Mapping[str, Array], r: Array, r_star: Array, z: Array) -> dict[str, Array]:
    """rate·∂L/∂g of one sample by name, without the schedule."""

    def loss(values: Mapping[str, Array]) -> Scalar:
        return fields.loss(at(problem, values), r, r_star, z)

    found = jax.grad(loss)(dict(values))
    return {name: part.rate * found[name] for name, part in trained_of(problem).items()}
