"""Problems and algorithms as formulas, from the words that `describe` makes of them and that results store.

LaTeX of the subset that notebooks and matplotlib both set. Words of a file may be anything: numbers must be numbers,
and of names only letters and digits are kept, so that a formula holds no markup but its own.

Every class of `problem/` and `algorithms/` has its formula as `latex`. In it <r>, <y>, <star>, <row>, <each>, <state>
are symbols of the place where it stands, <strength> is a number of the object, <1-level> one minus it, <slope*> a
factor that is left out where it is one, <fn> and <activation> the name of a function, <;> its parameters.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from .describe import models

SPACE = r",\quad "

Words = dict[str, Any]


def number(value: Any) -> str:
    """A number in LaTeX: '0.1', '10^{-5}', '2.5 \\cdot 10^{7}', '\\infty'; a list in parentheses."""
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


def shown(room: str, words: Words, **symbols: str) -> str:
    """The formula of what stands in a room, from its stored words, with the symbols of the place where it stands."""

    def part(found: re.Match[str]) -> str:
        key = found[1].strip("*")
        if key in symbols:
            return symbols[key]
        if key == ";":
            given = (f"{name(key)} = {number(value)}" for key, value in (words.get("parameters") or {}).items())
            return ";\\ " * bool(words.get("parameters")) + r",\, ".join(given)
        if key.startswith("1-"):
            return number(1 - words[key.removeprefix("1-")])
        if key in ("fn", "activation"):
            return name(words[key])
        if not found[1].endswith("*"):
            return number(words[key])
        value = words.get(key, 1.0)
        return "" if value == 1.0 else r"v_a\," if isinstance(value, list) else rf"{number(value)}\,"

    return re.sub("<([^>]+)>", part, models(room)[words["name"]].latex)


def loss(words: Words, r: str = "r_i", y: str = "y_i") -> str:
    """L at a sample; that of a network is a loss of its output, which its own formula gives."""
    return loss(words["loss"], r"\hat{y}_i", y) if words["name"] == "TwoLayer" else shown("loss", words, r=r, y=y)


def penalty(words: Words, units: int) -> str:
    """H at a row of the weights, added up over units where it is a function of one entry."""
    several = units > 1 and "<each>" in models("penalty")[words["name"]].latex
    each = r"\theta_{ja}" if several else r"\theta_j"
    return r"\sum_a " * several + shown("penalty", words, row=r"\theta_j", each=each)


def schedule(words: Words | None) -> str:
    """s(t); empty where it is 1 at all times, as where no words are stored."""
    return "" if words is None or words["name"] == "Constant" else shown("schedule", words)


def problem(words: Words) -> list[str]:
    """The objective, what its symbols are, and the laws of what is drawn: one formula a line."""
    first = _fields(words) if "VectorField" in (words["loss"]["name"], words["penalty"]["name"]) else _objective(words)
    laws = {r"\theta^*_j": words.get("teacher"), "z_i": words.get("noise"), r"\theta^0_j": words.get("init")}
    if _mixed(words):
        del laws["z_i"]
    drawn = SPACE.join(f"{symbol} {shown('law', law)}" for symbol, law in laws.items() if law is not None)
    factor = schedule(words.get("schedule"))
    rate = rf"s(t) = {factor}\quad \mathrm{{times\ the\ learning\ rate}}"
    return [first, _symbols(words), drawn, *[rate] * bool(factor)]


def _mixed(words: Words) -> bool:
    return (words.get("data") or {}).get("name") == "Mixture"


def _infinite(words: Words) -> bool:
    return math.isinf(float(words["sample_ratio"]))


def _objective(words: Words) -> str:
    """F: mean of the losses, and the penalties over d."""
    mean = r"\mathrm{E}\," if _infinite(words) else r"\frac{1}{n}\sum_{i=1}^{n} "
    pull = penalty(words["penalty"], words.get("width", 1))
    rest = "" if pull == "0" else rf" + \frac{{1}}{{d}}\sum_{{j=1}}^{{d}} {pull}"
    return rf"F(\theta) = {mean}{loss(words['loss'])}{rest}"


def _fields(words: Words) -> str:
    """What moves the weights where that is no gradient."""
    force, pull = words["loss"], words["penalty"]
    mean = r"d\,\mathrm{E}" if _infinite(words) else r"\frac{d}{n}\sum_{i=1}^{n}"
    if force["name"] == "VectorField":
        ell = shown("loss", force, state="r_i, r^*_i, z_i, t")
    else:
        ell = rf"\partial_r {loss(force)}"
    if pull["name"] == "VectorField":
        drift = shown("penalty", pull, state=r"\theta, t")
    else:
        drift = penalty(pull, words.get("width", 1))
        drift = "0" if drift == "0" else rf"\nabla {drift}"
    return rf"\frac{{d\theta}}{{dt}} = -{mean} x_i\,\ell_i - h" + SPACE + rf"\ell_i = {ell}" + SPACE + f"h = {drift}"


def _symbols(words: Words) -> str:
    """What the symbols of the objective are: pre-activations, labels, the number of samples."""
    wide = words.get("width", 1) > 1
    rows = r"r_{ia} = \theta_a^\top x_i" if wide else r"r_i = \theta^\top x_i"
    parts = [rows + (r" + \beta_a" if wide else r" + \beta") * bool(words.get("bias"))]
    if words["loss"]["name"] == "TwoLayer":
        parts.append(shown("loss", words["loss"]))
    if _mixed(words):
        parts.append(r"x_i = \mu_{c_i} + u_i")
    elif words.get("teacher") is not None:
        parts.append(r"r^*_i = \theta^{*\top} x_i")
    teachers = words.get("teacher_width") or words.get("width", 1)
    star = "r^*_i" if teachers == 1 else r"\sum_a r^*_{ia}"
    parts.append(shown("labels", words["labels"], star=star))
    parts.append(r"n = \infty" if _infinite(words) else rf"n = {number(words['sample_ratio'])}\,d")
    return SPACE.join(parts)


def algorithm(words: Words) -> list[str]:
    """The update, and its numbers; F is the objective, ℓ_i the derivative of the loss of sample i."""
    rate = {"rate": words["temperature"] * words["batch_size"]} if "batch_size" in words else {}
    share = schedule(words.get("batch_share"))
    return [*shown("algorithm", words | rate).split("\n"), *[f"B(t) / B = {share}"] * bool(share)]


def lines(make: Callable[[Words], list[str]], words: Any) -> list[str]:
    """The formulas of stored words; none where the words are not those that `describe` writes."""
    try:
        return [line for line in make(words) if line]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
