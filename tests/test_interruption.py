"""Ctrl-C: it reaches the caller, and what had been computed is not lost."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import sgdlimit as sl
from sgdlimit.control import stages
from sgdlimit.simulation import execute

ALGORITHM = sl.SGF(0.4)


def at_call(monkeypatch, place, name, number):
    """Ctrl-C at the start of the call of this number."""
    real, calls = getattr(place, name), []

    def counted(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(place, name, counted)


def same(a: sl.Solution | sl.Runs, b: sl.Solution | sl.Runs) -> None:
    assert list(a.variables) == list(b.variables)
    for name in (*a.variables, *a.coords):
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_a_solution_that_was_interrupted_is_its_last_stage(ridge, monkeypatch, tmp_path):
    """That of a call whose time is up after the first stage, to the last bit."""
    words = {"t_max": 0.5, "tol": 1e-3, "checkpoint": tmp_path / "run.ckpt"}
    with pytest.warns(sl.ToleranceWarning):
        short = sl.solve(ridge, ALGORITHM, t_max=0.5, tol=1e-3, max_seconds=1e-6)
    assert short.about["diagnostics"]["stages"] == 1
    at_call(monkeypatch, stages, "one_stage", 2)
    with pytest.raises(
        KeyboardInterrupt, match=r"asked for 0.001.*run.ckpt; the same call goes on.*\.result"
    ) as caught:
        sl.solve(ridge, ALGORITHM, **words)
    assert isinstance(caught.value, sl.Interrupted)
    found = caught.value.result
    assert found.status == "interrupted"
    assert not found.success
    assert "run.ckpt" in found.message
    assert found.about["diagnostics"]["stages"] == 1
    same(found, short)
    found.save(tmp_path / "a.nc")
    assert sl.load(tmp_path / "a.nc").status == "interrupted"
    monkeypatch.undo()
    at_call(monkeypatch, stages, "one_stage", 1)
    with pytest.raises(KeyboardInterrupt, match=r"run\.ckpt") as caught:  # nothing to show yet
        sl.solve(ridge, ALGORITHM, **words)
    assert not isinstance(caught.value, sl.Interrupted)


def test_finished_trials_are_kept(ridge, monkeypatch):
    words = {"dim": 40, "t_max": 1.0, "workers": 1}
    two = sl.simulate(ridge, ALGORITHM, trials=2, **words)
    at_call(monkeypatch, execute, "run", 3)
    with pytest.raises(sl.Interrupted, match="2 of 5 trials were finished") as caught:
        sl.simulate(ridge, ALGORITHM, trials=5, **words)
    assert caught.value.result.status == "interrupted"
    same(caught.value.result, two)


def test_trials_that_run_are_kept_as_far_as_all_have_come(ridge):
    """A signal in the midst of the first trials, each of which takes minutes."""
    times = np.linspace(0.0, 2000.0, 20001)
    words = {"dim": 100, "trials": 4, "workers": 2, "snapshots": [0.0]}
    short = sl.simulate(ridge, sl.SGD(0.2), times=times[:4], **words)  # compiles, too
    timer = threading.Timer(1.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(sl.Interrupted, match=r"2 of 4 trials had come to t = .* of 2000") as caught:
        sl.simulate(ridge, sl.SGD(0.2), times=times, **words)
    timer.join()
    found = caught.value.result
    assert found.trials == 2
    assert 4 < len(found.time) < len(times)
    assert found["train_error"].shape == (2, len(found.time))
    np.testing.assert_array_equal(found["train_error"][:, :4], short["train_error"][:2])


def test_nothing_to_show_is_a_plain_interrupt(ridge, monkeypatch):
    at_call(monkeypatch, execute, "run", 1)
    with pytest.raises(KeyboardInterrupt) as caught:
        sl.simulate(ridge, ALGORITHM, dim=40, trials=3, t_max=1.0, workers=1)
    assert not isinstance(caught.value, sl.Interrupted)


PROBLEM = """
[problem]
loss = "Square"
sample_ratio = 2.0
teacher = "Normal"
[algorithm]
name = "SGF"
temperature = 0.4
[run]
t_max = 0.5
tol = 1e-3
"""

SIGNAL = """
import os, signal, sys
from sgdlimit.cli import main
from sgdlimit.control import stages
from sgdlimit.results import storage
from sgdlimit.simulation import loop

def interrupt(place, name, number):
    real, calls = getattr(place, name), []
    def counted(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)
    setattr(place, name, counted)

for words in sys.argv.pop().split(", "):
    place, name, number = words.split()
    interrupt(globals()[place], name, int(number))
main()
"""


def command(folder, *arguments, at):
    """The command line, which gets a signal at these calls."""
    (folder / "p.toml").write_text(PROBLEM)
    words = [sys.executable, "-c", SIGNAL, *map(str, arguments), at]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    return done


def test_the_command_line_writes_what_there_is(tmp_path):
    """Beside the output, which may hold an older result."""
    (tmp_path / "run.nc").write_text("an older one")
    done = command(tmp_path, "solve", "p.toml", "-o", "run.nc", "--force", "--theory", "dmft", at="stages one_stage 2")
    assert done.stderr.startswith("warning: interrupted: ")
    assert done.stdout.strip().endswith("wrote run.interrupted.nc")
    assert sl.load(tmp_path / "run.interrupted.nc").status == "interrupted"
    assert (tmp_path / "run.nc").read_text() == "an older one"


def test_a_second_interrupt_leaves_at_once(tmp_path):
    """No trial of the simulation is finished when the first comes, and the result is being written when the second."""
    call = ("simulate", "p.toml", "-o", "run.nc", "--dim", 200, "--trials", 3, "--t-max", 500)
    done = command(tmp_path, *call, at="loop _advance 20, storage netcdf 1")
    assert done.stderr.strip() == "interrupted: nothing was written"
    assert [file.name for file in tmp_path.iterdir()] == ["p.toml"]
    done = command(tmp_path, *call, at="loop _advance 20")
    assert "trials had come to t = " in done.stderr
    found = sl.load(tmp_path / "run.interrupted.nc")
    assert found.status == "interrupted"
    assert 0 < found.time[-1] < 500
