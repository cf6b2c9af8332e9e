"""Averages over fresh samples from the weights' second moments, and what they tell of training averages."""

from typing import Any

import numpy as np

from .._tree import identity_of, values_of
from ..dmft.system import Start
from ..execute.place import Shared
from ..measure.averages import Nodes, make_nodes, observe, quickly
from ..problem.mixture import place
from ..problem.trained import trained_of
from ..results.metrics import CONTROL
from . import extrapolation
from .extrapolation import Limit
from .marched import Marched

FEWEST_NODES, MOST_NODES = 1024, 2**16
"""Points behind a test average in each replica: twice its samples on the coarsest grid, within these."""
FEWEST_FITTED = 8
"""Replicas from which on a coefficient is fitted to them."""
SPARSE = 16
"""What changes slowly is looked at at so many times at most: copies, step errors, and what more points change."""


def averages(found: Marched, limits: dict[str, Limit], shared: Shared) -> dict[str, Limit]:
    """Return test averages from the weights' second moments C_w(t,t), C_w(t,*), at all orders of extrapolation.

    They are taken at the mean over replicas: the mean of what each replica gives would be biased by the replicas' own
    noise. Copies are jackknife pseudo-values, R·f(mean) − (R−1)·f(mean without one). Points are samples
    (w_0, w*, z), and at some times more of them: few points of exact second moments miss the tails.
    """
    system, M = found.system, found.system.samples
    times, count = np.arange(limits["norm"].best.shape[1], dtype=float), len(limits["norm"].best)
    some = np.unique(np.linspace(0, len(times) - 1, min(SPARSE, len(times))).round().astype(int))

    def seen(nodes: Nodes, wanted: list[tuple[int, np.ndarray | slice, bool]]) -> list[dict[str, np.ndarray]]:
        """At an order and times, at the mean or that without the replica whose points are used: (replicas, times)."""
        moments = {}
        own = tuple(trained_of(system.problem))
        for name in ("fresh_norm", "fresh_overlap", "overlap", "mean_overlap", "intercept", *own):
            if name in limits:
                parts = []
                for order, at, without in wanted:
                    copies = limits[name][order][:, at].swapaxes(0, 1)
                    mean = np.broadcast_to(copies.mean(axis=1, keepdims=True), copies.shape)
                    parts.append((count * mean - copies) / (count - 1) if without else mean)
                moments[name] = np.concatenate(parts)
        overlap: Any = moments["overlap"]
        if "mean_overlap" in moments:
            overlap = np.concatenate([overlap, moments["mean_overlap"]], axis=-1)
        classes = place(system.problem, overlap, moments.get("intercept"), moments)
        second = moments["fresh_norm"], moments["fresh_overlap"]
        averages_of = observe(system.problem, nodes, *second, system.metrics, classes)
        ends = np.cumsum([len(times[at]) for _, at, _ in wanted])[:-1]
        apart = {name: np.split(value.T, ends, axis=1) for name, value in averages_of.items()}
        return [{name: parts[i] for name, parts in apart.items()} for i in range(len(wanted))]

    def carried(gap: np.ndarray) -> np.ndarray:
        return extrapolation.onto(gap, times[some], times)

    orders = (0, 1, 2) if not np.array_equal(limits["norm"].best, limits["norm"].plain) else (0,)
    pairs = [(order, some, without) for order in orders for without in (False, True)]
    value, *found_pairs = seen(_own_nodes(found, shared), [(0, slice(None), False), *pairs])
    copies = [
        {name: count * at_mean[name] - (count - 1) * left_out[name] for name in value}
        for at_mean, left_out in zip(found_pairs[::2], found_pairs[1::2], strict=True)
    ]
    shift = {name: 0.0 for name in value}
    size = 2 ** int(np.log2(max(min(2 * found.samples, MOST_NODES), FEWEST_NODES)))
    if size > M:
        nodes = _more_nodes(found, size, count, shared)
        (more,) = seen(nodes, [(0, some, False)])
        shift = {name: more[name] - value[name][:, some] for name in value}
    out = {}
    for name, mean in value.items():
        parts = [mean + carried(part[name] + shift[name] - mean[:, some]) for part in copies]
        out[f"test_{name}"] = Limit(*(parts if len(parts) == 3 else parts * 3))
    return out


def controlled(found: Marched, limits: dict[str, Limit]) -> dict[str, Limit]:
    """Return train averages less what the same samples have too much of the fresh pre-activation w, whose average is
    known.

    E_M[ψ(r)] − c (E_M[ψ(w)] − E ψ(w)), c by a regression over replicas and nearby times, so that it never loses: a
    logistic loss has a fourteenth of the variance. Where a test has another law its averages say nothing of w.
    """
    groups = found.system.groups
    if not np.array_equal(groups.tested, groups.variance):
        return {}
    out = {}
    for name in (name.removeprefix("train_") for name in limits if name.startswith("train_")):
        train, own, known = (limits.get(key) for key in (f"train_{name}", CONTROL.format(name), f"test_{name}"))
        if train is None or own is None or known is None or len(train.best) < FEWEST_FITTED:
            continue
        excess = [part - exact for part, exact in zip(own, known, strict=True)]
        centred, left = train.best - train.best.mean(axis=0), excess[0] - excess[0].mean(axis=0)
        together, alone = (extrapolation.nearby((part * left).mean(axis=0)) for part in (centred, left))
        c = np.where(alone > 0, together / np.where(alone > 0, alone, 1.0), 0.0)
        out[f"train_{name}"] = Limit(*(part - c * more for part, more in zip(train, excess, strict=True)))
    return out


def _own_nodes(found: Marched, shared: Shared) -> Nodes:
    """The samples (w_0, w*, z) of another replica: a replica's weights know its own."""
    teacher, (_, m, k, _) = np.asarray(found.system.groups.test_teacher), found.system.shape
    rows = found.system.problem.rows

    def lines(start: Start) -> np.ndarray:
        basis = np.asarray(start.basis[:, : m + k], np.float64)
        if rows == 1:
            return basis[..., :MOST_NODES]
        apart = basis.reshape(len(basis), m + k, rows, -1)[..., :MOST_NODES]
        return apart.swapaxes(1, 2)

    def make() -> Nodes:
        basis = np.concatenate([lines(start) for start in found.starts])
        z = np.concatenate([np.asarray(start.z[:, :MOST_NODES], np.float64) for start in found.starts])
        sound = np.linalg.pinv(np.linalg.pinv(teacher, hermitian=True), hermitian=True) if k else teacher
        normals = np.moveaxis(np.roll(basis, 1, axis=0), -1, 1)
        return Nodes.of(normals, np.roll(z, 1, axis=0), sound).rounded()

    return shared(("own nodes", identity_of(found.starts), values_of(teacher)), make)


def _more_nodes(found: Marched, size: int, replicas: int, shared: Shared) -> Nodes:
    problem, teacher = found.system.problem, np.asarray(found.system.groups.test_teacher)
    laws = values_of((problem.noise_law, teacher))
    key = "nodes", size, replicas, found.seed, problem.rows, problem.width, problem.k, laws
    return shared(key, lambda: make_nodes(problem, size, replicas, found.seed, quickly, teacher).rounded())
