"""What the solver is tested against: the references themselves, what they refuse, and that all of them agree."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_paired, assert_within
from problems import CURVES, logistic, square

import sgdlimit as sl

REFERENCES = (sl.references.tangents, sl.references.processes, sl.references.fixed_point)


def margin(r, r_star, z):
    return r * jnp.sign(r_star + z)


SIZE = {"t_max": 1.0, "dt": 0.1, "samples": 4096, "metrics": {"margin": margin}}
"""With `logistic()` and SGD(1.0), the same programs for two tests."""


@pytest.mark.parametrize("function", REFERENCES, ids=lambda function: function.__name__)
def test_ridge_regression_is_the_volterra_solution(function):
    """Curves within the reported errors; the iteration, on one grid, within what Euler's steps of 0.02 leave."""
    problem, algorithm = square(2.0, 0.1), sl.SGF(0.4)
    iterated = function is sl.references.fixed_point
    found = function(problem, algorithm, t_max=1.0, dt=0.02 if iterated else 0.1, samples=8192, seed=1)
    exact = sl.least_squares(problem, algorithm, times=found.time)
    for name in CURVES:
        value, error = found.curve(name)
        floor = 0.02 * np.max(np.abs(exact[name])) if iterated else 1e-9
        assert_within((value - exact[name])[::5], error[::5] + floor, trials=16)
    assert found.success
    assert found.title().startswith(f"Solution: DMFT, {'damped ' * iterated}{function.__name__.replace('_', ' ')}")


def test_tangents_follow_the_solver_through_the_same_random_numbers():
    """Replica by replica their spread is far less than that of either."""
    found, whole = (
        function(logistic(), sl.SGD(1.0), seed=3, **SIZE) for function in (sl.solve, sl.references.tangents)
    )
    assert_paired(found, whole, (*CURVES, "train_margin"))
    for name in ("train_loss", "overlap"):
        copies = found.copies(name), whole.copies(name)
        assert copies[0] is not None
        assert copies[1] is not None
        assert np.mean((copies[0] - copies[1])[:, 1:].std(axis=0)) < 0.3 * np.mean(copies[1][:, 1:].std(axis=0))


def test_double_precision_and_one_grid():
    """float32 and float64 see the same draws; `extrapolate=False` gives the fine grid as it is, with its step error."""
    single, double = (sl.references.tangents(logistic(), sl.SGF(0.5), dtype=d, **SIZE) for d in ("float32", "float64"))
    for name in CURVES:
        np.testing.assert_allclose(single[name], double[name], atol=1e-4)
    plain = sl.references.tangents(logistic(), sl.SGF(0.5), extrapolate=False, **SIZE)
    gap = np.abs(plain["norm"] - single["norm"])
    assert np.all(gap <= 1.5 * plain["norm_step_error"] + 1e-4)
    assert np.max(gap) > 5 * np.max(single["norm_step_error"])


@pytest.mark.parametrize("function", REFERENCES, ids=lambda function: function.__name__)
def test_what_is_refused(function):
    name = rf"sl\.references\.{function.__name__}"
    with pytest.raises(sl.InputError, match=rf"^dt: got \d+ steps at width 1; {name} .*288.*larger dt.*sl\.solve"):
        function(logistic(), sl.SGF(0.5), t_max=30.0)
    with pytest.raises(sl.InputError, match=r"^sample_ratio: .*sl\.online"):
        function(logistic(np.inf), sl.SGF(0.5), t_max=1.0)
    for loss in (lambda r, y: jnp.maximum(0.0, 1 - y * r), lambda r, y: jnp.abs(r - y)):
        kinked = dataclasses.replace(logistic(), loss=sl.Loss(loss))
        with pytest.raises(sl.InputError, match=rf"^loss: got a gradient that jumps.*{name}.*sl\.solve"):
            function(kinked, sl.SGF(0.5), t_max=1.0)
    with pytest.raises(TypeError, match="tol"):
        function(logistic(), sl.SGF(0.5), t_max=1.0, tol=0.1)


def test_processes_need_gaussian_increments():
    with pytest.raises(sl.InputError, match=r"^algorithm: got SGD; .*Gaussian increments.*sl\.SGF"):
        sl.references.processes(logistic(), sl.SGD(0.5), t_max=1.0)


def test_the_fixed_point_refuses_what_the_paper_leaves_out():
    for problem, word in (
        (logistic(bias=True), "intercept"),
        (logistic(data=sl.Spectrum([0.5, 2.0])), "data=Spectrum"),
        (logistic(penalty=sl.Penalty(jnp.abs)), "penalty"),
    ):
        with pytest.raises(sl.InputError, match=rf"{word}.*sl\.solve"):
            sl.references.fixed_point(problem, sl.SGF(0.5), t_max=1.0)
    scaled = sl.Loss(lambda r, y, a: 0.5 * (a * r - y) ** 2, parameters={"a": sl.Trained(0.5)})
    for problem, step, word in (
        (dataclasses.replace(logistic(), loss=scaled), None, "a = Trained"),
        (logistic(), sl.Step(clip=0.1), "Step"),
    ):
        with pytest.raises(sl.InputError, match=rf"{word}.*sl\.solve"):
            sl.references.fixed_point(problem, sl.SGF(0.5, step=step), t_max=1.0)
    for word, value in (("damping", 2.0), ("damping", 0.0), ("iterations", 0)):
        with pytest.raises(sl.InputError, match=rf"^{word}: "):
            sl.references.fixed_point(logistic(), sl.SGF(0.5), t_max=1.0, **{word: value})


GONE = {"response": "paper", "memory": "dense", "method": "fixed-point", "damping": 0.5, "iterations": 3}


@pytest.mark.parametrize("word", GONE)
def test_words_that_chose_references_name_them(word):
    with pytest.raises(sl.InputError, match=rf"^{word}: .*sl\.solve does not take it: .*sl\.references\.\w+"):
        sl.solve(logistic(), sl.SGF(0.5), t_max=1.0, **{word: GONE[word]})


def test_functions_of_the_past_by_number():
    """As many as the solver takes by itself: the same bits. Others are taken as they are, and too few are told."""
    usual = sl.solve(logistic(), sl.SGD(1.0), **SIZE)
    count = usual.about["options"]["functions"]
    same, few, many = (sl.solve(logistic(), sl.SGD(1.0), functions=n, **SIZE) for n in (count, 2, 20))
    assert [found.about["options"]["functions"] for found in (few, many)] == [2, 20]
    for name in CURVES:
        np.testing.assert_array_equal(same[name], usual[name])
    assert np.max(few["norm_projection_error"]) > 5 * np.max(many["norm_projection_error"])
    with pytest.raises(sl.InputError, match=r"^functions: got 4; 3 functions alternate.*take 5 or more"):
        sl.solve(logistic(), sl.ProportionalSGD(0.3), functions=4, **SIZE)
