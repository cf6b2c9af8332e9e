"""Checkpoints: work that was interrupted anywhere goes on to the same bits, and no other work may have it."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from problems import logistic, square

import sgdlimit as sl
from sgdlimit import _machine as machine
from sgdlimit.dmft import march, memory
from sgdlimit.dmft.march import assemble
from sgdlimit.dmft.work import Work
from sgdlimit.execute.place import Place, Room, bytes_of
from sgdlimit.results import checkpoint
from sgdlimit.simulation import execute

SOLVE = {"t_max": 3.0, "samples": 4096, "replicas": 4, "snapshots": [1.0]}
RUNS = {"dim": 40, "trials": 4, "t_max": 2.0, "snapshots": [1.0, 2.0], "workers": 1}


@pytest.fixture
def eager(monkeypatch):
    """A checkpoint is written whenever it may be, also in the middle of a march."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "COSTS", 0.0)
    monkeypatch.setattr(march, "CHUNK", 16)


class Stop(Exception):
    """Where a kill would be."""


def stopping(monkeypatch, place, name, after):
    """Let a function of a module raise at its call number `after`; count its calls."""
    real, calls = getattr(place, name), []

    def counted(*args):
        calls.append(0)
        if len(calls) == after:
            raise Stop
        return real(*args)

    monkeypatch.setattr(place, name, counted)
    return calls


def same(first, second):
    assert list(first.dataset.data_vars) == list(second.dataset.data_vars)
    for name, values in first.dataset.data_vars.items():
        assert values.dtype == second.dataset[name].dtype
        np.testing.assert_array_equal(values, second.dataset[name], err_msg=str(name))


def interrupted(work, path, monkeypatch, place, name, stops):
    """Interrupt `work` at each of these calls in turn; what it is in the end, and how many calls the end took."""
    for after in stops:
        with monkeypatch.context() as patch:
            stopping(patch, place, name, after)
            with pytest.raises(Stop):
                work(path)
    with monkeypatch.context() as patch:
        calls = stopping(patch, place, name, 0)
        return work(path), len(calls)


def test_solve_resumes_to_the_same_bits(eager, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "cores", lambda: 1)  # slices beside the one that is stopped end their chunk
    problem, path = logistic(), tmp_path / "run.ckpt"

    def work(checkpoint=None):
        return sl.solve(problem, sl.SGD(0.4), **SOLVE, checkpoint=checkpoint)

    work()  # compiles, which is a call too
    whole, calls = interrupted(work, None, monkeypatch, march, "advance", [])
    resumed, rest = interrupted(work, path, monkeypatch, march, "advance", [2, 3, 9])
    same(whole, resumed)
    assert rest == calls - (1 + 2 + 8), "a chunk was marched twice"
    again, none = interrupted(work, path, monkeypatch, march, "advance", [])
    same(whole, again)
    assert none == 0, "a finished solution was marched again"
    assert [file.name for file in tmp_path.iterdir()] == ["run.ckpt"]


def test_solve_resumes_after_a_second_interrupt_at_the_same_place(eager, monkeypatch, tmp_path):
    def work(checkpoint=None):
        return sl.solve(square(), sl.SGF(0.3), **SOLVE, checkpoint=checkpoint)

    whole, _ = interrupted(work, None, monkeypatch, march, "advance", [])
    resumed, _ = interrupted(work, tmp_path / "run.ckpt", monkeypatch, march, "advance", [6, 1, 1, 1])
    same(whole, resumed)


MARCHES = {"t_max": 1.0, "replicas": 8}
FEW, MANY = 8192, 131072
"""Samples in small marches on all grids alone, and with larger ones on the coarsest, where memory allows it."""


class Sized:
    """Solutions in so much memory, in units of what a march of one replica holds."""

    def __init__(self, monkeypatch, samples):
        self.samples, self.unit = samples, 0.0
        self.chosen, self.otherwise = set(), set()
        """Samples, or replicas of one call; and what would be chosen in all the memory of the world."""
        cut, fitting, endless = Place.cut, Place.fitting, Room(np.inf, np.inf)

        def cut_watched(here, work):
            self.unit = self.unit or bytes_of(work.system, 1)
            for seen, place in ((self.chosen, here), (self.otherwise, replace(here, room=endless))):
                seen.add(("replicas", len(cut(place, work)[0].replicas)))
            return cut(here, work)

        def fitting_watched(here, *given):
            for seen, place in ((self.chosen, here), (self.otherwise, replace(here, room=endless))):
                seen.add(("samples", fitting(place, *given)))
            return fitting(here, *given)

        monkeypatch.setattr(Place, "cut", cut_watched)
        monkeypatch.setattr(Place, "fitting", fitting_watched)
        with pytest.raises(sl.InputError, match="samples"):
            sl.solve(square(), sl.SGF(0.3), **MARCHES, samples=samples, max_bytes=1.0)

    def solve(self, most, checkpoint=None):
        self.chosen.clear()
        self.otherwise.clear()
        given = {"samples": self.samples, "max_bytes": None if most is None else most * self.unit}
        return sl.solve(square(), sl.SGF(0.3), **MARCHES, **given, checkpoint=checkpoint)


def test_solve_resumes_in_other_memory_to_the_same_bits(eager, monkeypatch, tmp_path):
    """Replicas of one call, and samples of a march, stay as they were when the solution was begun."""
    sized, path = Sized(monkeypatch, MANY), tmp_path / "run.ckpt"
    whole = sized.solve(1.5)
    chosen = sized.chosen.copy()
    assert len(chosen) == len(sized.otherwise) == 2
    assert not chosen & sized.otherwise
    for after, most in [(7, 1.5), (5, 100.0), (1, 4.5), (30, 2.5)]:
        with monkeypatch.context() as patch:
            stopping(patch, march, "advance", after)
            with pytest.raises(Stop):
                sized.solve(most, path)
    same(whole, sized.solve(None, path))
    assert sized.chosen == chosen
    same(whole, sized.solve(1.5, path))


def test_solve_refuses_memory_that_it_was_not_begun_with(eager, monkeypatch, tmp_path):
    sized, path = Sized(monkeypatch, FEW), tmp_path / "run.ckpt"
    whole = sized.solve(None)
    with monkeypatch.context() as patch:
        stopping(patch, march, "advance", 9)
        with pytest.raises(Stop):
            sized.solve(None, path)
    for most in (2.5, 1.5, 0.5):
        with pytest.raises(sl.InputError, match=r"max_bytes: .*checkpoint was begun with .*name a new checkpoint"):
            sized.solve(most, path)
    same(whole, sized.solve(None, path))
    same(whole, sized.solve(0.5, path))  # there is nothing left to do


def test_another_march_has_another_name():
    times, few = np.linspace(0.0, 1.0, 9), memory.Moments((1.0, 2.0))
    system = assemble(square(), sl.SGF(0.3), 1024, few)
    piece, more = Work(system, times, 1, 0, range(4)), memory.Moments((1.0, 2.1))
    others = [
        {"times": times * 1.001}, {"stride": 2}, {"system": replace(system, memory=more)}, {"functions": more},
        {"system": replace(system, samples=2048)}, {"turn": 1}, {"replicas": range(2)}, {"replicas": range(4, 8)},
    ]  # fmt: skip
    assert piece.name == replace(piece).name
    assert len({piece.name, *(replace(piece, **change).name for change in others)}) == 1 + len(others)


TWO_DEVICES = """
import sys
from pathlib import Path
import jax, pytest
from test_checkpoint import FEW, RUNS, Sized, Stop, checkpoint, march, same, sl, square, stopping

assert len(jax.devices()) == 2
checkpoint.EVERY = checkpoint.COSTS = 0.0
folder = Path(sys.argv[1])
patch = pytest.MonkeyPatch()
sized = Sized(patch, FEW)
whole = sized.solve(2.5)
for after, most in [(3, 2.5), (2, 100.0)]:
    with patch.context() as inner:
        stopping(inner, march, "advance", after)
        with pytest.raises(Stop):
            sized.solve(most, folder / "two.ckpt")
same(whole, sized.solve(None, folder / "two.ckpt"))
same(sl.load(folder / "whole.nc"), sl.simulate(square(), sl.SGD(0.3), **RUNS, checkpoint=folder / "runs.ckpt"))
"""


def test_two_devices(monkeypatch, tmp_path):
    """A solution is carried on there, in other memory, to the same bits; elsewhere it is refused. Trials are not."""
    sl.simulate(square(), sl.SGD(0.3), **RUNS).save(tmp_path / "whole.nc")
    with monkeypatch.context() as patch:
        stopping(patch, execute, "run", 3)
        with pytest.raises(Stop):
            sl.simulate(square(), sl.SGD(0.3), **RUNS, checkpoint=tmp_path / "runs.ckpt")
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), *sys.path])
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    world = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", TWO_DEVICES, tmp_path], env=world, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(sl.InputError, match=r"another number of devices \(2, not 1\)"):
        sl.solve(square(), sl.SGF(0.3), **MARCHES, samples=FEW, checkpoint=tmp_path / "two.ckpt")


@pytest.mark.filterwarnings("ignore::sgdlimit.DivergenceWarning")
@pytest.mark.parametrize(("temperature", "ending"), [(0.3, "complete"), (9.0, "diverged")])
def test_simulate_resumes_to_the_same_bits(temperature, ending, monkeypatch, tmp_path):
    problem, algorithm = square(), sl.SGD(temperature, batch_size=2)
    path = tmp_path / "runs.ckpt"

    def work(checkpoint=None, **more):
        return sl.simulate(problem, algorithm, **RUNS | {"t_max": 40.0} | more, checkpoint=checkpoint)

    whole = work()
    resumed, calls = interrupted(work, path, monkeypatch, execute, "run", [3])
    same(whole, resumed)
    assert 1 <= calls <= 2  # of four trials; how many ended before the interrupt, threads decide
    assert (whole.status, whole.message) == (resumed.status, resumed.message)
    assert whole.status == ending
    # more trials go on from the same file
    same(work(trials=6), work(path, trials=6))


def test_simulate_on_data_resumes_and_looks_at_the_data(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 10)) / np.sqrt(10), rng.normal(size=30)
    path = tmp_path / "runs.ckpt"

    def work(checkpoint=None, X=X):
        return sl.simulate_on_data(X, y, sl.SGD(0.3), trials=3, t_max=2.0, workers=1, checkpoint=checkpoint)

    resumed, calls = interrupted(work, path, monkeypatch, execute, "run", [3])
    assert calls == 1
    same(work(), resumed)
    with pytest.raises(sl.InputError, match="another data"):
        work(path, X=X + 1e-6)


def test_own_data_resume_where_other_cores_round_otherwise(monkeypatch, tmp_path):
    """Singular values depend on the number of cores in their last digits; what a checkpoint belongs to does not."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 60)) / np.sqrt(60), rng.normal(size=120)
    X, y = X - X.mean(axis=0), y - y.mean()
    svd, norm = np.linalg.svd, np.linalg.norm

    def rounded(patch, part):
        patch.setattr(np.linalg, "svd", lambda *a, **more: [x * (1 + part) for x in svd(*a, **more)])
        patch.setattr(np.linalg, "norm", lambda *a, **more: norm(*a, **more) * (1 + part))

    def work():
        paths = (tmp_path / "run.ckpt", tmp_path / "runs.ckpt")
        solved = sl.solve_on_data(X, y, sl.SGF(0.1), t_max=1.0, samples=4096, replicas=4, checkpoint=paths[0])
        return solved, sl.simulate_on_data(X, y, sl.SGF(0.1), trials=2, t_max=0.5, workers=1, checkpoint=paths[1])

    whole = work()
    for part in (1e-14, -1e-14):
        with monkeypatch.context() as patch:
            rounded(patch, part)
            for first, again in zip(whole, work(), strict=True):
                same(first, again)


def test_ctrl_c_says_where_the_work_is(monkeypatch, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "run", stop)
    path = tmp_path / "runs.ckpt"
    with pytest.raises(KeyboardInterrupt, match=r"finished work is kept in .*runs\.ckpt"):
        sl.simulate(square(), sl.SGD(0.3), **RUNS, checkpoint=path)
    assert path.exists()
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        sl.simulate(square(), sl.SGD(0.3), **RUNS)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "run.ckpt"
    sl.solve(square(), sl.SGF(0.3), **SOLVE, checkpoint=path)
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"problem": square(ridge=0.2)}, "another problem"),
        ({"algorithm": sl.SGF(0.4)}, "another algorithm"),
        ({"seed": 1}, r"another seed \(0, not 1\)"),
        ({"t_max": 3.5}, r"another t_max \(3\.0, not 3\.5\)"),
        ({"samples": 8192}, r"another samples \(4096, not 8192\)"),
        ({"dt": 0.01}, r"another dt \(null, not 0\.01\)"),
        ({"times": np.linspace(0, 3, 2000), "t_max": None}, "another times"),
        ({"dtype": "float64"}, "another dtype"),
        ({"metrics": {"size": lambda r, r_star, z: r * r}}, "another metrics"),
    ],
)
def test_another_call_is_refused(change, reason, kept):
    before = kept.read_bytes()
    call = {"problem": square(), "algorithm": sl.SGF(0.3), **SOLVE, "checkpoint": kept} | change
    with pytest.raises(sl.InputError, match=reason):
        sl.solve(**call)
    assert kept.read_bytes() == before


def test_another_version_is_refused(kept, monkeypatch):
    monkeypatch.setattr(checkpoint, "__version__", "99")
    with pytest.raises(sl.InputError, match=r"another numerical version .*not sgdlimit 99"):
        sl.solve(square(), sl.SGF(0.3), **SOLVE, checkpoint=kept)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda content: content[:-1], "damaged"),
        (lambda content: content[:-100] + b"x" + content[-99:], "damaged"),
        (lambda content: content[:40], "damaged"),
        (lambda _: b"", "no checkpoint"),
        (lambda _: b"something else", "no checkpoint"),
    ],
)
def test_damaged_files_are_refused(harm, reason, kept, tmp_path):
    path = tmp_path / "run.ckpt"
    path.write_bytes(harm(kept.read_bytes()))
    with pytest.raises(sl.InputError, match=reason):
        sl.solve(square(), sl.SGF(0.3), **SOLVE, checkpoint=path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.ckpt"]


def test_puts_from_many_threads(eager, tmp_path):
    """Every piece is there, whoever wrote last."""
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / "run.ckpt"
    first = checkpoint.Checkpoint(path, {"seed": "0"})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: first.put(f"piece {i}", {"value": np.full(100, i)}), range(40)))
    first.write()
    second = checkpoint.Checkpoint(path, {"seed": "0"})
    for i in range(40):
        piece = second.get(f"piece {i}")
        assert piece is not None
        np.testing.assert_array_equal(piece["value"], i)
