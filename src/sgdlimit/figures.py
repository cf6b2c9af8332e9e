"""The paper's experiment: what is computed for its figure, and the table that says how theory and runs agree."""

from typing import NamedTuple

import numpy as np

from .algorithms import SGD, SGF
from .comparison import FALSE_ALARM, Report, compare
from .problem import Logistic, Normal, Problem, Ridge, Sign
from .results import Runs, Solution
from .simulation import simulate
from .solver import solve

TEMPERATURES = (0.05, 0.2, 0.5, 1.0, 2.0)
BATCH_SIZE = 10
T_MAX = 10.0
POINTS = 51  # times at which curves are recorded and compared
COMPARED = ("train_error", "test_error", "overlap", "norm")
FLOW_STEP = 0.01  # Euler–Maruyama step of the SGF runs


class Size(NamedTuple):
    """How large an experiment is run."""

    temperatures: tuple[float, ...] = TEMPERATURES
    dim: int = 1024
    trials: int = 10
    samples: int = 2**19
    dt: float = 0.1  # step of the theory before extrapolation


FULL = Size()
QUICK = Size(temperatures=(0.2, 1.0), dim=256, samples=8192, dt=0.25)


class Row(NamedTuple):
    """One line of the table: runs of one algorithm against the law of one."""

    temperature: float
    runs: str
    law: str
    report: Report


class PaperFigure(NamedTuple):
    """Runs and laws, one a temperature, and the table of agreement."""

    runs: list[Runs]
    laws: list[Solution]  # the limit of SGD itself (Poisson increments)
    flows: list[Solution]  # the limit of SGF, the paper's
    rows: list[Row]

    def table(self) -> str:
        """Every comparison in a line: largest deviation of the errors, p-value of the whole, verdict."""
        head = f"{'τ':>5}  {'runs':<5} {'law':<5} {'train error':>16} {'test error':>16} {'all curves':>12}"
        under = f"{'':>5}  {'':<5} {'':<5} {'max |z|  sigmas':>16} {'max |z|  sigmas':>16} {'p':>12}"
        lines = [head, under]
        for row in self.rows:
            errors = " ".join(f"{a.largest:7.2f} {a.sigma:8.2f}" for a in (row.report[n] for n in COMPARED[:2]))
            place = f"{row.temperature:>5g}  {row.runs:<5} {row.law:<5}"
            lines.append(f"{place} {errors} {row.report.p_value:>12.4f}  {row.report.verdict}")
        about = self.runs[0].about["options"]
        note = (
            f"Logistic regression, δ = 2, λ = 0.01; d = {about['dim']}, {about['trials']} trials; {POINTS} times up to "
            f"t = {T_MAX:g}.\np: one test over train and test error, overlap and norm at all times; an exact law is "
            f"called different with probability {FALSE_ALARM:g}."
        )
        return "\n".join([*lines, "", note])


def paper_problem() -> Problem:
    """Logistic regression with a noisy linear teacher (`sec:numerical`)."""
    return Problem(
        loss=Logistic(), labels=Sign(), penalty=Ridge(0.01), sample_ratio=2.0, teacher=Normal(1.0), noise=Normal(0.1)
    )


def paper_figure(size: Size = FULL, seed: int = 0) -> PaperFigure:
    """`fig:simulation_logistic`: SGD at several temperatures against the laws of SGD and of SGF; SGF runs as well."""
    problem = paper_problem()
    times = T_MAX * np.linspace(0.0, 1.0, POINTS) ** 1.5  # denser where the curves are steep
    figure = PaperFigure([], [], [], [])
    for index, tau in enumerate(size.temperatures):
        # A stream of its own for everything that is drawn.
        seeds = [4 * (seed * len(TEMPERATURES) + index) + k for k in range(4)]
        theory = {"times": times, "dt": size.dt, "samples": size.samples}
        finite = {"times": times, "dim": size.dim, "trials": size.trials}
        sgd, sgf = SGD(tau, batch_size=BATCH_SIZE), SGF(tau)
        runs = simulate(problem, sgd, seed=seeds[0], **finite)
        flow_runs = simulate(problem, sgf, seed=seeds[1], dt=FLOW_STEP, **finite)
        law = solve(problem, sgd, seed=seeds[2], **theory)
        flow = solve(problem, sgf, seed=seeds[3], **theory)
        figure.runs.append(runs)
        figure.laws.append(law)
        figure.flows.append(flow)
        pairs = (("SGD", runs, "SGD", law), ("SGF", flow_runs, "SGF", flow), ("SGD", runs, "SGF", flow))
        figure.rows.extend(Row(tau, a, b, compare(found, limit, COMPARED)) for a, found, b, limit in pairs)
    return figure
