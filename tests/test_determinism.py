"""The same seed gives the same bits: in another process, for another length, tile or number of workers."""

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
from sgdlimit.dmft import plan

CASES = {
    "SGD": (logistic(), sl.SGD(0.4, batch_size=2)),
    "SGF": (logistic(penalty=sl.SmoothL1(0.1, 0.2)), sl.SGF(0.3)),
    "shuffled": (square(), sl.ShuffledSGD(0.3, batch_size=2)),
    "persistent": (square(), sl.PersistentSGD(0.3, 1.0)),
}
SOLVE = {"dt": 0.0625, "samples": 1024, "replicas": 4}  # steps that are whole in binary
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


def test_another_process_gives_the_same_bits():
    """Without the programs that this one compiled, and with another order of sets."""
    here = Path(__file__).parent
    code = f"import json, sys; sys.path[:0] = [{str(here)!r}]; import test_determinism as own"
    code += "; print(json.dumps(own.digests()))"
    words = {"SGDLIMIT_CACHE": "", "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | words, timeout=300
    )
    assert json.loads(done.stdout) == digests()


@pytest.mark.parametrize("name", CASES)
def test_a_longer_march_repeats_a_shorter_one(name):
    problem, algorithm = CASES[name]
    short, long = (sl.solve(problem, algorithm, t_max=t_max, **SOLVE) for t_max in (0.5, 1.0))
    for curve in CURVES:
        assert np.array_equal(short[curve], long[curve][: len(short.time)]), curve
        assert np.array_equal(short[f"{curve}_stderr"], long[f"{curve}_stderr"][: len(short.time)]), curve


@pytest.mark.parametrize("name", CASES)
def test_tiles_do_not_matter(name, monkeypatch):
    problem, algorithm = CASES[name]
    together = sl.solve(problem, algorithm, t_max=0.5, **SOLVE)
    monkeypatch.setattr(plan, "TILE", 1)
    apart = sl.solve(problem, algorithm, t_max=0.5, **SOLVE)
    for curve in together.variables:
        assert np.array_equal(together[curve], apart[curve]), curve


@pytest.mark.parametrize("name", CASES)
def test_workers_do_not_matter(name):
    problem, algorithm = CASES[name]
    alone, many = (sl.simulate(problem, algorithm, dim=40, trials=4, t_max=0.5, workers=workers) for workers in (1, 3))
    for variable in alone.variables:
        assert np.array_equal(alone[variable], many[variable]), variable


@pytest.mark.parametrize("name", CASES)
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
