"""Files that are damaged, hostile or in the way, and disks that are full: told by name, and never run."""

import contextlib
import errno
import json
import math
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import h5netcdf
import h5py
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

import sgdlimit as sl
from sgdlimit.results import Variable, files, provenance, storage

OLD = Path(__file__).parent / "data" / "before_checksums.nc"
NOBODY = 65534


@pytest.fixture
def small():
    """A result of a few numbers, with an error beside a curve."""
    time = np.array([0.0, 0.5, 1.0])
    curves = {"train_loss": np.array([1.0, 0.5, 0.25]), "train_loss_stderr": np.array([0.0, 0.1, 0.1])}
    variables = {name: Variable(("time",), values) for name, values in curves.items()}
    return sl.Solution(variables, {"time": time}, {"method": "by hand", "status": "complete", "options": {}})


def other(small):
    """The same with other numbers: a second version of a file."""
    values = small["train_loss"] + 1
    return sl.Solution({**small.variables, "train_loss": Variable(("time",), values)}, small.coords, small.about)


@contextlib.contextmanager
def unprivileged():
    """Root may do everything: be nobody for a while."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder():
    """One that others may enter, unlike those of pytest."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    path.chmod(0o777)
    shutil.rmtree(path)


# A file never runs code.


def tukey(r, y):
    return jnp.minimum((r - y) ** 2, 4.0)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("room", ["loss", "penalty", "teacher", "schedule", "labels"])
def test_a_file_never_runs_code(small, tmp_path, monkeypatch, absolute, room):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('ran', 'w')\ndef f(*a):\n    return 0.0\n")
    name = f"{tmp_path / 'evil.py' if absolute else 'evil.py'}:f"
    wrapper = {"loss": "Loss", "penalty": "Penalty", "teacher": "Law", "schedule": "Schedule", "labels": "Labels"}[room]
    for words in (name, {"name": wrapper, "fn": name}, {"name": wrapper, "fn": {"function": name, "source": "1/0"}}):
        problem = {"name": "Problem", "loss": "Square", "sample_ratio": 2.0, room: words}
        algorithm = {"name": "SGD", "temperature": 0.2, "batch_share": words}
        about = {**small.about, "problem": problem, "algorithm": algorithm}
        path = sl.Solution(small.variables, small.coords, about).save("run.nc", overwrite=True)
        back = sl.load(path)
        assert back.problem is None
        assert back.algorithm is None
        repr(back)
        sl.plot.learning_curves(back)
        plt.close("all")
        assert not Path("ran").exists()


def test_functions_do_not_come_back(small, tmp_path):
    problem = sl.Problem(
        loss=sl.Loss(tukey, predict=lambda r: 2 * r),
        penalty=sl.Penalty(lambda theta, a: a * theta**2, parameters={"a": 0.5}),
        sample_ratio=math.inf,
        teacher=sl.Normal(1.0),
    )
    algorithm = sl.SGD(0.2, batch_size=5, batch_share=sl.Schedule(jnp.cos))
    words = provenance("by hand", problem, algorithm)
    path = sl.Solution(small.variables, small.coords, words).save(tmp_path / "run.nc")
    assert sl.load(path).problem is None
    assert sl.load(path).algorithm is None


# Saving.


def test_save_asks_before_it_overwrites(small, tmp_path):
    path = small.save(tmp_path / "run.nc")
    before = path.read_bytes()
    with pytest.raises(sl.InputError, match=r"the file exists; .*overwrite=True"):
        other(small).save(path)
    assert path.read_bytes() == before
    other(small).save(path, overwrite=True)
    assert sl.load(path)["train_loss"][0] == 2.0
    with pytest.raises(sl.InputError, match="overwrite"):
        small.save(path, overwrite="yes")


@pytest.mark.parametrize("path", [3, None, b"run.nc", "a\0b", "", "/dev/null", "x" * 256, "no/run.nc", "file/run.nc"])
def test_names_that_are_none(small, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(sl.InputError, match=r"^path: got") as caught:
        small.save(path)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    if path != "/dev/null":
        with pytest.raises(sl.InputError, match=r"^path: got"):
            sl.load(path)


def test_long_names_are_written(small, tmp_path):
    for length in (245, 255):
        path = small.save(tmp_path / ("x" * (length - 3) + ".nc"))
        assert sl.load(path).status == "complete"
    assert len(list(tmp_path.iterdir())) == 2


def test_links_are_followed_and_pipes_refused(small, tmp_path):
    (tmp_path / "real").mkdir()
    for name in ("there.nc", "new.nc"):
        (tmp_path / name).symlink_to(Path("real") / name)
    small.save(tmp_path / "real" / "there.nc")
    other(small).save(tmp_path / "there.nc", overwrite=True)
    small.save(tmp_path / "new.nc")
    for name, first in (("there.nc", 2.0), ("new.nc", 1.0)):
        assert (tmp_path / name).is_symlink()
        assert sl.load(tmp_path / "real" / name)["train_loss"][0] == first
    assert len(list((tmp_path / "real").iterdir())) == 2
    (tmp_path / "round.nc").symlink_to("round.nc")
    with pytest.raises(sl.InputError, match="symbolic links"):
        small.save(tmp_path / "round.nc", overwrite=True)
    os.mkfifo(tmp_path / "pipe.nc")
    with pytest.raises(sl.InputError, match="it is a pipe"):
        small.save(tmp_path / "pipe.nc", overwrite=True)
    assert stat.S_ISFIFO((tmp_path / "pipe.nc").stat().st_mode)
    with pytest.raises(sl.InputError, match="it is a pipe"):
        sl.load(tmp_path / "pipe.nc")


def test_permissions(small, folder):
    """Folders that may not be written or searched are told; the mode of a file is that of the one it replaces."""
    path = small.save(folder / "run.nc")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    small.save(path, overwrite=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o444)
    for mode, what in ((0o555, "written"), (0o666, "searched")):
        folder.chmod(mode)
        with unprivileged(), pytest.raises(sl.InputError, match=f"Permission denied: .*{what}") as caught:
            small.save(folder / "other.nc")
        assert caught.value.__suppress_context__
    with unprivileged(), pytest.raises(sl.InputError, match="Permission denied"):
        sl.load(path)
    folder.chmod(0o777)
    with unprivileged(), pytest.raises(sl.InputError, match="Permission denied: this file"):
        small.save(path, overwrite=True)


@contextlib.contextmanager
def full_disk(monkeypatch, how):
    """No file grows beyond 1000 bytes; or the disk says so only when the file is flushed, as it may."""
    if how == "limit":
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        return

    def refuse(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        yield


@pytest.mark.parametrize(("how", "words"), [("limit", "File too large"), ("flush", "No space left on device")])
def test_a_full_disk_leaves_the_old_file(small, tmp_path, monkeypatch, how, words):
    path = small.save(tmp_path / "run.nc")
    before = path.read_bytes()
    with full_disk(monkeypatch, how), pytest.raises(sl.InputError, match=f"{words}: the disk of {tmp_path}") as caught:
        other(small).save(path, overwrite=True)
    assert caught.value.__suppress_context__
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    other(small).save(path, overwrite=True)


def test_what_a_killed_save_left_is_removed_by_the_next(small, tmp_path):
    code = f"import os, pathlib; from sgdlimit.results.files import _create; _create(pathlib.Path({str(tmp_path)!r})"
    for name in ("run.nc", "other.nc"):
        subprocess.run([sys.executable, "-c", f"{code} / {name!r}); os._exit(1)"], check=False)
    _, alive = files._create(tmp_path / "run.nc")  # this process lives
    assert len(list(tmp_path.glob(".*.part"))) == 3
    path = small.save(tmp_path / "run.nc")
    left = list(tmp_path.glob(".*.part"))
    assert len(left) == 2
    assert alive in left
    os.utime(alive, (0, 0))  # nobody writes for a day
    small.save(path, overwrite=True)
    assert len(list(tmp_path.glob(".*.part"))) == 1


def test_what_cannot_be_read_back_is_not_written(small, tmp_path):
    for wrong, word in (
        (sl.Solution({"a": Variable(("time",), np.ones(2))}, small.coords), "3"),
        (sl.Solution({"a": Variable(("time",), np.array(["x"] * 3))}, small.coords), "numbers"),
        (sl.Solution(small.variables, {"time": np.array([0.0, 2.0, 1.0])}), "increase"),
        (sl.Solution(small.variables, small.coords, {"x": object()}), "about"),
        (sl.Solution(small.variables, small.coords, {"x": math.nan}), "about"),
    ):
        with pytest.raises(sl.InputError, match=word):
            wrong.save(tmp_path / "run.nc")
    assert not list(tmp_path.iterdir())


# Loading.


def test_other_readers_do_not_see_the_checksum(small, tmp_path):
    path = small.save(tmp_path / "run.nc")
    content = path.read_bytes()
    assert content[-storage.TAIL :].startswith(storage.MARK)
    for engine in (None, "h5netcdf"):
        with xarray.open_dataset(path, engine=engine) as opened:
            np.testing.assert_array_equal(opened["train_loss"], small["train_loss"])
            assert opened["train_loss"].dims == ("time",)
            assert opened["time"].attrs["long_name"] == "t = ηk/d"
    with h5py.File(path) as opened:
        np.testing.assert_array_equal(np.asarray(opened["train_loss"]), small["train_loss"])


def test_every_flipped_bit_is_told(small, tmp_path):
    """300 of them, anywhere; the checksum is looked at before HDF5 reads. A flip in its mark makes a file without."""
    path = small.save(tmp_path / "run.nc")
    content = path.read_bytes()
    places = np.random.default_rng(0).integers(len(storage.SIGNATURE), len(content) - storage.TAIL, 300)
    for place in (*places, len(content) - 1, 0):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(place) % 8
        path.write_bytes(damaged)
        with pytest.raises(sl.InputError, match=r"checksum|not a netCDF-4 file"):
            sl.load(path)


def test_files_of_before_checksums_load(small, tmp_path):
    back = sl.load(OLD)
    assert back.status == "complete"
    assert back.problem.penalty == sl.Ridge(0.1)
    exact = sl.least_squares(back.problem, back.algorithm, times=back.time)
    for name, variable in exact.variables.items():
        assert back.variables[name].dims == variable.dims
        np.testing.assert_allclose(back[name], variable.values, rtol=1e-6, atol=1e-12)
    path = small.save(tmp_path / "run.nc")
    path.write_bytes(path.read_bytes()[: -storage.TAIL])
    np.testing.assert_array_equal(sl.load(path)["train_loss"], small["train_loss"])


def test_files_without_a_checksum_can_neither_hang_nor_crash_us(tmp_path, monkeypatch):
    """They are read in a process of its own first."""
    helper = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(helper))
    monkeypatch.setattr(storage, "PATIENCE", 0.5)
    for body, words in (("sleep 60", "takes more than"), ("kill -SEGV $$", "crashes")):
        helper.write_text(f"#!/bin/sh\n{body}\n")
        helper.chmod(0o755)
        with pytest.raises(sl.InputError, match=words):
            sl.load(OLD)


def test_a_file_on_which_hdf5_hangs(tmp_path, monkeypatch):
    """One bit of an old file: without the other process `load` never came back."""
    content = bytearray(OLD.read_bytes())
    content[3824] ^= 1 << 7
    path = tmp_path / "hangs.nc"
    path.write_bytes(content)
    monkeypatch.setattr(storage, "PATIENCE", 2.0)
    with pytest.raises(sl.InputError, match="the file is damaged: reading it takes more than 2 s"):
        sl.load(path)


def rewritten(small, path, change):
    """A file of another program, or one damaged in a way that only its meaning tells."""
    dataset = small.dataset.assign_attrs(
        sgdlimit_kind="solution", sgdlimit_format=1, sgdlimit_about=json.dumps(small.about), sgdlimit_version="0.2.0"
    )
    change(dataset).to_netcdf(path, engine="h5netcdf")


def about(**words):
    return lambda d: d.assign_attrs(sgdlimit_about=json.dumps({"status": "complete", **words}))


DAMAGED = {
    "no time": lambda d: d.rename(time="tyme"),
    "times fall": lambda d: d.assign_coords(time=[0.0, 2.0, 1.0]),
    "times not finite": lambda d: d.assign_coords(time=[0.0, 1.0, np.inf]),
    "times in words": lambda d: d.assign_coords(time=["a", "b", "c"]),
    "letters": lambda d: d.assign(train_loss=("time", ["a", "b", "c"])),
    "shape of the error": lambda d: d.assign(train_loss_stderr=((), 0.1)),
    "negative error": lambda d: d.assign(train_loss_stderr=-d["train_loss_stderr"]),
    "other axes": lambda d: d.assign(train_loss=(("time", "student"), np.ones((3, 2)))),
    "time is not first": lambda d: d.assign(mine=(("student", "time"), np.ones((2, 3)))),
    "runs without trials": lambda d: d.assign_attrs(sgdlimit_kind="runs"),
    "kind": lambda d: d.assign_attrs(sgdlimit_kind=[1, 2]),
    "format": lambda d: d.assign_attrs(sgdlimit_format="one"),
    "no words": lambda d: d.assign_attrs(sgdlimit_about=3),
    "list": lambda d: d.assign_attrs(sgdlimit_about="[]"),
    "status": about(status=3),
    "message": about(message=["x"]),
    "problem": about(problem=[1]),
    "algorithm": about(algorithm="SGD"),
    "options": about(options=None),
    "deep": lambda d: d.assign_attrs(sgdlimit_about='{"problem":{"loss":' + '{"a":' * 200 + "1" + "}" * 202),
    "very deep": lambda d: d.assign_attrs(sgdlimit_about='{"x":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "long number": lambda d: d.assign_attrs(sgdlimit_about='{"algorithm":{"temperature":1' + "0" * 400 + "}}"),
    "longer number": lambda d: d.assign_attrs(sgdlimit_about='{"seed":' + "9" * 5000 + "}"),
    "not text": lambda d: d.assign_attrs(sgdlimit_about='{"message":"\\ud800"}'),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_that_only_the_meaning_tells(small, tmp_path, monkeypatch, name):
    monkeypatch.setattr(storage, "_rehearse", lambda file: None)
    path = tmp_path / "run.nc"
    rewritten(small, path, lambda dataset: dataset)
    assert sl.load(path).status == "complete"
    rewritten(small, path, DAMAGED[name])
    with pytest.raises(sl.InputError, match=r"damaged|not an sgdlimit result") as caught:
        sl.load(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_arrays_larger_than_their_file(small, tmp_path, monkeypatch):
    """A file may claim more than a machine holds."""
    monkeypatch.setattr(storage, "_rehearse", lambda file: None)
    path = tmp_path / "run.nc"
    rewritten(small, path, lambda dataset: dataset)
    with h5netcdf.File(path, "a") as file:
        file.dimensions["coordinate"] = 10**13
        file.create_variable("mine", ("coordinate",), dtype="f8", chunks=(1000,))
    with pytest.raises(sl.InputError, match="claims to hold"):
        sl.load(path)


def test_values_that_are_not_finite_are_kept(small, tmp_path):
    """A metric of the user's may be NaN where it means nothing."""
    values = np.array([np.nan, 1.0, np.inf])
    solution = sl.Solution({**small.variables, "mine": Variable(("time",), values)}, small.coords, small.about)
    back = sl.load(solution.save(tmp_path / "run.nc"))
    np.testing.assert_array_equal(back["mine"], values)
    assert "nan" in repr(back)


def test_everything_that_solve_gives_comes_back(tmp_path):
    """Kernels, draws, metrics, replicas; and a result without times."""
    problem = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=2.0, teacher=sl.Normal(1.0))
    solution = sl.solve(
        problem,
        sl.SGF(0.3),
        t_max=0.5,
        dt=0.125,
        samples=4096,
        kernels=True,
        snapshots=[0.5],
        metrics={"margin": lambda r, r_star, z: r * r_star},
        weight_metrics={"small": lambda theta, theta_star: jnp.abs(theta) < 0.1},
    )
    back = sl.load(solution.save(tmp_path / "run.nc"))
    assert set(back.variables) == set(solution.variables)
    for name, (dims, values) in solution.variables.items():
        assert back.variables[name].dims == dims
        assert back[name].dtype == values.dtype
        np.testing.assert_array_equal(back[name], values)
    empty = sl.Solution({"train_loss": Variable(("time",), np.zeros(0))}, {"time": np.zeros(0)}, {"status": "diverged"})
    assert sl.load(empty.save(tmp_path / "empty.nc")).time.shape == (0,)
