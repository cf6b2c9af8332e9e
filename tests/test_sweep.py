"""Sweeps: every point is the single call, in its place, computed once; what goes wrong is told and loses nothing."""

import dataclasses
import errno
import functools
import json
import math
import os
import subprocess
import sys
import threading
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

import sgdlimit as sl
from sgdlimit.cli.app import app
from sgdlimit.control import stages
from sgdlimit.results import files
from sgdlimit.sweep import engines, store, tasks

GRID = {"sample_ratio": [0.5, 2.0], "temperature": [0.1, 0.3, 0.5]}
EXACT = {"kind": "least_squares", "t_max": 2.0}
SGF = sl.SGF(0.1)


@pytest.fixture
def computed(monkeypatch):
    """Keys of the tasks that are computed."""
    keys = []

    def perform(task):
        keys.append(task.key)
        return tasks.perform(task)

    monkeypatch.setattr(engines, "perform", perform)
    return keys


def identical(first, second):
    """Datasets of equal values, times of work aside."""
    mine, others = (found.dataset.drop_vars("seconds").drop_attrs() for found in (first, second))
    xarray.testing.assert_identical(mine, others)
    return True


# --- what a sweep is ---


def test_every_point_is_the_single_call(ridge):
    found = sl.sweep(ridge, SGF, over=GRID, **EXACT).dataset
    assert found["test_error"].dims == ("sample_ratio", "temperature", "time")
    assert found["overlap"].dims == ("sample_ratio", "temperature", "time", "student", "teacher")
    np.testing.assert_array_equal(found["time"], np.linspace(0, 2, 65))
    for ratio in GRID["sample_ratio"]:
        for temperature in GRID["temperature"]:
            problem = dataclasses.replace(ridge, sample_ratio=ratio)
            single = sl.least_squares(problem, sl.SGF(temperature), times=np.linspace(0, 2, 65))
            at = found.sel(sample_ratio=ratio, temperature=temperature)
            for name in single.curves:
                np.testing.assert_array_equal(at[name], single[name])
            assert at["status"] == "complete"


def test_monte_carlo_points_equal_the_single_call_bit_for_bit(ridge):
    options = {"dt": 0.25, "samples": 4096, "metrics": {"size": size}}
    found = sl.sweep(ridge, sl.SGF(0.2), over={"sample_ratio": [0.5, 2.0]}, t_max=1.0, seed=7, **options)
    drawn = found.dataset["seed"].values
    assert (drawn == 7).all()
    for ratio, seed in zip((0.5, 2.0), drawn, strict=True):
        problem = dataclasses.replace(ridge, sample_ratio=ratio)
        single = sl.solve(problem, sl.SGF(0.2), times=np.linspace(0, 1, 65), seed=int(seed), **options)
        at = found.dataset.sel(sample_ratio=ratio)
        for name in (*single.curves, "test_error_stderr", "norm_step_error", "train_size", "train_size_bias_error"):
            np.testing.assert_array_equal(at[name], single[name], err_msg=name)
        value, error = found.curve("test_error")
        np.testing.assert_allclose(error.sel(sample_ratio=ratio), single.curve("test_error")[1], rtol=1e-12)
        assert value is not None


def size(r, r_star, z):
    return jnp.abs(r)


def test_objects_along_an_axis_are_named_in_words(ridge):
    over = {"algorithm": [sl.GradientFlow(), sl.SGF(0.2)], "teacher_width": [None, 1]}
    found = sl.sweep(ridge, SGF, over=over, **EXACT).dataset.isel(time=-1)
    assert list(found["algorithm"].values) == ["GradientFlow()", "SGF(temperature=0.2)"]
    assert list(found["teacher_width"].values) == ["None", "1"]
    assert found["test_error"].sel(algorithm="GradientFlow()", teacher_width="1") < found["test_error"].values[1, 0]


def test_points_of_different_width_share_one_array():
    problem = sl.Problem(loss=sl.TwoLayer(jnp.tanh), labels=sl.TwoLayerLabels(jnp.tanh), sample_ratio=2.0,
                         teacher=sl.Normal(1.0), init=sl.Normal(0.1), teacher_width=1)  # fmt: skip
    found = sl.sweep(problem, SGF, over={"width": [1, 2]}, kind="online", t_max=0.5, samples=2048).dataset
    assert found["norm"].dims == ("width", "time", "student", "student_")
    assert np.isfinite(found["norm"].sel(width=2)).all()
    narrow = found["norm"].sel(width=1).values
    assert np.isfinite(narrow[:, 0, 0]).all()
    assert np.isnan(narrow[:, 1]).all()


def test_simulations_keep_trials_and_the_times_of_their_updates(ridge):
    found = sl.sweep(ridge, sl.SGD(0.3, 2), over={"temperature": [0.2, 0.7]}, kind="simulate", t_max=1.0,
                     times=[0.0, 0.5, 1.0], dim=20, trials=3).dataset  # fmt: skip
    for temperature in (0.2, 0.7):
        runs = sl.simulate(ridge, sl.SGD(temperature, 2), dim=20, trials=3, times=[0.0, 0.5, 1.0])
        at = found.sel(temperature=temperature)
        np.testing.assert_array_equal(at["test_error_trials"], runs["test_error"])
        np.testing.assert_array_equal(at["test_error"], runs.curve("test_error")[0])
        np.testing.assert_array_equal(at["test_error_stderr"], runs.curve("test_error")[1])
        np.testing.assert_array_equal(at["recorded_time"], runs.time)


def test_diverged_points_are_marked_and_end_in_nan(ridge):
    found = sl.sweep(ridge, SGF, over={"temperature": [0.1, 30.0]}, kind="simulate", t_max=20.0, dim=20, trials=2)
    status = list(found.dataset["status"].values)
    assert status == ["complete", "diverged"]
    assert np.isfinite(found.dataset["norm"].values[0]).all()
    assert np.isnan(found.dataset["norm"].values[1, -1]).all()
    assert np.isfinite(found.dataset["norm"].values[1, 0]).all()
    assert "largest stable temperature" in found.dataset["reason"].values[1]
    (line,) = found.failed
    assert (line["temperature"], line["status"]) == (30.0, "diverged")


def test_refused_points_and_memory_are_marked_and_the_others_go_on(ridge, monkeypatch):
    @functools.wraps(sl.least_squares)
    def least_squares(problem, *args, **kwargs):
        if problem.sample_ratio == 2.0:
            raise MemoryError("no room")
        return sl.least_squares(problem, *args, **kwargs)

    monkeypatch.setitem(tasks.FUNCTIONS, "least_squares", least_squares)
    monkeypatch.setattr(tasks, "takes", lambda kind: ())
    over = {"penalty": [sl.Ridge(0.1), sl.Quartic(0.1)], "sample_ratio": [1.0, 2.0]}
    with pytest.warns(sl.SweepWarning, match="3 of 4 points failed"):
        found = sl.sweep(ridge, SGF, over=over, **EXACT)
    assert list(found.dataset["status"].values.ravel()) == ["complete", "failed", "failed", "failed"]
    reasons = found.dataset["reason"].values.ravel()
    assert reasons[1].startswith("out of memory")
    assert reasons[2].startswith("problem.penalty")
    assert np.isnan(found.dataset["test_error"].values[0, 1]).all()
    assert len(found.failed) == 3


def test_functions_of_the_user_are_part_of_the_hash(ridge):
    def keys(loss):
        problem = dataclasses.replace(ridge, loss=loss)
        return tasks.Task(problem, SGF, "solve", {}, np.ones(2)).key

    scale = 1.0

    def fn(r, y):
        return scale * (r - y) ** 2

    def other(r, y):
        return (r - y) ** 2 / 2

    first = keys(sl.Loss(fn))
    assert first == keys(sl.Loss(fn))
    assert first != keys(sl.Loss(other))
    assert first != keys(sl.Square())
    scale = 2.0
    assert first != keys(sl.Loss(fn))


def test_the_hash_is_the_same_in_another_process_and_knows_every_input(ridge):
    code = (
        "import numpy as np, sgdlimit as sl; from sgdlimit.sweep import tasks\n"
        "p = sl.Problem(loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), "
        "noise=sl.Normal(0.5))\n"
        "print(tasks.Task(p, sl.SGF(0.1), 'solve', {'tol': 0.1}, np.linspace(0, 1, 3)).key)"
    )
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    def key(problem=ridge, algorithm=SGF, kind="solve", tol=0.1, last=1.0, seed=0):
        return tasks.Task(problem, algorithm, kind, {"tol": tol}, np.linspace(0, last, 3), seed).key

    assert key() == elsewhere
    others = [
        key(dataclasses.replace(ridge, sample_ratio=2.5)), key(dataclasses.replace(ridge, teacher_width=2)),
        key(algorithm=sl.SGF(0.2)), key(algorithm=sl.SGD(0.1)), key(kind="online"), key(tol=0.2), key(last=2.0),
        key(seed=1),
    ]  # fmt: skip
    assert len({elsewhere, *others}) == len(others) + 1


def test_the_function_is_public_whatever_was_imported_first():
    code = "import sgdlimit.sweep.store; import sgdlimit as sl; print(callable(sl.sweep), sl.sweep.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "sweep"]


# --- the store ---


def test_the_same_call_computes_nothing_and_a_larger_grid_only_what_is_new(ridge, tmp_path, computed):
    first = sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    assert len(computed) == len(set(computed)) == 6
    again = sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    assert len(computed) == 6
    assert identical(first, again)
    larger = {"temperature": [0.1, 0.2, 0.3, 0.5], "sample_ratio": [2.0, 0.5]}
    found = sl.sweep(
        dataclasses.replace(ridge, sample_ratio=9.0), sl.SGF(0.7), over=larger, store=tmp_path / "s", **EXACT
    )
    assert len(computed) == 8
    assert identical(found, sl.sweep(ridge, SGF, over=larger, **EXACT))


def test_points_survive_ctrl_c_and_the_message_says_how_to_go_on(ridge, tmp_path, monkeypatch):
    def perform(task):
        if task.labels["temperature"] == 0.5:
            raise KeyboardInterrupt
        return tasks.perform(task)

    with monkeypatch.context() as patch:
        patch.setattr(engines, "perform", perform)
        with pytest.raises(KeyboardInterrupt, match=r"2 of 6 points are kept in .*; the same call goes on"):
            sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
        with pytest.raises(KeyboardInterrupt, match="store="):
            sl.sweep(ridge, SGF, over=GRID, **EXACT)
    assert identical(
        sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT), sl.sweep(ridge, SGF, over=GRID, **EXACT)
    )


def test_a_point_that_others_left_no_memory_for_is_computed_again(ridge, tmp_path, monkeypatch):
    """The best so far is shown, and not kept: with the memory that others held then it comes out otherwise."""
    march, done = stages.climbed, []
    call = {"over": {"temperature": [0.3]}, "t_max": 1.0, "tol": 2e-2, "replicas": 4, "store": tmp_path / "s"}

    def crowded(*given):
        if done:
            raise MemoryError("out of memory")
        done.append(given)
        return march(*given)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "climbed", crowded)
        assert sl.sweep(ridge, SGF, **call).dataset["status"].item() == "budget"
    found = sl.sweep(ridge, SGF, **call)
    assert found.dataset["status"].item() == "complete"
    assert identical(found, sl.sweep(ridge, SGF, **call | {"store": None}))


def test_others_read_points_without_this_package(ridge, tmp_path):
    over = {"sample_ratio": [0.5, 2.0], "temperature": [0.1, 0.3]}
    sl.sweep(ridge, SGF, over=over, store=tmp_path / "s", **EXACT)
    files = list((tmp_path / "s" / "points").glob("*.npz"))
    assert len(files) == 4
    for file in files:
        with np.load(file) as point:
            about, numbers = json.loads(point["about"].item()), point["numbers"]
        inputs, arrays = about["inputs"], {}
        for name, shape in about["shapes"].items():
            arrays[name], numbers = numbers[: math.prod(shape)].reshape(shape), numbers[math.prod(shape) :]
        assert not len(numbers)
        assert inputs["problem"]["sample_ratio"] == about["labels"]["sample_ratio"]
        assert about["words"]["status"] == "complete"
        assert about["dims"]["norm"] == ["time", "student", "student_"]
        problem = dataclasses.replace(ridge, sample_ratio=inputs["problem"]["sample_ratio"])
        single = sl.least_squares(problem, sl.SGF(inputs["algorithm"]["temperature"]), times=inputs["times"])
        np.testing.assert_array_equal(arrays["test_error"], single["test_error"])


@pytest.mark.parametrize("harm", [lambda b: b[:-100], lambda b: b[:500] + bytes([b[500] ^ 1]) + b[501:], lambda b: b""])
def test_a_damaged_point_is_computed_again(ridge, tmp_path, computed, harm):
    over = {"temperature": [0.1, 0.2]}
    first = sl.sweep(ridge, SGF, over=over, store=tmp_path / "s", **EXACT)
    point = next((tmp_path / "s" / "points").glob("*.npz"))
    point.write_bytes(harm(point.read_bytes()))
    for _ in range(2):
        assert identical(first, sl.sweep(ridge, SGF, over=over, store=tmp_path / "s", **EXACT))
        assert len(computed) == 3


def test_a_store_of_another_version_or_of_other_files_is_refused(ridge, tmp_path, monkeypatch):
    sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    monkeypatch.setattr(store, "numerical_version", lambda: "sgdlimit 9")
    with pytest.raises(sl.InputError, match=r"store: .*computed by sgdlimit 0.*name a new folder"):
        sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    monkeypatch.undo()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for folder, words in (("mine", "other files"), ("mine/thesis.tex", "no folder"), ("none/s", "does not exist")):
        with pytest.raises(sl.InputError, match=words):
            sl.sweep(ridge, SGF, over=GRID, store=tmp_path / folder, **EXACT)
    sign = tmp_path / "s" / "store.json"
    sign.write_text(json.dumps(json.loads(sign.read_text()) | {"sgdlimit_store": 1}))
    with pytest.raises(sl.InputError, match=r"store: .*layout 1.*name a new folder"):
        sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    sign.write_text("{")
    with pytest.raises(sl.InputError, match="cannot be read"):
        sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)


def test_a_disk_without_room_is_refused_before_work_and_keeps_what_was_there(ridge, tmp_path, monkeypatch, computed):
    sl.sweep(ridge, SGF, over={"temperature": [0.1]}, store=tmp_path / "s", **EXACT)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(sl.InputError, match="no room"):
            sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    assert len(computed) == 1
    sl.sweep(ridge, SGF, over={"temperature": [0.1]}, store=tmp_path / "s", **EXACT)
    assert len(computed) == 1


def test_a_store_that_cannot_be_written_is_refused_before_work(ridge, tmp_path, monkeypatch, computed):
    def closed(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files.os, "open", closed)
    with pytest.raises(sl.InputError, match=r"store.*[Rr]ead-only"):
        sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    assert not computed


def test_sweeps_that_share_a_store_lose_nothing_and_share_the_work(ridge, tmp_path, computed):
    over = {"sample_ratio": [0.5, 1.0, 2.0], "temperature": list(np.linspace(0.1, 1.0, 20))}
    found = {}

    def go(number):
        with warnings.catch_warnings():
            found[number] = sl.sweep(ridge, SGF, over=over, store=tmp_path / "s", **EXACT)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = sl.sweep(ridge, SGF, over=over, **EXACT)
    assert all(identical(alone, found[number]) for number in range(3))
    assert len(computed) - 60 < 120  # all three, each on its own, would be 180
    assert len(store.Store(tmp_path / "s").keys()) == 60


def test_points_that_failed_for_want_of_something_are_tried_again(ridge, tmp_path, monkeypatch, computed):
    broken = {"first": True}

    def perform(task):
        if broken["first"] and task.labels["temperature"] == 0.3:
            return tasks.failed("out of memory")
        computed.append(task.key)
        return tasks.perform(task)

    monkeypatch.setattr(engines, "perform", perform)
    with pytest.warns(sl.SweepWarning):
        sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    broken["first"] = False
    found = sl.sweep(ridge, SGF, over=GRID, store=tmp_path / "s", **EXACT)
    assert set(found.dataset["status"].values.ravel()) == {"complete"}
    assert len(computed) == 6


# --- what it costs, files, the command line ---


def test_the_dataset_is_written_whole_and_read_by_others(ridge, tmp_path):
    words = {"kind": "simulate", "dim": 20, "trials": 2, "times": [0.0, 1.0]}
    found = sl.sweep(ridge, SGF, over={"temperature": [0.1, 0.2]}, **words)
    found.save(tmp_path / "d.nc")
    xarray.testing.assert_identical(xarray.load_dataset(tmp_path / "d.nc", engine="h5netcdf"), found.dataset)
    with pytest.raises(sl.InputError, match="exists"):
        found.save(tmp_path / "d.nc")
    again = sl.Sweep.load(tmp_path / "d.nc")
    assert identical(found, again)
    assert again.about == found.about
    with pytest.raises(sl.InputError, match=r"sl\.Sweep\.load"):
        sl.load(tmp_path / "d.nc")
    single = sl.least_squares(ridge, SGF, t_max=1.0).save(tmp_path / "single.nc")
    with pytest.raises(sl.InputError, match=r"sl\.load"):
        sl.Sweep.load(single)
    (tmp_path / "d.nc").write_bytes((tmp_path / "d.nc").read_bytes()[:-200])
    with pytest.raises(sl.InputError, match="damaged"):
        sl.Sweep.load(tmp_path / "d.nc")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def example(tmp_path):
    path = tmp_path / "ridge.toml"
    path.write_text(run("models", "--example").stdout)
    return path


def test_command_line_from_file_to_dataset(example, tmp_path):
    output = tmp_path / "d.nc"
    done = run("sweep", example, "-o", output)
    assert done.exit_code == 0, done.stderr
    found = sl.Sweep.load(output).dataset
    np.testing.assert_allclose(found["temperature"], np.geomspace(0.1, 1.0, 4))
    assert found["time"].values[-1] == 8.0
    assert run("sweep", example, "-o", output).exit_code == 2
    assert run("sweep", example, "-o", output, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[sweep]", "[sweep]\ncolour = 3", ["sweep.colour"]),
        ("kind = \"least_squares\"", "kind = \"nothing\"", ["kind"]),
        ("sample_ratio = [0.5, 1.0, 2.0, 4.0]", "sample_ration = [1.0]", ["did you mean sample_ratio"]),
        ("count = 4", "count = 0", ["temperature.count"]),
        ("from = 0.1", "begin = 0.1", ["sweep.over.temperature"]),
        ("from = 0.1", "from = 0.0", ["sweep.over.temperature.from"]),
        ("[sweep.over]", "[sweep.under]", ["sweep.under"]),
        ("kind = \"least_squares\"", "kind = [\"solve\"]", ["kind"]),
        ("seed = 0\n", "seed = 0\ntol = 0.1\n", ["run.tol"]),
    ],
)  # fmt: skip
def test_command_line_refuses_wrong_tables(example, tmp_path, old, new, words):
    text = example.read_text()
    assert old in text
    example.write_text(text.replace(old, new))
    done = run("sweep", example, "-o", tmp_path / "d.nc")
    assert done.exit_code == 2
    for word in words:
        assert word in done.stderr


def test_command_line_tells_of_failures(example, tmp_path):
    text = example.read_text().split("[sweep]")[0]
    example.write_text(
        text.replace('"Square"', '"Logistic"') + '[sweep]\nkind = "least_squares"\n[sweep.over]\ntemperature = [0.1]\n'
    )
    done = run("sweep", example, "-o", tmp_path / "f.nc")
    assert done.exit_code == 3
    assert "1 points failed" in done.stderr
