"""A batch that changes in time: its increments, its batches, and three theories of the same temperature τ(t)."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_agrees, assert_within
from problems import CURVES, logistic, square

import sgdlimit as sl
from sgdlimit import describe
from sgdlimit.algorithms.minibatch import FLOYD_LIMIT, in_random_order, without_replacement
from sgdlimit.cli.specification import list_models, read
from sgdlimit.control.checks import check_draws

GROWING = sl.Schedule(lambda t: jnp.minimum(1.0, 0.2 + 0.3 * t))
HALF = sl.Schedule(lambda t: 0.5)


@pytest.mark.parametrize(
    ("algorithm", "temperature"),
    [
        (sl.SGF(0.3, GROWING), lambda t: 0.3 / min(1.0, 0.2 + 0.3 * t)),
        (sl.SGD(0.3, 7, GROWING), lambda t: 0.3 * 7 / max(1, round(7 * min(1.0, 0.2 + 0.3 * t)))),
        (sl.SGD(0.3, 2, sl.PowerDecay(0.1, 3.0)), lambda t: 0.3 * 2 / max(1, round(2 / (1 + t / 0.1) ** 3))),
    ],
)
def test_increments_have_the_temperature_of_the_batch_in_use(algorithm, temperature):
    """E Z = γ, Var Z = τ(t)δγ; and the third moment tells the jumps of SGD, (τ(t)δ)²γ, from SGF's 0."""
    delta, count, dt = 1.5, 100_000, 0.2
    for i, t in enumerate((0.0, 0.9, 2.0, 5.0)):
        hot = temperature(t + dt / 2)
        _, Z = algorithm.increments(jnp.ones(count), jax.random.fold_in(jax.random.key(1), i), t, dt, delta)
        centred = np.asarray(Z, dtype=float) - dt
        third = 0.0 if isinstance(algorithm, sl.SGF) else (hot * delta) ** 2 * dt
        for power, moment in ((1, 0.0), (2, hot * delta * dt), (3, third)):
            values = centred**power
            assert_within(values.mean() - moment, values.std() / np.sqrt(count) + 1e-6)
        assert float(algorithm.variance(t, dt, delta)) == pytest.approx(hot * delta * dt, rel=1e-6)
        assert float(algorithm.temperature_at(t)) == pytest.approx(temperature(t), rel=1e-6)


@pytest.mark.parametrize(
    ("count", "n", "part"), [(3, 4, 1), (7, 9, 3), (11, 12, 4), (FLOYD_LIMIT + 1, FLOYD_LIMIT + 6, 40)]
)
def test_first_rows_are_a_uniform_subset(count, n, part):
    """Every sample and every pair are as likely as in a batch of that size; in Floyd's own order they are not."""
    draws = 20_000 if n < 100 else 1000
    rows = np.asarray(in_random_order(jax.random.key(0), draws, n, count))
    assert np.all(np.diff(np.sort(rows, axis=1), axis=1) > 0)
    member = np.zeros((draws, n))
    np.put_along_axis(member, rows[:, :part], 1.0, axis=1)
    p, pair = part / n, part * (part - 1) / (n * (n - 1))
    assert_within(member.mean(axis=0) - p, np.sqrt(p * (1 - p) / draws))
    if part > 1:
        assert_within((member[:, :4].T @ member[:, 4:8] / draws) - pair, np.sqrt(pair * (1 - pair) / draws))
    if count <= FLOYD_LIMIT:
        plain = np.asarray(without_replacement(jax.random.key(0), draws, n, count))
        assert not np.any(plain[:, 0] == n - 1)  # the first place never holds the last sample


@pytest.mark.slow
def test_half_a_batch_is_a_batch_of_half_the_size():
    """The same numbers in theory; the same curves in simulation."""
    shared, plain = sl.SGD(0.3, 4, HALF), sl.SGD(0.6, 2)
    words = {"t_max": 1.0, "dt": 0.1, "samples": 2048, "replicas": 4}
    one, two = (sl.solve(logistic(), algorithm, **words) for algorithm in (shared, plain))
    for name in (*CURVES, "train_loss", "test_loss"):
        np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=1e-6)
    exact = sl.least_squares(square(), plain, t_max=3.0)
    np.testing.assert_allclose(sl.least_squares(square(), shared, t_max=3.0)["norm"], exact["norm"], rtol=1e-9)
    runs = sl.simulate(square(), shared, dim=300, trials=12, times=np.linspace(0, 3, 7), seed=2)
    assert_agrees(sl.compare(runs, exact), trials=12)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("algorithm", [sl.SGF(0.4, GROWING), sl.SGD(0.4, 10, GROWING)], ids=lambda a: type(a).__name__)
def test_least_squares_is_solved_with_a_growing_batch(algorithm, kernels):
    """Curves and kernels within the reported errors; a constant batch would be many errors away."""
    words = {"t_max": 3.0, "dt": 0.05, "samples": 16384, "kernels": kernels}
    solution = sl.solve(square(), algorithm, **words)
    exact = sl.least_squares(square(), algorithm, times=solution.time, kernels=True)
    report = sl.compare(solution, exact, CURVES)
    assert report.agrees(4.0), report
    if kernels:
        value, error = solution.curve("C_theta")
        assert np.max(np.abs(value - exact["C_theta"])[1:, 1:] / error[1:, 1:]) < 5
    assert not sl.compare(solution, sl.least_squares(square(), sl.SGF(0.4), times=solution.time), CURVES).agrees(10.0)


LAST = math.log(1 + 3.0)
SLOW = sl.PowerDecay(scale=1.0, exponent=1.0)
"""s(t) = 1/(1+t): on the clock t' = ∫s = log(1+t) it is e^{−t'}."""


def cooling(tau):
    """τ s = τ e^{−t'} up to t' = LAST: SGF that is coldest, with its whole batch, at the end."""
    return sl.SGF(tau * math.exp(-LAST), sl.Schedule(lambda t: jnp.exp(t - LAST)))


def test_a_learning_rate_schedule_is_a_batch_schedule_on_another_clock():
    """dθ = −s(…)dt + s√τ(…)dB is dθ = −(…)dt' + √(τs)(…)dB' with t' = ∫s: exact for SGF."""
    clock = np.linspace(0.0, LAST, 9)
    slowed = sl.least_squares(square(schedule=SLOW), sl.SGF(0.7), times=np.expm1(clock))
    cooled = sl.least_squares(square(), cooling(0.7), times=clock)
    for name in CURVES:
        np.testing.assert_allclose(cooled[name], slowed[name], rtol=1e-8, atol=1e-12)


@pytest.mark.slow
def test_the_same_for_another_loss():
    words = {"samples": 32768, "seed": 1}
    clock = np.linspace(0.0, LAST, 9)
    slowed = sl.solve(logistic(schedule=SLOW), sl.SGF(1.5), times=np.expm1(clock), dt=0.05, **words)
    cooled = sl.solve(logistic(), cooling(1.5), times=clock, dt=0.025, **words)
    for name in CURVES:
        (a, error_a), (b, error_b) = slowed.curve(name), cooled.curve(name)
        assert_within((a - b)[1:], np.hypot(error_a, error_b)[1:])


def test_online_takes_the_schedule():
    """Moments against the Volterra equation at δ = ∞, particles (a penalty of no weight) against moments."""
    problem = square(delta=math.inf, ridge=0.0)
    times = np.linspace(0.0, 2.0, 5)
    for algorithm in (sl.SGF(0.5, GROWING), sl.SGD(0.5, 5, GROWING)):
        exact = sl.least_squares(problem, algorithm, times=times)
        moments = sl.online(problem, algorithm, times=times, samples=64, replicas=2)
        np.testing.assert_allclose(moments["norm"], exact["norm"], rtol=1e-5)
    curved = square(delta=math.inf, penalty=sl.Quartic(1e-9))
    particles = sl.online(curved, algorithm, times=times, samples=8192, particles=8192, dt=0.02)
    assert "particles" in particles.about["method"]
    value, error = particles.curve("norm")
    # τ at both ends of a step: a jump of B(t) within one leaves an error of the order of the step
    assert_within((value - exact["norm"])[1:], error[1:] + 2e-3)


@pytest.mark.slow
def test_responses_of_the_paper_see_the_schedule():
    words = {"t_max": 1.0, "dt": 0.1, "kernels": True, "samples": 16384}
    algorithm = sl.SGF(0.5, GROWING)
    exact = sl.solve(logistic(), algorithm, seed=1, **words)
    paper = sl.references.processes(logistic(), algorithm, seed=2, **words)
    below = np.tril(np.ones(exact["R_ell"].shape[:2], dtype=bool), -1)
    for name in ("R_ell", "C_theta"):
        spread = np.hypot(exact[f"{name}_stderr"], paper[f"{name}_stderr"])
        assert_within((exact[name] - paper[name])[below], spread[below] + 1e-3)


@pytest.mark.slow
def test_simulation_with_a_growing_batch_follows_the_theory():
    algorithm = sl.SGD(0.3, 10, GROWING)
    runs = sl.simulate(logistic(), algorithm, dim=1000, trials=16, times=np.linspace(0, 3, 13), seed=1)
    theory = sl.solve(logistic(), algorithm, t_max=3.0, dt=0.1, samples=16384)
    report = sl.compare(runs, theory, CURVES)
    assert report.agrees(4.0), report
    constant = sl.solve(logistic(), sl.SGD(0.3), t_max=3.0, dt=0.1, samples=16384)
    assert not sl.compare(runs, constant, CURVES).agrees(8.0)


def test_fresh_batches():
    """Infinite data, where every row is new, against the moment equations."""
    problem = square(delta=math.inf, ridge=0.0)
    algorithm = sl.SGD(0.4, 5, GROWING)
    runs = sl.simulate(problem, algorithm, dim=300, trials=12, times=np.linspace(0, 3, 7), seed=3)
    assert_agrees(sl.compare(runs, sl.online(problem, algorithm, t_max=3.0, samples=256)), trials=12)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: sl.SGD(0.3, 4, 0.5), "SGD.batch_share"),
        (lambda: sl.SGF(0.3, lambda t: 0.5), "SGF.batch_share"),
        (lambda: sl.SGD(0.3, 1, HALF), "batch_size"),
        (lambda: sl.SGD(0.3, 4, sl.Schedule(lambda t: jnp.ones(2))), "scalar"),
        (lambda: sl.SGD(0.3, 4, sl.Schedule(lambda t: 1.0 if t > 1 else 0.5)), "jax.numpy"),
    ],
)
def test_what_is_no_share_is_refused_at_once(make, word):
    with pytest.raises(sl.InputError, match=word):
        make()


@pytest.mark.parametrize("share", [lambda t: 0.5 + t, lambda t: 1.0 - t, lambda t: jnp.log(t - 1.5)])
@pytest.mark.parametrize("kind", ["simulate", "solve", "least_squares", "online"])
def test_a_share_outside_its_range_is_refused_before_work(share, kind):
    algorithm = sl.SGD(0.3, 4, sl.Schedule(share))
    problem = square(delta=math.inf) if kind == "online" else square()
    more = {"dim": 50} if kind == "simulate" else {}
    with pytest.raises(sl.InputError, match=r"SGD.batch_share: got .* at t = .*\(0, 1\]"):
        getattr(sl, kind)(problem, algorithm, t_max=2.0, **more)


def test_no_stable_temperature_is_claimed_for_a_changing_one():
    hot = sl.SGD(4.0, 4, HALF)
    for run in (
        lambda: sl.simulate(square(), hot, dim=50, trials=2, t_max=60.0),
        lambda: sl.least_squares(square(), hot, t_max=500.0),
    ):
        with pytest.warns(sl.DivergenceWarning) as caught:
            run()
        assert "stable temperature" not in str(caught[0].message)


def test_rare_draws_count_the_batch_in_use():
    """512 samples at rate 1/(τ(t)δ) up to t = 1: 512 draws with the whole batch, 51 with a tenth of it."""
    times = np.array([0.0, 0.1, 0.5, 1.0])
    check_draws(sl.SGD(0.5, 10), square(), 512, times)
    with pytest.raises(sl.InputError, match="51 samples of a replica would be drawn"):
        check_draws(sl.SGD(0.5, 10, sl.Schedule(lambda t: 0.1)), square(), 512, times)


def test_files_and_words(tmp_path):
    """Through a file and back; files of before the field load; a user's function comes back as nothing."""
    algorithm = sl.SGD(0.3, 8, sl.PowerDecay(2.0, 0.5))
    solution = sl.least_squares(square(), algorithm, t_max=1.0)
    back = sl.load(solution.save(tmp_path / "a.nc"))
    assert back.algorithm == algorithm
    assert "batch_share=PowerDecay(scale=2.0, exponent=0.5)" in repr(back)
    plain = sl.least_squares(square(), sl.SGD(0.3, 8), t_max=1.0)
    assert "batch_share" not in repr(plain)
    old = json.loads(json.dumps(plain.about["algorithm"]))
    del old["batch_share"]
    assert describe.algorithm_from_words(old) == sl.SGD(0.3, 8)
    own = sl.least_squares(square(), sl.SGF(0.3, GROWING), t_max=1.0)
    assert sl.load(own.save(tmp_path / "b.nc")).algorithm is None
    axes = sl.plot.learning_curves(back, plain, variables="norm")
    labels = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert labels[0].endswith("τ ≥ 0.3")
    assert labels[1].endswith("τ = 0.3")


def test_toml(tmp_path):
    (tmp_path / "mine.py").write_text("import jax.numpy as jnp\ndef grow(t):\n    return jnp.minimum(1.0, 0.1 + t)\n")
    head = '[problem]\nloss = "Square"\nsample_ratio = 2.0\nteacher = "Normal"\n[algorithm]\nname = "SGD"\n'
    head += "temperature = 0.4\nbatch_size = 10\n"
    file = tmp_path / "p.toml"
    file.write_text(head + 'batch_share = { name = "PowerDecay", scale = 1.0, exponent = 0.5 }\n')
    assert read(file).algorithm == sl.SGD(0.4, 10, sl.PowerDecay(1.0, 0.5))
    file.write_text(head + 'batch_share = "mine.py:grow"\n')
    assert float(read(file).algorithm.used(0.4)) == 5
    file.write_text(head + "batch_share = 0.5\n")
    with pytest.raises(sl.InputError, match=r"SGD\.batch_share"):
        read(file)
    assert "SGD(temperature, batch_size=1, batch_share=Constant(), step=None)" in list_models(None)
