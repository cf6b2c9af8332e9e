"""A view as text to keep: Python that computes and draws it, and TOML for the command line."""

import json
from typing import Any

from .view import View, Words


def python(view: View) -> str:
    """A script: the same curves, kernels and runs to the last bit, and the picture."""
    problem = "".join(f"    {name}={_call(value)},\n" for name, value in view.problem.items())
    lines = [
        "import sgdlimit as sl",
        "",
        f"problem = sl.Problem(\n{problem})",
        f"algorithm = {_call(view.algorithm)}",
        f"theory = sl.solve(problem, algorithm, {_arguments(view.theory_options)})",
        f"kernels = sl.solve(problem, algorithm, {_arguments(view.kernel_options)})",
        f"runs = sl.simulate(problem, algorithm, {_arguments(view.runs_options)})",
        "",
        "print(theory)",
        "print(sl.compare(runs, theory))",
        f"sl.plot.learning_curves(runs, theory, {_arguments(_drawing(view))})",
        f'kernels.dataset["{view["kernel"]}"][:, :, 0, 0].plot(x="earlier")',
    ]
    return "\n".join(lines) + "\n"


def toml(view: View) -> str:
    """A problem file for `sgdlimit solve` and `sgdlimit simulate`."""
    run = view.runs_options | view.theory_options
    lines = ["# sgdlimit solve view.toml --output theory.nc; sgdlimit simulate view.toml --output runs.nc"]
    for name, words in {"problem": view.problem, "algorithm": view.algorithm, "run": run}.items():
        lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in words.items()), ""]
    return "\n".join(lines)


def _drawing(view: View) -> Words:
    scales = {f"log_{axis}": view[f"{axis}_axis"] == "log" for axis in ("time", "value")}
    return {"variables": list(view["curves"])} | {name: True for name, wanted in scales.items() if wanted}


def _call(value: Any) -> str:
    """Words as a call of the library."""
    if not isinstance(value, dict):
        return repr(value)
    inside = {name: part for name, part in value.items() if name != "name"}
    return f"sl.{value['name']}({_arguments(inside)})"


def _arguments(words: Words) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in words.items())


def _value(value: Any) -> str:
    """Words as TOML, whose numbers, words and lists are those of JSON; tables are inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(part)}" for name, part in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
