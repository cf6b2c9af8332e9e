"""Laws of data in words: TOML files, stored results, sweeps, lists of models."""

import numpy as np
import pytest
from typer.testing import CliRunner

import sgdlimit as sl
from sgdlimit.cli.app import app
from sgdlimit.cli.specification import read
from sgdlimit.describe import problem_from_words, to_words

TOML = """
[problem]
loss = "Logistic"
labels = "Sign"
penalty = {{ name = "Ridge", strength = 0.05 }}
sample_ratio = 1.5
teacher = "Normal"
data = {data}

[algorithm]
name = "SGD"
temperature = 0.4

[run]
t_max = 0.5
dim = 200
trials = 2
{more}
"""
LAWS = {
    "Iid": ("'Iid'", sl.Iid()),
    "Spectrum": (
        "{ name = 'Spectrum', values = [3, 0.5], weights = [0.2, 0.8], teacher = [0.5, 1.1] }",
        sl.Spectrum([3.0, 0.5], [0.2, 0.8], [0.5, 1.1]),
    ),
    "PowerLaw": ("{ name = 'power_law', exponent = 1.2, source = 0.6, groups = 4 }", sl.PowerLaw(1.2, 0.6, 4)),
}


def written(path, data, more=""):
    path.write_text(TOML.format(data=data, more=more))
    return path


@pytest.mark.parametrize("name", LAWS)
def test_words(name, tmp_path):
    """TOML gives the object; its words give it back."""
    words, law = LAWS[name]
    problem = read(written(tmp_path / "p.toml", words)).problem
    assert problem.data == law
    assert problem_from_words(to_words(problem)).data == law


def test_a_shifted_test_in_a_file(tmp_path):
    more = "test_data = { name = 'Spectrum', values = [1.0, 1.0], weights = [0.2, 0.8] }"
    run = read(written(tmp_path / "p.toml", LAWS["Spectrum"][0], more)).run
    assert run["test_data"] == sl.Spectrum([1.0, 1.0], [0.2, 0.8])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{ name = 'Spectrum', values = [-1.0, 2.0] }", "Spectrum.values"),
        ("{ name = 'Spectrum', values = [1.0, 2.0], weights = [0.5, 0.6] }", "Spectrum.weights"),
        ("{ name = 'PowerLaw', exponent = -1.0 }", "PowerLaw.exponent"),
        ("{ name = 'PowerLaw' }", "exponent"),
        ("'Spectrums'", "unknown model"),
        ("3.0", "data"),
    ],
)
def test_bad_words(data, said, tmp_path):
    result = CliRunner().invoke(
        app, ["simulate", str(written(tmp_path / "p.toml", data)), "-o", str(tmp_path / "a.nc")]
    )
    assert result.exit_code == 2
    assert said in result.stderr


def test_from_file_to_file(tmp_path):
    """`simulate` on the command line is `sl.simulate`; a stored result knows its law and its groups."""
    path = written(tmp_path / "p.toml", LAWS["Spectrum"][0])
    result = CliRunner().invoke(app, ["simulate", str(path), "-o", str(tmp_path / "a.nc")])
    assert result.exit_code == 0, result.stderr
    stored, asked = sl.load(tmp_path / "a.nc"), read(path)
    again = sl.simulate(asked.problem, asked.algorithm, dim=200, trials=2, t_max=0.5)
    assert stored.problem.data == asked.problem.data
    assert "Spectrum(values=" in repr(stored)
    for name in ("norm_by_group", "overlap_by_group", "test_loss"):
        np.testing.assert_array_equal(stored[name], again[name])
        assert stored.variables[name].dims == again.variables[name].dims


def test_a_theory_is_kept(tmp_path):
    problem = sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=2.0, teacher=sl.Normal(1.0), data=sl.PowerLaw(1.2, groups=3)
    )
    solution = sl.solve(problem, sl.SGD(0.4), 0.5, samples=1024, replicas=4, dt=0.1)
    solution.save(tmp_path / "a.nc")
    stored = sl.load(tmp_path / "a.nc")
    assert stored.problem == problem
    np.testing.assert_array_equal(stored["norm_by_group"], solution["norm_by_group"])
    value, error = stored.curve("norm_by_group")
    assert value.shape == error.shape == (len(stored.time), 3, 1, 1)


def test_sweep_over_the_law():
    """A point of a sweep over `data.exponent` is what `simulate` gives there."""
    problem = sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=2.0, teacher=sl.Normal(1.0), data=sl.PowerLaw(0.5, groups=4)
    )
    swept = sl.sweep(
        problem, sl.SGD(0.4), over={"data.exponent": [0.5, 1.0]}, kind="simulate", t_max=0.5, dim=200, trials=2
    )
    losses = swept.dataset["test_loss"]
    assert losses.sizes["data.exponent"] == 2
    assert not np.allclose(losses.isel({"data.exponent": 0}), losses.isel({"data.exponent": 1}))


def test_models_are_listed():
    text = CliRunner().invoke(app, ["models"]).stdout
    assert "data\n" in text
    assert "PowerLaw(exponent, source=0, groups=8, dim=None)" in text
