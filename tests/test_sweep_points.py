"""Which field a name means, what every point computes with, and what is refused before any work."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import sgdlimit as sl
from sgdlimit.sweep import points
from sgdlimit.sweep.tasks import Task

OPTIONS = ("tol", "dt", "seed", "t_max")


def bent(r, y, nu=1.0):
    return nu * jnp.logaddexp(0.0, -y * r)


def task(problem, algorithm):
    return Task(problem, algorithm, "solve", {}, np.linspace(0.0, 1.0, 3))


@pytest.fixture
def base(ridge):
    return task(ridge, sl.SGD(0.3, 2))


def set_to(base, **values) -> Any:
    paths = points.find(list(values), base, OPTIONS)
    return points.changed(base, {paths[name]: value for name, value in values.items()})


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("sample_ratio", 3.0, lambda s: s.problem.sample_ratio),
        ("problem.sample_ratio", 3.0, lambda s: s.problem.sample_ratio),
        ("penalty.strength", 0.7, lambda s: s.problem.penalty.strength),
        ("strength", 0.7, lambda s: s.problem.penalty.strength),
        ("noise.scale", 0.2, lambda s: s.problem.noise.scale),
        ("temperature", 0.9, lambda s: s.algorithm.temperature),
        ("algorithm.batch_size", 5, lambda s: s.algorithm.batch_size),
        ("loss", sl.Huber(2.0), lambda s: s.problem.loss),
        ("algorithm", sl.GradientFlow(), lambda s: s.algorithm),
        ("tol", 0.1, lambda s: s.options["tol"]),
    ],
)
def test_a_name_sets_one_field_and_leaves_the_others(base, name, value, read):
    found = set_to(base, **{name: value})
    assert read(found) == value
    changed = [
        f"{part}.{f.name}"
        for part in ("problem", "algorithm")
        if type(getattr(found, part)) is type(getattr(base, part))
        for f in dataclasses.fields(getattr(base, part))
        if getattr(getattr(found, part), f.name) != getattr(getattr(base, part), f.name)
    ]
    assert len(changed) + len(found.options) + (name == "algorithm") == 1


def test_parameters_of_a_function_are_found_by_their_name():
    problem = sl.Problem(
        loss=sl.Loss(bent, parameters={"nu": 1.0}), labels=sl.Sign(), sample_ratio=1.0, teacher=sl.Normal(1.0)
    )
    for name in ("nu", "loss.nu", "loss.parameters.nu"):
        assert set_to(task(problem, sl.SGF(0.1)), **{name: 3.0}).problem.loss.parameters["nu"] == 3.0


def test_learning_rate_stands_for_the_temperature(base):
    assert set_to(base, learning_rate=1.2).algorithm.temperature == pytest.approx(0.6)
    assert set_to(base, learning_rate=1.2, batch_size=4).algorithm.temperature == pytest.approx(0.3)


def test_fields_of_one_part_are_set_together():
    """low = 2 alone would be above high."""
    problem = sl.Problem(loss=sl.Square(), sample_ratio=1.0, teacher=sl.Uniform(-1.0, 1.0))
    found = set_to(task(problem, sl.SGF(0.1)), **{"teacher.low": 2.0, "teacher.high": 3.0})
    assert (found.problem.teacher.low, found.problem.teacher.high) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"sample_ration": [1.0]}, ["sample_ration", "did you mean sample_ratio"]),
        ({"temprature": [1.0]}, ["did you mean algorithm.temperature"]),
        ({"penalty.strenth": [1.0]}, ["did you mean penalty.strength"]),
        ({"scale": [1.0]}, ["teacher.scale or noise.scale"]),
        ({"sample_ratio": []}, ["sample_ratio", "empty"]),
        ({"sample_ratio": 3.0}, ["sample_ratio", "list"]),
        ({"sample_ratio": "abc"}, ["sample_ratio", "list"]),
        ({"sample_ratio": np.ones((2, 2))}, ["sample_ratio", "list"]),
        ({"sample_ratio": [1.0, 1.0]}, ["sample_ratio", "twice"]),
        ({"sample_ratio": [1.0, -1.0]}, ["sample_ratio", "-1"]),
        ({"sample_ratio": [1.0, "two"]}, ["sample_ratio", "two"]),
        ({"width": [1, 2.5]}, ["width", "2.5"]),
        ({"temperature": [0.1, math.nan]}, ["temperature", "nan"]),
        ({"temperature": [0.1], "algorithm.temperature": [0.2]}, ["temperature", "keep one"]),
        ({"penalty": [sl.Ridge(1.0)], "penalty.strength": [0.2]}, ["penalty", "keep one"]),
        ({"loss": [sl.Square]}, ["loss", "class Square"]),
        ({"tol": [0.1, -3]}, ["tol", "-3"]),
        ({"t_max": [1.0, 2.0]}, ["over", "t_max"]),
        ({"seed": [0, -1]}, ["seed", "-1"]),
        ({3: [1.0]}, ["over", "3"]),
        ({}, ["over"]),
        ([1.0], ["over"]),
    ],
)
def test_wrong_axes_are_refused_by_name_before_any_work(ridge, over, words, monkeypatch):
    monkeypatch.setattr("sgdlimit.control.stages.solve", lambda ask: pytest.fail("work began"))
    with pytest.raises(sl.InputError) as error:
        sl.sweep(ridge, sl.SGD(0.3, 2), over=over, t_max=1.0)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "sovle"}, ["kind", "sovle"]),
        ({"kind": ["solve", "simulate"]}, ["kind"]),
        ({"kind": 3}, ["kind"]),
        ({"kind": "simulate"}, ["dim", "needs"]),
        ({"tol": 3.0}, ["tol"]),
        ({"samples": 1}, ["samples"]),
        ({"kernels": True}, ["kernels", "sl.solve"]),
        ({"snapshots": [1.0]}, ["snapshots", "sl.solve"]),
        ({"checkpoint": "x"}, ["checkpoint"]),
        ({"colour": "red"}, ["colour", "unknown"]),
        ({"metrics": {"m": 3}}, ["metrics"]),
        ({"t_max": -1.0}, ["t_max"]),
        ({"t_max": None}, ["t_max"]),
        ({"times": [1.0, 0.5]}, ["times"]),
        ({"executor": "nonsense"}, ["executor"]),
        ({"executor": object()}, ["executor"]),
        ({"executor": 0}, ["executor"]),
        ({"executor": True}, ["executor"]),
        ({"store": 3}, ["store"]),
        ({"dim": 3}, ["dim", "unknown"]),
    ],
)
def test_wrong_arguments_are_refused_by_name(ridge, arguments, words):
    with pytest.raises(sl.InputError) as error:
        sl.sweep(ridge, sl.SGD(0.3), over={"sample_ratio": [1.0]}, **({"t_max": 1.0} | arguments))
    for word in words:
        assert word in str(error.value)
