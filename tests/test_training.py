"""What a step does beside η times the gradient, and averages of the iterates, in the theory: against ordinary
differential equations that are exact for least squares, and against identities."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from problems import logistic
from scipy.integrate import solve_ivp

import sgdlimit as sl
from sgdlimit.exact.spectrum import marchenko_pastur

DELTA, RIDGE, SIGMA, TAU, BATCH = 2.0, 0.1, 0.5, 0.4, 2
LAST = 4.0
NAMES = ("train_loss", "test_loss", "overlap", "norm")


def exact(times, *, kappa=None, rate=None, noise=0.0, decay=0.0, average=None, tau=TAU, damped=True):
    """Losses, overlap and norm of least squares, θ* of unit coordinates, of θ or of its average.

    In the direction of an eigenvalue x of XᵀX/δ: θ_x = S(t)(xθ* + √(xσ²/δ) ξ) + Gaussian noise of covariance C(t), with
    dθ = s(source − xθ) dt − (sλ + decay) θ dt + s √(τ x T) dW + noise dW and T the mean squared residual. With a
    friction the same acts on a velocity. `rate`: numbers of its own, s as a function of (them, t, T, norm), and their
    derivatives.
    """
    law = marchenko_pastur(DELTA, 1.0)
    x, w = np.ravel(law.nodes), np.ravel(law.weights)
    p = 1 + (kappa is not None) + (average is not None)
    told = 0 if average is None else p - 1
    target = 0 if kappa is None else 1
    own, s_of, slope = ([], lambda g, t, T, N: 1.0, lambda g, t, T, N: []) if rate is None else rate

    def parts(y):
        S = y[: p * len(x)].reshape(p, -1)
        C = y[p * len(x) : (p + p * p) * len(x)].reshape(p, p, -1)
        return S, C, y[(p + p * p) * len(x) :]

    def seen(S, C):
        T = ((1 - x * S[0]) ** 2 * (x + SIGMA**2 / DELTA) + x * C[0, 0]) @ w + (1 - 1 / DELTA) * SIGMA**2
        norm = [(S[i] ** 2 * (x**2 + x * SIGMA**2 / DELTA) + C[i, i]) @ w for i in (0, told)]
        return T, norm, [(S[i] * x) @ w for i in (0, told)]

    def field(t, y):
        S, C, g = parts(y)
        T, (N, _), _ = seen(S, C)
        s = s_of(g, t, T, N)
        A = np.zeros((p, p, len(x)))
        A[target, 0] -= s * (x + RIDGE)
        if kappa is None:
            A[0, 0] -= decay
        else:
            A[0, 1], A[1, 1] = 1.0, -kappa
        if average is not None:
            rise = average(t)
            A[p - 1, 0], A[p - 1, p - 1] = rise, -rise
        dS = np.einsum("abx,bx->ax", A, S)
        dS[target] += s
        dC = np.einsum("abx,bcx->acx", A, C)
        dC = dC + dC.swapaxes(0, 1)
        dC[target, target] += s**2 * tau * x * T + noise**2
        return np.concatenate([dS.ravel(), dC.ravel(), slope(g, t, T, N)])

    y0 = np.concatenate([np.zeros((p + p * p) * len(x)), own])
    found = solve_ivp(field, (0, times[-1]), y0, t_eval=times, rtol=1e-7, atol=1e-9, method="LSODA").y
    out = {name: [] for name in NAMES}
    for column in found.T:
        S, C, _ = parts(column)
        i = told
        T = ((1 - x * S[i]) ** 2 * (x + SIGMA**2 / DELTA) + x * C[i, i]) @ w + (1 - 1 / DELTA) * SIGMA**2
        _, norms, overlaps = seen(S, C)
        out["train_loss"].append(T / 2)
        out["test_loss"].append((1 - 2 * overlaps[1] + norms[1] + SIGMA**2) / 2)
        out["overlap"].append(overlaps[1])
        out["norm"].append(norms[1])
    return {name: np.array(values) for name, values in out.items()}


def ridge(**more):
    chosen = {"penalty": sl.Ridge(RIDGE), "teacher": sl.Rademacher(1.0), "noise": sl.Normal(SIGMA)}
    return sl.Problem(loss=sl.Square(), sample_ratio=DELTA, **(chosen | more))


def solved(step=None, problem=None, algorithm=sl.SGD, **more):
    words = {"batch_size": BATCH} if algorithm is sl.SGD else {}
    size = {"t_max": LAST, "dt": 0.05, "samples": 16384} | more
    return sl.solve(problem or ridge(), algorithm(TAU, step=step, **words), **size)


def check(solution, oracle):
    at = np.linspace(0, len(solution.time) - 1, 9).astype(int)[1:]
    truth = oracle(solution.time[at])
    for name in NAMES:
        value, error = (part[at].reshape(len(at)) for part in solution.curve(name))
        assert np.max(error) < 0.05 * np.max(np.abs(value)), name
        assert_within(value - truth[name], error + 1e-4 * np.max(np.abs(value)))


ETA = TAU * BATCH
ADA = ([0.25], lambda g, t, T, N: 0.6 / math.sqrt(g[0]), lambda g, t, T, N: [T / (BATCH * ETA)])
DISTANCE = (
    [0.01, 0.05],
    lambda g, t, T, N: 0.5 * math.sqrt(max(g[0], N) / g[1]),
    lambda g, t, T, N: [0.0, T / (BATCH * ETA)],
)
SQUARES = (
    [0.0],
    lambda g, t, T, N: 0.5 / math.sqrt((g[0] / -math.expm1(-t / 0.7) if t > 1e-6 else T) / BATCH),
    lambda g, t, T, N: [(T - g[0]) / 0.7],
)
PARTS = {
    "momentum": (sl.Step(momentum=sl.HeavyBall(1.0)), {"kappa": 1.0}),
    "nesterov with noise": (sl.Step(momentum=sl.Nesterov(2.0), gradient_noise=0.4), {"kappa": 2.0, "noise": 0.4}),
    "noise": (sl.Step(weight_noise=0.5), {"noise": 0.5}),
    "decay": (sl.Step(decay=0.3), {"decay": 0.3}),
    "adagrad": (sl.Step(rate=sl.AdaGradNorm(0.6, 0.5)), {"rate": ADA}),
    "polyak": (
        sl.Step(rate=sl.Polyak(0.02, 1.5)),
        {"rate": ([], lambda g, t, T, N: 1.5 * (T / 2 - 0.02) / T, lambda *a: [])},
    ),
    "a rate of one's own": (
        sl.Step(rate=sl.Rate(lambda time, norm: 1 / (1 + norm + time))),
        {"rate": ([], lambda g, t, T, N: 1 / (1 + N + t), lambda *a: [])},
    ),
    "distance over gradients": (sl.Step(rate=sl.DoG(0.5, 0.1, 0.05)), {"rate": DISTANCE}),
    "adam": (sl.Step(rate=sl.Adam(0.5, window=0.7)), {"rate": SQUARES}),
    "adamw": (sl.Step(rate=sl.AdamW(0.2, 0.5, window=0.7)), {"rate": SQUARES, "decay": 0.2}),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_step_on_least_squares(name):
    """Every part beside the exact equations; Adam on iid data is a rate that follows the size of residuals."""
    step, told = PARTS[name]
    check(solved(step), lambda t: exact(t, **told))


@pytest.mark.parametrize(
    ("average", "rise"),
    [(sl.EMA(0.8), lambda t: 0.8), (sl.RunningMean(), lambda t: 1 / max(t, 1e-4))],
    ids=["ema", "mean"],
)
def test_averages_of_iterates_on_least_squares(average, rise):
    """All curves of θ̄, with momentum too; those of θ itself stay what they are."""
    solution = solved(averages={"mine": average})
    check(solution, exact)
    check(solution.averages["mine"], lambda t: exact(t, average=rise))
    moving = solved(sl.Step(momentum=sl.HeavyBall(1.5)), averages={"mine": average})
    check(moving.averages["mine"], lambda t: exact(t, average=rise, kappa=1.5))


def test_a_fixed_beta_is_sgd_with_a_larger_rate():
    size = {"t_max": 2.0, "dt": 0.1, "samples": 4096}
    step = sl.Step(momentum=sl.HeavyBall(beta=0.5))
    ball = sl.solve(logistic(), sl.SGD(0.4, step=step), **size)
    faster = sl.solve(logistic(schedule=sl.Schedule(lambda t: 2.0 + 0 * t)), sl.SGD(0.4), **size)
    for name in ("train_loss", "norm", "overlap"):
        np.testing.assert_allclose(ball[name], faster[name], rtol=1e-3)


ALL = sl.Step(clip=sl.Clip(0.3, "batch"), weight_noise=0.3, decay=0.1, rate=sl.AdaGradNorm(0.3, 0.4))


@pytest.mark.parametrize(
    "step",
    [ALL, sl.Step(rate=sl.Adam(0.3), clip=0.4), sl.Step(momentum=sl.HeavyBall(1.0), gradient_noise=0.3)],
    ids=["many", "adam", "momentum"],
)
def test_two_groups_alike_are_one(step):
    """Groups of coordinates go another way: responses by regression on the path, noise mixed group by group."""
    size = {"t_max": 2.0, "dt": 0.1, "samples": 8192, "averages": {"ema": sl.EMA(0.6)}}
    algorithm = sl.SGD(0.6, batch_size=3, step=step)
    one = sl.solve(logistic(), algorithm, **size)
    two = sl.solve(logistic(data=sl.Spectrum([1.0, 1.0001], [0.4, 0.6])), algorithm, **size)
    for mine, other in ((one, two), (one.averages["ema"], two.averages["ema"])):
        for name in NAMES:
            (a, da), (b, db) = (part.curve(name) for part in (mine, other))
            assert_within((a - b)[::5], np.hypot(da, db)[::5] + 1e-4 * np.max(np.abs(a)))


@pytest.mark.parametrize(
    "step",
    [sl.Step(weight_noise=0.3, decay=0.1, rate=sl.Rate(lambda force: 1 / (1 + force))),
     sl.Step(momentum=sl.HeavyBall(1.0), gradient_noise=0.3, decay=0.1)],
    ids=["noise", "momentum"],
)  # fmt: skip
def test_particles_of_a_quadratic_penalty_are_linear(step):
    size = {"t_max": 2.0, "dt": 0.1, "samples": 16384}
    particles = logistic(penalty=sl.Penalty(lambda theta: jnp.sum(0.05 * theta**2 + 1e-7 * theta**4)))
    drawn = sl.solve(particles, sl.SGD(0.6, step=step), **size)
    known = sl.solve(logistic(penalty=sl.Ridge(0.1)), sl.SGD(0.6, step=step), **size)
    for name in NAMES:
        (a, da), (b, db) = (part.curve(name) for part in (drawn, known))
        assert_within((a - b)[::5], np.hypot(da, db)[::5] + 1e-4 * np.max(np.abs(a)))


def test_clipping_far_away_changes_nothing():
    size = {"t_max": 1.0, "dt": 0.1, "samples": 4096}
    plain = sl.solve(logistic(), sl.SGD(0.6), **size)
    for clip in (50.0, sl.Clip(50.0, "batch")):
        far = sl.solve(logistic(), sl.SGD(0.6, batch_size=3, step=sl.Step(clip=clip)), **size)
        np.testing.assert_allclose(far["norm"], plain["norm"], rtol=1e-4)


def test_trained_parameters_that_do_not_move_are_numbers(tmp_path):
    """A rate of zero; and curves of parameters have errors and axes."""
    size = {"t_max": 1.0, "dt": 0.1, "samples": 4096}
    common = {"labels": sl.TwoLayerLabels("tanh"), "sample_ratio": 2.0, "teacher": sl.Normal(1.0),
              "init": sl.Normal(0.5), "width": 2}  # fmt: skip
    still = sl.TwoLayer("tanh", readout=sl.Trained([1.0, -0.5], rate=0.0), output_bias=sl.Trained(0.2, rate=0.0))
    fixed = sl.TwoLayer("tanh", readout=(1.0, -0.5), output_bias=0.2)
    first, second = (sl.solve(sl.Problem(loss=loss, **common), sl.SGD(0.5), **size) for loss in (still, fixed))
    for name in ("train_loss", "test_loss", "norm", "overlap"):
        np.testing.assert_allclose(first[name], second[name], rtol=1e-3, atol=1e-4)
    assert first.variables["readout"].dims == ("time", "student")
    np.testing.assert_allclose(first["readout"], np.tile([1.0, -0.5], (len(first.time), 1)))
    moving = sl.solve(
        sl.Problem(loss=sl.TwoLayer("tanh", readout=sl.Trained([1.0, -0.5])), **common), sl.SGD(0.5), **size
    )
    assert moving["readout"][-1, 1] > -0.5  # the teacher's second layer is (1, 1)
    assert np.all(moving["readout_stderr"][1:] > 0)
    assert sl.load(moving.save(tmp_path / "x.nc")).variables["readout"].dims == ("time", "student")


def test_metrics_that_read_trained_parameters():
    """The loss written once more, in theory, with infinite data and in runs; also of averages of the iterates."""
    loss = sl.Loss(
        lambda r, y, a, c: 0.5 * (a * r + c[0] - y) ** 2,
        parameters={"a": sl.Trained(0.5), "c": sl.Trained([0.3, 0.0], rate=0.5)},
    )
    problem = sl.Problem(loss=loss, teacher=sl.Normal(1.0), noise=sl.Normal(0.3), sample_ratio=2.0)
    endless = sl.Problem(loss=loss, teacher=sl.Normal(1.0), noise=sl.Normal(0.3), sample_ratio=math.inf)
    metrics = {
        "again": lambda r, s, z, a, c: 0.5 * (a * r + c[0] - s - z) ** 2,
        "bare": lambda *sample, a: 0.0 * sample[0] + a,
        "scale": lambda r, r_star, z, *, a: 0.0 * r + a,
        "any": lambda r, r_star, z, **now: now["a"] + now["c"][0] + 0.0 * r,
        "places": lambda a, c, z: 0.0 * a + 1.0,  # the first three are r, r_star and z, however they are named
        "kept": lambda r, r_star, z, b=2.0: 0.0 * r + b,
    }
    more = {"metrics": metrics, "averages": {"ema": sl.EMA(2.0)}}
    for found in (
        sl.solve(problem, sl.SGD(0.5), t_max=1.0, dt=0.1, samples=4096, **more),
        sl.online(endless, sl.SGD(0.5), t_max=1.0, samples=4096, **more),
        sl.simulate(problem, sl.SGD(0.5), t_max=1.0, dim=50, trials=2, **more),
    ):
        for one in (found, found.averages["ema"]):
            (a, _), (c, _) = one.curve("a"), one.curve("c")
            assert abs(a[-1] - a[0]) > 0.01
            for side in ("train", "test"):
                tight = {"rtol": 2e-3, "atol": 1e-4}  # train averages are corrected one by one
                np.testing.assert_allclose(one.curve(f"{side}_again")[0], one.curve(f"{side}_loss")[0], **tight)
                np.testing.assert_allclose(one.curve(f"{side}_scale")[0], a, rtol=1e-3)
                np.testing.assert_allclose(one.curve(f"{side}_any")[0], a + c[:, 0], rtol=1e-3)
                np.testing.assert_allclose(one.curve(f"{side}_places")[0], 1.0, rtol=1e-4)
                np.testing.assert_allclose(one.curve(f"{side}_kept")[0], 2.0, rtol=1e-4)
    with pytest.raises(sl.InputError, match=r"metrics\['short'\]"):
        sl.solve(problem, sl.SGD(0.5), t_max=1.0, metrics={"short": lambda r, r_star, z, b: r * b})


WRONG = {
    "Adam with a double well": (
        sl.SGD(0.4, step=sl.Step(rate=sl.Adam())), {"penalty": sl.Quartic(1.0)}, {}, "Step.rate"),
    "momentum with L1": (sl.SGD(0.4, step=sl.Step(momentum=sl.HeavyBall(1.0))), {"penalty": sl.L1(0.1)}, {}, "penalty"),
    "kernels with momentum": (sl.SGD(0.4, step=sl.Step(momentum=sl.HeavyBall(1.0))), {}, {"kernels": True}, "momentum"),
    "kernels of a batch": (
        sl.SGD(0.4, batch_size=2, step=sl.Step(clip=sl.Clip(1.0, "batch"))), {}, {"kernels": True}, "Step"),
    "a rate that is no number": (sl.SGD(0.4, step=sl.Step(rate=sl.Rate(lambda norm: norm / 0.0))), {}, {}, "Step.rate"),
    "an average that is none": (sl.SGD(0.4), {}, {"averages": {"ema": 0.5}}, "averages"),
    "an average longer than the run": (sl.SGD(0.4), {}, {"averages": {"ema": sl.EMA(0.1)}}, "EMA"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_limit_is_refused_by_name(name):
    algorithm, more, words, said = WRONG[name]
    with pytest.raises(sl.InputError, match=said):
        sl.solve(logistic(**more), algorithm, t_max=2.0, **words)


@pytest.mark.parametrize("rate", [lambda time: 1.0 - time, lambda time: jnp.sqrt(1.0 - time)], ids=["sign", "nan"])
def test_a_rate_that_is_no_positive_number_ends_the_march(rate):
    with pytest.warns(sl.DivergenceWarning, match="Rate gives no number ≥ 0"):
        found = sl.solve(logistic(), sl.SGD(0.4, step=sl.Step(rate=sl.Rate(rate))), t_max=2.0, dt=0.1, samples=4096)
    assert found.status == "diverged"
    assert 0.9 < found.time[-1] < 1.2
    assert np.all(np.isfinite(found["norm"]))


def test_one_number_in_a_list_is_one_number():
    shared = sl.TwoLayer("tanh", readout=sl.Trained([0.7]), bias=[0.2])
    assert float(shared.predict(0.5)) == pytest.approx(0.7 * math.tanh(0.7), rel=1e-5)
