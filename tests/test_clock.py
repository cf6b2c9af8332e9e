"""Time, epochs and steps: counted by hand, and against the number of updates that runs report."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from problems import square

import sgdlimit as sl
from sgdlimit.clock import reading

DIM, TIMES = 40, (0.0, 0.5, 2.0)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def exact(algorithm, **more):
    return sl.least_squares(square(), algorithm, times=TIMES, **more)


def run(algorithm, **more):
    return sl.simulate(square(), algorithm, dim=DIM, trials=2, times=TIMES, **more)


@pytest.mark.parametrize("algorithm", [sl.SGD(0.5, 4), sl.ShuffledSGD(0.5, 4)])
def test_runs_with_small_batches(algorithm):
    """The updates of a run are counted by the simulation itself; n samples are an epoch."""
    runs = run(algorithm)
    steps = reading(runs, "steps", DIM)
    assert steps[-1] == pytest.approx(runs.about["diagnostics"]["updates"])
    samples = runs.about["options"]["samples"]
    np.testing.assert_allclose(reading(runs, "epochs"), steps * 4 / samples)
    np.testing.assert_array_equal(reading(runs, "time"), runs.time)


@pytest.mark.parametrize("algorithm", [sl.ProportionalSGD(0.25), sl.PersistentSGD(0.25, 1.0)])
def test_runs_whose_step_is_real(algorithm):
    runs = run(algorithm, dt=0.1)
    np.testing.assert_allclose(reading(runs, "steps"), runs.time / 0.1)
    assert reading(runs, "steps")[-1] == pytest.approx(runs.about["diagnostics"]["updates"])
    np.testing.assert_allclose(reading(runs, "epochs"), 0.25 * runs.time / 0.1)


def test_a_theory_needs_what_it_does_not_know():
    law, flow = exact(sl.SGD(0.5, 4)), exact(sl.SGF(0.5))
    np.testing.assert_allclose(reading(law, "epochs"), np.array(TIMES) / (0.5 * 2.0))
    np.testing.assert_allclose(reading(flow, "epochs"), reading(law, "epochs"))
    np.testing.assert_allclose(reading(law, "steps", dim=100), np.array(TIMES) * 100 / (0.5 * 4))
    np.testing.assert_allclose(reading(flow, "steps", dim=100, batch_size=4), reading(law, "steps", dim=100))
    with pytest.raises(sl.InputError, match=r"dim: got None.*give dim="):
        reading(law, "steps")
    with pytest.raises(sl.InputError, match=r"batch_size: got None; SGF has no batch"):
        reading(flow, "steps", dim=100)
    with pytest.raises(sl.InputError, match="dim: got 0"):
        reading(law, "steps", dim=0)


def test_a_batch_that_grows():
    """B(t) = 8·max(round(8 s(t)), 1)/8: samples drawn, added up over the updates of a run."""
    algorithm = sl.SGD(0.5, 8, sl.PowerDecay(1.0, 1.0))
    steps = np.arange(round(2.0 * 4000 / 4.0))
    drawn = np.clip(np.round(8 / (1 + steps * 4.0 / 4000)), 1, 8).sum() / (2.0 * 4000)
    assert reading(exact(algorithm), "epochs")[-1] == pytest.approx(drawn, rel=2e-3)
    own = exact(sl.SGF(0.5, sl.Schedule(lambda t: 0.5 + 0.5 * jnp.exp(-t))))
    with pytest.raises(sl.InputError, match=r"x: got epochs; .*functions=\{...\}"):
        reading(own, "epochs")


@pytest.mark.parametrize(
    ("result", "x", "words"),
    [
        (lambda: exact(sl.GradientFlow()), "epochs", "GradientFlow at τ = 0 draws no samples"),
        (lambda: exact(sl.GradientFlow()), "steps", "continuous time; draw it over x='time'"),
        (lambda: sl.online(square(delta=np.inf), sl.SGD(0.5), times=TIMES), "epochs", "infinite data"),
        (lambda: exact(sl.SGD(0.5)), "hours", "one of time, epochs, steps"),
    ],
)
def test_refused_with_a_remedy(result, x, words):
    with pytest.raises(sl.InputError, match=words):
        reading(result(), x)


def test_on_data():
    X = np.random.default_rng(0).normal(size=(60, 20)) / np.sqrt(20)
    law = sl.least_squares_on_data(X, X[:, 0], sl.SGD(0.2), times=TIMES)
    np.testing.assert_allclose(reading(law, "epochs"), np.array(TIMES) / (0.2 * 3))


def test_a_theory_takes_size_and_batch_of_its_runs():
    """Also where it was solved with another batch: only τ enters the limit."""
    law, flow, runs = exact(sl.SGD(0.5)), exact(sl.SGF(0.5)), run(sl.SGD(0.5, 4))
    ax = sl.plot.learning_curves(runs, law, flow, variables="train_error", x="steps")[0]
    assert ax.get_xlabel() == "steps  $k$"
    lines = [line for line in ax.get_lines() if line.get_marker() != "x"]  # two trials are unreliable
    assert len(lines) == 3
    for line in lines:
        np.testing.assert_allclose(line.get_xdata(), np.array(TIMES) * DIM / (0.5 * 4))
    ax = sl.plot.learning_curves(runs, law, variables="train_error", x="epochs", log_time=True)[0]
    assert ax.get_xlabel().startswith("epochs")
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), [0.5, 2.0])  # zero has no logarithm
    other = sl.simulate(square(), sl.SGD(0.5, 4), dim=2 * DIM, trials=2, times=TIMES)
    with pytest.raises(sl.InputError, match="dim: got None"):
        sl.plot.learning_curves(runs, other, law, x="steps")
    assert sl.plot.learning_curves(runs, other, law, x="steps", dim=DIM) is not None
