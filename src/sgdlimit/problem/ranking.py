"""Samples whose rows are compared: pairs of which one is preferred, lists with a winner, pairs that belong together.

A row's score is its pre-activation, or the output of a two-layer network that all rows share (`scores`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from .._tree import leaf, model, static
from .._types import Array, Host, Scalar
from ..errors import reject
from .labels import LabelRule, refuse_noise
from .laws import EntryLaw, Uniform
from .losses import POSITIVE, LossLike, activation, check_network, mistaken, network, numbered

if TYPE_CHECKING:
    from .problem import Problem


def _optional(argument: str, given: Any) -> Callable[..., Any] | None:
    return None if given is None else activation(argument, given)


def scores(where: str, own: Any, r: Any) -> Array:
    """One score for each row, (L,), from r, (L,) or (L, m)."""
    r = jnp.asarray(r)
    if own.activation is None:
        if r.ndim > 1:
            given, why = f"{r.shape[-1]} units", "the score of several units is a network's; give an activation"
            raise reject(f"{where}.activation", given, why)
        return r
    return jax.vmap(lambda row: network(where, own, row))(r[:, None] if r.ndim == 1 else r)


def check_compared(where: str, rows: int, exactly: int | None = None) -> None:
    """Refuse samples with too few rows to compare, or not exactly so many."""
    if exactly is not None and rows != exactly:
        raise reject("rows", rows, f"{where} compares the {exactly} rows of a sample; set rows={exactly}")
    if rows < 2:
        raise reject("rows", rows, f"{where} compares the rows of a sample; set rows=2 or more")


@model
class PairwiseRanking(LossLike):
    """log(1 + exp(−y (s_1 − s_2))) of the scores of a pair, y = +1 where the first is preferred, −1 otherwise.

    A score is the pre-activation; with an `activation` the output of a two-layer network,
    Σ_a readout_a·activation(r_a + bias_a), whose parameters are trained where they are a `Trained`.
    The prediction is s_1 − s_2.
    """

    activation: Any = static(_optional, default=None)
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None
    smooth = property(lambda self: self.activation is None)

    def __post_init__(self) -> None:
        check_network("PairwiseRanking", self)

    def check(self, problem: "Problem") -> None:
        """Refuse samples that are no pairs."""
        check_compared("PairwiseRanking", problem.rows, 2)

    def check_labels(self, problem: "Problem", y: Host) -> None:
        """Refuse labels that are not ±1."""
        signs("PairwiseRanking", "sl.PairwiseLabels()", y)

    def predict(self, r: Scalar) -> Array:
        """s_1 − s_2."""
        first, second = scores("PairwiseRanking", self, r)
        return first - second

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """log(1 + exp(−y (s_1 − s_2))), without overflow."""
        return jax.nn.softplus(-y * self.predict(r))


def signs(where: str, rule: str, y: Host) -> None:
    """Refuse labels that are not ±1."""
    if len(strange := y[(y != 1) & (y != -1)]):
        raise reject("labels", strange[0], f"labels of sl.{where} are +1 and −1; use {rule}, or sl.Labels(fn)")


@model
class ListwiseRanking(LossLike):
    """log Σ_l exp(s_l) − s_y of the scores of a list, y the number 0, 1, … of the row that won: softmax over the list.

    Scores are those of `PairwiseRanking`. The prediction is the row of the largest score, the error the share of
    mistakes.
    """

    activation: Any = static(_optional, default=None)
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None
    error = staticmethod(mistaken)
    smooth = property(lambda self: self.activation is None)

    def __post_init__(self) -> None:
        check_network("ListwiseRanking", self)

    def check(self, problem: "Problem") -> None:
        """Refuse samples of one row."""
        check_compared("ListwiseRanking", problem.rows)

    def check_labels(self, problem: "Problem", y: Host) -> None:
        """Refuse labels that are no number of a row."""
        numbered("ListwiseRanking", "sl.ListwiseLabels()", problem.rows, y)

    def predict(self, r: Scalar) -> Array:
        """The row of the largest score, as a number."""
        return jnp.argmax(scores("ListwiseRanking", self, r)).astype(jnp.zeros(()).dtype)

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """log Σ_l exp(s_l) − s_y."""
        own = scores("ListwiseRanking", self, r)
        return jax.nn.logsumexp(own) - jnp.sum(own * (jnp.arange(len(own)) == y))


@model
class Contrastive(LossLike):
    """Pairs that belong together are pulled together, others apart up to a margin.

    With D = |r_1 − r_2|, over the units: ½D² for y = +1, ½ max(0, margin − D)² for y = −1. The prediction is
    margin/2 − D, whose sign is the class.
    """

    margin: float = leaf(default=1.0, above=0, why=POSITIVE)

    def check(self, problem: "Problem") -> None:
        """Refuse samples that are no pairs."""
        check_compared("Contrastive", problem.rows, 2)

    def check_labels(self, problem: "Problem", y: Host) -> None:
        """Refuse labels that are not ±1."""
        signs("Contrastive", "sl.SameSide()", y)

    def _distance(self, r: Scalar) -> Array:
        square = jnp.sum((jnp.asarray(r)[0] - jnp.asarray(r)[1]) ** 2)
        apart = square > 0  # at D = 0 the root has no slope
        return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)

    def predict(self, r: Scalar) -> Array:
        """margin/2 − D: positive where the rows seem to belong together."""
        return 0.5 * self.margin - self._distance(r)

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """½D² of what belongs together, ½ max(0, margin − D)² of what does not."""
        distance = self._distance(r)
        short = jnp.maximum(self.margin - distance, 0.0)
        return 0.5 * jnp.where(y > 0, distance**2, short**2)


@model
class PairwiseLabels(LabelRule):
    """y = sign(s*_1 − s*_2 + z) of the teacher's scores, which are those of `PairwiseRanking`."""

    activation: Any = static(_optional, default=None)
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None
    binary = True

    def __post_init__(self) -> None:
        check_network("PairwiseLabels", self)

    def check(self, problem: "Problem") -> None:
        """Refuse samples that are no pairs."""
        check_compared("PairwiseLabels", problem.rows, 2)

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """+1 where the first row has the larger score, with z added to their difference."""
        first, second = scores("PairwiseLabels", self, r_star)
        return jnp.where(first - second + z >= 0, 1.0, -1.0)


@model
class ListwiseLabels(LabelRule):
    """y = the row with the largest of the teacher's scores, as a number 0, 1, …; scores as of `PairwiseRanking`.

    slope: where it is given, the winner is drawn, row l with probability softmax_l(slope·s*): Plackett and Luce's law.
    z, which decides, is uniform on [0, 1]: the problem's `noise` is left out.
    """

    slope: float | None = None
    activation: Any = static(_optional, default=None)
    readout: Any = 1.0
    bias: Any = None
    output_bias: Any = None

    def __post_init__(self) -> None:
        check_network("ListwiseLabels", self)

    def check(self, problem: "Problem") -> None:
        """Refuse samples of one row, and noise beside that which draws the winner."""
        check_compared("ListwiseLabels", problem.rows)
        refuse_noise(problem, "who wins where sl.ListwiseLabels(slope=...) draws the winner")

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The number of the winner."""
        own = scores("ListwiseLabels", self, r_star)
        if self.slope is None:
            return jnp.argmax(own).astype(jnp.zeros(()).dtype)
        passed = jnp.cumsum(jax.nn.softmax(self.slope * own))[:-1] <= z
        return jnp.sum(passed).astype(jnp.zeros(()).dtype)

    def noise(self, law: EntryLaw) -> EntryLaw:
        """Uniform on [0, 1]."""
        return Uniform(0.0, 1.0)


@model
class SameSide(LabelRule):
    """y = sign((r*_1 + z)(r*_2 + z)): +1 where both rows of a pair lie on one side of the teacher, −1 otherwise."""

    binary = True

    def check(self, problem: "Problem") -> None:
        """Refuse samples that are no pairs, and teachers of several units."""
        check_compared("SameSide", problem.rows, 2)
        if problem.read > 1:
            raise reject("teacher_width", problem.read, "sl.SameSide has one teacher; set teacher_width=1")

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """+1 on the same side, −1 on different ones."""
        first, second = jnp.asarray(r_star)
        return jnp.where((first + z) * (second + z) >= 0, 1.0, -1.0)
