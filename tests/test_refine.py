"""Adaptive refinement: fewer points for the same error, failures as boundaries, and the same points whoever asks."""

import numpy as np
import pytest
from problems import square
from scipy.interpolate import LinearNDInterpolator

import sgdlimit as sl
from sgdlimit.sweep.mesh import Mesh, Square
from sgdlimit.sweep.refine import Sampled, change, next_points, refined

UNIT = Square((0.0, 0.0), (1.0, 1.0), (False, False))
QUERIES = np.random.default_rng(0).random((5_000, 2))


def step(points):
    """From 0 to 1 across the line y = 0.3 + 0.4 x², within a twentieth of the square."""
    return (1 + np.tanh((points[:, 1] - 0.3 - 0.4 * points[:, 0] ** 2) / 0.02)) / 2


def exactly(function):
    return lambda points: (function(points), np.zeros(len(points)))


def mean_error(function, points):
    return np.mean(np.abs(LinearNDInterpolator(points, function(points))(QUERIES) - function(QUERIES)))


def grid(side):
    at = np.linspace(0, 1, side)
    return np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2)


def test_a_sharp_step_needs_several_times_fewer_points_than_a_grid():
    points = refined(exactly(step), UNIT, 100, 5, 8)
    assert len(points) == len(np.unique(points, axis=0)) == 100
    error = mean_error(step, points)
    # 20 × 20 points on a grid, four times as many, do worse; of the same number even more so
    assert error < mean_error(step, grid(20))
    assert error < mean_error(step, grid(10)) / 3
    # where they went: most lie near the line, which is a small part of the square
    away = np.abs(points[:, 1] - 0.3 - 0.4 * points[:, 0] ** 2)
    assert np.mean(away < 0.1) > 0.5


def test_a_plane_is_divided_evenly():
    points = refined(exactly(lambda p: p[:, 0] + p[:, 1]), UNIT, 81, 5, 8)
    areas = Mesh(points).areas
    assert areas.max() <= 4.01 * areas.min()
    assert areas.sum() == pytest.approx(1.0)


def test_failed_points_are_a_boundary_to_refine():
    def function(points):
        return np.where(points.sum(axis=1) > 1.3, np.nan, points[:, 0])

    points = refined(exactly(function), UNIT, 80, 5, 8)
    assert np.mean(np.abs(points.sum(axis=1) - 1.3) < 0.1) > 0.35  # 14 % of the square
    # far inside what fails nothing is looked for
    assert np.sum(points.sum(axis=1) > 1.5) < 10
    # all fail: it still ends
    assert len(refined(exactly(lambda p: np.full(len(p), np.nan)), UNIT, 40, 3, 8)) == 40


def test_noise_is_not_refined():
    """Values that differ by less than their errors do not change."""
    rng = np.random.default_rng(3)
    unit = grid(4)
    mesh = Mesh(unit)
    noise = 0.01 * rng.normal(size=len(unit))
    value = np.where(unit[:, 0] > 0.9, 1.0, 0.0) + noise
    found = change(Sampled(unit, value, np.full(len(unit), 0.03)), mesh.triangles)
    steep = (unit[mesh.triangles][:, :, 0] > 0.9).any(axis=1) & (unit[mesh.triangles][:, :, 0] < 0.9).any(axis=1)
    assert np.all(found[~steep] == 0)
    assert np.all(found[steep] > 0.8)


def test_values_that_span_decades_are_compared_by_their_logarithms():
    """10^(8x): in values all change is at the right end, in logarithms it is the same everywhere."""
    unit = grid(5)
    mesh = Mesh(unit)
    found = change(Sampled(unit, 10 ** (8 * unit[:, 0]), np.zeros(len(unit))), mesh.triangles)
    np.testing.assert_allclose(found, 0.25, rtol=1e-6)


def test_logarithmic_axes_are_divided_in_logarithms():
    """The step of above over a factor of 10⁴: as few points as on the square, but for the digits of a point."""
    wide = Square((0.01, 1.0), (100.0, 2.0), (True, False))
    seen = refined(exactly(lambda points: step(wide.unit(points))), wide, 100, 5, 8)
    assert seen[:, 0].min() == 0.01
    assert seen[:, 0].max() == 100.0
    assert mean_error(step, wide.unit(seen)) < 1.2 * mean_error(step, refined(exactly(step), UNIT, 100, 5, 8))


def test_more_points_extend_fewer_and_batches_of_one_are_no_worse():
    few, many = (refined(exactly(step), UNIT, count, 5, 8) for count in (61, 90))
    np.testing.assert_array_equal(few, many[:61])
    assert mean_error(step, refined(exactly(step), UNIT, 100, 5, 1)) < mean_error(step, grid(18))
    assert len(next_points(Sampled(grid(2), np.zeros(4), np.zeros(4)), 8)) == 1  # one side is shared by both


RANGES = {"sample_ratio": (0.5, 8.0), "temperature": ("linear", 0.1, 2.5)}
LEAST = {"kind": "least_squares", "t_max": 6.0}


def test_refinement_of_least_squares_finds_the_largest_stable_temperature(tmp_path):
    """λ = 0.5: least squares diverges above a temperature that is known for every δ."""
    from sgdlimit.exact.stability import largest_stable

    problem = square()
    found = sl.refine(problem, sl.SGF(0.5), over=RANGES, points=90, store=tmp_path / "store", **LEAST)
    dataset = found.dataset
    assert dataset["test_error"].dims == ("point", "time")
    assert dataset.sizes["point"] == 90
    limit = np.array([largest_stable(problem, float(ratio)) for ratio in dataset["sample_ratio"]])
    unstable = np.asarray(dataset["temperature"]) > limit
    assert np.array_equal(np.asarray(dataset["status"]) == "diverged", unstable)
    line = sl.critical_line(found, "status", "diverged", along="temperature", at=[1.0, 2.0, 4.0])
    exact = np.array([largest_stable(problem, ratio) for ratio in (1.0, 2.0, 4.0)])
    assert np.all(np.abs(line["temperature"] - exact) < 2 * line["temperature_interpolation_error"])


def test_refinement_goes_on_where_it_was(tmp_path, monkeypatch):
    words = {"over": RANGES, "start": 3, **LEAST}
    first = sl.refine(square(), sl.SGF(0.5), points=14, store=tmp_path / "store", **words)
    files = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    again = sl.refine(square(), sl.SGF(0.5), points=14, store=tmp_path / "store", **words)
    assert files.items() <= {p: p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file()}.items()
    more = sl.refine(square(), sl.SGF(0.5), points=20, store=tmp_path / "store", **words)
    bare = sl.refine(square(), sl.SGF(0.5), points=20, **words)
    for other, count in ((again, 14), (more, 14), (bare, 14)):
        for name in ("sample_ratio", "temperature", "test_error", "status"):
            np.testing.assert_array_equal(other.dataset[name][:count], first.dataset[name])
    np.testing.assert_array_equal(bare.dataset["test_error"], more.dataset["test_error"])


def test_refine_refuses_before_work():
    for words, wrong in (
        ({"over": {"sample_ratio": (0.5, 8.0)}}, "over: got 1 axes; give two axes"),
        ({"over": [1.0, 2.0]}, "over"),
        ({"over": {**RANGES, "temperature": (2.0, 1.0)}}, r"over\[temperature\].*below the second"),
        ({"over": {**RANGES, "temperature": ("log", 0.0, 1.0)}}, r"over\[temperature\].*positive"),
        ({"over": {**RANGES, "temperature": ("cubic", 0.1, 1.0)}}, r"over\[temperature\]"),
        ({"over": {**RANGES, "temperature": [0.1, "x"]}}, r"over\[temperature\]"),
        ({"over": {**RANGES, "temperature": "0.1 to 1"}}, r"over\[temperature\]"),
        ({"over": {"sample_ratio": (0.5, 8.0), "temprature": (0.1, 1.0)}}, "did you mean"),
        ({"points": 3}, "points"),
        ({"start": 1}, "start"),
        ({"batch": 0}, "batch"),
        ({"variable": 3}, "variable"),
    ):
        with pytest.raises(sl.InputError, match=wrong):
            sl.refine(square(), sl.SGF(0.5), **{"over": RANGES, "points": 9, **LEAST, **words})
