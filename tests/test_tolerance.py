"""A tolerance is met, or it is said why not."""

import warnings
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from problems import logistic

import sgdlimit as sl
from sgdlimit.control import stages
from sgdlimit.control.marches import Effort

RIDGE = sl.Problem(
    loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
)
NAMES = ("train_loss", "test_loss", "train_error", "test_error", "overlap", "norm")


@cache
def within(tol: float) -> sl.Solution:
    """One solution for all tests that look at it."""
    return sl.solve(RIDGE, sl.SGD(0.3), t_max=2.0, tol=tol)


def off(found: sl.Solution, exact: sl.Solution) -> float:
    """The largest true error relative to its curve."""
    return max(float(np.max(np.abs(found[n] - exact[n])) / np.max(np.abs(exact[n]))) for n in NAMES if n in exact)


@pytest.mark.parametrize("tol", [5e-2, 1e-2, pytest.param(4e-3, marks=pytest.mark.slow)])
def test_what_is_called_complete_is_within_its_tolerance(tol: float) -> None:
    times = np.linspace(0.0, 4.0, 11)
    exact = sl.least_squares(RIDGE, sl.SGD(0.3), times=times)
    found = sl.solve(RIDGE, sl.SGD(0.3), times=times, tol=tol, seed=2)
    assert found.status == "complete"
    assert found.about["options"]["tol"] == tol
    errors = found.about["diagnostics"]["errors"]
    assert 2 * max(part["total"] for part in errors.values()) <= tol
    assert off(found, exact) <= tol
    assert found.quality.passed


def test_a_smaller_tolerance_takes_more_samples_and_no_fewer_steps() -> None:
    rough, fine = (within(tol).about["options"] for tol in (5e-2, 5e-3))
    assert fine["samples"] > 4 * rough["samples"]
    assert fine["dt"] <= rough["dt"]


def test_only_the_named_curves_must_meet_it() -> None:
    all_of_them = within(5e-3)
    overlap = sl.solve(RIDGE, sl.SGD(0.3), t_max=2.0, tol=5e-3, variables="overlap")
    assert overlap.about["options"]["samples"] < all_of_them.about["options"]["samples"]
    assert 2 * overlap.about["diagnostics"]["errors"]["overlap"]["total"] <= 5e-3


def test_fixed_knobs_miss_a_tolerance_aloud() -> None:
    with pytest.warns(sl.ToleranceWarning, match="asked for 0.001"):
        found = sl.solve(RIDGE, sl.SGD(0.3), t_max=2.0, tol=1e-3, samples=4096)
    assert found.status == "tolerance missed"
    assert not found.success
    assert "take more samples" in found.message


def test_fixed_knobs_promise_nothing_unasked() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sl.solve(RIDGE, sl.SGD(0.3), t_max=2.0, samples=4096)
    assert found.status == "complete"
    assert found.about["options"]["tol"] is None


def test_a_budget_returns_the_best_so_far() -> None:
    with pytest.warns(sl.ToleranceWarning, match="max_seconds"):
        found = sl.solve(RIDGE, sl.SGD(0.3), t_max=2.0, tol=1e-4, max_seconds=0.5)
    assert found.status == "budget"
    assert np.all(np.isfinite(found["train_loss"]))
    assert found.about["diagnostics"]["seconds"] < 20.0


@pytest.mark.parametrize(("idle", "least", "most"), [(0, 16.0, 16.0), (2**18, 1.5, 3.0)])
def test_a_device_that_is_not_busy_takes_samples_along(
    idle: int, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen times the samples take sixteen times as long where a machine is busy, and what is cut to fit, fits."""
    monkeypatch.setattr(stages.machine, "idle", lambda: idle)
    question: Any = SimpleNamespace(replicas=16)
    stage: Any = SimpleNamespace(effort=Effort(0, 1024, 1), question=question, strides=lambda steps: (1, 2, 4))
    found: Any = SimpleNamespace(repeats=1, system=SimpleNamespace(samples=1024), samples=1024, steps=None)
    none: Any = None
    reached = stages.Reached(stage, found, none, 1.0)
    large = Effort(0, 1024, 16, 16384)
    assert least <= stages.seconds_of(large, reached) <= most
    endless = Effort(1, 1024, 2**16, 16384)
    cut = stages._within(endless, reached, 40.0)
    assert cut is not None
    longer = cut._replace(repeats=cut.repeats + 1)
    assert stages.seconds_of(cut, reached) <= 32.0 < stages.seconds_of(longer, reached)


def test_short_memory_takes_replicas_apart() -> None:
    chosen = {"t_max": 2.0, "tol": 5e-2}
    one = sl.plan(RIDGE, sl.SGD(0.3), **chosen).memory
    roomy, tight = (sl.solve(RIDGE, sl.SGD(0.3), **chosen, max_bytes=most) for most in (1e10, 1.5 * one))
    assert off(tight, roomy) < 1e-5


def test_large_work_is_begun_with_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a first small stage tells of a hot problem is uncertain: nothing is made a hundred times larger at once."""
    made, one_stage = [], stages.one_stage

    def seen(stage: Any) -> Any:
        made.append(stage.effort)
        return one_stage(stage)

    monkeypatch.setattr(stages, "one_stage", seen)
    hot = replace(RIDGE, penalty=sl.NoPenalty(), sample_ratio=1.2)
    times = np.linspace(0.0, 2.0, 6)
    found, exact = sl.solve(hot, sl.SGD(1.6), times=times, tol=2e-2), sl.least_squares(hot, sl.SGD(1.6), times=times)
    assert found.status == "complete"
    assert off(found, exact) < 2e-2
    assert made[1].each * made[1].repeats == stages.GROWTH * made[0].each * made[0].repeats
    for before, after in pairwise(made):
        assert after.halvings <= before.halvings + stages.AT_ONCE
        assert after.each * after.repeats <= stages.GROWTH * before.each * before.repeats


@pytest.mark.parametrize("after", [0, 1])
def test_memory_that_others_hold(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device says so only when it is asked for: the best so far, or a word that names the remedy."""
    march, done = stages.climbed, []

    def crowded(*given: Any) -> Any:
        if len(done) == after:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.06GiB")
        done.append(given)
        return march(*given)

    monkeypatch.setattr(stages, "climbed", crowded)
    ask = partial(sl.solve, RIDGE, sl.SGD(0.3), t_max=2.0, tol=2e-3)
    if not after:
        with pytest.raises(sl.InputError, match="max_bytes"):
            ask()
        return
    with pytest.warns(sl.ToleranceWarning, match="memory that is there"):
        found = ask()
    assert found.status == "budget"
    assert np.all(np.isfinite(found["train_loss"]))


def test_without_a_teacher_many_marches_warn_of_nothing() -> None:
    problem = sl.Problem(loss=sl.Square(), labels=sl.Noise(), sample_ratio=2.0, noise=sl.Normal(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sl.solve(problem, sl.SGD(0.3), t_max=1.0, samples=2**17).status == "complete"


def test_a_plan_tells_what_a_tolerance_takes() -> None:
    rough, fine = (sl.plan(RIDGE, sl.SGD(0.3), t_max=2.0, tol=tol) for tol in (5e-2, 2e-3))
    assert rough.reachable
    assert rough.seconds < fine.seconds
    assert rough.samples < fine.samples
    assert "tol = 0.002" in repr(fine)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"tol": 0.0}, "tol"),
        ({"tol": 1e-9}, "tol"),
        ({"tol": "small"}, "tol"),
        ({"variables": "tain_error"}, "variables"),
        ({"variables": []}, "variables"),
        ({"max_seconds": -1.0}, "max_seconds"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": 1e3}, "samples"),
    ],
)
def test_wrong_wishes_are_refused(given: dict[str, object], name: str) -> None:
    with pytest.raises(sl.InputError, match=rf"^{name}: got"):
        sl.solve(RIDGE, sl.SGD(0.31), t_max=2.0, **given)  # type: ignore[arg-type]


def test_every_part_of_the_error_is_there() -> None:
    found = within(5e-2)
    parts = [found[f"norm_{part}"] for part in ("stderr", "step_error", "projection_error", "bias_error")]
    assert all(np.any(part > 0) for part in (parts[0], parts[1], parts[3]))
    np.testing.assert_allclose(found.curve("norm")[1], np.sqrt(sum(part**2 for part in parts)))
    split = {"monte_carlo", "step", "projection", "bias", "total", "step_seen"}
    assert set(found.about["diagnostics"]["errors"]["norm"]) == split


def test_larger_marches_leave_less_bias() -> None:
    """Logistic regression: the level of the curves comes from large marches on the coarsest grid."""
    problem = sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.01), sample_ratio=2.0, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1),
    )  # fmt: skip
    found = sl.solve(problem, sl.SGD(0.2), t_max=2.0, samples=2**17)
    options = found.about["options"]
    assert options["samples_of_one_march"] > options["samples_on_finer_grids"] // options["replicas"] // 4
    assert np.max(found["train_loss_bias_error"]) < 0.5 * np.max(found["train_loss_stderr"])


def test_times_before_the_coarsest_step_are_not_left_to_few_marches() -> None:
    """A zero-one error there is told by marches on finer grids alone: too few of them took 3·10⁶ samples."""
    found = sl.solve(logistic(ridge=0.1, noise=sl.Normal(0.5)), sl.SGD(0.5), t_max=6.0, seed=0, progress=False)
    assert found.status == "complete"
    assert found.about["options"]["samples"] < 500_000


def test_samples_are_not_spent_on_a_step_that_was_given() -> None:
    """Of dt = 0.1 the step error is twice the tolerance; eight stages of samples did not change it."""
    found = sl.solve(RIDGE, sl.SGF(0.5), t_max=1.0, dt=0.1, progress=False)
    errors = found.about["diagnostics"]["errors"]
    assert max(part["step"] for part in errors.values()) > 0.5e-2
    assert found.about["options"]["samples"] < 500_000
