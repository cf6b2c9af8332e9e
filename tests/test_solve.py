"""`solve` against closed forms, limits, second methods and itself."""

import dataclasses
import math
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within, threshold
from problems import CURVES, logistic, square
from scipy.linalg import expm

import sgdlimit as sl
from sgdlimit import _machine as machine
from sgdlimit.dmft import curves, march
from sgdlimit.exact.spectrum import marchenko_pastur


def assert_same(first, second, names=CURVES, floor=1e-9):
    """Two solutions on the same grids agree within Monte Carlo errors at every fifth time (neighbours go together)."""
    for name in names:
        spread = np.hypot(first[f"{name}_stderr"], second[f"{name}_stderr"])
        assert_within((first[name] - second[name])[::5], spread[::5] + floor)


def retarded(solution, name):
    """A response on and below the diagonal."""
    value, error = solution.curve(name)
    below = np.tril(np.ones(value.shape[:2], dtype=bool))
    return value[below], error[below], below


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(
    ("delta", "tau", "ridge", "dt"), [(2.0, 0.4, 0.1, 0.05), (0.5, 0.8, 0.3, 0.025), (4.0, 0.0, 0.0, 0.05)]
)
def test_ridge_regression_is_the_volterra_solution(delta, tau, ridge, dt, kernels):
    """Curves and kernels within the reported errors (Monte Carlo, time step, memory) everywhere."""
    problem, algorithm = square(delta, ridge), sl.SGF(tau)
    solution = sl.solve(problem, algorithm, t_max=4.0, dt=dt, samples=16384, kernels=kernels, seed=1)
    exact = sl.least_squares(problem, algorithm, times=solution.time, kernels=True)
    for name in (*CURVES, "train_loss", "test_loss"):
        value, error = solution.curve(name)
        assert_within(value - exact[name], error + 1e-9, trials=16)
    assert solution.success
    if not kernels:
        return
    for name in ("R_theta", "R_ell"):
        value, error, below = retarded(solution, name)
        # nobody measures what a few functions make of a kernel; curves see far less of it
        floor = 2e-3 * np.max(np.abs(exact[name]))
        assert_within(value - exact[name][below], error + floor, trials=16)
    np.testing.assert_allclose(solution["Gamma"], 1.0, atol=1e-6)
    assert np.all(solution["R_theta"][~below] == 0)


def test_square_loss_sees_only_two_moments_of_the_increments():
    flow = sl.solve(square(), sl.SGF(0.8), t_max=3.0, dt=0.1, samples=8192, seed=1)
    sgd = sl.solve(square(), sl.SGD(0.8), t_max=3.0, dt=0.1, samples=8192, seed=2)
    assert_same(flow, sgd)


@pytest.fixture(scope="module", params=(False, True))
def marched(request):
    """On one grid, as the references are."""
    words = {"t_max": 2.0, "dt": 0.1, "samples": 8192, "extrapolate": False, "kernels": request.param}
    return sl.solve(logistic(), sl.SGF(1.0), seed=3, **words)


def assert_same_responses(first, second, floor):
    for name in ("R_theta", "R_ell"):
        below = np.tril(np.ones(first[name].shape[:2], dtype=bool))
        spread = np.hypot(first[f"{name}_stderr"], second[f"{name}_stderr"])
        assert_within((first[name] - second[name])[below], spread[below] + floor)


def test_responses_agree(marched):
    """The regression against the paper's processes ρ_ℓ, D_ℓ, D_r."""
    words = {"t_max": 2.0, "dt": 0.1, "samples": 8192, "extrapolate": False, "kernels": "R_ell" in marched}
    other = sl.references.processes(logistic(), sl.SGF(1.0), seed=4, **words)
    assert other.about["options"]["memory"] == "dense"
    assert_same(marched, other)
    if "R_ell" in marched:
        assert_same_responses(marched, other, 1e-3)  # kernels of moments: to 1e-3


@pytest.mark.slow
def test_fixed_point_and_march_agree(marched):
    words = {"t_max": 2.0, "dt": 0.1, "samples": 8192, "kernels": "R_ell" in marched}
    iterated = sl.references.fixed_point(logistic(), sl.SGF(1.0), seed=5, **words)
    assert iterated.success
    at = [int(np.abs(iterated.time - t).argmin()) for t in marched.time]
    np.testing.assert_allclose(iterated.time[at], marched.time)
    for name in CURVES:
        spread = np.hypot(marched[f"{name}_stderr"], iterated[f"{name}_stderr"][at])
        assert_within(marched[name] - iterated[name][at], spread + 1e-9)
    for name in ("R_theta", "R_ell") if "R_ell" in marched else ():
        below = np.tril(np.ones((len(at), len(at)), dtype=bool))
        other, error = (iterated[x][np.ix_(at, at)] for x in (name, f"{name}_stderr"))
        gap, spread = marched[name] - other, np.hypot(marched[f"{name}_stderr"], error)
        assert_within(gap[below], spread[below] + 2e-3)  # the iteration stops at a relative change of 1e-3


def test_fixed_point_says_when_it_has_not_converged():
    with pytest.warns(sl.DivergenceWarning, match="no fixed point after 2 iterations"):
        out = sl.references.fixed_point(logistic(), sl.SGF(1.0), t_max=1.0, dt=0.1, samples=4096, iterations=2)
    assert out.status == "tolerance missed"


JUMPING = {
    "where": (
        sl.Labels(lambda s, z: jnp.where(s > 0.3, 1.0, -0.5) + z),
        lambda s: np.where(s > 0.3, 1, -0.5),
    ),
    "round": (sl.Labels(lambda s, z: jnp.round(1.5 * s) + z), lambda s: np.round(1.5 * s)),
    "sign network": (sl.TwoLayerLabels(jnp.sign), np.sign),
}


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        *((name, "exact") for name in JUMPING),
        ("where", "particle"),
        *(pytest.param(name, "particle", marks=pytest.mark.slow) for name in ("round", "sign network")),
    ],
)
def test_labels_that_jump_in_the_teacher(name, weights):
    """Square loss sees of y = f(r*) + z its part a·r* with a = E[f(g)g], and the variance of the rest: exact curves."""
    labels, f = JUMPING[name]
    g = np.linspace(-9, 9, 180_001) + 1e-6  # off the jumps
    weight = np.exp(-(g**2) / 2) / np.sum(np.exp(-(g**2) / 2))
    a, second = np.sum(weight * g * f(g)), np.sum(weight * f(g) ** 2)
    # a hair of a penalty that is not quadratic asks for particles
    penalty = sl.Ridge(0.1) if weights == "exact" else sl.Penalty(lambda x: 0.05 * x**2 + 1e-5 * jnp.cos(x))
    found = sl.solve(square(labels=labels, penalty=penalty), sl.SGD(0.5), t_max=2.0, dt=0.1, samples=8192, seed=6)
    assert f"{weights} weights" in found.title()
    as_linear = square(teacher=sl.Normal(a), noise=sl.Normal(math.sqrt(0.09 + second - a**2)))
    exact = sl.least_squares(as_linear, sl.SGD(0.5), times=found.time)
    for curve, scale in (("overlap", a), ("norm", 1.0), ("train_error", 1.0), ("test_error", 1.0)):
        value, error = found.curve(curve)
        assert_within((value - exact[curve] / scale)[::5], error[::5] + 1e-4)


@pytest.mark.slow
def test_particles_and_linear_algebra_agree():
    """A quadratic penalty is detected, whoever wrote it; with particles it gives the same curves."""
    own, words = sl.Penalty(lambda theta: 0.15 * theta**2), {"t_max": 2.0, "dt": 0.1, "samples": 8192}
    known = sl.solve(logistic(ridge=0.3), sl.SGF(0.5), seed=8, **words)
    detected = sl.solve(logistic(penalty=own), sl.SGF(0.5), seed=8, **words)
    assert "exact weights" in detected.title()
    np.testing.assert_allclose(detected["norm"], known["norm"], rtol=1e-5, atol=1e-7)
    nearly = sl.Penalty(lambda theta: 0.15 * theta**2 + 1e-3 * (jnp.cos(theta) - 1))
    particles = sl.solve(logistic(penalty=nearly), sl.SGF(0.5), seed=9, **words)
    assert "particle weights" in particles.title()
    assert_same(known, particles)


def pair_loss(r, y):
    """Two logistic losses side by side; y = ±1 is the first unit's label, the second sees −y."""
    return jnp.log1p(jnp.exp(-y * r[0])) + jnp.log1p(jnp.exp(y * r[1]))


def test_two_decoupled_units_are_two_problems():
    """Unit 2 sees the opposite label: both have the same norm, opposite overlaps."""
    labels = sl.Labels(lambda r_star, z: jnp.where(r_star + z >= 0, 1.0, -1.0), binary=True)
    both = sl.Problem(
        loss=sl.Loss(pair_loss), labels=labels, penalty=sl.Ridge(0.01), sample_ratio=2.0, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1), width=2, teacher_width=1,
    )  # fmt: skip
    pair = sl.solve(both, sl.SGD(1.0), t_max=2.0, dt=0.1, samples=8192, seed=12)
    one = sl.solve(logistic(), sl.SGD(1.0), t_max=2.0, dt=0.1, samples=8192, seed=13)
    (norm, e), (single, f) = pair.curve("norm"), one.curve("norm")
    (overlap, g), (other, h) = pair.curve("overlap"), one.curve("overlap")
    for unit, sign in ((0, 1), (1, -1)):
        assert_within((norm[:, unit, unit] - single[:, 0, 0])[::5], np.hypot(e[:, unit, unit], f[:, 0, 0])[::5] + 1e-9)
        assert_within(
            (overlap[:, unit, 0] - sign * other[:, 0, 0])[::5], np.hypot(g[:, unit, 0], h[:, 0, 0])[::5] + 1e-9
        )


@pytest.mark.slow
def test_order_of_matrices_in_a_non_symmetric_linear_field():
    """ℓ = A r, h = Λ θ, not symmetric: R_θ = ∫ exp(−(xA+Λ)t) dμ and R_ℓ = −(1/δ) A ∫ x exp(−(xA+Λ)t) dμ A."""
    A, stiff, delta = np.array([[1.0, 0.6], [-0.3, 0.8]]), np.array([[0.1, 0.4], [0.0, 0.2]]), 2.0
    problem = sl.Problem(
        loss=sl.VectorField(lambda r, r_star, z: jnp.asarray(A) @ r - z),
        labels=sl.Noise(),
        penalty=sl.VectorField(lambda theta: jnp.asarray(stiff) @ theta),
        sample_ratio=delta,
        noise=sl.Normal(1.0),
        width=2,
    )
    mu = marchenko_pastur(delta, 3.0)

    def kernels(t):
        flows = np.stack([expm(-(x * A + stiff) * t) for x in mu.nodes])
        return np.einsum("x,xab->ab", mu.weights, flows), -A @ np.einsum(
            "x,xab->ab", mu.weights * mu.nodes, flows
        ) @ A / delta

    for algorithm in (sl.GradientFlow(), sl.SGF(0.5)):
        solution = sl.solve(problem, algorithm, t_max=2.0, dt=0.05, samples=16384, kernels=True, seed=14)
        for lag in range(len(solution.time)):
            exact = kernels(solution.time[lag])
            for name, wanted in zip(("R_theta", "R_ell"), exact, strict=True):
                value, error = solution.curve(name)
                assert_within(value[lag, 0] - wanted, error[lag, 0] + 2e-3 * np.max(np.abs(value)), trials=16)


def test_many_samples_per_dimension_approach_the_online_limit():
    problem = logistic(200.0, 0.05)
    near = sl.solve(problem, sl.SGF(0.5), t_max=2.0, dt=0.05, samples=8192, seed=15)
    online = sl.online(problem, sl.SGF(0.5), times=near.time)
    for name in CURVES:
        (a, e), (b, f) = near.curve(name), online.curve(name)
        # what is left at δ = 200 is O(1/δ)
        assert_within((a - b)[::5], np.hypot(e, f)[::5] + 2 / 200)


@pytest.mark.slow
def test_small_temperature_approaches_gradient_flow():
    flow = sl.solve(logistic(), sl.GradientFlow(), t_max=2.0, dt=0.1, samples=8192, seed=16)
    for algorithm in (sl.SGD(1e-4), sl.ShuffledSGD(1e-4)):
        near = sl.solve(logistic(), algorithm, t_max=2.0, dt=0.1, samples=8192, seed=17)
        assert_same(flow, near)


def test_full_batches_are_gradient_flow_step_by_step():
    """b = 1: every increment is γ, whatever the law; the three march through the same numbers.

    But for the penalty, which a flow takes at the end of a step: of order λ²γt.
    """
    grids = {"t_max": 2.0, "dt": 0.1, "samples": 4096, "seed": 18}
    flow = sl.solve(logistic(), sl.GradientFlow(), extrapolate=False, **grids)
    for algorithm in (sl.ProportionalSGD(1.0), sl.PersistentSGD(1.0, 1.0)):
        full = sl.solve(logistic(), algorithm, **grids)
        for name in CURVES:
            np.testing.assert_allclose(full[name], flow[name], rtol=1e-3, atol=1e-3)


def test_constant_schedule_is_a_change_of_time():
    """s(t) = 2 on gradient flow: twice as fast, so half the steps of half the size."""
    words = {"samples": 4096, "seed": 19}
    twice = logistic(schedule=sl.Schedule(lambda t: 2.0 + 0 * t))
    fast = sl.references.tangents(twice, sl.GradientFlow(), t_max=1.0, dt=0.05, **words)
    slow = sl.references.tangents(logistic(), sl.GradientFlow(), t_max=2.0, dt=0.1, **words)
    for name in CURVES:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-4, atol=1e-5)


def values_on(solution, times):
    """Curves and kernels, without estimates that look ahead, at times that the solution has."""
    at = [int(np.abs(solution.time - t).argmin()) for t in times]
    np.testing.assert_allclose(solution.time[at], times, rtol=1e-12)
    for name, variable in solution.variables.items():
        if not name.endswith(("_step_error", "_projection_error")):  # these look ahead
            values = variable.values
            for axis, dim in enumerate(variable.dims):
                values = np.take(values, at, axis) if dim in ("time", "earlier") else values
            yield name, values


def test_prefix_invariance_bit_for_bit():
    """On the coarsest grid, within a range of lengths (up to 8); kernels are recorded there alone."""
    words = {"dt": 0.0625, "samples": 4096, "kernels": True}  # times are whole in binary, too
    short = sl.solve(logistic(), sl.SGD(1.0), t_max=2.0, **words)
    for t_max in (3.0, 8.0):
        long = dict(values_on(sl.solve(logistic(), sl.SGD(1.0), t_max=t_max, **words), short.time))
        for name, values in values_on(short, short.time):
            # test averages look at more points at some times only, and train averages are corrected by them
            if not name.startswith(("test", "train")):
                assert np.array_equal(values, long[name]), name
        for name in ("test_loss", "test_error", "train_loss", "train_error"):
            np.testing.assert_allclose(short[name], long[name], atol=0.5 * np.max(short[f"{name}_stderr"]))


def test_two_devices_give_what_one_gives():
    """Replicas are spread over all devices: the same numbers to rounding."""
    code = """
import jax, numpy as np, sgdlimit as sl
problem = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.01), sample_ratio=2.0,
                     teacher=sl.Normal(1.0), noise=sl.Normal(0.1))
s = sl.solve(problem, sl.SGD(0.5), t_max=1.0, dt=0.125, samples=4096, seed=3)
print(len(jax.devices()), *s["norm"].ravel(), *s["train_loss"], *s["test_error"])
"""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    two = np.array(fresh(code, XLA_FLAGS=flags).split(), dtype=float)
    s = sl.solve(logistic(), sl.SGD(0.5), t_max=1.0, dt=0.125, samples=4096, seed=3)
    one = np.array([len(jax.devices()), *s["norm"].ravel(), *s["train_loss"], *s["test_error"]])
    assert (one[0], two[0]) == (1, 2)
    np.testing.assert_allclose(two[1:], one[1:], rtol=1e-5, atol=1e-6)


def fresh(code, **environment):
    """What a new process prints; it must say nothing else."""
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True, check=False,
        timeout=300, env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


SMALL = """
import time, sgdlimit as sl
problem = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0))
print(sl.solve(problem, sl.SGF(0.5), t_max=1.0, dt=0.05, samples=4096).about["diagnostics"]["compile_seconds"])
"""


def test_programs_are_kept_between_processes(tmp_path):
    folder = tmp_path / "programs"
    times = [float(fresh(SMALL, SGDLIMIT_CACHE=str(folder))) for _ in range(2)]
    assert any(folder.iterdir())
    assert times[1] < 0.7 * times[0]


SMALLEST = """
import jax, sgdlimit
from sgdlimit._machine import keep_programs
keep_programs()  # as `solve` does first of all
print(jax.jit(lambda x: x + 1)(1.0))
"""


@pytest.mark.parametrize(("where", "code"), [("", SMALLEST), ("/proc/nowhere", SMALLEST), ("file", SMALL)])
def test_a_folder_that_cannot_be_written_is_passed_over_in_silence(where, code, tmp_path):
    (tmp_path / "file").write_text("in the way")
    place = str(tmp_path / where) if where == "file" else where
    assert float(fresh(code, SGDLIMIT_CACHE=place)) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_programs_are_forgotten_before_a_process_has_too_many(monkeypatch, tmp_path):
    """Linux ends a process of more than 65 530 regions of memory; a compiled program takes some."""
    cleared, regions, limit = [], tmp_path / "maps", tmp_path / "max_map_count"
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(0))
    monkeypatch.setattr(machine, "REGIONS", regions)
    monkeypatch.setattr(machine, "LIMIT_OF_REGIONS", limit)
    for lines, times in ((None, 0), (60, 0), (61, 1)):
        if lines is not None:
            regions.write_bytes(lines * b"a region\n")
            limit.write_text("100\n")
        machine.keep_programs()
        assert len(cleared) == times


def test_grids_and_recorded_times():
    """A geometric grid and a uniform one describe the same curve."""
    times = sl.grid.geometric(2.0, 0.05, 12)
    refined = sl.solve(logistic(), sl.SGF(0.5), times=times, dt=0.05, samples=8192, seed=20)
    uniform = sl.solve(logistic(), sl.SGF(0.5), t_max=2.0, dt=0.05, samples=8192, seed=21)
    np.testing.assert_allclose(refined.time, times)
    for name in CURVES:
        (a, e), (b, f) = refined.curve(name), uniform.curve(name)
        flat = np.reshape(b, (len(b), -1))[:, 0], np.reshape(f, (len(f), -1))[:, 0]
        b, f = (np.interp(times, uniform.time, part) for part in flat)
        # a straight line between points 0.05 apart is off by their curvature
        assert_within(np.reshape(a, len(a)) - b, np.hypot(np.reshape(e, len(e)), f) + 1e-3)
    bare = sl.solve(logistic(), sl.SGF(0.5), times=[0.1, 0.2, 0.4])
    np.testing.assert_allclose(bare.time, [0.1, 0.2, 0.4])


@pytest.mark.parametrize("kernels", [False, True])
def test_what_is_recorded_where_nothing_is_asked_for(kernels):
    """Every fine step up to 400; with kernels every fourth; steps are a whole number of the coarsest."""
    words = {"samples": 8192, "dt": 0.1}
    plain = sl.solve(square(), sl.SGF(0.5), t_max=2.3, **words)
    assert len(plain.time) == 25
    np.testing.assert_allclose(np.diff(plain.time), 2.3 / 24)
    if kernels:
        with_kernels = sl.solve(square(), sl.SGF(0.5), t_max=2.3, kernels=True, **words)
        np.testing.assert_allclose(with_kernels.time, plain.time[::4])
        return
    long = sl.solve(square(), sl.SGF(0.5), t_max=60.0, **words)
    assert 64 < len(long.time) <= 129
    for name in ("norm", "test_error"):
        for ending in ("_stderr", "_step_error", "_projection_error"):
            assert plain[name + ending].shape == plain[name].shape


def test_extrapolation_removes_the_error_of_the_step():
    problem, algorithm = square(), sl.GradientFlow()
    coarse = sl.solve(problem, algorithm, t_max=2.0, dt=0.05, samples=4096, extrapolate=False)
    sharp = sl.solve(problem, algorithm, t_max=2.0, dt=0.05, samples=4096)
    exact = sl.least_squares(problem, algorithm, times=coarse.time)
    plain, better = (np.max(np.abs(s["overlap"] - exact["overlap"])) for s in (coarse, sharp))
    assert better < plain / 15
    for solution in (coarse, sharp):
        assert np.all(np.abs(solution["overlap"] - exact["overlap"]) <= 3 * solution["overlap_step_error"] + 1e-4)


def test_a_finer_step_is_never_worse():
    """SGD(0.8) on the square loss: within the errors at every step size, and the step errors fall."""
    problem, algorithm, largest = square(), sl.SGD(0.8), []
    for dt in (0.1, 0.05, 0.025):
        found = sl.solve(problem, algorithm, t_max=4.0, dt=dt, samples=8192, seed=25)
        exact = sl.least_squares(problem, algorithm, times=found.time)
        every = len(found.time) // 10
        for name in CURVES:
            value, error = found.curve(name)
            assert_within((value - exact[name])[::every], error[::every] + 1e-9)
        largest.append([np.max(found[f"{name}_step_error"]) for name in CURVES])
    steps = np.array(largest)
    assert np.all(steps[1:] < 0.8 * steps[:-1] + 1e-3), steps


def test_long_times():
    """Least squares at δ = 1, λ = 0, where relaxation has no longest time, up to t = 100 on a geometric grid."""
    problem, times = square(1.0, 0.0), sl.grid.geometric(100.0, 0.1, 25)
    found = sl.solve(problem, sl.SGF(0.3), times=times, samples=8192)
    exact = sl.least_squares(problem, sl.SGF(0.3), times=times)
    for name in CURVES:
        value, error = found.curve(name)
        assert_within(value - exact[name], error + 1e-9)
        assert np.max(error) < 0.1 * np.max(np.abs(exact[name]))


def test_forward_derivatives_through_the_whole_solve():
    """jax.jvp against a central difference with the same seed, in λ, τ and δ.

    Kernels are found from moments that are nearly dependent: rounding leaves 1e-8 in the curves, 1e-5 in differences.
    """
    times = np.linspace(0, 1.5, 16)

    def curve(ridge, tau, delta):
        out = curves(logistic(delta, ridge), sl.SGF(tau), times, key=jax.random.key(0), samples=256)
        return jnp.concatenate([out["norm"].ravel(), out["overlap"].ravel(), out["train_loss"]])

    with jax.enable_x64(True):
        at, direction, step = (0.05, 0.4, 2.0), (1.0, 0.5, -0.7), 1e-3
        both = jax.jit(lambda *at: jax.jvp(curve, at, direction))  # two programs; operation by operation, a hundred
        many = jax.jit(jax.vmap(curve))
        ends = many(*(jnp.array([x + step * d, x - step * d]) for x, d in zip(at, direction, strict=True)))
        np.testing.assert_allclose(both(*at)[1], (ends[0] - ends[1]) / (2 * step), atol=1e-4)
        found = many(jnp.array([0.05, 0.2]), jnp.array([0.4, 0.1]), jnp.array([2.0, 3.0]))
        np.testing.assert_allclose(found[1], both(0.2, 0.1, 3.0)[0], rtol=1e-6, atol=1e-6)
        with pytest.raises(sl.InputError, match="SGF"):
            jax.jvp(
                lambda tau: curves(logistic(), sl.SGD(tau), times, key=jax.random.key(0), samples=256), (0.4,), (1.0,)
            )


def test_numbers_do_not_recompile():
    def run(delta, tau, ridge, power, seed):
        problem = logistic(delta, ridge, schedule=sl.PowerDecay(power))
        return sl.solve(problem, sl.SGD(tau), t_max=1.0, dt=0.1, samples=4096, seed=seed)

    compiled: list[Any] = [march.advance, march.begin]
    run(2.0, 0.5, 0.01, 0.5, 0)
    before = [fn._cache_size() for fn in compiled]
    run(3.0, 0.2, 0.1, 0.3, 1)
    run(1.5, 1.0, 0.0, 1.0, 2)
    assert [fn._cache_size() for fn in compiled] == before


def test_lengths_do_not_recompile():
    """All t_max in a range of lengths, and step sizes near each other, share one program."""
    advance: Any = march.advance
    count = advance._cache_size
    sl.solve(logistic(), sl.SGD(0.5), t_max=1.0, samples=4096, dt=0.05)
    before = count()
    for t_max in (2.3, 5.0, 7.7, 20.0):
        sl.solve(logistic(), sl.SGD(0.5), t_max=t_max, samples=4096, dt=0.05)
    assert count() == before


def rounded(r, y, a):
    return a * jnp.sqrt(1 + (r - y) ** 2) + 0.5 * (r - y) ** 2


def test_parameters_of_a_users_loss_do_not_recompile():
    """And they count: a = 0 is least squares."""
    advance: Any = march.advance
    count = advance._cache_size
    ends, sizes = [], []
    for a in (0.0, 0.1, 0.4):
        problem = dataclasses.replace(square(), loss=sl.Loss(rounded, parameters={"a": a}))
        ends.append(sl.solve(problem, sl.SGF(0.3), t_max=1.0, dt=0.1, samples=8192)["train_loss"][-1])
        sizes.append(count())
    assert sizes[0] == sizes[1] == sizes[2]
    plain = sl.solve(square(), sl.SGF(0.3), t_max=1.0, dt=0.1, samples=8192)["train_loss"][-1]
    assert ends[0] == pytest.approx(plain, rel=1e-5)
    assert ends[2] > ends[1] > ends[0]


SCALE = 1.0


def scaled(r, y):
    return 0.5 * SCALE * (r - y) ** 2


def test_a_changed_global_is_seen(monkeypatch):
    """A loss that reads SCALE, solved, then SCALE doubled: what a new function would give."""
    words = {"t_max": 1.0, "dt": 0.1, "samples": 4096, "functions": 6}
    problem = dataclasses.replace(square(), loss=sl.Loss(scaled))
    before = sl.solve(problem, sl.SGF(0.3), **words)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    after = sl.solve(problem, sl.SGF(0.3), **words)
    other = sl.solve(dataclasses.replace(square(), loss=sl.Loss(lambda r, y: (r - y) ** 2)), sl.SGF(0.3), **words)
    np.testing.assert_allclose(after["overlap"], other["overlap"], rtol=1e-6, atol=1e-8)
    assert after["overlap"][-1] > 1.2 * before["overlap"][-1]


def test_draws_and_own_metrics_are_those_of_the_curves():
    """Draws at a time have the moments of the curves; metrics by name equal averages over draws."""
    problem = logistic(penalty=sl.Quartic(0.2), init=sl.Normal(0.3))
    for law in (problem, logistic(init=sl.Normal(0.3))):
        out = sl.solve(
            law, sl.SGF(0.5), t_max=1.0, dt=0.125, samples=8192, extrapolate=False, snapshots=[0.5, 1.0], seed=22,
            metrics={"margin": lambda r, r_star, z: r * jnp.sign(r_star + z)},
            weight_metrics={"fourth": lambda theta, theta_star: theta**4, "product": lambda a, b: a * b},
        )  # fmt: skip
        theta, star, r = out["theta"], out["theta_star"], out["r"]
        N = theta.shape[1]
        for k, i in enumerate((4, 8)):
            assert_within(np.mean(theta[k] ** 2) - out["norm"][i, 0, 0], 3 * out["norm"][i, 0, 0] / np.sqrt(N))
            assert_within(np.mean(theta[k] * star) - out["overlap"][i, 0, 0], 3 / np.sqrt(N))
            assert_within(out["product"][i] - out["overlap"][i, 0, 0], out["product_stderr"][i] + 1 / np.sqrt(N))
            assert_within(np.mean(theta[k] ** 4) - out["fourth"][i], 0.05 * out["fourth"][i])
            margin = r[k][:, 0] * np.sign(out["r_star"][:, 0] + out["z"])
            # the curve is less what the same samples have too much of fresh pre-activations
            assert_within(margin.mean() - out["train_margin"][i], margin.std() / np.sqrt(N))
        np.testing.assert_allclose(out["snapshot"], [0.5, 1.0])
        assert np.corrcoef(theta[0].ravel(), theta[1].ravel())[0, 1] > 0.5  # one path, seen twice
        assert np.all(np.isfinite(out["test_margin"]))


@pytest.mark.parametrize("kernels", [False, True])
def test_a_result_describes_itself(tmp_path, kernels):
    out = sl.solve(logistic(), sl.SGD(0.5, batch_size=3), t_max=1.0, dt=0.1, samples=8192, kernels=kernels)
    again = sl.load(out.save(tmp_path / "a.nc"))
    assert again.problem == logistic()
    assert again.algorithm == sl.SGD(0.5, batch_size=3)
    for name in out.variables:
        assert np.array_equal(again[name], out[name])
    diagnostics = again.about["diagnostics"]
    for key in ("errors", "halvings", "compile_seconds", "seconds"):
        assert key in diagnostics
    if kernels:
        assert again.dataset["R_theta"].dims == ("time", "earlier", "student", "student_")


def test_divergence_keeps_what_was_reached_and_says_when():
    with pytest.warns(sl.DivergenceWarning, match="largest stable temperature"):
        out = sl.solve(square(), sl.SGF(6.0), t_max=40.0, dt=0.1, samples=8192)
    assert out.status == "diverged"
    assert "t = " in out.message
    assert 0 < len(out.time) < 201
    assert all(np.all(np.isfinite(variable.values)) for variable in out.variables.values())


BAD = {
    "grid": ({"times": [0.0, 0.5, 0.4]}, "times"),
    "no time": ({}, "t_max"),
    "step": ({"t_max": 10.0, "dt": 5.0}, "Euler is unstable"),
    "few": ({"t_max": 1.0, "samples": 3}, "samples"),
    "replicas": ({"t_max": 1.0, "replicas": 1}, "replicas"),
    "functions": ({"t_max": 1.0, "functions": 1}, "2 to 64"),
    "dtype": ({"t_max": 1.0, "dtype": "float16"}, "float32"),
    "seed": ({"t_max": 1.0, "seed": -1}, "seed"),
    "dt": ({"t_max": 1.0, "dt": -0.1}, "dt"),
    "samples": ({"t_max": 1.0, "samples": 2**31 - 1}, "samples.*67108864"),
    "snapshots": ({"t_max": 1.0, "snapshots": [2.0]}, "beyond"),
    "metric": ({"t_max": 1.0, "metrics": {"a": lambda r: r}}, "metrics"),
    "shape": ({"t_max": 1.0, "weight_metrics": {"a": lambda a, b: jnp.ones(3)}}, "scalar"),
    "name": ({"t_max": 1.0, "metrics": {"norm": lambda r, s, z: r}}, "identifier"),
    "stderr": ({"t_max": 1.0, "weight_metrics": {"norm_stderr": lambda a, b: a}}, "identifier"),
    "none": ({"t_max": 1.0, "metrics": {"a": lambda r, s, z: None}}, "scalar"),
    "long": ({"t_max": 1e9, "dt": 0.1}, "steps"),
    "word": ({"t_max": 1.0, "dtype": np.dtype("float16")}, "dtype"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused_before_any_work(name):
    arguments, word = BAD[name]
    with pytest.raises(sl.InputError, match=word):
        sl.solve(square(), sl.SGF(0.5), **arguments)


def test_what_has_no_theory_is_refused():
    with pytest.raises(sl.InputError, match="online"):
        sl.solve(logistic(math.inf), sl.SGF(0.5), t_max=1.0)
    with pytest.raises(sl.InputError, match="real"):
        sl.solve(logistic(), sl.ProportionalSGD(0.5), t_max=1.0, extrapolate=True)
    with pytest.raises(sl.InputError, match="algorithm"):
        sl.solve(logistic(), "sgd", t_max=1.0)
    with pytest.raises(sl.InputError, match="would be drawn"):
        sl.solve(logistic(1e5), sl.SGD(0.4), t_max=1.0)
    late = sl.VectorField(lambda r, r_star, z, t: jnp.where(t > 0.3, 1.0, 0.0) / (r - r_star))
    with pytest.raises(sl.InputError, match=r"loss.*a field that is not finite"):
        sl.solve(dataclasses.replace(logistic(), loss=late), sl.SGF(0.4), t_max=1.0)


def test_discrete_algorithms_record_at_times_and_step_by_dt():
    """As in a simulation: `times` say when to look, `dt` (0.05) is the step."""
    seldom = sl.solve(logistic(), sl.ProportionalSGD(0.3), times=[0.0, 0.5, 1.0], samples=4096, seed=23)
    often = sl.solve(logistic(), sl.ProportionalSGD(0.3), t_max=1.0, samples=4096, seed=23)
    np.testing.assert_array_equal(seldom["norm"], often["norm"][[0, 10, 20]])


def test_without_a_teacher():
    """Labels from noise alone, from a random start: least squares has the same curves and no overlap."""
    problem = square(teacher=None, labels=sl.Noise(), noise=sl.Normal(1.0), init=sl.Normal(1.0))
    solution = sl.solve(problem, sl.SGF(0.4), t_max=1.0, dt=0.1, samples=8192, seed=24)
    exact = sl.least_squares(problem, sl.SGF(0.4), times=solution.time)
    assert "overlap" not in solution
    for name in ("train_error", "test_error", "norm"):
        value, error = solution.curve(name)
        assert np.max(np.abs(value - exact[name]) / (error + 1e-9)) < 3, name


def test_a_diverged_solution_can_be_saved(tmp_path):
    problem = square(1.0, penalty=sl.SmoothL1(0.1, 0.2))
    with pytest.warns(sl.DivergenceWarning):
        out = sl.solve(problem, sl.SGD(8.0), t_max=30.0, dt=0.1, samples=8192)
    assert out.status == "diverged"
    assert sl.load(out.save(tmp_path / "d.nc")).message == out.message


def test_a_loss_with_a_kink_in_its_gradient_is_solved():
    kinked = sl.Loss(lambda r, y: jnp.where(y * r < 1, 0.5 * (1 - y * r) ** 2, 0.0))
    assert sl.solve(dataclasses.replace(logistic(), loss=kinked), sl.SGF(0.5), t_max=0.5, dt=0.1, samples=4096).success


def test_standard_errors_are_those_of_repetitions():
    """Twelve seeds: their scatter is what a single solution reports (widened for few replicas, by 1.2)."""
    runs = [sl.solve(logistic(), sl.SGF(1.0), t_max=1.0, dt=0.1, samples=8192, seed=s) for s in range(30, 42)]
    for name in ("norm", "overlap"):
        scatter = np.std([run[name].ravel()[-1] for run in runs], ddof=1)
        reported = np.mean([run[f"{name}_stderr"].ravel()[-1] for run in runs]) / 1.195
        low, high = np.sqrt(np.array([1 - 0.85, 1 + 1.6]))  # χ² of 11 degrees of freedom at 1e-4
        assert low < scatter / reported < high
    assert threshold(1) > 3


@pytest.mark.parametrize("dt", [None, 0.1, 0.05])
def test_the_first_points_of_a_coarse_grid_know_their_step_error(dt):
    """Times that fall between the first steps of the coarser grids, where nothing else is uncertain."""
    problem = sl.Problem(loss=sl.Square(), sample_ratio=1.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
    times = np.array([0.03, 0.06, 0.1, 0.13, 0.2, 0.35, 0.7, 2.0])
    exact = sl.least_squares(problem, sl.GradientFlow(), times=times)
    found = sl.solve(problem, sl.GradientFlow(), times=times, samples=8192, dt=dt)
    for name in ("train_error", "test_error", "overlap", "norm"):
        value, error = found.curve(name)
        assert np.all(np.abs(value - exact[name]) <= 3 * error + 2e-5), name


def test_noise_of_a_sampler_with_tails():
    """Student's t with 5 degrees, least squares: the exact curves, whether its moments are stated or not."""

    def student(key, shape):  # of normals: `jax.random.t` takes seconds to compile for every shape
        normals = jax.random.normal(key, (6, *shape))
        return normals[0] / jnp.sqrt(jnp.mean(normals[1:] ** 2, axis=0))

    noise = sl.Law(student, mean=0.0, second_moment=5 / 3)
    problem = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=noise)
    times = np.linspace(0.0, 2.0, 5)
    exact = sl.least_squares(problem, sl.SGF(0.3), times=times)
    for each in (problem, dataclasses.replace(problem, noise=sl.Law(noise.fn))):
        found = sl.solve(each, sl.SGF(0.3), times=times, dt=0.1, samples=8192)
        for name in ("train_error", "test_error"):
            value, error = found.curve(name)
            assert_within(value - exact[name], error + 1e-6)
