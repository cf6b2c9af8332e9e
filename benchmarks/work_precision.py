"""Work against precision: seconds (warm) over the true error, this solver beside that of an earlier commit, in one run.

Both solve four problems over a ladder of samples and time steps, a few seeds each, in a process of their own (same
interpreter; the earlier source comes from `git archive`). The true error of a setting is the root mean square, over
variables, times and seeds, of |value − truth| / max |truth|. The truth is computed once by this solver, with very many
samples and small steps:

    python benchmarks/work_precision.py --reference    # work_precision_truth.json
    python benchmarks/work_precision.py                # work_precision_results.json, docs/work_precision.png
    python benchmarks/work_precision.py --redraw       # from the two files

`--quick` is a tiny version of either, in files of its own. The first call of every setting compiles and is not timed.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EARLIER = "5a14710"
VARIABLES = ("train_loss", "train_error", "test_error", "overlap", "norm")
SHARES = (0.25, 0.5, 0.75, 1.0)
"""Times of comparison, as shares of t_max."""
OPTIONS: dict[str, dict[str, Any]] = {"old": {}, "new": {}}
"""Keyword arguments of `sl.solve` beside t_max, dt, samples and seed."""
COLOURS = {"old": "tab:orange", "new": "tab:blue"}
FIRST_REFERENCE_SEED = 1000
"""The truth is independent of what is judged by it."""


@dataclass(frozen=True)
class Case:
    """One problem: how to make it, how long, and with which steps."""

    title: str
    make: Callable[[], tuple[Any, Any]]
    t_max: float
    steps: tuple[float, ...] = (0.2, 0.1, 0.05)
    """γ, the coarsest first."""


class Row(NamedTuple):
    """One setting of one solver."""

    solver: str
    dt: float
    samples: int
    seconds: float
    error: float
    seeds: int


def logistic() -> tuple[Any, Any]:
    """The paper's experiment."""
    import sgdlimit as sl

    problem = sl.Problem(
        loss=sl.Logistic(),
        labels=sl.Sign(),
        penalty=sl.Ridge(0.01),
        sample_ratio=2.0,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1),
    )
    return problem, sl.SGD(0.2)


def committee() -> tuple[Any, Any]:
    """Two erf units learn two."""
    import jax

    import sgdlimit as sl

    def erf(x: Any) -> Any:
        return jax.scipy.special.erf(x / np.sqrt(2))

    problem = sl.Problem(
        loss=sl.TwoLayer(erf),
        labels=sl.TwoLayerLabels(erf),
        sample_ratio=2.0,
        teacher=sl.Normal(1.0),
        init=sl.Normal(0.5),
        width=2,
        teacher_width=2,
    )
    return problem, sl.SGD(0.5)


def student_t() -> tuple[Any, Any]:
    """A robust, non-convex regression."""
    import jax.numpy as jnp

    import sgdlimit as sl

    problem = sl.Problem(
        loss=sl.Loss(lambda r, y: 2 * jnp.log1p((y - r) ** 2 / 0.75)),
        labels=sl.Linear(),
        penalty=sl.Ridge(0.05),
        sample_ratio=2.0,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.3),
    )
    return problem, sl.SGD(0.3)


def sparse() -> tuple[Any, Any]:
    """A penalty that needs particles."""
    import sgdlimit as sl

    problem = sl.Problem(
        loss=sl.Logistic(),
        labels=sl.Sign(),
        penalty=sl.SmoothL1(0.1, 0.1),
        sample_ratio=2.0,
        teacher=sl.SparseNormal(0.2, 2.0),
        noise=sl.Normal(0.1),
    )
    return problem, sl.SGD(0.5)


CASES = {
    "logistic": Case("logistic regression, t = 10", logistic, 10.0),
    "committee": Case("erf committee 2 × 2, t = 10", committee, 10.0),
    "student_t": Case("Student-t loss, t = 5", student_t, 5.0, (0.1, 0.05, 0.025)),
    "sparse": Case("logistic, sparse teacher, smooth L1, t = 4", sparse, 4.0),
}


# One solver, in a process of its own


def worker(job: dict[str, Any]) -> None:
    """Print one line of JSON for every solution of {case, cap, settings}.

    Beyond `cap` seconds, larger numbers of samples with the same step are left out.
    """
    import sgdlimit as sl

    case = CASES[job["case"]]
    problem, algorithm = case.make()
    warm: set[str] = set()
    too_long: dict[float, int] = {}
    for settings in job["settings"]:
        dt, samples = settings["dt"], settings["samples"]
        if samples > too_long.get(dt, samples):
            continue
        shape = json.dumps({k: v for k, v in settings.items() if k != "seed"})
        line: dict[str, Any] = {"source": str(Path(sl.__file__).parent), "settings": settings}
        try:
            begin = time.perf_counter()
            solution = sl.solve(problem, algorithm, case.t_max, **settings)
            seconds = time.perf_counter() - begin
            line |= {"seconds": seconds if shape in warm else None, "values": at_times(solution, case.t_max)}
            if shape in warm and seconds > job["cap"]:
                too_long[dt] = samples
            warm.add(shape)
        except sl.InputError as error:  # a coarse step or few samples may be refused
            line["refused"] = str(error)
        print(json.dumps(line), flush=True)


def at_times(solution: Any, t_max: float) -> dict[str, list[list[float | None]]]:
    """Variables at the times of comparison, a list of entries for each; None where a march that diverged has none."""
    times, wanted = np.asarray(solution.time, float), t_max * np.asarray(SHARES)
    if solution.success:
        wanted = np.minimum(wanted, times[-1])
    out = {}
    for name in VARIABLES:
        curves = np.asarray(solution[name], float).reshape(len(times), -1).T
        at = [[np.interp(t, times, curve, right=np.nan) for curve in curves] for t in wanted]
        out[name] = [[float(f"{x:.6g}") if np.isfinite(x) else None for x in row] for row in at]
    return out


def solve_all(solver: str, name: str, settings: list[dict[str, Any]], source: Path, cap: float) -> Iterator[dict]:
    """Lines of a worker that imports the package from `source`."""
    job = json.dumps({"case": name, "cap": cap, "settings": settings})
    command = [sys.executable, str(HERE / "work_precision.py"), "--worker", job]
    environment = os.environ | {"PYTHONPATH": str(source)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout
        for text in process.stdout:
            line = json.loads(text)
            assert Path(line.pop("source")).parent == source, "the worker imported another package"
            told = line.get("refused") or ("" if line["seconds"] is None else f"{line['seconds']:.3f} s")
            print(f"{solver} {name} {line['settings']} {told}", file=sys.stderr)
            yield {"solver": solver, "case": name} | line
    if process.returncode:
        raise RuntimeError(f"the worker of {solver} {name} ended with status {process.returncode}")


def unpack(commit: str, folder: str) -> Path:
    """The source of a commit, in a folder."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return Path(folder).resolve() / "src"


# The truth


def reference(names: list[str], samples: int, replicas: int, seeds: int, fraction: float, path: Path) -> None:
    """Write the mean over seeds of every value and its standard error; cases not in `names` stay as they are."""
    truth = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        base = {"dt": min(CASES[name].steps) * fraction, "samples": samples, "replicas": replicas}
        settings = [OPTIONS["new"] | base | {"seed": FIRST_REFERENCE_SEED + s} for s in range(seeds)]
        lines = list(solve_all("new", name, settings, ROOT / "src", np.inf))
        values = {v: np.array([line["values"][v] for line in lines], float) for v in VARIABLES}
        truth[name] = {
            "settings": base | {"seeds": seeds},
            "values": {v: x.mean(axis=0).tolist() for v, x in values.items()},
            "stderr": {v: (x.std(axis=0, ddof=1) / np.sqrt(seeds)).tolist() for v, x in values.items()},
        }
        path.write_text(json.dumps(truth, indent=1))


def deviation(difference: dict[str, np.ndarray], truth: dict[str, Any]) -> float:
    """Root mean square over variables, times, entries (and seeds), each variable in units of its largest value."""
    squares = [np.mean((x / np.max(np.abs(truth["values"][v]))) ** 2) for v, x in difference.items()]
    return float(np.sqrt(np.mean(squares)))


def floor(truth: dict[str, Any]) -> float:
    """The standard error of the truth itself, in the same units."""
    return deviation({v: np.array(x) for v, x in truth["stderr"].items()}, truth)


# The diagram


def summarise(records: list[dict], truth: dict[str, Any]) -> list[Row]:
    """One row a setting: median of the warm times, true error; a march that diverged has an infinite one."""
    groups: dict[tuple[str, float, int], list[dict]] = {}
    for record in records:
        if "refused" not in record:
            key = (record["solver"], record["settings"]["dt"], record["settings"]["samples"])
            groups.setdefault(key, []).append(record)
    rows = []
    for key, group in groups.items():
        times = [record["seconds"] for record in group if record["seconds"] is not None]
        values = {v: np.array([record["values"][v] for record in group], float) for v in VARIABLES}
        error = deviation({v: x - np.array(truth["values"][v]) for v, x in values.items()}, truth)
        if times:
            rows.append(Row(*key, float(np.median(times)), error if np.isfinite(error) else np.inf, len(group)))
    return sorted(rows, key=lambda row: (row.solver, row.dt, row.samples))


def front(rows: list[Row], solver: str) -> list[Row]:
    """Settings that no other of the same solver beats in both time and error, the cheapest first."""
    best: list[Row] = []
    for row in sorted((row for row in rows if row.solver == solver), key=lambda row: row.seconds):
        if row.error < (best[-1].error if best else np.inf):
            best.append(row)
    return best


def ratio(row: Row, best: list[Row]) -> str:
    """Seconds of a row over those of a front at equal error, interpolated in log-log; '≥' where the front is better."""
    if not best or row.error < best[-1].error or not np.isfinite(row.error):
        return ""
    error, seconds = np.log([[r.error, r.seconds] for r in reversed(best)]).T
    bound = "≥ " if row.error > best[0].error else ""
    return f"{bound}{row.seconds / np.exp(np.interp(np.log(row.error), error, seconds)):.1f}"


def table(name: str, rows: list[Row], truth: dict[str, Any]) -> str:
    """The rows of one case; * marks the front."""
    best = {solver: front(rows, solver) for solver in OPTIONS}
    lines = [
        f"\n{CASES[name].title}; the truth is known to {floor(truth):.1e}",
        f"{'solver':8}{'dt':>8}{'samples':>10}{'seconds':>10}{'error':>11}   time over new at equal error",
    ]
    for row in rows:
        mark = "*" if row in best[row.solver] else " "
        times = ratio(row, best["new"]) if row.solver == "old" else ""
        lines.append(f"{row.solver:8}{row.dt:8g}{row.samples:10d}{row.seconds:10.3f}{row.error:11.2e} {mark} {times}")
    return "\n".join(lines)


def draw(results: dict[str, list[Row]], truth: dict[str, Any], path: Path) -> None:
    """A panel a case: all settings as dots, the front of either solver as a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    words = {"old": "second edition, tangents", "new": "this solver"}
    drawn = {name: case for name, case in CASES.items() if results.get(name)}
    rows_of = max(1, -(-len(drawn) // 2))
    figure, axes = plt.subplots(rows_of, 2, figsize=(10, 4 * rows_of), layout="constrained", squeeze=False)
    for ax in axes.flat[len(drawn) :]:
        ax.set_axis_off()
    for ax, (name, case) in zip(axes.flat, drawn.items(), strict=False):
        ax.set(
            title=case.title, xscale="log", yscale="log", xlabel="true error (relative, rms)", ylabel="seconds, warm"
        )
        rows = [row for row in results.get(name, []) if np.isfinite(row.error)]
        for solver, colour in COLOURS.items():
            mine, best = [row for row in rows if row.solver == solver], front(rows, solver)
            ax.plot([row.error for row in mine], [row.seconds for row in mine], "o", color=colour, alpha=0.25, ms=4)
            if not best:
                continue
            x, y = np.array([[row.error, row.seconds] for row in best]).T
            slope = f", slope {np.polyfit(np.log(x), np.log(y), 1)[0]:.1f}" if len(best) > 2 else ""
            ax.plot(x, y, "o-", color=colour, label=words[solver] + slope)
        if rows:
            best = front(rows, "new") or front(rows, "old")
            x = np.geomspace(min(row.error for row in rows), max(row.error for row in rows), 2)
            middle = np.exp(np.mean(np.log([[row.error, row.seconds] for row in best]), axis=0))
            ax.plot(x, middle[1] * (x / middle[0]) ** -2, "k--", lw=0.8, label="slope −2 (Monte Carlo)")
            ax.axvline(floor(truth[name]), color="0.5", ls=":", lw=1, label="error of the truth")
            ax.legend(fontsize=8)
        ax.grid(alpha=0.3, which="both")
        ax.xaxis.set_minor_formatter(NullFormatter())
    figure.savefig(path, dpi=150)
    plt.close(figure)


def measure(arguments: argparse.Namespace, path: Path) -> None:
    """Run the ladder; the file keeps what other solvers and cases have in it."""
    records = json.loads(path.read_text()) if path.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        sources = {"new": ROOT / "src"}
        if "old" in arguments.solvers:
            sources["old"] = arguments.earlier.resolve() if arguments.earlier else unpack(EARLIER, folder)
        for name in arguments.cases:
            steps = CASES[name].steps[:1] if arguments.quick else CASES[name].steps
            for solver in arguments.solvers:
                settings = [
                    {"dt": dt, "samples": samples, "seed": seed} | OPTIONS[solver]
                    for dt in steps
                    for samples in sorted(arguments.samples)
                    for seed in range(arguments.seeds)
                ]
                fresh = list(solve_all(solver, name, settings, sources[solver], arguments.cap))
                records = [r for r in records if (r["solver"], r["case"]) != (solver, name)] + fresh
                path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")


def main() -> None:
    """Compute the truth, or measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--reference", action="store_true", help="compute the truth and stop")
    parser.add_argument("--redraw", action="store_true", help="print and draw saved results")
    parser.add_argument("--quick", action="store_true", help="a tiny ladder and a rough truth, in a temporary folder")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--solvers", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--samples", nargs="+", type=int, default=[2**11, 2**13, 2**15, 2**17])
    parser.add_argument("--seeds", type=int, default=3, help="at least 2: the first call compiles")
    parser.add_argument("--cap", type=float, default=30.0, help="no more samples after a solution of so many seconds")
    parser.add_argument("--reference-samples", type=int, default=2**19)
    parser.add_argument("--reference-replicas", type=int, default=4, help="few: the bias is that of one replica")
    parser.add_argument("--reference-seeds", type=int, default=4)
    parser.add_argument("--reference-step", type=float, default=0.5, help="as a fraction of the smallest of the ladder")
    parser.add_argument("--earlier", type=Path, help=f"src folder of {EARLIER}, where there is no git")
    parser.add_argument("--folder", type=Path, default=HERE, help="of truth and results")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "work_precision.png")
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.worker)
    if arguments.quick:
        arguments.folder = Path(tempfile.gettempdir()) / "work_precision_quick"
        arguments.folder.mkdir(exist_ok=True)
        arguments.picture = arguments.folder / "work_precision.png"
        arguments.samples, arguments.seeds = [2**13, 2**14], 2
        arguments.reference_samples, arguments.reference_seeds, arguments.reference_step = 2**15, 2, 1.0
    truth_path = arguments.folder / "work_precision_truth.json"
    results_path = arguments.folder / "work_precision_results.json"
    if arguments.reference or (arguments.quick and not arguments.redraw):
        size = arguments.reference_samples, arguments.reference_replicas, arguments.reference_seeds
        reference(arguments.cases, *size, arguments.reference_step, truth_path)
    if arguments.reference:
        return None
    if not truth_path.exists():
        parser.error(f"{truth_path} is missing: run --reference first")
    if not arguments.redraw:
        measure(arguments, results_path)
    truth, records = json.loads(truth_path.read_text()), json.loads(results_path.read_text())
    results = {
        name: summarise([r for r in records if r["case"] == name], truth[name]) for name in CASES if name in truth
    }
    for name, rows in results.items():
        print(table(name, rows, truth[name]))
    draw(results, truth, arguments.picture)
    print(f"\n{arguments.picture}")
    return None


if __name__ == "__main__":
    main()
