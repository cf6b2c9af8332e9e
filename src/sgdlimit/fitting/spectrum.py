"""Eigenvalues of the covariance behind a sample, and what a direction or a teacher has in each of them.

With n/d finite the eigenvalues λ of a sample covariance Ŵ are spread out (Marchenko–Pastur), and its eigenvectors are
not those of the population. But with N degrees of freedom and m(z) = (1/N) tr(G − z)⁻¹ of the N × N Gram matrix G,
traces and quadratic forms of the resolvent have limits that are *linear* in what is looked for (Silverstein 1995,
El Karoui 2008; `docs/own_data.md`): with σ_k the eigenvalues of the population,

    z + 1/m = (1/N) Σ_k σ_k/(1 + σ_k m)                              the spectrum
    −z vᵀ(Ŵ − z)⁻¹v = Σ_k v_k²/(1 + σ_k m)                           a direction v, independent of Ŵ
    yᵀ(G − z)⁻¹y/(N m) = Σ_k θ_k² σ_k/(1 + σ_k m) + noise variance   a teacher, y = θᵀx + noise

The σ lie on a fine grid and how much each carries is ≥ 0: least squares with non-negative unknowns, over z around the
sample's spectrum. Few grid points remain; neighbours among them are one group. Exact for n, d → ∞ at any ratio, and
for n ≫ d the sample's own eigenvalues.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

ANGLES = (0.25, 0.5, 0.75, 1.0)
"""Arguments of z over π: the closer to the axis, the finer the resolution, and the larger the fluctuations."""
PER_DECADE = 8  # radii |z|
GRID_RATIO, MOST_GRID = 1.08, 240  # of neighbouring candidates for σ
SAME = 1.3  # eigenvalues within this ratio are one group
NULL = 1e-10  # sample eigenvalues below this share of the largest are zero
UNSEEN = 30.0
"""With fewer samples than dimensions, eigenvalues down to this factor below the sample's smallest are candidates."""
TIGHT = 1e3  # weight of the equation that counts all coordinates, over the others
NONE = 1e-6  # share of all coordinates below which a candidate is none


class SampleCovariance(NamedTuple):
    """A sample covariance, as far as rotations leave it."""

    values: np.ndarray  # λ > 0
    freedom: int  # N: samples less the means that were taken off
    dim: int  # d

    def companion(self) -> tuple[np.ndarray, np.ndarray]:
        """z around the spectrum, at all its scales, and m(z), that of the Gram matrix."""
        low, high = 0.3 * self.values.min(), 3 * self.values.max()
        radii = np.geomspace(low, high, 2 + int(PER_DECADE * np.log10(high / low)))
        z = np.outer(radii, np.exp(1j * np.pi * np.array(ANGLES))).ravel()
        zeros = self.freedom - len(self.values)
        return z, (np.sum(1 / (self.values - z[:, None]), axis=1) - zeros / z) / self.freedom


class EigenGroups(NamedTuple):
    """The coordinates of the population in groups of one eigenvalue each."""

    values: np.ndarray  # σ_q, rising
    counts: np.ndarray  # coordinates with each, summing to d; no whole numbers
    misfit: float  # relative root mean square by which the sample's resolvent differs from that of these groups


def sample_of(rows: np.ndarray, freedom: int) -> tuple[SampleCovariance, np.ndarray, np.ndarray]:
    """Covariance of centred rows; left and right singular vectors of its non-zero eigenvalues, in columns."""
    left, singular, right = np.linalg.svd(rows, full_matrices=False)
    values = singular**2 / freedom
    some = values > NULL * values.max()
    some[freedom:] = False  # what rounding leaves of the means
    return SampleCovariance(values[some], freedom, rows.shape[1]), left[:, some], right[some].T


def population(sample: SampleCovariance) -> EigenGroups:
    """The spectrum of the population, in groups."""
    z, m = sample.companion()
    low, high = sample.values.min(), sample.values.max()
    if sample.dim >= sample.freedom:
        low = low / UNSEEN
    grid = np.geomspace(low, high, int(np.clip(2 + np.log(high / low) / np.log(GRID_RATIO), 4, MOST_GRID)))
    if len(sample.values) < sample.dim:
        grid = np.append(0.0, grid)
    # z + 1/m = (d/N) Σ p σ/(1 + σm), relative to its left side; Σ p = 1
    target = z + 1 / m
    kernel = sample.dim / sample.freedom * grid / (1 + np.outer(m, grid))
    rows, right = _real(kernel / target[:, None], np.ones(len(z)))
    share, _ = nnls(np.vstack([rows, np.full(len(grid), TIGHT)]), np.append(right, TIGHT), maxiter=100 * len(grid))
    misfit = float(np.sqrt(np.mean((rows @ share - right) ** 2)))
    values, share = grid[share > NONE], share[share > NONE]
    first = [0]  # of every group: neighbours within a ratio of SAME are one, at their mean
    for k in range(1, len(values)):
        if values[k] > SAME * values[first[-1]]:
            first.append(k)
    total = np.add.reduceat(share, first)
    return EigenGroups(np.add.reduceat(share * values, first) / total, total / total.sum() * sample.dim, misfit)


def along(sample: SampleCovariance, groups: EigenGroups, size: float, parts: np.ndarray, noise: float) -> np.ndarray:
    """Σ_{k in q} v_k² of every group, for v seen as v̂ = v + e, e independent with covariance `noise` times Σ.

    size: |v̂|². parts: its squared projections on the sample's eigenvectors.
    """
    z, m = sample.companion()
    outside = max(size - float(parts.sum()), 0.0)
    found = -z * np.sum(parts / (sample.values - z[:, None]), axis=1) + outside
    kernel = 1 / (1 + np.outer(m, groups.values))
    # what is left of |v̂|² is vᵀŴ(Ŵ − z)⁻¹v: in both forms, each relative to its size, small and large σ count alike
    found = np.concatenate([found, size - found])
    kernel = np.concatenate([kernel, 1 - kernel])
    known = noise * kernel @ (groups.values * groups.counts)
    return nnls(*_real(kernel / found[:, None], 1 - known / found))[0]


def taught(sample: SampleCovariance, groups: EigenGroups, size: float, parts: np.ndarray) -> tuple[np.ndarray, float]:
    """Σ_{k in q} θ_k² σ_k of every group, and the variance of the noise, for y = θᵀx + noise.

    size: |y|²/N. parts: squared projections of y/√N on the left singular vectors.
    """
    z, m = sample.companion()
    outside = max(size - float(parts.sum()), 0.0)
    found = (np.sum(parts / (sample.values - z[:, None]), axis=1) - outside / z) / m
    kernel = np.column_stack([1 / (1 + np.outer(m, groups.values)), np.ones(len(z))])
    kernel[:, :-1][:, groups.values == 0] = 0.0
    seen = nnls(*_real(kernel / found[:, None], np.ones(len(z))))[0]
    return seen[:-1], float(seen[-1])


def _real(kernel: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Complex equations as twice as many real ones."""
    return np.vstack([np.real(kernel), np.imag(kernel)]), np.concatenate([np.real(target), np.imag(target)])
