"""Attention over the rows of a sample: tokens, of which keys say how much of each value is read.

`Attention` is a student, `AttentionLabels` a teacher; both have the output of `attended`.
"""

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import leaf, model, settle, static
from .._types import Array, Scalar
from ..errors import flag, instance, reject, whole
from .labels import LabelRule
from .losses import POSITIVE, LossLike, Square, by_unit
from .parameters import comparable
from .trained import Trained, now

if TYPE_CHECKING:
    from .problem import Problem

MOST_HEADS = 32
HEADS = f"a whole number of heads from 1 to {MOST_HEADS}"


def attended(where: str, own: Any, r: Array) -> Array:
    """What attention with these fields makes of pre-activations r, (L, units).

    Tied: the matrix softmax(β r A rᵀ), row by row, (L, L). Otherwise Σ_h readout_h Σ_l softmax_l(β key_lh) value_lh +
    output_bias, of keys r[:, :heads] and values r[:, heads:].
    """
    r = jnp.asarray(r)
    r, sharpness = r[:, None] if r.ndim == 1 else r, jnp.asarray(now(own.inverse_temperature))
    if own.tied:
        core = now(own.core)
        turned = r if core is None else r @ jnp.asarray(core, r.dtype)
        return jax.nn.softmax(sharpness * turned @ r.T, axis=1)
    keys, values = r[:, : own.heads], r[:, own.heads :]
    heads = jnp.sum(jax.nn.softmax(sharpness * keys, axis=0) * values, axis=0)
    out, level = jnp.sum(by_unit(f"{where}.readout", now(own.readout), heads) * heads), now(own.output_bias)
    return out if level is None else out + jnp.asarray(level)


def check_attention(where: str, own: Any) -> None:
    """Store readout, core and output bias as numbers, or refuse them."""
    for name in ("inverse_temperature", "readout", "core", "output_bias"):
        value = getattr(own, name)
        if value is not None and not isinstance(value, Trained):
            settle(own, **{name: comparable(f"{where}.{name}", value)})
    if not own.tied and own.core is not None:
        raise reject(f"{where}.core", "a matrix", "it stands between queries and keys that are one; set tied=True")
    if own.tied and own.heads != 1:
        why = "dot-product attention with tied weights is one head of all units; leave heads out"
        raise reject(f"{where}.heads", own.heads, why)


def check_tokens(where: str, own: Any, rows: int, units: int, argument: str) -> None:
    """Refuse samples of one row, and units that are not one key and one value for each head."""
    if rows < 2:
        raise reject("rows", rows, f"{where} reads several tokens of a sample; set rows=2 or more")
    if not own.tied and units != 2 * own.heads:
        why = f"every head has a key and a value; set {argument}={2 * own.heads}, or tied=True"
        raise reject(argument, units, why)


@model
class Attention(LossLike):
    """Softmax attention over the rows of a sample, `loss(output, y)`.

    Without `tied` the output is a number, Σ_h readout_h Σ_l softmax_l(β r_lh) r_l(heads+h) + output_bias: of the
    2·heads units the first are keys, the others values. With `tied` it is the matrix softmax(β r A rᵀ), row by row, of
    all units: dot-product attention whose queries and keys are one; y is a matrix of the same shape, and the losses of
    its entries are added up.

    loss: of a number, such as sl.Square(). inverse_temperature: β. core: A, (units, units), where it is not 1.
    readout: one number for each head. β, core, readout and output_bias are trained where they are a `Trained`.
    """

    loss: LossLike = Square()
    inverse_temperature: Any = 1.0
    heads: int = static(functools.partial(whole, least=1, most=MOST_HEADS, why=HEADS), default=1)
    tied: bool = static(flag, default=False)
    core: Any = None
    readout: Any = 1.0
    output_bias: Any = None
    smooth = property(lambda self: self.loss.smooth)

    def __post_init__(self) -> None:
        instance("Attention.loss", self.loss, LossLike, "a loss such as sl.Square() or sl.Loss(fn)")
        check_attention("Attention", self)

    def check(self, problem: "Problem") -> None:
        """Refuse samples of one row, and a width that is not a key and a value for each head."""
        check_tokens("Attention", self, problem.rows, problem.width, "width")

    def predict(self, r: Scalar) -> Array:
        """The output: a number, or the matrix of attention weights."""
        return attended("Attention", self, jnp.asarray(r))

    def __call__(self, r: Scalar, y: Scalar) -> Scalar:
        """The inner loss at the output; of a matrix, the sum over its entries."""
        out = self.predict(r)
        if jnp.shape(y) != out.shape:
            why = f"attention over these rows has an output of shape {out.shape}; use sl.AttentionLabels, tied alike"
            raise reject("labels", f"labels of shape {jnp.shape(y)}", why)
        return jnp.sum(jax.vmap(self.loss)(out.ravel(), jnp.ravel(y))) if out.ndim else self.loss(out, y)


@model
class AttentionLabels(LabelRule):
    """y = the output of attention over the teacher's rows, as that of `Attention`, + z.

    With `tied` y is a matrix, (1 − share)·softmax(β r* A r*ᵀ) + share·positional + z: `positional` is a matrix that
    knows the places of rows alone, `share` how much of it there is.
    """

    inverse_temperature: Any = leaf(default=1.0, above=0, why=POSITIVE)
    heads: int = static(functools.partial(whole, least=1, most=MOST_HEADS, why=HEADS), default=1)
    tied: bool = static(flag, default=False)
    core: Any = None
    readout: Any = 1.0
    output_bias: Any = None
    positional: Any = None
    share: float = leaf(default=0.0, least=0, most=1, why="a fraction from 0 to 1")

    def __post_init__(self) -> None:
        check_attention("AttentionLabels", self)
        if self.positional is None:
            return
        if not self.tied:
            raise reject("AttentionLabels.positional", "a matrix", "labels are matrices with tied=True alone; set it")
        settle(self, positional=comparable("AttentionLabels.positional", self.positional))

    def check(self, problem: "Problem") -> None:
        """Refuse samples of one row, a teacher of other units, and a positional matrix for other rows."""
        check_tokens("AttentionLabels", self, problem.rows, problem.read, "teacher_width")
        rows, shape = problem.rows, np.shape(self.positional)
        if self.positional is not None and shape != (rows, rows):
            raise reject("AttentionLabels.positional", f"shape {shape}", f"it must be of shape ({rows}, {rows})")

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """The teacher's output plus z."""
        out = attended("AttentionLabels", self, jnp.asarray(r_star))
        if self.positional is not None:
            out = (1 - self.share) * out + self.share * jnp.asarray(self.positional, out.dtype)
        return out + z
