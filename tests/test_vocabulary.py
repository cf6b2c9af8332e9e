"""One vocabulary: a word means the same in every function that takes it, and the others say who does."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgdlimit as sl
from sgdlimit.errors import parameters_of

ALGORITHM = sl.SGF(0.3)
WORDS = {
    "solve": {"dt": 0.1, "samples": 1024, "functions": 4},
    "simulate": {"dim": 30, "trials": 2},
    "online": {"samples": 512},
    "least_squares": {},
}
"""Of calls that take no time."""
FUNCTIONS = list(WORDS)


def call(name, problem, **more):
    return getattr(sl, name)(problem, ALGORITHM, **WORDS[name], **more)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_times(name, ridge):
    """Named times are recorded, the last of them ends the work, and t_max is the third argument."""
    third = getattr(sl, name)(ridge, ALGORITHM, 0.5, **WORDS[name])
    assert third.time[0] == 0
    assert third.time[-1] == pytest.approx(0.5)
    for t_max in (None, 2.0):
        found = call(name, ridge, t_max=t_max, times=[0.1, 0.3])
        np.testing.assert_allclose(found.time, [0.1, 0.3])
        assert found.about["options"]["t_max"] == pytest.approx(0.3)
    for wrong in ({}, {"t_max": -1.0}, {"times": []}, {"times": [0.3, 0.1]}, {"times": [0.1, 0.3], "t_max": 0.2}):
        with pytest.raises(sl.InputError, match=r"^(t_max|times): "):
            call(name, ridge, **wrong)


@pytest.mark.parametrize("name", ["solve", "simulate"])
def test_draws_and_precision(name, ridge):
    words = [np.float64, np.dtype("float64"), jnp.float64, "float64"]
    found = [call(name, ridge, t_max=0.5, snapshots=0.5, dtype=dtype) for dtype in words]
    for one in found:
        np.testing.assert_array_equal(one["theta"], found[0]["theta"])
        np.testing.assert_allclose(one["snapshot"], [0.5])
        assert one.about["options"]["dtype"] == "float64"
    for dtype in ("half", None, float, 3, []):
        with pytest.raises(sl.InputError, match=r"^dtype: .*'float32' or 'float64'"):
            call(name, ridge, t_max=0.5, dtype=dtype)


FOREIGN = {"snapshots": [0.5], "dtype": "float64", "metrics": {}, "weight_metrics": {}, "seed": 1, "tol": 0.1,
           "kernels": True, "samples": 512, "checkpoint": "run.ckpt", "test_data": sl.Iid()}  # fmt: skip


@pytest.mark.parametrize("name", ["online", "least_squares"])
@pytest.mark.parametrize("word", FOREIGN)
def test_a_word_of_another_function_is_refused_with_the_remedy(name, word, ridge):
    function, value = getattr(sl, name), FOREIGN[word]
    if word in parameters_of(function):
        assert function(ridge, ALGORITHM, 0.5, **WORDS[name] | {word: value}).success
        return
    with pytest.raises(sl.InputError, match=rf"^{word}: .*sl\.{name} does not take it: .*(take|leave|fall)"):
        function(ridge, ALGORITHM, 0.5, **{word: value})
    assert function(ridge, ALGORITHM, 0.5, **WORDS[name] | {word: None}).success  # says nothing


def test_words_of_nobody_are_pythons_to_refuse(ridge):
    for name in FUNCTIONS:
        with pytest.raises(TypeError, match="nonsense"):
            call(name, ridge, t_max=0.5, nonsense=1)


def test_a_model_of_data_takes_all_words_of_the_solver_behind_it():
    assert set(parameters_of(sl.solve)) - {"problem"} <= set(parameters_of(sl.solve_on_data))


@pytest.mark.parametrize("name", ["online", "least_squares"])
def test_warnings_point_at_the_caller(name):
    hot = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0))
    with pytest.warns(sl.DivergenceWarning) as caught:
        getattr(sl, name)(hot, sl.SGF(9.0), 0.5)
    assert [warning.filename for warning in caught] == [__file__]
