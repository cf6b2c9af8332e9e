"""Results: labels, provenance, files that load or say why not, comparison, plots."""

import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from scipy import stats

import sgdlimit as sl
from sgdlimit.results import Variable
from sgdlimit.results.variables import (
    AXES,
    BESIDE,
    TABLE,
    Estimate,
    dims,
    meaning,
    ordered,
    over_replicas,
    reserved,
    total_error,
    widening,
)
from sgdlimit.results.variables import estimated as variables


@pytest.fixture(scope="module")
def pair():
    problem = sl.Problem(
        loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
    )
    theory = sl.least_squares(problem, sl.SGD(0.5), t_max=2.0, kernels=True)
    runs = sl.simulate(problem, sl.SGD(0.5, batch_size=2), dim=100, trials=4, t_max=2.0, seed=3)
    return theory, runs


def test_variables_and_dimensions_are_those_of_the_interface(pair):
    theory, runs = pair
    for name in ("train_loss", "test_loss", "train_error", "test_error"):
        assert theory.dataset[name].dims == ("time",)
        assert set(runs.dataset[name].dims) == {"trial", "time"}
    assert theory.dataset["overlap"].dims == ("time", "student", "teacher")
    assert set(runs.dataset["norm"].dims) == {"trial", "time", "student", "student_"}
    for name in ("C_theta", "R_theta", "R_ell"):
        assert theory.dataset[name].dims == ("time", "earlier", "student", "student_")
    assert runs.dataset.sizes["trial"] == 4
    assert "ηk/d" in theory.dataset["time"].attrs["long_name"]
    assert all(v.attrs["long_name"] for v in runs.dataset.data_vars.values())


def test_every_variable_has_the_axes_and_the_meaning_of_the_table(pair):
    theory, runs = pair
    for name, variable in theory.variables.items():
        assert variable.dims == dims(name)
    for name, variable in runs.variables.items():
        assert variable.dims == ("trial", *dims(name))
    assert "theta" in runs.variables
    for result in pair:
        names = [name for name in result.variables if "time" in dims(name)]
        assert names == ordered(reversed(names))
        assert all(result.dataset[name].attrs["long_name"] == meaning(name) for name in result.variables)
    assert all(dim in AXES for entry in TABLE.values() for dim in entry.dims)


def test_names_beside_a_variable():
    assert dims("norm_step_error") == dims("norm")
    assert dims("norm_replicas") == ("replica", "time", "student", "student_")
    assert dims("train_margin") == ("time",)
    assert meaning("norm_projection_error") == "estimated error of norm from the projection of the memory"
    assert meaning("margin") == "margin"
    assert ordered(["margin", "norm", "angle", "train_loss"]) == ["train_loss", "norm", "margin", "angle"]
    taken = {*TABLE, *AXES, "loss", "error", "test_margin", *(f"margin{ending}" for ending in BESIDE)}
    assert all(map(reserved, taken))
    assert not reserved("margin")


def test_the_error_of_a_curve_is_everything_uncertain_together():
    """3-4-12-84-85: errors add in squares, those that are missing not at all; copies tell only the Monte Carlo part."""
    one = np.ones((2, 1, 1))
    estimate = Estimate(one, 3 * one, 4 * one, 12 * one, 84 * one, np.stack([one, one]))
    coords = {"time": np.arange(2.0)}
    made = variables("norm", estimate)
    assert set(made) == {"norm", *(f"norm{ending}" for ending in BESIDE)}
    assert all(variable.dims == dims(name) for name, variable in made.items())
    solution = sl.Solution(made, coords)
    np.testing.assert_allclose(solution.curve("norm")[1], 85.0)
    np.testing.assert_allclose(solution.systematic("norm"), np.sqrt(7216))
    assert "norm_projection_error" not in repr(solution)
    np.testing.assert_allclose(sl.compare(solution, solution).variables["norm"].stderr, 85 * np.sqrt(2))
    bare = sl.Solution(variables("norm", Estimate(one, 3 * one)), coords)
    assert set(bare.variables) == {"norm", "norm_stderr"}
    np.testing.assert_allclose(bare.curve("norm")[1], 3.0)
    np.testing.assert_allclose(bare.systematic("norm"), 0.0)


def test_three_standard_errors_cover_as_three_sigma_whatever_the_replicas():
    for count in (2, 4, 8, 64):
        assert stats.t.cdf(3 * widening(count), count - 1) == pytest.approx(stats.norm.cdf(3), abs=1e-9)
    assert widening(10**6) == pytest.approx(1.0, rel=1e-4)
    values = np.random.default_rng(0).standard_normal((8, 5, 2))
    mean, error = over_replicas(values)
    np.testing.assert_allclose(mean, values.mean(axis=0))
    np.testing.assert_allclose(error, widening(8) * stats.sem(values, axis=0))
    with np.errstate(over="raise"):  # what diverges has a spread, too
        _, huge = over_replicas(1e200 * values)
    np.testing.assert_allclose(huge, 1e200 * error)


def test_save_and_load(pair, tmp_path):
    for result in pair:
        path = result.save(tmp_path / "run.nc", overwrite=True)
        back = sl.load(path)
        assert type(back) is type(result)
        assert back.about == json.loads(json.dumps(result.about))
        for name, variable in result.variables.items():
            assert back.variables[name].dims == variable.dims
            np.testing.assert_array_equal(back[name], variable.values)
        assert back.problem == result.problem
        assert back.problem.penalty == sl.Ridge(0.1)
        assert back.algorithm == result.algorithm
        assert repr(back) == repr(result)
        assert not list(tmp_path.glob(".*part"))
    plain = xarray.open_dataset(tmp_path / "run.nc", engine="h5netcdf")
    about = json.loads(plain.attrs["sgdlimit_about"])
    assert about["seed"] == 3
    assert about["sgdlimit_version"] == sl.__version__
    assert about["options"]["dim"] == 100
    assert about["problem"]["loss"]["name"] == "Square"


def test_a_users_function_is_kept_as_source(tmp_path):
    problem = sl.Problem(
        loss=sl.Loss(lambda r, y: jnp.cosh(r - y)), sample_ratio=math.inf, teacher=sl.Normal(1.0), labels=sl.Linear()
    )
    solution = sl.online(problem, sl.SGD(0.2), times=[0.0, 0.5], samples=64)
    back = sl.load(solution.save(tmp_path / "run.nc"))
    assert "jnp.cosh(r - y)" in back.about["problem"]["loss"]["fn"]["source"]
    assert back.problem is None  # words cannot bring a function back
    assert back.algorithm == sl.SGD(0.2)
    assert "inf" in repr(back)


def test_network_problem_survives_the_file(tmp_path):
    problem = sl.Problem(
        loss=sl.TwoLayer(jax.scipy.special.erf, readout=(1.0, -1.0)),
        labels=sl.TwoLayerLabels(jnp.tanh),
        sample_ratio=2.0,
        teacher=sl.SparseNormal(0.3, 2.0),
        init=sl.Point([0.1, 0.2]),
        width=2,
        teacher_width=3,
        schedule=sl.CosineDecay(4.0),
    )
    runs = sl.simulate(problem, sl.SGF(0.2), dim=20, trials=2, t_max=0.2)
    assert sl.load(runs.save(tmp_path / "run.nc")).problem == problem


@pytest.mark.parametrize("start", [0.5, [0.5, 0.2]])
def test_trained_parameters_survive_the_file_with_the_axes_that_they_have(tmp_path, start):
    network = sl.TwoLayer("erf", readout=sl.Trained(start), output_bias=sl.Trained(0.1))
    problem = sl.Problem(loss=network, sample_ratio=2.0, teacher=sl.Normal(1.0), init=sl.Normal(0.5), width=2)
    ema = {"ema": sl.EMA(10.0)}
    runs = sl.simulate(problem, sl.SGD(0.2), dim=40, trials=2, t_max=0.2, averages=ema)
    theory = sl.solve(problem, sl.SGD(0.2), t_max=0.2, averages=ema, samples=512, replicas=4, tol=0.5, progress=False)
    for result in (runs, theory):
        back = sl.load(result.save(tmp_path / "run.nc", overwrite=True))
        for name in ("readout", "ema.readout", "output_bias"):
            assert back.variables[name].dims == result.variables[name].dims
            np.testing.assert_array_equal(back[name], result[name])


@pytest.mark.parametrize("kind", ["missing", "text", "foreign", "truncated", "later", "folder", "mangled"])
def test_files_that_are_not_results(pair, tmp_path, kind):
    path = tmp_path / "x.nc"
    words = {"missing": "no such file", "folder": "no such file"}
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("time,train\n0,1\n")
    elif kind == "foreign":
        xarray.Dataset({"a": ("x", [1.0, 2.0])}).to_netcdf(path, engine="h5netcdf")
    elif kind == "truncated":
        content = pair[1].save(path).read_bytes()
        path.write_bytes(content[: len(content) // 2])
    elif kind == "later":
        pair[0].dataset.assign_attrs(
            sgdlimit_kind="solution", sgdlimit_format=99, sgdlimit_version="9.0", sgdlimit_about="{}"
        ).to_netcdf(path, engine="h5netcdf")
    elif kind == "mangled":
        pair[0].dataset.assign_attrs(sgdlimit_kind="solution", sgdlimit_format=1, sgdlimit_about="{").to_netcdf(
            path, engine="h5netcdf"
        )
    words |= {"mangled": "damaged"}
    words |= {"text": "not a netCDF-4", "foreign": "not an sgdlimit result", "truncated": "truncated", "later": "9.0"}
    with pytest.raises(sl.InputError, match=words[kind]) as caught:
        sl.load(path)
    assert "\n" not in str(caught.value)


def test_saving_into_nowhere(pair, tmp_path):
    with pytest.raises(sl.InputError, match="folder"):
        pair[0].save(tmp_path / "no" / "run.nc")
    with pytest.raises(sl.InputError, match="folder"):
        pair[0].save(tmp_path)


def test_repr_reads_well(pair):
    theory, runs = pair
    assert "Volterra" in repr(theory)
    assert "Ridge(strength=0.1)" in repr(theory)
    assert "4 trials, dim=100, samples=200" in repr(runs)
    assert "±" in repr(runs)
    assert "<table" in runs._repr_html_()


def test_markup_in_a_file_is_no_markup_in_a_notebook(pair):
    theory = pair[0]
    about = {**theory.about, "method": "<script>a</script>", "message": "<b onclick='x'>", "algorithm": {"name": "<i>"}}
    shown = sl.Solution(theory.variables, theory.coords, about)._repr_html_()
    assert not re.search("<(?!/?(table|tr|th|td|strong)>)", shown)
    assert "&lt;script&gt;" in shown


def synthetic(kind, mean, spread=0.0, trials=400, seed=0, time=None):
    """A result with known mean and error."""
    time = np.linspace(0, 1, 5) if time is None else time
    rng = np.random.default_rng(seed)
    if kind is sl.Runs:
        values = mean(time) + spread * rng.standard_normal((trials, len(time)))
        return sl.Runs({"train_loss": Variable(("trial", "time"), values)}, {"time": time, "trial": np.arange(trials)})
    variables = {"train_loss": Variable(("time",), mean(time))}
    if spread:
        variables["train_loss_stderr"] = Variable(("time",), np.full(len(time), spread))
    return sl.Solution(variables, {"time": time})


def test_compare_in_units_of_the_combined_error():
    runs = synthetic(sl.Runs, lambda t: 10 + 0 * t, spread=2.0)  # error 2/√400 = 0.1
    theory = synthetic(sl.Solution, lambda t: 10.5 + 0 * t, spread=0.2)
    report = sl.compare(runs, theory)
    expected = (runs["train_loss"].mean(axis=0) - 10.5) / np.hypot(runs["train_loss"].std(axis=0, ddof=1) / 20, 0.2)
    np.testing.assert_allclose(report["train_loss"].z, expected, rtol=1e-6)
    assert report.largest == pytest.approx(np.abs(expected).max(), rel=1e-6)
    assert report.agrees(4)
    assert not report.agrees(1)
    assert "train_loss" in repr(report)
    swapped = sl.compare(theory, runs)
    np.testing.assert_allclose(swapped["train_loss"].z, -report["train_loss"].z)


def test_few_trials_know_their_error_poorly():
    """|z| = 5 among 3 degrees of freedom is a deviation of about 2.4 sigmas: two-sided tail 0.015."""
    time = np.array([0.0, 1.0])
    values = np.array([[-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0], [1.0, 1.0]])  # error of the mean: 0.577
    runs = sl.Runs({"train_loss": Variable(("trial", "time"), values)}, {"time": time, "trial": np.arange(4)})
    shifted = synthetic(sl.Solution, lambda t: 5 * 0.57735 + 0 * t, time=time)
    report = sl.compare(runs, shifted)
    assert report.largest == pytest.approx(5.0, rel=1e-3)
    tail = 2 * stats.t.sf(5.0, 3)
    assert 2 * stats.norm.sf(report.sigma) == pytest.approx(tail, rel=1e-2)
    assert report.verdict == "cannot tell"
    many = synthetic(sl.Runs, lambda t: 0 * t, spread=1.0, trials=5000, time=time)
    assert sl.compare(many, shifted).sigma > 30


def test_compare_interpolates_the_theory():
    runs = synthetic(sl.Runs, np.exp, spread=1e-4, time=np.linspace(0.05, 0.95, 7))
    theory = synthetic(sl.Solution, np.exp, time=np.linspace(0, 1, 41))
    assert sl.compare(runs, theory).largest < 5
    short = synthetic(sl.Solution, np.exp, time=np.linspace(0, 0.5, 41))
    assert len(sl.compare(runs, short)["train_loss"].time) == 4


def test_compare_refuses_what_it_cannot_judge():
    runs = synthetic(sl.Runs, np.exp, spread=1.0, trials=1)
    theory = synthetic(sl.Solution, np.exp)
    with pytest.raises(sl.InputError, match="1 trial"):
        sl.compare(runs, theory)
    with pytest.raises(sl.InputError, match="variables"):
        sl.compare(theory, theory, ["norm"])
    with pytest.raises(sl.InputError, match="Solution or Runs"):
        sl.compare(theory, 3.0)  # type: ignore[arg-type]
    with pytest.raises(sl.InputError, match="along time"):
        sl.compare(theory, theory, "time")
    wide = sl.Solution({"train_loss": Variable(("time", "student"), np.ones((5, 2)))}, {"time": np.linspace(0, 1, 5)})
    with pytest.raises(sl.InputError, match="shapes"):
        sl.compare(theory, wide, "train_loss")
    late = synthetic(sl.Solution, np.exp, time=np.linspace(5, 6, 9))
    with pytest.raises(sl.InputError, match="share no times"):
        sl.compare(theory, late)


def test_learning_curves(pair, tmp_path):
    import matplotlib.pyplot as plt

    theory, runs = pair
    axes = sl.plot.learning_curves(theory, runs)
    assert [ax.get_ylabel() for ax in axes] == ["train error", "test error"]
    assert all("eta k" in ax.get_xlabel() for ax in axes)
    lines = axes[0].get_lines()
    assert {line.get_linestyle() for line in lines} == {"-", "--"}
    np.testing.assert_allclose(lines[0].get_ydata(), theory["train_error"])
    np.testing.assert_allclose(lines[1].get_ydata(), runs["train_error"].mean(axis=0), rtol=1e-6)
    assert len(axes[0].collections) == 1  # the band of the runs
    texts = [t.get_text() for t in axes[0].get_legend().get_texts()]
    assert any("τ = 0.5" in t and "4 trials" in t for t in texts)
    figure, mine = plt.subplots()
    back = sl.plot.learning_curves(theory, runs, variables="norm", axes=mine, log_value=False)
    assert back is mine
    assert mine.get_ylabel() == "norm"
    figure.savefig(tmp_path / "x.png")
    plt.close("all")
    with pytest.raises(sl.InputError, match="variables"):
        sl.plot.learning_curves(theory, runs, variables="z")
    for name in ("theta", "time"):
        with pytest.raises(sl.InputError, match="along time"):
            sl.plot.learning_curves(runs, variables=name)
    with pytest.raises(sl.InputError, match="axes"):
        sl.plot.learning_curves(theory, axes=plt.subplots(1, 3)[1])
    plt.close("all")


def test_errors_add_up_in_squares_and_do_not_overflow():
    assert total_error(3.0, 4.0, 12.0) == 13.0
    assert total_error(3e300, 4e300) == pytest.approx(5e300)
    labelled = total_error(xarray.DataArray([3.0], dims="time"), xarray.DataArray([4.0], dims="time"))
    assert (labelled.dims, labelled.item()) == (("time",), 5.0)
    variables = {"norm": [1e300], "norm_stderr": [3e200], "norm_step_error": [4e200], "norm_bias_error": [12e200]}
    solution = sl.Solution({n: Variable(("time",), np.array(v)) for n, v in variables.items()}, {"time": np.zeros(1)})
    np.testing.assert_allclose(solution.curve("norm")[1], 13e200)
    np.testing.assert_allclose(solution.systematic("norm"), math.hypot(4e200, 12e200))
