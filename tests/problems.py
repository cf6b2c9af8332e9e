"""Problems that several tests of the solver share."""

import sgdlimit as sl

CURVES = ("train_error", "test_error", "overlap", "norm")


def logistic(delta=2.0, ridge=0.01, **more):
    chosen = {"labels": sl.Sign(), "penalty": sl.Ridge(ridge), "noise": sl.Normal(0.1), "teacher": sl.Normal(1.0)}
    return sl.Problem(loss=sl.Logistic(), sample_ratio=delta, **(chosen | more))


def square(delta=2.0, ridge=0.1, **more):
    chosen = {"penalty": sl.Ridge(ridge), "teacher": sl.Normal(1.0), "noise": sl.Normal(0.3)}
    return sl.Problem(loss=sl.Square(), sample_ratio=delta, **(chosen | more))
