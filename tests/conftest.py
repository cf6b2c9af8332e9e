import os
import sys
from pathlib import Path

import matplotlib
import pytest

import sgdlimit as sl

if (worker := os.environ.get("PYTEST_XDIST_WORKER", "")) and hasattr(os, "sched_setaffinity"):
    # a core for each worker: two programs whose linear algebra takes all cores slow each other down many times
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker[2:]) % len(cores)]})

matplotlib.use("Agg")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def ridge():
    return sl.Problem(
        loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
    )
