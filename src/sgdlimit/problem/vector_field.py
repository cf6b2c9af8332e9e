"""The general form of the paper: fields ℓ_t(r, r*; z) and h_t(θ) that need not be gradients."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from .._tree import function, model, static
from .._types import Scalar
from .parameters import given, named, signature
from .schedules import times_of_breaks

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

    def at(self, t: Scalar, *state: Any) -> Any:
        """The field at time t and the given state, (r, r_star, z) or (theta,)."""
        time, numbers = _time(self.fn), given(self)
        if time is None:
            return self.fn(*state, **numbers)
        name, place = time
        if place > len(state):  # behind a parameter
            return self.fn(*state, **numbers, **{name: t})
        return self.fn(*state[:place], t, *state[place:], **numbers)
