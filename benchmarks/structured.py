"""Structured data: theory beside SGD, theory beside theory, and what groups of coordinates cost.

    python benchmarks/structured.py squares          # least squares on three spectra: DMFT, Volterra, SGD at d = 2000
    python benchmarks/structured.py losses           # logistic, Huber, committee on two spectra at growing d
    python benchmarks/structured.py mixtures         # two and three classes, small and proportional batches
    python benchmarks/structured.py features         # random features at two ratios
    python benchmarks/structured.py cost             # seconds of one solution against the number of groups

Runs that are compared with theory start from seeds of their own; p is that of one test over all curves and times.
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgdlimit as sl

erf = jax.scipy.special.erf
TIMES = np.linspace(0.0, 6.0, 13)
TOLERANCE = 5e-3
"""Of theories, times the width."""
POWER = sl.PowerLaw(1.2, source=0.6)
LEVELS = sl.Spectrum([3.0, 0.5], weights=[0.2, 0.8], teacher=[0.5, 1.1])
SPECTRA = {"power law": POWER, "two levels": LEVELS}


def softmax(r: Any, y: Any) -> Any:
    return jax.nn.logsumexp(r) - r[jnp.round(y).astype(int)]


def losses(data: Any) -> dict[str, tuple[sl.Problem, Any]]:
    """Problems on one law of data, each with its algorithm."""
    logistic = sl.Problem(
        loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.02), sample_ratio=1.5, teacher=sl.Normal(1.0),
        noise=sl.Normal(0.1), data=data,
    )  # fmt: skip
    huber = sl.Problem(
        loss=sl.Huber(0.5), penalty=sl.Ridge(0.05), sample_ratio=1.5, teacher=sl.Normal(1.0), noise=sl.Normal(0.5),
        data=data,
    )  # fmt: skip
    committee = sl.Problem(
        loss=sl.TwoLayer(erf), labels=sl.TwoLayerLabels(erf), sample_ratio=2.0, teacher=sl.Normal(1.0),
        init=sl.Normal(0.5), width=2, data=data,
    )  # fmt: skip
    chosen = {"logistic": (logistic, 0.5), "Huber": (huber, 0.5), "erf committee": (committee, 0.5)}
    return {name: (problem, sl.SGD(tau, batch_size=4)) for name, (problem, tau) in chosen.items()}


def beside(
    what: str, problem: sl.Problem, algorithm: Any, dims: list[int], trials: int, theory: Any = None, **own: Any
) -> None:
    """One line a dimension: p of all curves, and the largest relative difference."""
    begin = time.perf_counter()
    tol = TOLERANCE * problem.width  # of networks, minutes
    solution = theory or sl.solve(problem, algorithm, times=TIMES, tol=tol, progress=False, **own)
    taken = time.perf_counter() - begin
    for dim in dims:
        runs = sl.simulate(problem, algorithm, dim=dim, trials=trials, times=TIMES[1:], seed=dim, progress=False, **own)
        report = sl.compare(solution, runs)
        off, bias = {}, {}
        for name in report.variables:
            mean, _ = runs.curve(name)
            exact = np.stack([np.interp(runs.time, solution.time, part) for part in
                              solution[name].reshape(len(solution.time), -1).T], -1)  # fmt: skip
            gap = mean.reshape(len(runs.time), -1) - exact
            off[name] = np.max(np.abs(gap)) / np.max(np.abs(exact))
            bias[name] = np.sqrt(np.mean(gap**2)) / np.max(np.abs(exact))
        worst = max(off, key=lambda name: off[name])
        print(f"{what:44s} d = {dim:5d}, {trials} trials: p = {report.p_value:.4f}, largest |z| {report.largest:.2f}, "
              f"difference ≤ {off[worst]:.2%} ({worst}), rms {np.mean(list(bias.values())):.2%}; "
              f"theory {taken:.0f} s, {solution.status}", flush=True)  # fmt: skip


def squares(dims: list[int], trials: int) -> None:
    spectra = SPECTRA | {"three levels, none below": sl.Spectrum([2.0, 0.3, 0.0], weights=[0.3, 0.5, 0.2])}
    for name, data in spectra.items():
        problem = sl.Problem(loss=sl.Square(), penalty=sl.Ridge(0.05), sample_ratio=1.5, teacher=sl.Normal(1.0),
                             noise=sl.Normal(0.3), data=data)  # fmt: skip
        exact = sl.least_squares(problem, sl.SGF(0.5), times=TIMES)
        for algorithm in (sl.SGF(0.5), sl.SGD(0.5, batch_size=4)):
            solution = sl.solve(problem, algorithm, times=TIMES, tol=TOLERANCE, progress=False)
            z = {}
            for part in ("train_error", "test_error", "overlap", "norm"):
                value, error = solution.curve(part)
                z[part] = np.max(np.abs((value - exact[part])[1:] / error[1:]))
            words = ", ".join(f"{part} {value:.2f}" for part, value in z.items())
            print(f"{name}, {type(algorithm).__name__}: DMFT against Volterra, largest deviation in errors: {words}")
        beside(f"{name}: Volterra against SGD", problem, sl.SGD(0.5, batch_size=4), dims, trials, exact)


def mixtures(dims: list[int], trials: int) -> None:
    small, share = sl.SGD(0.5, batch_size=4), sl.ProportionalSGD(0.3)
    corners = [[1.5, 0.0], [-0.75, 1.3], [-0.75, -1.3]]
    shared: dict[str, Any] = {"penalty": sl.Ridge(0.05), "sample_ratio": 1.5, "labels": sl.ByClass()}
    two, three = sl.Mixture([1.2, -1.2], covariance=0.8), sl.Mixture(corners, covariance=POWER)
    for algorithm in (small, share):
        own = {"dt": 0.1} if algorithm.discrete else {}
        kind = type(algorithm).__name__
        for loss in (sl.Logistic(), sl.Square()):
            problem = sl.Problem(loss=loss, data=two, **shared)
            beside(f"two classes, {type(loss).__name__}, {kind}", problem, algorithm, dims, trials, **own)
        problem = sl.Problem(loss=sl.Loss(softmax), width=3, data=three, **shared)
        beside(f"three classes on a power law, softmax, {kind}", problem, algorithm, dims, trials, **own)
        labels: dict[str, Any] = {"labels": sl.ByClass([1.0, 0.0, -0.5])}
        problem = sl.Problem(loss=sl.Square(), data=three, bias=True, **(shared | labels))
        beside(f"three classes, Square, intercept, {kind}", problem, algorithm, dims, trials, **own)


def features(dims: list[int], trials: int) -> None:
    for ratio in (0.5, 2.0):
        data = sl.RandomFeatures(jnp.tanh, ratio)
        for loss, labels, noise in ((sl.Square(), sl.Linear(), 0.2), (sl.Logistic(), sl.Sign(), 0.0)):
            problem = sl.Problem(
                loss=loss, labels=labels, penalty=sl.Ridge(0.02), sample_ratio=1.5, teacher=sl.Normal(1.0),
                noise=sl.Normal(noise), data=data,
            )  # fmt: skip
            what = f"tanh features, ratio {ratio:g}, {type(loss).__name__}"
            beside(what, problem, sl.SGD(0.5, batch_size=4), dims, trials)


def cost(samples: int) -> None:
    """One solution of given samples, the second of two: nothing compiles in it."""
    print(f"{jax.devices()[0].device_kind}, {samples} samples, t = 6, dt = 0.05, logistic on a power law")
    alone = None
    for count in (1, 8, 32, 128):
        problem, algorithm = losses(sl.PowerLaw(1.2, source=0.6, groups=count))["logistic"]
        seconds = []
        for seed in (0, 1, 2):
            begin = time.perf_counter()
            solution = sl.solve(problem, algorithm, t_max=6.0, dt=0.05, samples=samples, seed=seed, progress=False)
            seconds.append(time.perf_counter() - begin)
        best = min(seconds[1:])
        alone = alone or best
        print(f"{count:4d} groups: first {seconds[0]:.2f} s, then {best:.3f} s ({best / alone:.2f} of one group); "
              f"train loss {solution['train_loss'][-1]:.4f} ± {solution.curve('train_loss')[1][-1]:.4f}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["squares", "losses", "mixtures", "features", "cost"])
    parser.add_argument("--dims", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--samples", type=int, nargs="+", default=[16384])
    chosen = parser.parse_args()
    if chosen.what == "cost":
        for samples in chosen.samples:
            cost(samples)
    elif chosen.what == "losses":
        for spectrum, data in SPECTRA.items():
            for name, (problem, algorithm) in losses(data).items():
                beside(f"{name} on {spectrum}", problem, algorithm, chosen.dims, chosen.trials)
    else:
        {"squares": squares, "mixtures": mixtures, "features": features}[chosen.what](chosen.dims, chosen.trials)
