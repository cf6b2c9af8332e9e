import sys
from pathlib import Path

import matplotlib
import pytest

import sgdlimit as sl

matplotlib.use("Agg")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def ridge():
    return sl.Problem(
        loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
    )
