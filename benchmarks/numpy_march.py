"""The row-by-row causal march in plain NumPy: what the compiled solver is timed against.

Logistic regression with sign labels, one unit, ridge penalty, start at zero. Samples in single precision, kernels in
double. A step reads seven histories of i × M numbers once, each in one BLAS product, so it is bound by memory
bandwidth. Responses by probes: their first order exactly, the rest by random signs, K²M multiply-adds in all.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

Array = np.ndarray
PIVOT = 1e-6
"""A pivot below this share of its variance counts as zero."""


def increments(
    law: str, rng: np.random.Generator, dt: float, temperature: float, delta: float
) -> Callable[[int], Array | float]:
    """Z_i of every sample over one step, E Z = γ."""
    jump = temperature * delta
    if law == "flow":
        return lambda _: dt
    if law == "sgf":
        scale = np.float32(np.sqrt(jump * dt))
        return lambda count: np.float32(dt) + scale * rng.standard_normal(count, dtype=np.float32)
    if law == "sgd":
        return lambda count: np.float32(jump) * rng.poisson(dt / jump, count).astype(np.float32)
    raise ValueError(f"law={law!r}: it must be 'flow', 'sgf' or 'sgd'")


def extend(L: Array, live: list[int], row: Array) -> Array:
    """The next Gaussian in terms of fixed normals, given its covariances with its forerunners and itself.

    L is the Cholesky factor of those that brought a normal of their own, `live`; a negligible pivot brings none.
    """
    n = len(live)
    x = solve_triangular(L[:n, :n], row[live], lower=True, check_finite=False)
    pivot = row[-1] - x @ x
    if pivot <= PIVOT * row[-1]:
        return x
    L[n, :n], L[n, n] = x, np.sqrt(pivot)
    live.append(len(row) - 1)
    return L[n, : n + 1]


def march(
    samples: int = 8000,
    steps: int = 200,
    dt: float = 0.05,
    law: str = "sgd",
    temperature: float = 0.2,
    delta: float = 2.0,
    ridge: float = 0.01,
    noise: float = 0.1,
    teacher: float = 1.0,
    seed: int = 0,
) -> dict[str, Array]:
    """Curves on the grid 0, γ, …, Kγ: train loss, train and test error, norm and overlap."""
    rng = np.random.default_rng(seed)
    M, K = samples, steps
    step_of_Z = increments(law, rng, dt, temperature, delta)

    # Histories, one row a step: fixed normals, F = Zℓ, and of the probes ε, D = ZJ, εD, Dq/δ with J = ∇ℓ.
    normals = rng.standard_normal((K, M), dtype=np.float32)
    signs = (2 * rng.integers(0, 2, (K, M), dtype=np.int8) - 1).astype(np.float32)
    D, signed, answers = (np.empty((K, M), np.float32) for _ in range(3))
    # Under the flow w is smooth in time and its pivots are tiny: its covariance needs sums in double precision.
    F = np.empty((K, M), np.float64 if law == "flow" else np.float32)

    R = np.zeros((K + 1, K))  # R_θ(i, j)
    U = np.zeros((K, K))  # Cov(ΔU_i, ΔU_j) = E[F_i F_j]/δ
    L, live = np.zeros((K, K)), []  # Cholesky factor of the part of C_θ orthogonal to the teacher, R U Rᵀ
    w_star = np.float32(teacher) * rng.standard_normal(M, dtype=np.float32)
    y = np.sign(w_star + np.float32(noise) * rng.standard_normal(M, dtype=np.float32))
    names = ("train_loss", "train_error", "test_error", "norm", "overlap")
    out = {"time": dt * np.arange(K + 1)} | {name: np.empty(K + 1) for name in names}

    c = 0.0  # C_θ(i, *)
    for i in range(K + 1):
        row = R[i, :i]
        row32 = row.astype(np.float32)
        free = R[: i + 1, :i] @ (U[:i, :i] @ row)  # C_θ(i, ·) − c_i c/ρ²
        mix = extend(L, live, free).astype(np.float32)
        w = mix @ normals[: len(mix)] + np.float32(c / teacher**2) * w_star
        r = (w - (row / delta).astype(F.dtype) @ F[:i]).astype(np.float32, copy=False)

        margin = y * r
        e = np.exp(-margin)
        s = e / (1 + e)
        norm = free[i] + c**2 / teacher**2
        cosine = c / np.sqrt(norm * (teacher**2 + noise**2)) if norm else 0.0
        out["train_loss"][i] = np.mean(np.log1p(e), dtype=np.float64)
        out["train_error"][i] = (np.count_nonzero(margin < 0) + 0.5 * np.count_nonzero(margin == 0)) / M
        out["test_error"][i] = np.arccos(min(1.0, cosine)) / np.pi  # at the start, w = 0, a half
        out["norm"][i], out["overlap"][i] = norm, c
        if i == K:
            break

        force, slope, Z = -y * s, s * (1 - s), step_of_Z(M)
        gamma = slope.mean(dtype=np.float64)
        np.multiply(Z, force, out=F[i])
        np.multiply(Z, slope, out=D[i])
        np.multiply(signs[i], D[i], out=signed[i])

        # q = Tε, T = R − R (D/δ) T;  𝓡(i,j) = −E[J T(i,j) D_j]/δ
        rest = -(row32 @ answers[:i])
        np.multiply(D[i], row32 @ signs[:i] + rest, out=answers[i])
        answers[i] /= np.float32(delta)
        response = -(row * (D[:i] @ slope) + signed[:i] @ (slope * rest)) / (delta * M)

        U[i, : i + 1] = U[: i + 1, i] = (F[: i + 1] @ F[i]) / (delta * M)
        R[i + 1, :i] = (1 - dt * (ridge + gamma)) * row - dt * (response @ R[:i, :i])
        R[i + 1, i] = 1.0
        c -= dt * (ridge * c + float(force @ w_star) / M)
    return out


def main() -> None:
    """Print the time of the second of two runs, and the curves at half time and at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dt", type=float, default=0.05)
    parser.add_argument("--law", choices=("flow", "sgf", "sgd"), default="sgd")
    parser.add_argument("--temperature", type=float, default=0.2)
    options = vars(parser.parse_args())
    march(**options, seed=0)
    begin = time.perf_counter()
    out = march(**options, seed=1)
    seconds = time.perf_counter() - begin
    print(f"NumPy march, {options['law']}, {options['steps']} steps, {options['samples']} samples: {seconds:.3f} s")
    for i in (options["steps"] // 2, options["steps"]):
        print("  ".join(f"{name} {values[i]:.4f}" for name, values in out.items()))


if __name__ == "__main__":
    main()
