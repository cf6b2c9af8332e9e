"""How wide should a committee be? Test error of soft committees over samples and width.

A teacher of two erf units with readout 1 and label noise 0.09; students of m units with readout 1/2, so that four of
them can do what the teacher does. SGD at τ = 0.3 up to t = 6, by `sl.solve` at steps of 0.1. Above: test error of the
limit; below: its curves. SGD at d = 600 agrees at one point.

    python examples/committee_diagram.py committee_diagram.png
"""

import sys

import jax
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl

NOISE, TEMPERATURE, T_MAX, DIM, TRIALS = 0.3, 0.3, 6.0, 600, 12
RATIOS, WIDTHS = [0.5, 1.0, 2.0, 4.0, 8.0], [1, 2, 3, 4]
erf = jax.scipy.special.erf


def committee(ratio, width):
    return sl.Problem(
        loss=sl.TwoLayer(erf, readout=0.5),
        labels=sl.TwoLayerLabels(erf),
        sample_ratio=ratio,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(NOISE),
        init=sl.Normal(0.5),
        width=width,
        teacher_width=2,
    )


def main(output):
    algorithm = sl.SGD(TEMPERATURE, batch_size=6)
    times = np.linspace(0.0, T_MAX, 25)
    size = {"dt": 0.1, "samples": 8192, "replicas": 4}
    over = {"sample_ratio": RATIOS, "width": WIDTHS}
    diagram = sl.sweep(committee(2.0, 2), algorithm, over=over, times=times, **size)
    figure = plt.figure(figsize=(9.6, 6.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
    for ax, time, title in zip(above.subplots(1, 2), (None, "best"), ("at the end", "at the best time"), strict=True):
        sl.plot.phase_diagram(diagram, "test_error", time=time, axes=ax)
        ax.set_yticks(WIDTHS)
        print(title, diagram.dataset["test_error"].isel(time=-1).values.round(3).tolist(), sep="\n")
    sl.plot.multiples(diagram, ["test_error", "train_error"], axes=below.subplots(1, len(RATIOS), sharey=True))

    theory = sl.solve(committee(2.0, 3), algorithm, times=times, **size)
    runs = sl.simulate(committee(2.0, 3), algorithm, dim=DIM, trials=TRIALS, times=times[4::4])
    report = sl.compare(theory, runs, ["train_error", "test_error"])
    print(diagram, report, sep="\n")
    figure.savefig(output, dpi=150)
    return {"δ = 2, m = 3": report}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "committee_diagram.png")
