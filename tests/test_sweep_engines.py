"""Where points run: the same numbers everywhere; workers, executors and schedulers may die."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray
from sweep_functions import FLAG, deadly, deadly_once, squared

import sgdlimit as sl
from sgdlimit.sweep import engines, tasks

EXACT = {"kind": "least_squares", "t_max": 2.0}
COARSE = {"t_max": 0.5, "dt": 0.25, "samples": 1024}
OVER = {"sample_ratio": [0.5, 1.0, 2.0], "temperature": [0.1, 0.3]}
SGF = sl.SGF(0.1)


@pytest.fixture
def alone(ridge):
    return sl.sweep(ridge, SGF, over=OVER, **EXACT)


def identical(first, second):
    mine, others = (found.dataset.drop_vars("seconds").drop_attrs() for found in (first, second))
    xarray.testing.assert_identical(mine, others)
    return True


def statuses(found):
    return list(found.dataset["status"].values.ravel())


# --- threads, processes, executors of the user's ---


def test_threads_give_the_same_dataset(ridge, alone):
    with ThreadPoolExecutor(2) as pool:
        assert identical(alone, sl.sweep(ridge, SGF, over=OVER, executor=pool, **EXACT))


def test_processes_of_our_own_and_of_the_users_give_the_same_dataset(ridge, alone):
    assert identical(alone, sl.sweep(ridge, SGF, over=OVER, executor=2, **EXACT))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert identical(alone, sl.sweep(ridge, SGF, over=OVER, executor=pool, **EXACT))


def test_a_pool_that_forks_is_refused(ridge):
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool,
        pytest.raises(sl.InputError, match=r"executor.*spawn"),
    ):
        sl.sweep(ridge, SGF, over=OVER, executor=pool, **EXACT)


def test_functions_without_a_name_are_refused_before_work_where_they_cannot_go(ridge):
    problem = dataclasses.replace(ridge, loss=sl.Loss(lambda r, y: (r - y) ** 2))
    with pytest.raises(sl.InputError, match=r"executor.*top level of a module.*in this process"):
        sl.sweep(problem, SGF, over=OVER, executor=2, **COARSE)
    with pytest.raises(sl.InputError, match=r"executor.*top level of a module"):
        sl.sweep(ridge, SGF, over=OVER, executor=2, metrics={"m": lambda r, r_star, z: r}, **COARSE)


def test_a_script_without_a_guard_is_told(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import sgdlimit as sl\n"
        "p = sl.Problem(loss=sl.Square(), sample_ratio=2.0, teacher=sl.Normal(1.0))\n"
        "sl.sweep(p, sl.SGF(0.1), over={'sample_ratio': [1.0]}, kind='least_squares', t_max=1.0, executor=2)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "__main__" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_worker_that_dies_once_costs_nothing_and_one_that_always_dies_one_point(ridge, tmp_path, monkeypatch):
    flag = tmp_path / "flag"
    flag.touch()
    monkeypatch.setenv(FLAG, str(flag))
    losses = [sl.Loss(squared), sl.Loss(deadly_once), sl.Loss(deadly)]
    over = {"loss": losses, "sample_ratio": [0.5, 2.0]}
    with pytest.warns(sl.SweepWarning, match="its process died 3 times"):
        found = sl.sweep(ridge, SGF, over=over, executor=2, store=tmp_path / "s", **COARSE)
    assert not flag.exists()
    assert statuses(found) == 4 * ["complete"] + 2 * ["failed"]
    fine = sl.sweep(ridge, SGF, over={"loss": losses[:2], "sample_ratio": [0.5, 2.0]}, **COARSE).dataset
    np.testing.assert_array_equal(found.dataset["test_error"].values[:2], fine["test_error"].values)
    assert len(list((tmp_path / "s" / "points").iterdir())) == 4  # those that died may live elsewhere


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_stops_the_command_and_its_workers_and_says_how_to_go_on(tmp_path, workers):
    main = "from sgdlimit.cli import main; main()"
    example = subprocess.run(
        [sys.executable, "-c", main, "models", "--example"], capture_output=True, check=True
    ).stdout
    problem = tmp_path / "ridge.toml"
    problem.write_bytes(example.replace(b"count = 4", b"count = 1000"))
    command = [sys.executable, "-c", main, "sweep", problem, "-o", tmp_path / "d.nc"]
    command += ["--workers", str(workers)] if workers else []
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    kept = tmp_path / "d.store" / "points"
    while not kept.exists() or len(list(kept.glob("*.npz"))) < 5:
        assert child.poll() is None
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)
    said = child.communicate(timeout=20)[1]
    assert child.returncode == 130
    assert "points are kept in" in said
    assert "goes on" in said
    assert len(list(kept.glob("*.npz"))) >= 5
    begin = time.monotonic()
    while _alive(child.pid):
        assert time.monotonic() < begin + 20, "somebody of the session is left"
        time.sleep(0.05)


def _alive(session):
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return False
    return True


class Fragile(Executor):
    """Does a few tasks, then breaks."""

    def __init__(self, tasks):
        self.left = tasks

    def submit(self, fn, /, *args, **kwargs):
        if self.left == 0:
            raise BrokenExecutor("somebody pulled the plug")
        self.left -= 1
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_an_executor_that_breaks_loses_no_finished_point(ridge, alone, tmp_path):
    with pytest.warns(sl.SweepWarning, match="2 of 6 points failed.*executor.*broke"):
        found = sl.sweep(ridge, SGF, over=OVER, executor=Fragile(4), store=tmp_path / "s", **EXACT)
    assert statuses(found) == 4 * ["complete"] + 2 * ["failed"]
    np.testing.assert_array_equal(found.dataset["norm"].values[:2], alone.dataset["norm"].values[:2])
    assert identical(alone, sl.sweep(ridge, SGF, over=OVER, executor=Fragile(2), store=tmp_path / "s", **EXACT))


def test_an_executor_that_was_shut_down_is_told(ridge):
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.warns(sl.SweepWarning, match="6 of 6 points failed.*executor.*broke"):
        sl.sweep(ridge, SGF, over=OVER, executor=pool, **EXACT)


def test_a_worker_of_another_version_is_told(ridge):
    task = tasks.Task(ridge, SGF, "least_squares", {}, np.linspace(0, 1, 3), version="sgdlimit 9")
    outcome = tasks.perform(task)
    assert str(outcome.arrays["status"].values) == "failed"
    assert "install the same" in str(outcome.arrays["reason"].values)
    assert not outcome.lasting


@pytest.mark.slow
def test_compiled_programs_serve_all_points():
    """Points that differ in numbers compile nothing: as many programs for six points as for one."""
    code = """
import collections, logging, sys
import jax, sgdlimit as sl
jax.config.update("jax_log_compiles", True)
seen = []
class Seen(logging.Handler):
    def emit(self, record):
        if "Finished XLA compilation" in record.getMessage():
            seen.append(record.getMessage())
for name in ("jax._src.dispatch", "jax._src.interpreters.pxla"):
    logging.getLogger(name).addHandler(Seen())
    logging.getLogger(name).propagate = False
problem = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), sample_ratio=2.0, teacher=sl.Normal(1.0))
def go(count):
    seen.clear()
    over = {"sample_ratio": [1.0 + i / 4 for i in range(count)], "temperature": [0.1, 0.2][:count]}
    sl.sweep(problem, sl.SGF(0.1), over=over, t_max=1.0, dt=0.125, samples=1024)
    return len(seen)
print(go(1), go(3))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    first, rest = map(int, done.stdout.split())
    assert first > 5
    assert rest == 0


# --- a Dask cluster ---


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two worker processes."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as running,
        distributed.Client(running) as client,
    ):
        yield client


def test_dask_gives_the_same_dataset_by_client_and_by_address(ridge, alone, cluster):
    assert identical(alone, sl.sweep(ridge, SGF, over=OVER, executor=cluster, **EXACT))
    assert identical(alone, sl.sweep(ridge, SGF, over=OVER, executor=cluster.scheduler.address, **EXACT))


def test_dask_takes_functions_without_a_name(ridge, cluster):
    arguments = {"over": {"sample_ratio": [0.5, 2.0]}, "metrics": {"m": lambda r, r_star, z: r**2}, **COARSE}
    assert identical(sl.sweep(ridge, SGF, **arguments), sl.sweep(ridge, SGF, executor=cluster, **arguments))


@pytest.mark.slow
def test_a_dask_worker_killed_in_the_middle_costs_nothing(ridge, cluster, tmp_path):
    arguments = {"over": {"temperature": list(np.linspace(0.1, 1.0, 12))}, "t_max": 2.0, "dt": 0.05, "samples": 16384}
    alone = sl.sweep(ridge, SGF, **arguments)
    victim = next(iter(cluster.run(os.getpid).values()))

    def kill():
        while len(list((tmp_path / "s").glob("points/*.npz"))) < 3:
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    assert identical(alone, sl.sweep(ridge, SGF, executor=cluster, store=tmp_path / "s", **arguments))
    killer.join(timeout=1)
    assert not killer.is_alive()
    assert victim not in cluster.run(os.getpid).values()


def test_tasks_that_the_scheduler_forgets_are_sent_again(ridge, alone, cluster, monkeypatch):
    sent = []

    def forgetful(perform, task, *, send=cluster.submit, **options):
        future = send(perform, task, **options)
        sent.append(task.key)
        if len(sent) == 2:
            cluster.cancel([future], force=True)
        return future

    monkeypatch.setattr(cluster, "submit", forgetful)
    assert identical(alone, sl.sweep(ridge, SGF, over=OVER, executor=cluster, **EXACT))
    assert len(sent) == 7
    assert len(set(sent)) == 6


def test_a_scheduler_that_does_not_answer_is_told_before_work(ridge, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "PATIENCE", 0.5)
    with pytest.raises(sl.InputError, match=r"executor: got tcp://127.0.0.1:9; no scheduler answers"):
        sl.sweep(ridge, SGF, over=OVER, executor="tcp://127.0.0.1:9", **EXACT)


@pytest.mark.slow
def test_a_scheduler_that_goes_for_good_ends_the_sweep_and_keeps_what_is_finished(ridge, tmp_path):
    distributed = pytest.importorskip("distributed")
    arguments = {"over": {"temperature": list(np.linspace(0.1, 1.0, 12))}, "t_max": 2.0, "dt": 0.05, "samples": 16384}
    running = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    client = distributed.Client(running, timeout=2)

    def close():
        while len(list((tmp_path / "s").glob("points/*.npz"))) < 3:
            time.sleep(0.01)
        running.close()

    threading.Thread(target=close, daemon=True).start()
    with pytest.warns(sl.SweepWarning, match="scheduler"):
        found = sl.sweep(ridge, SGF, executor=client, store=tmp_path / "s", **arguments)
    done = statuses(found).count("complete")
    assert 3 <= done < 12
    assert len(list(Path(tmp_path / "s" / "points").glob("*.npz"))) == done
    client.close(timeout=2)
    assert identical(sl.sweep(ridge, SGF, store=tmp_path / "s", **arguments), sl.sweep(ridge, SGF, **arguments))
