"""`View`: everything that the page shows, checked; as an address, and as words that the library builds it from.

`python` and `toml` are texts to keep: a script that computes and draws the view, and a file for the command line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final
from urllib.parse import parse_qsl, urlencode

from ..errors import reject
from .fields import BINARY, DRAWN_ONLY, FIELDS, OF_RUNS, PLANTED, SIGNS, spell

MOST_ENTRIES = 2e7
"""Of the data matrix of one run: 80 MB, twice."""
SNAPSHOTS = (0.25, 0.5, 1.0)
"""When the law of the weights is shown, as shares of the last time."""
LONGEST_QUERY = 2000
ROUGH = 0.1
"""Tolerance of what is only looked at: rough curves and kernels."""

Words = dict[str, Any]

LABELS: dict[str, Words] = {
    "random_signs": {"name": "Noise", "binary": True},
    "two_layer": {"name": "TwoLayerLabels", "activation": "erf"},
    "classes": {"name": "ByClass"},
}
"""Those whose name in the library is another one."""
ALGORITHMS = {
    "sgd": "SGD", "shuffled": "ShuffledSGD", "sgf": "SGF", "gradient_flow": "GradientFlow",
    "proportional": "ProportionalSGD", "persistent": "PersistentSGD",
}  # fmt: skip
ARGUMENTS = {"tau": "temperature", "batch": "batch_size"} | {n: n for n in ("batch_fraction", "correlation_time")}
"""Of algorithms, by the fields that hold them."""


@final
@dataclass(frozen=True)
class View:
    """Values of all fields; those without a meaning here have their defaults, so that equal views are equal."""

    values: Mapping[str, Any]

    @staticmethod
    def read(query: str) -> "View":
        """From the text behind the # of an address, or an InputError that names the field."""
        if len(query) > LONGEST_QUERY:
            raise reject("address", f"{len(query)} letters", f"it has at most {LONGEST_QUERY}")
        given: dict[str, str] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name not in FIELDS:
                raise reject(name, text, f"unknown field; there are {', '.join(FIELDS)}")
            if name in given:
                raise reject(name, text, "it is there twice; give it once")
            given[name] = text
        return View.of({name: FIELDS[name].parse(text) for name, text in given.items()})

    @staticmethod
    def of(values: Mapping[str, Any]) -> "View":
        """From checked values of some fields; refused is what does not go together."""
        full: Words = {name: f.default for name, f in FIELDS.items()} | dict(values)
        if full["loss"] in BINARY and full["labels"] not in SIGNS:
            why = f"the {full['loss']} loss reads labels ±1; take {', '.join(SIGNS)}, or another loss"
            raise reject("labels", full["labels"], why)
        if full["data"] == "mixture" and full["labels"] != "classes":
            raise reject("labels", full["labels"], "two Gaussian classes are labelled by their class; take classes")
        if full["labels"] == "classes" and full["data"] != "mixture":
            raise reject("data", full["data"], "labels by class need classes; take mixture")
        if matters("ema_rate", full) and 1 / full["ema_rate"] > full["t_max"]:
            why = f"the mean reaches back by {1 / full['ema_rate']:.3g}, longer than t = {full['t_max']:g}; raise it"
            raise reject("ema_rate", full["ema_rate"], why)
        return View({name: full[name] if matters(name, full) else f.default for name, f in FIELDS.items()})

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def query(self, without: tuple[str, ...] = ()) -> str:
        """The address, without fields at their defaults; `read` gives the same view again."""
        said = {name: self[name] for name, f in FIELDS.items() if self[name] != f.default and name not in without}
        return urlencode({name: spell(value) for name, value in said.items()})

    def key(self, kind: str) -> str:
        """The same for views with the same runs, or, for other kinds of work, with the same theory."""
        without = {"runs": ("tol",), "kernels": (*OF_RUNS, "average", "ema_rate")}.get(kind, OF_RUNS)
        return self.query(without=DRAWN_ONLY + without)

    def check_runs(self) -> None:
        """Refuse runs whose data are too large for a page that should answer soon."""
        entries = self["delta"] * self["dim"] ** 2
        if entries > MOST_ENTRIES:
            fits = int((MOST_ENTRIES / self["delta"]) ** 0.5) // 10 * 10
            why = f"n = δd makes a matrix of {entries:.2g} numbers; take d ≤ {fits}, or run the Python text"
            raise reject("dim", self["dim"], why)

    @property
    def units(self) -> int:
        """How many units the student has."""
        return self["width"] if matters("width", self.values) else 1

    @property
    def trained(self) -> bool:
        """Whether the second layer is."""
        return matters("readout_rate", self.values)

    @property
    def problem(self) -> Words:
        """As in the table [problem] of a TOML file."""
        v, planted = self.values, self["labels"] in PLANTED
        inside = {"activation": v["activation"]} if v["loss"] == "two_layer" else {}
        if self.trained:  # units that start alike would stay alike
            start = [1 / (unit + 1) for unit in range(self.units)] if self.units > 1 else 1.0
            inside["readout"] = {"name": "Trained", "start": start, "rate": v["readout_rate"]}
        penalty = {"name": _camel(v["penalty"]), "strength": v["lam"]}
        words: Words = {
            "loss": {"name": _camel(v["loss"])} | inside,
            "labels": LABELS.get(v["labels"], {"name": _camel(v["labels"])}),
            "penalty": {"name": "NoPenalty"} if v["penalty"] == "none" else penalty,
            "sample_ratio": v["delta"],
        }
        if planted and v["teacher"] == "sparse":
            words["teacher"] = {"name": "SparseNormal", "density": v["density"], "scale": v["density"] ** -0.5}
        elif planted:
            words["teacher"] = {"name": _camel(v["teacher"]), "scale": 1.0}
        if v["labels"] == "random_signs":
            words["noise"] = {"name": "Rademacher", "scale": 1.0}
        elif v["labels"] != "classes":
            words["noise"] = {"name": "Normal", "scale": v["sigma"]}
        words["init"] = {"name": "Normal", "scale": v["init"]} if v["init"] else {"name": "Point", "value": 0.0}
        if v["loss"] == "two_layer" or v["labels"] == "two_layer":
            words["width"] = self.units
            if planted:
                words["teacher_width"] = v["teacher_width"] if v["labels"] == "two_layer" else 1
        if v["data"] == "power_law":
            words["data"] = {"name": "PowerLaw", "exponent": v["exponent"]}
        if v["data"] == "mixture":
            words["data"] = {"name": "Mixture", "means": [v["separation"], -v["separation"]]}
        return words

    @property
    def algorithm(self) -> Words:
        """As in the table [algorithm] of a TOML file."""
        taken = {word: self[name] for name, word in ARGUMENTS.items() if matters(name, self.values)}
        parts: Words = {"clip": self["threshold"]} if self["clip"] != "none" else {}
        if self["momentum"] != "none":
            parts["momentum"] = {"name": "HeavyBall", "friction": self["friction"]}
        return {"name": ALGORITHMS[self["algorithm"]]} | taken | ({"step": {"name": "Step"} | parts} if parts else {})

    @property
    def theory_options(self) -> Words:
        """What `sl.solve` is told for the refined curves."""
        return self._shared | {"tol": float(self["tol"])} | self._averages

    @property
    def kernel_options(self) -> Words:
        """What `sl.solve` is told for kernels, which it does not have with momentum, and the law of the weights."""
        times = [share * self["t_max"] for share in SNAPSHOTS]
        samples = 16384 if self.units == 1 else 4096
        known = self["momentum"] == "none"
        return self._shared | {"samples": samples, "tol": ROUGH, "kernels": known, "snapshots": times}

    @property
    def runs_options(self) -> Words:
        """What `sl.simulate` is told for the runs."""
        return {"dim": self["dim"], "trials": self["trials"]} | self._shared | self._averages

    @property
    def _averages(self) -> Words:
        """Of the iterates, by name."""
        ema = {"name": "EMA", "rate": self["ema_rate"]}
        return {"averages": {"ema": ema}} if self["average"] == "ema" else {}

    @property
    def _shared(self) -> Words:
        """Last time and seed, and the step of algorithms that live in discrete time."""
        step = {"dt": self["dt"]} if matters("dt", self.values) else {}
        return {"t_max": self["t_max"], "seed": self["seed"]} | step


def _camel(word: str) -> str:
    """Words of the page as a name of the library: SmoothHinge for smooth_hinge."""
    return word.title().replace("_", "")


def matters(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a field has a meaning, given the others."""
    return all(values[other] in allowed for other, allowed in FIELDS[name].when.items())


def python(view: View) -> str:
    """A script: the same curves, kernels and runs to the last bit, and the picture."""
    problem = "".join(f"    {name}={_call(value)},\n" for name, value in view.problem.items())
    scales = {f"log_{axis}": True for axis in ("time", "value") if view[f"{axis}_axis"] == "log"}
    there = {"overlap": view["labels"] not in ("random_signs", "noise"), "readout": view.trained}
    shown = [name for name in view["curves"] if there.get(name, True)]
    drawing = ({"variables": shown} if shown else {}) | scales
    drawn = ["runs", "theory"]
    if view["average"] != "none":
        drawn += [f'{result}.averages["{view["average"]}"]' for result in drawn]
    drawn += [f"{name}={value!r}" for name, value in drawing.items()]
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
        f"sl.plot.learning_curves({', '.join(drawn)})",
    ]
    if view.kernel_options["kernels"]:
        lines.append(f'kernels.dataset["{view["kernel"]}"][:, :, 0, 0].plot(x="earlier")')
    return "\n".join(lines) + "\n"


def toml(view: View) -> str:
    """A problem file for `sgdlimit solve` and `sgdlimit simulate`."""
    run = view.runs_options | view.theory_options
    lines = ["# sgdlimit solve view.toml --output theory.nc; sgdlimit simulate view.toml --output runs.nc"]
    for name, words in {"problem": view.problem, "algorithm": view.algorithm, "run": run}.items():
        lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in words.items()), ""]
    return "\n".join(lines)


def _call(value: Any) -> str:
    """Words as a call of the library, or a dictionary of calls."""
    if not isinstance(value, dict):
        return repr(value)
    if "name" not in value:
        return "{" + ", ".join(f"{name!r}: {_call(part)}" for name, part in value.items()) + "}"
    inside = {name: part for name, part in value.items() if name != "name"}
    return f"sl.{value['name']}({_arguments(inside)})"


def _arguments(words: Words) -> str:
    return ", ".join(f"{name}={_call(value)}" for name, value in words.items())


def _value(value: Any) -> str:
    """Words as TOML, whose numbers, words and lists are those of JSON; tables are inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(part)}" for name, part in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
