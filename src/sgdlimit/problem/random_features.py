"""Random features by Gaussian equivalence: the spectrum of σ(F u), and what it tells of a teacher that reads u."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._tree import leaf, model, static
from .._types import Array, Key
from ..errors import reject, whole
from .data import DataLaw, Table
from .losses import activation
from .rows import Entries, Layout, Rows, Teacher

REACH, CELLS = 10.0, 2**14  # moments of σ are taken on so many cells of [−10, 10]; kinks at zero lie on an edge
NEGLIGIBLE = 1e-9  # κ_*² below this share of E σ²: σ is linear up to rounding
MOST_NODES = 256
LARGEST_RATIO = 1e4
RATIO = f"features for each input dimension: a number above 0, at most {LARGEST_RATIO:g}"
MOST_INPUTS = 2**24  # of a run


class Moments(NamedTuple):
    """Of an activation σ at a standard normal g: κ_0 = E σ(g), κ_1 = E g σ(g), κ_*² = E σ² − κ_0² − κ_1²."""

    mean: float
    linear: float
    rest: float


@model
class FeatureMap(Layout):
    """d features σ(F u) of D inputs u."""

    moments: Moments
    activation: Callable[..., Any] = static()
    inputs: int = static()  # D

    def draw(self, key: Key, entries: Entries, theta_star: Array, teacher: Teacher) -> tuple[Rows, Rows]:
        """Features by one F, of inputs that the teacher β (D, k) reads."""
        features, reads = jax.random.split(jax.random.fold_in(key, 1))
        inputs, dim = self.inputs, len(theta_star)
        F, beta = jax.random.normal(features, (inputs, dim)), teacher(reads, inputs)
        # θ*: the best linear predictor of r* from x under Gaussian equivalence (docs/structured_data.md)
        _, linear, rest = self.moments
        covariance = linear**2 * F.T @ F / inputs + rest * jnp.eye(dim)
        cross = jnp.sqrt(dim) * linear / inputs * F.T @ beta
        values, vectors = jnp.linalg.eigh(covariance)
        inverse = jnp.where(values > 1e-6 * values[-1], 1 / jnp.maximum(values, 1e-30), 0.0)
        rows = Features(entries, F, beta, self, vectors @ (inverse[:, None] * (vectors.T @ cross)))
        return rows, rows


@model
class Features(Rows):
    """x = (σ(F u/√D) − κ_0)/√d, u with independent entries, and r* = βᵀu/√D."""

    entries: Entries
    weights: Array  # Fᵀ, (D, d)
    teacher: Array  # β, (D, k)
    map: FeatureMap
    theta_star: Array
    variance: Array | None = None

    def draw(self, key: Key, count: int) -> tuple[Array, Array]:
        """Inputs, what is made of them, and what the teacher says of them."""
        inputs, dim = self.weights.shape
        u = self.entries.sample(key, (count, inputs)) / jnp.sqrt(inputs)
        return (self.map.activation(u @ self.weights) - self.map.moments.mean) / jnp.sqrt(dim), u @ self.teacher


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
            said, why = f"{type(error).__name__}: {error}", "it must be a function such as jax.nn.relu"
            raise reject("RandomFeatures.activation", said, why) from error
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
        return Table(share, variance, factor, max(0.0, 1.0 - float(share @ (variance * factor**2))))

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
