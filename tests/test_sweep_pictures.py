"""Phase diagrams and lines: what is drawn is what is in the arrays."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm

import sgdlimit as sl
from sgdlimit.sweep.lines import critical_line

RATIOS, TEMPERATURES, TIMES = np.geomspace(0.5, 8.0, 5), np.linspace(0.1, 1.0, 4), np.linspace(0.0, 4.0, 9)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def diagram():
    ratio, tau, t = np.meshgrid(RATIOS, TEMPERATURES, TIMES, indexing="ij")
    value = 0.2 / ratio + tau + (t - 2) ** 2 / 10
    status = np.full((5, 4), "complete", dtype="<U20")
    reason = np.full((5, 4), "", dtype="<U20")
    value[0, 3] = value[1, 3] = value[4, 0] = np.nan
    status[:2, 3], reason[0, 3], reason[1, 3] = "diverged", "at t = 1", "at t = 2"
    status[4, 0], reason[4, 0] = "failed", "out of memory"
    axes = ("sample_ratio", "temperature")
    data = {
        "test_error": ((*axes, "time"), value),
        "test_error_stderr": ((*axes, "time"), np.full(value.shape, 0.01)),
        "train_error": ((*axes, "time"), value / 2),
        "status": (axes, status),
        "reason": (axes, reason),
    }
    return xarray.Dataset(data, {"sample_ratio": RATIOS, "temperature": TEMPERATURES, "time": TIMES})


def mesh_of(ax):
    (mesh,) = (c for c in ax.collections if isinstance(c, QuadMesh))
    return mesh


def words_of(ax):
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def marks(ax):
    lines = (line for line in ax.get_lines() if not line.get_label().startswith("_"))
    return {line.get_label(): np.asarray(line.get_xydata()) for line in lines}


@pytest.mark.parametrize(
    ("time", "index", "words"),
    [(None, -1, "at $t$ = 4"), ("last", -1, "at $t$ = 4"), (1.0, 2, "at $t$ = 1"), ("best", 4, "lowest along time")],
)
def test_cells_are_the_values(diagram, time, index, words):
    ax = sl.plot.phase_diagram(diagram, "test_error", time=time)
    shown = mesh_of(ax).get_array()
    assert isinstance(shown, np.ma.MaskedArray)
    expected = diagram["test_error"].isel(time=index).values.T
    np.testing.assert_array_equal(shown.mask, np.isnan(expected))
    np.testing.assert_allclose(shown.filled(0), np.nan_to_num(expected))
    assert mesh_of(ax).colorbar.ax.get_ylabel() == f"test error  ({words})"
    assert ax.get_xlabel() == "samples per dimension  $\\delta = n/d$"
    assert ax.get_ylabel() == "temperature  $\\tau = \\eta/B$"
    # the cell of a point holds the point
    edges = np.asarray(mesh_of(ax).get_coordinates())[0, :, 0]
    assert np.all((edges[:-1] < RATIOS) & (edges[1:] > RATIOS))


def test_scales_follow_the_values(diagram):
    ax = sl.plot.phase_diagram(diagram, "test_error")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert not isinstance(mesh_of(ax).norm, LogNorm)
    wide = diagram.assign(test_error=diagram["test_error"] ** 12)
    assert isinstance(mesh_of(sl.plot.phase_diagram(wide, "test_error")).norm, LogNorm)
    assert not isinstance(mesh_of(sl.plot.phase_diagram(wide, "test_error", log_value=False)).norm, LogNorm)
    ax = sl.plot.phase_diagram(diagram, "test_error", x="temperature", limits=(0.0, 3.0))
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    assert mesh_of(ax).get_clim() == (0.0, 3.0)


def test_failures_are_marked_by_their_word(diagram):
    ax = sl.plot.phase_diagram(diagram, "test_error")
    assert words_of(ax) == ["diverged", "failed: out of memory"]  # a reason that all have in common
    found = marks(ax)
    np.testing.assert_allclose(found["diverged"], [[RATIOS[0], 1.0], [RATIOS[1], 1.0]])
    np.testing.assert_allclose(found["failed: out of memory"], [[RATIOS[4], 0.1]])
    assert ax.patch.get_hatch()
    fine = diagram.isel(sample_ratio=slice(2, 4))
    assert words_of(sl.plot.phase_diagram(fine, "test_error")) == []


def test_contours_are_at_their_values(diagram):
    def levels(ax):
        return [c.levels for c in ax.collections if type(c).__name__ == "QuadContourSet"]

    (found,) = levels(sl.plot.phase_diagram(diagram, "test_error", contours=[1.0, 0.7]))
    np.testing.assert_array_equal(found, [0.7, 1.0])
    assert levels(sl.plot.phase_diagram(diagram, "test_error", contours=0)) == []
    (found,) = levels(sl.plot.phase_diagram(diagram, "test_error"))
    assert 2 <= len(found) <= 6


def test_words_and_infinite_values_have_places(diagram):
    worded = diagram.assign_coords(sample_ratio=[0.5, 1.0, 2.0, 4.0, np.inf], temperature=["a", "b", "c", "d"])
    ax = sl.plot.phase_diagram(worded, "test_error")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.5", "1", "2", "4", "∞"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c", "d"]
    np.testing.assert_allclose(marks(ax)["failed: out of memory"], [[4, 0]])
    # and so have lines over them
    words = diagram.assign_coords(sample_ratio=list("abcde"))
    line = critical_line(words, "test_error", 1.0, along="temperature")
    ax = sl.plot.phase_diagram(words, "test_error", lines={"critical": line})
    np.testing.assert_array_equal(marks(ax)["critical"][:, 0], range(5))


def test_an_axis_in_any_order(diagram):
    back = sl.plot.phase_diagram(diagram.isel(sample_ratio=slice(None, None, -1)), "test_error")
    there = sl.plot.phase_diagram(diagram, "test_error")
    np.testing.assert_array_equal(mesh_of(back).get_array(), mesh_of(there).get_array())
    np.testing.assert_array_equal(mesh_of(back).get_coordinates(), mesh_of(there).get_coordinates())
    np.testing.assert_allclose(marks(back)["failed: out of memory"], marks(there)["failed: out of memory"])


def test_line_and_band_lie_on_the_diagram(diagram):
    line = critical_line(diagram, "test_error", 1.0, along="temperature")
    assert np.isfinite(line["temperature"]).sum() == 5
    bars = 2 * np.hypot(line["temperature_stderr"].values, line["temperature_interpolation_error"].values)
    for x in ("sample_ratio", "temperature"):
        ax = sl.plot.phase_diagram(diagram, "test_error", x=x, lines={"critical": line})
        assert words_of(ax)[-2:] == ["critical", "band: ± two standard errors"]
        xy = marks(ax)["critical"]
        ratio, tau = xy.T if x == "sample_ratio" else xy.T[::-1]
        np.testing.assert_allclose(ratio, RATIOS)
        np.testing.assert_allclose(tau, line["temperature"])
        (band,) = (c for c in ax.collections if type(c).__name__ == "FillBetweenPolyCollection")
        corners = np.asarray(band.get_paths()[0].vertices)[:, 1 if x == "sample_ratio" else 0]
        assert corners.max() == pytest.approx((line["temperature"].values + bars).max())
        assert corners.min() == pytest.approx((line["temperature"].values - bars).min())
    ax = sl.plot.critical_line(line)
    assert (ax.get_xlabel()[:7], ax.get_ylabel()[:11], ax.get_xscale()) == ("samples", "temperature", "log")
    alone = sl.plot.phase_diagram(diagram, "test_error", lines=line)
    assert words_of(alone)[-2] == "test error = 1 at $t$ = 4"


def test_scattered_points_are_joined_to_triangles():
    rng = np.random.default_rng(0)
    points = np.concatenate([[[0.5, 0.1], [8.0, 0.1], [0.5, 1.0], [8.0, 1.0]], np.empty((60, 2))])
    points[4:, 0], points[4:, 1] = np.exp(rng.uniform(np.log(0.5), np.log(8.0), 60)), rng.uniform(0.1, 1.0, 60)
    value = 2 * np.log(points[:, 0]) + points[:, 1]  # linear in the square of the diagram: drawn without error
    dataset = xarray.Dataset(
        {"test_error": ("point", value), "status": ("point", np.full(64, "complete"))},
        {"sample_ratio": ("point", points[:, 0], {"scale": "log"}), "temperature": ("point", points[:, 1])},
    )
    mesh = mesh_of(sl.plot.phase_diagram(dataset, "test_error"))
    edges = np.asarray(mesh.get_coordinates())
    x, y = (
        np.exp(np.log(edges[0, :, 0])[:-1] + np.diff(np.log(edges[0, :, 0])) / 2),
        (edges[1:, 0, 1] + edges[:-1, 0, 1]) / 2,
    )
    np.testing.assert_allclose(mesh.get_array(), 2 * np.log(x) + y[:, None], atol=1e-9)
    # a point that failed leaves a hole in the triangles around it
    dataset["test_error"][4] = np.nan
    dataset["status"][4] = "diverged"
    ax = sl.plot.phase_diagram(dataset, "test_error")
    assert 0.01 < np.ma.getmaskarray(mesh_of(ax).get_array()).mean() < 0.2
    np.testing.assert_allclose(marks(ax)["diverged"], [points[4]])


def test_phase_diagram_refuses(diagram):
    third = diagram.expand_dims(strength=[0.1, 0.2])
    for dataset, words, wrong in (
        (diagram, {"variable": "tset_error"}, "variable: .*did you mean test_error"),
        (diagram, {"x": "ratio"}, "x: .*it has sample_ratio, temperature"),
        (diagram, {"x": "temperature", "y": "temperature"}, "two different"),
        (diagram, {"time": 9.0}, "time"),
        (diagram, {"contours": -1}, "contours"),
        (diagram, {"limits": (2.0, 1.0)}, "limits"),
        (diagram, {"limits": 3.0}, "limits"),
        (diagram, {"contours": ["a"]}, "contours: .*numbers"),
        (diagram, {"lines": 3}, "lines"),
        (diagram, {"lines": {"mine": diagram}}, "lines: .*sl.critical_line"),
        (diagram.isel(temperature=0, drop=True), {}, "sweep: .*needs two"),
        (third, {"x": "sample_ratio", "y": "temperature"}, "select one value of strength"),
        (diagram.assign(test_error=diagram["test_error"] * np.nan), {}, "no point has a value"),
    ):
        with pytest.raises(sl.InputError, match=wrong):
            sl.plot.phase_diagram(dataset, **{"variable": "test_error", **words})
    line = critical_line(third, "test_error", 1.0, along="temperature")
    with pytest.raises(sl.InputError, match="line over 2 axes"):
        sl.plot.phase_diagram(diagram, "test_error", lines=line)
    with pytest.raises(sl.InputError, match=r"lines: .*it runs over"):
        sl.plot.phase_diagram(third.isel(temperature=0), "test_error", lines=line.isel(strength=0))


def test_blocks_of_the_page_on_phase_diagrams_run(tmp_path, monkeypatch):
    page = Path(__file__).parent.parent / "docs" / "phase_diagrams.md"
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    assert len(found) > 4
    namespace: dict = {}
    for block in found:
        exec(compile(block, page.name, "exec"), namespace)
