"""`tab:comparison_frameworks`, live: every framework predicts the same real runs, and the table says who is right.

Frameworks are asked for what they would say about a setting at the same loss, δ and temperature. One that has no answer
(a nonlinear model, say, for homogenised SGD) says why.
"""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jax.scipy.special import erf

from .algorithms import SGD, SGF, Algorithm, GradientFlow, ProportionalSGD
from .comparison import FALSE_ALARM, Report, compare
from .errors import InputError
from .exact import least_squares, online
from .figures import paper_problem
from .problem import Linear, Normal, Problem, Ridge, Square, TwoLayer, TwoLayerLabels
from .results import Runs, Solution, Variable
from .simulation import simulate
from .solver import solve

JUDGED = ("train_error", "test_error")
T_MAX = 6.0
TEMPERATURE = 1.0
BATCH_FRACTION = 0.3
BATCH_STEP = 0.5  # real step of the proportional-batch runs
FULL_BATCH_STEP = 0.02


class FrameworkSize(NamedTuple):
    """How large the runs and the theories are."""

    dim: int = 2000
    trials: int = 48
    samples: int = 2**17
    settings: tuple[str, ...] | None = None  # Names; None: all


FULL = FrameworkSize()
QUICK = FrameworkSize(400, 12, 2**14, tuple(f"{name}, many passes, small batches" for name in ("ridge", "logistic")))


@dataclass(frozen=True)
class Experiment:
    """A problem and the algorithm that is really run on it."""

    name: str
    problem: Problem
    algorithm: Algorithm
    step: float | None = None

    @property
    def temperature(self) -> float:
        """τ, or that of the diffusion with the variance of the batches, γ(1/b − 1)/δ."""
        if isinstance(self.algorithm, ProportionalSGD):
            assert self.step is not None
            variance = self.algorithm.variance(0.0, self.step, self.problem.sample_ratio)
            return float(variance) / (self.step * self.problem.sample_ratio)
        return float(self.algorithm.noise_temperature)

    @property
    def update(self) -> float:
        """The step of proportional batches: for small batches, the one that gives a fraction the right temperature."""
        if self.problem.infinite_data:
            return BATCH_STEP  # any: the solver refuses, and says why
        if self.temperature == 0:
            return FULL_BATCH_STEP
        small = self.temperature * self.problem.sample_ratio * BATCH_FRACTION / (1 - BATCH_FRACTION)
        return small if self.step is None else self.step

    @property
    def times(self) -> np.ndarray:
        """When runs are recorded: evenly, and at the updates of proportional batches where their step is no other's."""
        even = np.linspace(0.5, T_MAX, 12)
        if self.step is not None or self.temperature == 0 or self.problem.infinite_data:
            return even
        return np.union1d(even, np.arange(1, int(T_MAX / self.update) + 1) * self.update)


def _where_known(runs: Runs, theory: Solution) -> Runs:
    """At the updates alone where the law has no other times: between them there is nothing to compare with."""
    law = theory.algorithm
    if law is None or not law.discrete:
        return runs
    step = theory.time[1] - theory.time[0]
    kept = np.abs(runs.time / step - np.round(runs.time / step)) < 0.01  # runs are recorded at steps of their own
    variables = {
        name: Variable(part.dims, np.compress(kept, part.values, axis=part.dims.index("time")))
        for name, part in runs.variables.items()
        if "time" in part.dims
    }
    return Runs(variables, {**runs.coords, "time": runs.time[kept]}, runs.about)


def _limit(setting: Experiment, algorithm: Algorithm, samples: int) -> Solution:
    """DMFT at finite δ, its limit at infinite δ."""
    if setting.problem.infinite_data:
        return online(setting.problem, algorithm, t_max=T_MAX)
    return solve(setting.problem, algorithm, t_max=T_MAX, dt=0.05, samples=samples, seed=1)


def _proportional(setting: Experiment, samples: int) -> Solution:
    """The batch is a fraction b of the data; for small batches, the step that gives it the right temperature."""
    step = setting.update
    algorithm = ProportionalSGD(1.0 if setting.temperature == 0 else BATCH_FRACTION)
    return solve(setting.problem, algorithm, T_MAX + step, dt=step, samples=samples, seed=1)


FRAMEWORKS: dict[str, Callable[[Experiment, int], Solution]] = {
    "online SGD": lambda s, _: online(replace(s.problem, sample_ratio=math.inf), SGD(s.temperature), t_max=T_MAX),
    "proportional batches": _proportional,
    "homogenised SGD": lambda s, _: least_squares(s.problem, SGF(s.temperature), t_max=T_MAX),
    "gradient flow": lambda s, n: _limit(s, GradientFlow(), n),
    "SGF (the paper)": lambda s, n: _limit(s, SGF(s.temperature), n),
    "SGD": lambda s, n: _limit(s, SGD(s.temperature), n),
}
"""By the names of the table's columns."""


def _erf(x: Any) -> Any:
    return erf(x / math.sqrt(2.0))


def settings() -> list[Experiment]:
    """Ridge and logistic regression in one pass, with small and with proportional batches; a network."""
    ridge = Problem(
        loss=Square(), labels=Linear(), penalty=Ridge(0.1), sample_ratio=2.0, teacher=Normal(1.0), noise=Normal(0.5)
    )
    network = Problem(
        loss=TwoLayer(_erf), labels=TwoLayerLabels(_erf), sample_ratio=2.0, teacher=Normal(1.0), noise=Normal(0.1),
        init=Normal(0.5), width=2,
    )  # fmt: skip
    small, large = SGD(TEMPERATURE, batch_size=2), ProportionalSGD(BATCH_FRACTION)
    found = []
    for name, problem in {"ridge": ridge, "logistic": paper_problem()}.items():
        found += [
            Experiment(f"{name}, one pass", replace(problem, sample_ratio=math.inf), small),
            Experiment(f"{name}, many passes, small batches", problem, small),
            Experiment(f"{name}, many passes, large batches", problem, large, BATCH_STEP),
        ]
    flow = Experiment("logistic, full batch", paper_problem(), GradientFlow())
    return [*found, flow, Experiment("erf network, many passes, small batches", network, small)]


@dataclass(frozen=True)
class Cell:
    """What one framework says about one setting."""

    theory: Solution | None
    report: Report | None
    refusal: str  # why there is no prediction

    @property
    def holds(self) -> bool:
        """Whether train and test error agree with the runs by one test over both curves."""
        return self.report is not None and self.report.agrees(false_alarm=FALSE_ALARM)

    @property
    def words(self) -> str:
        """The verdict on one prediction, as it stands in the table."""
        if self.report is None:
            return f"– ({self.refusal})"
        apart = max(self.report[name].relative for name in JUDGED)
        p = f"p = {self.report.p_value:.2g}" if self.report.p_value > 2e-4 else "p < 0.0002"
        size = f"{100 * apart:.0f} %" if apart < 10 else "more than 1000 %"
        if self.report.verdict == "cannot tell":
            return f"cannot tell, {p}"
        return f"**holds**, {p}" if self.holds else f"fails, {p}, off by {size}"


@dataclass(frozen=True)
class FrameworkTable:
    """What every framework says about every experiment: rows are experiments, columns frameworks."""

    settings: list[Experiment]
    runs: list[Runs]
    cells: list[dict[str, Cell]]

    def page(self) -> str:
        """The table, as a page in Markdown."""
        names = list(FRAMEWORKS)
        lines = ["| real runs | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
        for setting, cells in zip(self.settings, self.cells, strict=True):
            lines.append(f"| {setting.name} | " + " | ".join(cells[name].words for name in names) + " |")
        options = self.runs[0].about["options"]
        words = (
            f"Runs: d = {options['dim']}, {options['trials']} trials, t ≤ {T_MAX:g}, δ = 2, temperature "
            f"τ = {TEMPERATURE:g}; large batches: a fraction {BATCH_FRACTION:g} of the data, steps of {BATCH_STEP:g}. "
            f"A framework holds where one test over train and test error at all times does not reject it at "
            f"{FALSE_ALARM:g}; p is its p-value, the percentage the largest difference relative to the largest value "
            f"of the curve."
        )
        lines += ["", *textwrap.wrap(words, 118)]
        return "\n".join(lines)


def table(size: FrameworkSize = FULL, seed: int = 0) -> FrameworkTable:
    """Run every setting, and ask every framework."""
    found = [s for s in settings() if size.settings is None or s.name in size.settings]
    runs, cells = [], []
    for index, setting in enumerate(found):
        done = simulate(setting.problem, setting.algorithm, dim=size.dim, trials=size.trials, times=setting.times,
                        seed=100 * seed + index, dt=setting.step)  # fmt: skip
        runs.append(done)
        row = {}
        for name, predict in FRAMEWORKS.items():
            try:
                theory = predict(setting, size.samples)
            except InputError as error:
                row[name] = Cell(None, None, _short(error))
                continue
            row[name] = Cell(theory, compare(theory, _where_known(done, theory), JUDGED), "")
        cells.append(row)
    return FrameworkTable(found, runs, cells)


def _short(error: InputError) -> str:
    """What the framework cannot do, in a few words."""
    text = str(error)
    if "SGF" in text or "loss" in text:
        return "square loss only"
    return "needs stored data" if "sample_ratio" in text or "stored" in text else text.split(";")[0]
