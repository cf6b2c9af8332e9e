"""The causal march against the paper's fixed-point iteration, and against the memory bandwidth of the machine.

Logistic regression, δ = 2, λ = 0.01, τ = 0.2, t = 10, γ = 0.05, M = 8192 samples in 16 replicas: the paper's setting.
Everything is timed in one run, compiling apart. `--march-only` leaves the (slow) fixed point out; `--large` adds a
march of 2000 steps and 10⁵ samples, for a GPU.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import sgdlimit as sl

PROBLEM = sl.Problem(
    loss=sl.Logistic(),
    labels=sl.Sign(),
    penalty=sl.Ridge(0.01),
    sample_ratio=2.0,
    teacher=sl.Normal(1.0),
    noise=sl.Normal(0.1),
)
STREAMS = 9
"""Histories that a step of the march reads: normals, forces (twice), and six of the response."""


def bandwidth() -> float:
    """Bytes a second that one matrix-vector product streams."""
    A, x = jnp.ones((4096, 16384), jnp.float32), jnp.ones(16384, jnp.float32)
    product = jax.jit(lambda a, b: a @ b)
    product(A, x).block_until_ready()
    begin = time.perf_counter()
    for _ in range(10):
        product(A, x).block_until_ready()
    return 10 * A.nbytes / (time.perf_counter() - begin)


def march(t_max: float, dt: float, samples: int, dtype: str) -> sl.Solution:
    """The second of two solutions: the first compiles."""
    first, second = (
        sl.solve(PROBLEM, sl.SGF(0.2), t_max=t_max, dt=dt, samples=samples, dtype=dtype, seed=seed) for seed in (0, 1)
    )
    assert first.success
    return second


def main() -> int:
    """Print the table; exit 1 if the two methods disagree or the ratio is below 50."""
    peak = bandwidth()
    print(f"one matrix-vector product streams {peak / 1e9:.1f} GB/s")
    sizes = [(10.0, 0.05, 8000)] + ([(20.0, 0.01, 100_000)] if "--large" in sys.argv else [])
    quick, solution = np.inf, march(1.0, 0.05, 8000, "float64")
    for t_max, dt, samples in sizes:
        for dtype in ("float64", "float32"):
            out = march(t_max, dt, samples, dtype)
            seconds, steps = out.about["diagnostics"]["seconds"], out.about["options"]["steps"]
            read = STREAMS * steps**2 / 2 * out.about["options"]["samples"] * (8 if dtype == "float64" else 4)
            share = read / seconds / peak
            print(f"march, {steps} steps, {samples} samples, {dtype}: {seconds:.2f} s, {share:.0%} of that")
            if steps == 200:
                quick, solution = min(quick, seconds), out
    if "--march-only" in sys.argv:
        return 0
    iterated = sl.solve(PROBLEM, sl.SGF(0.2), t_max=10.0, dt=0.05, samples=8000, method="fixed-point")
    spent = iterated.about["diagnostics"]
    ratio = spent["seconds"] / quick
    print(f"fixed point: {spent['seconds']:.1f} s in {spent['iterations']} iterations, {ratio:.0f} times slower")
    worst = 0.0
    for name in ("train_error", "test_error", "overlap", "norm"):
        (a, e), (b, f) = solution.curve(name), iterated.curve(name)
        worst = max(worst, float(np.max(np.abs(a - b)[1:] / np.hypot(e, f)[1:])))
    print(f"max |z| between the two: {worst:.2f}")
    return 0 if ratio >= 50 and worst < 5 else 1


if __name__ == "__main__":
    sys.exit(main())
