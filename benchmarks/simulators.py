"""The SGD simulator against a straightforward NumPy loop, on the paper's setting, in one run.

Logistic regression, d = 1024, n = 2048, B = 10, τ = 0.2, t = 10, λ = 0.01, 10 trials, 51 recorded times: both sides
draw their data, run, and record the same observables. Times are printed as a ratio, compilation apart.
"""

import sys
import time

import numpy as np

import sgdlimit as sl

D, N, B, TAU, T_MAX, RIDGE, TRIALS, POINTS = 1024, 2048, 10, 0.2, 10.0, 0.01, 10, 51


def numpy_trial(seed: int, steps: np.ndarray) -> dict[str, np.ndarray]:
    """What everybody writes: one gradient step a line, in single precision as the simulator."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((N, D)) / np.sqrt(D)).astype(np.float32)
    teacher = rng.standard_normal(D).astype(np.float32)
    y = np.sign(X @ teacher + 0.1 * rng.standard_normal(N)).astype(np.float32)
    theta = np.zeros(D, dtype=np.float32)
    eta = TAU * B
    out: dict[str, list] = {"train_error": [], "train_loss": [], "overlap": [], "norm": []}
    record = set(steps.tolist())
    for k in range(int(steps[-1]) + 1):
        if k in record:
            margin = y * (X @ theta)
            out["train_error"].append(np.mean(0.5 * (1 - np.sign(margin))))
            out["train_loss"].append(np.mean(np.logaddexp(0, -margin)))
            out["overlap"].append(theta @ teacher / D)
            out["norm"].append(theta @ theta / D)
        rows = rng.choice(N, size=B, replace=False)
        batch = X[rows]
        ell = -y[rows] / (1 + np.exp(y[rows] * (batch @ theta)))
        theta = theta - eta * (RIDGE * theta / D + batch.T @ ell / B)
    return {name: np.array(values) for name, values in out.items()}


def main() -> int:
    """Print the table; exit 1 if the curves differ or the ratio is below 3."""
    problem = sl.Problem(
        loss=sl.Logistic(),
        labels=sl.Sign(),
        penalty=sl.Ridge(RIDGE),
        sample_ratio=N / D,
        teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1),
    )
    algorithm = sl.SGD(temperature=TAU, batch_size=B)
    runs = sl.simulate(problem, algorithm, dim=D, trials=TRIALS, t_max=T_MAX, seed=0)
    spent = runs.about["diagnostics"]
    steps = np.round(runs.time / spent["step_time"]).astype(int)
    began = time.perf_counter()
    loops = [numpy_trial(1000 + i, steps) for i in range(TRIALS)]
    loop_seconds = time.perf_counter() - began
    ratio = loop_seconds / spent["seconds"]
    print(f"{'NumPy loop':<28} {loop_seconds:8.2f} s")
    print(f"{'sgdlimit, running':<28} {spent['seconds']:8.2f} s   {ratio:6.1f} times faster")
    total = spent["seconds"] + spent["compile_seconds"]
    print(f"{'sgdlimit, with compilation':<28} {total:8.2f} s   {loop_seconds / total:6.1f} times faster")
    worst = 0.0
    for name in ("train_error", "train_loss", "overlap", "norm"):
        mine, error = runs.curve(name)
        theirs = np.stack([loop[name] for loop in loops])
        combined = np.hypot(error.reshape(len(steps)), theirs.std(axis=0, ddof=1) / np.sqrt(TRIALS))
        z = (mine.reshape(len(steps)) - theirs.mean(axis=0))[1:] / combined[1:]
        worst = max(worst, float(np.abs(z).max()))
        print(f"{name:<12} max |z| between the two: {np.abs(z).max():.2f}")
    return 0 if ratio >= 3 and worst < 5 else 1


if __name__ == "__main__":
    sys.exit(main())
