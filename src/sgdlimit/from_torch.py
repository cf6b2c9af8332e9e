"""Read a PyTorch optimiser and say what it is here: algorithm, penalty, and how long a step is.

An object is read by its class name and `param_groups`; torch is not imported. With rows x of norm 1 the gradient of a
sample is x ℓ; standard features are √d x, for which the weights are θ/√d (docs/howto/momentum.md).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .algorithms import SGD, Adam, AdamW, HeavyBall, Nesterov, Step
from .errors import real, reject, whole
from .problem import NoPenalty, PenaltyLike, Ridge

FEATURES = ("unit", "standard")
OPTIMISERS = "torch.optim.SGD, torch.optim.Adam and torch.optim.AdamW can be read"
LARGEST_EPS = 1e-4
"""Of Adam: a larger one is not small beside √v, of order 1/√d for rows of norm 1."""
DIFFERENT = ("foreach", "fused", "capturable", "differentiable", "params", "param_names")
"""Settings that change nothing of what a step does."""


class FromTorch(NamedTuple):
    """What an optimiser of PyTorch is here: `algorithm, penalty, time_of_step, words`."""

    algorithm: SGD
    penalty: PenaltyLike
    """What `weight_decay` is in `Problem(penalty=...)`."""
    time_of_step: float
    """Time t of one step of the optimiser, η/d."""
    words: str
    """What was translated, and what the limit makes of it."""


def from_torch(optimizer: Any, batch_size: int, features: str, d: int) -> FromTorch:
    """Read a `torch.optim.SGD`, `Adam` or `AdamW` object: the algorithm that it is, the ridge, the time of a step.

    batch_size: samples of a step, whose gradients are averaged.
    features: "unit", rows of norm 1, as x is here; or "standard", d features of variance 1, that is x times √d. On
        "standard" features the weights here are √d times those of PyTorch.
    d: how many features there are.

    The loss is the mean over the batch, as PyTorch's losses have it by default; `Square` is half of its MSELoss.
    """
    batch_size = whole("batch_size", batch_size, least=1, why="samples of a batch, a whole number ≥ 1")
    d = whole("d", d, least=2, why="the number of features, a whole number ≥ 2")
    if features not in FEATURES:
        raise reject("features", repr(features), 'it must be "unit", rows of norm 1, or "standard", of variance 1')
    settings = _settings(optimizer)
    rate = real("lr", _number(settings, "lr"), above=0, why="a learning rate is a positive number")
    for name, why in {
        "maximize": "it climbs; turn the sign of the loss and leave it out",
        "amsgrad": "the largest v so far has no rule here; leave it out",
    }.items():
        if settings.get(name):
            raise reject(name, settings[name], why)
    decay = real("weight_decay", settings.get("weight_decay", 0.0), least=0, why="it must be a number ≥ 0")
    kind = type(optimizer).__name__
    if kind == "AdamW" or settings.get("decoupled_weight_decay"):
        return _adam(settings, rate, decay, batch_size, features, d, decoupled=True)
    if kind == "Adam":
        return _adam(settings, rate, decay, batch_size, features, d, decoupled=False)
    if kind == "SGD":
        return _sgd(settings, rate, decay, batch_size, features, d)
    raise reject("optimizer", kind, OPTIMISERS)


def _settings(optimizer: Any) -> Mapping[str, Any]:
    """Settings of the one group of parameters, or of several that share them."""
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list) or not groups or not all(isinstance(group, Mapping) for group in groups):
        raise reject("optimizer", type(optimizer).__name__, f"it has no param_groups; {OPTIMISERS}")
    told = [{name: value for name, value in group.items() if name not in DIFFERENT} for group in groups]
    for group in told[1:]:
        for name in group.keys() | told[0].keys():
            if group.get(name) != told[0].get(name):
                given = f"{name} = {told[0].get(name)} and {group.get(name)} in two groups"
                raise reject("optimizer", given, "all weights of the student have one algorithm; give one group")
    return told[0]


def _number(settings: Mapping[str, Any], name: str) -> Any:
    if name not in settings:
        raise reject(name, "nothing", f"a group of this optimiser must have it; {OPTIMISERS}")
    return settings[name]


def _ridge(decay: float, features: str, d: int) -> PenaltyLike:
    """λ of ½λ|θ|²/d: PyTorch adds weight_decay·θ to the gradient, which is λθ/d for rows of norm 1."""
    return Ridge(decay * d if features == "unit" else decay) if decay else NoPenalty()


def _sgd(settings: Mapping[str, Any], lr: float, decay: float, batch: int, features: str, d: int) -> FromTorch:
    beta = real("momentum", settings.get("momentum", 0.0), least=0, why="it must be a number with 0 ≤ β < 1")
    if not beta < 1:
        raise reject("momentum", beta, "it must be a number with 0 ≤ β < 1")
    if settings.get("dampening"):
        why = "a dampened gradient has no rule here; set it to 0, and lr to lr·(1 − dampening)"
        raise reject("dampening", settings["dampening"], why)
    eta = lr if features == "unit" else lr * d
    step, words = None, f"SGD with η = {eta:.6g}"
    if beta:
        kind = Nesterov if settings.get("nesterov") else HeavyBall
        step = Step(momentum=kind(beta=beta))
        friction = (1 - beta) * math.sqrt(d / eta)
        own, temperature = math.sqrt(d * eta), math.sqrt(d * eta) / batch
        words += (
            f" and {kind.__name__}(beta={beta:g}): in the limit this is SGD with η/(1 − β) = {eta / (1 - beta):.6g}"
        )
        words += f"; as a momentum that the limit sees it is SGD({temperature:.6g}, batch_size={batch}, step=sl.Step("
        words += f"momentum=sl.{kind.__name__}(friction={friction:.6g}))), a step of which lasts {own / d:.6g}"
    algorithm = SGD(eta / batch, batch_size=batch, step=step)
    return FromTorch(algorithm, _ridge(decay, features, d), eta / d, words)


def _adam(
    settings: Mapping[str, Any], lr: float, decay: float, batch: int, features: str, d: int, decoupled: bool
) -> FromTorch:
    """θ moves by lr·√d·m̂/√v̂ with standard features, by lr·m̂/√v̂ with rows of norm 1; here (η/√d)·scale·m̂/√v̂."""
    first, second = _number(settings, "betas")
    for name, beta in {"betas[0]": first, "betas[1]": second}.items():
        if not 0 <= real(name, beta, least=0, most=1, why="it must be a number with 0 ≤ β < 1") < 1:
            raise reject(name, beta, "it must be a number with 0 ≤ β < 1")
    if (eps := real("eps", settings.get("eps", 0.0), least=0, why="it must be a number ≥ 0")) > LARGEST_EPS:
        raise reject("eps", eps, f"it is no rounding beside √v; the rule here has none, take at most {LARGEST_EPS:g}")
    eta = lr * math.sqrt(d) if features == "unit" else lr * d
    window = eta / (d * (1 - second))
    words = f"η = {eta:.6g} with scale = 1, so that t = lr·k{'/√d' * (features == 'unit')} after k steps; "
    words += f"v remembers a time {window:.6g}, {1 / (1 - second):.6g} steps; eps is left out; "
    words += f"beta1 = {first:g} changes nothing in the limit"
    given: dict[str, Any] = {"scale": 1.0, "beta1": first, "window": window}
    if decoupled:
        # θ ← θ − lr·weight_decay·θ is θ − (η/d)·decay·θ
        rule: Any = AdamW(decay=decay * lr * d / eta, **given)
        penalty: PenaltyLike = NoPenalty()
    else:
        rule, penalty = Adam(**given), _ridge(decay, features, d)
    algorithm = SGD(eta / batch, batch_size=batch, step=Step(rate=rule))
    return FromTorch(algorithm, penalty, eta / d, words)
