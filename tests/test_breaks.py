"""What changes in time between steps and recorded times: jumps and bursts of schedules, batches and fields."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from problems import CURVES, square

import sgdlimit as sl
from sgdlimit.algorithms import SGD
from sgdlimit.control.checks import look
from sgdlimit.dmft import planning
from sgdlimit.dmft.noise import STRIDES
from sgdlimit.measure.pace import knots_of, moving_of, speed_of
from sgdlimit.problem import fields
from sgdlimit.problem.schedules import course


def pulse(t, base, height, start, end, width, peak):
    """A factor, another one on [start, end), and a Gaussian burst around `end`."""
    inside = (t >= start) & (t < end)
    return base + jnp.where(inside, height, 0.0) + peak * jnp.exp(-0.5 * ((t - end) / jnp.where(peak, width, 1.0)) ** 2)


def schedule(base=0.0, height=0.0, start=99.0, end=99.0, width=1.0, peak=0.0, **more):
    numbers = dict(base=base, height=height, start=start, end=end, width=width, peak=peak)
    return sl.Schedule(pulse, parameters=numbers, **more)


JUMPS = {
    "off the grid, named": (schedule(0.0, 1.0, start=1.03, breaks=1.03), {"t_max": 1.6}),
    "not named": (schedule(0.0, 1.0, start=1.03), {"t_max": 1.6}),
    "two within a step": (schedule(0.2, 4.0, start=1.011, end=1.031), {"t_max": 1.6}),
    "just before the end": (schedule(0.2, 4.0, start=1.57), {"t_max": 1.6}),
    "within the first step": (schedule(0.3, 2.0, start=0.0, end=0.03), {"t_max": 1.6}),
    "beyond the end": (schedule(0.5, 2.0, start=1.7, breaks=[1.7]), {"t_max": 1.6}),
    "between named times": (schedule(0.0, 1.0, start=1.03), {"times": [0.5, 1.0, 1.05, 1.1, 1.6]}),
    "where steps grow": (schedule(0.05, 1.0, start=2.3), {"times": sl.grid.geometric(4.0, 0.1, 8)}),
    "a burst": (schedule(0.2, end=1.0137, width=0.01, peak=3.0), {"t_max": 1.6}),
}


def assert_exact(problem, algorithm, words, seed=0):
    """Curves and their errors against the closed form; all errors together stay within a few percent."""
    found = sl.solve(problem, algorithm, samples=8192, tol=0.3, seed=seed, **words)
    later = found.time > 0
    exact = sl.least_squares(problem, algorithm, times=found.time[later])
    for name in CURVES:
        value, error = found.curve(name)
        assert_within(value[later] - exact[name], error[later] + 1e-6, trials=16)
        assert np.max(error) < 0.04 * max(np.max(np.abs(exact[name])), 0.2), name


@pytest.mark.parametrize("name", JUMPS)
def test_jumps_of_a_schedule_keep_their_time(name):
    own, words = JUMPS[name]
    assert_exact(square(schedule=own), sl.SGD(0.1), words)


@pytest.mark.parametrize(
    "share", [schedule(0.2, 0.8, start=0.0, end=0.83), schedule(1.0, end=0.8137, width=0.01, peak=-0.9)],
    ids=["jump", "burst"],
)  # fmt: skip
def test_jumps_and_bursts_of_a_batch_keep_their_time(share):
    assert_exact(square(), sl.SGF(0.2, share), {"t_max": 1.6})


LASTING = schedule(0.2, end=1.5137, width=0.2, peak=5.0)


@pytest.mark.parametrize("more", [{}, {"data": sl.Spectrum([3.0, 0.5], [0.2, 0.8])}], ids=["iid", "groups"])
def test_few_functions_follow_what_weights_forget_in_a_burst(more):
    """Many steps at twenty-five times the usual rate: eight exponentials of time itself are 1.3e-2 to 8e-2 off."""
    problem, words = square(schedule=LASTING, **more), {"samples": 32768, "functions": 8, "tol": 0.3, "seed": 1}
    found = sl.solve(problem, sl.SGF(0.2), times=[1.0, 1.4, 1.8, 2.5], **words)
    exact = sl.least_squares(problem, sl.SGF(0.2), times=found.time)
    for name in CURVES:
        value, error = found.curve(name)
        assert_within(value - exact[name], error + 1e-6, trials=16)
        assert np.max(found[f"{name}_projection_error"]) < 2e-3 * np.max(np.abs(exact[name])), name


def test_the_clock_of_the_memory():
    """That of a schedule is its integral; half of that of a field is its own, in units of its median."""
    at = np.linspace(0.0, 2.0, 201)
    assert speed_of(square(), at) is None
    of_fields = sl.Problem(sample_ratio=2.0, **WORDS, **as_fields(schedule(0.2, 4.0, start=1.2)))
    for problem, expected in [
        (square(schedule=schedule(0.2, 4.0, start=1.0)), np.where(at < 1.0, 0.2, 4.2)),
        (of_fields, np.where(at < 1.2, 1.0, (1 + 2 * 21.0) / 3)),
    ]:
        speed = speed_of(problem, at)
        assert speed is not None
        np.testing.assert_allclose(speed(at), expected)


def test_restarts_of_a_cosine_are_found():
    own = sl.Schedule(lambda t: 0.5 * (1 + jnp.cos(jnp.pi * (t / 0.77 - jnp.floor(t / 0.77)))))
    np.testing.assert_allclose(course("schedule", own, 2.0).breaks, [0.77, 1.54], rtol=1e-12)
    assert_exact(square(schedule=own), sl.SGD(0.1), {"t_max": 2.0})


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (lambda t: jnp.where(t < 0.3, 1.0, 0.98), [0.3]),
        (lambda t: jnp.where(t <= 0.3, -1.0, 1.0), [np.nextafter(0.3, 1)]),
        (lambda t: 0.9 ** jnp.floor(t / 0.25), [0.25, 0.5, 0.75]),
        (lambda t: jnp.tanh((t - 0.3) * 1e6) + 2.0, []),
        (lambda t: (1 + t / 1e-9) ** -0.5, []),
        (lambda t: jnp.where((t > 0.3) & (t < 0.30001), 50.0, 0.0), [0.3, 0.30001]),
    ],
)
def test_jumps_are_told_from_steep_slopes(fn, found):
    np.testing.assert_allclose(course("schedule", sl.Schedule(fn), 1.0).breaks, found, rtol=1e-12)


def test_grids_of_all_strides_hold_the_breaks_and_do_not_know_the_end():
    """Times up to t = 2 are the same bit for bit whether a march goes on or not."""
    own = schedule(0.1, 3.0, start=0.3, end=0.3001, width=0.02, peak=2.0)
    for times in (None, np.arange(0, 2.01, 0.25)):
        longer = None if times is None else np.arange(0, 4.01, 0.25)
        grids = []
        for last, wanted in ((2.0, times), (4.0, longer)):
            moving = look(square(schedule=own), SGD(0.1), last).moving
            found = planning.steps(SGD(0.1), last, wanted, 0.0625, 1.0, False, moving=moving)
            coarse = found.times[::STRIDES]
            assert np.isin([0.3, 0.3001], coarse).all()
            assert np.all(np.diff(found.times) > 0)
            assert len(found.times) % STRIDES == 1
            # shorter after a jump than before it
            after = np.diff(coarse)[np.searchsorted(coarse, 0.3001)]
            assert after <= 0.5 * STRIDES * 0.0625
            grids.append(found)
        short, long = grids
        assert np.array_equal(short.times, long.times[: len(short.times)])
        assert np.array_equal(short.times[short.record], long.times[long.record][: len(short.record)])


def test_algorithms_in_discrete_time_keep_their_steps():
    problem = square(schedule=schedule(0.1, 1.0, start=0.33))
    assert look(problem, sl.ProportionalSGD(0.5), 2.0).moving == ()


# --- fields of time ---

WORDS = {"teacher": sl.Normal(1.0), "noise": sl.Normal(0.3)}


def force(r, r_star, z, t, **numbers):
    return pulse(t, **numbers) * (r - r_star - z)


def drift(theta, t, strength, **numbers):
    return strength * pulse(t, **numbers) * theta


def as_fields(own, strength=0.3, breaks=()):
    """Ridge regression under a schedule, as fields that know the time themselves."""
    loss = sl.VectorField(
        force, loss=lambda r, y: 0.5 * (r - y) ** 2, predict=lambda r: r, error=lambda a, y: (a - y) ** 2,
        parameters=own.parameters, breaks=breaks,
    )  # fmt: skip
    penalty = sl.VectorField(drift, parameters={**own.parameters, "strength": strength}, breaks=breaks)
    return {"loss": loss, "penalty": penalty}


BURST = schedule(0.2, end=0.9137, width=0.004, peak=12.0)


@pytest.mark.parametrize("own", [BURST, schedule(0.0, 1.0, start=0.83)], ids=["burst", "jump"])
def test_fields_of_time_are_resolved(own):
    """Loss and penalty as fields; `solve` against the closed form of the schedule that they stand for."""
    exact = sl.least_squares(
        sl.Problem(loss=sl.Square(), penalty=sl.Ridge(0.3), sample_ratio=2.0, schedule=own, **WORDS),
        sl.SGF(0.05), times=[0.7, 0.9, 1.1],
    )  # fmt: skip
    found = sl.solve(
        sl.Problem(sample_ratio=2.0, **WORDS, **as_fields(own)), sl.SGF(0.05), times=exact.time, samples=8192, tol=0.3
    )
    for name in CURVES:
        value, error = found.curve(name)
        assert_within(value - exact[name], error + 1e-6, trials=16)


@pytest.mark.parametrize("curved", [False, True], ids=["moments", "particles"])
def test_fields_of_time_are_resolved_with_infinite_data(curved):
    """A burst in a hundred units of time that does half of the work."""
    own = schedule(0.01, end=60.3, width=0.001, peak=400.0)
    late = {"times": [100.0], "samples": 256, "replicas": 2}
    problem = sl.Problem(loss=sl.Square(), sample_ratio=math.inf, schedule=own, **WORDS)
    exact = sl.least_squares(problem, sl.SGF(1e-6), times=[60.0, 60.6, 100.0])["overlap"][-1]
    penalty = sl.SmoothL1(1e-9) if curved else sl.NoPenalty()
    field = sl.Problem(sample_ratio=math.inf, **WORDS, **(as_fields(own) | {"penalty": penalty}))
    more = {"particles": 256, "dt": 0.5} if curved else {}
    found = sl.online(field, sl.SGF(1e-6), **late, **more)["overlap"]
    assert found.item() == pytest.approx(exact.item(), rel=0.02 if curved else 1e-5)


def test_a_penalty_that_is_nonlinear_for_a_moment_is_not_linear():
    own = BURST.parameters
    bent = sl.VectorField(lambda theta, t: 0.1 * theta + (pulse(t, **own) - 0.2) * theta**3)
    problem = sl.Problem(loss=sl.Square(), penalty=bent, sample_ratio=2.0, **WORDS)
    assert not fields.linear_drift(problem, 2.0, knots_of(moving_of(problem), 2.0))


def test_simulated_flows_see_bursts_of_fields():
    own = schedule(0.2, end=0.5137, width=0.002, peak=100.0)
    exact = sl.least_squares(
        sl.Problem(loss=sl.Square(), penalty=sl.Ridge(0.3), sample_ratio=2.0, schedule=own, **WORDS),
        sl.GradientFlow(), times=[1.0],
    )  # fmt: skip
    problem = sl.Problem(sample_ratio=2.0, **WORDS, **as_fields(own))
    runs = sl.simulate(problem, sl.GradientFlow(), dim=400, trials=4, times=[1.0])
    assert runs["overlap"].mean() == pytest.approx(exact["overlap"].item(), rel=0.05)


def test_breaks_of_a_field_are_times():
    with pytest.raises(sl.InputError, match=r"VectorField\.breaks.*≥ 0"):
        sl.VectorField(lambda theta, t: theta, breaks=[-1.0])
