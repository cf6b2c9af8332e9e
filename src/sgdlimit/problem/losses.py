"""Losses L(r, y): what is minimised. Derivatives come from autodiff (`fields`); the contract is `LossLike`."""

import abc
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtr

from .._tree import function, leaf, model, settle, static
from .._types import Array, Host, Scalar
from ..errors import instance, reject, whole
from .parameters import comparable, given, named
from .trained import Trained, now

if TYPE_CHECKING:
    from .problem import Problem


class LossLike(abc.ABC):
    """The contract of a loss L(r, y), which `Problem(loss=...)` takes. For a function alone there is `Loss`.

    A loss is a frozen dataclass that jax knows as a tree (`jax.tree_util.register_dataclass`), with numbers as leaves
    and functions, names and sizes as static fields. All but `__call__` has a default; `sgdlimit.testing.check_loss`
    tests all of it.

    __call__: L(r, y) in jax.numpy, a scalar; r is a number at width 1, (m,) at width m, and y a number. It is
        continuous in r, and its gradient, which autodiff takes, is finite; it may jump, and at a kink it is what
        autodiff gives.
    predict: a function of r alone, the scalar prediction, or the score whose sign is the class. None: r itself at
        width 1, and no reported error at other widths.
    error: a function of (prediction, y), the scalar that is reported as error. None: zero-one for labels ±1, otherwise
        squared.
    smooth: True where the gradient is known to be continuous in r, which spares a search for its jumps.
    check, check_labels: refuse a problem, or labels, that the loss is not made for; they refuse nothing by default.

    Of samples with L rows r is (L,), or (L, m), and y may have any shape.
    """

    predict: Any = None
    error: Any = None
    smooth: Any = False

    @abc.abstractmethod
    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """L(r, y), a scalar."""

    def check(self, problem: "Problem") -> None:  # noqa: B027
        """Refuse a problem that the loss is not made for, by its width or its rows; here nothing."""

    def check_labels(self, problem: "Problem", y: Host) -> None:  # noqa: B027
        """Refuse labels of samples, (samples, …), that the loss is not made for; here nothing."""


def identity(r: Array) -> Array:
    """The prediction of a linear model is its pre-activation."""
    return r


POSITIVE = "it must be a positive number"


@model
class Square(LossLike):
    """½(r−y)²: linear regression (`eq:lin_setup`)."""

    smooth = True

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """Half of the squared difference, ½(r−y)²."""
        return 0.5 * (r - y) ** 2


@model
class Logistic(LossLike):
    """log(1 + exp(−y r)), y = ±1."""

    smooth = True

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """log(1 + exp(−y r)), without overflow."""
        return jax.nn.softplus(-y * r)


@model
class Huber(LossLike):
    """½(r−y)² within `threshold` of the label, linear beyond."""

    threshold: float = leaf(default=1.0, above=0, why=POSITIVE)
    smooth = True

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """The clipped-gradient form: its derivative is clip(r−y, ±threshold)."""
        inside = jnp.clip(r - y, -self.threshold, self.threshold)
        return inside * (r - y) - 0.5 * inside**2


@model
class Absolute(LossLike):
    """|r−y|: regression on the median."""

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """|r−y|; its gradient is sign(r−y), 0 at the kink, where that of `jnp.abs` is 1."""
        return (r - y) * jnp.sign(r - y)


@model
class Quantile(LossLike):
    """Pinball loss: level·(y−r) below the label, (1−level)·(r−y) above. The minimum is the `level`-quantile of y."""

    level: float = leaf(above=0, most=math.nextafter(1.0, 0.0), why="it must be a number q with 0 < q < 1")

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """The larger of two lines; at the kink its gradient is 1 − level."""
        return jnp.where(r < y, self.level * (y - r), (1.0 - self.level) * (r - y))


@model
class Hinge(LossLike):
    """max(0, 1 − y r), y = ±1: the support vector machine."""

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """The margin's deficit; at the kink its gradient is 0."""
        deficit = 1.0 - y * r
        return jnp.where(deficit > 0, deficit, 0.0)


@model
class SmoothHinge(LossLike):
    """The hinge max(0, 1 − y r), rounded over a width `smoothing`: s·log(1 + exp((1 − y r)/s))."""

    smoothing: float = leaf(default=0.2, above=0, why=POSITIVE)
    smooth = True

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """The softplus of the margin's deficit, of width `smoothing`."""
        return self.smoothing * jax.nn.softplus((1.0 - y * r) / self.smoothing)


@model
class Exponential(LossLike):
    """exp(−y r), y = ±1 (boosting)."""

    smooth = True

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """exp(−y r), which grows without bound for wrong signs."""
        return jnp.exp(-y * r)


@model
class Loss(LossLike):
    """The user's loss: `fn(r, y) -> scalar` in jax.numpy, continuous in `r`; kinks are allowed.

    `predict(r)` and `error(prediction, y)` define the reported error. Without them the prediction is `r` itself
    (width 1 only), and the error is zero–one for binary labels and (prediction − y)² otherwise.
    `parameters` are numbers that `fn` takes by name, `fn(r, y, a=…)`; another value does not compile it again.
    `predict` and `error` are given those that their signatures name.
    """

    fn: Callable[..., Any] = function()
    predict: Callable[..., Any] | None = function(default=None)
    error: Callable[..., Any] | None = function(default=None)
    parameters: Mapping[str, Any] = named(2)

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """What the user's function gives at (r, y), with its parameters."""
        return self.fn(r, y, **given(self))


def gelu(x: Array) -> Array:
    """x Φ(x), without approximation."""
    return x * ndtr(x)


ACTIVATIONS: dict[str, Callable[..., Any]] = dict(
    erf=erf, relu=jax.nn.relu, leaky_relu=jax.nn.leaky_relu, tanh=jnp.tanh, sigmoid=jax.nn.sigmoid,
    softplus=jax.nn.softplus, gelu=gelu, silu=jax.nn.silu, elu=jax.nn.elu, quadratic=jnp.square,
)  # fmt: skip
"""By name. At its kink relu has slope 0 and leaky_relu slope 1; the latter has slope 0.01 below."""


def activation(argument: str, given: Any) -> Callable[..., Any]:
    """The function that a name stands for, or the function itself."""
    if isinstance(given, str) and given in ACTIVATIONS:
        return ACTIVATIONS[given]
    if not callable(given):
        names = ", ".join(map(repr, ACTIVATIONS))
        raise reject(argument, repr(given), f"it must be a function such as jax.nn.relu, or one of the names {names}")
    return given


def by_unit(argument: str, given: Any, units: Array) -> Array:
    """Numbers of units as they are multiplied or added; one number serves all units."""
    numbers = jnp.asarray(given)
    if numbers.size == 1:
        return numbers.reshape(())
    if numbers.shape != jnp.shape(units):
        why = f"give one number, or one for each of the {jnp.size(units)} units"
        raise reject(argument, f"{numbers.size} numbers", why)
    return numbers


def network(where: str, own: Any, r: Array) -> Array:
    """Σ_a readout_a·activation(r_a + bias_a) + output_bias, of a student or a teacher with these fields."""
    if (bias := now(own.bias)) is not None:
        r = r + by_unit(f"{where}.bias", bias, r)
    hidden, level = own.activation(r), now(own.output_bias)
    out = jnp.sum(by_unit(f"{where}.readout", now(own.readout), hidden) * hidden)
    return out if level is None else out + jnp.asarray(level)


def check_network(where: str, own: Any) -> None:
    """Store readout, bias and output bias as numbers, or refuse them."""
    for name in ("readout", "bias", "output_bias"):
        value = getattr(own, name)
        if value is not None and not isinstance(value, Trained):
            settle(own, **{name: comparable(f"{where}.{name}", value)})
        if name == "output_bias" and value is not None and np.ndim(now(value)):
            given, why = f"{np.size(now(value))} numbers", "a network has one output: give a number"
            raise reject(f"{where}.{name}", given, why)


@model
class TwoLayer(LossLike):
    """A two-layer network: `loss(Σ_a readout_a · activation(r_a + bias_a) + output_bias, y)`.

    `activation` is a function or a name: "erf", "relu", "leaky_relu", "tanh", "sigmoid", "softplus", "gelu", "silu",
    "elu", "quadratic". `readout` is one number per hidden unit; the default 1 gives the committee machine of Saad and
    Solla. `bias` is one number, or one per hidden unit. Each of the three is trained where it is a `Trained`.
    """

    activation: Any = static(activation)
    loss: LossLike = Square()
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None

    def __post_init__(self) -> None:
        instance("TwoLayer.loss", self.loss, LossLike, "a loss such as sl.Square() or sl.Loss(fn)")
        check_network("TwoLayer", self)

    def predict(self, r: Scalar) -> Array:
        """The network's output Σ_a readout_a · activation(r_a + bias_a) + output_bias."""
        return network("TwoLayer", self, jnp.asarray(r))

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """The inner loss at the network's output."""
        return self.loss(self.predict(r), y)


def mistaken(prediction: Scalar, y: Scalar) -> Array:
    """1 where the predicted class is not the label, 0 elsewhere."""
    return jnp.where(prediction == y, 0.0, 1.0)


def numbered(where: str, rule: str, count: int, y: Host) -> None:
    """Refuse labels that are not one of the numbers 0, 1, … count − 1."""
    strange = (y < 0) | (y >= count) | (y != np.round(y))
    if np.any(strange):
        why = f"labels of sl.{where} are 0, 1, … {count - 1}; use {rule}, or sl.Labels(fn)"
        raise reject("labels", y[strange][0], why)


MOST_CLASSES = 64
CLASSES = f"a whole number of classes from 2 to {MOST_CLASSES}"


@model
class MultiClass(LossLike):
    """Softmax cross-entropy of a student with one unit for each class: log Σ_a exp(r_a + bias_a) − r_y − bias_y.

    Labels are the class 0, 1, …, classes − 1 as a number, such as those of `ArgMax`; the width of the problem is the
    number of classes. The error is the share of mistakes of the largest score. `output_bias` is one number for each
    class; it is trained where it is a `Trained`.
    """

    classes: int = static(functools.partial(whole, least=2, most=MOST_CLASSES, why=CLASSES))
    output_bias: Any = None
    error = staticmethod(mistaken)
    smooth = True

    def __post_init__(self) -> None:
        if self.output_bias is None:
            return
        if not isinstance(self.output_bias, Trained):
            settle(self, output_bias=comparable("MultiClass.output_bias", self.output_bias))
        if np.shape(now(self.output_bias)) != (self.classes,):
            why = f"give one number for each of {self.classes} classes"
            raise reject("MultiClass.output_bias", f"{np.size(now(self.output_bias))} numbers", why)

    def check(self, problem: "Problem") -> None:
        """Refuse units that are not one for each class."""
        if problem.width != self.classes:
            why = f"a problem of {self.classes} classes has a unit for each; set width={self.classes}"
            raise reject("width", problem.width, why)

    def check_labels(self, problem: "Problem", y: Host) -> None:
        """Refuse labels that are no number of a class."""
        numbered("MultiClass", "sl.ArgMax()", self.classes, y)

    def _scores(self, r: Scalar) -> Array:
        bias = now(self.output_bias)
        return jnp.asarray(r) if bias is None else jnp.asarray(r) + jnp.asarray(bias)

    def predict(self, r: Scalar) -> Array:
        """The class of the largest score, as a number."""
        return jnp.argmax(self._scores(r)).astype(jnp.zeros(()).dtype)

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """log Σ_a exp(score_a) − score of the class y."""
        scores = self._scores(r)
        return jax.nn.logsumexp(scores) - jnp.sum(scores * (jnp.arange(self.classes) == y))
