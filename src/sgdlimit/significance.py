"""One test for whole curves: could two sets of noisy curves have the same mean?

Points along a curve are correlated, and a handful of trials cannot tell how. A rotation test (Langsrud 2005) need not
know: if the trials are independent Gaussian curves about the common mean, their joint law is unchanged when the
trials are mixed by any orthogonal matrix, whatever the correlations along the curve. So the statistic of the data
must look like one of its own values under random rotations; how often those are larger is the p-value.
"""

from dataclasses import dataclass

import numpy as np

ROTATIONS = 9999
"""Random rotations behind a p-value: it is known to a relative 10 % at 0.01."""
CHUNK = 500
"""Rotations computed at the same time."""


@dataclass(frozen=True)
class Sample:
    """Independent copies of a curve, shape (copies, points), and what else is uncertain about their mean."""

    mean: np.ndarray
    copies: np.ndarray | None
    """None: no copies are known."""
    scatter: np.ndarray
    """Standard error of the mean where copies do not tell it, independent from point to point."""
    shift: np.ndarray
    """Standard error shared by the whole curve: an unknown multiple of it lies on top (time step, memory)."""

    def variance(self, squares: np.ndarray | float, along: np.ndarray | float = 0.0) -> np.ndarray:
        """Variance of the mean, given sums of squares about zero and √copies times the means."""
        count = 0 if self.copies is None else len(self.copies)
        spread = (squares - along**2) / (count * (count - 1)) if count > 1 else 0.0
        return spread + self.scatter**2 + self.shift**2


def rotation_test(
    first: Sample, second: Sample, floor: np.ndarray, curve: np.ndarray, seed: int = 0, rotations: int = ROTATIONS
) -> tuple[list[float], float]:
    """Could both have the same mean? p-values of the curves one by one, and of all together.

    curve: the number of the curve that each point belongs to; floor: the rounding error.
    Two statistics are compared with their values under rotations: the largest |t| (a deviation somewhere) and the mean
    of t² (one all along); the p-value is twice the smaller of the two. Exact for Gaussian trials against an exact
    theory; with noise on both sides each is rotated about the weighted mean of the two, which is nearly so.
    """
    rng = np.random.default_rng(seed)
    samples = (first, second)
    # about the mean itself, so that nothing is lost by cancellation
    variances = [s.variance(0.0 if s.copies is None else len(s.copies) * s.copies.var(axis=0)) for s in samples]
    total = variances[0] + variances[1]
    share = np.where(total > 0, variances[1] / np.where(total > 0, total, 1.0), 0.5)
    centre = share * first.mean + (1 - share) * second.mean
    centred = [None if sample.copies is None else sample.copies - centre for sample in samples]
    observed = _statistics((first.mean - second.mean) ** 2 / (total + floor**2), curve)
    larger = np.zeros_like(observed)
    for begin in range(0, rotations, CHUNK):
        size = min(CHUNK, rotations - begin)
        difference = floor * rng.standard_normal((size, len(centre)))
        variance = np.broadcast_to(floor**2, difference.shape)
        for sample, copies, sign in zip(samples, centred, (1, -1), strict=True):
            if copies is None:
                variance = variance + sample.variance(0.0)
            else:
                direction = rng.standard_normal((size, len(copies)))
                along = direction / np.linalg.norm(direction, axis=1, keepdims=True) @ copies
                difference = difference + sign * along / np.sqrt(len(copies))
                variance = variance + sample.variance(np.sum(copies**2, axis=0), along)
            difference = difference + sample.shift * rng.standard_normal((size, 1))
            if np.any(sample.scatter):
                difference = difference + sample.scatter * rng.standard_normal(difference.shape)
        larger += np.sum(_statistics(difference**2 / variance, curve) >= observed * (1 - 1e-9), axis=0)
    p = np.minimum(1.0, 2 * np.min((1 + larger) / (1 + rotations), axis=0))
    return [float(value) for value in p[:-1]], float(p[-1])


def _statistics(squares: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Largest and mean of t² on every curve, and over all of them: shape (…, 2, curves + 1).

    Every curve counts the same in the joint mean, however many points it has.
    """
    parts = [squares[..., curve == i] for i in range(int(curve.max()) + 1)]
    found = [np.stack([reduce(part, axis=-1) for part in parts], axis=-1) for reduce in (np.max, np.mean)]
    joint = [np.max(found[0], axis=-1, keepdims=True), np.mean(found[1], axis=-1, keepdims=True)]
    return np.stack([np.concatenate(pair, axis=-1) for pair in zip(found, joint, strict=True)], axis=-2)
