"""Several teachers at once: each task of a chain reads its own units of them."""

from dataclasses import field
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from .._linalg import root_of
from .._tree import model, settle, static
from .._types import Key, Scalar
from ..errors import traced
from .labels import LabelRule
from .laws import EntryLaw


@model
class Correlated(EntryLaw):
    """Gaussian rows of mean zero whose units have these second moments, (units, units)."""

    second_moments: Any
    root: Any = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not any(traced(part) for part in jax.tree.leaves(self.second_moments)):
            moments = np.asarray(self.second_moments, dtype=float)
            root = root_of(moments)
            root.flags.writeable = False
            settle(self, second_moments=tuple(map(tuple, moments.tolist())), root=tuple(map(tuple, root.tolist())))

    def mixed(self, normals: Any) -> Any:
        """Rows with these moments from rows of standard normal numbers."""
        xp = jnp if isinstance(normals, jax.Array) else np
        return normals @ xp.asarray(self.root, normals.dtype)

    def sample(self, key: Key, shape: tuple[int, ...]) -> jax.Array:
        """Gaussian rows; the last axis runs over the units."""
        return self.mixed(jax.random.normal(key, shape))

    def moments(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean 0, and the second moments given."""
        return np.zeros(size), np.asarray(self.second_moments, dtype=float)

    def spread_out(self, u: np.ndarray, key: Key) -> np.ndarray:
        """Normal quantiles, from which `mixed` makes rows."""
        return ndtri(u[:, 0])


@model
class ReadUnits(LabelRule):
    """Labels of some of the teacher's units, from `first` on, `count` of them; z is multiplied by `noisy` before."""

    labels: LabelRule
    first: int = static()
    count: int = static()
    noisy: float = 1.0
    binary = property(attrgetter("labels.binary"))
    planted = property(attrgetter("labels.planted"))

    def __call__(self, r_star: Any, z: Scalar) -> Scalar:
        """What the rule says of its own units."""
        own = jnp.atleast_1d(r_star)[self.first : self.first + self.count]
        return self.labels(own if self.count > 1 else own[0], self.noisy * z)

    def noise(self, law: EntryLaw) -> EntryLaw:
        """That of the rule."""
        return self.labels.noise(law)
