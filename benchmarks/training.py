"""Parts of a step, trained parameters and averages of the iterates: the theory beside runs at growing dimension.

    python benchmarks/training.py                            # d = 500, 1000, 2000
    python benchmarks/training.py AdaGradNorm "clip a batch" --dims 500 1000
    python benchmarks/training.py --cost                     # what every part adds to a march

Lines as in `kinks.py`, for θ and for every average of the iterates. Costs are ratios of the best of several marches, of
8 replicas of 2048 samples over 120 steps, with a part and without, one after the other.
"""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from kinks import Case, beside

import sgdlimit as sl
from sgdlimit.dmft import march, planning
from sgdlimit.dmft.memory import Moments, ladder
from sgdlimit.dmft.work import Work

SHARED: dict[str, Any] = {"sample_ratio": 1.5, "teacher": sl.Normal(1.0), "noise": sl.Normal(0.3)}
LOGISTIC = sl.Problem(loss=sl.Logistic(), labels=sl.Sign(), penalty=sl.Ridge(0.05), **SHARED)
POWER = sl.Problem(loss=sl.Huber(1.0), penalty=sl.Ridge(0.05), data=sl.PowerLaw(1.0, groups=6), **SHARED)
SQUARE = sl.Problem(loss=sl.Square(), penalty=sl.Ridge(0.1), **SHARED)
HEAVY = sl.Problem(
    loss=sl.Loss(lambda r, y: 2 * jnp.log1p((y - r) ** 2 / 0.75)), penalty=sl.Ridge(0.05), **SHARED
)  # fmt: skip


def network(activation: str, width: int, **more: Any) -> sl.Problem:
    """A student whose second layer and biases are trained, of a teacher of two units."""
    loss = sl.TwoLayer(activation, **more)
    labels = sl.TwoLayerLabels(activation, readout=(1.0, -0.8), output_bias=0.3)
    return sl.Problem(
        loss=loss, labels=labels, penalty=sl.Ridge(0.01), init=sl.Normal(0.6), width=width, teacher_width=2,
        sample_ratio=2.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.2),
    )  # fmt: skip


TANH = network("tanh", 2, readout=sl.Trained([0.5, 0.4]), output_bias=sl.Trained(0.0))
RELU = network("relu", 3, readout=sl.Trained([0.6, -0.5, 0.3]), bias=sl.Trained([0.0, 0.0, 0.0]))
SCALED = sl.Problem(
    loss=sl.Loss(lambda r, y, a: 0.5 * (jnp.exp(a) * jnp.tanh(r) - y) ** 2, parameters={"a": sl.Trained(0.0, 0.5)},
                 predict=lambda r, a: jnp.exp(a) * jnp.tanh(r)),
    penalty=sl.Ridge(0.05), init=sl.Normal(0.3), **SHARED,
)  # fmt: skip
EMA = {"averages": {"ema": sl.EMA(0.5), "mean": sl.RunningMean(1.0)}}


def sgd(tau: float = 0.6, batch: int = 2, **parts: Any) -> sl.SGD:
    return sl.SGD(tau, batch_size=batch, step=sl.Step(**parts))


CASES: dict[str, Case] = {
    "trained readout": (TANH, sl.SGD(0.5, batch_size=2), {}),
    "trained biases": (RELU, sl.SGD(0.4, batch_size=2), {}),
    "trained scale": (SCALED, sl.SGD(0.5, batch_size=2), {}),
    "reshuffled": (TANH, sl.ShuffledSGD(0.5, batch_size=2), {}),
    "heavy ball": (LOGISTIC, sgd(momentum=sl.HeavyBall(1.0)), {}),
    "Nesterov": (LOGISTIC, sgd(momentum=sl.Nesterov(1.0)), {}),
    "fixed beta": (LOGISTIC, sgd(0.3, momentum=sl.HeavyBall(beta=0.5)), {}),
    "AdaGradNorm": (LOGISTIC, sgd(1.0, 4, rate=sl.AdaGradNorm(0.3, 0.22)), {}),
    "Polyak": (SQUARE, sgd(rate=sl.Polyak(0.01, 1.5)), {}),
    "stochastic Polyak": (SQUARE, sgd(0.6, 2, rate=sl.StochasticPolyak(0.0, 1.0, most=1.0)), {}),
    "normalised": (LOGISTIC, sgd(0.6, 4, rate=sl.Normalised(0.2)), {}),
    "DoG": (SQUARE, sgd(0.5, 2, rate=sl.DoG(0.5, 0.1, 0.05)), {}),
    "own rate": (LOGISTIC, sgd(rate=sl.Rate(lambda train_loss, norm: train_loss / (1 + norm))), {}),
    "Adam": (POWER, sgd(0.5, 2, rate=sl.Adam(0.4)), {}),
    "RMSprop": (POWER, sgd(0.5, 2, rate=sl.RMSprop(0.4)), {}),
    "clip a sample": (HEAVY, sgd(0.6, 2, clip=0.5), {}),
    "clip a batch": (LOGISTIC, sgd(0.6, 4, clip=sl.Clip(0.22, "batch")), {}),
    "weight noise": (LOGISTIC, sgd(weight_noise=0.4), {}),
    "gradient noise": (LOGISTIC, sgd(gradient_noise=0.4, momentum=sl.HeavyBall(1.0)), {}),
    "decay": (LOGISTIC, sgd(decay=0.2), {}),
    "averages": (LOGISTIC, sl.SGD(0.8, batch_size=2), EMA),
    "SGF": (TANH, sl.SGF(0.5, step=sl.Step(clip=0.5, weight_noise=0.2)), EMA),
    "proportional": (LOGISTIC, sl.ProportionalSGD(0.3, step=sl.Step(clip=0.3, weight_noise=0.3)), EMA),
    "readout and momentum": (TANH, sgd(0.4, momentum=sl.HeavyBall(1.0)), {}),
    "AdaGradNorm, clip, noise, EMA": (
        LOGISTIC, sgd(1.0, 4, rate=sl.AdaGradNorm(0.3, 0.22), clip=0.4, weight_noise=0.3), EMA),
    "Adam and decay on a power law": (POWER, sgd(0.5, 2, rate=sl.AdamW(0.2, 0.4)), EMA),
    "ReLU, biases, Nesterov": (RELU, sgd(0.3, momentum=sl.Nesterov(1.5)), EMA),
}  # fmt: skip
"""Every part alone, then four combinations, the last ones."""

PARTS: dict[str, dict[str, Any]] = {
    "clip": {"clip": 0.3}, "batch clip, B = 4": {"clip": sl.Clip(0.3, "batch")},
    "momentum": {"momentum": sl.HeavyBall(1.0)},
    "weight noise": {"weight_noise": 0.3}, "decay": {"decay": 0.1}, "AdaGradNorm": {"rate": sl.AdaGradNorm()},
    "Polyak": {"rate": sl.Polyak()}, "normalised, B = 4": {"rate": sl.Normalised()}, "Adam": {"rate": sl.Adam()},
}  # fmt: skip


def seconds(
    problem: sl.Problem, algorithm: sl.Algorithm, averages: Any = (), repeats: int = 5, *, samples: int = 2048,
    replicas: int = 8, t_max: float = 6.0, steps: int = 120, kept: Moments | None = None,
) -> float:  # fmt: skip
    """The shortest of some marches, programs compiled before."""
    times = np.linspace(0, t_max, steps + 1)
    with jax.enable_x64(True):
        kept = kept or Moments(ladder(t_max, t_max / steps))
        system = march.assemble(problem, algorithm, samples, kept, averages=tuple(averages))
        draws = Work(system, times, 1, 0, range(replicas)).draws()
        starts = jax.tree.map(lambda *parts: jnp.stack([jnp.asarray(part) for part in parts]), *draws)
        level, best = planning.level(times, 1, kept, "float32"), np.inf
        for _ in range(repeats + 1):
            state = jax.block_until_ready(march.begin(system, starts))
            begin = time.perf_counter()
            jax.block_until_ready(march.advance(system, starts, state, level.steps, len(level.times)))
            best = min(best, time.perf_counter() - begin) if _ else best
    return best


def cost() -> None:
    """Print what every part adds, on logistic regression and on a network of two units."""
    plain, pair = sl.SGD(0.6, batch_size=4), (LOGISTIC, network("tanh", 2))
    ema, trained = [("ema", sl.EMA(0.5))], seconds(TANH, plain) / seconds(pair[1], plain)
    for name, part in PARTS.items():
        stepped = sl.SGD(0.6, batch_size=4, step=sl.Step(**part))
        ratios = [seconds(problem, stepped) / seconds(problem, plain) for problem in pair]
        print(f"{name}: logistic {ratios[0]:.2f}, network {ratios[1]:.2f}", flush=True)
    print("EMA: " + ", ".join(f"{seconds(problem, plain, ema) / seconds(problem, plain):.2f}" for problem in pair))
    print(f"trained readout and output bias: network {trained:.2f}")


if __name__ == "__main__":
    cost() if "--cost" in sys.argv else beside(CASES, __doc__, [1.0, 2.0, 4.0])
