"""Work → records: what is put together, shared, or done elsewhere changes no number beyond rounding.

The oracle is the single call. Sharing keeps every bit; one program for several problems adds up in another order.
"""

import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgdlimit as sl
from sgdlimit import _machine as machine
from sgdlimit.dmft import march, noise
from sgdlimit.execute import crew, loop, place
from sgdlimit.execute.crew import sizes
from sgdlimit.solver import solve_many

QUICK = {"t_max": 0.4, "dt": 0.025, "functions": 4, "samples": 4096, "progress": False}
"""One stage under one memory: others are programs of their own."""
CURVES = ("train_loss", "test_loss", "train_error", "test_error", "norm")
ROUNDING = 2e-5
"""Of a curve's largest value: single precision, added up over a hundred steps; seen: 1e-7 to 1e-6."""


def logistic(**changes):
    """The paper's problem."""
    given = {
        "loss": sl.Logistic(), "labels": sl.Sign(), "penalty": sl.Ridge(0.01), "sample_ratio": 2.0,
        "teacher": sl.Normal(1.0), "noise": sl.Normal(0.1),
    }  # fmt: skip
    return sl.Problem(**(given | changes))


def in_order(calls, **options) -> list[Any]:
    """Solutions by the number of their call."""
    found = dict(solve_many(calls, progress=False, **options))
    assert sorted(found) == list(range(len(calls)))
    return [found[i] for i in range(len(calls))]


def alike(ours, theirs, rounding):
    """Equal curves up to rounding (of errors up to one sample on the other side)."""
    assert ours.about["status"] == theirs.about["status"]
    for name in CURVES:
        if name not in theirs:
            continue
        one, other = np.asarray(ours[name]), np.asarray(theirs[name])
        assert one.shape == other.shape
        samples = 16 * theirs.about["options"]["samples_of_one_march"]
        least = 3 / samples if name == "train_error" and rounding else 0.0  # three grids
        assert np.max(np.abs(one - other)) <= rounding * np.max(np.abs(other)) + least, name


def same_bits(ours, theirs):
    """Every number of every variable."""
    assert set(ours.variables) == set(theirs.variables)
    for name in theirs.variables:
        np.testing.assert_array_equal(np.asarray(ours[name]), np.asarray(theirs[name]), err_msg=name)


@pytest.fixture
def batches(monkeypatch):
    """Of how many solutions each program that ran held marches."""
    seen, real = [], crew._batch

    def spied(slices, points, stop):
        found = real(slices, points, stop)
        seen.append(len({id(own.place) for own in slices}))
        return found

    monkeypatch.setattr(crew, "_batch", spied)
    return seen


def double_well(theta, depth):
    """A penalty that is not quadratic."""
    return depth * (theta**2 - 1) ** 2


POINTS = {
    "SGD": [(logistic(sample_ratio=delta), sl.SGD(tau)) for delta, tau in ((1.0, 0.1), (2.0, 0.5), (4.0, 0.3))],
    "SGF": [(logistic(noise=sl.Normal(scale)), sl.SGF(0.2)) for scale in (0.1, 0.4)],
    "particles": [
        (logistic(penalty=sl.Penalty(double_well, parameters={"depth": depth}), init=sl.Normal(0.5)), sl.SGD(0.2))
        for depth in (0.02, 0.05)
    ],
    "teachers": [
        (logistic(loss=sl.Square(), labels=sl.Linear(), teacher=sl.Normal(scale)), sl.GradientFlow())
        for scale in (1.0, 2.0)
    ],
}


@pytest.mark.parametrize(
    "name", [name if name in ("SGD", "particles") else pytest.param(name, marks=pytest.mark.slow) for name in POINTS]
)
def test_one_program_for_many(name, batches):
    """As the single calls, up to rounding, and all marches of all points were put together."""
    points = POINTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # no batch failed
        found = in_order([(*point, QUICK) for point in points], joint=True)
    assert set(batches) == {len(points)}
    for ours, point in zip(found, points, strict=True):
        alike(ours, sl.solve(*point, **QUICK), ROUNDING)


@pytest.mark.parametrize("name", ["SGD", "particles"])
def test_sharing_keeps_every_bit(name):
    """Threads that share draws give what single calls give, other seeds included."""
    calls = [(*point, QUICK | {"seed": seed}) for point in POINTS[name] for seed in (0, 1)]
    for ours, (problem, algorithm, options) in zip(in_order(calls, joint=False), calls, strict=True):
        same_bits(ours, sl.solve(problem, algorithm, **options))


def test_draws_are_made_once(monkeypatch):
    """Problems that differ in δ and τ have the same draws; another seed has others."""
    made, real = [], noise.draw

    def counted(*arguments, **options):
        made.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(noise, "draw", counted)
    calls = [(*point, QUICK) for point in POINTS["SGD"]]
    for joint in (True, False):
        made.clear()
        in_order([*calls, (*POINTS["SGD"][0], QUICK | {"seed": 1})], joint=joint)
        assert len(made) == 2 * 16


def test_stages_of_different_length():
    """With a tolerance points take different numbers of stages and marches; each is as alone."""
    calls = [(*point, {"t_max": 0.4, "tol": tol}) for point, tol in zip(POINTS["SGD"], (0.5, 0.03, 0.02), strict=True)]
    found = in_order(calls, joint=True)
    for ours, (problem, algorithm, options) in zip(found, calls, strict=True):
        theirs = sl.solve(problem, algorithm, **options)
        assert ours.about["options"]["samples"] == theirs.about["options"]["samples"]
        alike(ours, theirs, ROUNDING)


def test_different_shapes(batches):
    """Lengths, widths and own metrics that differ go into programs of their own."""
    square = logistic(loss=sl.Square(), labels=sl.Linear())
    calls = [
        (logistic(), sl.SGD(0.2), QUICK),
        (logistic(), sl.SGD(0.2), QUICK | {"t_max": 1.6}),
        (square, sl.SGD(0.2), QUICK | {"metrics": {"margin": lambda r, r_star, z: r * r_star}}),
    ]
    found = in_order(calls, joint=True)
    assert set(batches) == {1}
    for ours, (problem, algorithm, options) in zip(found, calls, strict=True):
        alike(ours, sl.solve(problem, algorithm, **options), ROUNDING)
    assert "test_margin" in found[-1]


def test_one_diverges():
    """It ends where it ends alone; the others go on."""
    problem = logistic(loss=sl.Square(), labels=sl.Linear())
    taus = (0.2, 6.0, 0.3)
    options = {"t_max": 14.0, "samples": 4096, "dt": 0.2, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sl.DivergenceWarning)
        found = in_order([(problem, sl.SGD(tau), options) for tau in taus], joint=True)
        alone = [sl.solve(problem, sl.SGD(tau), **options) for tau in taus]
    assert [part.about["status"] for part in found] == ["complete", "diverged", "complete"]
    assert len(found[1].time) == len(alone[1].time) < len(alone[0].time)
    for i in (0, 2):
        alike(found[i], alone[i], ROUNDING)


@pytest.mark.parametrize("joint", [True, False])
def test_errors_are_answers(joint):
    """A call that is refused, and one that runs away, come back as what they raise."""
    calls = [
        (logistic(), sl.SGD(0.2), QUICK),
        (logistic(), sl.SGD(0.2), QUICK | {"samples": -1}),
        (logistic(sample_ratio=3.0), sl.SGD(0.2), QUICK),
    ]
    found = in_order([*calls, (logistic(), sl.SGD(0.2), {"nonsense": 1})], joint=joint, most=3)
    assert isinstance(found[1], sl.InputError)
    assert "samples" in str(found[1])
    assert isinstance(found[3], TypeError)
    for i in (0, 2):
        assert found[i].about["status"] == "complete"


def test_work_that_cannot_be_put_together_is_told_to_all(monkeypatch):
    """Nobody waits for ever where draws fail, and each call has its answer."""

    def failing(*given):
        raise RuntimeError("no draws")

    monkeypatch.setattr(place.Place, "start", failing)
    found = in_order([(*point, QUICK) for point in POINTS["SGD"]], joint=True)
    assert all(isinstance(part, RuntimeError) for part in found)


@pytest.mark.parametrize("failure", [MemoryError, ValueError])
def test_a_batch_that_fails_goes_in_smaller_ones(failure, monkeypatch):
    """Down to single calls, to the last bit; told, unless it is memory that is missing."""
    real = loop._begin

    def failing(layout, points):
        raise failure("no room")

    monkeypatch.setattr(loop, "_begin", failing)
    calls = [(*point, QUICK) for point in POINTS["SGD"]]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = in_order(calls, joint=True)
    assert bool([w for w in told if "one program" in str(w.message)]) == (failure is ValueError)
    monkeypatch.setattr(loop, "_begin", real)
    for ours, (problem, algorithm, options) in zip(found, calls, strict=True):
        alike(ours, sl.solve(problem, algorithm, **options), ROUNDING)


def test_too_large_for_memory(monkeypatch, batches):
    """Where not all fit at once, fewer are marched at a time."""
    calls = [(*point, QUICK | {"seed": seed}) for point in POINTS["SGD"] for seed in (0, 1, 2)]
    monkeypatch.setattr(loop, "_bytes", lambda asked: 1.0)
    room = SimpleNamespace(lack=lambda needed: "it is full" if needed > 5 else "")
    monkeypatch.setattr(loop, "machine", room)
    found = in_order(calls, joint=True)
    assert all(part.about["status"] == "complete" for part in found)
    assert 2 in batches
    assert max(batches) == 2  # ten do not fit, two do


def test_waves():
    """No more than `most` at a time; nothing for no calls."""
    calls = [(logistic(sample_ratio=1.0 + i), sl.SGD(0.2), QUICK) for i in range(3)]
    assert len(in_order(calls, joint=True, most=2)) == 3
    assert list(solve_many([])) == []
    with pytest.raises(sl.InputError, match="most"):
        list(solve_many(calls, 0))


@pytest.mark.parametrize("joint", [True, False])
def test_abandoned(joint):
    """Whoever stops listening leaves no thread behind."""
    before = threading.active_count()
    calls = [(*point, QUICK) for point in POINTS["SGD"]]
    answers = solve_many(calls, joint=joint, progress=False)
    next(answers)
    answers.close()
    assert threading.active_count() == before


def test_sizes():
    """Few, rising from one, the largest at least as asked and at most a quarter more."""
    for most in range(1, 300):
        found = sizes(most)
        assert found[0] == 1
        assert found == sorted(set(found))
        assert len(found) <= 4
        assert most <= found[-1] <= 1.25 * most


def test_shared_values_are_made_once_and_pushed_out(monkeypatch):
    """The oldest go when there is no room."""
    monkeypatch.setattr(place.machine, "memory", lambda: 16.0 * 2500)
    shared, made = place.Shared(), []

    def value(i):
        made.append(i)
        return np.zeros(1000, np.uint8)

    for i in (0, 1, 0, 2, 1):
        shared(i, lambda i=i: value(i))
    assert made == [0, 1, 2, 1]


def test_a_shared_value_is_made_by_one_thread():
    """The others wait for it."""
    shared, made, ready = place.Shared(), [], threading.Barrier(8)

    def make():
        made.append(1)
        time.sleep(0.05)
        return object()

    def body(_):
        ready.wait()
        return shared("key", make)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(body, range(8)))
    assert len(made) == 1
    assert all(part is found[0] for part in found)


def test_plain_numbers_stay_plain():
    """A number takes the precision of what it meets, also side by side."""

    def mapped(fn, items):
        layout, leaves = loop.stack(items)
        return jax.vmap(lambda *own: fn(*layout.tree(own)), in_axes=layout.axes)(*leaves)

    with jax.enable_x64(True):
        items = [({"a": 1.5 + i, "n": 2}, np.ones(3, np.float32)) for i in range(3)]
        found = mapped(lambda numbers, x: x * numbers["a"] ** numbers["n"], items)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[:, 0], [(1.5 + i) ** 2 for i in range(3)], rtol=1e-6)
        strong = mapped(lambda a, x: a * x, [(np.float64(i), np.ones(2, np.float32)) for i in (1, 2)])
        assert strong.dtype == jnp.float64


def talk_of(steps, place_):
    """A talk that asks `steps` times for nothing much, and returns what it was told."""
    heard = []
    for _ in range(steps):
        try:
            done = yield crew.Wanted([], place_)
            heard.append(len(done.records))
        except ValueError as error:
            heard.append(str(error))
    return heard


def test_a_talk_hears_what_goes_wrong_where_it_waits(monkeypatch):
    """And may go on; what it does not catch comes out."""
    here = place.Place(place.Room(np.inf, np.inf))
    assert crew.alone(talk_of(2, here), progress=False) == [0, 0]

    def wrong(*args):
        raise ValueError("no")

    monkeypatch.setattr(crew, "_done", wrong)
    assert crew.alone(talk_of(2, here), progress=False) == ["no", "no"]
    monkeypatch.setattr(crew, "_done", lambda *args: [][0])
    with pytest.raises(IndexError):
        crew.alone(crew.precisely(talk_of(1, here)), progress=False)


def test_a_talk_is_precise_where_it_computes_and_not_where_it_waits():
    """In whichever thread: precision is a matter of threads."""

    def talk():
        first = jnp.asarray(np.float64(1)).dtype
        yield None
        return str(first), str(jnp.asarray(np.float64(1)).dtype)

    running = crew.precisely(talk())
    next(running)
    assert jnp.asarray(np.float64(1)).dtype == jnp.float32
    with ThreadPoolExecutor(1) as pool, pytest.raises(StopIteration) as end:
        pool.submit(lambda: [running.send(None)]).result()
    assert end.value.value == ("float64", "float64")


INTERRUPTED = """
import _thread, threading, sys
import sgdlimit as sl
from sgdlimit.solver import solve_many
problem = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
calls = [(problem, sl.SGD(0.1 + i / 100), {"t_max": 200.0, "tol": 1e-4}) for i in range(8)]
threading.Timer(3.0, _thread.interrupt_main).start()
try:
    list(solve_many(calls, joint=sys.argv[1] == "joint"))
except KeyboardInterrupt:
    print("stopped", threading.active_count())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["joint", "apart"])
def test_interrupt(how):
    """Ctrl-C ends work of minutes within seconds, and all its threads."""
    begin = time.perf_counter()
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED, how], capture_output=True, text=True, timeout=60)
    assert ended.stdout.startswith("stopped 1"), ended.stderr
    assert time.perf_counter() - begin < 40


@pytest.mark.slow
def test_fifty_at_once():
    """Fifty points, each as alone."""
    points = [(logistic(sample_ratio=1.0 + i / 20), sl.SGD(0.1 + i / 200)) for i in range(50)]
    found = in_order([(*point, QUICK) for point in points], joint=False, most=50)
    for ours, point in zip(found, points, strict=True):
        same_bits(ours, sl.solve(*point, **QUICK))


def test_batching_is_for_gpus(monkeypatch):
    """Left open, marches are put together on all but CPUs."""
    seen = []

    monkeypatch.setattr(crew, "_apart", lambda talks, most: seen.append("apart") or ())
    monkeypatch.setattr(crew, "_together", lambda talks, numbers: seen.append(len(numbers)) or ())
    list(solve_many([None] * 300, progress=False))
    monkeypatch.setattr(crew.jax, "default_backend", lambda: "gpu")
    list(solve_many([None] * 300, progress=False))
    assert seen == ["apart", 100, 100, 100]


def test_marches_of_one_solution_run_side_by_side_and_change_no_bit(monkeypatch):
    calls, along = [], crew.along
    for cores in (1, 3):
        monkeypatch.setattr(machine, "cores", lambda cores=cores: cores)
        seen = set()
        spied = lambda *a, seen=seen, **b: (seen.add(threading.get_ident()), along(*a, **b))[1]  # noqa: E731
        monkeypatch.setattr(crew, "along", spied)
        calls.append((sl.solve(logistic(), sl.SGD(0.2), t_max=1.0, samples=4096), len(seen)))
        monkeypatch.setattr(crew, "along", along)
    (alone, one), (beside, several) = calls
    assert one == 1 < several
    same_bits(beside, alone)


def test_one_that_fails_ends_those_beside_it():
    begun = threading.Event()

    class Long:
        def run(self, told, stop):
            begun.set()
            while not stop.is_set():
                time.sleep(0.01)
            raise loop.Stopped

    class Fails:
        def run(self, told, stop):
            begun.wait()
            raise ValueError("here")

    for tasks in ([Fails(), Long(), Long()], [Long(), Fails(), Long()]):
        with pytest.raises(ValueError, match="here"):
            crew._side_by_side(tasks, print, 2)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sgdlimit")]


def test_a_march_beside_others_meets_ctrl_c_and_memory(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2)
    advance = march.advance

    def interrupted(*args):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # as a terminal does
        return advance(*args)

    monkeypatch.setattr(march, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sl.solve(logistic(), sl.SGD(0.2), t_max=1.0, samples=4096)
    monkeypatch.setattr(march, "advance", advance)
    with pytest.raises(sl.InputError, match="GiB"):
        sl.solve(logistic(), sl.SGD(0.2), t_max=1.0, samples=4096, max_bytes=1e4)


def test_an_executor_gives_the_same_bits(tmp_path):
    """Threads of the user's: slices of replicas, joined, with the draws of a single call; a checkpoint keeps them."""
    words = QUICK | {"snapshots": [0.2]}
    here = sl.solve(logistic(), sl.SGD(0.2), **words)
    with ThreadPoolExecutor(2) as pool:
        same_bits(sl.solve(logistic(), sl.SGD(0.2), **words, executor=pool, checkpoint=tmp_path / "c"), here)
    with ThreadPoolExecutor(1) as pool:  # all of it is kept: nothing is asked of the executor
        pool.submit = None  # type: ignore[assignment]
        same_bits(sl.solve(logistic(), sl.SGD(0.2), **words, executor=pool, checkpoint=tmp_path / "c"), here)


@pytest.mark.slow
def test_processes_give_the_same_bits():
    """A solution spread over other processes, stage by stage."""
    words = {"t_max": 1.0, "tol": 2e-2, "progress": False}
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        same_bits(sl.solve(logistic(), sl.SGD(0.2), **words, executor=pool), sl.solve(logistic(), sl.SGD(0.2), **words))


def test_executors_that_cannot_work_are_refused():
    """By name, before any work; functions without a name cannot be sent to processes."""
    own = logistic(penalty=sl.Penalty(lambda theta: 0.1 * theta**2))
    with pytest.raises(sl.InputError, match="executor"):
        sl.solve(logistic(), sl.SGD(0.2), **QUICK, executor="processes")
    with ProcessPoolExecutor(1, get_context("fork")) as pool, pytest.raises(sl.InputError, match="spawn"):
        sl.solve(logistic(), sl.SGD(0.2), **QUICK, executor=pool)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(sl.InputError, match="top level"):
        sl.solve(own, sl.SGD(0.2), **QUICK, executor=pool)
