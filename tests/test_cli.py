"""The command line, as a user types it: files, overwriting, errors with exit status 2, interruption."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import sgdlimit as sl
from sgdlimit.cli import specification
from sgdlimit.cli.app import app
from sgdlimit.errors import parameters_of
from sgdlimit.results import Variable

PATH = f"import os, sys; sys.path.insert(0, {str(Path(sl.__file__).parent.parent)!r}); "
COMMANDS = ("figure", "verify", "frameworks", "solve", "simulate", "compare", "sweep", "plot", "models", "explore")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "ridge.toml"
    path.write_text(run("models", "--example").stdout)
    return path


def test_help_has_an_example_for_each_command():
    for command in COMMANDS:
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"sgdlimit {command}" in " ".join(result.stdout.split())
        assert "Example" in result.stdout


def test_models_lists_everything_once_and_one_in_full():
    listing = run("models").stdout
    for name in ("Square", "Logit", "SmoothL1", "SparseNormal", "PowerDecay", "PersistentSGD"):
        assert name in listing
    assert "correlation_time" in run("models", "PersistentSGD").stdout
    unknown = run("models", "Adagrad")
    assert unknown.exit_code == 2
    assert "Adam" in unknown.stderr


def test_walk_from_problem_to_picture(example):
    folder = example.parent
    theory, runs, picture = folder / "theory.nc", folder / "runs.nc", folder / "curves.png"
    assert run("solve", example, "-o", theory, "--t-max", 2).exit_code == 0
    out = run("simulate", example, "-o", runs, "--dim", 120, "--trials", 20, "--t-max", 2, "--seed", 1)
    assert out.exit_code == 0
    assert "20 trials, dim=120" in out.stdout
    loaded = sl.load(runs)
    assert loaded.about["seed"] == 1
    assert loaded.problem.penalty == sl.Ridge(0.1)
    report = run("compare", runs, theory, "--within", 8)
    assert report.exit_code == 0
    assert "train_error" in report.stdout
    assert run("compare", runs, theory, "--false-alarm", 0.001).exit_code == 0
    assert run("compare", runs, theory, "--false-alarm", 2).exit_code == 2
    assert run("compare", runs, theory, "--within", 0.001).exit_code == 1
    few = folder / "few.nc"
    assert run("simulate", example, "-o", few, "--dim", 120, "--trials", 3, "--t-max", 2).exit_code == 0
    unsure = run("compare", few, theory)
    assert unsure.exit_code == 1
    assert "cannot tell: the errors of" in unsure.stderr
    assert run("plot", runs, theory, "-o", picture).exit_code == 0
    assert run("plot", runs, theory, "-o", picture, "--force", "--x", "epochs", "--log-time").exit_code == 0
    alone = run("plot", theory, "-o", picture, "--force", "--x", "steps")
    assert alone.exit_code == 2
    assert "one of time, epochs" in alone.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    before = theory.read_bytes()
    refused = run("solve", example, "-o", theory)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert theory.read_bytes() == before
    assert run("solve", example, "-o", theory, "--t-max", 3, "--force").exit_code == 0
    assert theory.read_bytes() != before


def test_online_and_users_own_functions(tmp_path):
    (tmp_path / "mine.py").write_text("import jax.numpy as jnp\ndef loss(r, y):\n    return jnp.log(jnp.cosh(r - y))\n")
    problem = tmp_path / "p.toml"
    problem.write_text(
        '[problem]\nloss = "mine.py:loss"\nsample_ratio = inf\nteacher = "Normal"\n'
        'noise = {name = "uniform", low = -1, high = 1}\n'
        '[algorithm]\nname = "sgd"\ntemperature = 0.5\n[run]\ntimes = [0.0, 0.5, 1.0]\nsamples = 128\n'
    )
    out = run("solve", problem, "-o", tmp_path / "a.nc")
    assert out.exit_code == 0, out.stderr
    assert list(sl.load(tmp_path / "a.nc").time) == [0.0, 0.5, 1.0]


HUGE = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000

BAD = {
    "delta": ('sample_ratio = 2.0', "sample_ratio = -2.0", "sample_ratio"),
    "model": ('"Square"', '"Sqare"', "unknown model"),
    "parameter": ("strength = 0.1", "strenght = 0.1", "strenght"),
    "value": ("temperature = 0.4", "temperature = -0.4", "temperature"),
    "table": ("[run]", "[runs]", "runs"),
    "key": ("trials = 10", "trails = 10", "trails"),
    "time": ("t_max = 8.0", "t_max = 0", "t_max"),
    "batch": ("batch_size = 5", "batch_size = 100000", "batch_size"),
    "toml": ("[problem]", "[problem", "TOML"),
    "missing": ('loss = "Square"', "", "problem.loss"),
    "string": ("temperature = 0.4", 'temperature = "0.4"', "temperature"),
    "scale": ("scale = 1.0", 'scale = "1.0"', "scale"),
    "point": ("value = 0.0", 'value = "zero"', "value"),
    "seed": ("seed = 0", "seed = 123456789012345678901234", "seed"),
    "long": ("t_max = 8.0", "t_max = 1e15", "updates"),
    "snapshots": ("seed = 0", 'snapshots = "end"', "snapshots"),
    "function": ('"Square"', '"other.toml:f"', "no Python file"),
    "no name": ('name = "SGD"', "", "algorithm"),
    "run": ("[run]", "[run.more]", "more"),
    "deep": ("seed = 0", f"times = {DEEP}", "deep"),
    "deep tables": ("[run]", "[run" + ".a" * 500 + "]\n[run]", "deep"),
    "digits": ("seed = 0", f"seed = {HUGE}", "digits"),
    "hexadecimal": ("temperature = 0.4", f"temperature = 0x{HUGE}", "bits"),
    "odd key": ("seed = 0", '"se\\n\\u001bed" = 0', "unknown key"),
    "width": ("sample_ratio = 2.0", "sample_ratio = 2.0\nwidth = 2", "TwoLayer"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_problem_files(example, tmp_path, name):
    old, new, word = BAD[name]
    text = example.read_text()
    assert old in text
    path = tmp_path / "bad.toml"
    path.write_text(text.replace(old, new, 1))
    result = run("simulate", path, "-o", tmp_path / "out.nc", "--dim", 50)
    assert result.exit_code == 2
    assert word in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out.nc").exists()


def test_entries_with_parameters_and_a_byte_order_mark(example, tmp_path):
    path = tmp_path / "sparse.toml"
    text = example.read_text().replace("seed = 0", 'seed = 0\nentries = { name = "sparse", density = 0.3 }')
    path.write_text(text, encoding="utf-8-sig")
    out = run("simulate", path, "-o", tmp_path / "out.nc", "--dim", 40, "--trials", 2, "--t-max", 0.5)
    assert out.exit_code == 0, out.stderr
    assert sl.load(tmp_path / "out.nc").about["options"]["entries"] == {"name": "SparseEntries", "density": 0.3}
    path.write_text(text.replace('"sparse"', '"dense"'))
    assert "unknown model" in run("simulate", path, "-o", tmp_path / "b.nc").stderr


def test_version():
    assert run("--version").stdout.strip() == f"sgdlimit {sl.__version__}"


def test_bad_files_and_options(example, tmp_path):
    (tmp_path / "junk.nc").write_text("junk")
    (tmp_path / "folder.nc").mkdir()
    for arguments, word in [
        (("solve", tmp_path / "none.toml", "-o", tmp_path / "a.nc"), "no such file"),
        (("solve", example, "-o", tmp_path / "a.csv"), ".nc"),
        (("solve", example, "-o", tmp_path / "no" / "a.nc"), "does not exist"),
        (("solve", example, "-o", tmp_path / "folder.nc", "--force"), "folder"),
        (("solve", example, "-o", tmp_path / "a.nc", "--theory", "magic"), "magic"),
        (("compare", tmp_path / "junk.nc", tmp_path / "junk.nc"), "netCDF"),
        (("plot", tmp_path / "junk.nc", "-o", tmp_path / "a.png"), "netCDF"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert word in result.stderr
    assert run("solve", example).exit_code == 2  # --output is required


def test_divergence_writes_what_it_has(example, tmp_path):
    path = tmp_path / "hot.toml"
    path.write_text(example.read_text().replace("temperature = 0.4", "temperature = 9.0"))
    result = run("simulate", path, "-o", tmp_path / "out.nc", "--dim", 60, "--trials", 2, "--t-max", 80)
    assert result.exit_code == 3
    assert "largest stable temperature" in result.stderr
    runs = sl.load(tmp_path / "out.nc")
    assert runs.status == "diverged"
    assert len(runs.time) >= 1


def started(*arguments, wait=0.0, **options):
    """The command in a process of its own, from the moment at which it begins to import."""
    code = "from sgdlimit.cli import main; print('up', flush=True); main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(wait)
    return process


@pytest.mark.parametrize("wait", [0.05, 0.3, 0.6, 0.9])
def test_interruption_while_importing(example, tmp_path, wait):
    """Extension modules swallow a KeyboardInterrupt, or make a traceback of it."""
    process = started("simulate", example, "-o", tmp_path / "a.nc", "--dim", 2000, "--t-max", 500, wait=wait)
    began = time.time()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "interrupted: nothing was written"
    assert time.time() - began < 5
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_loaded_before_interruption_is_answered():
    """Until then Ctrl-C is a traceback: of the standard library only what Python has loaded by itself."""
    code = "import sys; before = set(sys.modules); import sgdlimit.cli; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", PATH + code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sgdlimit", "sgdlimit._version", "sgdlimit.cli", "sgdlimit.cli.start"]


def test_interruption_in_a_callback_comes_again():
    """jax has a callback in the garbage collector, and what is raised there is lost."""
    code = """
import gc, os, signal, time
from sgdlimit.cli.common import interruptible
from sgdlimit.cli.start import begin
def callback(phase, info):
    gc.callbacks.clear()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)
begin()
with interruptible():
    gc.callbacks.append(callback)
    try:
        gc.collect()
        time.sleep(60)
    except KeyboardInterrupt:
        print("seen")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == "seen\n"


ROOMS = {
    "closed stderr": "exec 2>&-",
    "closed stdin": "exec <&-",
    "closed stdout": "exec >&-",
    "all closed": "exec <&- >&- 2>&-",
    "C": "export LC_ALL=C",
    "latin": "export PYTHONIOENCODING=latin-1",
    "no HOME": "unset HOME XDG_CACHE_HOME SGDLIMIT_CACHE",
    "read-only HOME": "export HOME=/proc; unset XDG_CACHE_HOME SGDLIMIT_CACHE",
}


@pytest.mark.parametrize("name", ROOMS)
def test_unusual_rooms(example, tmp_path, name):
    """Whatever the shell has closed or not set: the result is written, whole."""
    command = f"{sys.executable} -c 'from sgdlimit.cli import main; main()' solve {example} -o run.nc --t-max 1"
    script = f"{ROOMS[name]}\n{command}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sl.load(tmp_path / "run.nc").status == "complete"
    assert b"Traceback" not in done.stderr
    assert (b"wrote run.nc" in done.stdout) == (name not in ("closed stdout", "all closed"))


def test_no_home_at_all(monkeypatch):
    """A user whom the system does not know."""
    from sgdlimit._machine import _keep_on_disk

    monkeypatch.setattr(Path, "expanduser", lambda path: (_ for _ in ()).throw(RuntimeError("no home")))
    for name in ("XDG_CACHE_HOME", "SGDLIMIT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("jax.config", SimpleNamespace(values={}))
    _keep_on_disk.__wrapped__()


@pytest.mark.parametrize("where", ["file", "function"])
def test_a_users_file_cannot_end_the_command_in_silence(example, tmp_path, where):
    body = "import sys\nsys.exit(0)\n" if where == "file" else "import sys\ndef f(r, y):\n    sys.exit(0)\n"
    (tmp_path / "mine.py").write_text(body)
    (tmp_path / "p.toml").write_text(example.read_text().replace('"Square"', '"mine.py:f"'))
    for command in (("solve",), ("simulate", "--dim", 20)):
        out = run(*command, tmp_path / "p.toml", "-o", tmp_path / "a.nc")
        assert out.exit_code == 2
        assert "exit" in out.stderr.lower()
        assert len(out.stderr.strip().splitlines()) == 1


def test_keys_that_the_theory_does_not_take_are_refused(example, tmp_path):
    output = ("-o", tmp_path / "a.nc", "--t-max", 1, "--force")
    path = tmp_path / "p.toml"
    path.write_text(example.read_text().replace("seed = 0", "seed = 0\nreplicas = 8"))
    out = run("solve", path, *output, "--theory", "least-squares")
    assert out.exit_code == 2
    assert "run.replicas" in out.stderr
    assert "t_max, times, kernels" in out.stderr
    out = run("solve", example, *output, "--theory", "least-squares", "--dt", 0.1)
    assert out.exit_code == 2
    assert "--dt" in out.stderr
    assert run("solve", example, *output, "--theory", "least-squares", "--seed", 1).exit_code == 0  # exact
    assert run("solve", path, *output, "--theory", "online").exit_code == 0
    path.write_text(path.read_text().replace("replicas = 8", "functions = 8"))
    out = run("solve", path, *output, "--theory", "online")
    assert out.exit_code == 2
    assert "run.functions" in out.stderr
    path.write_text(path.read_text().replace("functions = 8", 'memory = "dense"'))
    out = run("solve", path, *output)
    assert out.exit_code == 2
    assert "run.memory" in out.stderr
    assert "functions=n" in out.stderr


def test_a_table_of_a_run_may_say_whatever_the_functions_take():
    """Except objects of Python: what is added to a signature is not forgotten here."""
    known = specification.run_keys()
    for function in (sl.solve, sl.least_squares, sl.online, sl.simulate):
        assert set(parameters_of(function)) - set(known) <= set(specification.OBJECTS)


@pytest.mark.parametrize(
    ("status", "code"),
    [("complete", 0), ("tolerance missed", 3), ("budget", 3), ("diverged", 3), ("unreliable", 3)],
)
def test_the_exit_status_says_how_it_ended(example, tmp_path, monkeypatch, status, code):
    """And options of the solver reach it, only those that were given."""
    seen = {}

    def solve(problem, algorithm, t_max=None, *, seed=0, tol=1e-2, max_seconds=None, checkpoint=None):
        seen.update(tol=tol, max_seconds=max_seconds, checkpoint=checkpoint)
        about = {"status": status, "message": "so it went"}
        return sl.Solution({"train_loss": Variable(("time",), np.ones(2))}, {"time": np.arange(2.0)}, about)

    monkeypatch.setitem(specification.THEORIES, "dmft", solve)
    options = ("--max-seconds", 5, "--checkpoint", tmp_path / "run.ckpt")
    out = run("solve", example, "-o", tmp_path / "a.nc", *options)
    assert out.exit_code == code
    assert seen == {"tol": 1e-2, "max_seconds": 5.0, "checkpoint": tmp_path / "run.ckpt"}
    assert (f"warning: {status}: so it went" in out.stderr) == (code != 0)
    assert sl.load(tmp_path / "a.nc").status == status
    assert run("solve", example, "-o", tmp_path / "b.nc", "--tol", 1e-3).exit_code == code
    assert seen == {"tol": 1e-3, "max_seconds": None, "checkpoint": None}


def test_a_result_that_cannot_be_written_is_put_elsewhere(example, tmp_path, monkeypatch):
    """The folder goes away while the work is done."""
    (tmp_path / "out").mkdir()

    def solve(problem, algorithm, t_max=None, *, tol=1e-2):
        (tmp_path / "out").rmdir()
        return sl.Solution({"train_loss": Variable(("time",), np.ones(2))}, {"time": np.arange(2.0)}, {})

    monkeypatch.setitem(specification.THEORIES, "dmft", solve)
    out = run("solve", example, "-o", tmp_path / "out" / "a.nc", "--tol", 1e-3)
    assert out.exit_code == 2
    assert "does not exist" in out.stderr
    saved = Path(out.stderr.split("the result is in ")[1].strip())
    assert len(sl.load(saved).time) == 2
    saved.unlink()
    saved.parent.rmdir()


def test_output_is_refused_before_the_work(example, tmp_path):
    """Pipes, links in a circle, names too long; a link is followed."""
    os.mkfifo(tmp_path / "pipe.nc")
    (tmp_path / "round.nc").symlink_to("round.nc")
    long = "x" * 250 + ".nc"
    begun = time.time()
    for name, word in (("pipe.nc", "pipe"), ("round.nc", "links"), ("x" + long + long, "long")):
        out = run("simulate", example, "-o", tmp_path / name, "--force", "--dim", 5000, "--t-max", 500)
        assert out.exit_code == 2
        assert word in out.stderr
    assert time.time() - begun < 5
    (tmp_path / "real.png").touch()
    (tmp_path / "link.png").symlink_to("real.png")
    assert run("solve", example, "-o", tmp_path / long).exit_code == 0
    assert run("plot", tmp_path / long, "-o", tmp_path / "link.png", "--force").exit_code == 0
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")


def test_quick_figure(tmp_path):
    """Picture, vector picture and table appear together, and the laws agree with the runs."""
    out = run("figure", "--quick", "--output", tmp_path / "f.png")
    assert out.exit_code == 0, out.stderr
    assert {f.name for f in tmp_path.iterdir()} == {"f.png", "f.pdf", "f.txt"}
    assert (tmp_path / "f.png").stat().st_size > 50_000
    table = (tmp_path / "f.txt").read_text()
    assert table in out.stdout
    rows = [line.split() for line in table.splitlines() if line.split()[1:3] in (["SGD", "SGD"], ["SGF", "SGF"])]
    assert len(rows) == 4
    assert all(row[-1] == "agree" for row in rows), table
    refused = run("figure", "--quick", "--output", tmp_path / "f.pdf")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr


@pytest.mark.parametrize("command", ["figure", "verify", "frameworks"])
def test_experiments_refuse_before_any_work(command, tmp_path):
    began = time.time()
    for output, word in ((tmp_path / "x.jpg", ".png"), (tmp_path / "no" / "x.png", "folder")):
        out = run(command, "--output", output)
        assert out.exit_code == 2
        assert word in out.stderr
    assert time.time() - began < 5


def test_the_command_is_installed():
    script = Path(sys.executable).parent / "sgdlimit"
    done = subprocess.run([script, "models", "Square"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "½(r−y)²" in done.stdout


def test_solve_takes_the_dmft_solver_where_nothing_exact_is_known(example, tmp_path):
    path = tmp_path / "logistic.toml"
    text = example.read_text().replace('"Square"', '"Logistic"').replace('"Linear"', '"Sign"')
    path.write_text(text.replace("t_max = 8.0", "t_max = 1.0\ndt = 0.0125"))
    out = run("solve", path, "-o", tmp_path / "theory.nc", "--kernels", "--tol", 0.05)
    assert out.exit_code == 0, out.stderr
    assert "DMFT" in out.stdout
    theory = sl.load(tmp_path / "theory.nc")
    assert theory.about["options"]["dt"] == pytest.approx(0.0125)
    assert "R_theta" in theory
    # the same file drives the simulation: SGD has a step of its own and leaves dt to the solver
    assert run("simulate", path, "-o", tmp_path / "runs.nc", "--dim", 200, "--trials", 20).exit_code == 0
    assert run("compare", tmp_path / "theory.nc", tmp_path / "runs.nc", "--within", 6).exit_code == 0
    bad = run("solve", path, "-o", tmp_path / "b.nc", "--dt", -1)
    assert bad.exit_code == 2
    assert "dt" in bad.stderr


def test_auto_takes_the_exact_limit_and_dmft_on_request(example, tmp_path):
    assert "Volterra" in run("solve", example, "-o", tmp_path / "a.nc").stdout
    out = run("solve", example, "-o", tmp_path / "b.nc", "--theory", "dmft", "--dt", 0.1, "--t-max", 1)
    assert "DMFT" in out.stdout
    assert run("compare", tmp_path / "a.nc", tmp_path / "b.nc").exit_code == 0


def test_warnings_that_no_status_repeats_are_heard():
    """Of a command only those that the status of its result tells are not."""
    import warnings

    from sgdlimit.cli.common import quiet

    with pytest.warns(RuntimeWarning, match="averages do not settle"):
        quiet(lambda: warnings.warn("averages do not settle", RuntimeWarning, stacklevel=2))
    with warnings.catch_warnings(action="error"):
        quiet(lambda: warnings.warn("most of it: time step", sl.ToleranceWarning, stacklevel=2))
