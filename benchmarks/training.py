"""Parts of a step, trained parameters and averages of the iterates: the theory beside runs at growing dimension.

    python benchmarks/training.py                            # d = 500, 1000, 2000
    python benchmarks/training.py adagrad private --dims 500 1000

Lines as in `kinks.py`, for θ and for every average of the iterates.
"""

from typing import Any

import jax.numpy as jnp
from kinks import Case, beside

import sgdlimit as sl

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

if __name__ == "__main__":
    beside(CASES, __doc__, [1.0, 2.0, 4.0])
