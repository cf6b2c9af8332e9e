"""`sl.from_torch` reads optimisers as PyTorch's documentation has them; its steps are written out here in NumPy."""

import math
from typing import Any

import numpy as np
import pytest
from agreement import assert_within

import sgdlimit as sl


def optimiser(kind: str, groups: int = 1, **settings) -> Any:
    """An object like those of torch.optim: its class name and param_groups."""
    defaults = {
        "SGD": dict(lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False, foreach=None),
        "Adam": dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, maximize=False),
        "AdamW": dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, maximize=False),
    }.get(kind, {"lr": 1e-3})
    made: Any = type(kind, (), {})()
    made.param_groups = [{"params": [f"w{i}"], **defaults, **settings} for i in range(groups)]
    return made


def torch_sgd(theta, gradient, memory, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    """A step as the page of torch.optim.SGD writes it."""
    gradient = gradient + weight_decay * theta
    memory["b"] = gradient if "b" not in memory else momentum * memory["b"] + gradient
    gradient = gradient + momentum * memory["b"] if nesterov else memory["b"]
    return theta - lr * gradient


def torch_adam(theta, gradient, memory, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    """A step as the pages of torch.optim.Adam and AdamW write it."""
    if decoupled:
        theta = theta - lr * weight_decay * theta
    else:
        gradient = gradient + weight_decay * theta
    k = memory["k"] = memory.get("k", 0) + 1
    m = memory["m"] = betas[0] * memory.get("m", 0.0) + (1 - betas[0]) * gradient
    v = memory["v"] = betas[1] * memory.get("v", 0.0) + (1 - betas[1]) * gradient**2
    return theta - lr * m / (1 - betas[0] ** k) / (np.sqrt(v / (1 - betas[1] ** k)) + eps)


def here(found: sl.FromTorch, d: int, thetas, gradients):
    """The same steps from what `from_torch` gives, by the formulas of `Step` and `Adam`, for rows of norm 1."""
    algorithm, how = found.algorithm, found.algorithm.step or sl.Step()
    eta = algorithm.temperature * algorithm.batch_size
    theta, velocity, m, v = thetas, 0.0, 0.0, 0.0
    ridge = getattr(found.penalty, "strength", 0.0)
    for k, gradient in enumerate(gradients, 1):
        full = gradient(theta) + ridge / d * theta
        rate = how.rate
        if rate is not None:
            beta2 = 1 - eta / (d * rate.window)
            m, v = rate.beta1 * m + (1 - rate.beta1) * full, beta2 * v + (1 - beta2) * full**2
            own = theta - eta / d * (rate.decay or 0.0) * theta
            theta = own - eta / math.sqrt(d) * rate.scale * m / (1 - rate.beta1**k) / np.sqrt(v / (1 - beta2**k))
        elif how.momentum is not None:
            velocity = how.momentum.beta * velocity + full
            theta = theta - eta * (full + how.momentum.beta * velocity if how.momentum.ahead else velocity)
        else:
            theta = theta - eta * full
    return theta


CASES = {
    "sgd": ("SGD", dict(lr=0.05), torch_sgd, {}),
    "decay": ("SGD", dict(lr=0.05, weight_decay=0.02), torch_sgd, {}),
    "heavy ball": ("SGD", dict(lr=0.01, momentum=0.8, weight_decay=0.01), torch_sgd, {}),
    "nesterov": ("SGD", dict(lr=0.01, momentum=0.8, nesterov=True), torch_sgd, {}),
    "adam": ("Adam", dict(lr=2e-3, betas=(0.9, 0.99), weight_decay=0.02), torch_adam, {}),
    "adamw": ("AdamW", dict(lr=2e-3, betas=(0.8, 0.98), weight_decay=0.1), torch_adam, {"decoupled": True}),
}


@pytest.mark.parametrize("features", ["unit", "standard"])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_documentation(case, features):
    """Ten steps of least squares agree to rounding (eps of Adam), in the weights of rows of norm 1."""
    kind, settings, step, more = CASES[case]
    d, batch, steps = 30, 4, 10
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(batch, d)), rng.normal(size=batch)) for _ in range(steps)]
    scale = math.sqrt(d) if features == "unit" else 1.0  # what features are divided by; rows have norm about 1
    start = rng.normal(size=d)
    theta, memory = start * (scale / math.sqrt(d)), {}
    for U, y in batches:
        features_of = U / scale
        gradient = features_of.T @ (features_of @ theta - y) / batch
        theta = step(theta, gradient, memory, **settings, **more)
    found = sl.from_torch(optimiser(kind, **settings), batch, features, d)
    pulls = [lambda at, U=U, y=y: U.T / math.sqrt(d) @ (U / math.sqrt(d) @ at - y) / batch for U, y in batches]
    np.testing.assert_allclose(here(found, d, start, pulls), theta * (math.sqrt(d) / scale), rtol=1e-5, atol=1e-5)
    eta = found.algorithm.temperature * batch
    assert found.time_of_step == pytest.approx(eta / d)
    assert found.time_of_step == pytest.approx(found.algorithm.step_time(d, 0.0))


def test_words_say_what_the_limit_makes_of_it():
    found = sl.from_torch(optimiser("SGD", lr=0.1, momentum=0.9), 5, "unit", 100)
    assert found.algorithm == sl.SGD(0.1 / 5, batch_size=5, step=sl.Step(momentum=sl.HeavyBall(beta=0.9)))
    assert isinstance(found.penalty, sl.NoPenalty)
    assert "η/(1 − β) = 1" in found.words
    # the table of docs/howto/momentum.md: η = √(d lr), κ = (1 − β)√(d/lr)
    assert f"friction={0.1 * math.sqrt(100 / 0.1):.6g}" in found.words
    assert f"SGD({math.sqrt(100 * 0.1) / 5:.6g}" in found.words
    adam = sl.from_torch(optimiser("Adam", lr=1e-3), 8, "standard", 500)
    assert adam.algorithm.step is not None
    assert isinstance(adam.algorithm.step.rate, sl.Adam)
    assert adam.algorithm.step.rate.window == pytest.approx(1.0)
    assert adam.time_of_step == pytest.approx(1e-3)
    several = sl.from_torch(optimiser("SGD", groups=3), 1, "unit", 10)
    assert several == sl.from_torch(optimiser("SGD"), 1, "unit", 10)


WRONG = {
    "amsgrad": lambda: sl.from_torch(optimiser("Adam", amsgrad=True), 1, "unit", 10),
    "maximize": lambda: sl.from_torch(optimiser("SGD", maximize=True), 1, "unit", 10),
    "dampening": lambda: sl.from_torch(optimiser("SGD", momentum=0.9, dampening=0.1), 1, "unit", 10),
    "momentum": lambda: sl.from_torch(optimiser("SGD", momentum=1.0), 1, "unit", 10),
    "betas": lambda: sl.from_torch(optimiser("Adam", betas=(0.9, 1.0)), 1, "unit", 10),
    "eps": lambda: sl.from_torch(optimiser("Adam", eps=0.1), 1, "unit", 10),
    "lr": lambda: sl.from_torch(optimiser("SGD", lr=-1.0), 1, "unit", 10),
    "features": lambda: sl.from_torch(optimiser("SGD"), 1, "rows", 10),
    "batch_size": lambda: sl.from_torch(optimiser("SGD"), 0, "unit", 10),
    "d": lambda: sl.from_torch(optimiser("SGD"), 1, "unit", 1),
    "Adagrad": lambda: sl.from_torch(optimiser("Adagrad"), 1, "unit", 10),
    "param_groups": lambda: sl.from_torch(object(), 1, "unit", 10),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_translated_is_refused_by_name(name):
    with pytest.raises(sl.InputError, match=name):
        WRONG[name]()


def test_groups_that_differ():
    made = optimiser("SGD", groups=2)
    made.param_groups[1]["lr"] = 0.5
    with pytest.raises(sl.InputError, match=r"lr = 0.001 and 0.5 in two groups.*one group"):
        sl.from_torch(made, 1, "unit", 10)


# --- PyTorch itself ---


def of_torch(torch: Any, kind: str, weights: Any, **settings) -> Any:
    """A real optimiser of these weights."""
    return getattr(torch.optim, kind)([weights], **settings)


@pytest.mark.slow
@pytest.mark.parametrize("features", ["unit", "standard"])
@pytest.mark.parametrize("case", CASES)
def test_real_optimisers(case, features):
    """What stands in for them above has their settings, and their own steps are those that are read from them."""
    torch = pytest.importorskip("torch")
    kind, settings, _, _ = CASES[case]
    d, batch, steps = 30, 4, 10
    rng = np.random.default_rng(0)
    start, scale = rng.normal(size=d), math.sqrt(d) if features == "unit" else 1.0
    theta = torch.tensor(start * scale / math.sqrt(d), requires_grad=True)
    real = of_torch(torch, kind, theta, **settings)
    found = sl.from_torch(real, batch, features, d)
    assert found == sl.from_torch(optimiser(kind, **settings), batch, features, d)
    batches = [(rng.normal(size=(batch, d)), rng.normal(size=batch)) for _ in range(steps)]
    for U, y in batches:
        real.zero_grad()
        (0.5 * (torch.tensor(U / scale) @ theta - torch.tensor(y)) ** 2).mean().backward()
        real.step()
    pulls = [lambda at, U=U, y=y: U.T / math.sqrt(d) @ (U / math.sqrt(d) @ at - y) / batch for U, y in batches]
    ended = theta.detach().numpy() * (math.sqrt(d) / scale)
    np.testing.assert_allclose(here(found, d, start, pulls), ended, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["sgd", "decay", "heavy ball", "adamw", "real defaults"])
def test_a_script_of_pytorch_lies_on_its_curve(case):
    """A layer trained with torch on standard features, as its users write it: the curve of what `from_torch` reads."""
    torch = pytest.importorskip("torch")
    kind, settings = {
        "sgd": ("SGD", dict(lr=4e-3)),
        "decay": ("SGD", dict(lr=4e-3, weight_decay=0.1)),
        "heavy ball": ("SGD", dict(lr=1e-3, momentum=0.75)),
        "adamw": ("AdamW", dict(lr=1e-3, betas=(0.9, 0.999), weight_decay=0.5)),
        "real defaults": ("Adam", dict()),
    }[case]
    d, n, batch, trials, noise = 500, 1000, 4, 12, 0.3
    rng = np.random.default_rng(1)
    torch.manual_seed(0)
    read = sl.from_torch(of_torch(torch, kind, torch.zeros(d, requires_grad=True), **settings), batch, "standard", d)
    steps, curves = round(1.5 / read.time_of_step), []
    for _ in range(trials):
        teacher = rng.normal(size=d) / math.sqrt(d)
        rows = rng.normal(size=(n, d))
        X, y = torch.tensor(rows), torch.tensor(rows @ teacher + noise * rng.normal(size=n))
        layer = torch.nn.Linear(d, 1, bias=False).double()
        torch.nn.init.zeros_(layer.weight)
        optimizer = of_torch(torch, kind, layer.weight, **settings)
        assert sl.from_torch(optimizer, batch, "standard", d) == read
        seen = []
        for step in range(steps + 1):
            if step % (steps // 5) == 0:
                gap = layer.weight.detach().numpy()[0] - teacher
                seen.append(float(gap @ gap) + noise**2)
            drawn = torch.randperm(n)[:batch]
            optimizer.zero_grad()
            (0.5 * torch.nn.functional.mse_loss(layer(X[drawn])[:, 0], y[drawn])).backward()
            optimizer.step()
        curves.append(seen)
    problem = sl.Problem(
        loss=sl.Square(), penalty=read.penalty, sample_ratio=n / d, teacher=sl.Normal(1.0), noise=sl.Normal(noise)
    )
    times = np.arange(0, steps + 1, steps // 5) * read.time_of_step
    value, error = sl.solve(problem, read.algorithm, times=times, tol=1e-2).curve("test_error")
    mean, spread = np.mean(curves, axis=0), np.std(curves, axis=0, ddof=1) / math.sqrt(trials)
    print(case, np.round(np.abs(mean - value)[1:] / value[1:], 4), np.round((mean - value)[1:] / spread[1:], 1))
    assert value[-1] < 0.8 * value[0]
    # the length of θ* and of a row differ by O(1/√d) from trial to trial, the limit itself by O(1/d)
    assert_within((mean - value)[1:], np.hypot(np.hypot(spread, error), value / d)[1:], trials=trials)
