"""Problems that several tests of the solver share."""

import pytest

import sgdlimit as sl

KERNELS = pytest.mark.skip(reason="two-time kernels of a march by regression are not there yet")
EITHER = (False, pytest.param(True, marks=KERNELS))
"""Of `kernels`."""
CURVES = ("train_error", "test_error", "overlap", "norm")


def logistic(delta=2.0, ridge=0.01, **more):
    chosen = {"labels": sl.Sign(), "penalty": sl.Ridge(ridge), "noise": sl.Normal(0.1), "teacher": sl.Normal(1.0)}
    return sl.Problem(loss=sl.Logistic(), sample_ratio=delta, **(chosen | more))


def square(delta=2.0, ridge=0.1, **more):
    chosen = {"penalty": sl.Ridge(ridge), "teacher": sl.Normal(1.0), "noise": sl.Normal(0.3)}
    return sl.Problem(loss=sl.Square(), sample_ratio=delta, **(chosen | more))
