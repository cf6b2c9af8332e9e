"""Does `sl.solve(tol=...)` keep its promise? Random problems, each at three tolerances, against the truth.

    python benchmarks/calibration.py --output calibration.jsonl                         # all 300: hours on two cores
    python benchmarks/calibration.py --first 60 --count 60 --budget 500 --output calibration.jsonl
    python benchmarks/calibration.py --report calibration.jsonl                         # table, docs/calibration.png

The truth is `sl.least_squares` where that is exact, `sl.online` for the first epoch of reshuffled SGD (what has been
seen once is one pass: test curves, overlap and norm are judged), otherwise one solution with 100 times the samples of
the one at tol = 1e-2, a quarter of its step, another seed. True error: the largest distance to it over all judged
curves and times, relative to the largest value of the curve. Reported error: twice the largest total error, which is
what `tol` bounds; the bar that is set beside the true error is one total error. Since a largest distance is a matter of
luck even where every error bar is right, the table also gives the root mean square, over curves and times, of the
distance in units of the bar at that point.

Problems depend on seed and number alone; every ten in a row hold all classes in the same shares. One line of JSON a
problem is appended as they come; those that the file holds are skipped.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sgdlimit as sl
from sgdlimit.exact.least_squares import covers
from sgdlimit.exact.stability import largest_stable
from sgdlimit.results.variables import COMPARABLE

PICTURE = Path(__file__).parent.parent / "docs" / "calibration.png"
PROBLEMS = 300
TOLS = (3e-2, 1e-2, 3e-3)
POINTS = 21
"""Recorded times, from zero on."""
REFERENCE_TOL = 1e-2
MORE_SAMPLES, FINER = 100, 4
"""Of a reference, over the solution at REFERENCE_TOL."""
OF_STABLE = 0.8
"""Largest temperature, as a share of the largest stable one."""
BLOCK = 5
"""Problems in a row, of each class, that share a structure: each is compiled."""
FACTOR = 3.0
"""Reported errors should be within this factor of the true ones."""
MOST_ERRORS = 10.0
"""More errors than these between a solution and the truth count as these in a mean over problems."""


class Case(NamedTuple):
    """One call of `solve`."""

    number: int
    kind: str
    problem: sl.Problem
    algorithm: Any
    t_max: float
    dt: float | None
    """The step of an algorithm whose step is real."""

    @property
    def times(self) -> np.ndarray:
        return np.linspace(0.0, self.t_max, POINTS)


# --- random problems ---


def erf(r: Any) -> Any:
    return jax.scipy.special.erf(r)


def student_t(r: Any, y: Any, nu: Any, scale: Any) -> Any:
    """Negative log-likelihood of Student's t, with curvature 1 at the label."""
    return 0.5 * nu * scale**2 * jnp.log1p((r - y) ** 2 / (nu * scale**2))


def double_well(theta: Any, height: Any) -> Any:
    return height * (theta**2 - 1) ** 2


def squared(r: Any) -> Any:
    return r**2


def squared_tanh(r: Any) -> Any:
    return jnp.tanh(r) ** 2


def quartic_loss(r: Any, y: Any) -> Any:
    return 0.25 * (squared(r) - y) ** 2


def bounded_loss(r: Any, y: Any) -> Any:
    return 0.25 * (squared_tanh(r) - y) ** 2


def intensity(r_star: Any, z: Any) -> Any:
    return squared(r_star) + z


def bounded_intensity(r_star: Any, z: Any) -> Any:
    return squared_tanh(r_star) + z


class Draw:
    """Random numbers of one problem."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = np.random.default_rng([seed, number])

    def between(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def log(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def one_of(self, *values: float) -> float:
        return float(self.rng.choice(values))


Made = dict[str, Any]
"""Arguments of a Problem; `slope`, the largest curvature of its loss, beside them."""


def usual(draw: Draw) -> Made:
    return {
        "penalty": sl.Ridge(draw.log(1e-3, 0.3)), "teacher": sl.Normal(draw.log(0.5, 1.5)),
        "noise": sl.Normal(draw.log(0.05, 1.0)), "init": sl.Normal(draw.log(0.1, 1.0)),
    }  # fmt: skip


def ridge(draw: Draw, block: int) -> Made:
    chosen: Made = usual(draw) | {"loss": sl.Square(), "penalty": sl.Ridge(draw.one_of(0, 1) * draw.log(1e-2, 1))}
    shapes: tuple[Made, ...] = (
        {},
        {"penalty": sl.NoPenalty(), "init": sl.Point(0.0)},
        {"teacher": sl.SparseNormal(draw.between(0.1, 0.5), draw.log(1, 3)), "init": sl.Point(0.0)},
        {"teacher": None, "labels": sl.Noise()},
        {"teacher": sl.Rademacher(draw.log(0.5, 1.5)), "noise": sl.Uniform(-1.0, draw.between(0.0, 1.0))},
        {"teacher": sl.Point(draw.between(-1, 1)), "init": sl.Rademacher(draw.log(0.3, 1))},
    )
    return chosen | shapes[block % len(shapes)]


def logistic(draw: Draw, block: int) -> Made:
    labels = sl.Logit(draw.log(0.5, 3)) if block % 3 == 2 else sl.Sign()
    return usual(draw) | {"loss": sl.Logistic(), "labels": labels}


def huber(draw: Draw, block: int) -> Made:
    return usual(draw) | {"loss": sl.Huber(draw.log(0.3, 2))}


def heavy_tailed(draw: Draw, block: int) -> Made:
    return usual(draw) | {"loss": sl.Loss(student_t, parameters={"nu": draw.log(1, 8), "scale": draw.log(0.5, 1.5)})}


def smooth_l1(draw: Draw, block: int) -> Made:
    density = draw.between(0.1, 0.5)
    chosen = usual(draw) | {"loss": sl.Huber(draw.log(0.5, 2))} if block % 2 else logistic(draw, 0)
    return chosen | {
        "penalty": sl.SmoothL1(draw.log(0.02, 0.3), draw.log(0.1, 0.4)),
        "teacher": sl.SparseNormal(density, draw.log(0.7, 1.5) / math.sqrt(density)),
    }


def two_wells(draw: Draw, block: int) -> Made:
    chosen = huber(draw, 0) if block % 2 else logistic(draw, 0)
    return chosen | {
        "penalty": sl.Penalty(double_well, parameters={"height": draw.log(0.03, 0.5)}),
        "teacher": sl.Rademacher(1.0),
    }


def committee(activation: Callable[..., Any], wide: int, steepest: float) -> Callable[[Draw, int], Made]:
    def made(draw: Draw, block: int) -> Made:
        width = 3 if block % 3 == wide else 2
        return usual(draw) | {
            "loss": sl.TwoLayer(activation), "labels": sl.TwoLayerLabels(activation), "width": width,
            "noise": sl.Normal(draw.log(0.02, 0.5)), "slope": width * steepest**2,
        }  # fmt: skip

    return made


def phase_retrieval(draw: Draw, block: int) -> Made:
    chosen = usual(draw) | {"init": sl.Normal(draw.log(0.3, 1.0)), "noise": sl.Normal(draw.log(0.02, 0.3))}
    if algorithm_of("phase retrieval", block) is sl.GradientFlow:  # noise would drive its samples to infinity
        return chosen | {"loss": sl.Loss(quartic_loss, predict=squared), "labels": sl.Labels(intensity)}
    return chosen | {"loss": sl.Loss(bounded_loss, predict=squared_tanh), "labels": sl.Labels(bounded_intensity)}


def one_pass(draw: Draw, block: int) -> Made:
    return (logistic, huber, committee(erf, 9, 2 / math.sqrt(math.pi)), heavy_tailed)[block % 4](draw, block)


MAKERS: dict[str, Callable[[Draw, int], Made]] = {
    "ridge": ridge, "logistic": logistic, "Huber": huber, "Student-t": heavy_tailed, "smooth L1": smooth_l1,
    "double well": two_wells, "erf committee": committee(erf, 2, 2 / math.sqrt(math.pi)),
    "tanh committee": committee(jnp.tanh, 0, 1.0), "phase retrieval": phase_retrieval,
    "one pass": one_pass,
}  # fmt: skip
TURN = ("ridge", "logistic", "erf committee", "Huber", "double well",
        "one pass", "Student-t", "tanh committee", "smooth L1", "phase retrieval")  # fmt: skip
"""One round of problems."""
ALGORITHMS = (sl.GradientFlow, sl.SGF, sl.SGD, sl.ShuffledSGD, sl.ProportionalSGD, sl.PersistentSGD)
EXACT = ALGORITHMS[:3]
"""Those that `least_squares` covers."""


def algorithm_of(kind: str, block: int) -> Any:
    """All of them in turn; each class begins with another."""
    pool = EXACT if kind == "ridge" else ALGORITHMS
    return pool[(block + list(MAKERS).index(kind)) % len(pool)]


def make(number: int, seed: int) -> Case:
    """The problem of this number: structures by its place alone, so that they are few, all numbers at random."""
    draw, (turn, place) = Draw(seed, number), divmod(number, len(TURN))
    kind, block = TURN[place], turn // BLOCK
    made = MAKERS[kind](draw, block)
    slope, width = made.pop("slope", 1.0), made.get("width", 1)
    wide = width > 1
    t_max = draw.one_of(2, 3, 4, 5) if wide else draw.one_of(2, 3, 4, 5, 6, 8, 10, 10, 14, 20)
    made["sample_ratio"] = delta = draw.log(0.3, 10)
    if turn % BLOCK == BLOCK - 1 and (block + place) % 2:
        decays = (sl.CosineDecay(t_max, draw.between(0.05, 0.5)), sl.PowerDecay(draw.log(0.5, 5), draw.between(0.2, 1)))
        made["schedule"] = decays[place % 2]
    problem = sl.Problem(**made)
    stable = largest_stable(problem) or min(1.0, 2 / slope)
    tau = draw.between(0.05, OF_STABLE) * stable
    chosen, dt = algorithm_of(kind, block), None
    if kind == "one pass":  # up to the end of the first epoch, t = τδ
        tau = draw.between(0.3, OF_STABLE) * stable
        problem = replace(problem, sample_ratio=draw.log(2, 10))
        return Case(number, kind, problem, sl.ShuffledSGD(tau), draw.between(0.5, 1) * tau * problem.sample_ratio, dt)
    if chosen is sl.GradientFlow:
        algorithm = chosen()
    elif chosen.discrete:  # batches whose noise, of variance γ²(1/b − 1) over a step, is that of SGF at τ
        dt = 0.05 if t_max % 2 else draw.one_of(0.05, 0.1)  # all recorded times are updates
        stays = draw.log(0.2, 3.0) if chosen is sl.PersistentSGD else 0.0
        fraction = max(0.1, 1 / (1 + tau * delta / (dt + 2 * stays)))
        algorithm = sl.PersistentSGD(fraction, stays) if stays else sl.ProportionalSGD(fraction)
    else:
        algorithm = chosen(tau)
    return Case(number, kind, problem, algorithm, t_max, dt)


# --- the truth, and how far a solution is from it ---


def solved(case: Case, **options: Any) -> sl.Solution:
    """Warnings are not needed: the status says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"times": case.times, "dt": case.dt, "progress": False} | options
        return sl.solve(case.problem, case.algorithm, **given)


def exact(case: Case) -> sl.Solution:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.kind != "one pass":
            return sl.least_squares(case.problem, case.algorithm, times=case.times, progress=False)
        fresh = sl.SGD(case.algorithm.temperature)
        truth = sl.online(case.problem, fresh, times=case.times, samples=2**20, seed=case.number, progress=False)
        return sl.Solution({name: part for name, part in truth.variables.items() if "train" not in name}, truth.coords,
                           truth.about)  # fmt: skip


def work_of(solution: sl.Solution, width: int) -> float:
    """Samples × steps × tangents of a sample, which time is proportional to where the machine is busy."""
    options = solution.about["options"]
    return options["samples"] * options["steps"] * (width * options["functions"]) ** 2


def reference(case: Case, pilot: sl.Solution, seed: int, most: float) -> sl.Solution:
    """MORE_SAMPLES times the samples of a solution, or as many as `most` work allows, in steps FINER times as short."""
    options = pilot.about["options"]
    finer = 1 if case.algorithm.discrete else FINER
    more = max(1.0, min(MORE_SAMPLES, most / (finer * work_of(pilot, case.problem.width))))
    return solved(case, dt=case.dt or options["dt"] / finer, samples=int(more * options["samples"]), seed=seed)


def scale_of(case: Case, truth: sl.Solution, name: str) -> float:
    """Largest value of a curve; of an overlap, which may vanish, at least the product of both lengths."""
    size = float(np.max(np.abs(truth[name]), initial=1e-30))
    if name != "overlap":
        return size
    teacher = np.diag(case.problem.gram())[case.problem.width :]
    return max(size, math.sqrt(np.max(np.abs(truth["norm"])) * np.max(teacher)))


def distances(case: Case, solution: sl.Solution, truth: sl.Solution) -> dict[str, float]:
    """Of every judged curve, relative to its scale, at the times that both reached."""
    out = {}
    for name in COMPARABLE:
        if name in solution and name in truth:
            both = min(len(solution.time), len(truth.time))
            gap = np.abs(solution[name][:both] - truth[name][:both])
            out[name] = float(np.max(gap, initial=0.0)) / scale_of(case, truth, name)
    return out


def in_errors(case: Case, solution: sl.Solution, truth: sl.Solution) -> float:
    """Root mean square, over all curves and times, of the distance in units of the error at that point."""
    ratios = []
    for name in COMPARABLE:
        if name in solution and name in truth:
            both = min(len(solution.time), len(truth.time))
            value, error = (part[1:both] for part in solution.curve(name))
            known = error > 1e-7 * scale_of(case, truth, name)
            ratios.append(((value - truth[name][1:both]) / np.where(known, error, np.inf))[known])
    every = np.concatenate([np.ravel(part) for part in ratios])
    return float(np.sqrt(np.mean(every**2))) if every.size else 0.0


def reported(solution: sl.Solution) -> float:
    """Twice the largest total error, as `tol` means it."""
    errors = solution.about["diagnostics"].get("errors", {})
    return 2 * max((errors[name]["total"] for name in COMPARABLE if name in errors), default=0.0)


def told(solution: sl.Solution, wall: float) -> dict[str, Any]:
    """What a solution says about itself."""
    about = solution.about
    options, found = about["options"], about["diagnostics"]
    errors = {name: parts for name, parts in found["errors"].items() if name in COMPARABLE}
    worst = max(errors, key=lambda name: errors[name]["total"], default="")
    return {
        "status": solution.status, "message": solution.message, "reported": reported(solution), "worst": worst,
        "split": errors.get(worst, {}), "totals": {name: parts["total"] for name, parts in errors.items()},
        "wall": wall, "seconds": found["seconds"], "compiling": found["compile_seconds"], "stages": found["stages"],
        "dt": options["dt"], "steps": options["steps"], "samples": options["samples"],
        "march": options["samples_of_one_march"], "memory": f"{options['functions']} {options['memory']}",
        "reached": len(solution.time),
    }  # fmt: skip


class OutOfTime(Exception):
    """The budget is spent."""


def measure(case: Case, chosen: argparse.Namespace, deadline: float) -> dict[str, Any]:
    """All solutions of one problem, and their distances to the truth."""

    def timed(call: Callable[[], sl.Solution]) -> tuple[sl.Solution, float]:
        if time.perf_counter() > deadline:
            raise OutOfTime
        begin = time.perf_counter()
        return call(), time.perf_counter() - begin

    own = 1000 * case.number
    known = case.kind == "one pass" or covers(case.problem, case.algorithm)
    wanted = list(chosen.tols) + ([] if known or REFERENCE_TOL in chosen.tols else [REFERENCE_TOL])
    found: dict[float, tuple[sl.Solution, float]] = {}
    for place, tol in enumerate(wanted):
        found[tol] = timed(lambda t=tol, k=place: solved(case, tol=t, seed=own + k, max_seconds=chosen.max_seconds))
    if known:
        truth, wall = timed(lambda: exact(case))
        about = {"kind": "exact", "status": truth.status, "reported": 0.0, "wall": wall, "reached": len(truth.time)}
    else:
        truth, wall = timed(lambda: reference(case, found[REFERENCE_TOL][0], own + 999, chosen.most))
        about = {"kind": "solve", "work": work_of(truth, case.problem.width)} | told(truth, wall)
    algorithm = case.algorithm
    line: dict[str, Any] = {
        "number": case.number, "seed": chosen.seed, "class": case.kind, "algorithm": type(algorithm).__name__,
        "sample_ratio": case.problem.sample_ratio, "temperature": getattr(algorithm, "temperature", None),
        "width": case.problem.width, "schedule": type(case.problem.schedule).__name__, "t_max": case.t_max,
        "device": jax.default_backend(), "reference": about, "solutions": [],
    }  # fmt: skip
    for tol in chosen.tols:
        solution, wall = found[tol]
        away = distances(case, solution, truth)
        judged = {"tol": tol, "true": max(away.values()), "away": away, "in_errors": in_errors(case, solution, truth)}
        line["solutions"].append(judged | told(solution, wall))
    return line


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """All whole lines of a file: the last one may have been cut."""
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            continue


def compute(chosen: argparse.Namespace) -> None:
    done = {line["number"] for line in lines(chosen.output)}
    if chosen.output.exists() and not chosen.output.read_text().endswith("\n"):
        with chosen.output.open("a") as file:
            file.write("\n")  # after a line that was cut
    deadline = time.perf_counter() + chosen.budget
    for number in range(chosen.first, min(chosen.first + chosen.count, PROBLEMS)):
        if number in done:
            continue
        case = make(number, chosen.seed)
        try:
            line = measure(case, chosen, deadline)
        except OutOfTime:
            print(f"out of time at problem {number}", flush=True)
            return
        except Exception as error:  # refused, or broken: told in the table, and the others go on
            why = f"{type(error).__name__}: {error}"
            line = {"number": number, "seed": chosen.seed, "class": case.kind, "refused": why}
        with chosen.output.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(words(line), flush=True)


def words(line: dict[str, Any]) -> str:
    """One problem in a line."""
    if "refused" in line:
        return f"{line['number']:3d} {line['class']}: refused, {line['refused']}"
    truth = line["reference"]
    parts = [
        f"{s['tol']:g}: {s['true']:.1e} true, {s['reported']:.1e} told, {s['status']}, {s['wall']:.1f} s"
        for s in line["solutions"]
    ]
    told_truth = f"{truth['kind']} {truth['reported']:.1e}, {truth['wall']:.1f} s"
    return (
        f"{line['number']:3d} {line['class']} {line['algorithm']} δ = {line['sample_ratio']:.2g}, t = {line['t_max']:g}"
        f" (reference {told_truth})  " + " | ".join(parts)
    )


# --- table and picture ---


def met(solution: dict[str, Any]) -> bool:
    """Whether it is as near to the truth as was asked for, up to the last time."""
    return solution["true"] < solution["tol"] and solution["reached"] >= solution["truth"]["reached"]


def silent(solution: dict[str, Any]) -> bool:
    """A miss that nothing tells."""
    return not met(solution) and solution["status"] == "complete"


def bar(solution: dict[str, Any]) -> float:
    """The largest error bar: one total error, where a tolerance bounds two."""
    return solution["reported"] / 2


def within(solution: dict[str, Any]) -> bool:
    """Whether the largest error bar is the true error, to FACTOR."""
    return bar(solution) / FACTOR <= solution["true"] <= bar(solution) * FACTOR


def row(name: str, found: list[dict[str, Any]]) -> str:
    count = len(found)
    right = sum(map(met, found)) / count
    close = sum(map(within, found)) / count
    under = sum(s["true"] > bar(s) * FACTOR for s in found)
    bars = sum(1 / FACTOR <= s["in_errors"] <= FACTOR for s in found) / count
    size = np.sqrt(np.mean([min(s["in_errors"], MOST_ERRORS) ** 2 for s in found]))
    times = np.quantile([s["wall"] for s in found], [0.5, 0.9])
    complete, untold = sum(s["status"] == "complete" for s in found), sum(map(silent, found))
    return (
        f"| {name} | {count} | {right:.1%} | {close:.1%} | {under} | {bars:.1%} | {size:.2f} | {complete} | {untold} "
        f"| {times[0]:.1f} | {times[1]:.1f} |"
    )


def report(paths: list[Path]) -> None:
    """The table, and every miss that says 'complete'."""
    by_number = {line["number"]: line for path in paths for line in lines(path)}
    known = [by_number[number] for number in sorted(by_number)]
    refused = [line for line in known if "refused" in line]
    every = [
        s | {"class": line["class"], "line": line, "truth": line["reference"]}
        for line in known
        if "refused" not in line
        for s in line["solutions"]
    ]
    print(f"{len(known)} problems, {len(refused)} refused")
    for line in refused:
        print(f"  {words(line)}")
    for line in known:
        if "refused" not in line and line["reference"]["status"] != "complete":
            print(f"  reference {line['reference']['status']}: {words(line)}")
    head = "number | true < tol | bar within 3 of true | true > 3 bars | bars within 3 | distance in bars "
    head += "| complete | missed in silence | median s | 90 % s |"
    for tol in sorted({s["tol"] for s in every}, reverse=True):
        here = [s for s in every if s["tol"] == tol]
        print(f"\n| tol = {tol:g} | {head}\n|---|" + "---:|" * head.count("|"))
        print(row("all", here))
        for name in MAKERS:
            if own := [s for s in here if s["class"] == name]:
                print(row(name, own))
        # a reference that is hardly better than what it judges makes errors of its own
        sure = [s for s in here if s["truth"]["reported"] <= tol / 3]
        if sure and len(sure) < len(here):
            print(row("reference known to tol/3", sure))
        counts = {status: sum(s["status"] == status for s in here) for status in sorted({s["status"] for s in here})}
        print("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()))
        for s in here:
            if silent(s):
                print(f"  missed in silence ({max(s['away'], key=s['away'].get)}): {words(s['line'])}")
    draw(every)


MARKERS = {"complete": "o", "tolerance missed": "^", "budget": "s", "diverged": "x", "unreliable": "D"}


def draw(every: list[dict[str, Any]]) -> None:
    """True against reported error; nothing where matplotlib is not there."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("\nno matplotlib: no picture")
        return
    figure, axes = plt.subplots(figsize=(6.2, 6.0), layout="constrained")
    shown = np.array([[s["reported"], s["true"]] for s in every])
    ends = np.array([1e-4, np.clip(2 * np.nanmax(shown), 0.1, 10.0)])
    for color, tol in enumerate(sorted({s["tol"] for s in every}, reverse=True)):
        axes.axhline(tol, color=f"C{color}", lw=0.6, ls=":")
        for status, marker in MARKERS.items():
            here = np.array([s["tol"] == tol and s["status"] == status for s in every])
            if np.any(here):
                x, y = np.clip(shown[here], *ends).T
                label = f"tol = {tol:g}, {status} ({np.sum(here)})"
                axes.plot(x, y, marker, color=f"C{color}", ms=4, alpha=0.6, mew=0.8, clip_on=False, label=label)
    for factor, style in ((1.0, "-"), (FACTOR, "--"), (1 / FACTOR, "--")):
        axes.plot(ends, factor * ends / 2, style, color="0.4", lw=0.8)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel="reported error (twice the total error)", ylabel="true error")
    axes.legend(fontsize=7)
    figure.savefig(PICTURE, dpi=160)
    print(f"\n{PICTURE.name} drawn")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--count", type=int, default=PROBLEMS)
    parser.add_argument("--seed", type=int, default=0, help="of the problems")
    parser.add_argument("--tols", type=float, nargs="+", default=list(TOLS))
    parser.add_argument("--max-seconds", type=float, default=120.0, help="of one solution; more is told as 'budget'")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no solution is begun")
    parser.add_argument(
        "--most", type=float, default=1e12, help="work of a reference: samples × steps × (functions × width)²"
    )
    parser.add_argument("--output", type=Path, default=Path("calibration.jsonl"))
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.report:
        report(options.report)
    else:
        compute(options)
