"""The general form of the paper: fields ℓ_t(r, r*; z) and h_t(θ) that need not be gradients."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from .._tree import static, tree
from ..errors import reject

TIME_NAMES = ("t", "time")


def _time_position(fn: Callable[..., Any]) -> int | None:
    """Where `fn` takes the time, by the name of its parameter; None if it takes none."""
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return None
    return next((i for i, name in enumerate(names) if name in TIME_NAMES), None)


@final
@tree
@dataclass(frozen=True)
class VectorField:
    """A field in place of a gradient, as `loss=` (ℓ) or as `penalty=` (h).

    As a loss: `fn(r, r_star, z, t)`, shape of `r`. As a penalty: `fn(theta, t)`, shape of `theta`. The parameter
    for time is recognised by its name (`t` or `time`), wherever it stands, and may be left out.
    A field has no loss of its own: give `loss(r, y)`, `predict(r)`, `error(prediction, y)` to have them reported.
    """

    fn: Callable[..., Any] = static()
    loss: Callable[..., Any] | None = static(default=None)
    predict: Callable[..., Any] | None = static(default=None)
    error: Callable[..., Any] | None = static(default=None)

    def __post_init__(self) -> None:
        for name in ("fn", "loss", "predict", "error"):
            value = getattr(self, name)
            if not callable(value) and (name == "fn" or value is not None):
                raise reject(f"VectorField.{name}", repr(value), "it must be a function written in jax.numpy")

    def at(self, t: Any, *state: Any) -> Any:
        """The field at time t."""
        position = _time_position(self.fn)
        if position is None:
            return self.fn(*state)
        return self.fn(*state[:position], t, *state[position:])
