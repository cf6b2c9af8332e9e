"""What notebooks show: the right formula of every model, set without error, and markup that holds nothing else."""

import math
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import jax
import language
import numpy as np
import pytest
from matplotlib.mathtext import MathTextParser
from problems import square

import sgdlimit as sl
from sgdlimit import describe, formulas, notebook
from sgdlimit.results import Variable

R, Y, THETA = 0.7, -1.3, 0.6
LOSSES = {
    "Square": (sl.Square(), "\\frac{1}{2}(r_i - y_i)^2", 0.5 * (R - Y) ** 2),
    "Logistic": (sl.Logistic(), "\\log(1 + e^{-y_i r_i})", math.log(1 + math.exp(-Y * R))),
    "Huber": (sl.Huber(1.5), "\\frac{1}{2}(r_i - y_i)^2\\ (|r_i - y_i| \\leq 1.5;", 1.5 * (R - Y) - 0.5 * 1.5**2),
    "Absolute": (sl.Absolute(), "|r_i - y_i|", R - Y),
    "Quantile": (sl.Quantile(0.8), "\\max(0.8(y_i - r_i),\\ 0.2(r_i - y_i))", 0.2 * (R - Y)),
    "Hinge": (sl.Hinge(), "\\max(0,\\ 1 - y_i r_i)", 1 - Y * R),
    "SmoothHinge": (
        sl.SmoothHinge(0.2),
        "0.2 \\log(1 + e^{(1 - y_i r_i) / 0.2})",
        0.2 * math.log(1 + math.exp((1 - Y * R) / 0.2)),
    ),
    "Exponential": (sl.Exponential(), "e^{-y_i r_i}", math.exp(-Y * R)),
    "Loss": (
        sl.Loss(language.student, parameters={"a": 2.0}),
        "\\mathrm{student}(r_i, y_i;\\ \\mathrm{a} = 2)",
        2 * math.log1p((R - Y) ** 2),
    ),
    "TwoLayer": (
        sl.TwoLayer(language.tanh, readout=0.5),
        "\\frac{1}{2}(\\hat{y}_i - y_i)^2",
        0.5 * (0.5 * math.tanh(R) - Y) ** 2,
    ),
}
PENALTIES = {
    "NoPenalty": (sl.NoPenalty(), "0", 0.0),
    "Ridge": (sl.Ridge(0.1), "\\frac{0.1}{2}|\\theta_j|^2", 0.05 * THETA**2),
    "L1": (sl.L1(0.3), "0.3|\\theta_j|", 0.3 * THETA),
    "SmoothL1": (sl.SmoothL1(0.3, 0.1), "0.3(\\sqrt{\\theta_j^2 + 0.1^2} - 0.1)", 0.3 * (math.hypot(THETA, 0.1) - 0.1)),
    "Quartic": (sl.Quartic(0.2), "\\frac{0.2}{4}\\theta_j^4", 0.05 * THETA**4),
    "Penalty": (sl.Penalty(language.coupled), "\\mathrm{coupled}(\\theta_j)", 0.15 * THETA**2),
}
ALGORITHMS = {
    "GradientFlow": (sl.GradientFlow(), ["\\frac{d\\theta}{dt} = -d\\,\\nabla F"]),
    "SGF": (sl.SGF(0.4), ["\\sqrt{\\tau / \\delta}", "dW_i", "\\tau = 0.4"]),
    "SGD": (sl.SGD(0.4, 10), ["\\eta = \\tau B = 4", "B = 10", "afresh"]),
    "ShuffledSGD": (sl.ShuffledSGD(0.4, 10), ["\\eta = \\tau B = 4", "reshuffled"]),
    "ProportionalSGD": (sl.ProportionalSGD(0.3), ["b = 0.3", "\\gamma"]),
    "PersistentSGD": (sl.PersistentSGD(0.3, 2.0), ["\\tau_p = 2", "Markov"]),
}
TAGS = {"strong", "div", "table", "tr", "th", "td", "pre", "svg", "title", "polyline", "polygon", "br"}


ATTRIBUTES = {"style", "class", "xmlns", "width", "height", "viewbox", "role", "aria-label"}
ATTRIBUTES |= {"points", "fill", "fill-opacity", "stroke", "stroke-width"}


class Markup(HTMLParser):
    """Collects tags and text, formulas apart from plain words, and checks that tags are closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.math, self.open = set(), set(), "", "", []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        self.open.append((tag, "mathjax_ignore" in (dict(attrs).get("class") or "")))

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {key for key, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
        if not any(plain for _, plain in self.open):
            self.math += data


def checked(shown):
    """Markup without scripts, links or handlers; its formulas are set by another program."""
    page = Markup(shown)
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    formulas_shown = page.math.split("$$")[1::2]
    for line in formulas_shown:
        MathTextParser("path").parse(f"${line}$")
    return page, formulas_shown


@pytest.mark.parametrize("name", [name for name in describe.models("loss") if name != "VectorField"])
def test_the_formula_of_a_loss_is_what_it_computes(name):
    """A number worked out by hand stands for the formula that is shown."""
    loss, shown, value = LOSSES[name]
    assert formulas.loss(describe.to_words(loss)).startswith(shown)
    assert float(loss(R, Y)) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("name", [name for name in describe.models("penalty") if name != "VectorField"])
def test_the_formula_of_a_penalty_is_what_it_computes(name):
    penalty, shown, value = PENALTIES[name]
    assert formulas.penalty(describe.to_words(penalty), 1) == shown
    assert float(penalty(THETA)) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("name", describe.models("algorithm"))
def test_every_algorithm(name):
    algorithm, parts = ALGORITHMS[name]
    page, shown = checked(algorithm._repr_html_())
    assert name in page.text
    for part in parts:
        assert part in "\n".join(shown)
    assert algorithm._repr_latex_().count("$$") == 2 * len(shown)


def test_every_model_has_a_formula():
    for room in ("loss", "labels", "penalty", "law", "schedule", "algorithm"):
        for cls in describe.models(room).values():
            assert cls.latex, cls


@pytest.mark.parametrize("turn", range(30))
def test_every_problem_of_the_language(turn):
    """Losses, labels, penalties, laws, schedules, data: in all combinations that the language draws from."""
    from hypothesis import HealthCheck, Phase, given, settings

    of = language.structure(turn)

    @settings(
        max_examples=1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(made=of.problem(2.0), algorithm=language.ALGORITHMS[of.algorithm])
    def show(made, algorithm):
        problem = made()
        page, shown = checked(problem._repr_html_())
        assert len(shown) >= 3
        assert shown[0].strip().startswith(("F(\\theta) = ", "\\frac{d\\theta}{dt} = "))
        assert type(problem.loss).__name__ in page.text
        assert checked(algorithm()._repr_html_())[1]
        if of.width == 1 and of.loss != "field":
            assert "<polyline" in problem._repr_html_()

    show()


def test_the_objective_in_full():
    words = describe.to_words(square(delta=2.5))
    assert formulas.problem(words) == [
        "F(\\theta) = \\frac{1}{n}\\sum_{i=1}^{n} \\frac{1}{2}(r_i - y_i)^2"
        " + \\frac{1}{d}\\sum_{j=1}^{d} \\frac{0.1}{2}|\\theta_j|^2",
        "r_i = \\theta^\\top x_i,\\quad r^*_i = \\theta^{*\\top} x_i,\\quad y_i = r^*_i + z_i,\\quad n = 2.5\\,d",
        "\\theta^*_j \\sim \\mathcal{N}(0, 1^2),\\quad z_i \\sim \\mathcal{N}(0, 0.3^2),\\quad \\theta^0_j = 0",
    ]  # fmt: skip
    erf = jax.scipy.special.erf
    network = sl.Problem(
        loss=sl.TwoLayer(erf), labels=sl.Sign(), sample_ratio=math.inf, teacher=sl.Normal(1.0), width=3, teacher_width=2
    )
    first, second, *_ = formulas.problem(describe.to_words(network))
    assert first == "F(\\theta) = \\mathrm{E}\\,\\frac{1}{2}(\\hat{y}_i - y_i)^2"
    assert "\\mathrm{sign}(\\sum_a r^*_{ia} + z_i)" in second
    assert second.endswith("n = \\infty")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.1, "0.1"), (1e-5, "10^{-5}"), (2.5e7, "2.5 \\cdot 10^{7}"), ("inf", "\\infty"), ([1.0, -1.0], "(1,\\, -1)")],
)
def test_numbers(value, shown):
    assert formulas.number(value) == shown


def test_results_show_their_curves():
    runs = sl.simulate(square(), sl.SGD(0.5, 4), dim=30, trials=4, t_max=1.0)
    for result in (runs, sl.least_squares(square(), sl.SGD(0.5), t_max=1.0)):
        page, shown = checked(result._repr_html_())
        assert shown[0].strip().startswith("F(\\theta)")
        assert result.title() in page.text
        assert result._repr_html_().count("<svg") == len(result.curves)
    # a band of one standard deviation: as high as the curve says
    time, half = np.linspace(0, 1, 5), np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    drawn = notebook.curve(time, [np.zeros(5)], "a", half)
    root = ElementTree.fromstring(drawn)
    ring = [tuple(map(float, pair.split(","))) for pair in root[1].get("points", "").split()]
    heights = [y for _, y in ring]
    assert (min(heights), max(heights)) == (notebook.EDGE, notebook.HEIGHT - notebook.EDGE)
    line = [tuple(map(float, pair.split(","))) for pair in root[2].get("points", "").split()]
    assert {y for _, y in line} == {notebook.HEIGHT / 2}
    assert (line[0][0], line[-1][0]) == (notebook.EDGE, notebook.WIDTH - notebook.EDGE)


def test_hostile_words_are_escaped():
    """A file may say anything: no markup, no formula command of its own."""
    evil = "<script>alert(1)</script>$$\\href{x}{y}"
    for problem in (
        {"name": "Problem", "loss": {"name": evil}, "sample_ratio": 2.0},
        {
            "loss": {"name": "Loss", "fn": {"function": evil, "source": evil}},
            "penalty": {"name": "Ridge", "strength": evil},
        },
        {
            "loss": {"name": "Loss", "fn": {"function": evil}},
            "penalty": {"name": "NoPenalty"},
            "labels": {"name": "Sign"},
            "sample_ratio": 2.0,
        },
        {"loss": 3, "penalty": [], "labels": None},
    ):
        about = {"problem": problem, "algorithm": {"name": "SGF", "temperature": evil}, "method": evil}
        result = sl.Solution(
            {"train_error": Variable(("time",), np.array([1.0, np.nan, 2.0]))}, {"time": np.arange(3.0)}, about
        )
        page = Markup(result._repr_html_())
        assert page.tags <= TAGS
        assert "<script" not in result._repr_html_()
        assert "href{" not in page.math
        assert "href{" in page.text
    assert formulas.name("a_$b\\c{d}") == "\\mathrm{a\\_b\\_c\\_d}"
    assert formulas.name("<lambda>") == "f"
    assert notebook.curve([0.0, 1.0], [[1.0, np.nan]], "x") == ""
    assert "&lt;b&gt;" in notebook.curve([0.0, 1.0], [[1.0, 2.0]], "<b>")
