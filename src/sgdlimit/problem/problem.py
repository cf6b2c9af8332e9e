"""What is learned: data law, labels, loss, penalty, start."""

import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from .._linalg import root_of
from .._tree import settle, shapes_of, static, tree
from .._types import Array, Host, Key, Scalar
from ..errors import InputError, flag, instance, real, reject, traced, whole
from . import fields, observables
from .data import DataLaw, Iid, Table
from .fields import VectorField
from .labels import LabelRule, Linear
from .laws import BLOCK, LIGHT, Categorical, EntryLaw, Law, Normal, Point, SparseNormal, tail_index
from .losses import LossLike, identity
from .mixture import DIRECTION, settle_classes
from .parameters import bound
from .penalties import NoPenalty, PenaltyLike
from .rows import check_sampler
from .schedules import Constant, ScheduleLike
from .sequences import MOST as MOST_ROWS
from .sequences import Beside, check_rows
from .starts import Towards
from .tasks import Correlated
from .trained import check_trained

MOST_UNITS = 64  # of student or teacher: every sample has matrices of this size, and d → ∞ comes before wide networks
SAMPLER = "a built-in or sl.Law(fn) with fn(key, shape) -> array"
CONTRACTS: dict[str, tuple[Any, str]] = {
    "loss": ((LossLike, VectorField), "a built-in or sl.Loss(fn) with fn(r, y) -> scalar"),
    "labels": (LabelRule, "a built-in or sl.Labels(fn) with fn(r_star, z) -> y"),
    "penalty": ((PenaltyLike, VectorField), "a built-in or sl.Penalty(fn), fn(theta) -> scalar"),
    "noise": (EntryLaw, SAMPLER),
    "init": ((EntryLaw, Towards), f"{SAMPLER}, or sl.Towards(overlap, scale)"),
    "teacher": ((EntryLaw, type(None)), SAMPLER),
    "data": (DataLaw, "a law of rows such as sl.Spectrum([3.0, 0.5], [0.2, 0.8]) or sl.Mixture([1.0, -1.0])"),
}
"""What may stand in each place of a problem."""


@tree
@dataclass(frozen=True, kw_only=True)
class Problem:
    """A learning problem in the limit n, d → ∞, n/d → δ.

    loss: L(r, y), or a VectorField ℓ_t(r, r*; z).
    labels: y = f(r*, z).
    penalty: H(θ), or a VectorField h_t(θ).
    sample_ratio: δ = n/d; math.inf for infinite data (one-pass SGD).
    teacher, noise, init: laws of a coordinate of θ*, of z, of a coordinate of θ⁰; teacher=None: labels from z alone.
        `Towards` is a start that knows the teacher.
    width, teacher_width: m and k; k = m unless said otherwise.
    rows: L, rows of one sample: tokens, the sides of a comparison, patches. They share the weights and meet in the
        loss: r has shape (L, m), or (L,) where m is 1, r* likewise, and y may have any shape. δ counts samples.
    schedule: s(t), a factor on ℓ and h.
    data: law of the rows x; iid entries unless said otherwise.
    bias: whether the student has an intercept, r = θᵀx + β. It is trained as the weight of a constant feature 1/√d,
        from 0 and without penalty: dβ/dt = −E ℓ.
    """

    loss: LossLike | VectorField
    labels: LabelRule = field(default_factory=Linear)
    penalty: PenaltyLike | VectorField = field(default_factory=NoPenalty)
    sample_ratio: float
    teacher: EntryLaw | None = None
    noise: EntryLaw = field(default_factory=Point)
    init: EntryLaw | Towards = field(default_factory=Point)
    width: int = static(default=1)
    teacher_width: int | None = static(default=None)
    rows: int = static(default=1)
    schedule: ScheduleLike = field(default_factory=Constant)
    data: DataLaw = field(default_factory=Iid)
    bias: bool = static(default=False)

    def __post_init__(self) -> None:
        for name, (kind, remedy) in CONTRACTS.items():
            instance(name, getattr(self, name), kind, remedy)
        check_schedule("schedule", self.schedule)
        why = "δ = n/d must be a positive number; math.inf means infinite data"
        settle(self, sample_ratio=real("sample_ratio", self.sample_ratio, above=0, most=math.inf, why=why))
        units = f"must be a whole number from 1 to {MOST_UNITS}"
        whole("width", self.width, least=1, most=MOST_UNITS, why=f"m {units}")
        if self.teacher_width is not None:
            whole("teacher_width", self.teacher_width, least=1, most=MOST_UNITS, why=f"k {units}, or None")
        why = f"L, the rows of one sample, must be a whole number from 1 to {MOST_ROWS}"
        whole("rows", self.rows, least=1, most=MOST_ROWS, why=why)
        flag("bias", self.bias)
        settle_classes(self)
        if self.teacher is None and self.labels.planted:
            why = f"labels={type(self.labels).__name__}() read a teacher; give one (sl.Normal(1.0)) or use sl.Noise()"
            raise reject("teacher", None, why)
        check_rows(self)
        if isinstance(self.init, Towards) and not any(map(traced, jax.tree.leaves((self.init, self.star, self.data)))):
            settle(self, init=self.init.bound(self))
        self._check_shapes()

    @property
    def star(self) -> EntryLaw:
        """The law of θ*: the teacher's, that of the directions of means, or both side by side; any where k = 0."""
        if self.data.classes is not None:
            return DIRECTION
        teacher = Point() if self.teacher is None else self.teacher
        return Beside(teacher, self.data.relation.directions, self.read) if self.k > self.read else teacher

    @property
    def k(self) -> int:
        """Columns of θ*: units of the teacher, then directions of means of their own; 0 when there is neither."""
        relation = self.data.relation
        return self.read + (0 if relation is None or relation.directions is None else len(relation.means[0]))

    @property
    def read(self) -> int:
        """Columns of θ* that r* consists of: the teacher's units, or the directions of a mixture's means."""
        if self.data.classes is not None:
            return len(self.data.classes.means[0])
        return 0 if self.teacher is None else self.teacher_width or self.width

    def sample_shape(self, units: int) -> tuple[int, ...]:
        """Of what functions of one sample read: (units,), or (L, units) where it has several rows."""
        return (units,) if self.rows == 1 else (self.rows, units)

    @property
    def infinite_data(self) -> bool:
        """Whether every step sees fresh samples."""
        return not traced(self.sample_ratio) and math.isinf(self.sample_ratio)

    @property
    def has_loss(self) -> bool:
        """Whether a loss is reported (a VectorField need not have one)."""
        return not isinstance(self.loss, VectorField) or self.loss.loss is not None

    @property
    def predict(self) -> Callable[..., Any] | None:
        """The prediction as a function of r; None where width and loss leave it open."""
        if self.loss.predict is not None:
            return bound(self.loss.predict, self.loss)
        return identity if self.width == self.rows == 1 and not isinstance(self.loss, VectorField) else None

    @property
    def noise_law(self) -> EntryLaw:
        """The law of z that the labels need; of the class in a mixture."""
        classes = self.data.classes
        return self.labels.noise(self.noise if classes is None else Categorical(classes.weights))

    def sample_weights(self, key: Key, dim: int) -> tuple[jax.Array, jax.Array]:
        """θ⁰ (d, m) and θ* (d, k)."""
        start, teacher = jax.random.split(key)
        theta_star = self.star.sample(teacher, (dim, self.k))
        if isinstance(self.init, Towards):
            return self.init.beside(theta_star, jax.random.normal(start, (dim, self.width))), theta_star
        return self.init.sample(start, (dim, self.width)), theta_star

    def spread_weights(self, key: Key, count: int) -> np.ndarray:
        """Rows of (θ⁰, θ*), (count, m+k), on the host: every entry's draws spread evenly over its law.

        A march of few samples cannot mend a share that differs from it, such as no non-zero entry of a sparse teacher.
        """
        if not isinstance(self.init, Towards):
            _check_spread("init", self.init, count)
        for law in (self.star.first, self.star.others) if isinstance(self.star, Beside) else (self.star,):
            _check_spread("teacher", law, count)
        return np.concatenate(_both(self, key, count), axis=1)

    def sample_noise(self, key: Key, count: int) -> jax.Array:
        """Draws of z, (count,)."""
        return self.noise_law.sample(key, (count,))

    def gram(self) -> np.ndarray:
        """G: second moments of one row of (θ⁰, θ*), shape (m+k, m+k)."""
        teacher_mean, teacher = self.star.moments(self.k)
        if isinstance(self.init, Towards):
            start, cross = self.init.moments(teacher)
            return np.block([[start, cross], [cross.T, teacher]])
        mean, start = self.init.moments(self.width)
        cross = np.outer(mean, teacher_mean) * (not self.data.rotated)  # along random directions means do not align
        return np.block([[start, cross], [cross.T, teacher]])

    def weight_gram(self) -> np.ndarray:
        """Second moments of (θ⁰, θ*) over all coordinates."""
        table = self.data.table()
        return np.einsum("g,gab->ab", table.share, table.moments(self.gram(), self.width))

    def sample_gram(self, table: Table | None = None) -> np.ndarray:
        """Second moments of (w_0, w*) of a fresh sample, with what x does not tell of w*; iid: those of a weight."""
        table = self.data.table() if table is None else table
        return table.seen(self.gram(), self.width)

    def _check_shapes(self) -> None:
        """Trace every function once, abstractly: wrong shapes and non-jax code surface here, before any work."""
        m, k = self.width, self.read
        for name, law, size in (("init", self.init, m), ("teacher", self.teacher, k), ("noise", self.noise, 1)):
            if isinstance(law, Point) and np.ndim(law.value) and np.size(law.value) != size:
                raise reject(f"{name}=Point", law.value, f"it must be one number, or {size} (the width)")
            if isinstance(law, Law):
                check_sampler(f"{name}=Law", law.sample, (16,) if name == "noise" else (16, size))
                law.check(f"{name}=Law")
        check_trained(self)
        if isinstance(self.loss, LossLike):
            self.loss.check(self)
        self.labels.check(self)
        if _met(self):
            return
        both = self.sample_shape(m), self.sample_shape(k)
        r, *others = sample = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (*both, ())]
        theta = jax.ShapeDtypeStruct((m,), jnp.float32)
        like_theta = ((), (1,)) if m == 1 else ((m,),)
        like_r = like_theta if self.rows == 1 else ((self.rows, m), *[(self.rows,)] * (m == 1))
        labels = ((),) if self.rows == 1 else None
        _returns("labels", fields.label, self, *others, hint=_shape_hint("r_star", k, self.rows), wanted=labels)
        if isinstance(self.loss, VectorField):
            _returns("loss", VectorField.at, self.loss, 0.0, *sample, hint="see sl.VectorField", wanted=like_r)
        if self.has_loss:
            network = m > 1 and self.rows == 1
            hint = _shape_hint("r", m, self.rows) + "; for a network use sl.TwoLayer(activation)" * network
            _returns("loss", fields.loss, self, *sample, hint=hint, smooth=True)
        if self.predict is not None:
            hint = _shape_hint("r", m, self.rows)
            _returns("loss.predict", lambda p, a: p.predict(fields.as_user(a)), self, r, hint=hint, wanted=labels)
            hint = "error(prediction, y) takes two scalars" if self.rows == 1 else "error(prediction, y) is a scalar"
            _returns("loss.error", lambda p, *on: observables.on_samples(p)["error"](*on), self, *sample, hint=hint)
        if isinstance(self.penalty, VectorField):
            _returns("penalty", VectorField.at, self.penalty, 0.0, theta, hint="see sl.VectorField", wanted=like_theta)
        else:
            own, hint = self.penalty, _shape_hint("theta", m)
            _returns("penalty", lambda h, a: h(fields.as_user(a)), own, theta, hint=hint, smooth=True)
        _PASSED.add(shapes_of(self))


_PASSED: set[Any] = set()
"""Kinds of problems and schedules whose functions were traced and found good: a sweep makes thousands of a kind."""
MOST_KINDS = 1024


def _met(model: Any) -> bool:
    """Whether one of this kind, with all that an abstract trace depends on, has passed before."""
    if len(_PASSED) > MOST_KINDS:
        _PASSED.clear()
    return shapes_of(model) in _PASSED


FEWEST_RARE = 8
"""Rare values among the draws of one march, at least. Of least squares over many seeds: with 8 the differences from the
exact curves are what the errors say, with 4 they are 1.3 times as large, with 1 twice, with fewer ten times."""


def _check_spread(argument: str, law: EntryLaw, count: int) -> None:
    """Refuse entries without a fourth moment, and too few samples for the rare ones of a law."""
    if isinstance(law, Law) and law.heavy:
        why = "weights that are followed one by one need averages of draws that settle; truncate them, or take sl.Ridge"
        raise reject(f"{argument}=Law", "a law with heavy tails", f"{why}, which needs its moments alone")
    if law.rarest * count < FEWEST_RARE:
        few, need = law.rarest * count, math.ceil(FEWEST_RARE / law.rarest)
        why = f"{few:.2g} of the {count} samples of a replica would be non-zero; take at least {need} a replica"
        name = "SparseNormal.density" if isinstance(law, SparseNormal) else type(law).__name__
        raise reject(f"{argument}={name}", law.rarest, why)


def _spread(law: EntryLaw, key: Key, count: int, size: int) -> np.ndarray:
    """(count, size) entries of a law: quantiles of a stratified sample in random order, or plain draws without them."""
    if isinstance(law, Beside):
        one, two = jax.random.split(key)
        parts = _spread(law.first, one, count, law.count), _spread(law.others, two, count, size - law.count)
        return np.concatenate(parts, axis=1)
    if isinstance(law, Point) or (isinstance(law, Law) and size > 1):  # units of a row may depend on each other
        return np.asarray(law.sample(key, (count, size)), dtype=np.float64)
    if isinstance(law, Correlated):
        return law.mixed(_spread(Normal(), key, count, size))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    cells = np.argsort(rng.random((size, count)), axis=1)
    u = np.clip((cells + rng.random((size, count))) / count, 1e-15, 1 - 1e-15)
    return np.stack([law.spread_out(np.stack([row, row], axis=1), key) for row in u], axis=1)


def _both(problem: Problem, key: Key, count: int) -> tuple[np.ndarray, np.ndarray]:
    """θ⁰ (count, m) and θ* (count, k), spread evenly over their laws."""
    start, teacher = jax.random.split(key)
    theta_star = _spread(problem.star, teacher, count, problem.k)
    if isinstance(problem.init, Towards):
        return problem.init.beside(theta_star, _spread(Normal(), start, count, problem.width)), theta_star
    return _spread(problem.init, start, count, problem.width), theta_star


def check_schedule(argument: str, schedule: Any) -> None:
    """Refuse what is no function of time."""
    instance(argument, schedule, ScheduleLike, "a built-in or sl.Schedule(fn) with fn(t) -> factor")
    if not _met(schedule):
        time = jax.ShapeDtypeStruct((), jnp.float32)
        _returns(argument, lambda s, t: jnp.asarray(s(t)), schedule, time, hint="t is a scalar")
        _PASSED.add(shapes_of(schedule))


@jax.jit
def _at_start(problem: Problem, w: Array, z: Array, theta: Array) -> dict[str, Scalar]:
    """Whatever must be finite at t = 0."""
    (r, r_star), t = apart(problem, w), jnp.zeros(())
    values = {
        "schedule": jnp.asarray(problem.schedule(t)),
        "labels": jax.vmap(lambda b, c: fields.label(problem, b, c))(r_star, z),
        "gradient of the loss": jax.vmap(lambda a, b, c: fields.force(problem, t, a, b, c))(r, r_star, z),
        "gradient of the penalty": jax.vmap(lambda v: fields.drift(problem, t, v))(theta),
    }
    return values | {name: jax.vmap(fn)(r, r_star, z) for name, fn in observables.on_samples(problem).items()}


def apart(problem: Problem, w: Any) -> tuple[Any, Any]:
    """r_0 and r* of samples (…, m+k), as functions of one sample read them."""
    return w[..., : problem.width], w[..., problem.width : problem.width + problem.read]


def draws_at_start(problem: Problem, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(r_0, w*) and z of samples, always the same ones, on the host."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((count, *problem.sample_shape(problem.width + problem.k)))
    z = problem.noise_law.spread_out(rng.random((count, 2)), jax.random.key(0))
    return _read(problem, w @ root_of(problem.sample_gram())), np.asarray(z, dtype=np.float64)


def _read(problem: Problem, w: np.ndarray) -> np.ndarray:
    """(w_0, w*) of independent rows as they are read: correlated, and r at the means of the rows."""
    relation, m = problem.data.relation, problem.width
    if relation is None:
        return w
    if relation.means is not None:
        along = problem.weight_gram()[:m, m:][:, -len(relation.means[0]) :]
        w = np.concatenate([w[..., :m] + np.asarray(relation.means) @ along.T, w[..., m:]], axis=-1)
    return w if relation.root is None else np.einsum("lk,skb->slb", relation.root, w)


WIDE = 8192
REACH = 6.0  # standard deviations: what lies beyond happens once in 5·10⁸ samples
NEGLIGIBLE = 0.1  # of a tolerance: what makes up less of its largest value need not be seen


def _wide(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(w_0, w*) and z of samples that reach into the tails, and what each of them counts, 1 on average.

    Half of them have one coordinate anywhere within REACH, of the normals or of the point that z is a quantile at.
    """
    rng = np.random.default_rng(0)
    units = problem.sample_shape(problem.width + problem.k)
    size = math.prod(units)
    x = rng.standard_normal((WIDE, size + 2))
    x[np.arange(0, WIDE, 2), np.arange(WIDE // 2) % (size + 2)] = rng.uniform(-REACH, REACH, WIDE // 2)
    density = np.exp(-(np.minimum(np.abs(x), REACH) ** 2) / 2) / math.sqrt(2 * math.pi)
    taken = np.mean(np.where(np.abs(x) <= REACH, 1 / (2 * REACH * density), 0.0), axis=1)  # over the law's own density
    z = problem.noise_law.spread_out(np.clip(ndtr(x[:, size:]), 1e-15, 1 - 1e-15), jax.random.key(0))
    w = _read(problem, x[:, :size].reshape(WIDE, *units) @ root_of(problem.sample_gram()))
    return w, np.asarray(z, dtype=np.float64), 2 / (1 + taken)


class Rare(NamedTuple):
    """What is averaged over samples, by name, where the student starts and where it equals the teacher."""

    values: dict[str, np.ndarray]  # of each sample, (places, samples)
    counts: np.ndarray  # what each sample counts

    def fewest(self, tol: float, without: Collection[str] = ()) -> tuple[int, str]:
        """Samples of which FEWEST_RARE make up the mean of each of them, and which one needs so many.

        In these units M Gaussian samples hold M that make up a mean of squares. What is negligible at tolerance `tol`
        and names in `without` are passed over.
        """
        most, which = 1, ""
        for name in self.values.keys() - without:
            sound = np.isfinite(self.values[name])
            known, value = self.counts * sound, np.where(sound, np.abs(self.values[name].astype(np.float64)), 0.0)
            mean, square = (np.sum(known * value**power, axis=1) / np.sum(known, axis=1) for power in (1, 2))
            seen = mean > max(NEGLIGIBLE * tol * np.max(mean), 1e-30)
            need = np.max(FEWEST_RARE * square[seen] / (3 * mean[seen] ** 2), initial=0.0)
            most, which = max((most, which), (math.ceil(need), name))
        return most, which


def check_start(problem: Problem, z: Host | None = None) -> Rare:
    """Refuse what is not finite at the start, on 256 samples of the limit law or on the given z; tell what is rare."""
    count = 256 if z is None else len(z)
    w, drawn = draws_at_start(problem, count)
    parts, weights = [(w, drawn if z is None else z)], np.ones(count)
    if z is None:
        w, drawn, weights = _wide(problem)
        parts.append((w, drawn))
        if problem.width == problem.k and problem.data.classes is None:
            parts.append((np.concatenate([w[..., problem.width :]] * 2, axis=-1), drawn))
    theta, _ = _both(problem, jax.random.key(0), 256)
    rows, noise = (np.concatenate(part) for part in zip(*parts, strict=True))
    asked = problem, *(np.asarray(part, dtype=np.float32) for part in (rows, noise, theta))
    all_found = jax.tree.map(np.asarray, _at_start(*asked))
    found = {name: v[:count] if np.shape(v)[:1] == (len(rows),) else v for name, v in all_found.items()}
    checked = ("schedule", "labels", "gradient of the loss", "gradient of the penalty", "loss")
    for name in (name for name in checked if name in found):
        value = np.ravel(found[name])
        if len(bad := value[~np.isfinite(value)]):
            argument = name.split()[-1]
            what = "" if argument == name else f" ({name})"
            raise reject(argument, bad[0], f"it must be finite at the start{what}; change {argument}, labels or init")
    y = found["labels"]
    if isinstance(problem.loss, LossLike):
        problem.loss.check_labels(problem, y)
    if problem.labels.binary and not np.all(np.abs(y) == 1):
        why = "binary labels must be ±1; set binary=False or noise=Rademacher(1)"
        raise reject("labels", y[np.abs(y) != 1][0], why)
    force = np.sum(
        all_found["gradient of the loss"].astype(np.float64) ** 2, axis=(-1,) if problem.rows == 1 else (-2, -1)
    )
    averaged = {"force": force} | {name: all_found[name] for name in ("loss", "error") if name in all_found}
    return Rare({name: value[count:].reshape(-1, len(weights)) for name, value in averaged.items()}, weights)


def check_tails(problem: Problem, fresh: bool = False, bounded: bool = False) -> tuple[str, ...]:
    """Refuse label noise under which E ℓ² has no standard error that draws could tell; name and warn of observables.

    Built-in laws have light tails; a bounded force (Huber, logistic) makes any noise light.
    fresh: whether all samples are, so that training averages are test averages. bounded: whether the force is, whatever
    the loss says, as where every sample's gradient is clipped.
    """
    law = problem.noise
    if not isinstance(law, Law) or not law.heavy:
        return ()
    alike = np.broadcast_to(np.sqrt(np.diag(problem.sample_gram())), problem.sample_shape(problem.width + problem.k))
    w = np.tile(alike, (BLOCK, *[1] * alike.ndim))  # samples that differ in z alone
    found = _at_start(problem, *(x.astype(np.float32) for x in (w, law.many((BLOCK,)), np.zeros((1, problem.width)))))
    force = found["gradient of the loss"]
    index = {"force": tail_index(np.linalg.norm(force.reshape(len(force), -1), axis=1))}
    index |= {name: tail_index(np.sqrt(np.abs(found[name]))) for name in observables.on_samples(problem)}
    if index["force"] < LIGHT and not bounded:
        given = f"a law under which the force has tails of index {index['force']:.2g}"
        why = "averages of samples do not settle; truncate its draws, take sl.Huber or another loss that grows less"
        raise reject("noise=Law", given, f"{why}, or sl.least_squares, which needs its moments alone")
    exact = ("train_error", "test_error")[1 - fresh :] if observables.square_of_sum(problem) else ()
    tails = [name for name in index if index[name] < LIGHT and name != "force"]
    sides = [f"{side}_{name}" for name in tails for side in ("train", "test")]
    heavy = tuple(name for name in sides if name not in exact)
    if heavy:
        words = f"{', '.join(heavy)}: averages under this heavy-tailed noise do not settle, nor do their errors"
        warnings.warn(words, RuntimeWarning, stacklevel=4)
    return heavy


def _shape_hint(name: str, size: int, rows: int = 1) -> str:
    if size == 0:
        return f"{name} is None: there is no teacher"
    shape = (rows,) * (rows > 1) + (size,) * (size > 1)
    return f"{name} has shape {shape}" if shape else f"{name} is a scalar"


def _returns(
    argument: str, fn: Callable[..., Any], *given: Any, hint: str, wanted: Any = ((),), smooth: bool = False
) -> None:
    """Refuse a function that does not run on these shapes, or does not return real numbers of a wanted shape; None: of
    any shape."""
    try:
        out = jax.eval_shape(fn, *given)
    except InputError:
        raise
    except Exception as error:
        untraceable = isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError)
        remedy = "it must be written in jax.numpy" if untraceable else "it must run on arrays of these shapes"
        raise reject(argument, f"{type(error).__name__}: {error}", f"{remedy} ({hint})") from error
    shape = getattr(out, "shape", None)
    if shape is None or (wanted is not None and shape not in wanted):
        found = f"a {type(out).__name__}" if shape is None else f"a result of shape {shape}"
        what = "an array" if wanted is None else "a scalar" if () in wanted else f"an array of shape {wanted[0]}"
        raise reject(argument, found, f"it must return {what} ({hint})")
    if jnp.issubdtype(out.dtype, jnp.complexfloating) or (smooth and not jnp.issubdtype(out.dtype, jnp.floating)):
        raise reject(argument, f"a result of type {out.dtype}", f"it must return a real number ({hint})")
