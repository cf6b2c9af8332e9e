import os
import signal
import sys
from pathlib import Path

import jax
import matplotlib
import pytest

import sgdlimit as sl

if (worker := os.environ.get("PYTEST_XDIST_WORKER", "")) and hasattr(os, "sched_setaffinity"):
    # a core for each worker: two programs whose linear algebra takes all cores slow each other down many times
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker[2:]) % len(cores)]})

# a shell that puts the tests into the background has them, and all their children, ignore Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)

matplotlib.use("Agg")
sys.path.insert(0, str(Path(__file__).parent))


CHEAPER = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
"""The older of this compiler's two ways to write loops, and a quick look at them: less than half the time to compile, a
fifth more to run. (Level 0 takes a third of that, but gets a `nan_to_num` inside of a loop wrong.)"""


def pytest_configure(config):
    """Of the fast tests' time most is the compiler's; all other ways to run tests take it as users have it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if config.option.markexpr == "not slow" and CHEAPER not in flags and jax.__version_info__[:2] == (0, 10):
        os.environ["XLA_FLAGS"] = f"{CHEAPER} {flags}"


@pytest.fixture
def ridge():
    return sl.Problem(
        loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
    )
