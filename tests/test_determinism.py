"""The same seed gives the same bits: in another process, for another length or number of workers; tiles to rounding."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from problems import logistic, square

import sgdlimit as sl
from sgdlimit.dmft import planning
from sgdlimit.dmft.noise import STRIDES

CASES = {
    "SGD": (logistic(), sl.SGD(0.4, batch_size=2)),
    "SGF": (logistic(penalty=sl.SmoothL1(0.1, 0.2)), sl.SGF(0.3)),
    "shuffled": (square(), sl.ShuffledSGD(0.3, batch_size=2)),
    "persistent": (square(), sl.PersistentSGD(0.3, 1.0)),
}
SOLVE = {"dt": 0.0625, "samples": 1024, "replicas": 4, "functions": 6}  # steps that are whole in binary
CURVES = ("train_loss", "train_error", "overlap", "norm")


def digests() -> dict[str, str]:
    """Of every variable of a few results, in the order in which they come."""
    problem, algorithm = CASES["SGD"]
    found = {
        "solve": sl.solve(problem, algorithm, t_max=0.5, **SOLVE),
        "simulate": sl.simulate(problem, algorithm, dim=30, trials=2, t_max=0.5),
        "online": sl.online(problem, algorithm, t_max=0.5, samples=256, replicas=2),
        "least squares": sl.least_squares(square(), algorithm, t_max=0.5),
    }
    return {
        f"{kind} {name}": hashlib.sha256(np.ascontiguousarray(variable.values).tobytes()).hexdigest()
        for kind, result in found.items()
        for name, variable in result.variables.items()
    }


@pytest.mark.parametrize("anew", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_another_process_gives_the_same_bits(anew):
    """With another order of sets; `anew`: also without the programs that this process compiled."""
    here = Path(__file__).parent
    code = f"import json, sys; sys.path[:0] = [{str(here)!r}]; import test_determinism as own"
    code += "; print(json.dumps(own.digests()))"
    words = {"PYTHONHASHSEED": "7"} | ({"SGDLIMIT_CACHE": ""} if anew else {})
    expected = digests()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | words, timeout=300
    )
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("name", ["SGD", "SGF", "persistent"])
def test_a_longer_march_repeats_a_shorter_one(name):
    """At the times of the coarsest grid; between them, and in test averages, a curve is interpolated over all times."""
    problem, algorithm = CASES[name]
    short, long = (sl.solve(problem, algorithm, t_max=t_max, **SOLVE) for t_max in (0.5, 1.0))
    at = slice(0, len(short.time), 1 if algorithm.discrete else STRIDES)
    for curve in CURVES:
        assert np.array_equal(short[curve][at], long[curve][at][: len(short.time[at])]), curve
        copies = short[f"{curve}_replicas"][:, at]
        assert np.array_equal(copies, long[f"{curve}_replicas"][:, at][:, : copies.shape[1]]), curve


@pytest.mark.parametrize("name", ["SGD", "SGF"])
def test_tiles_change_no_more_than_rounding(name, monkeypatch):
    """How many replicas a compiled call holds decides how sums of single precision are ordered: ε√M = 4e-6."""
    problem, algorithm = CASES[name]
    together = sl.solve(problem, algorithm, t_max=0.5, **SOLVE)
    monkeypatch.setattr(planning, "TILE", 1)
    apart = sl.solve(problem, algorithm, t_max=0.5, **SOLVE)
    for curve in (*CURVES, "test_loss", "test_error"):
        rounding = 4e-6 * np.max(np.abs(together[curve]))
        np.testing.assert_allclose(together.copies(curve), apart.copies(curve), rtol=0, atol=rounding, err_msg=curve)


def test_longer_limits_repeat_shorter_ones():
    """Particles to the last bit; where a library chooses steps or nodes by the length, to what was asked of it."""
    short, long = np.linspace(0, 0.5, 6), np.linspace(0, 1, 11)
    algorithm, words = sl.SGD(0.4), {"samples": 256, "replicas": 2, "particles": 64}
    for compute, problem, rtol in (
        (lambda p, t: sl.online(p, algorithm, times=t, **words), CASES["SGF"][0], 0.0),
        (lambda p, t: sl.online(p, algorithm, times=t, **words), square(), 1e-9),
        (lambda p, t: sl.least_squares(p, algorithm, times=t), square(), 1e-12),
    ):
        first, second = compute(problem, short), compute(problem, long)
        for curve in CURVES:
            np.testing.assert_allclose(first[curve], second[curve][: len(short)], rtol=rtol, atol=1e-12 * (rtol > 0))


@pytest.mark.parametrize("name", ["SGF", "shuffled"])
def test_workers_do_not_matter(name):
    problem, algorithm = CASES[name]
    alone, many = (sl.simulate(problem, algorithm, dim=40, trials=4, t_max=0.5, workers=workers) for workers in (1, 3))
    for variable in alone.variables:
        assert np.array_equal(alone[variable], many[variable]), variable


@pytest.mark.parametrize("name", ["SGD", "persistent"])
def test_a_longer_simulation_repeats_a_shorter_one(name):
    problem, algorithm = CASES[name]
    times = np.arange(1, 5) * 0.3
    short, long = (
        sl.simulate(problem, algorithm, dim=40, trials=2, times=t, snapshots=[0.3]) for t in (times[:2], times)
    )
    for variable, (dims, values) in short.variables.items():
        there = long[variable]
        if "time" in dims:
            there = there[:, : len(short.time)]
        assert np.array_equal(values, there), variable
