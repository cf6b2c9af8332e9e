"""`thm:dmft_sgf`, `cor:sgf_dmft_planted`: empirical joint laws tend to those of the DMFT processes.

That of the weights with the teacher, and that of the pre-activations of the training samples with their labels.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..algorithms import Algorithm
from ..problem import Problem
from ..results import Result
from ..simulation import simulate
from ..solver import solve
from .scaling import Scaling
from .transport import between_moments, between_points

MOMENTS, SAMPLING = "moments", "independent draws"
"""Labels of what is measured beside W₂ itself."""
WORKERS = 2
"""Assignments solved at the same time; each holds a matrix of squared distances."""


def points(result: Result, side: str, trial: int | None = None) -> np.ndarray:
    """Rows (θ^{t1}, …, θ^{tL}, θ*) or (r^{t1}, …, r^{tL}, r*, z), one a coordinate or sample."""
    moving, fixed = {"theta": ("theta", ["theta_star"]), "r": ("r", ["r_star", "z"])}[side]
    values = result[moving] if trial is None else result[moving][trial]
    columns = [values[i] for i in range(len(values))]
    for name in fixed:
        if name in result.variables:
            still = result[name] if trial is None else result[name][trial]
            columns.append(still.reshape(len(still), -1))
    return np.concatenate(columns, axis=1).astype(np.float64)


def distances(
    problem: Problem,
    algorithm: Algorithm,
    *,
    dims: Sequence[int],
    trials: Sequence[int],
    times: Sequence[float],
    dt: float,
    entries: Sequence[str] = ("gaussian",),
    samples: int = 2**17,
    reference: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> dict[str, list[Scaling]]:
    """W₂ between the finite-size law and the DMFT law against d, for the weights ("theta") and the samples ("r").

    Measured between d (or n) rows of one run and as many independent draws of the DMFT law; the same between two sets
    of such draws ("independent draws", unless reference=False) is what sampling alone leaves. An algorithm without a
    step of its own takes the same dt at finite size as in the theory, whose draws come from steps of dt: their discrete
    systems correspond (`lem:dmft_sgf_discrete`), but for the penalty, which the theory takes at the end of a step.
    `trials[i]` runs at `dims[i]`. "… moments" is the part of W₂ that shows in means and covariances.
    """
    law = solve(
        problem, algorithm, t_max=max(times), dt=dt, snapshots=list(times), samples=samples, seed=seed,
        progress=progress,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    out: dict[str, list[Scaling]] = {}
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    draws = {side: points(law, side) for side in ("theta", "r")}
    moments = {side: (np.mean(rows, axis=0), np.cov(rows.T)) for side, rows in draws.items()}

    def some(side: str, count: int) -> np.ndarray:
        """Draws of the law, chosen at random from all replicas."""
        return draws[side][rng.choice(len(draws[side]), count, replace=False)]

    for dim, count in zip(dims, trials, strict=True):
        jobs: list[tuple[str, str, np.ndarray, np.ndarray]] = []
        for k, kind in enumerate(entries):
            runs = simulate(
                problem, algorithm, dim=dim, trials=count, times=list(times), snapshots=list(times), entries=kind,
                test_samples=1, seed=seed + 1 + k, progress=progress, dt=dt if algorithm.rows is None else None,
            )  # fmt: skip
            for side in draws:
                clouds = [points(runs, side, trial) for trial in range(count)]
                jobs += [(side, kind, cloud, some(side, len(cloud))) for cloud in clouds]
                gaps = [between_moments(np.mean(c, axis=0), np.cov(c.T), *moments[side]) for c in clouds]
                found.setdefault((side, f"{kind}, {MOMENTS}"), []).append(np.array(gaps))
        for side in draws if reference else ():
            size = len(jobs[0][2]) if side == "theta" else max(len(job[2]) for job in jobs if job[0] == "r")
            jobs += [(side, SAMPLING, some(side, size), some(side, size)) for _ in range(count)]
        with ThreadPoolExecutor(WORKERS) as pool:
            values = list(pool.map(lambda job: between_points(job[2], job[3]), jobs))
        for side, kind in dict.fromkeys((job[0], job[1]) for job in jobs):
            own = [v for v, job in zip(values, jobs, strict=True) if job[:2] == (side, kind)]
            found.setdefault((side, kind), []).append(np.array(own))
    for (side, kind), parts in found.items():
        out.setdefault(side, []).append(Scaling.of_trials(kind, "d", list(dims), parts))
    return out


def universality(curves: list[Scaling]) -> float:
    """Largest difference from the first curve at one d, in units of the combined standard error."""
    first = curves[0]
    gaps = [np.abs(c.value - first.value) / np.hypot(c.error, first.error) for c in curves[1:]]
    return float(np.max(gaps, initial=0.0))
