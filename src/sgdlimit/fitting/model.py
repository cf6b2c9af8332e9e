"""`model_of_data`: the problem that rows and labels of the user's look like; `solve_on_data`: its curves.

Two label values: two Gaussian classes with one covariance; their means differ along one direction, whose part in every
eigenvalue is the factor of the group. Any other labels: a linear teacher with Gaussian noise. Both from estimates that
know how many samples there are (`spectrum`); rows are centred, so that no direction is left for a common mean.
"""

import warnings
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np
from scipy.special import chdtrc, ndtr

from ..algorithms import Algorithm
from ..control.question import Given
from ..errors import Interrupted, UnreliableWarning, reject
from ..own_data import check_scale, read_data
from ..problem import ByClass, Linear, Mixture, Noise, NoPenalty, Normal, Problem, Spectrum, VectorField
from ..problem.losses import Exponential, Hinge, Logistic, LossLike, SmoothHinge, Square
from ..problem.penalties import PenaltyLike
from ..results import Solution
from ..results.quality import Check, Quality
from ..solver import solve
from . import assumptions
from .spectrum import EigenGroups, SampleCovariance, along, population, sample_of, taught

FEWEST_OF_CLASS = 10  # samples of a class, below which its mean says nothing
FEWEST = 20  # samples
RARE = 1e-6  # probability that centred data are refused
LEADING = 3  # principal directions that are looked at
STILL = 1e-12  # a column that varies by less, relative to the largest entry, is constant
MARGIN = (Logistic, Hinge, SmoothHinge, Exponential)  # losses of labels ±1


@final
@dataclass(frozen=True, repr=False)
class Fitted:
    """A problem that looks like the user's data, and how far its assumptions hold there."""

    problem: Problem
    assumptions: Quality
    samples: int
    dim: int

    def __repr__(self) -> str:
        table = self.problem.data.table()
        kind = type(self.problem.data).__name__
        head = f"{kind} of {len(table.share)} groups, from {self.samples} samples in {self.dim} dimensions"
        rows = [
            f"{share * self.dim:>11.4g}  {variance:>10.4g}  {factor:>10.4g}"
            for share, variance, factor in zip(table.share, table.variance, table.factor, strict=True)
        ]
        return "\n".join([head, "coordinates  eigenvalue      factor", *rows, repr(self.assumptions)])


def model_of_data(
    X: Any,
    y: Any,
    *,
    loss: LossLike | VectorField | None = None,
    penalty: PenaltyLike | VectorField | None = None,
    bias: bool = False,
    X_test: Any = None,
    y_test: Any = None,
) -> Fitted:
    """The problem in the limit that stands for these data, with δ = n/d, and how far its assumptions hold.

    Rows have norm about 1, as for `sl.simulate_on_data`, and mean zero. Labels of two values: `sl.Mixture`; all others:
    a linear teacher (`sl.Linear`). Eigenvalues of the covariance and what the teacher, or the difference of the class
    means, has in each are estimated without the bias of finite samples, at any n/d. `assumptions` are also those of
    X_test and y_test, where given: the model is made from X and y alone.
    """
    X, y, X_test, y_test = read_data(X, y, X_test, y_test)
    check_scale(X)
    loss = Square() if loss is None else loss
    values = _check_labels(y, y_test, loss)
    _check_columns(X)
    n, d = X.shape
    words = {"loss": loss, "penalty": NoPenalty() if penalty is None else penalty, "sample_ratio": n / d, "bias": bias}
    problem, checks = _classes(X, y, values, words) if len(values) == 2 else _teacher(X, y, words)
    checks += [] if X_test is None or y_test is None else assumptions.of_test(X, y, X_test, y_test)
    return Fitted(problem, Quality(checks), n, d)


def solve_on_data(
    X: Any,
    y: Any,
    algorithm: Algorithm,
    *,
    loss: LossLike | VectorField | None = None,
    penalty: PenaltyLike | VectorField | None = None,
    bias: bool = False,
    X_test: Any = None,
    y_test: Any = None,
    t_max: float | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
    **options: Unpack[Given],
) -> Solution:
    """Predicted curves of SGD from θ = 0 with any loss, to be set beside `sl.simulate_on_data(X, y, algorithm, …)`.

    The data are summed up by `sl.model_of_data`: Gaussian rows with the eigenvalues of the population, estimated from
    the sample, and two classes (labels of two values) or a linear teacher. `sl.solve` does the rest, and takes t_max
    and all that follows it. Train curves are those of n samples of the model, test curves of fresh ones; X_test and
    y_test serve to check that they are of the same law. How far the assumptions hold is in
    `about["diagnostics"]["assumptions"]`, and a warning names what does not.
    """
    fitted = model_of_data(X, y, loss=loss, penalty=penalty, bias=bias, X_test=X_test, y_test=y_test)
    if failed := "; ".join(map(str, fitted.assumptions.failed)):
        words = f"X: the model of these data is a rough one, and its curves may be off: {failed}"
        warnings.warn(words, UnreliableWarning, stacklevel=2)

    def told(solution: Solution) -> Solution:
        """With what the data say of the assumptions."""
        about = dict(solution.about)
        about["method"] = f"{about['method']}, on a model of data"
        about["options"] = about["options"] | {"data_samples": fitted.samples, "dim": fitted.dim}
        about["diagnostics"] = about["diagnostics"] | {"assumptions": fitted.assumptions.to_words()}
        return replace(solution, about=about)

    try:
        return told(solve(fitted.problem, algorithm, t_max, executor=executor, progress=progress, **options))
    except Interrupted as stop:
        raise Interrupted(told(stop.result)) from None


def _check_labels(y: np.ndarray, y_test: np.ndarray | None, loss: LossLike | VectorField) -> np.ndarray:
    """The two values of y, the larger one first; none where there are more."""
    values = np.unique(y)[::-1]
    if len(values) == 1:
        raise reject("y", f"{values[0]:g} for all samples", "there is nothing to learn; labels must differ")
    if isinstance(loss, MARGIN) and not np.array_equal(values, [1.0, -1.0]):
        given = f"{len(values)} values, among them {values[np.abs(values) != 1][0]:g}"
        why = f"takes labels ±1: one class against the rest is np.where(y == {values[0]:g}, 1, -1)"
        raise reject("y", given, f"{type(loss).__name__} {why}")
    if len(values) > 2:
        if len(y) < FEWEST:
            raise reject("X", f"{len(y)} rows", f"at least {FEWEST} samples are needed to tell their law")
        return values[:0]
    for value in values:
        if (count := int(np.sum(y == value))) < FEWEST_OF_CLASS:
            why = f"its mean says nothing; at least {FEWEST_OF_CLASS} of each class are needed"
            raise reject("y", f"{count} samples of class {value:g}", why)
    if y_test is not None and not np.all(np.isin(y_test, values)):
        other = y_test[~np.isin(y_test, values)][0]
        raise reject("y_test", f"{other:g}", f"the classes of y are {values[0]:g} and {values[1]:g}")
    return values


def _check_columns(X: np.ndarray) -> None:
    """Refuse columns that do not vary, warn of those that repeat others."""
    if X.shape[1] < 2:
        raise reject("X", "one column", "the limit is one of many; give at least two")
    still = np.flatnonzero(np.ptp(X, axis=0) <= STILL * np.abs(X).max())
    if len(still):
        why = "drop them (X[:, np.ptp(X, axis=0) > 0]); an intercept is bias=True"
        raise reject("X", f"{len(still)} constant columns, the first is {still[0]}", why)
    _, first, which = np.unique(X, axis=1, return_index=True, return_inverse=True)
    if len(first) < X.shape[1]:
        like = first[which.ravel()]
        repeated = np.flatnonzero(like != np.arange(X.shape[1]))
        words = f"X: {len(repeated)} columns repeat others (column {repeated[0]} is column {like[repeated[0]]}); "
        words += "they count as dimensions without variance of their own: drop them"
        warnings.warn(words, RuntimeWarning, stacklevel=3)


def _check_centred(rest: np.ndarray, groups: EigenGroups, samples: int) -> None:
    """Refuse a common mean that sampling does not explain: n|x̄|² is a sum of squares with the rows' eigenvalues."""
    total = float(groups.values @ groups.counts)
    rank = total**2 / float(groups.values**2 @ groups.counts)
    if chdtrc(rank, samples * float(rest @ rest) / total * rank) < RARE:
        given = f"rows with a mean of squared norm {rest @ rest:.3g}, beside {total:.3g} of their spread"
        why = "subtract the column means, X - X.mean(axis=0) (of X from X_test too); an intercept is bias=True"
        raise reject("X", given, why)


def _classes(X: np.ndarray, y: np.ndarray, values: np.ndarray, words: dict[str, Any]) -> tuple[Problem, list[Check]]:
    """Two Gaussian classes: x = μ_c + Σ^½u, the means apart by v, their common mean along v too or zero."""
    members = [y == value for value in values]
    counts = np.array([member.sum() for member in members])
    means = np.array([X[member].mean(axis=0) for member in members])
    rows = X - np.where(members[0][:, None], means[0], means[1])
    sample, _, vectors = sample_of(rows, len(X) - 2)
    groups = population(sample)
    gap = means[0] - means[1]
    parts = vectors.T @ gap
    size = along(sample, groups, float(gap @ gap), parts**2, float(np.sum(1 / counts)))
    prior = counts / counts.sum()
    # The mean of both has no noise in common with v: Cov(π₁μ₁ + π₂μ₂, μ₁ − μ₂) = Σ/n − Σ/n.
    common = prior @ means
    shift = float(_settled(common @ gap / size.sum())) if size.sum() > 0 else 0.0
    _check_centred(common - shift * gap, groups, len(X))
    d = X.shape[1]
    # Σ_{k in q} v_k² = p_q d (factor_q/d)² for v = a/d
    spectrum = _spectrum(groups, d, d * np.sqrt(size / groups.counts))
    law = Mixture([shift + prior[1], shift - prior[0]], spectrum, prior)
    problem = Problem(labels=ByClass(values.tolist()), data=law, **words)
    checks = assumptions.examine(problem, rows, groups, _learned(sample, vectors, parts), vectors[:, :LEADING])
    return problem, checks + assumptions.of_classes(rows, members[0])


def _teacher(X: np.ndarray, y: np.ndarray, words: dict[str, Any]) -> tuple[Problem, list[Check]]:
    """y = θ*ᵀx + z, Gaussian rows and Gaussian noise."""
    n, d = X.shape
    mean, level, spread = X.mean(axis=0), float(y.mean()), float(y.std(ddof=1))
    if ndtr(-abs(level) / spread * np.sqrt(n)) < RARE:
        given = f"labels with mean {level:.3g} and standard deviation {spread:.3g}"
        raise reject("y", given, "subtract the mean, y - y.mean() (of y from y_test too)")
    rows, y = X - mean, y - level
    sample, left, vectors = sample_of(rows, n - 1)
    groups = population(sample)
    _check_centred(mean, groups, n)
    parts = left.T @ y / np.sqrt(n - 1)
    seen, noise = taught(sample, groups, float(y @ y) / (n - 1), parts**2)
    # Σ_{k in q} θ_k² σ_k = p_q d σ_q factor_q²
    power = groups.values * groups.counts
    factor = np.sqrt(np.divide(seen, power, out=np.zeros_like(seen), where=power > 0))
    law = _spectrum(groups, d, factor)
    rule = {"labels": Linear(), "teacher": Normal(1.0)} if seen.any() else {"labels": Noise()}
    problem = Problem(noise=Normal(float(_settled(np.sqrt(noise)))), data=law, **rule, **words)
    learned = _learned(sample, vectors, parts * np.sqrt(sample.values))
    return problem, assumptions.examine(problem, rows, groups, learned, vectors[:, :LEADING])


def _spectrum(groups: EigenGroups, dim: int, factor: np.ndarray) -> Spectrum:
    """The law of rows whose entries are of order one, and what the teacher has in each group."""
    share = _settled(groups.counts / dim)
    return Spectrum(_settled(groups.values * dim), share / share.sum(), _settled(factor))


def _settled(numbers: np.ndarray | float) -> np.ndarray:
    """In single precision: the last digits of singular values depend on how many cores took part, and a problem, to
    which a checkpoint belongs, must not."""
    return np.asarray(numbers, np.float32).astype(np.float64)


def _learned(sample: SampleCovariance, vectors: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """What a student would learn: (Ŵ + mean eigenvalue)⁻¹ on a vector (the difference of means, or Xᵀy/N).

    parts: its projections on the sample's eigenvectors.
    """
    return vectors @ (parts / (sample.values + sample.values.sum() / sample.dim))
