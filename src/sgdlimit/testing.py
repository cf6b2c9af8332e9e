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
from .algorithms.samples import StoredData, Weights
from .errors import InputError
from .problem import DataLaw, Loss, Noise, Normal, Penalty, Point, Problem, Square, fields
from .problem.jumps import SIZE, Jump, search
from .problem.labels import LabelRule
from .problem.laws import EntryLaw
from .problem.losses import LossLike
from .problem.penalties import PenaltyLike
from .problem.rows import GaussianEntries

__all__ = ["check_algorithm", "check_data", "check_labels", "check_law", "check_loss", "check_penalty"]

FALSE_ALARM = 1e-4
"""Probability that one comparison with draws fails although the promise is kept, had its seed not been fixed."""
DRAWS = 100_000
POINTS = 64  # points at which a gradient is compared with differences of its function
REACHES = np.geomspace(0.05, 16.0, 4)  # lengths of the lines along which jumps are looked for
LINES = 8  # points through which they go
TIMES = np.array([0.0, 0.3, 0.5, 0.9, 2.4, 2.5])  # edges of the intervals whose increments are looked at
SAMPLES, DIM, REPEATS = 256, 512, 8
"""Of the training set on which updates are compared with increments, and how many runs there are."""
MOST_STEPS = 4000
PRODUCT = Loss(lambda r, y: jnp.sum(r * y))
TAKEN = "a Problem takes it: scalars of the right arguments, written in jax.numpy"


def check_loss(loss: LossLike, *, labels: Sequence[float] = (-1.0, 1.0), width: int = 1, rows: int = 1) -> None:
    """Check a loss L(r, y): a scalar in jax.numpy, continuous in r, with the gradient of its value; `smooth` is true.

    labels: values of y at which it is looked at. width: m, the length of r; at 1 it is a number. rows: L, of a loss
        that reads several; r is then (L, m), or (L,).
    """
    promised = Promises(loss, LossLike)
    words = {"noise": Point(float(labels[0])), "sample_ratio": 1.0, "width": width, "rows": rows}
    problem = promised.call(TAKEN, lambda: Problem(loss=loss, labels=Noise(), **words))
    shape = problem.sample_shape(width)
    _function(promised, "L(r, y)", lambda r, y: loss(fields.as_user(r.reshape(shape)), y), rows * width, labels)


def check_penalty(penalty: PenaltyLike, *, width: int = 1) -> None:
    """Check a penalty H(θ): as a loss, and that `quadratic` and `prox` are true where they are declared.

    width: m, the length of θ; at 1 it is a number.
    """
    promised = Promises(penalty, PenaltyLike)
    plain = Square() if width == 1 else PRODUCT
    promised.call(TAKEN, lambda: Problem(loss=plain, labels=Noise(), penalty=penalty, sample_ratio=1.0, width=width))

    def value(theta: Any, _: Any = None) -> Any:
        return penalty(fields.as_user(theta))

    _function(promised, "H(θ)", value, width)
    with jax.enable_x64(True):
        points = _points(width)
        slope = np.asarray(jax.vmap(jax.grad(value))(jnp.concatenate([points, 2.0 * points, 0.0 * points])))
        once, twice, zero = np.split(slope, 3)
        linear = np.allclose(twice, 2 * once, rtol=1e-9, atol=1e-12) and np.allclose(zero, 0.0, atol=1e-12)
        promised.hold("quadratic says that ∇H is linear in θ", linear or not penalty.quadratic)
        if penalty.prox is None:
            return
        step = 0.7
        nearest = jax.vmap(lambda v: penalty.prox(v, step))(points)
        promised.hold("prox(θ, step) has the shape of θ", nearest.shape == points.shape)
        around = nearest[None] + np.concatenate([_points(width)[:, None, :] * size for size in (1e-3, 0.1, 1.0)])
        both = jax.vmap(lambda x, v: 0.5 * jnp.sum((x - v) ** 2) + step * value(x))
        best, others = both(nearest, points), jax.vmap(lambda x: both(x, points))(around)
        least = np.all(others >= best - 1e-9 * (1 + np.abs(best)))
        promised.hold("prox(θ, step) minimises ½|x − θ|² + step·H(x)", least)


def check_labels(rule: LabelRule, *, noise: EntryLaw | None = None, units: int = 1, rows: int = 1) -> None:
    """Check a rule y = f(r*, z): finite, in jax.numpy, and a scalar for samples of one row; `binary` is true where it
    is declared.

    noise: the law of z, N(0, 1) by default; where `binary` needs z = ±1 or a class, give that law. units, rows: of the
    teacher and of a sample, for a rule that reads several.
    """
    promised = Promises(rule, LabelRule)
    law = promised.call("noise(law) is the law of z", lambda: rule.noise(Normal(1.0) if noise is None else noise))
    promised.hold("noise(law) is a law of entries", isinstance(law, EntryLaw))
    z = law.sample(jax.random.key(1), (POINTS,))
    with jax.enable_x64(True):
        r_star = jnp.asarray(_points(units * rows)).reshape(POINTS, *[rows] * (rows > 1), *[units] * (units > 1))
        words = "f(r*, z) is a finite scalar, written in jax.numpy"
        every = jax.jit(jax.vmap(lambda f, s, v: f(s, v), in_axes=(None, 0, 0)))
        y = promised.call(words, lambda: every(rule, r_star, z))
        promised.hold(words, (rows > 1 or y.shape == (POINTS,)) and np.all(np.isfinite(y)))
        promised.hold("binary says that labels are ±1", not rule.binary or np.all(np.abs(y) == 1))


def check_law(law: EntryLaw) -> None:
    """Check a law of one coordinate: draws have the stated moments, and points spread over [0, 1] give the same law."""
    promised, count = Promises(law, EntryLaw), 2 * DRAWS
    words = "sample(key, shape) draws finite entries of that shape from the key"
    draw, again = promised.call(words, lambda: [_host(law.sample(jax.random.key(3), (count, 2))) for _ in range(2)])
    promised.hold(words, draw.shape == (count, 2) and np.array_equal(draw, again) and np.all(np.isfinite(draw)))
    mean, second = promised.call("moments(size) is a mean and a matrix", lambda: law.moments(2))
    shaped = np.shape(mean) == (2,) and np.shape(second) == (2, 2)
    promised.hold("moments(size) has shapes (size,) and (size, size)", shaped)
    own = 1.0 if law.exact_moments else 1.4  # estimated from as many draws again
    products = np.einsum("na,nb->nab", draw, draw)

    def error(x: Any) -> Any:
        return own * np.std(x, axis=0) / np.sqrt(count) + 1e-6 * (1 + np.abs(np.mean(x, axis=0)))

    promised.near("moments(size) has the mean of the draws", draw.mean(0) - mean, error(draw))
    promised.near("moments(size) has the second moments of the draws", products.mean(0) - second, error(products))
    u = np.random.default_rng(0).uniform(size=(count, 2))
    words = "spread_out(u, key) gives one entry for each uniform point, with the law of the draws"
    other = _host(promised.call(words, lambda: law.spread_out(u, jax.random.key(9))))
    promised.hold(words, other.shape == (count,))
    promised.near(words, other.mean() - mean[0], error(other))
    promised.near(words, np.mean(other**2) - second[0, 0], error(other**2))
    levels = np.quantile(draw[:, 0], np.linspace(0.05, 0.95, 7)) + 1e-6
    below = [np.mean(part[:, None] <= levels, axis=0) for part in (other, draw[:, 0])]
    promised.near(words, below[0] - below[1], np.sqrt(0.5 / count))


def check_data(data: DataLaw, *, dim: int = 400) -> None:
    """Check a law of rows: its table, its classes, and that finite rows of dimension `dim` have their moments.

    Where `dim` differs from the limit by more than a tenth of a moment, take a larger one.
    """
    promised = Promises(data, DataLaw)
    table = promised.call("table() is a Table", data.table)
    shaped = len({np.shape(part) for part in table[:3]}) == 1 and table.share.ndim == 1
    promised.hold("table() has share, variance and factor of one shape (groups,)", shaped)
    share = np.all(table.share > 0) and abs(table.share.sum() - 1) < 1e-9
    promised.hold("shares of the table are positive and sum to 1", share, f": {table.share.sum():.6g}")
    some = np.all(table.variance >= 0) and np.any(table.variance > 0)
    promised.hold("variances of the table are ≥ 0, and not all 0", some)
    promised.hold("unseen lies in [0, 1)", 0 <= table.unseen < 1)
    plain = len(table.share) == 1 and table.variance[0] == table.factor[0] == 1 and table.unseen == 0
    promised.hold("iid says that the table is one group of variance and factor 1", plain or not data.iid)
    enough = data.levels is None or data.levels >= len(table.share)
    promised.hold("levels is at least the number of groups, or None", enough)
    again = jax.tree.map(lambda leaf: leaf, data).table()
    promised.hold("table() is that of its leaves", all(map(np.array_equal, table, again)))
    if data.classes is not None:
        means, weights = map(_host, data.classes)
        promised.hold("classes have means (classes, directions)", means.ndim == 2 and np.all(np.isfinite(means)))
        priors = weights.shape == means.shape[:1] and np.all(weights > 0) and abs(weights.sum() - 1) < 1e-6
        promised.hold("classes have priors > 0 that sum to 1", priors)
    teachers, count = 32, 4096
    law, key = Normal(1.0), jax.random.key(5)
    star = law.sample(key, (dim, teachers))
    layout = promised.call("at(dim) is a layout of rows", lambda: data.at(dim))
    words = "rows of at(dim) are x (count, d) and r* (count, k)"
    drawn = partial(layout.draw, key, GaussianEntries(), star, lambda key, rows: law.sample(key, (rows, teachers)))
    held, told = table.share @ table.variance, table.seen(np.eye(2), 1)[1, 1]
    for part in promised.call(words, drawn):
        X, r_star = map(_host, part.draw(jax.random.key(6), count))
        promised.hold(words, X.shape == (count, dim) and r_star.shape == (count, teachers))
        promised.hold("θ* of rows is (d, k)", np.shape(part.theta_star) == (dim, teachers))
        size, seen = np.sum(X**2, axis=1), np.mean(r_star**2, axis=1)
        error = size.std() / np.sqrt(count) + 0.025 * held
        promised.near("rows have the variances of the table", size.mean() - held, error)
        error = seen.std() / np.sqrt(count) + 0.025 * told
        promised.near("r* has the second moment of the table, with what is unseen", seen.mean() - told, error)
        left = np.mean((r_star - X @ _host(part.theta_star)) ** 2) - table.unseen * np.mean(_host(star) ** 2)
        promised.near("r* is θ*ᵀx, and beside it what is unseen", left, 0.025 * told + 1e-6)


def check_algorithm(algorithm: Algorithm, *, sample_ratio: float = 1.5) -> None:
    """Check an algorithm: what it declares, the law of its increments, and that its updates have the same law.

    Increments: mean γ, the stated variance, `expected` given the past, independence where it is declared. Updates: on
    rows that do not overlap the weights are sums of increments, whose mean and variance are compared.
    sample_ratio: δ at which increments are looked at.
    """
    promised = Promises(algorithm, Algorithm)
    for name in ("independent", "gaussian", "discrete", "jumps", "multi_pass_only"):
        promised.hold(f"{name} is declared, True or False", isinstance(getattr(algorithm, name, None), bool))
    for name in ("stable", "accurate"):
        promised.hold(f"{name} is a positive number", getattr(algorithm, name) > 0)
    _increments(promised, algorithm, sample_ratio)
    if algorithm.how.plain:  # otherwise weights are no sums of increments
        _updates(promised, algorithm)


def _increments(promised: "Promises", algorithm: Algorithm, delta: float) -> None:
    """The law of Z over uneven intervals: moments, what is declared of it, and what is known of the next."""
    words = "increments(state, key, t, dt, δ) gives a state like the last and Z of the shape of the start"
    step = jax.jit(lambda a, *given: (a.expected(given[0], *given[2:]), *a.increments(*given)))
    begin = partial(algorithm.start_increments, jax.random.key(1), (DRAWS,), delta)
    state, past = promised.call("start_increments(key, shape, δ) gives a state", begin), []
    known = "independent increments are uncorrelated"
    known = known if algorithm.independent else "expected(state, t, dt, δ) is E[Z | the past]"
    for i, (t, dt) in enumerate(zip(TIMES[:-1].tolist(), np.diff(TIMES).tolist(), strict=True)):
        key, before = jax.random.fold_in(jax.random.key(2), i), jax.tree.map(jnp.shape, state)
        expected, state, Z = promised.call(words, partial(step, algorithm, state, key, t, dt, delta))
        promised.hold(words, Z.shape == (DRAWS,) and jax.tree.map(jnp.shape, state) == before)
        Z, expected = _host(Z), _host(expected)
        variance, centred = float(algorithm.variance(t, dt, delta)), Z - dt
        promised.mean("Z has mean dt", centred)
        promised.mean("Z has the variance that variance(t, dt, δ) says", centred**2 - variance)
        if algorithm.independent:
            promised.hold("independent increments have expected(state, t, dt, δ) = dt", np.allclose(expected, dt))
        for other in past:  # what is known of Z beforehand is all in `expected`
            promised.mean(known, (Z - expected) * other)
        past.append(centred)
        if algorithm.gaussian and variance > 0:
            x = centred / np.sqrt(variance)
            moments = np.array([np.mean(x**3), np.mean(x**4) - 3])
            promised.near("gaussian says that increments are", moments, np.sqrt(np.array([15, 96]) / DRAWS))
        if algorithm.noise_temperature is None:
            continue
        jump = float(algorithm.temperature_at(t + dt / 2)) * delta
        if algorithm.independent:
            known_ = np.isclose(variance, jump * dt, rtol=1e-5)
            promised.hold("noise_temperature τ is that of the variance τδγ", known_)
        if jump and algorithm.jumps:
            whole = np.allclose(Z / jump, np.round(Z / jump), atol=1e-3)
            promised.hold("jumps says that Z is a multiple of τδ", whole)


def _updates(promised: "Promises", algorithm: Algorithm) -> None:
    """Updates at ℓ = −1 and h = 1 on rows of a unit matrix: every weight becomes Z/δ − T, those beyond the rows −T."""
    delta = SAMPLES / DIM
    problem = Problem(loss=PRODUCT, labels=Noise(), noise=Point(-1.0), penalty=Penalty(jnp.sum), sample_ratio=delta)
    try:
        algorithm.check_simulation(problem, SAMPLES)
    except InputError:
        return
    step = float(algorithm.step_time(DIM, 0.05))
    promised.hold("step_time(dim, dt) is a positive time", step > 0)
    steps = 1 if algorithm.discrete else int(np.clip(np.ceil(1 / step), 1, MOST_STEPS))
    end = steps * step
    data = StoredData(problem, jnp.eye(SAMPLES, DIM), jnp.zeros((SAMPLES, 0)), jnp.full(SAMPLES, -1.0))
    run = jax.vmap(lambda key: _trained(algorithm, data, key, step, steps))
    words = "update(data, weights, state, t, dt, draw, key) gives weights and state like those before"
    theta = _host(promised.call(words, lambda: run(jax.random.split(jax.random.key(0), REPEATS))))[:, :, 0]
    beyond = np.abs(theta[:, SAMPLES:] + end).max()
    promised.hold("an update moves weights by the penalty, for the time of a step", beyond < 1e-3 * max(end, 1.0))
    if algorithm.independent:
        variance = sum(float(algorithm.variance(k * step, step, delta)) for k in range(steps))
    else:
        variance = float(algorithm.variance(0.0, end, delta))
    centred = (delta * (theta[:, :SAMPLES] + end) - end).ravel()
    promised.mean("updates have the mean of the increments", centred, 1e-4 * end)
    slack = (algorithm.rows or 0) / SAMPLES * variance + 1e-6  # a batch has no sample twice
    promised.mean("updates have the variance of the increments", centred**2 - variance, slack)


@partial(jax.jit, static_argnums=4)
def _trained(algorithm: Algorithm, data: StoredData, key: Any, step: Any, steps: int) -> Any:
    """θ after some updates from zero, as a simulation makes them."""
    start, draws, noise = jax.random.split(key, 3)
    table = algorithm.draws(draws, 0, steps, data.samples)

    def update(carry: Any, k: Any) -> Any:
        draw = jax.tree.map(lambda rows: rows[k], table)
        weights, state = carry
        return algorithm.update(data, weights, state, k * step, step, draw, jax.random.fold_in(noise, k)), None

    weights = Weights(jnp.zeros((data.X.shape[1], 1)), {})
    begun = (weights, algorithm.start_updates(start, data, weights))
    return jax.lax.scan(update, begun, jnp.arange(steps))[0][0].theta


def _points(width: int) -> np.ndarray:
    return 2.0 * np.random.default_rng(0).standard_normal((POINTS, width))


def _host(x: Any) -> np.ndarray:
    return np.asarray(x, dtype=float)


class Promises:
    """A model, and words for what its contract promises; what does not hold is an AssertionError that names both."""

    def __init__(self, model: Any, contract: type) -> None:
        """Look at what all contracts ask for: a tree of numbers that jax rebuilds, equal to its copy."""
        self.model = model
        self.hold(f"it is a subclass of sl.{contract.__name__}", isinstance(model, contract))
        leaves, structure = jax.tree.flatten(model)
        known = not any(leaf is model for leaf in leaves)
        self.hold("jax knows it as a tree: decorate it with jax.tree_util.register_dataclass", known)
        numbers = all(np.asarray(leaf).dtype.kind in "biuf" for leaf in leaves)
        self.hold("its leaves are numbers: declare functions, names and sizes static", numbers)
        self.call("its static fields can be hashed", lambda: hash(structure))
        for twin in (jax.tree.unflatten(structure, leaves), copy.copy(model)):
            words = "a copy of it is equal, with the same hash: make it a frozen dataclass"
            self.hold(words, self.call(words, lambda twin=twin: twin == model and hash(twin) == hash(model)))

    def hold(self, promise: str, kept: Any, found: str = "") -> None:
        """It is kept."""
        if not kept:
            raise AssertionError(f"{type(self.model).__name__}: {promise}{found}")

    def near(self, promise: str, difference: Any, stderr: Any) -> None:
        """Every difference is explained by its standard error, at one false-alarm rate for all of them together."""
        z = np.abs(_host(difference)) / np.maximum(stderr, 1e-12)
        allowed = float(-ndtri(FALSE_ALARM / np.size(z) / 2))
        self.hold(promise, np.max(z) <= allowed, f": off by {np.max(z):.2f} standard errors, at most {allowed:.2f}")

    def mean(self, promise: str, draws: np.ndarray, slack: float = 1e-6) -> None:
        """The mean of the draws is zero, up to their standard error and some slack."""
        self.near(promise, draws.mean(), draws.std() / np.sqrt(draws.size) + slack)

    def call(self, promise: str, fn: Callable[[], Any]) -> Any:
        """What a method gives; an exception of its own breaks the promise."""
        try:
            return fn()
        except Exception as error:
            said = (str(error).strip().splitlines() or [""])[0]
            words = f"{type(self.model).__name__}: {promise}; it raised {type(error).__name__}: {said}"
            raise AssertionError(words) from error


def _function(
    promised: Promises, name: str, value: Callable[..., Any], width: int, labels: Sequence[float] = (0.0,)
) -> None:
    """A scalar function of x (width,) and a label: continuous in x, with the gradient of its value; `smooth` holds."""
    with jax.enable_x64(True):
        points, y, h = _points(width), np.resize(_host(labels), POINTS), 1e-5
        slope = np.asarray(jax.jit(jax.vmap(jax.grad(value)))(points, y))
        promised.hold(f"the gradient of {name} is finite", np.all(np.isfinite(slope)))
        moved = points[:, None] + h * np.concatenate([np.eye(width), -np.eye(width)])
        ends = np.asarray(jax.jit(jax.vmap(jax.vmap(value, in_axes=(0, None))))(moved, y))
        close = np.allclose(slope, (ends[:, :width] - ends[:, width:]) / (2 * h), rtol=1e-5, atol=1e-6)
        promised.hold(f"the gradient of {name} is that of its value", close)
        promised.hold(f"{name} is continuous", np.max(_searched(value, points, y).size) <= SIZE)
        found = _searched(jax.grad(value), points, y)
        promised.hold(f"the gradient of {name} is finite at kinks, too", np.all(found.sound))
        smooth = np.max(found.size) <= SIZE or not promised.model.smooth
        promised.hold(f"smooth says that the gradient of {name} is continuous", smooth)


def _searched(fn: Callable[..., Any], points: Any, *others: Any) -> Jump:
    """Jumps of a function along lines through the first few points."""
    along = jax.jit(jax.vmap(partial(search, fn, jnp.asarray(REACHES))))
    return along(*(part[:LINES] for part in (points, *others)))
