"""Checks of a class of your own against the contract that it implements.

Each check takes one object and returns nothing where every promise of the contract holds; otherwise it raises an
AssertionError that names the class and the promise that is broken. Draws have fixed seeds. What is compared with draws
may differ by so many standard errors that a class which keeps its promises fails with probability `FALSE_ALARM`.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from .algorithms import Algorithm
from .algorithms.base import StoredData
from .errors import InputError
from .problem import DataLaw, Loss, Noise, Normal, Penalty, Point, Problem, Square, fields
from .problem.entries import GaussianEntries
from .problem.jumps import SIZE, Jump, search
from .problem.labels import LabelRule
from .problem.laws import EntryLaw
from .problem.losses import LossLike
from .problem.penalties import PenaltyLike

__all__ = ["check_algorithm", "check_data", "check_labels", "check_law", "check_loss", "check_penalty"]

FALSE_ALARM = 1e-4
"""Probability that one comparison with draws fails although the promise is kept, had its seed not been fixed."""
DRAWS = 100_000
POINTS = 64
"""Points at which a gradient is compared with differences of its function."""
REACHES = np.geomspace(0.05, 16.0, 4)
"""Lengths of the lines along which jumps are looked for."""
LINES = 8
"""Points through which they go."""
TIMES = np.array([0.0, 0.3, 0.5, 0.9, 2.4, 2.5])
"""Edges of the intervals whose increments are looked at."""
SAMPLES, DIM, REPEATS = 256, 512, 8
"""Of the training set on which updates are compared with increments, and how many runs there are."""
MOST_STEPS = 4000


def check_loss(loss: LossLike, *, labels: Sequence[float] = (-1.0, 1.0), width: int = 1) -> None:
    """Check a loss L(r, y): a scalar in jax.numpy, continuous in r, with the gradient of its value; `smooth` is true.

    labels: values of y at which it is looked at. width: m, the length of r; at 1 it is a number.
    """
    _model(loss, LossLike)
    _taken(
        loss, lambda: Problem(loss=loss, labels=Noise(), noise=Point(float(labels[0])), sample_ratio=1.0, width=width)
    )
    _function(loss, "L(r, y)", lambda r, y: loss(fields.as_user(r), y), width, labels)


def check_penalty(penalty: PenaltyLike, *, width: int = 1) -> None:
    """Check a penalty H(θ): as a loss, and that `quadratic` and `prox` are true where they are declared.

    width: m, the length of θ; at 1 it is a number.
    """
    _model(penalty, PenaltyLike)
    plain = Square() if width == 1 else Loss(_product)
    _taken(penalty, lambda: Problem(loss=plain, labels=Noise(), penalty=penalty, sample_ratio=1.0, width=width))

    def value(theta: Any, _: Any = None) -> Any:
        return penalty(fields.as_user(theta))

    _function(penalty, "H(θ)", value, width)
    with jax.enable_x64(True):
        points = _points(width)
        slope = np.asarray(jax.vmap(jax.grad(value))(jnp.concatenate([points, 2.0 * points, 0.0 * points])))
        once, twice, zero = np.split(slope, 3)
        linear = np.allclose(twice, 2 * once, rtol=1e-9, atol=1e-12) and np.allclose(zero, 0.0, atol=1e-12)
        _hold(penalty, "quadratic says that ∇H is linear in θ", linear or not penalty.quadratic)
        if penalty.prox is None:
            return
        step = 0.7
        nearest = jax.vmap(lambda v: penalty.prox(v, step))(points)
        _hold(penalty, "prox(θ, step) has the shape of θ", nearest.shape == points.shape)
        around = nearest[None] + np.concatenate([_points(width)[:, None, :] * size for size in (1e-3, 0.1, 1.0)])
        both = jax.vmap(lambda x, v: 0.5 * jnp.sum((x - v) ** 2) + step * value(x))
        best, others = both(nearest, points), jax.vmap(lambda x: both(x, points))(around)
        least = bool(np.all(others >= best - 1e-9 * (1 + np.abs(best))))
        _hold(penalty, "prox(θ, step) minimises ½|x − θ|² + step·H(x)", least)


def check_labels(rule: LabelRule, *, noise: EntryLaw | None = None) -> None:
    """Check a rule y = f(r*, z): a finite scalar in jax.numpy; `binary` and `smooth` are true where they are declared.

    noise: the law of z, N(0, 1) by default; where `binary` needs z = ±1 or a class, give that law.
    """
    _model(rule, LabelRule)
    law = _call(rule, "noise(law) is the law of z", lambda: rule.noise(Normal(1.0) if noise is None else noise))
    _hold(rule, "noise(law) is a law of entries", isinstance(law, EntryLaw))
    z = law.sample(jax.random.key(1), (POINTS,))
    with jax.enable_x64(True):
        r_star = jnp.asarray(_points(1)[:, 0])
        words = "f(r*, z) is a finite scalar, written in jax.numpy"
        y = _call(
            rule, words, lambda: jax.jit(jax.vmap(lambda f, s, v: f(s, v), in_axes=(None, 0, 0)))(rule, r_star, z)
        )
        _hold(rule, words, y.shape == (POINTS,) and bool(np.all(np.isfinite(y))))
        _hold(rule, "binary says that labels are ±1", not rule.binary or bool(np.all(np.abs(y) == 1)))
        if rule.smooth:
            found = _searched(lambda x, v: rule(x[0], v) + 0.0 * x[0], r_star[:, None], z)
            _hold(rule, "smooth says that f is continuous in r*", np.max(found.size) <= SIZE)


def check_law(law: EntryLaw) -> None:
    """Check a law of one coordinate: draws have the stated moments, and points spread over [0, 1] give the same law."""
    _model(law, EntryLaw)
    words = "sample(key, shape) draws finite entries of that shape from the key"
    count = 2 * DRAWS
    draw = np.asarray(_call(law, words, lambda: law.sample(jax.random.key(3), (count, 2))), dtype=float)
    again = np.asarray(law.sample(jax.random.key(3), (count, 2)), dtype=float)
    _hold(law, words, draw.shape == (count, 2) and np.array_equal(draw, again) and bool(np.all(np.isfinite(draw))))
    mean, second = _call(law, "moments(size) is a mean and a matrix", lambda: law.moments(2))
    shaped = np.shape(mean) == (2,) and np.shape(second) == (2, 2)
    _hold(law, "moments(size) has shapes (size,) and (size, size)", shaped)
    own = 1.0 if law.exact_moments else 1.4  # estimated from as many draws again
    products = np.einsum("na,nb->nab", draw, draw)

    def error(x: Any) -> Any:
        return own * np.std(x, axis=0) / np.sqrt(count) + 1e-6 * (1 + np.abs(np.mean(x, axis=0)))

    _within(law, "moments(size) has the mean of the draws", draw.mean(0) - mean, error(draw))
    _within(law, "moments(size) has the second moments of the draws", products.mean(0) - second, error(products))
    u = np.random.default_rng(0).uniform(size=(count, 2))
    words = "spread_out(u, key) gives one entry for each uniform point, with the law of the draws"
    other = np.asarray(_call(law, words, lambda: law.spread_out(u, jax.random.key(9))), dtype=float)
    _hold(law, words, other.shape == (count,))
    _within(law, words, other.mean() - mean[0], error(other))
    _within(law, words, np.mean(other**2) - second[0, 0], error(other**2))
    levels = np.quantile(draw[:, 0], np.linspace(0.05, 0.95, 7)) + 1e-6
    below = [np.mean(part[:, None] <= levels, axis=0) for part in (other, draw[:, 0])]
    _within(law, words, below[0] - below[1], np.sqrt(0.5 / count))


def check_data(data: DataLaw, *, dim: int = 400) -> None:
    """Check a law of rows: its table, its classes, and that finite rows of dimension `dim` have their moments.

    Where `dim` differs from the limit by more than a tenth of a moment, take a larger one.
    """
    _model(data, DataLaw)
    table = _call(data, "table() is a Table", lambda: data.table())
    shapes = {np.shape(part) for part in table[:3]}
    _hold(
        data,
        "table() has share, variance and factor of one shape (groups,)",
        len(shapes) == 1 and table.share.ndim == 1,
    )
    share = bool(np.all(table.share > 0)) and abs(table.share.sum() - 1) < 1e-9
    _hold(data, "shares of the table are positive and sum to 1", share, f": {table.share.sum():.6g}")
    some = bool(np.all(table.variance >= 0)) and bool(np.any(table.variance > 0))
    _hold(data, "variances of the table are ≥ 0, and not all 0", some)
    _hold(data, "unseen lies in [0, 1)", 0 <= table.unseen < 1)
    plain = len(table.share) == 1 and table.variance[0] == table.factor[0] == 1 and table.unseen == 0
    _hold(data, "iid says that the table is one group of variance and factor 1", plain or not data.iid)
    _hold(
        data, "levels is at least the number of groups, or None", data.levels is None or data.levels >= len(table.share)
    )
    again = jax.tree.map(lambda leaf: leaf, data).table()
    _hold(data, "table() is that of its leaves", all(np.array_equal(a, b) for a, b in zip(table, again, strict=True)))
    if data.classes is not None:
        means, weights = (np.asarray(part, dtype=float) for part in data.classes)
        _hold(data, "classes have means (classes, directions)", means.ndim == 2 and bool(np.all(np.isfinite(means))))
        priors = weights.shape == means.shape[:1] and bool(np.all(weights > 0)) and abs(weights.sum() - 1) < 1e-6
        _hold(data, "classes have priors > 0 that sum to 1", priors)
    teachers, count = 32, 4096
    law, key = Normal(1.0), jax.random.key(5)
    star = law.sample(key, (dim, teachers))
    layout = _call(data, "at(dim) is a layout of rows", lambda: data.at(dim))
    words = "rows of at(dim) are x (count, d) and r* (count, k)"
    drawn = partial(layout.draw, key, GaussianEntries(), star, lambda key, rows: law.sample(key, (rows, teachers)))
    rows, tests = _call(data, words, drawn)
    for part in (rows, tests):
        X, r_star = (np.asarray(a, dtype=float) for a in part.draw(jax.random.key(6), count))
        _hold(data, words, X.shape == (count, dim) and r_star.shape == (count, teachers))
        _hold(data, "θ* of rows is (d, k)", np.shape(part.theta_star) == (dim, teachers))
        held = table.share @ table.variance
        size = np.sum(X**2, axis=1)
        _within(
            data, "rows have the variances of the table", size.mean() - held, size.std() / np.sqrt(count) + 0.025 * held
        )
        told = table.seen(np.eye(2), 1)[1, 1]
        words_ = "r* has the second moment of the table, with what is unseen"
        _within(
            data, words_, np.mean(r_star**2) - told, 0.025 * told + np.std(np.mean(r_star**2, axis=1)) / np.sqrt(count)
        )
        left = r_star - X @ np.asarray(part.theta_star, dtype=float)
        hidden = table.unseen * np.mean(np.asarray(star, dtype=float) ** 2)
        words_ = "r* is θ*ᵀx, and beside it what is unseen"
        _within(data, words_, np.mean(left**2) - hidden, 0.025 * told + 1e-6)


def check_algorithm(algorithm: Algorithm, *, sample_ratio: float = 1.5) -> None:
    """Check an algorithm: what it declares, the law of its increments, and that its updates have the same law.

    Increments: mean γ, the stated variance, `expected` given the past, independence where it is declared. Updates: on
    rows that do not overlap the weights are sums of increments, whose mean and variance are compared.
    sample_ratio: δ at which increments are looked at.
    """
    _model(algorithm, Algorithm)
    for name in ("independent", "gaussian", "discrete", "jumps", "multi_pass_only"):
        _hold(algorithm, f"{name} is declared, True or False", isinstance(getattr(algorithm, name, None), bool))
    for name in ("stable", "accurate"):
        _hold(algorithm, f"{name} is a positive number", getattr(algorithm, name) > 0)
    _increments(algorithm, sample_ratio)
    _updates(algorithm)


def _increments(algorithm: Algorithm, delta: float) -> None:
    """The law of Z over uneven intervals: moments, what is declared of it, and what is known of the next."""
    words = "increments(state, key, t, dt, δ) gives a state like the last and Z of the shape of the start"
    step = jax.jit(lambda a, *given: (a.expected(given[0], *given[2:]), *a.increments(*given)))
    state = _call(
        algorithm,
        "start_increments(key, shape, δ) gives a state",
        lambda: algorithm.start_increments(jax.random.key(1), (DRAWS,), delta),
    )
    told, past = [], []
    for i, (t, dt) in enumerate(zip(TIMES[:-1].tolist(), np.diff(TIMES).tolist(), strict=True)):
        key, before = jax.random.fold_in(jax.random.key(2), i), jax.tree.map(jnp.shape, state)
        expected, state, Z = _call(algorithm, words, partial(step, algorithm, state, key, t, dt, delta))
        _hold(algorithm, words, Z.shape == (DRAWS,) and jax.tree.map(jnp.shape, state) == before)
        Z, expected = (np.asarray(part, dtype=float) for part in (Z, expected))
        variance, centred = float(algorithm.variance(t, dt, delta)), Z - dt
        _within(algorithm, "Z has mean dt", centred.mean(), Z.std() / np.sqrt(DRAWS) + 1e-6)
        words_ = "Z has the variance that variance(t, dt, δ) says"
        _within(algorithm, words_, (centred**2).mean() - variance, (centred**2).std() / np.sqrt(DRAWS) + 1e-6)
        if algorithm.independent:
            _hold(algorithm, "independent increments have expected(state, t, dt, δ) = dt", np.allclose(expected, dt))
        surprise = Z - expected
        for other in past:  # what is known of Z beforehand is all in `expected`
            words_ = (
                "independent increments are uncorrelated"
                if algorithm.independent
                else "expected(state, t, dt, δ) is E[Z | the past]"
            )
            _within(algorithm, words_, np.mean(surprise * other), np.std(surprise * other) / np.sqrt(DRAWS) + 1e-6)
        past.append(centred)
        told.append((t, dt, variance, Z))
    tau = algorithm.noise_temperature
    for t, dt, variance, Z in told:
        if algorithm.gaussian and variance > 0:
            x = (Z - dt) / np.sqrt(variance)
            moments = np.array([np.mean(x**3), np.mean(x**4) - 3])
            _within(algorithm, "gaussian says that increments are", moments, np.sqrt(np.array([15, 96]) / DRAWS))
        at = None if tau is None else float(algorithm.temperature_at(t + dt / 2)) * delta
        if at is not None and algorithm.independent:
            _hold(
                algorithm, "noise_temperature τ is that of the variance τδγ", np.isclose(variance, at * dt, rtol=1e-5)
            )
        if at and algorithm.jumps:
            _hold(algorithm, "jumps says that Z is a multiple of τδ", np.allclose(Z / at, np.round(Z / at), atol=1e-3))


def _updates(algorithm: Algorithm) -> None:
    """Updates at ℓ = −1 and h = 1 on rows of a unit matrix: every weight becomes Z/δ − T, those beyond the rows −T."""
    delta = SAMPLES / DIM
    problem = Problem(loss=Loss(_product), labels=Noise(), noise=Point(-1.0), penalty=Penalty(_sum), sample_ratio=delta)
    try:
        algorithm.check_simulation(problem, SAMPLES)
    except InputError:
        return
    step = float(algorithm.step_time(DIM, 0.05))
    _hold(algorithm, "step_time(dim, dt) is a positive time", step > 0)
    steps = 1 if algorithm.discrete else int(np.clip(np.ceil(1 / step), 1, MOST_STEPS))
    end = steps * step
    data = StoredData(problem, jnp.eye(SAMPLES, DIM), jnp.zeros((SAMPLES, 0)), jnp.full(SAMPLES, -1.0))
    run = jax.vmap(lambda key: _trained(algorithm, data, key, step, steps))
    words = "update(data, θ, state, t, dt, draw, key) gives θ and state like those before"
    theta = _call(algorithm, words, lambda: run(jax.random.split(jax.random.key(0), REPEATS)))
    theta = np.asarray(theta, dtype=float)[:, :, 0]
    beyond = np.abs(theta[:, SAMPLES:] + end).max()
    _hold(algorithm, "an update moves weights by the penalty, for the time of a step", beyond < 1e-3 * max(end, 1.0))
    Z = delta * (theta[:, :SAMPLES] + end)
    if algorithm.independent:
        variance = sum(float(algorithm.variance(k * step, step, delta)) for k in range(steps))
    else:
        variance = float(algorithm.variance(0.0, end, delta))
    centred = (Z - end).ravel()
    spread, share = centred.std() / np.sqrt(centred.size), (algorithm.rows or 0) / SAMPLES
    _within(algorithm, "updates have the mean of the increments", centred.mean(), spread + 1e-4 * end)
    error = (centred**2).std() / np.sqrt(centred.size) + share * variance + 1e-6  # a batch has no sample twice
    _within(algorithm, "updates have the variance of the increments", np.mean(centred**2) - variance, error)


@partial(jax.jit, static_argnums=4)
def _trained(algorithm: Algorithm, data: StoredData, key: Any, step: Any, steps: int) -> Any:
    """θ after some updates from zero, as a simulation makes them."""
    start, draws, noise = jax.random.split(key, 3)
    table = algorithm.draws(draws, 0, steps, data.samples)

    def update(carry: Any, k: Any) -> Any:
        draw = jax.tree.map(lambda rows: rows[k], table)
        theta, state = carry
        return algorithm.update(data, theta, state, k * step, step, draw, jax.random.fold_in(noise, k)), None

    theta = jnp.zeros((data.X.shape[1], 1))
    return jax.lax.scan(update, (theta, algorithm.start_updates(start, data)), jnp.arange(steps))[0][0]


def _product(r: Any, y: Any) -> Any:
    return jnp.sum(r * y)


def _sum(theta: Any) -> Any:
    return jnp.sum(theta)


def _points(width: int) -> np.ndarray:
    return 2.0 * np.random.default_rng(0).standard_normal((POINTS, width))


def _hold(model: Any, promise: str, kept: Any, found: str = "") -> None:
    if not kept:
        raise AssertionError(f"{type(model).__name__}: {promise}{found}")


def _within(model: Any, promise: str, difference: Any, stderr: Any) -> None:
    """Every difference is explained by its standard error, at one false-alarm rate for all of them together."""
    z = np.abs(np.asarray(difference, dtype=float)) / np.maximum(stderr, 1e-12)
    allowed = float(-ndtri(FALSE_ALARM / np.size(z) / 2))
    _hold(model, promise, np.max(z) <= allowed, f": off by {np.max(z):.2f} standard errors, at most {allowed:.2f}")


def _call(model: Any, promise: str, fn: Callable[[], Any]) -> Any:
    """What a method gives; an exception of its own breaks the promise."""
    try:
        return fn()
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise AssertionError(f"{type(model).__name__}: {promise}; it raised {type(error).__name__}: {said}") from error


def _taken(model: Any, fn: Callable[[], Problem]) -> None:
    _call(model, "a Problem takes it: scalars of the right arguments, written in jax.numpy", fn)


def _model(model: Any, contract: type) -> None:
    """A tree of numbers that jax rebuilds, equal to its copy."""
    _hold(model, f"it is a subclass of sl.{contract.__name__}", isinstance(model, contract))
    leaves, structure = jax.tree.flatten(model)
    known = not any(leaf is model for leaf in leaves)
    _hold(model, "jax knows it as a tree: decorate it with jax.tree_util.register_dataclass", known)
    numbers = all(np.asarray(leaf).dtype.kind in "biuf" for leaf in leaves)
    _hold(model, "its leaves are numbers: declare functions, names and sizes static", numbers)
    _call(model, "its static fields can be hashed", lambda: hash(structure))
    for twin in (jax.tree.unflatten(structure, leaves), copy.copy(model)):
        words = "a copy of it is equal, with the same hash: make it a frozen dataclass"
        _hold(model, words, _call(model, words, lambda twin=twin: twin == model and hash(twin) == hash(model)))


def _function(model: Any, name: str, value: Callable[..., Any], width: int, labels: Sequence[float] = (0.0,)) -> None:
    """A scalar function of x (width,) and a label: continuous in x, with the gradient of its value; `smooth` holds."""
    with jax.enable_x64(True):
        points, y, h = _points(width), np.resize(np.asarray(labels, dtype=float), POINTS), 1e-5
        slope = np.asarray(jax.jit(jax.vmap(jax.grad(value)))(points, y))
        _hold(model, f"the gradient of {name} is finite", np.all(np.isfinite(slope)))
        moved = points[:, None] + h * np.concatenate([np.eye(width), -np.eye(width)])
        ends = np.asarray(jax.jit(jax.vmap(jax.vmap(value, in_axes=(0, None))))(moved, y))
        close = np.allclose(slope, (ends[:, :width] - ends[:, width:]) / (2 * h), rtol=1e-5, atol=1e-6)
        _hold(model, f"the gradient of {name} is that of its value", close)
        found = _searched(value, points, y)
        _hold(model, f"{name} is continuous", np.max(found.size) <= SIZE)
        found = _searched(jax.grad(value), points, y)
        _hold(model, f"the gradient of {name} is finite at kinks, too", np.all(found.sound))
        smooth = np.max(found.size) <= SIZE or not model.smooth
        _hold(model, f"smooth says that the gradient of {name} is continuous", smooth)


def _searched(fn: Callable[..., Any], points: Any, *others: Any) -> Jump:
    """Jumps of a function along lines through the first few points."""
    along = jax.vmap(lambda x, *rest: search(lambda v: fn(v, *rest), x, jnp.asarray(REACHES)))
    return jax.jit(along)(*(part[:LINES] for part in (points, *others)))
