"""The one place that names what is measured: ψ(r, y) on samples, ψ(θ, θ*) on weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from .._types import Array, Scalar
from . import fields
from .labels import Linear, Sign
from .laws import Normal
from .losses import identity
from .parameters import bound

if TYPE_CHECKING:
    from .problem import Problem

SampleObservable = Callable[[Array, Array, Array], Scalar]
ERRORS: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "zero-one": lambda prediction, y: 0.5 * (1.0 - jnp.sign(prediction) * jnp.sign(y)),  # ½ for a score of zero
    "squared": lambda prediction, y: jnp.sum((prediction - y) ** 2) if jnp.ndim(prediction) else (prediction - y) ** 2,
}
SOFT = 0.3  # width of a softened jump, over the root mean square of the predictions


def softened(problem: "Problem", r: Array, r_star: Array, z: Array) -> Array | None:
    """The mean zero-one error over samples (units, M) with its jump made soft, or None where the error has none.

    Between runs that differ little it changes as the error itself does, without the noise of samples that change sides.
    """
    if problem.predict is None or error_kind(problem) != "zero-one":
        return None
    predict = problem.predict
    pairs = jax.vmap(lambda a, b, c: (predict(fields.as_user(a)), fields.label(problem, b, c)), in_axes=(-1, -1, 0))
    prediction, y = pairs(r, r_star, z)
    size = jnp.sqrt(jnp.mean(prediction**2))
    scaled = prediction / (SOFT * jnp.where(size > 0, size, 1.0))
    return 0.5 * (1.0 - jnp.mean(jnp.tanh(scaled) * jnp.sign(y)))


def error_kind(problem: "Problem") -> str:
    """Which error is reported: 'custom', 'zero-one' or 'squared'."""
    if problem.loss.error is not None:
        return "custom"
    return "zero-one" if problem.labels.binary else "squared"


def sign_of_score(problem: "Problem") -> bool:
    """Whether the zero-one error compares the sign of r itself with the label."""
    return problem.predict is identity and error_kind(problem) == "zero-one"


def sign_of_gaussian(problem: "Problem") -> bool:
    """Whether the zero-one error compares the signs of two Gaussians, and so is an arccos of overlaps."""
    plain = sign_of_score(problem) and not problem.bias
    return plain and isinstance(problem.labels, Sign) and isinstance(problem.noise, Normal)


def square_of_sum(problem: "Problem") -> bool:
    """Whether the error is (r − Σr* − z)² with a z of known moments, whose mean over fresh samples is a closed form."""
    plain = problem.predict is identity and error_kind(problem) == "squared"
    return plain and isinstance(problem.labels, Linear) and bool(problem.noise_law.exact_moments)


def overlaps(problem: "Problem", overlap: Array) -> dict[str, Array]:
    """θᵀθ*/d, (…, k), by the names of results: along the teacher's units, and along directions of means."""
    told = {"overlap": overlap[..., : problem.read]}
    return told | ({"mean_overlap": overlap[..., problem.read :]} if problem.k > problem.read else {})


def on_samples(problem: "Problem") -> dict[str, SampleObservable]:
    """`loss` and `error` as functions of (r, r*, z) in canonical shapes, those that the problem defines."""
    observables: dict[str, SampleObservable] = {}
    if problem.has_loss:
        observables["loss"] = lambda r, r_star, z: fields.loss(problem, r, r_star, z)
    predict = problem.predict
    if predict is not None:
        custom = problem.loss.error
        score = ERRORS[error_kind(problem)] if custom is None else bound(custom, problem.loss)
        observables["error"] = lambda r, r_star, z: score(predict(fields.as_user(r)), fields.label(problem, r_star, z))
    return observables
