"""Do the error bars hold what they promise? Default solutions of hard problems at many seeds against the truth.

    python benchmarks/coverage.py --truth            # very many samples, small steps: minutes on a GPU
    python benchmarks/coverage.py                    # 40 seeds each; coverage of ±1.96 errors, bias in errors
    python benchmarks/coverage.py --table            # defaults, one seed, beside the truth
    python benchmarks/coverage.py --steps            # true error against the time step
    python benchmarks/coverage.py --runs             # SGD itself at d = 1000, 2000, 4000 beside the truth

The truth is a solution with many more samples and finer steps, kept in coverage_truth.json, itself set beside SGD.
"""

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgdlimit as sl

FILE = Path(__file__).with_name("coverage_truth.json")
NAMES = ("train_error", "test_error", "overlap", "norm")
PARTS = (0.25, 0.5, 0.75, 1.0)
erf = jax.scipy.special.erf


def logistic(**more: Any) -> sl.Problem:
    chosen: dict[str, Any] = {
        "loss": sl.Logistic(),
        "labels": sl.Sign(),
        "penalty": sl.Ridge(0.01),
        "sample_ratio": 2.0,
    }
    chosen |= {"teacher": sl.Normal(1.0), "noise": sl.Normal(0.1)}
    return sl.Problem(**(chosen | more))


def squared_tanh(r: Any, y: Any) -> Any:
    return 0.25 * (jnp.tanh(r) ** 2 - y) ** 2


CASES: dict[str, tuple[sl.Problem, Any, float]] = {
    "committee": (
        sl.Problem(
            loss=sl.TwoLayer(erf), labels=sl.TwoLayerLabels(erf), sample_ratio=2.0, teacher=sl.Normal(1.0),
            init=sl.Normal(0.5), width=2, teacher_width=2,
        ),
        sl.SGD(0.5, batch_size=2), 10.0,
    ),
    "tanh phase retrieval": (
        sl.Problem(
            loss=sl.Loss(squared_tanh, predict=lambda r: jnp.tanh(r) ** 2),
            labels=sl.Labels(lambda r_star, z: jnp.tanh(r_star) ** 2), penalty=sl.Ridge(0.01), sample_ratio=3.0,
            teacher=sl.Normal(1.0), init=sl.Normal(0.7),
        ),
        sl.GradientFlow(), 10.0,
    ),
    "Student-t": (
        sl.Problem(
            loss=sl.Loss(lambda r, y: 2 * jnp.log1p((y - r) ** 2 / 0.75)), penalty=sl.Ridge(0.05), sample_ratio=2.0,
            teacher=sl.Normal(1.0), noise=sl.Normal(0.5),
        ),
        sl.SGD(0.3, batch_size=2), 5.0,
    ),
    "hot logistic": (logistic(sample_ratio=0.5), sl.SGD(0.8, batch_size=2), 10.0),
    "double well": (
        logistic(penalty=sl.Penalty(lambda theta: 0.5 * (theta**2 - 1) ** 2), teacher=sl.Rademacher(1.0)),
        sl.SGD(0.5, batch_size=2), 6.0,
    ),
    "sparse smooth L1": (
        logistic(penalty=sl.SmoothL1(0.1, 0.1), teacher=sl.SparseNormal(0.2, 2.0)), sl.SGD(0.5, batch_size=2), 4.0,
    ),
    "smooth hinge": (logistic(loss=sl.SmoothHinge(0.05)), sl.SGD(0.5, batch_size=2), 6.0),
    "hot square": (
        sl.Problem(loss=sl.Square(), sample_ratio=1.2, teacher=sl.Normal(1.0), noise=sl.Normal(0.5)),
        sl.SGD(1.6), 10.0,
    ),
    "paper": (logistic(), sl.SGD(0.2), 10.0),
}  # fmt: skip
FINE = dict.fromkeys(CASES, 0.0125) | {"double well": 0.025, "hot square": 0.00625}
"""Steps of the truth."""
COVERED = ("committee", "tanh phase retrieval", "Student-t", "hot logistic", "double well")


def at_parts(solution: sl.Solution, t_max: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Values and errors at four times, between the recorded ones by a cubic spline."""
    from scipy.interpolate import CubicSpline

    wanted = np.minimum(np.asarray(PARTS) * t_max, solution.time[-1])
    out = {}
    for name in NAMES:
        value, error = (CubicSpline(solution.time, part)(wanted) for part in solution.curve(name))
        out[name] = value, np.abs(error)
    return out


def truth(samples: int, seeds: int, cases: list[str]) -> None:
    """Many samples, steps of half to a quarter of those that a default call ends with."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for case in cases:
        problem, algorithm, t_max = CASES[case]
        begin = time.perf_counter()
        parts = [
            at_parts(sl.solve(problem, algorithm, t_max=t_max, dt=FINE[case], samples=samples, seed=1100 + seed), t_max)
            for seed in range(seeds)
        ]
        found[case] = {
            name: _together(*(np.stack([part[name][i] for part in parts]) for i in (0, 1))) for name in NAMES
        }
        FILE.write_text(json.dumps(found, indent=1))
        last = {
            name: f"{np.ravel(v['value'][-1])[0]:.5f}±{np.ravel(v['error'][-1])[0]:.5f}"
            for name, v in found[case].items()
        }
        print(f"{case}: {time.perf_counter() - begin:.0f} s {last}", flush=True)


def _together(values: np.ndarray, errors: np.ndarray) -> dict[str, Any]:
    """The mean over seeds, and its error: of what the errors hold, only what differs from seed to seed averages out."""
    count, square = len(values), np.mean(errors**2, axis=0)
    spread = values.var(axis=0, ddof=1) if count > 1 else square
    error = np.sqrt(np.maximum(square - spread, 0.0) + spread / count)
    return {"value": np.mean(values, axis=0).tolist(), "error": error.tolist()}


def deviations(case: str, seed: int) -> tuple[dict[str, np.ndarray], float, float]:
    """Of one default solution: distances from the truth in errors, the truth's included; its largest error in parts
    of a curve; seconds."""
    problem, algorithm, t_max = CASES[case]
    known = json.loads(FILE.read_text())[case]
    begin = time.perf_counter()
    solution = sl.solve(problem, algorithm, t_max=t_max, seed=seed)
    seconds, z, largest = time.perf_counter() - begin, {}, 0.0
    for name, (value, error) in at_parts(solution, t_max).items():
        exact, own = (np.asarray(known[name][part]) for part in ("value", "error"))
        z[name] = ((value - exact) / np.maximum(np.hypot(error, own), 1e-12)).reshape(len(PARTS), -1)
        if name != "overlap" or case != "tanh phase retrieval":
            largest = max(largest, float(np.max(solution.curve(name)[1]) / np.max(np.abs(solution[name]))))
    return z, largest, seconds


def cover(seeds: int, cases: list[str], first_seed: int, jobs: int, limit: float) -> None:
    """Share of ±1.96 errors that hold the truth, and the mean deviation in errors, of what is done within a limit."""
    end = time.monotonic() + limit
    print(f"seeds {first_seed} to {first_seed + seeds - 1}, defaults, {jobs} processes")
    print("coverage of ±1.96 errors | mean bias in reported errors (largest of four times)")
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        asked = {case: [pool.submit(deviations, case, first_seed + k) for k in range(seeds)] for case in cases}
        for case, futures in asked.items():
            wait(futures, timeout=max(0.0, end - time.monotonic()))
            found = [future.result() for future in futures if future.done()]
            if not found:
                print(f"{case:22s} none of {seeds} seeds within {limit:g} s", flush=True)
                continue
            cells = []
            for name in NAMES:
                every = np.stack([z[name] for z, _, _ in found])
                bias = every.mean(axis=0).ravel()
                cells.append(f"{name} {np.mean(np.abs(every) <= 1.96):.3f} | {bias[np.argmax(np.abs(bias))]:+.2f}")
            seconds = np.mean([own for _, _, own in found])
            print(f"{case:22s} {'   '.join(cells)}   ({len(found)} seeds, {seconds:.1f} s each, "
                  f"error ≤ {max(largest for _, largest, _ in found):.1%} of the curve)", flush=True)  # fmt: skip
        if time.monotonic() >= end:
            for process in list(pool._processes.values()):
                process.kill()
        pool.shutdown(cancel_futures=True)


def table(cases: list[str]) -> None:
    """Default calls beside the truth, at the last time."""
    known = json.loads(FILE.read_text())
    for case in cases:
        problem, algorithm, t_max = CASES[case]
        begin = time.perf_counter()
        solution = sl.solve(problem, algorithm, t_max=t_max)
        seconds, cells = time.perf_counter() - begin, []
        for name in NAMES:
            value, error = (part.reshape(len(part), -1) for part in solution.curve(name))
            exact = np.asarray(known[case][name]["value"]).reshape(len(PARTS), -1)[-1, 0]
            share = np.max(error) / np.max(np.abs(value))
            cells.append(f"{name} {value[-1, 0]:.4f}±{error[-1, 0]:.4f} ({exact:.4f}, {share:.1%})")
        print(f"{case:22s} {seconds:5.1f} s  " + "   ".join(cells), flush=True)


def steps(cases: list[str], samples: int) -> None:
    """True error (root mean square over curves and times, relative) at given steps, extrapolated and not."""
    known = json.loads(FILE.read_text())
    for case in cases:
        problem, algorithm, t_max = CASES[case]
        cells = []
        for dt in (0.1, 0.05, 0.025, 0.0125):
            both = []
            for extrapolate in (True, False):
                try:
                    chosen = {"dt": dt, "samples": samples, "extrapolate": extrapolate, "seed": 7000}
                    found = at_parts(sl.solve(problem, algorithm, t_max=t_max, **chosen), t_max)
                except sl.InputError:  # a step that is too coarse
                    both.append("refused")
                    continue
                exact = {name: np.asarray(known[case][name]["value"]) for name in NAMES}
                sized = [name for name in NAMES if np.max(np.abs(exact[name])) > 1e-2]
                off = [np.mean(((found[n][0] - exact[n]) / np.max(np.abs(exact[n]))) ** 2) for n in sized]
                both.append(f"{np.sqrt(np.mean(off)):.1e}")
            cells.append(f"{dt:g}: {both[0]} ({both[1]})")
        print(f"{case:22s} true error extrapolated (plain) at dt = " + "   ".join(cells), flush=True)


def runs(cases: list[str], trials: int) -> None:
    """SGD at growing dimension beside the truth, at the last time."""
    known = json.loads(FILE.read_text())
    for case in cases:
        problem, algorithm, t_max = CASES[case]
        for dim in (1000, 2000, 4000):
            found = sl.simulate(problem, algorithm, dim=dim, trials=trials, times=[0.0, t_max], seed=dim)
            cells = []
            for name in NAMES:
                value, error = (part.reshape(len(part), -1)[-1, 0] for part in found.curve(name))
                exact = np.asarray(known[case][name]["value"]).reshape(len(PARTS), -1)[-1, 0]
                cells.append(f"{name} {value:.4f}±{error:.4f} ({exact:.4f}, {(value - exact) / error:+.1f})")
            print(f"{case:22s} d = {dim}  " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--runs", action="store_true")
    parser.add_argument("--steps", action="store_true", help="true error at dt = 0.1, 0.05, 0.025, 0.0125")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=2000, help="2000: none that a default was chosen on")
    parser.add_argument("--jobs", type=int, default=1, help="solutions at once, for coverage")
    parser.add_argument("--seconds", type=float, default=1e6, help="limit of a run of coverage")
    parser.add_argument("--samples", type=int, help="of the truth (2²²) or of --steps (65 536)")
    parser.add_argument("--cases", nargs="*")
    chosen = parser.parse_args()
    if chosen.truth:
        truth(chosen.samples or 2**22, chosen.seeds if chosen.seeds != 40 else 4, chosen.cases or list(CASES))
    elif chosen.table:
        table(chosen.cases or list(CASES))
    elif chosen.steps:
        steps(chosen.cases or list(COVERED), chosen.samples or 2**16)
    elif chosen.runs:
        runs(chosen.cases or list(CASES), 10)
    else:
        cover(chosen.seeds, chosen.cases or list(COVERED), chosen.first_seed, chosen.jobs, chosen.seconds)
