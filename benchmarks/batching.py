"""Many solutions at once against one by one, in the same run: logistic regression over δ in 1…4 and τ in 0.1…0.5.

    python benchmarks/batching.py --points 100            # as this machine does it: one program on a GPU
    python benchmarks/batching.py --points 100 --joint    # one program on a CPU too
    python benchmarks/batching.py --roofline              # why a CPU gains little: what a step moves, and what it could

One by one is measured on some of the points and extrapolated. Deviations are between both, in units of the error that a
solution reports and of the curve's largest value. Needs no more than the core.
"""

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import sgdlimit as sl
from sgdlimit.dmft import march, memory, noise, planning
from sgdlimit.dmft.march import assemble
from sgdlimit.execute.place import stacked
from sgdlimit.solver import solve_many

CURVES = ("train_loss", "test_loss", "train_error", "test_error", "overlap", "norm")
MODES = {"8192 samples": {"samples": 8192}, "tol = 1e-2": {"tol": 1e-2}}


def problem(sample_ratio: float) -> sl.Problem:
    """The paper's setting."""
    return sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.01), sample_ratio=sample_ratio,
        teacher=sl.Normal(1.0), noise=sl.Normal(0.1),
    )  # fmt: skip


def calls(points: int, options: dict[str, Any]) -> list[Any]:
    """A square grid, row by row, as many of it as asked for."""
    side = int(np.ceil(np.sqrt(points)))
    grid = [(delta, tau) for delta in np.linspace(1.0, 4.0, side) for tau in np.linspace(0.1, 0.5, side)]
    return [(problem(float(delta)), sl.SGD(float(tau)), {"t_max": 10.0} | options) for delta, tau in grid[:points]]


def deviation(ours: sl.Solution, theirs: sl.Solution) -> dict[str, tuple[float, float]]:
    """Largest of every curve, in errors and relative."""
    out = {}
    for name in CURVES:
        value, error = theirs.curve(name)
        gap = np.abs(ours.curve(name)[0] - value)
        out[name] = (
            float(np.max(gap / np.maximum(error, 1e-12 * np.max(np.abs(value))))),
            float(np.max(gap) / np.max(np.abs(value))),
        )
    return out


def measure(name: str, options: dict[str, Any], points: int, alone: int, joint: bool | None) -> float:
    """Print one mode; how many times faster."""
    asked = calls(points, options)
    some = sorted({round(i) for i in np.linspace(0, points - 1, min(alone, points))})
    begin = time.perf_counter()
    for i in some:  # compiles whatever they need
        sl.solve(asked[i][0], asked[i][1], **asked[i][2])
    first = time.perf_counter() - begin
    begin, single = time.perf_counter(), {}
    for i in some:
        single[i] = sl.solve(asked[i][0], asked[i][1], **asked[i][2])
    each = (time.perf_counter() - begin) / len(some)
    print(f"{name}: one by one {each:.3f} s a point (first time {first / len(some):.2f} s), "
          f"{each * points:.1f} s for {points}", flush=True)  # fmt: skip
    seconds: list[float] = []
    found: dict[int, Any] = {}
    for turn in range(3):
        begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        found = dict(solve_many(asked, joint=joint, progress=False))
        seconds.append(time.perf_counter() - begin)
        now = resource.getrusage(resource.RUSAGE_SELF)
        cores = (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) / seconds[-1]
        print(f"  together, {'compiling included' if turn == 0 else 'again'}: {seconds[-1]:.2f} s, "
              f"{cores:.1f} cores busy", flush=True)  # fmt: skip
    failed = [part for part in found.values() if isinstance(part, BaseException)]
    if failed:
        raise failed[0]
    worst: dict[str, tuple[float, float]] = {}
    for i, theirs in single.items():
        for curve, gap in deviation(found[i], theirs).items():
            worst[curve] = max(worst.get(curve, (0.0, 0.0)), gap)
    ratio = each * points / min(seconds[1:])
    print(f"  {ratio:.1f} times faster; {1e3 * min(seconds[1:]) / points:.1f} ms a point; largest deviations over "
          f"{len(single)} points, in errors and relative:")  # fmt: skip
    for curve, (errors, relative) in worst.items():
        print(f"    {curve:12s} {errors:.1e}  {relative:.1e}", flush=True)
    return ratio


def best_of(go: Callable[[], Any], repeat: int = 7) -> float:
    """Seconds."""
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        go()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def roofline() -> None:
    """Operations and bytes of a step, by the compiler's count, against what this machine does at most."""
    count = 16
    kept = memory.Moments(memory.ladder(10.0, 0.05))
    one = problem(2.0)
    system = assemble(one, sl.SGD(0.2), 512, kept)
    level = planning.level(np.linspace(0.0, 10.0, 201), 1, kept, "float32")
    start = stacked([noise.draw(one, system.groups, 512, i, "float32", weights=False) for i in range(count)])
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        state = march.begin(system, start)
        here = jax.tree.map(lambda part: part[0], level.steps)
        step = jax.jit(lambda system, start, state, x: jax.vmap(lambda a, b: march.step(system, a, b, x))(start, state))
        cost = step.lower(system, start, state, here).compile().cost_analysis()
        cost = cost[0] if isinstance(cost, list) else cost or {}
        chunk = jax.tree.map(lambda part: part[np.arange(250) % 200], level.steps)

        def go() -> None:
            jax.block_until_ready(march.advance(system, start, march.begin(system, start), chunk, 200))

        seconds = best_of(go) / 200
    flops, moved = cost["flops"], cost["bytes accessed"]
    rng = np.random.default_rng(0)
    left = rng.standard_normal((1024, 1024)).astype(np.float32)
    peak = 2 * 1024**3 / best_of(lambda: left @ left)
    held = rng.standard_normal((2, 2**20)).astype(np.float32)
    stream = jax.jit(lambda x: x * 1.0001)
    there = jax.device_put(held)
    rate = 2 * held.nbytes / best_of(lambda: stream(there).block_until_ready(), 50)
    print(f"one step of {count} replicas of 512 samples: {1e6 * seconds:.0f} µs, {flops:.3g} operations, "
          f"{moved:.3g} bytes between kernels")  # fmt: skip
    print(f"  {flops / seconds / 1e9:.1f} GFlop/s; a product of matrices does {peak / 1e9:.0f}")
    print(f"  {moved / seconds / 1e9:.1f} GB/s; scaling 8 MiB does {rate / 1e9:.1f}")
    print(f"  the bytes alone take {1e6 * moved / rate:.0f} µs, the operations {1e6 * flops / peak:.0f} µs: "
          f"at most {seconds / max(moved / rate, flops / peak):.1f} times faster")  # fmt: skip


def main() -> None:
    """Print both modes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--alone", type=int, default=10, help="points that are also solved one by one")
    parser.add_argument("--joint", action="store_true", default=None)
    parser.add_argument("--mode", choices=["samples", "tol"])
    parser.add_argument("--roofline", action="store_true")
    chosen = parser.parse_args()
    print(jax.devices(), flush=True)
    warnings.simplefilter("ignore", sl.ToleranceWarning)
    if chosen.roofline:
        roofline()
        return
    for name, options in MODES.items():
        if chosen.mode is None or chosen.mode in options:
            measure(name, options, chosen.points, chosen.alone, chosen.joint)


if __name__ == "__main__":
    main()
