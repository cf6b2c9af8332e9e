"""Learning curves: what is drawn is what is in the arrays."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from problems import square

import sgdlimit as sl
from sgdlimit.results import Variable


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def flat(share, time=4, **about):
    """Two curves of height 1, the second with the given error."""
    t = np.arange(float(time))
    one = np.ones(time)
    variables = {n: Variable(("time",), one) for n in ("train_error", "test_error")}
    variables |= {
        f"{n}_stderr": Variable(("time",), e * one) for n, e in (("train_error", 0.01), ("test_error", share))
    }
    return sl.Solution(variables, {"time": t}, about)


def hatches(ax):
    return [band.get_hatch() for band in ax.collections if band.get_hatch()]


def words_of(ax):
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_bands_that_cannot_be_relied_on_are_hatched():
    train, test = sl.plot.learning_curves(flat(0.3))
    assert not hatches(train)
    assert hatches(test) == ["//"]
    (words,) = words_of(test)
    assert words.startswith("unreliable: error above 10 %")
    train, test = sl.plot.learning_curves(flat(0.01))
    assert not hatches(train) + hatches(test)
    assert not words_of(test)
    # a check of the whole result failed: no curve of it can be relied on
    train, test = sl.plot.learning_curves(flat(0.01, status="unreliable"))
    assert hatches(train) == hatches(test) == ["//"]
    assert words_of(train)[0] == "theory, unreliable"


def test_the_legend_says_how_a_result_ended():
    band = "band: ± two standard errors of the theory"
    assert words_of(sl.plot.learning_curves(flat(0.01, status="diverged"))[0]) == ["theory, diverged", band]
    assert words_of(sl.plot.learning_curves(flat(0.01))[0]) == ["theory", band]


def test_learning_curves_refuse():
    theory = flat(0.01)
    for wrong, words in (
        ([], "variables: .*name one or more"),
        (3, "variables: .*it must be a name"),
        ("tain_error", "variables: .*did you mean train_error\\? it has train_error, test_error"),
        (["train_error", "time"], "variables: got time.*along time"),
    ):
        with pytest.raises(sl.InputError, match=words):
            sl.plot.learning_curves(theory, variables=wrong)
    with pytest.raises(sl.InputError, match="results: got a result without times; diverged at once"):
        sl.plot.learning_curves(flat(0.01, time=0, status="diverged", message="diverged at once"))


def curve_of(shape, cls=sl.Solution, status="complete", trials=4, error=0.0, **about):
    """A result whose train_error and norm are the given function of time."""
    time = np.linspace(0.0, 4.0, 41)
    words = {"status": status, **about}
    if cls is sl.Runs:
        spread = 0.1 * np.arange(trials)[:, None]
        value = Variable(("trial", "time"), shape(time) + spread)
        return sl.Runs({"train_error": value}, {"time": time, "trial": np.arange(trials)}, words)
    variables = {"train_error": Variable(("time",), shape(time))}
    if np.any(error):
        variables["train_error_stderr"] = Variable(("time",), np.broadcast_to(error, time.shape))
    return sl.Solution(variables, {"time": time}, words)


def algorithm(name="SGD", temperature=0.5, **more):
    return {"name": name, "temperature": temperature, **more}


def one(*results, **words):
    (ax,) = sl.plot.learning_curves(*results, variables="train_error", **words)
    return ax


def named_lines(ax):
    return [line for line in ax.get_lines() if not line.get_label().startswith("_")]


def looks_of(ax):
    return [(line.get_color(), str(line.get_linestyle()), line._unscaled_dash_pattern) for line in named_lines(ax)]


def falling(t):
    return np.exp(-t)


def test_several_theories_are_told_apart():
    """By style as well as by colour: with and without runs, by method, law, problem and repetition."""
    runs = curve_of(falling, sl.Runs, algorithm=algorithm(batch_size=4), options={"dim": 100})
    theories = [
        curve_of(falling, method="DMFT", algorithm=algorithm()),
        curve_of(falling, method="DMFT", algorithm=algorithm("SGF")),
        curve_of(falling, method="DMFT", algorithm=algorithm("ShuffledSGD")),
        curve_of(falling, method="exact", algorithm=algorithm()),
        curve_of(falling, method="exact", algorithm=algorithm(), seed=1),
    ]
    for shown in ([runs, *theories[:4]], theories):
        ax = one(*shown)
        found = looks_of(ax)
        assert len({colour for colour, *_ in found}) == len(found)
        assert len({style for _, *style in map(list, found) for style in [str(style)]}) == len(found)
        labels = [line.get_label() for line in named_lines(ax)]
        assert len(set(labels)) == len(labels)
    assert [line.get_label().split(", τ")[0] for line in named_lines(ax)] == [
        "DMFT, law of SGD", "DMFT, law of SGF", "DMFT, law of ShuffledSGD", "exact", "exact (2)"
    ]  # fmt: skip


def test_several_runs_and_problems_are_told_apart():
    sizes = [
        curve_of(
            falling, sl.Runs, algorithm=algorithm(batch_size=4), options={"dim": dim}, problem={"sample_ratio": 2.0}
        )
        for dim in (100, 400)
    ]
    problems = [
        curve_of(falling, method="DMFT", algorithm=algorithm(), problem={"sample_ratio": ratio, "penalty": penalty})
        for ratio in (2.0, "inf")
        for penalty in ({"name": "Ridge", "strength": 0.1}, {"name": "NoPenalty"})
    ]
    lines = named_lines(one(*sizes))
    assert lines[0].get_color() != lines[1].get_color()
    assert lines[0].get_marker() != lines[1].get_marker()
    lines = named_lines(one(*problems))
    assert len({line.get_color() for line in lines}) == 4
    assert lines[0].get_label() == "DMFT, $\\delta$ = 2, penalty: Ridge, τ = 0.5"
    assert lines[3].get_label() == "DMFT, $\\delta$ = ∞, penalty: NoPenalty, τ = 0.5"


def test_one_ink_for_a_law_at_every_temperature():
    taus = (0.2, 0.5)
    runs = [curve_of(falling, sl.Runs, algorithm=algorithm(temperature=tau)) for tau in taus]
    laws = [curve_of(falling, algorithm=algorithm(name, tau)) for tau in taus for name in ("SGD", "SGF")]
    ax = one(*runs, *laws)
    inks = [line.get_color() for line in ax.get_lines()[2:]]
    assert inks[0] == inks[2] != inks[1] == inks[3]
    assert len({line.get_color() for line in ax.get_lines()}) == 4
    assert words_of(ax)[2:4] == ["theory, law of SGD", "theory, law of SGF"]  # once each


def test_the_legend_says_what_bands_are():
    runs = curve_of(falling, sl.Runs)
    words = words_of(one(runs, curve_of(falling, error=0.01)))
    assert words[2:] == ["band: ± one standard deviation of the runs", "band: ± two standard errors of the theory"]
    assert not any("band" in text for text in words_of(one(curve_of(falling))))  # exact
    ax = one(runs, curve_of(falling, error=0.01))
    low, high = (ax.collections[0].get_paths()[0].vertices[:, 1].min(), falling(4.0) + 0.15)
    assert low == pytest.approx(high - np.std(0.1 * np.arange(4), ddof=1))
    heights = np.ptp(ax.collections[1].get_paths()[0].vertices[:, 1])
    assert heights == pytest.approx(1 - falling(4.0) + 4 * 0.01)


def crosses_of(ax):
    return [line for line in ax.get_lines() if line.get_marker() == "x"]


def test_crosses_where_a_solution_is_unreliable():
    """On the whole curve if a check failed, even without a band; otherwise where the error is above 10 %."""
    (crosses,) = crosses_of(one(curve_of(falling, status="unreliable")))
    assert len(crosses.get_xdata()) >= 8
    np.testing.assert_allclose(crosses.get_ydata(), falling(crosses.get_xdata()))
    time = np.linspace(0.0, 4.0, 41)
    ax = one(curve_of(falling, error=np.where(time > 2, 0.2, 0.01)))
    (crosses,) = crosses_of(ax)
    assert crosses.get_xdata().min() > 2
    hatched = next(band for band in ax.collections if band.get_hatch())
    assert hatched.get_paths()[0].vertices[:, 0].min() > 2
    assert words_of(ax)[-1].startswith("unreliable")
    assert not crosses_of(one(curve_of(falling, error=0.05)))


SHAPES = {"falling": lambda t: 100.0**-t, "rising": lambda t: 1e-3 * 10.0**t, "hump": lambda t: np.exp(-((t - 2) ** 2))}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("log_time", [False, True])
@pytest.mark.parametrize("log_value", [False, True])
def test_legends_lie_on_no_curve(name, log_time, log_value):
    """Measured in pixels, by matplotlib's own intersection of paths and boxes."""
    curves = [curve_of(SHAPES[name], error=1e-3), curve_of(lambda t: 2 * SHAPES[name](t), method="another")]
    ax = one(*curves, log_time=log_time, log_value=log_value)
    ax.figure.draw_without_rendering()
    box = ax.get_legend().get_window_extent()
    for line in named_lines(ax):
        path = line.get_transform().transform_path(line.get_path())
        assert not path.intersects_bbox(box, filled=False)
    for band in ax.collections:
        for path in band.get_paths():
            assert not band.get_transform().transform_path(path).intersects_bbox(box, filled=True)
    everything = ax.figure.bbox
    assert everything.x0 <= box.x0 < box.x1 <= everything.x1
    assert everything.y0 <= box.y0 < box.y1 <= everything.y1


def test_a_legend_leaves_a_crowded_picture():
    waves = [curve_of(lambda t, k=k: np.sin(7 * t + k), method=f"method {k}") for k in range(6)]
    ax = one(*waves)
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().y0 >= ax.bbox.y1
    figure, titled = plt.subplots(layout="constrained")
    titled.set_title("a title")
    sl.plot.learning_curves(*waves, variables="train_error", axes=titled)
    figure.draw_without_rendering()
    assert titled.get_legend().get_window_extent().y0 >= titled.title.get_window_extent().y1
    _, mine = plt.subplots()  # no layout: it must stay inside
    one_of = sl.plot.learning_curves(*waves, variables="train_error", axes=mine)
    assert one_of is mine
    assert mine.get_legend().get_window_extent().y1 <= mine.bbox.y1


def test_own_data_are_not_named_by_a_function_of_ours():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 30)) / np.sqrt(30)
    real = sl.simulate_on_data(X, X[:, 0] + 0.1, sl.SGD(0.1), t_max=0.5, trials=2, progress=False)
    model = sl.least_squares(square(), sl.SGD(0.1), t_max=0.5)
    texts = [entry.get_text() for entry in sl.plot.learning_curves(real, model)[0].get_legend().get_texts()]
    assert not any("_own_label" in text for text in texts)
