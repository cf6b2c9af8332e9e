"""Samples of several rows: attention, ranking and patches beside runs at growing dimension, and what rows cost.

    python benchmarks/rows.py                            # d = 500, 1000, 2000
    python benchmarks/rows.py pairs "8 tokens" --dims 500 1000
    python benchmarks/rows.py --cost                     # seconds and bytes of a march against rows and units

Lines as in `kinks.py`. Costs are those of the best of several marches of 16 replicas of 1024 samples over 62 steps; of
attention with tied weights, whose width is free, and of a network for one row.
"""

import sys
from typing import Any

import numpy as np
from kinks import Case, beside
from training import seconds

import sgdlimit as sl
from sgdlimit.dmft.march import assemble
from sgdlimit.dmft.memory import Moments, ladder
from sgdlimit.execute.place import bytes_of

SHARED: dict[str, Any] = {"sample_ratio": 2.0, "teacher": sl.Normal(1.0), "penalty": sl.Ridge(0.05)}
NOISY: dict[str, Any] = {"noise": sl.Normal(0.2), "init": sl.Normal(0.5)}
LEANING: dict[str, Any] = {"noise": sl.Normal(0.05), "init": sl.Towards(0.3, scale=0.6)}
TOKENS: dict[str, Any] = {"loss": sl.Attention(inverse_temperature=1.5), "labels": sl.AttentionLabels(1.5), "width": 2}
TIED: dict[str, Any] = {"loss": sl.Attention(tied=True), "labels": sl.AttentionLabels(tied=True)}
PLACED = sl.Sequence(positions=[[1.0, 0.5], [-0.5, 0.8]], correlation=[[1.0, 0.4], [0.4, 1.5]])
TOWARD = sl.Sequence(positions=[[0.5, 0.0], [0.0, -0.5]], toward_teacher=True)


def problem(*parts: dict[str, Any], **words: Any) -> sl.Problem:
    """A problem from what all share, and its own words."""
    for part in (SHARED, *parts):
        words = part | words
    return sl.Problem(**words)


TWO = problem(TOKENS, NOISY, rows=2)
CASES: dict[str, sl.Problem] = {
    "pairs": problem(loss=sl.PairwiseRanking(), labels=sl.PairwiseLabels(), noise=sl.Normal(0.3), rows=2),
    "list of four": problem(loss=sl.ListwiseRanking(), labels=sl.ListwiseLabels(slope=2.0), rows=4),
    "2 tokens": TWO,
    "2 tokens, tied": problem(TIED, LEANING, rows=2),
    "4 tokens, two heads": problem(
        TOKENS, NOISY, loss=sl.Attention(inverse_temperature=1.5, heads=2), width=4, teacher_width=2, rows=4
    ),
    "8 tokens": problem(TOKENS, NOISY, rows=8),
    "8 tokens, tied": problem(TIED, LEANING, rows=8),
    "six patches": problem(
        NOISY, loss=sl.MeanPool("tanh", readout=sl.Trained([1.0, -1.0])),
        labels=sl.PoolLabels("tanh", readout=(1.5, -1.0)), width=2, rows=6,
    ),
    "places, correlated": problem(TOKENS, NOISY, rows=2, data=PLACED),
    "places toward the teacher": problem(TOKENS, NOISY, rows=2, data=TOWARD),
    "power law": problem(TOKENS, NOISY, rows=2, data=sl.PowerLaw(0.8, groups=4)),
    "smooth L1": problem(TOKENS, NOISY, rows=2, penalty=sl.SmoothL1(0.1, 0.1)),
}  # fmt: skip
STEPS: dict[str, Case] = {
    "clip, momentum, EMA": (
        TWO,
        sl.SGD(0.3, batch_size=2, step=sl.Step(clip=0.5, momentum=sl.HeavyBall(1.0))),
        {"averages": {"ema": sl.EMA(0.5)}},
    ),
    "reshuffled": (TWO, sl.ShuffledSGD(0.5, batch_size=4), {}),
    "proportional": (TWO, sl.ProportionalSGD(0.3), {}),
}


def of(rows: int, width: int) -> sl.Problem:
    """Attention with tied weights over so many tokens; of one row a network."""
    own = TIED if rows > 1 else {"loss": sl.TwoLayer("tanh"), "labels": sl.TwoLayerLabels("tanh")}
    return problem(own, rows=rows, width=width, init=sl.Normal(0.5))


def cost(samples: int = 1024) -> None:
    """Print seconds and bytes a sample of a march against rows and units, and what fits; exponents of both."""
    algorithm, kept = sl.SGD(0.2, batch_size=2), Moments(ladder(6.0, 0.1))
    for name, sizes in (("rows", [(1, 2), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2)]),
                        ("units", [(4, 1), (4, 2), (4, 4), (4, 8), (4, 16)])):  # fmt: skip
        took, held = [], []
        for rows, width in sizes:
            held.append(bytes_of(assemble(of(rows, width), algorithm, samples, kept), 1) / samples)
            took.append(
                seconds(of(rows, width), algorithm, samples=samples, replicas=16, t_max=6.2, steps=62, kept=kept)
            )
            print(f"{rows} rows, {width} units: {took[-1]:.3f} s, {held[-1]:.0f} bytes a sample", flush=True)
        along = np.log([size[name == "units"] for size in sizes])[1:]
        print(f"exponents in the {name}: time {np.polyfit(along, np.log(took[1:]), 1)[0]:.2f}, "
              f"bytes {np.polyfit(along, np.log(held[1:]), 1)[0]:.2f}")  # fmt: skip


if __name__ == "__main__":
    sgd: dict[str, Case] = {name: (own, sl.SGD(0.4, batch_size=4), {}) for name, own in CASES.items()}
    cost() if "--cost" in sys.argv else beside(sgd | STEPS, __doc__, [0.5, 1.0, 2.0, 4.0])
