"""Random calls of the whole language and harmed files keep what `promises` and `damage` promise.

A few examples here, always the same; more in the slow test, thousands in `benchmarks/fuzz.py`.
"""

import pytest
from damage import harm, loads_or_refuses, problem_file, reads_or_refuses, results
from hypothesis import HealthCheck, Phase, given, settings
from language import Call, structure, valid
from promises import keeps_its_word, named, refused_by_name
from wrong import invalid

import sgdlimit as sl


def few(count: int) -> settings:
    """The same examples every time, none of them shrunk: each may compile."""
    kept = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=kept,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for name, result in results().items():
        result.save(folder / name)
    return folder


@few(30)
@given(valid(pool=3, narrow=True))
def test_valid_calls_end_finite_or_say_why(made):
    keeps_its_word(made)


@few(200)
@given(invalid)
def test_wrong_arguments_are_refused_by_name(case):
    refused_by_name(*case)


@few(200)
@given(problem_file())
def test_harmed_problem_files_are_read_or_refused(data):
    reads_or_refuses(data)


@few(25)
@given(what=harm())
def test_harmed_results_are_refused(folder, what):
    loads_or_refuses(folder, what)


@pytest.mark.slow
@few(400)
@given(valid(pool=40))
def test_many_valid_calls(made):
    keeps_its_word(made)


@pytest.mark.slow
@few(2000)
@given(invalid)
def test_many_wrong_arguments(case):
    refused_by_name(*case)


def test_the_pool_covers_the_language():
    """Forty structures hold every model of the language that a problem or an algorithm can name."""
    from language import ALGORITHMS, LAWS, MANY_UNITS, ONE_UNIT, PENALTIES, PLANTED, SCHEDULES, UNPLANTED

    pool = [structure(turn) for turn in range(40)]
    assert {of.loss for of in pool if of.width == 1} == set(ONE_UNIT)
    assert {of.loss for of in pool if of.width > 1} == set(MANY_UNITS)
    assert {of.labels for of in pool if of.teacher} == set(PLANTED)
    assert {of.labels for of in pool if not of.teacher} == set(UNPLANTED)
    assert {of.penalty for of in pool} == set(PENALTIES)
    assert {of.noise for of in pool} == {of.init for of in pool} == set(LAWS)
    assert {of.schedule for of in pool} == set(SCHEDULES)
    assert {of.algorithm for of in pool} == set(ALGORITHMS)
    assert {of.width for of in pool} == {1, 2, 3}


def test_a_call_is_shown_as_code():
    made = Call("Ridge", {"strength": 0.1})
    assert eval(repr(made), {"sl": sl}) == made() == sl.Ridge(0.1)


def test_a_promise_can_be_broken():
    """The judge itself: curves that are not finite, a refusal without a name, a wrong argument that is accepted."""
    from promises import Broken, sound

    solution = sl.least_squares(
        sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0)), sl.SGD(0.1), t_max=1.0
    )
    sound(solution, 1.0)
    with pytest.raises(Broken, match="ends at"):
        sound(solution, 2.0)
    solution.variables["norm"].values[3] = float("nan")
    with pytest.raises(Broken, match="norm is not finite"):
        sound(solution, 1.0)
    with pytest.raises(Broken, match="names no argument"):
        named(sl.InputError("something is wrong"))
    with pytest.raises(Broken, match="accepted"):
        refused_by_name(Call("Ridge", {"strength": 0.1}), ("strength",))
    with pytest.raises(Broken, match="in place of scale"):
        refused_by_name(Call("Ridge", {"strength": -1.0}), ("scale",))
