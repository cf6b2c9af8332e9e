"""How stochastic tests decide: one false-alarm rate for every test, thresholds from the standard error."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-4
"""Probability that a correct program fails one test, had its seed not been fixed."""


def threshold(points: int, trials: int | None = None) -> float:
    """Largest |z| allowed among `points` comparisons (Bonferroni); Student's t if the error comes from few trials."""
    tail = FALSE_ALARM / points / 2
    return float(stats.norm.isf(tail) if trials is None else stats.t.isf(tail, trials - 1))


def assert_within(difference, stderr, trials: int | None = None) -> None:
    """Every difference is explained by its standard error."""
    difference, stderr = np.broadcast_arrays(np.asarray(difference, float), np.asarray(stderr, float))
    z = np.abs(difference) / np.maximum(stderr, 1e-12)
    allowed = threshold(z.size, trials)
    assert z.max() <= allowed, (
        f"max |z| = {z.max():.2f} at {np.unravel_index(z.argmax(), z.shape)}, allowed {allowed:.2f}"
    )


def assert_paired(found, whole, names=("train_loss", "norm", "overlap"), floor=0.0):
    """On the same random numbers: the mean difference of replicas, beyond what is told of it, is explained by noise.

    What is told: the projection, and the bias of finite samples, since a regression is fitted on the samples it moves.
    """
    for name in names:
        gap, size = found.copies(name) - whole.copies(name), np.max(np.abs(whole[name]))
        told = np.hypot(found[f"{name}_projection_error"], found[f"{name}_bias_error"]) + floor * size
        beyond = np.maximum(np.abs(gap.mean(axis=0)) - told, 0.0)
        every = max(1, len(found.time) // 10)  # neighbours go together
        noise = gap.std(axis=0, ddof=1) / np.sqrt(len(gap))
        assert_within(beyond[::every], noise[::every] + 1e-6 * size, trials=len(gap))


def assert_agrees(report, trials: int, variables=None) -> None:
    """A whole comparison of runs with a theory."""
    names = list(report.variables) if variables is None else variables
    points = sum(report[name].z.size for name in names)
    allowed = threshold(points, trials)
    for name in names:
        assert report[name].largest <= allowed, (
            f"{name}: |z| = {report[name].largest:.2f}, allowed {allowed:.2f}\n{report}"
        )
