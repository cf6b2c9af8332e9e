"""How wide should a committee be? Test error of soft committees over samples and width.

A teacher of two erf units with readout 1 and label noise 0.09; students of m units with readout 1/2, so that four of
them can do what the teacher does. SGD at τ = 0.3 up to t = 6, by `sl.solve` at steps of 0.1. Above: test error at the
end, and what it exceeds the train error by; below: the curves. With few samples width is harm: at δ = 1/2 two units are
best, 0.757, and four end at 0.822. From δ = 2 on more are better: at δ = 8 a single unit ends at 0.535, four at 0.198.
SGD at d = 600 agrees at δ = 2, m = 3.

    python examples/committee_diagram.py committee_diagram.png
"""

import sys
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np

import sgdlimit as sl
from sgdlimit.plot import COLOURS

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
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
    above, below = halves
    errors = diagram.dataset
    errors = errors.assign(generalisation_gap=errors["test_error"] - errors["train_error"])
    for ax, name in zip(above.subplots(1, 2), ("test_error", "generalisation_gap"), strict=True):
        sl.plot.phase_diagram(errors, name, axes=ax)
    last, error = (part.isel(time=-1) for part in diagram.curve("test_error"))
    for ratio in RATIOS:
        pairs = zip(last.sel(sample_ratio=ratio).values, error.sel(sample_ratio=ratio).values, strict=True)
        print(f"δ = {ratio:g}: " + ", ".join(f"{value:.3f} ± {bar:.3f}" for value, bar in pairs))
    for ax, ratio in zip(below.subplots(1, len(RATIOS), sharey=True), RATIOS, strict=True):
        for name, style in (("test_error", "-"), ("train_error", "--")):
            for value in diagram.dataset[name].sel(sample_ratio=ratio).transpose("width", "time"):
                colour = COLOURS[WIDTHS.index(int(value["width"]))]
                label = f"$m$ = {int(value['width'])}" if style == "-" else None
                ax.plot(times, value, ls=style, color=colour, label=label)
        ax.set(xlabel="time  $t$", title=f"$\\delta$ = {ratio:g}")
        ax.spines[["top", "right"]].set_visible(False)
    below.axes[0].set_ylabel("test error (solid), train error (dashed)")
    below.axes[0].legend(frameon=False, fontsize="x-small")

    theory = sl.solve(committee(2.0, 3), algorithm, times=times, **size)
    runs = sl.simulate(committee(2.0, 3), algorithm, dim=DIM, trials=TRIALS, times=times[4::4])
    report = sl.compare(theory, runs, ["train_error", "test_error"])
    print(diagram, report, sep="\n")
    figure.savefig(output, dpi=150)
    return {"δ = 2, m = 3": report}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "committee_diagram.png")
