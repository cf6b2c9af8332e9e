"""SGD from the numbers that a library for differential privacy uses."""

import math

from ..errors import real, whole
from .minibatch import SGD
from .step import Step


def DPSGD(
    noise_multiplier: float,
    clip: float,
    *,
    batch_size: int,
    dim: int,
    temperature: float | None = None,
    learning_rate: float | None = None,
) -> SGD:
    """Private SGD: clipped gradients of the B samples of a batch and noise on their sum, divided by B.

    noise_multiplier: standard deviation of the noise of one coordinate of the sum, over `clip`.
    clip: largest length of a sample's gradient, in units of rows of norm about 1.
    dim: d, which the noise depends on: in the limit it stays beside the gradient where noise_multiplier is of the order
        1/√d·B/clip. The result has gradient_noise = noise_multiplier·clip·√(τ d/B), a number that the theory takes.
    temperature, learning_rate: τ = η/B, or η.

    A batch has B samples, as everywhere here, where such a library may draw every sample with probability B/n; what is
    spent of a privacy budget is its business. Trained parameters get clipped gradients, without noise.
    """
    multiplier = real("DPSGD.noise_multiplier", noise_multiplier, least=0, why="it must be a number ≥ 0")
    clip = real("DPSGD.clip", clip, above=0, why="a gradient is shortened to a positive length")
    dim = whole("DPSGD.dim", dim, least=1, why="d must be a whole number ≥ 1")
    plain = SGD(temperature, batch_size, learning_rate=learning_rate)
    noise = multiplier * clip * math.sqrt(plain.temperature * dim / plain.batch_size)
    return SGD(plain.temperature, plain.batch_size, step=Step(clip=clip, gradient_noise=noise))
