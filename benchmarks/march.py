"""One march, a whole solution, and what they cost against a NumPy march in the same run.

    python benchmarks/march.py             # two cores: ratios to NumPy, the exponent in the number of steps, long times
    python benchmarks/march.py --device    # one march at sizes for a GPU, compiling apart; needs no more than the core
    python benchmarks/march.py --groups    # one march of data in 1, 8, 32 and 128 groups of coordinates
    python benchmarks/march.py --widths    # one march of networks of width 1 to 32: seconds and bytes a sample
    python benchmarks/march.py --long      # default calls to t = 1000 beside what is known exactly

Logistic regression, δ = 2, λ = 0.01, τ = 0.2, t = 10, γ = 0.05, 8192 samples in 16 replicas: the paper's setting.
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgdlimit as sl
from sgdlimit.dmft import march, memory
from sgdlimit.dmft.march import assemble
from sgdlimit.dmft.work import Work
from sgdlimit.execute.crew import Talk, Wanted, alone, precisely
from sgdlimit.execute.place import Place, Room, Shared, bytes_of

PROBLEM = sl.Problem(
    loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.01), sample_ratio=2.0,
    teacher=sl.Normal(1.0), noise=sl.Normal(0.1),
)  # fmt: skip
LONG = sl.Problem(loss=sl.Square(), sample_ratio=1.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.5))
REPLICAS = 16


def one_march(problem: sl.Problem, algorithm: Any, t_max: float, dt: float, samples: int) -> Callable[[], Any]:
    """A function that marches all replicas once over one grid, from draws already on the device, and waits."""
    times = np.linspace(0.0, t_max, round(t_max / dt) + 1)
    kept = memory.Moments(memory.ladder(t_max, dt))
    system = assemble(problem, algorithm, samples // REPLICAS, kept)
    work, shared = Work(system, times, 1, 0, range(REPLICAS)), Shared()

    def asked() -> Talk[Any]:
        done = yield Wanted([work], Place(Room(math.inf, math.inf), shared=shared))
        return done.records[0]

    def go() -> Any:
        return alone(precisely(asked()), progress=False)

    return go


def timed(go: Callable[[], Any], repeat: int = 5) -> tuple[float, float, Any]:
    """Seconds of the first call and of the best of the others, and what it gives."""
    begin = time.perf_counter()
    out = go()
    first = time.perf_counter() - begin
    best = np.inf
    for _ in range(repeat):
        begin = time.perf_counter()
        out = go()
        best = min(best, time.perf_counter() - begin)
    return first, best, out


def device() -> None:
    """One march at several sizes."""
    print(jax.devices())
    begin = time.perf_counter()
    sl.solve(PROBLEM, sl.SGD(0.2), t_max=10.0, samples=8192)
    print(f"first solution of the process, compiling included: {time.perf_counter() - begin:.1f} s")
    _, warm, _ = timed(lambda: sl.solve(PROBLEM, sl.SGD(0.2), t_max=10.0, samples=8192, seed=1))
    print(f"whole solution, 8192 samples: {warm:.3f} s")
    for t_max, dt, samples in ((10.0, 0.05, 8192), (10.0, 0.05, 2**20), (100.0, 0.05, 131072)):
        programs = march.advance._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
        first, warm, out = timed(one_march(PROBLEM, sl.SGD(0.2), t_max, dt, samples), 3)
        new = march.advance._cache_size() - programs  # pyright: ignore[reportAttributeAccessIssue]
        loss = out.values["train_loss"][:, -1]
        spread = loss.std(ddof=1) / np.sqrt(len(loss)) / loss.mean()
        compiling = max(first - warm, 0.0) if new else 0.0
        print(f"{round(t_max / dt):6d} steps, {samples:8d} samples: {warm:.3f} s warm; compiling {compiling:.1f} s; "
              f"train loss to {spread:.2%}", flush=True)  # fmt: skip
    long_times(dt=0.05)


def long_times(dt: float | None = None) -> None:
    """Least squares at δ = 1, λ = 0 to t = 1000 against its closed form."""
    if dt is not None:
        first, warm, _ = timed(one_march(LONG, sl.SGD(0.4), 1000.0, dt, 8192), 1)
        print(f"t = 1000, one march of {round(1000 / dt)} steps, 8192 samples: {warm:.1f} s warm, first {first:.1f} s")
    times = sl.grid.geometric(1000.0, 0.1, 60)
    begin = time.perf_counter()
    solution = sl.solve(LONG, sl.SGD(0.4), times=times, samples=8192)
    seconds = time.perf_counter() - begin
    exact = sl.least_squares(LONG, sl.SGD(0.4), times=times)
    z = {}
    for name in ("train_error", "test_error", "overlap", "norm"):
        value, error = solution.curve(name)
        z[name] = float(np.max(np.abs(value - exact[name])[1:] / error[1:]))
    print(f"t = 1000, whole solution on geometric times, {solution.about['options']['steps']} steps: {seconds:.1f} s; "
          f"largest deviation from the closed form in errors: {z}")  # fmt: skip


def groups() -> None:
    """What groups of coordinates cost: a power law, the same march otherwise; ratios to iid entries in the same run."""
    print(jax.devices())
    sizes = (8192, 131072) if jax.default_backend() == "cpu" else (8192, 2**20)
    for samples in sizes:
        _, plain, _ = timed(one_march(PROBLEM, sl.SGD(0.2), 10.0, 0.05, samples), 3)
        print(f"200 steps, {samples} samples, iid entries: {plain:.3f} s")
        for count in (1, 8, 32, 128):
            problem = replace(PROBLEM, data=sl.PowerLaw(0.8, groups=count))
            _, seconds, _ = timed(one_march(problem, sl.SGD(0.2), 10.0, 0.05, samples), 3)
            print(f"  {count:4d} groups: {seconds:.3f} s, {seconds / plain:.2f} of iid", flush=True)


def widths() -> None:
    """What units cost: tanh networks with a teacher of two units, 32 768 samples and 120 steps."""
    found = []
    for width in (1, 2, 3, 4, 8, 16, 32):
        problem = sl.Problem(
            loss=sl.TwoLayer(jnp.tanh, readout=width**-0.5), labels=sl.TwoLayerLabels(jnp.tanh), sample_ratio=2.0,
            teacher=sl.Normal(1.0), init=sl.Normal(0.5), width=width, teacher_width=2,
        )  # fmt: skip
        kept = memory.Moments(memory.ladder(6.0, 0.05))
        system = assemble(problem, sl.SGD(0.4), 2048, kept)
        with jax.enable_x64(True):
            size = (bytes_of(system, 1) - bytes_of(replace(system, samples=1024), 1)) / 3 / 1024
        _, seconds, _ = timed(one_march(problem, sl.SGD(0.4), 6.0, 0.05, 32768), 3)
        found.append((width, size, seconds))
        print(f"width {width:2}: {size:6.0f} bytes a sample, {seconds:.3f} s", flush=True)
    names, (m, *columns) = ("bytes", "seconds"), np.array(found).T
    for name, values in zip(names, columns, strict=True):
        slopes = [np.polyfit(np.log(m[part]), np.log(values[part]), 1)[0] for part in (m <= 8, m >= 8)]
        print(f"exponent of {name}: {slopes[0]:.2f} up to eight units, {slopes[1]:.2f} beyond")


def to_the_end(t_max: float = 1000.0) -> None:
    """Default calls over long times: least squares at δ = 1, λ = 0 beside its closed form, logistic regression under
    gradient flow beside the minimiser of scikit-learn."""
    times = sl.grid.geometric(t_max, 0.1, 60)
    for algorithm in (sl.GradientFlow(), sl.SGF(0.4), sl.SGD(0.4)):
        begin = time.perf_counter()
        solution = sl.solve(LONG, algorithm, times=times)
        seconds = time.perf_counter() - begin
        exact, z = sl.least_squares(LONG, algorithm, times=times), {}
        for name in ("train_error", "test_error", "overlap", "norm"):
            value, error = solution.curve(name)
            z[name] = round(float(np.max(np.abs(value - exact[name])[1:] / error[1:])), 2)
        print(f"least squares, {algorithm}: {seconds:.1f} s, {solution.status}; largest z {z}", flush=True)
    begin = time.perf_counter()
    solution = sl.solve(PROBLEM, sl.GradientFlow(), times=times)
    seconds, found = time.perf_counter() - begin, []
    from sklearn.linear_model import LogisticRegression

    for seed in range(24):
        X, y, theta = drawn(800, seed)
        fit = LogisticRegression(C=1 / (2.0 * 0.01), fit_intercept=False, tol=1e-8, max_iter=10**4).fit(X, y)
        weights = fit.coef_[0]
        found.append((np.mean(np.logaddexp(0, -y * (X @ weights))), np.mean(weights**2), np.mean(weights * theta)))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    print(f"logistic, gradient flow: {seconds:.1f} s, {solution.status}")
    for i, name in enumerate(("train_loss", "norm", "overlap")):
        value, own = (float(np.ravel(part[-1])[0]) for part in solution.curve(name))
        print(f"  {name}: {value:.4f} ± {own:.4f}, minimiser at d = 800 {mean[i]:.4f} ± {error[i]:.4f}", flush=True)


def drawn(dim: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y and the teacher of `PROBLEM` at finite size."""
    rng = np.random.default_rng(seed)
    X, theta = rng.standard_normal((2 * dim, dim)) / np.sqrt(dim), rng.standard_normal(dim)
    return X, np.sign(X @ theta + 0.1 * rng.standard_normal(2 * dim)), theta


def main() -> int:
    """Print the table; exit 1 where a bar is missed."""
    from numpy_march import march as numpy_march

    single = one_march(PROBLEM, sl.SGD(0.2), 10.0, 0.05, 8192)
    _, one, _ = timed(single, 9)
    _, plain, _ = timed(lambda: numpy_march(samples=8000, steps=200), 5)
    _, one_again, _ = timed(single, 9)
    one = min(one, one_again)
    _, whole, _ = timed(lambda: sl.solve(PROBLEM, sl.SGD(0.2), t_max=10.0, samples=8192), 15)
    _, default, solution = timed(lambda: sl.solve(PROBLEM, sl.SGD(0.2), t_max=10.0), 7)
    print(f"NumPy, row by row, probes, 8000 samples: {plain:.3f} s")
    print(f"one march, 200 steps, 8192 samples: {one:.3f} s, {one / plain:.2f} of NumPy")
    print(f"whole solution, 8192 samples, with all its errors: {whole:.3f} s, {whole / plain:.2f} of NumPy")
    print(f"default call, to one percent: {default:.3f} s, {default / plain:.2f} of NumPy")
    value, error = solution.curve("train_loss")
    print(f"  train loss at t = 10: {value[-1]:.4f} ± {error[-1]:.4f}")
    precise = []
    for seed in (1, 2):
        begin = time.perf_counter()
        solution = sl.solve(PROBLEM, sl.SGD(0.2), t_max=10.0, samples=2**20, seed=seed)
        precise.append(time.perf_counter() - begin)
        value, error = solution.curve("train_loss")
    print(
        f"2²⁰ samples: {precise[-1]:.2f} s warm; train loss {value[-1]:.5f}, relative error {error[-1] / value[-1]:.1e}"
    )
    counts, seconds = (200, 400, 800, 1600, 3200, 6400), []
    for count in counts:
        seconds.append(timed(one_march(PROBLEM, sl.SGD(0.2), 0.005 * count, 0.005, 8192), 3)[1])
    slope = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
    print("seconds at K = " + ", ".join(f"{k}: {s:.3f}" for k, s in zip(counts, seconds, strict=True)))
    print(f"exponent of time in K: {slope:.3f}")
    long_times()
    return 0 if one < plain / 2 and whole < plain and slope < 1.1 else 1


if __name__ == "__main__":
    others = {"--groups": groups, "--device": device, "--widths": widths, "--long": to_the_end}
    sys.exit(next((run for name, run in others.items() if name in sys.argv), main)())
