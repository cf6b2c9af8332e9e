"""Labels y = f(r*, z): what the teacher says about a sample. The contract is `LabelRule`."""

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from .._tree import function, leaf, model, settle, static
from .._types import Scalar
from ..errors import flag, reject
from .data import numbers
from .laws import EntryLaw, PlusLogistic, Point, Uniform
from .losses import POSITIVE, MultiClass, activation, check_network, network
from .parameters import given, named

if TYPE_CHECKING:
    from .problem import Problem


class LabelRule(abc.ABC):
    """The contract of a label rule y = f(r*, z), which `Problem(labels=...)` takes. For a function alone: `Labels`.

    A rule is a frozen dataclass that jax knows as a tree (`jax.tree_util.register_dataclass`), with numbers as leaves
    and functions, names and sizes as static fields. All but `__call__` has a default; `sgdlimit.testing.check_labels`
    tests all of it.

    __call__: f(r*, z) in jax.numpy, a finite scalar; r* is a number where the teacher has width 1, (k,) at width k, and
        None where there is no teacher; z is a number.
    noise: the law of z that the rule needs, given the law that the user chose; that one by default.
    binary: whether labels are ±1, so that the error is zero-one; False by default.
    planted: whether there must be a teacher; True by default.
    check: refuses a problem that the rule is not made for; nothing by default.

    Of samples with L rows r* is (L,), or (L, k), and y may have any shape.
    """

    binary: Any = False
    planted: Any = True

    @abc.abstractmethod
    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The label y, a scalar."""

    def noise(self, law: EntryLaw) -> EntryLaw:
        """The law of z, given the one that the user chose: that one, unless the rule draws something of its own."""
        return law

    def check(self, problem: "Problem") -> None:  # noqa: B027
        """Refuse a problem that the rule is not made for; here nothing."""


def refuse_noise(problem: "Problem", what: str) -> None:
    """Refuse noise beside that which a rule draws itself."""
    if problem.noise != Point(0.0):
        why = f"z decides {what}; leave it out, or use sl.Labels(fn)"
        raise reject("noise", type(problem.noise).__name__, why)


@model
class Linear(LabelRule):
    """y = r* + z (the sum over teacher units, if there are several)."""

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """r* + z, r* summed over the teacher's units."""
        return jnp.sum(r_star) + z


@model
class Sign(LabelRule):
    """y = sign(r* + z)."""

    binary = True

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """±1; a zero counts as +1, so that a label is always ±1."""
        return jnp.where(jnp.sum(r_star) + z >= 0, 1.0, -1.0)


@model
class Logit(LabelRule):
    """Random label: y = +1 with probability 1/(1 + exp(−slope·r* − z)), −1 otherwise; z is the user's noise.

    Drawn as sign(slope·r* + z'), z' being z plus a standard logistic variable.
    """

    slope: float = leaf(default=1.0, above=0, why=POSITIVE)
    binary = True

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The sign of the teacher's log-odds plus the logistic variable in z."""
        return jnp.where(self.slope * jnp.sum(r_star) + z >= 0, 1.0, -1.0)

    def noise(self, law: EntryLaw) -> EntryLaw:
        """The user's noise plus the logistic variable that makes the label random."""
        return PlusLogistic(law)


@model
class Noise(LabelRule):
    """y = z: labels that know no teacher (the un-planted setting). `binary=True` for z = ±1."""

    binary: bool = static(flag, default=False)
    planted = False

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """z itself, whatever r* is."""
        return z


@model
class ByClass(LabelRule):
    """y = values[c] for a sample of class c of `sl.Mixture`; by default +1, −1 for two classes, 0, 1, 2, … for more."""

    values: Any = static(default=None)
    planted = False

    def __post_init__(self) -> None:
        if self.values is not None:
            values = numbers("ByClass.values", self.values, "a list of numbers, one for each class")
            settle(self, values=tuple(values.tolist()))

    @property
    def binary(self) -> bool:
        """Whether the values of all classes are ±1."""
        return self.values is not None and all(abs(value) == 1 for value in self.values)

    def among(self, classes: int) -> "ByClass":
        """With the values of so many classes."""
        if self.values is None:
            return ByClass((1.0, -1.0)[:classes] if classes <= 2 else tuple(float(c) for c in range(classes)))
        if len(self.values) != classes:
            raise reject("ByClass.values", f"{len(self.values)} numbers", f"the mixture has {classes} classes")
        return self

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The value that belongs to class z."""
        return sum(value * (z == c) for c, value in enumerate(self.values)) + 0.0 * z


@model
class TwoLayerLabels(LabelRule):
    """y = Σ_a readout_a·activation(r*_a + bias_a) + output_bias + z: a two-layer teacher.

    Names of activations are those of `TwoLayer`; nothing of a teacher is trained.
    """

    activation: Any = static(activation)
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None

    def __post_init__(self) -> None:
        check_network("TwoLayerLabels", self)

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The teacher network's output plus z."""
        return network("TwoLayerLabels", self, jnp.asarray(r_star)) + z


@model
class ArgMax(LabelRule):
    """y = a, the unit of the teacher whose r*_a is largest, as a number 0, 1, …: labels of `MultiClass`.

    wrong: share of the labels that are the next class instead. z, which decides which ones, is uniform on [0, 1]: the
    problem's `noise` is left out.
    """

    wrong: float = leaf(default=0.0, least=0, most=1, why="a fraction from 0 to 1")

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The index of the largest of r*, or the next one where z < wrong."""
        r_star = jnp.atleast_1d(r_star)
        found = (jnp.argmax(r_star) + (z < self.wrong)) % len(r_star)
        return found.astype(jnp.zeros(()).dtype)

    def noise(self, law: EntryLaw) -> EntryLaw:
        """Uniform on [0, 1]."""
        return Uniform(0.0, 1.0)

    def check(self, problem: "Problem") -> None:
        """Refuse noise of the user's, and a teacher without a unit for each class of the student."""
        refuse_noise(problem, "which labels of sl.ArgMax(wrong=...) are wrong")
        classes = problem.loss.classes if isinstance(problem.loss, MultiClass) else None
        if classes is not None and problem.k != classes:
            why = f"sl.ArgMax() tells as many classes as there are units; set teacher_width={classes}"
            raise reject("teacher_width", problem.k, why)


@model
class Labels(LabelRule):
    """The user's rule: `fn(r_star, z) -> y` in jax.numpy. `r_star` is None when there is no teacher.

    Say `binary=True` for labels ±1 (zero–one error); fn may jump.
    `parameters` are numbers that `fn` takes by name, `fn(r_star, z, a=…)`; another value does not compile it again.
    """

    fn: Callable[..., Any] = function("fn(r_star, z) -> y in jax.numpy")
    binary: bool = static(flag, default=False)
    parameters: Mapping[str, Any] = named(2)
    planted = False  # fn decides: it is traced with r_star=None when there is no teacher

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """What the user's function says of (r*, z)."""
        return self.fn(r_star, z, **given(self))
