"""The one table of what can be chosen on the page: every field with its range, its default and its words.

The page draws its controls from this table, and every request is checked against it. A value travels as text, in the
address of the page and in every request alike.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from ..errors import reject

REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"\d{1,12}", re.ASCII)
"""Numbers as everybody writes them: no underscores, no infinity, no other alphabets (`float` takes them all)."""

When = Mapping[str, tuple[str, ...]]
"""Fields and those of their values for which another field has a meaning; all of them must hold."""


@final
@dataclass(frozen=True)
class Number:
    """A number within bounds; `slider` is the part of them that a slider covers."""

    name: str
    symbol: str
    words: str
    default: float
    least: float
    most: float
    slider: tuple[float, float, float] | None = None
    """From, to, and the step. None: a whole number, without a slider."""
    logarithmic: bool = False
    when: When = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """How the page draws it."""
        return "number" if self.slider else "whole"

    def parse(self, text: str) -> float:
        """The number that a text stands for, or an InputError."""
        written, convert, words = (REAL, float, "a number") if self.slider else (WHOLE, int, "a whole number")
        if not written.fullmatch(text) or not self.least <= convert(text) <= self.most:
            raise reject(self.name, repr(text), f"it must be {words} from {spell(self.least)} to {spell(self.most)}")
        return convert(text)


@final
@dataclass(frozen=True)
class Choice:
    """One of several words; where the default is a tuple, some of them. `formulas` say what each stands for."""

    name: str
    symbol: str
    words: str
    default: str | tuple[str, ...]
    options: Mapping[str, str]
    formulas: Mapping[str, str] = field(default_factory=dict)
    when: When = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """How the page draws it."""
        return "choice" if isinstance(self.default, str) else "several"

    def parse(self, text: str) -> str | tuple[str, ...]:
        """The word itself, or the words in the order of the table; an InputError for any other."""
        count, given = ("one of", [text]) if self.kind == "choice" else ("words, parted by commas, of", text.split(","))
        for word in given:
            if word not in self.options:
                raise reject(self.name, repr(word), f"it must be {count} {', '.join(self.options)}")
        return text if self.kind == "choice" else tuple(word for word in self.options if word in given)


def spell(value: float | str | tuple[str, ...]) -> str:
    """The shortest text from which the field that `value` belongs to reads it again."""
    return ",".join(value) if isinstance(value, tuple) else str(value).removesuffix(".0")


Field = Number | Choice

BINARY = ("logistic", "hinge", "smooth_hinge", "exponential")
"""Losses of labels ±1."""
SIGNS = ("sign", "logit", "random_signs", "classes")
"""Labels that are ±1."""
PLANTED = ("sign", "logit", "linear", "two_layer")
"""Labels of a teacher."""
DISCRETE = ("proportional", "persistent")
"""Algorithms whose step is part of them."""

PROBLEM: tuple[Field, ...] = (
    Choice("loss", "L", "loss", "logistic",
           {"logistic": "logistic", "square": "square", "huber": "Huber", "absolute": "absolute", "hinge": "hinge",
            "smooth_hinge": "smooth hinge", "exponential": "exponential", "two_layer": "two-layer network"},
           {"logistic": "log(1 + exp(−y r))", "square": "½(r − y)²", "huber": "½(r − y)², linear beyond |r − y| = 1",
            "absolute": "|r − y|", "hinge": "max(0, 1 − y r)",
            "smooth_hinge": "s log(1 + exp((1 − y r)/s)), s = 0.2", "exponential": "exp(−y r)",
            "two_layer": "½(Σₐ φ(rₐ) − y)²"}),
    Choice("activation", "φ", "activation", "erf", {"erf": "erf", "tanh": "tanh", "relu": "ReLU"},
           when={"loss": ("two_layer",)}),
    Number("width", "m", "units of the student", 2, 1, 8, when={"loss": ("two_layer",)}),
    Choice("readout", "g", "second layer", "fixed", {"fixed": "fixed", "trained": "trained"},
           {"fixed": "g = 1", "trained": "Σₐ gₐ φ(rₐ), from gₐ = 1/a on"}, when={"loss": ("two_layer",)}),
    Number("readout_rate", "ρ_g", "rate of the second layer", 1.0, 0.0, 10.0, (0.0, 4.0, 0.05),
           when={"readout": ("trained",), "loss": ("two_layer",)}),
    Choice("labels", "y", "labels", "sign",
           {"sign": "sign of the teacher", "logit": "random, by log-odds", "random_signs": "random signs",
            "linear": "linear teacher", "two_layer": "two-layer teacher", "noise": "noise alone",
            "classes": "class of a mixture"},
           {"sign": "sign(r* + z)", "logit": "+1 with probability 1/(1 + exp(−r* − z))", "random_signs": "±1 at random",
            "linear": "r* + z", "two_layer": "Σₐ erf(r*ₐ) + z", "noise": "z", "classes": "+1 or −1, the class of x"}),
    Number("teacher_width", "k", "units of the teacher", 2, 1, 8, when={"labels": ("two_layer",)}),
    Choice("teacher", "θ*", "teacher", "normal",
           {"normal": "Gaussian", "rademacher": "±1", "sparse": "sparse Gaussian"},
           {"normal": "N(0, 1)", "rademacher": "±1", "sparse": "0, or N(0, 1/ρ) with probability ρ"},
           when={"labels": PLANTED}),
    Number("density", "ρ", "non-zero share", 0.2, 0.05, 1.0, (0.05, 1.0, 0.05),
           when={"teacher": ("sparse",), "labels": PLANTED}),
    Choice("penalty", "H", "penalty", "ridge",
           {"ridge": "ridge", "l1": "ℓ₁", "smooth_l1": "smooth ℓ₁", "quartic": "quartic", "none": "none"},
           {"ridge": "½λ|θ|²", "l1": "λ Σ |θ|", "smooth_l1": "λ Σ (√(θ² + s²) − s), s = 0.1",
            "quartic": "¼λ Σ θ⁴", "none": "0"}),
    Choice("data", "x", "data", "iid",
           {"iid": "iid entries", "power_law": "power-law spectrum", "mixture": "two Gaussian classes"},
           {"iid": "N(0, 1/d)", "power_law": "variances ∝ k^−α, 8 groups", "mixture": "mean ±μ, variance 1/d"}),
    Number("exponent", "α", "exponent of variances", 0.5, 0.0, 0.95, (0.0, 0.95, 0.05), when={"data": ("power_law",)}),
    Number("separation", "μ", "distance of the classes", 1.0, 0.0, 5.0, (0.0, 3.0, 0.05), when={"data": ("mixture",)}),
    Number("init", "θ⁰", "scale of the start", 0.0, 0.0, 5.0, (0.0, 2.0, 0.05)),
)  # fmt: skip

NUMBERS: tuple[Field, ...] = (
    Number("delta", "δ", "samples per dimension", 2.0, 0.05, 20.0, (0.2, 10.0, 0.01), logarithmic=True),
    Number("tau", "τ", "temperature", 0.5, 0.01, 10.0, (0.02, 3.0, 0.02),
           when={"algorithm": ("sgf", "sgd", "shuffled")}),
    Number("lam", "λ", "penalty strength", 0.1, 0.0, 100.0, (0.0, 1.0, 0.01),
           when={"penalty": ("ridge", "l1", "smooth_l1", "quartic")}),
    Number("sigma", "σ", "label noise", 0.5, 0.0, 10.0, (0.0, 2.0, 0.05),
           when={"labels": (*PLANTED, "noise")}),
    Number("t_max", "t", "last time", 6.0, 0.5, 50.0, (1.0, 20.0, 0.5)),
)  # fmt: skip

ALGORITHM: tuple[Field, ...] = (
    Choice("algorithm", "", "algorithm", "sgd",
           {"sgd": "SGD", "shuffled": "SGD in epochs", "sgf": "stochastic gradient flow",
            "gradient_flow": "gradient flow", "proportional": "proportional batches",
            "persistent": "persistent batches"},
           {"sgd": "η = τB, a fresh batch every step", "shuffled": "η = τB, reshuffled every epoch",
            "sgf": "noise of SGD, continuous time", "gradient_flow": "no noise",
            "proportional": "a share b of the samples, steps of Δt", "persistent": "a share b, kept for a time t_c"}),
    Number("batch", "B", "batch size", 4, 1, 256, when={"algorithm": ("sgd", "shuffled")}),
    Number("batch_fraction", "b", "share of the samples", 0.3, 0.05, 1.0, (0.05, 1.0, 0.05),
           when={"algorithm": DISCRETE}),
    Number("correlation_time", "t_c", "correlation time", 1.0, 0.05, 50.0, (0.1, 5.0, 0.1),
           when={"algorithm": ("persistent",)}),
    Number("dt", "Δt", "time step", 0.05, 0.01, 0.5, (0.01, 0.2, 0.01), when={"algorithm": DISCRETE}),
)  # fmt: skip

STEP: tuple[Field, ...] = (
    Choice("momentum", "", "momentum", "none", {"none": "none", "heavy_ball": "heavy ball"},
           {"heavy_ball": "v ← (1 − κη/d)v − η·gradient, θ ← θ + (η/d)v"}),
    Number("friction", "κ", "friction", 1.0, 0.05, 20.0, (0.1, 10.0, 0.01), logarithmic=True,
           when={"momentum": ("heavy_ball",)}),
    Choice("clip", "", "clipping", "none", {"none": "none", "sample": "gradient of a sample"},
           {"sample": "|x||ℓ| ≤ c"}),
    Number("threshold", "c", "longest gradient", 1.0, 0.01, 100.0, (0.05, 5.0, 0.05), when={"clip": ("sample",)}),
    Choice("average", "", "average of the weights", "none", {"none": "none", "ema": "exponential, EMA"},
           {"ema": "θ̄′ = rate·(θ − θ̄)"}),
    Number("ema_rate", "", "rate of the EMA", 1.0, 0.02, 50.0, (0.1, 5.0, 0.05), when={"average": ("ema",)}),
)  # fmt: skip

EFFORT: tuple[Field, ...] = (
    Choice("tol", "", "accuracy", "0.02",
           {"0.05": "5 %", "0.02": "2 %", "0.01": "1 %", "0.005": "0.5 %"}),
    Number("dim", "d", "dimension of the runs", 400, 20, 4000),
    Number("trials", "", "runs", 5, 1, 50),
    Number("seed", "", "seed", 0, 0, 2**32 - 1),
)  # fmt: skip

SHOWN: tuple[Field, ...] = (
    Choice("curves", "", "curves", ("train_error", "test_error"),
           {"train_error": "train error", "test_error": "test error", "train_loss": "train loss",
            "test_loss": "test loss", "overlap": "overlap with the teacher", "norm": "norm of the weights",
            "readout": "second layer"}),
    Choice("kernel", "", "two-time kernel", "C_theta",
           {"C_theta": "correlation of the weights", "R_theta": "response of the weights",
            "R_ell": "response of the force"},
           {"C_theta": "C_θ(t, t′) = E[θ(t) θ(t′)]", "R_theta": "R_θ(t, t′) = E[∂θ(t)/∂u(t′)]",
            "R_ell": "R_ℓ(t, t′) = E[∂ℓ(t)/∂w(t′)]"}),
    Choice("time_axis", "", "time axis", "linear", {"linear": "linear", "log": "logarithmic"}),
    Choice("value_axis", "", "value axis", "linear", {"linear": "linear", "log": "logarithmic"}),
)  # fmt: skip
"""How things are drawn: no number depends on these."""

GROUPS: dict[str, tuple[Field, ...]] = {
    "Numbers": NUMBERS, "Problem": PROBLEM, "Algorithm": ALGORITHM, "Step and average": STEP,
    "Accuracy and runs": EFFORT, "Drawing": SHOWN,
}  # fmt: skip
FIELDS: dict[str, Field] = {f.name: f for group in GROUPS.values() for f in group}
DRAWN_ONLY = tuple(f.name for f in SHOWN)
OF_RUNS = ("dim", "trials", "batch")
"""What says nothing to the theory: the limit depends on the batch through τ alone."""


def described() -> list[dict[str, Any]]:
    """The table in plain words, for the page."""
    return [
        {"group": group, "fields": [vars(f) | {"kind": f.kind, "default": spell(f.default)} for f in fields]}
        for group, fields in GROUPS.items()
    ]
