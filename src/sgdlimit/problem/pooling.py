"""One filter over many patches: a two-layer network whose hidden units are pooled over the rows of a sample."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp

from .._tree import model, static
from .._types import Array, Scalar
from ..errors import instance, reject
from .labels import LabelRule
from .losses import LossLike, Square, activation, by_unit, check_network
from .trained import now

if TYPE_CHECKING:
    from .problem import Problem

POOLS: dict[str, Callable[..., Array]] = {"mean": partial(jnp.mean, axis=0), "max": partial(jnp.max, axis=0)}


def pooled(where: str, own: Any, r: Any, pool: Callable[..., Array]) -> Array:
    """Σ_a readout_a·pool_l activation(r_la + bias_a) + output_bias, from r, (L,) or (L, m)."""
    r = jnp.asarray(r)
    r = r[:, None] if r.ndim == 1 else r
    if (bias := now(own.bias)) is not None:
        r = r + by_unit(f"{where}.bias", bias, r[0])
    hidden, level = pool(own.activation(r)), now(own.output_bias)
    out = jnp.sum(by_unit(f"{where}.readout", now(own.readout), hidden) * hidden)
    return out if level is None else out + jnp.asarray(level)


def _check_patches(where: str, problem: "Problem") -> None:
    if problem.rows < 2:
        raise reject("rows", problem.rows, f"{where} pools over the patches of a sample; set rows=2 or more")


class Pooled(LossLike):
    """A loss at the output of a pooled network. Subclasses are final, and say how rows are pooled."""

    pool: ClassVar[str]
    loss: LossLike

    def _settle(self) -> None:
        name = type(self).__name__
        instance(f"{name}.loss", self.loss, LossLike, "a loss such as sl.Square() or sl.Loss(fn)")
        check_network(name, self)

    def check(self, problem: "Problem") -> None:
        """Refuse samples of one row."""
        _check_patches(type(self).__name__, problem)

    def predict(self, r: Scalar) -> Array:
        """The output of the pooled network."""
        return pooled(type(self).__name__, self, r, POOLS[self.pool])

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """The inner loss at the output."""
        return self.loss(self.predict(r), y)


@model
class MeanPool(Pooled):
    """A filter over patches, averaged: `loss(Σ_a readout_a · mean_l activation(r_la + bias_a) + output_bias, y)`.

    `activation` and the other arguments are those of `TwoLayer`; readout, bias and output_bias are trained where they
    are a `Trained`.
    """

    activation: Any = static(activation)
    loss: LossLike = Square()
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None
    pool = "mean"

    def __post_init__(self) -> None:
        self._settle()


@model
class MaxPool(Pooled):
    """As `MeanPool`, with the largest of the rows in the place of their mean."""

    activation: Any = static(activation)
    loss: LossLike = Square()
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None
    pool = "max"

    def __post_init__(self) -> None:
        self._settle()


def _pool(argument: str, given: Any) -> str:
    if not isinstance(given, str) or given not in POOLS:
        raise reject(argument, repr(given), f"it must be one of {', '.join(map(repr, POOLS))}")
    return given


@model
class PoolLabels(LabelRule):
    """y = Σ_a readout_a·pool over rows of activation(r*_a + bias_a) + output_bias + z; pool: "mean" or "max"."""

    activation: Any = static(activation)
    pool: str = static(_pool, default="mean")
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None

    def __post_init__(self) -> None:
        check_network("PoolLabels", self)

    def check(self, problem: "Problem") -> None:
        """Refuse samples of one row."""
        _check_patches("PoolLabels", problem)

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The teacher's output plus z."""
        return pooled("PoolLabels", self, r_star, POOLS[self.pool]) + z
