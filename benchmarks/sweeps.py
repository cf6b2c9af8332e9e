"""Sweeps: what they cost, whether they are right, and whether a kill loses anything.

    python benchmarks/sweeps.py stored [points]     10 000 stored points: listing, loading, extending
    python benchmarks/sweeps.py ridge [side]        side × side points of ridge against the exact answer
    python benchmarks/sweeps.py logistic            36 points of logistic regression, against a loop, in new processes
    python benchmarks/sweeps.py kills [n] [workers] SIGKILL at random moments; each sweep goes on from the store
    python benchmarks/sweeps.py dask                two workers, one of them killed, against this process

The exit status is 1 if anything is lost, differs or takes longer than it may.
"""

import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import xarray

import sgdlimit as sl
from sgdlimit.sweep import engines, tasks
from sgdlimit.sweep.store import Store

LONGEST = 10.0
"""Seconds that listing, loading or extending may take."""
DEVIATION = 4.5
"""Error bars that the worst of some hundred thousand numbers may be off; correlated, a few hundred of them count."""


def ridge() -> sl.Problem:
    return sl.Problem(
        loss=sl.Square(), penalty=sl.Ridge(0.1), sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)
    )


def logistic() -> sl.Problem:
    return sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.01), sample_ratio=2.0, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1),
    )  # fmt: skip


def timed(label: str, call: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    out = call()
    seconds = time.perf_counter() - begin
    print(f"{label:<50} {seconds:8.2f} s", flush=True)
    return out, seconds


def same(first: sl.Sweep, second: sl.Sweep) -> bool:
    mine, others = (found.dataset.drop_vars("seconds").drop_attrs() for found in (first, second))
    return mine.identical(others)


def stored(count: int = 10_000) -> bool:
    """The points are those of one solution, over and over: only the store is looked at."""
    side = round(count**0.5)
    problem, algorithm = ridge(), sl.SGF(0.2)
    template = {}

    def perform(task: tasks.Task) -> tasks.Outcome:
        if not template:
            template["outcome"] = tasks.perform(task)
        return template["outcome"]

    engines.perform = perform
    over = {"sample_ratio": np.linspace(0.5, 4.0, side), "temperature": np.linspace(0.1, 1.0, side)}
    larger = over | {"sample_ratio": np.append(over["sample_ratio"], 5.0)}
    with tempfile.TemporaryDirectory() as folder:
        arguments: dict[str, Any] = {"t_max": 2.0, "samples": 4096, "dt": 0.1, "store": Path(folder) / "s"}
        _, seconds = timed(
            f"writing {side**2} points", lambda: sl.sweep(problem, algorithm, over, progress=True, **arguments)
        )
        print(f"  {1e3 * seconds / side**2:.1f} ms a point")
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        files = sum(1 for file in Path(folder).rglob("*") if file.is_file())
        print(f"  {size / 2**20:.0f} MiB in {files} files")
        keys, listing = timed("listing", lambda: Store(arguments["store"]).keys())
        found, loading = timed("the same sweep again", lambda: sl.sweep(problem, algorithm, over, **arguments))
        _, extending = timed(f"{side} points more", lambda: sl.sweep(problem, algorithm, larger, **arguments))
    whole = len(keys) == side**2 and bool((found.dataset["status"] == "complete").all())
    return whole and max(listing, loading, extending) < LONGEST


def against_exact(side: int = 20) -> bool:
    """Ridge: theory at every point of a grid, in units of its own error bars."""
    over = {"sample_ratio": np.geomspace(0.3, 5.0, side), "temperature": np.linspace(0.05, 1.0, side)}
    exact, _ = timed("least_squares", lambda: sl.sweep(ridge(), sl.SGF(0.1), over, kind="least_squares", t_max=4.0))
    theory, _ = timed("solve, tol = 5e-2", lambda: sl.sweep(ridge(), sl.SGF(0.1), over, t_max=4.0, tol=5e-2))
    words = Counter(theory.dataset["status"].values.ravel().tolist())
    print(f"  {side**2} points: {dict(words)}")
    worst = 0.0
    for name in ("train_error", "test_error", "overlap", "norm"):
        value, error = theory.curve(name)
        truth = exact.dataset[name]
        off = np.abs(value - truth) / np.hypot(error, 1e-5 * np.abs(truth).max())
        share = float((np.abs(value - truth) / np.abs(truth).max("time")).max())
        print(f"  {name:<12} largest deviation {float(off.max()):5.2f} error bars, {share:.4f} of the curve; "
              f"mean square {float((off**2).mean()):.2f}")  # fmt: skip
        worst = max(worst, float(off.max()))
    return worst < DEVIATION and set(words) == {"complete"}


LOOP = """
import dataclasses, time, numpy as np
begin = time.perf_counter()
import sgdlimit as sl
from sweeps import logistic
values = np.empty((6, 6))
for i, ratio in enumerate(np.geomspace(0.5, 4.0, 6)):
    for j, temperature in enumerate(np.geomspace(0.1, 1.0, 6)):
        problem = dataclasses.replace(logistic(), sample_ratio=ratio)
        solution = sl.solve(problem, sl.SGF(temperature), times=np.linspace(0, 5, 65), tol=1e-2, variables="test_error")
        values[i, j] = solution["test_error"][-1]
"""
SWEEP = """
import time, numpy as np
begin = time.perf_counter()
import sgdlimit as sl
from sweeps import logistic
over = {"sample_ratio": np.geomspace(0.5, 4.0, 6), "temperature": np.geomspace(0.1, 1.0, 6)}
found = sl.sweep(logistic(), sl.SGF(0.1), over, t_max=5.0, tol=1e-2, variables="test_error")
values = found.dataset["test_error"].isel(time=-1).values
"""
TOLD = 'print("values", *values.ravel().tolist()); print("seconds", time.perf_counter() - begin)\n'


def cold() -> bool:
    """From a new process with no compiled programs kept, and again with them."""
    here = str(Path(__file__).parent)
    results = []
    for name, code in (("a loop over sl.solve", LOOP), ("one call of sl.sweep", SWEEP)):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("nothing compiled", "programs kept"):
                paths = os.pathsep.join([here, *sys.path])
                done = subprocess.run(
                    [sys.executable, "-c", code + TOLD], capture_output=True, text=True, check=True,
                    env=os.environ | {"SGDLIMIT_CACHE": cache, "PYTHONPATH": paths},
                )  # fmt: skip
                lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
                results.append(np.array(lines["values"], float))
                print(f"36 points, {name}, {state:<18} {float(lines['seconds'][0]):6.1f} s", flush=True)
    return all(np.array_equal(results[0], other) for other in results)


# --- kills ---

OVER = {"sample_ratio": np.linspace(0.5, 4.0, 40), "temperature": np.linspace(0.1, 1.0, 30)}


def one_run(folder: str, workers: int) -> None:
    """What is killed. Every point is written down before it is computed."""
    log = (Path(folder) / f"log-{os.getpid()}").open("a")

    def noted(missing: Any) -> Any:
        for task in missing:
            print(task.key, file=log, flush=True)
            yield task

    choose = engines.choose

    def chosen(*given: Any) -> engines.Engine:
        engine = choose(*given)
        return lambda missing: engine(noted(missing))

    engines.choose = chosen
    found = sl.sweep(
        ridge(), sl.SGF(0.1), OVER, kind="least_squares", t_max=2.0, store=Path(folder) / "s", executor=workers or None
    )
    found.save(Path(folder) / "found.nc")


def kills(count: int = 50, workers: int = 0) -> bool:
    """Kill, look at what is stored, go on; at the end, one undisturbed sweep to compare with."""
    chance = random.Random(0)
    total = len(OVER["sample_ratio"]) * len(OVER["temperature"])
    twice, lost, known = 0, 0, set()
    begun: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp())
    done = 0
    try:
        for number in range(count + 1):
            code = f"import sweeps; sweeps.one_run({str(folder)!r}, {workers})"
            paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
            child = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths})
            if number < count:
                log = folder / f"log-{child.pid}"
                while child.poll() is None and not (log.exists() and log.stat().st_size):
                    time.sleep(0.005)
                time.sleep(chance.uniform(0.0, 2.0 * total * 0.012 / count))
                child.send_signal(signal.SIGKILL)
            child.wait()
            log = folder / f"log-{child.pid}"
            keys = log.read_text().split() if log.exists() else []
            begun.update(keys)
            twice += len(known & set(keys))
            now = Store(folder / "s").keys()
            lost += len(known - now)
            known = now
            done += child.returncode == 0
            print(f"  kill {number + 1}: {len(keys):4} begun, {len(now):5} of {total} stored", flush=True)
        again = sum(number - 1 for number in begun.values())
        found = xarray.load_dataset(folder / "found.nc", engine="h5netcdf")
        alone = sl.sweep(ridge(), sl.SGF(0.1), OVER, kind="least_squares", t_max=2.0).dataset
        equal = found.drop_vars("seconds").equals(alone.drop_vars("seconds"))
    finally:
        shutil.rmtree(folder)
    print(f"{count} kills: {lost} points lost, {twice} stored points computed again, {again} in flight computed again,")
    print(f"{len(known)} of {total} points; the dataset is {'identical' if equal else 'ANOTHER'}")
    return equal and not lost and not twice and len(known) == total


def on_dask() -> bool:
    """Two worker processes; then one of them killed in the middle of its point."""
    distributed: Any = importlib.import_module("distributed")
    over = {"sample_ratio": np.geomspace(0.5, 4.0, 6), "temperature": np.geomspace(0.1, 1.0, 4)}
    arguments: dict[str, Any] = {"t_max": 4.0, "tol": 1e-2, "variables": "test_error"}
    alone, _ = timed("24 points of logistic regression, this process",
                     lambda: sl.sweep(logistic(), sl.SGF(0.1), over, **arguments))  # fmt: skip
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        spread, _ = timed(
            "two dask workers", lambda: sl.sweep(logistic(), sl.SGF(0.1), over, executor=client, **arguments)
        )
        victim = next(iter(client.run(os.getpid).values()))

        def kill() -> None:
            while len(list(Path(folder).glob("s/points/*.npz"))) < 8:
                time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        harmed, _ = timed(
            "two dask workers, one killed",
            lambda: sl.sweep(logistic(), sl.SGF(0.1), over, executor=client, store=Path(folder) / "s", **arguments),
        )
        gone = victim not in client.run(os.getpid).values()
    print(f"identical: {same(alone, spread)}; with a worker killed ({gone}): {same(alone, harmed)}")
    return same(alone, spread) and same(alone, harmed) and gone


if __name__ == "__main__":
    name, *numbers = sys.argv[1:] or ["stored"]
    known = {"stored": stored, "ridge": against_exact, "logistic": cold, "kills": kills, "dask": on_dask}
    sys.exit(0 if known[name](*map(int, numbers)) else 1)
