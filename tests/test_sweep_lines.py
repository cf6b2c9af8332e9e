"""Critical lines and best times on diagrams whose answer is known in closed form."""

import numpy as np
import pytest
import xarray

import sgdlimit as sl
from sgdlimit.sweep.lines import best_time, critical_line
from sgdlimit.sweep.result import logarithmic, read

TIMES = np.linspace(0.0, 10.0, 41)


def made(function, ratios, temperatures, error=0.0, times=TIMES):
    """A diagram of test_error = function(δ, τ, t)."""
    ratio, tau, t = np.meshgrid(ratios, temperatures, times, indexing="ij")
    value = function(ratio, tau, t) + 0.0 * ratio
    axes = ("sample_ratio", "temperature")
    status = np.where(np.isfinite(value[:, :, -1]), "complete", "diverged")
    data = {
        "test_error": ((*axes, "time"), value),
        "test_error_stderr": ((*axes, "time"), np.full(value.shape, error)),
        "status": (axes, status),
        "reason": (axes, np.where(status == "diverged", "it grew", "")),
    }
    return xarray.Dataset(data, {"sample_ratio": ratios, "temperature": temperatures, "time": times})


def smooth(ratio, tau, t):
    """Crosses 1 at τ = δ/2 whatever t is."""
    return np.tanh(np.log(2 * tau / ratio)) + 1 + 0 * t


RATIOS, TEMPERATURES = np.array([0.5, 1.0, 2.0, 3.0]), np.geomspace(0.1, 3.0, 9)


def test_line_is_where_the_function_crosses():
    line = critical_line(made(smooth, RATIOS, TEMPERATURES), "test_error", 1.0, along="temperature")
    assert line["temperature"].dims == ("sample_ratio",)
    away = np.abs(line["temperature"] - RATIOS / 2)
    assert np.all(away <= 3 * line["temperature_interpolation_error"])
    assert np.all(line["temperature_interpolation_error"] < 0.05 * RATIOS)
    assert np.all(line["temperature_stderr"] == 0)
    assert np.all(line["crossings"] == 1)
    assert list(line["reason"].values) == [""] * 4
    assert line.attrs == {"along": "temperature", "line": "test_error = 1 at t = 10"}


def test_interpolation_error_falls_with_the_spacing_and_covers():
    """Twice as many points: the true and the estimated error both fall by half or more; few bars are too small."""
    ratios = np.linspace(0.4, 3.0, 40)
    worst, estimated = [], []
    for count in (8, 15, 29):
        line = critical_line(
            made(smooth, ratios, np.geomspace(0.1, 3.0, count)), "test_error", 1.0, along="temperature"
        )
        away = np.abs(np.asarray(line["temperature"]) - ratios / 2)
        bar = np.asarray(line["temperature_interpolation_error"])
        assert np.mean(away > 2 * bar + 1e-12) < 0.1
        worst.append(away.max())
        estimated.append(bar.mean())
    assert worst[0] > 2 * worst[1] > 4 * worst[2]
    assert estimated[0] > 2 * estimated[1] > 4 * estimated[2]


def test_standard_error_is_that_of_the_values_over_the_slope():
    """d log τ / d value = 1 at the crossing; checked against noisy copies of the diagram as well."""
    sigma = 0.02
    clean = made(smooth, RATIOS, TEMPERATURES, sigma)
    line = critical_line(clean, "test_error", 1.0, along="temperature")
    np.testing.assert_allclose(line["temperature_stderr"], sigma * RATIOS / 2, rtol=0.1)
    rng = np.random.default_rng(0)
    places = []
    for _ in range(80):
        # one shift a profile: errors that move together
        noisy = clean.assign(test_error=clean["test_error"] + sigma * rng.normal(size=(4, 1, 1)))
        places.append(np.asarray(critical_line(noisy, "test_error", 1.0, along="temperature")["temperature"]))
    # 80 copies know their spread to 8 %, the cubic its slope to 10 %
    ratio = np.asarray(line["temperature_stderr"]) / np.std(places, axis=0)
    assert np.all((ratio > 0.7) & (ratio < 1.4))


def test_points_without_a_crossing_say_so():
    def function(ratio, tau, t):
        return np.where(ratio < 0.7, 2.0, np.where(ratio < 1.5, np.nan, smooth(ratio, tau, t)))

    line = critical_line(made(function, RATIOS, TEMPERATURES), "test_error", 1.0, along="temperature")
    assert list(line["reason"].values) == ["always above the level", "no values", "", ""]
    assert list(np.isnan(line["temperature"].values)) == [True, True, False, False]
    assert list(line["crossings"].values) == [0, 0, 1, 1]
    far = critical_line(made(function, RATIOS, TEMPERATURES), "test_error", 5.0, along="temperature")
    assert far["reason"].values[-1] == "always below the level"


def test_failed_points_are_left_out_of_a_profile():
    gaps = made(smooth, RATIOS, TEMPERATURES)
    gaps["test_error"][2, 5:7] = np.nan  # the crossing of δ = 2, τ = 1 lies between these
    line = critical_line(gaps, "test_error", 1.0, along="temperature")
    assert abs(line["temperature"][2] - 1.0) < 3 * line["temperature_interpolation_error"][2]
    assert line["temperature_interpolation_error"][2] > line["temperature_interpolation_error"][1]


def test_a_jump_is_somewhere_between_two_points():
    """From 0.1 to 2.0 at τ = δ/2: the level is close to one end, but the place is not."""
    line = critical_line(
        made(lambda ratio, tau, t: np.where(tau > ratio / 2, 2.0, 0.1), RATIOS, TEMPERATURES), "test_error", 1.9,
        along="temperature",
    )  # fmt: skip
    bars = line["temperature_interpolation_error"]
    assert np.all(np.abs(line["temperature"] - RATIOS / 2) < 3 * bars)
    np.testing.assert_allclose(bars / line["temperature"], np.log(30) / 8 / np.sqrt(12))


def test_first_and_last_of_several_crossings():
    wave = made(lambda ratio, tau, t: np.sin(3 * tau) + 0 * t, RATIOS, np.linspace(0.2, 4.0, 40))
    first, last = (
        critical_line(wave, "test_error", 0.0, along="temperature", which=which) for which in ("first", "last")
    )
    np.testing.assert_allclose(first["temperature"], np.pi / 3, atol=1e-3)
    np.testing.assert_allclose(last["temperature"], np.pi, atol=1e-3)
    assert np.all(first["crossings"] == 3)


def test_boundary_of_divergence_lies_between_two_points():
    fails = made(lambda ratio, tau, t: np.where(tau > ratio / 2, np.nan, 1.0), RATIOS, TEMPERATURES)
    line = critical_line(fails, "status", "diverged", along="temperature")
    for ratio, place, bar in zip(
        RATIOS, line["temperature"].values, line["temperature_interpolation_error"].values, strict=True
    ):
        above = np.searchsorted(TEMPERATURES, ratio / 2)
        below, above = TEMPERATURES[above - 1], TEMPERATURES[above]
        assert place == pytest.approx(np.sqrt(below * above))
        assert bar == pytest.approx(place * np.log(above / below) / np.sqrt(12))
    assert critical_line(fails, "status", "failed", along="temperature")["reason"].values[0] == "no point"


def test_lines_refuse():
    diagram = made(smooth, RATIOS, TEMPERATURES)
    for words, wrong in (
        ({"along": "temprature"}, "along: .*did you mean temperature"),
        ({"variable": "tset_error"}, "variable: .*did you mean test_error"),
        ({"level": "high"}, "level: .*number"),
        ({"which": "second"}, "which"),
        ({"time": 11.0}, "time: .*within 0 … 10"),
        ({"time": "final"}, 'time: .*"last" or "best"'),
    ):
        given = {"variable": "test_error", "level": 1.0, "along": "temperature", **words}
        with pytest.raises(sl.InputError, match=wrong):
            critical_line(diagram, **given)
    with pytest.raises(sl.InputError, match=r"sweep: .*it must be a Sweep"):
        critical_line(3, "test_error", 1.0, along="temperature")
    with pytest.raises(sl.InputError, match="two or more different finite numbers"):
        critical_line(diagram.isel(temperature=[0]), "test_error", 1.0, along="temperature")
    with pytest.raises(sl.InputError, match="how its points ended"):
        critical_line(diagram.drop_vars("status"), "status", "diverged", along="temperature")


def test_a_reading_is_the_value_at_a_time():
    diagram = made(lambda ratio, tau, t: ratio + tau * t, RATIOS, TEMPERATURES, error=0.1)
    for time, at in ((None, 10.0), ("last", 10.0), (2.5, 2.5), (3.3, 3.3), (0.0, 0.0)):
        value, error, _ = read(diagram, "test_error", time)
        np.testing.assert_allclose(value, RATIOS[:, None] + TEMPERATURES * at)
        np.testing.assert_allclose(error, 0.1)
    np.testing.assert_allclose(read(diagram, "test_error", "best")[0], RATIOS[:, None] + 0 * TEMPERATURES)


def test_all_errors_count_and_one_entry_of_a_matrix_is_read():
    diagram = made(lambda ratio, tau, t: 1 + 0 * t, RATIOS, TEMPERATURES, error=0.3)
    both = diagram.assign(test_error_step_error=0 * diagram["test_error"] + 0.4)
    np.testing.assert_allclose(read(both, "test_error")[1], 0.5)
    values = np.arange(3 * 2 * 4 * 2.0).reshape(3, 2, 4, 2)
    units = xarray.Dataset({"mean": (("sample_ratio", "temperature", "time", "student"), values)})
    np.testing.assert_array_equal(read(units, "mean", entry=(1,))[0], values[:, :, -1, 1])
    for wrong in (2, (), (0.5,)):
        with pytest.raises(sl.InputError, match="entry"):
            read(units, "mean", entry=wrong)
    with pytest.raises(sl.InputError, match=r"variable: .*it has trial"):
        read(units.rename(student="trial"), "mean")


def test_best_time_of_a_known_curve():
    """e^{−t} + t/(20δ): lowest at t = log 20δ."""
    function = lambda ratio, tau, t: np.exp(-t) + t / (20 * ratio) + tau  # noqa: E731
    best = best_time(made(function, RATIOS, TEMPERATURES, error=1e-3))
    exact = np.log(20 * RATIOS)[:, None] + 0 * TEMPERATURES
    value = (1 + np.log(20 * RATIOS)[:, None]) / (20 * RATIOS[:, None]) + TEMPERATURES
    away = np.abs(best["best_time"] - exact)
    assert np.all(away < 3 * best["best_time_interpolation_error"] + 1e-3)
    assert np.all(best["best_time_interpolation_error"] < 0.05)
    np.testing.assert_allclose(best["test_error"], value, atol=2e-4)
    # f'' = 1/(20δ) at the minimum: within σ of it for |t − t*| < √(2σ/f'')
    np.testing.assert_allclose(best["best_time_stderr"], np.sqrt(2e-3 * 20 * RATIOS)[:, None] + 0 * exact, rtol=0.25)
    assert np.all(best["status"] == "complete")
    # and it is a diagram again
    line = critical_line(best, "best_time", 3.0, along="sample_ratio")
    np.testing.assert_allclose(line["sample_ratio"], np.exp(3) / 20, rtol=0.03)


def test_best_time_at_the_ends_and_without_curves():
    falls = best_time(
        made(lambda ratio, tau, t: np.where(ratio < 0.7, np.nan, -t * (ratio - 1.5)), RATIOS, TEMPERATURES)
    )
    assert list(falls["status"].values[:, 0]) == [
        "diverged",
        "lowest at the start",
        "lowest at the last time",
        "lowest at the last time",
    ]
    np.testing.assert_array_equal(falls["best_time"].values[:, 0], [np.nan, 0.0, 10.0, 10.0])
    # a curve that ends early has the best time of what there is of it
    curve = made(lambda ratio, tau, t: np.where(t > 6, np.nan, (t - 4) ** 2), RATIOS, TEMPERATURES)
    np.testing.assert_allclose(best_time(curve)["best_time"], 4.0)
    assert np.all(best_time(curve)["status"] == "diverged")
    with pytest.raises(sl.InputError, match="three or more times"):
        best_time(made(smooth, RATIOS, TEMPERATURES).isel(time=-1))


def test_axes_that_are_spaced_geometrically():
    assert logarithmic(np.geomspace(0.5, 8, 9))
    assert logarithmic([1, 2, 4, 8, 16])
    assert not logarithmic(np.linspace(0.5, 8, 9))
    assert not logarithmic([1.0, 1.5, 2.25, 3.4])  # too narrow to matter
    assert not logarithmic([-1.0, 1.0, 10.0])
    assert not logarithmic(["a", "b", "c"])
    assert not logarithmic([1.0, 10.0, np.inf])
    assert logarithmic([1.0, 2.0], "log")
    assert not logarithmic(np.geomspace(0.5, 8, 9), "linear")
