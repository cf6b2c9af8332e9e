"""Random features by Gaussian equivalence: the spectrum of σ(F u), and what it tells of a teacher that reads u."""

from functools import partial
from typing import Any

import numpy as np

from .._tree import leaf, model, static
from ..errors import reject, whole
from .activations import activation
from .data import DataLaw, Table
from .rows import FeatureMap, Moments

REACH, CELLS = 10.0, 2**14
"""Moments of σ are taken on so many cells of [−10, 10]; kinks at zero lie on an edge."""
NEGLIGIBLE = 1e-9
"""κ_*² below this share of E σ²: σ is linear up to rounding."""
MOST_NODES = 256
LARGEST_RATIO = 1e4
RATIO = f"features for each input dimension: a number above 0, at most {LARGEST_RATIO:g}"
MOST_INPUTS = 2**24
"""Of a run."""


@model
class RandomFeatures(DataLaw):
    """x = (σ(F u/√D) − E σ)/√d: d features of D = d/ratio standard normal inputs, F with standard normal entries.

    The teacher reads the inputs, r* = βᵀu/√D, β with the teacher's law. activation: σ, a function or a name as in
    `TwoLayer`. ratio: features for each input dimension. nodes: of the Gauss rule for the spectrum, besides the atom of
    features that outnumber the inputs.
    """

    activation: Any = static(activation)
    ratio: float = leaf(default=1.0, above=0, most=LARGEST_RATIO, why=RATIO)
    nodes: int = static(partial(whole, least=2, most=MOST_NODES, why=f"a number from 2 to {MOST_NODES}"), default=16)
    rotated = True

    def __post_init__(self) -> None:
        self.moments()

    def moments(self) -> Moments:
        """κ_0, κ_1 and κ_*² of the activation under a standard normal input."""
        g = np.linspace(-REACH, REACH, CELLS + 1)
        weight = np.exp(-(g**2) / 2)
        weight = weight / weight.sum()
        try:
            value = np.asarray(self.activation(g.astype(np.float32)), dtype=np.float64)
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise reject("RandomFeatures.activation", said, "it must be a function such as jax.nn.relu") from error
        if value.shape != g.shape or not np.all(np.isfinite(value)):
            what = f"shape {value.shape}" if value.shape != g.shape else "values that are not finite"
            raise reject("RandomFeatures.activation", what, "it must map every number to a number")
        mean, linear, square = weight @ value, weight @ (g * value), weight @ value**2
        rest = square - mean**2 - linear**2
        if square - mean**2 <= NEGLIGIBLE * max(square, 1e-30):
            raise reject("RandomFeatures.activation", "a constant", "features that do not vary tell nothing")
        return Moments(float(mean), float(linear), float(rest) if rest > NEGLIGIBLE * square else 0.0)

    def table(self) -> Table:
        """s = κ_1²λ + κ_*², λ the spectrum of FFᵀ/D; θ* is κ_1√(ratio·λ)/s times the teacher, the rest is unseen."""
        _, linear, rest = self.moments()
        share, level = _marchenko_pastur(self.ratio, self.nodes)
        variance = linear**2 * level + rest
        factor = np.sqrt(self.ratio * level) * linear / np.where(variance > 0, variance, 1.0)
        seen = float(share @ (variance * factor**2))
        return Table(share, variance, factor, max(0.0, 1.0 - seen))

    def at(self, dim: int, tested: Table | None = None) -> FeatureMap:
        """The map from inputs to `dim` features; those of a test have the same law."""
        inputs = max(1.0, dim / self.ratio)
        if inputs > MOST_INPUTS:
            why = f"{dim} features read {inputs:.3g} inputs, at most {MOST_INPUTS}; take a larger one, or lower dim"
            raise reject("RandomFeatures.ratio", self.ratio, why)
        return FeatureMap(self.moments(), activation=self.activation, inputs=round(inputs))


def _marchenko_pastur(ratio: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares and eigenvalues of FFᵀ/D, F of size d × D with d/D = ratio: a Gauss rule, and the atom at zero.

    Beyond ratio 1 the eigenvalues that are not zero are those of FᵀF/D, ratio times a law of aspect 1/ratio.
    """
    spread = min(ratio, 1 / ratio)
    diagonal = np.full(nodes, 1 + spread)
    diagonal[0] = 1.0
    beside = np.full(nodes - 1, np.sqrt(spread))
    level, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    share, level = vectors[0] ** 2, np.clip(level, 0.0, None)
    if ratio <= 1:
        return share / share.sum(), level
    share = np.append(share / share.sum() / ratio, 1 - 1 / ratio)
    return share / share.sum(), np.append(ratio * level, 0.0)
