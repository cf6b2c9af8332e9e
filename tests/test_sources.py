"""Sources of error: each asks for its own remedy, and for nothing where it is small."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from problems import logistic

import sgdlimit as sl
from sgdlimit.control import marches
from sgdlimit.control.question import asked
from sgdlimit.control.sources import (
    HALVINGS,
    LARGEST,
    LEAST_NOISE,
    MARGIN,
    SOURCES,
    Draft,
    FiniteSamples,
    MonteCarlo,
    Review,
    TimeStep,
    remedied,
)
from sgdlimit.estimate.curves import Split

GOAL = 5e-3
NOTHING = {source.name: 0.0 for source in SOURCES}


def review(**sizes):
    """A stage of four marches of 1024 samples with these errors, in units of the goal."""
    known = NOTHING | {name: size * GOAL for name, size in sizes.items()}
    return Review(Draft(1, 1024, 4096), GOAL, known, 4, 2048, free_steps=True, free_samples=True)


def test_monte_carlo_takes_samples_as_the_square_of_its_error():
    draft = remedied(review(monte_carlo=3.0))
    assert (draft.halvings, draft.each) == (1, 1024)
    assert 9.0 <= draft.wanted / 4096 <= 14.0
    crowded = remedied(review(monte_carlo=3.0, projection=5.0, step=0.4, bias=0.4))
    assert crowded.wanted > draft.wanted  # others leave it less


def test_steps_are_halved_as_far_as_it_pays():
    """A quarter of the error is left by each halving, which doubles the work: sixteen times too much takes two, and no
    more than there are; none where the samples that it saves are fewer."""
    for size, halvings in ((0.4, 1), (0.6, 1), (0.8, 2), (1.9, 2), (8.0, 3), (1e9, HALVINGS)):
        assert remedied(review(step=size, monte_carlo=0.9)).halvings == halvings
    assert (
        remedied(review(step=0.6, monte_carlo=0.9, projection=0.6, bias=0.4)).halvings == 2
    )  # all leave it too little


@pytest.mark.parametrize("monte_carlo", [1.1, 3.0])
def test_what_is_done_next_is_the_least_work_that_is_enough(monte_carlo):
    """Beside all halvings, each with the samples that the squares of the other errors ask for."""
    sizes = {"step": 0.7, "projection": 0.3, "bias": 0.2, "monte_carlo": monte_carlo}
    draft = remedied(review(**sizes))

    def work(halvings):
        rest = (sizes["step"] / 4**halvings) ** 2 + sizes["projection"] ** 2 + sizes["bias"] ** 2
        return max(1.0, MARGIN * monte_carlo**2 / (1 - rest)) * 2**halvings

    best = min(range(3), key=work)
    assert draft.halvings == 1 + best
    assert draft.work == pytest.approx(4096 * 2 * work(best))


def test_more_functions_to_come_leave_more_to_monte_carlo():
    usual = review(monte_carlo=2.0, projection=0.6)
    assert remedied(replace(usual, denser=True)).wanted < remedied(usual).wanted


def test_steps_that_are_given_stay():
    """More samples are taken while they help, and nothing where they do not."""
    given = replace(review(step=3.0, monte_carlo=2.0), free_steps=False)
    assert remedied(given).halvings == 1
    assert remedied(given).wanted > 4096
    assert remedied(replace(given, sizes=review(step=3.0).sizes)) == given.draft


def test_memory_that_is_too_much_alone_ends_the_work_once_samples_are_enough():
    hopeless = review(projection=1.1, monte_carlo=0.7, bias=0.3)
    assert remedied(hopeless) == hopeless.draft
    assert remedied(review(projection=1.1, monte_carlo=1.5)).wanted > 4096
    assert remedied(review(projection=0.9, monte_carlo=0.7)).wanted > 4096


def test_a_bias_takes_larger_marches():
    draft = remedied(review(bias=1.6))
    assert draft.least == 4 * 2048
    assert draft.each == 1024  # larger ones on the coarsest grid alone will do
    assert remedied(review(bias=16.0)).each > LARGEST


def test_samples_that_are_given_stay():
    fixed = replace(review(monte_carlo=9.0, bias=9.0), free_samples=False)
    assert remedied(fixed) == fixed.draft


def test_parts_that_are_small_alone_and_too_large_together_take_more_samples():
    draft = remedied(review(monte_carlo=0.4, step=0.4, projection=0.9, bias=0.39))
    assert draft.wanted == 1.5 * 4096


def test_shares_leave_monte_carlo_half():
    """Of what steps are halved for: the others may take their shares, and leave some for the steps."""
    rest = sum(source.share**2 for source in SOURCES if not isinstance(source, MonteCarlo | TimeStep))
    assert math.sqrt(1 - rest) > LEAST_NOISE


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_every_source_stands_beside_the_curves_of_a_solution(source):
    """As a variable, among the diagnostics, and in the total."""
    problem = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
    found = sl.solve(problem, sl.SGF(0.2), t_max=0.4, samples=4096, progress=False)
    errors = found.about["diagnostics"]["errors"]["norm"]
    beside = np.asarray(found[f"norm_{source.beside}"])
    assert errors[source.name] == pytest.approx(np.max(beside) / np.max(np.abs(found["norm"])))
    parts = [np.asarray(found[f"norm_{one.beside}"]) for one in SOURCES]
    np.testing.assert_allclose(found.curve("norm")[1], np.sqrt(sum(part**2 for part in parts)))


def test_names_of_sources():
    assert {source.name for source in SOURCES} >= {TimeStep.name, FiniteSamples.name, MonteCarlo.name}
    assert Split({"step": 1.0}, 0.5, 1.0).to_words() == {"step": 1.0, "total": 1.0, "step_seen": 0.5}


def stage_of(spread, gap):
    """What a stage with one memory finds: curves near 1 with this spread, functions this far apart."""
    values = 1.0 + spread * np.random.default_rng(0).standard_normal((16, 5))
    records = SimpleNamespace(values={"train_loss": values}, reason="", reached=5)
    level = SimpleNamespace(times=np.arange(5.0))
    return SimpleNamespace(
        projection={"train_loss": np.full(5, gap)}, records=[records], levels=[level], diverged=False
    )


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ([stage_of(1e-3, 1e-4)], 0),  # few are enough
        ([stage_of(1e-3, 1e-1), stage_of(1e-3, 1e-4)], 1),  # twice as many help
        ([stage_of(1e-3, 1e-1), stage_of(1e-3, 9e-2)], 0),  # do not help
        ([stage_of(1e-3, 1e-1), stage_of(1.0, 1e-4)], 0),  # run away
    ],
)
def test_more_functions_are_taken_as_long_as_they_help(found, taken, monkeypatch):
    rest = iter(found)

    def marched(grids, effort):
        yield from ()
        return next(rest)

    monkeypatch.setattr(marches, "_marched", marched)
    ask = asked(logistic(), sl.SGD(0.4), 1.0, {})
    talk = marches.climbed(marches.Stage(ask, marches.Effort(0, 256, 1)))
    with pytest.raises(StopIteration) as end:
        next(talk)
    assert end.value.value is found[taken]
