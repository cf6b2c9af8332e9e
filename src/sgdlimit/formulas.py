"""Problems and algorithms as formulas, from the words that `describe` makes of them and that results store.

LaTeX of the subset that notebooks and matplotlib both set. Words of a file may be anything: numbers must be numbers,
and of names only letters and digits are kept, so that a formula holds no markup but its own.
"""

import math
import re
from collections.abc import Callable
from typing import Any

SPACE = r",\quad "

Words = dict[str, Any]


def number(value: Any) -> str:
    """'0.1', '10^{-5}', '2.5 \\cdot 10^{7}', '\\infty'; a list in parentheses."""
    if isinstance(value, list | tuple):
        return "(" + r",\, ".join(number(part) for part in value) + ")"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("no number")
    value = float(value)
    if not math.isfinite(value):
        return r"\infty" if value > 0 else r"-\infty"
    digits, _, power = f"{value:.4g}".partition("e")
    if not power:
        return digits
    return f"10^{{{int(power)}}}" if digits == "1" else f"{digits} \\cdot 10^{{{int(power)}}}"


def name(words: Any) -> str:
    """A function or a class by its name, upright; 'f' for one without."""
    called = words if isinstance(words, str) else words.get("function") or words["name"]
    parts = re.findall("[A-Za-z0-9]+", str(called).split(".")[-1])
    plain = "" if "lambda" in parts else r"\_".join(parts)
    return f"\\mathrm{{{plain}}}" if plain else "f"


def call(words: Words, *arguments: str) -> str:
    """The user's function of its arguments, and its parameters."""
    given = r",\, ".join(f"{name(key)} = {number(value)}" for key, value in (words.get("parameters") or {}).items())
    return f"{name(words['fn'])}({', '.join(arguments)}" + (f";\\ {given})" if given else ")")


def _readout(words: Words, r: str) -> str:
    """Σ_a v_a σ(r_a)."""
    weight = words.get("readout", 1.0)
    factor = "" if weight == 1.0 else "v_a\\," if isinstance(weight, list) else f"{number(weight)}\\,"
    return f"\\sum_a {factor}{name(words['activation'])}({r})"


def _huber(words: Words, r: str, y: str) -> str:
    c = number(words["threshold"])
    return f"\\frac{{1}}{{2}}({r} - {y})^2\\ (|{r} - {y}| \\leq {c};\\ \\mathrm{{linear\\ beyond}})"


def _smooth_hinge(words: Words, r: str, y: str) -> str:
    s = number(words["smoothing"])
    return f"{s} \\log(1 + e^{{(1 - {y} {r}) / {s}}})"


def _pinball(words: Words, r: str, y: str) -> str:
    q = number(words["level"])
    return f"\\max({q}({y} - {r}),\\ {number(1 - words['level'])}({r} - {y}))"


LOSSES: dict[str, Callable[[Words, str, str], str]] = {
    "Square": lambda words, r, y: f"\\frac{{1}}{{2}}({r} - {y})^2",
    "Logistic": lambda words, r, y: f"\\log(1 + e^{{-{y} {r}}})",
    "Huber": _huber,
    "Absolute": lambda words, r, y: f"|{r} - {y}|",
    "Quantile": _pinball,
    "Hinge": lambda words, r, y: f"\\max(0,\\ 1 - {y} {r})",
    "SmoothHinge": _smooth_hinge,
    "Exponential": lambda words, r, y: f"e^{{-{y} {r}}}",
    "TwoLayer": lambda words, r, y: loss(words["loss"], "\\hat{y}_i", y),
    "Loss": lambda words, r, y: call(words, r, y),
}
"""L(r, y)."""

LABELS: dict[str, Callable[[Words, str], str]] = {
    "Linear": lambda words, star: f"y_i = {star} + z_i",
    "Sign": lambda words, star: f"y_i = \\mathrm{{sign}}({star} + z_i)",
    "Logit": lambda words, star: f"P(y_i = 1) = 1 / (1 + e^{{-{_times(words['slope'])}{star} - z_i}})",
    "Noise": lambda words, star: "y_i = z_i",
    "ByClass": lambda words, star: "y_i = " + (f"{number(words['values'])}_{{c_i}}" if words["values"] else "y(c_i)"),
    "TwoLayerLabels": lambda words, star: f"y_i = {_readout(words, 'r^*_{ia}')} + z_i",
    "Labels": lambda words, star: f"y_i = {call(words, 'r^*_i', 'z_i')}",
}
"""The label of sample i, from the sum over the teacher's units."""

PENALTIES: dict[str, Callable[[Words, str], str]] = {
    "NoPenalty": lambda words, of: "0",
    "Ridge": lambda words, of: f"\\frac{{{number(words['strength'])}}}{{2}}|{of}|^2",
    "L1": lambda words, of: f"{number(words['strength'])}|{of}|",
    "SmoothL1": lambda words, of: (
        f"{number(words['strength'])}(\\sqrt{{{of}^2 + {number(words['smoothing'])}^2}} - {number(words['smoothing'])})"
    ),
    "Quartic": lambda words, of: f"\\frac{{{number(words['strength'])}}}{{4}}{of}^4",
    "Penalty": lambda words, of: call(words, of),
}
"""H(θ_j); of several units, added up over them."""

LAWS: dict[str, Callable[[Words], str]] = {
    "Normal": lambda words: f"\\sim \\mathcal{{N}}(0, {number(words['scale'])}^2)",
    "Point": lambda words: f"= {number(words['value'])}",
    "Rademacher": lambda words: f"= \\pm {number(words['scale'])}",
    "Uniform": lambda words: f"\\sim \\mathrm{{Unif}}[{number(words['low'])}, {number(words['high'])}]",
    "SparseNormal": lambda words: (
        f"\\sim {number(1 - words['density'])}\\,\\delta_0 + {number(words['density'])}\\,"
        f"\\mathcal{{N}}(0, {number(words['scale'])}^2)"
    ),
    "Law": lambda words: f"\\sim {name(words['fn'])}",
}
"""What follows the symbol of an entry."""

SCHEDULES: dict[str, Callable[[Words], str]] = {
    "Constant": lambda words: "1",
    "PowerDecay": lambda words: f"(1 + t / {number(words['scale'])})^{{-{number(words['exponent'])}}}",
    "CosineDecay": lambda words: (
        f"{number(words['final'])} + {number(1 - words['final'])}\\,\\frac{{1}}{{2}}"
        f"(1 + \\cos(\\pi t / {number(words['duration'])}))"
    ),
    "Schedule": lambda words: call(words, "t"),
}
"""s(t)."""


def _times(value: Any) -> str:
    return "" if value == 1.0 else f"{number(value)}\\,"


def loss(words: Words, r: str = "r_i", y: str = "y_i") -> str:
    """L at a sample."""
    return LOSSES[words["name"]](words, r, y)


def penalty(words: Words, units: int) -> str:
    """H at a row of the weights."""
    kind = words["name"]
    if units > 1 and kind in ("L1", "SmoothL1", "Quartic"):
        return r"\sum_a " + PENALTIES[kind](words, r"\theta_{ja}")
    return PENALTIES[kind](words, r"\theta_j")


def problem(words: Words) -> list[str]:
    """The objective, what its symbols are, and the laws of what is drawn: one formula a line."""
    first = _fields(words) if "VectorField" in (words["loss"]["name"], words["penalty"]["name"]) else _objective(words)
    lines = [first, _symbols(words)]
    laws = {r"\theta^*_j": words.get("teacher"), "z_i": words.get("noise"), r"\theta^0_j": words.get("init")}
    if (words.get("data") or {}).get("name") == "Mixture":
        del laws["z_i"]
    lines.append(SPACE.join(f"{symbol} {LAWS[law['name']](law)}" for symbol, law in laws.items() if law is not None))
    schedule = words.get("schedule") or {"name": "Constant"}
    if schedule["name"] != "Constant":
        lines.append(rf"s(t) = {SCHEDULES[schedule['name']](schedule)}\quad \mathrm{{times\ the\ learning\ rate}}")
    return lines


def _objective(words: Words) -> str:
    """F: mean of the losses, and the penalties over d."""
    infinite = math.isinf(float(words["sample_ratio"]))
    mean = r"\mathrm{E}\," if infinite else r"\frac{1}{n}\sum_{i=1}^{n} "
    pull = penalty(words["penalty"], words.get("width", 1))
    rest = "" if pull == "0" else rf" + \frac{{1}}{{d}}\sum_{{j=1}}^{{d}} {pull}"
    return rf"F(\theta) = {mean}{loss(words['loss'])}{rest}"


def _fields(words: Words) -> str:
    """What moves the weights where that is no gradient."""
    force, pull = words["loss"], words["penalty"]
    infinite = math.isinf(float(words["sample_ratio"]))
    mean = r"d\,\mathrm{E}" if infinite else r"\frac{d}{n}\sum_{i=1}^{n}"
    own = force["name"] == "VectorField"
    ell = call(force, "r_i", "r^*_i", "z_i", "t") if own else rf"\partial_r {loss(force)}"
    if pull["name"] == "VectorField":
        drift = call(pull, r"\theta", "t")
    else:
        drift = penalty(pull, words.get("width", 1))
        drift = "0" if drift == "0" else rf"\nabla {drift}"
    return rf"\frac{{d\theta}}{{dt}} = -{mean} x_i\,\ell_i - h" + SPACE + rf"\ell_i = {ell}" + SPACE + f"h = {drift}"


def _symbols(words: Words) -> str:
    """Pre-activations, labels, sizes."""
    wide = words.get("width", 1) > 1
    rows = r"r_{ia} = \theta_a^\top x_i" if wide else r"r_i = \theta^\top x_i"
    parts = [rows + (r" + \beta_a" if wide else r" + \beta") * bool(words.get("bias"))]
    if words["loss"]["name"] == "TwoLayer":
        parts.append(rf"\hat{{y}}_i = {_readout(words['loss'], 'r_{ia}')}")
    if (words.get("data") or {}).get("name") == "Mixture":
        parts.append(r"x_i = \mu_{c_i} + u_i")
    elif words.get("teacher") is not None:
        parts.append(r"r^*_i = \theta^{*\top} x_i")
    teachers = words.get("teacher_width") or words.get("width", 1)
    star = "r^*_i" if teachers == 1 else r"\sum_a r^*_{ia}"
    parts.append(LABELS[words["labels"]["name"]](words["labels"], star))
    ratio = number(words["sample_ratio"])
    parts.append(r"n = \infty" if ratio == r"\infty" else rf"n = {ratio}\,d")
    return SPACE.join(parts)


def algorithm(words: Words) -> list[str]:
    """The update, and its numbers; F is the objective, ℓ_i the derivative of the loss of sample i."""
    kind, share = words["name"], words.get("batch_share") or {"name": "Constant"}
    lines = UPDATES[kind](words)
    if share["name"] != "Constant":
        lines.append(rf"B(t) / B = {SCHEDULES[share['name']](share)}")
    return lines


def _batches(words: Words) -> list[str]:
    tau, size = number(words["temperature"]), number(words["batch_size"])
    rate = number(words["temperature"] * words["batch_size"])
    step = r"\theta_{k+1} = \theta_k - \eta\,\nabla F_k(\theta_k)"
    mean = r"F_k = \frac{1}{B}\sum_{i \in B_k} L(r_i, y_i) + \frac{1}{d}\sum_{j=1}^{d} H(\theta_j)"
    numbers = SPACE.join([rf"\eta = \tau B = {rate}", rf"\tau = {tau}", f"B = {size}", r"t = \eta k / d"])
    return [step + SPACE + mean, numbers]


def _shares(words: Words, law: str) -> list[str]:
    step = r"\theta_{k+1} = \theta_k - \gamma\,(\frac{1}{b}\frac{d}{n}\sum_{i=1}^{n} s_i x_i \ell_i + h(\theta_k))"
    return [step, SPACE.join([rf"b = {number(words['batch_fraction'])}", law, r"t = \gamma k"])]


UPDATES: dict[str, Callable[[Words], list[str]]] = {
    "GradientFlow": lambda words: [r"\frac{d\theta}{dt} = -d\,\nabla F(\theta)"],
    "SGF": lambda words: [
        r"d\theta = -d\,\nabla F(\theta)\,dt - \sqrt{\tau / \delta}\,\sum_{i=1}^{n} x_i \ell_i\,dW_i"
        + SPACE
        + rf"\tau = {number(words['temperature'])}"
    ],
    "SGD": lambda words: [*_batches(words), r"B_k\ \mathrm{drawn\ afresh\ from\ all}\ n\ \mathrm{samples}"],
    "ShuffledSGD": lambda words: [*_batches(words), r"B_k\ \mathrm{cut\ from\ the\ samples,\ reshuffled\ each\ epoch}"],
    "ProportionalSGD": lambda words: _shares(words, r"P(s_i = 1) = b\ \mathrm{afresh}"),
    "PersistentSGD": lambda words: _shares(
        words, rf"s_i = 0, 1\ \mathrm{{Markov,\ mean}}\ b,\ \tau_p = {number(words['correlation_time'])}"
    ),
}
"""How θ moves."""


def lines(make: Callable[[Words], list[str]], words: Any) -> list[str]:
    """The formulas of stored words; none where the words are not those that `describe` writes."""
    try:
        return [line for line in make(words) if line]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
