"""Time and epochs: counted by hand, and against the number of updates that runs report."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from problems import square

import sgdlimit as sl
from sgdlimit.plot.axes import reading

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
    updates, samples = runs.about["diagnostics"]["updates"], runs.about["options"]["samples"]
    assert reading(runs, "epochs")[-1] == pytest.approx(updates * 4 / samples)
    np.testing.assert_allclose(reading(runs, "epochs"), runs.time * updates * 4 / samples / runs.time[-1])
    np.testing.assert_array_equal(reading(runs, "time"), runs.time)


@pytest.mark.parametrize("algorithm", [sl.ProportionalSGD(0.25), sl.PersistentSGD(0.25, 1.0)])
def test_runs_whose_step_is_real(algorithm):
    runs = run(algorithm, dt=0.1)
    np.testing.assert_allclose(reading(runs, "epochs"), 0.25 * runs.time / 0.1)
    assert reading(runs, "epochs")[-1] == pytest.approx(0.25 * runs.about["diagnostics"]["updates"])


def test_a_theory_knows_its_epochs():
    law, flow = exact(sl.SGD(0.5, 4)), exact(sl.SGF(0.5))
    np.testing.assert_allclose(reading(law, "epochs"), np.array(TIMES) / (0.5 * 2.0))
    np.testing.assert_allclose(reading(flow, "epochs"), reading(law, "epochs"))


def test_an_algorithm_that_is_not_known():
    own = exact(sl.SGF(0.5, sl.Schedule(lambda t: 0.5 + 0.5 * jnp.exp(-t))))
    with pytest.raises(sl.InputError, match=r"x: got epochs; .*a function of yours"):
        reading(own, "epochs")


@pytest.mark.parametrize(
    ("result", "x", "words"),
    [
        (lambda: exact(sl.SGD(0.5, 8, sl.PowerDecay(1.0, 1.0))), "epochs", "the batch changes in time"),
        (lambda: exact(sl.GradientFlow()), "epochs", "GradientFlow at τ = 0 draws no samples"),
        (lambda: sl.online(square(delta=np.inf), sl.SGD(0.5), times=TIMES), "epochs", "infinite data"),
        (lambda: exact(sl.SGD(0.5)), "hours", "one of time, epochs"),
    ],
)
def test_refused_with_a_remedy(result, x, words):
    with pytest.raises(sl.InputError, match=words):
        reading(result(), x)


def test_on_data():
    X = np.random.default_rng(0).normal(size=(60, 20)) / np.sqrt(20)
    law = sl.least_squares_on_data(X, X[:, 0], sl.SGD(0.2), times=TIMES)
    np.testing.assert_allclose(reading(law, "epochs"), np.array(TIMES) / (0.2 * 3))


def test_a_picture_over_epochs():
    law, runs = exact(sl.SGD(0.5)), run(sl.SGD(0.5, 4))
    ax = sl.plot.learning_curves(runs, law, variables="train_error", x="epochs", log_time=True)[0]
    assert ax.get_xlabel().startswith("epochs")
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), [0.5, 2.0])  # zero has no logarithm
