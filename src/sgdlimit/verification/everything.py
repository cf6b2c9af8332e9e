"""Every check in one go, with its panels and its table."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ..algorithms import SGD, SGF
from ..problem import Linear, Logistic, Normal, Problem, Ridge, Sign, Square
from .laws import SAMPLING, Scaling, distances, universality
from .steps import discretisation, strong_error

TIMES = (1.0, 2.0)
FLOW_STEP = 0.1  # step of the SGF system, the same at finite size and in the limit
SGD_STEP = 0.02
TEMPERATURE = 0.5
STRONG_TEMPERATURE = 2.0  # high, so that the noise, which alone is of order γ, rules over the drift, of order γ²
ENTRIES = ("gaussian", "rademacher", "sparse")


class VerificationSize(NamedTuple):
    """The dimensions, steps and numbers of runs that every theorem is tried at."""

    dims: tuple[int, ...]
    trials: tuple[int, ...]
    strong_dims: tuple[int, ...]
    strong_steps: int
    gammas: tuple[float, ...]


FULL = VerificationSize(
    dims=(128, 256, 512, 1024, 2048, 4096, 8192),
    trials=(24, 24, 24, 16, 8, 4, 3),
    strong_dims=(128, 512, 1024),
    strong_steps=8192,
    gammas=(0.25, 0.125, 0.0625, 0.03125),
)
QUICK = VerificationSize(
    dims=(64, 128, 256, 512), trials=(12, 12, 12, 12), strong_dims=(128,), strong_steps=2048, gammas=(0.25, 0.125)
)


class Panel(NamedTuple):
    """Curves that belong on one pair of axes."""

    title: str
    quantity: str
    curves: list[Scaling]


@dataclass(frozen=True)
class Verification:
    """Panels, and what they say in words."""

    panels: list[Panel]
    findings: list[str]

    def table(self) -> str:
        """Every curve in a line, with its fitted power, and the findings."""
        lines = []
        for panel in self.panels:
            lines += [f"{panel.title} ({panel.quantity})", *(f"  {curve.row()}" for curve in panel.curves), ""]
        return "\n".join([*lines, *self.findings])


def logistic() -> Problem:
    """Noisy logistic regression from a random start; δ = 1 gives as many samples as weights."""
    return Problem(
        loss=Logistic(), labels=Sign(), penalty=Ridge(0.1), sample_ratio=1.0, teacher=Normal(1.0),
        noise=Normal(0.3), init=Normal(0.5),
    )  # fmt: skip


def ridge() -> Problem:
    """Ridge regression, whose continuous system is known exactly."""
    return Problem(loss=Square(), labels=Linear(), penalty=Ridge(0.1), sample_ratio=1.0, teacher=Normal(1.0))


def verify(size: VerificationSize = FULL, seed: int = 0) -> Verification:
    """The theorem for SGF and its counterpart for SGD, universality, and both discretisation lemmas."""
    problem, flow, sgd = logistic(), SGF(TEMPERATURE), SGD(TEMPERATURE, batch_size=2)
    common = {"dims": size.dims, "trials": size.trials, "times": TIMES, "seed": seed}
    of_flow = distances(problem, flow, dt=FLOW_STEP, entries=ENTRIES, **common)
    of_sgd = distances(problem, sgd, dt=SGD_STEP, reference=False, **common)
    panels, findings = [], []
    for side, words in {"theta": "weights (θ at two times, θ*)", "r": "samples (r at two times, r*, z)"}.items():
        curves = [replace(c, label=f"SGF, {c.label}") for c in of_flow[side] if c.label != SAMPLING]
        curves += [replace(c, label=f"SGD, {c.label}") for c in of_sgd[side]]
        floor = [c for c in of_flow[side] if c.label == SAMPLING]
        panels.append(Panel(f"Joint law of {words}", "W₂ to the DMFT law", curves + floor))
        falls = "falls" if all(c.falls for c in curves) else "DOES NOT FALL"
        findings.append(f"{words}: W₂ {falls} with d for every law of the entries and for both algorithms;")
        apart = universality([c for c in curves if c.label.startswith("SGF")])
        findings.append(f"    Rademacher and sparse entries differ from Gaussian ones by at most {apart:.1f} errors")
    strong = [
        curve
        for dim in size.strong_dims
        for curve in strong_error(problem, STRONG_TEMPERATURE, dim=dim, steps=size.strong_steps, seed=seed)
    ]
    panels += [Panel("Strong error of Euler–Maruyama", "E sup |difference|² per row", strong)]
    discrete = []
    for name, example in {"ridge": ridge(), "logistic": problem}.items():
        found = discretisation(example, TEMPERATURE, gammas=size.gammas, seed=seed)
        discrete += [replace(c, label=f"{c.label}, {name}") for c in found]
    panels.append(Panel("Discrete against continuous DMFT", "difference", discrete))
    return Verification(panels, findings)
