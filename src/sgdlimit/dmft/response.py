"""How the force answers to the past, by a linear regression: nothing is differentiated, and a force may jump.

`KickRegression`: w_i = known + s Σ_j R_θ(i,j) ΔU_j is driven by Gaussian noise that is independent of the sample's own
z and increments, so that Gaussian integration by parts holds at all earlier times:

    E[ℓ_i ΔU_kᵀ] = Σ_{j<i} G(i,j) E[ΔU_j ΔU_kᵀ],   G(i,j) = s (Γ_i R_θ(i,j) + Σ_{j<l<i} 𝓡(i,l) R_θ(l,j))

These are the normal equations of a regression of ℓ_i on the moments V_b = Σ_j φ_b(i,j) ΔU_j of the noise, whose
coefficients in the functions φ_b are those of G(i, ·), which is what R_θ needs to go on, where all coordinates are
one group.

`Regression`: particles and several groups need Γ_i and 𝓡(i, ·) themselves. The path of w is Gaussian too:

    E[ℓ_i w_kᵀ] = Γ_i C_w(i,k) + Σ_{j<i} 𝓡(i,j) C_w(j,k) + R*_i C_w(*,k)

a regression of ℓ_i on w_i, on the moments W_b = Σ_j φ_b(i,j) w_j of its past, and on (w_0, w*): the coefficient of w_i
is Γ_i, those of W_b are the coefficients of 𝓡(i, ·). Regressors that are nearly collinear do little harm, since Γ and
𝓡 act mostly on paths with the covariance that they were fitted to; not only, since R_θ begins with a jump.

Functions of (w_0, w*, z) may stand among the regressors of both, since what is left of them beside (w_0, w*) is
independent of the path: the force at E[w_i | w_0, w*] takes most of the noise away. The sample's own forces may not:
they lie on the way from w_j to ℓ_i.

`Tangents`: the same from derivatives of every sample, which the regressions are tested against, and which kernels come
from. Every sample carries (nm)² numbers, and the force must have a derivative.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp

from .._types import Array, Tree
from .memory import Dense, Memory, combine
from .noise import known
from .system import Start, Step, System, moments

RIDGE = 1e-5
"""Added to the Gram matrix of regressors of unit size: in single precision 1e-7 ends in a factor that is no number."""


class Local(NamedTuple):
    """One step as every sample sees it, (m, M) where nothing else is said; M are lines where it has several rows."""

    r: Array
    w: Array
    """The Gaussian path, without what moves the sample's class."""
    shift: Array
    """What moves its class."""
    force: Array
    """ℓ_i."""
    driven: Array
    """ℓ_i times the mean of Z_i given the past, over γ_i: what drives the weights."""
    Z: Array
    """(M,)."""
    expected: Array | None
    """That mean, (M,); None where it is 1."""
    kicks: "Kicks | None"
    """The noise that has driven w, where the weights keep it."""
    at: Callable[[Array], Array]
    """The force at other pre-activations."""
    slope: Callable[[Array], Array]
    """∂ℓ_i/∂r at pre-activations, (m, m, M); of samples with L rows (m·L, m·L, M), of the independent rows."""


class Answer(NamedTuple):
    """Γ_i, (m, m), and the coefficients κ of 𝓡(i, ·), (n, m, m), in double precision.

    Without Γ, κ are those of what the force answers to a kick ΔU_j, G(i, ·). A regression on the path knows what Γ and
    𝓡 do together to the paths that there are, not each of them: where w is smooth in time Γ cannot be told from the
    latest part of 𝓡. Who wants to see them takes tangents (`references`).
    """

    gamma: Array | None
    kappa: Array
    equal: Array | None = None
    """R_ℓ(i, i) = −E[∇ℓ ∇ℓ]/δ, (m, m), where slopes are known."""

    @property
    def apart(self) -> tuple[Array, Array]:
        """Γ_i and κ, where they are known apart."""
        assert self.gamma is not None
        return self.gamma, self.kappa


class Response(abc.ABC):
    """How Γ and 𝓡 are found. Every subclass is final and hashable; its state is its own."""

    of_kicks: ClassVar[bool] = False
    """Whether it reads the noise that drives w, which the weights then keep."""

    @abc.abstractmethod
    def init(self, system: System) -> Tree:
        """Return what it keeps of the samples' past, before step 0."""

    @abc.abstractmethod
    def step(
        self, system: System, step: Step, start: Start, state: Tree, rho: Array, here: Local
    ) -> tuple[Answer, Tree]:
        """Return the answer at step i and the state after it; `rho` are the coefficients of R_w(i, ·)."""


def regress(gram: Array, cross: Array) -> Array:
    """Return coefficients, (p, targets), from second moments of the regressors (p, p) and of them with the targets.

    Regressors are scaled to unit size; those that vanish, as a start at zero, get coefficients of zero. What the ridge
    takes off is given back, seven times, β ← (G + ridge)⁻¹ (b + ridge β), so that only directions below the ridge are
    damped. With the ridge alone gradient flow is off by 2e-3, unseen by any spread.
    """
    size = jnp.sqrt(jnp.diagonal(gram))
    scale = jnp.where(size > 1e-12, 1.0 / jnp.where(size > 1e-12, size, 1.0), 0.0)[:, None]
    inverse, aim = _inverse(scale * gram * scale.T + RIDGE * jnp.eye(len(gram))), scale * cross
    found = inverse @ aim
    for _ in range(7):
        found = inverse @ (aim + RIDGE * found)
    return scale * found


BLOCK, FEW = 8, 64
"""Columns that are eliminated together, in matrices of more than so few."""


def _inverse(positive: Array) -> Array:
    """Of a small positive matrix.

    On a CPU by elimination, column by column or, of many, some at a time: it takes as long as LAPACK, whose threads
    would meet those of the batches that are marched side by side, and slow them down several times.
    """
    count = len(positive)
    if jax.default_backend() != "cpu":
        root = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(positive), jnp.eye(count), lower=True)
        return root.T @ root
    if count > FEW:
        return _by_blocks(positive)
    place = jnp.arange(count)

    def sweep(k: Array, A: Array) -> Array:
        pivot, column, here = A[k, k], A[:, k], place == k
        row = A[k] / pivot
        rest = jnp.where(here[:, None], row, A - column[:, None] * row)
        return jnp.where(here, jnp.where(here, 1.0, -column)[:, None] / pivot, rest)

    return jax.lax.fori_loop(0, count, sweep, positive)


def _by_blocks(positive: Array) -> Array:
    """`_inverse`, with matrix products in the place of columns."""
    count, blocks = len(positive), -(-len(positive) // BLOCK)
    size = blocks * BLOCK
    filled = jnp.eye(size).at[:count, :count].set(positive)

    def sweep(k: Array, A: Array) -> Array:
        row, column = (k * BLOCK, 0 * k), (0 * k, k * BLOCK)
        pivot = _inverse(jax.lax.dynamic_slice(A, (k * BLOCK, k * BLOCK), (BLOCK, BLOCK)))
        below = jax.lax.dynamic_slice(A, column, (size, BLOCK))
        below = jax.lax.dynamic_update_slice(below, jnp.zeros((BLOCK, BLOCK)), row)
        beside = pivot @ jax.lax.dynamic_slice(A, row, (BLOCK, size))
        beside = jax.lax.dynamic_update_slice(beside, pivot, column)
        A = jax.lax.dynamic_update_slice(A, jnp.zeros((size, BLOCK)), column)
        return jax.lax.dynamic_update_slice(A - below @ beside, beside, row)

    return jax.lax.fori_loop(0, blocks, sweep, filled)[:count, :count]


DISTINCT = 1e-4
"""Share of a regressor beside the others, below which it is rounding."""


def _anchor(system: System, start: Start, here: Local) -> Array:
    """The force at E[w_i | w_0, w*], (m, M), less its part along the basis; nothing where what is left is rounding.

    A force that is the same for all samples, as where all labels are equal, is the row of ones: what rounding makes of
    two equal regressors can be as large as the ridge, and marches ran away from it.
    """
    rows = system.problem.rows
    r = known(start.basis, here.w, rows) + here.shift
    force = here.at(r)
    rest = force - known(start.basis, force, rows)
    size, whole = (jnp.sqrt(jnp.mean(part**2, axis=-1, keepdims=True)) for part in (rest, force))
    return jnp.where(size > DISTINCT * whole, rest, 0.0)


def _with_others(rows: int, gram: Array, mixed: Array, past: Array, now: Array) -> tuple[Array, Array]:
    """Second moments of V and of it with what is seen now, with those of Σ V over the other rows of a sample behind.

    The force on a row answers to the noise of the others too, which is independent of its own: of ranked pairs a test
    loss has half the variance. E[V_l O_l] = E[S S]/L − E[V V], S the sum over all rows and O_l = S − V_l.
    """
    whole, seen = (jnp.sum(x.reshape(len(x), rows, -1), axis=1) for x in (past, now))
    sums, along = moments(whole, whole), moments(whole, seen) / rows - mixed
    across, others = sums / rows - gram, (1 - 2 / rows) * sums + gram
    return jnp.block([[gram, across], [across.T, others]]), jnp.concatenate([mixed, along])


class Path(NamedTuple):
    """The past of w over the samples, and its second moments, which need not be added up anew at every step."""

    moments: Array
    """W_b = Σ_j φ_b(i,j) w_j, (n, m, M)."""
    gram: Array
    """E[W W], (n, m, n, m), in double precision."""
    known: Array
    """E[W basisᵀ], (n, m, q)."""


class Kicks(NamedTuple):
    """The noise that has driven w, w_i = known + s Σ_j R_θ(i,j) ΔU_j, over the samples."""

    moments: Array
    """V_b = Σ_j φ_b(i,j) ΔU_j, (n, m, M)."""
    gram: Array
    """E[V V], (n, m, n, m), in double precision."""

    def pushed(self, memory: Memory, row: Tree, new: Array) -> "Kicks":
        """Return V ← E V + u ΔU, and its second moments alike."""
        mixed, inner = moments(self.moments.reshape(-1, new.shape[-1]), new), moments(new, new)
        return Kicks(memory.push(row, self.moments, new), _pushed(memory, row, self.gram, mixed, inner))


def _pushed(memory: Memory, row: Tree, gram: Array, mixed: Array, inner: Array) -> Array:
    """E[X X], (n, m, n, m), after X ← E X + u x, from E[X x] (n·m, m) and E[x x]."""
    n, m = gram.shape[:2]
    u = memory.new(row, jnp.float64)
    crossed = memory.shift(row, mixed.reshape(n, m, m))[:, :, None, :] * u[:, None]
    gram = memory.shift(row, memory.shift(row, gram), 2) + crossed + crossed.transpose(2, 3, 0, 1)
    return gram + (u[:, None] * u)[:, None, :, None] * inner[None, :, None, :]


@final
@dataclass(frozen=True)
class KickRegression(Response):
    """Of the force on the noise that drives w, (w_0, w*), z, 1, and the force at what (w_0, w*) tell of w_i.

    The coefficients are those of s (Γ_i R_θ(i, ·) + Σ_l 𝓡(i,l) R_θ(l, ·)), which is all that one group of coordinates
    asks for. What they do not know acts on no noise that there is: marches are as stable as their tangents.
    """

    of_kicks: ClassVar[bool] = True

    def init(self, system: System) -> Tree:
        """Return nothing: the weights keep the noise."""
        return ()

    def step(
        self, system: System, step: Step, start: Start, state: Tree, rho: Array, here: Local
    ) -> tuple[Answer, Tree]:
        """Return κ; the noise is orthogonal to the basis, so that force and anchor are taken beside it."""
        assert here.kicks is not None
        (n, m, M), basis, rows = here.kicks.moments.shape, start.basis, system.problem.rows
        left = here.driven - known(basis, here.driven, rows)
        now, past = jnp.concatenate([_anchor(system, start, here), left]), here.kicks.moments.reshape(n * m, M)
        inner, mixed, gram = moments(now, now), moments(past, now), here.kicks.gram.reshape(n * m, n * m)
        if rows > 1:
            gram, mixed = _with_others(rows, gram, mixed, past, now)
        gram = jnp.block([[inner[:m, :m], mixed[:, :m].T], [mixed[:, :m], gram]])
        found = regress(gram, jnp.concatenate([inner[:m, m:], mixed[:, m:]]))[m : m + n * m]
        return Answer(None, found.reshape(n, m, m).transpose(0, 2, 1)), state


@final
@dataclass(frozen=True)
class Regression(Response):
    """Of the force on w_i, its past, (w_0, w*), z, 1, and the force at what (w_0, w*) tell of w_i."""

    def init(self, system: System) -> Path:
        """Return a path without a past: all moments are zero."""
        (_, m, k, M), n = system.shape, system.memory.size
        q = m + k + system.groups.unseen.shape[1] + 2
        double = jnp.float64
        return Path(jnp.zeros((n, m, M), system.dtype), jnp.zeros((n, m, n, m), double), jnp.zeros((n, m, q), double))

    def step(
        self, system: System, step: Step, start: Start, state: Path, rho: Array, here: Local
    ) -> tuple[Answer, Path]:
        """Return Γ_i, κ, and the path with w_i, from products of the samples; those of the past are carried along."""
        (n, m, M), basis = state.moments.shape, start.basis
        now, past = (
            jnp.concatenate([here.w, _anchor(system, start, here), here.driven]),
            state.moments.reshape(n * m, M),
        )
        inner, beside, mixed = (moments(a, b) for a, b in ((now, now), (now, basis), (past, now)))
        own, target = slice(2 * m), slice(2 * m, None)
        earlier, fixed = state.known.reshape(n * m, -1), moments(basis, basis)
        gram = jnp.block(
            [
                [inner[own, own], beside[own], mixed[:, own].T],
                [beside[own].T, fixed, earlier.T],
                [mixed[:, own], earlier, state.gram.reshape(n * m, n * m)],
            ]
        )
        found = regress(gram, jnp.concatenate([inner[own, target], beside[target].T, mixed[:, target]]))
        kappa = found[-n * m :].reshape(n, m, m).transpose(0, 2, 1)
        gram = _pushed(system.memory, step.memory, state.gram, mixed[:, :m], inner[:m, :m])
        known = system.memory.shift(step.memory, state.known)
        known = known + system.memory.new(step.memory, jnp.float64)[:, None, None] * beside[:m]
        return Answer(found[:m].T, kappa), Path(system.memory.push(step.memory, state.moments, here.w), gram, known)


def along(matrices: Array, x: Array) -> Array:
    """Return Σ_b matrices[a, b, s] x[b, …, s], sample by sample."""
    m = matrices.shape[1]
    wide = matrices.reshape(*matrices.shape[:2], *[1] * (x.ndim - 2), matrices.shape[-1])
    return sum((wide[:, b] * x[b] for b in range(1, m)), start=wide[:, 0] * x[0])


@final
@dataclass(frozen=True)
class Tangents(Response):
    """𝓡(i,j) = E[∂ℓ_i/∂w_j] (`eq:se_xi`) from all tangents of every sample (`eq:dell_dw_disc`), through their moments.

    q_b = Σ_j (∂r_i/∂w_j) φ_b(i,j) = −(1/δ) Σ_a ρ_a H_ab with H_ab = Σ_k φ_a(i,k) D_k Σ_{j≤k} (∂r_k/∂w_j) φ_b(i,j),
    D_k = Z_k ∇ℓ_k: exact but for the projection of R_w. Of samples with several rows the units of all rows are units,
    on each of which R_w acts as on one row, and 𝓡 is the sum over the rows.
    """

    def init(self, system: System) -> Array:
        """Return H, (n, m, n, m, M), of samples that have no tangents yet: zero; m are the units of all rows."""
        n, m = system.memory.size, system.problem.width * system.problem.rows
        return jnp.zeros((n, m, n, m, system.samples), system.dtype)

    def step(
        self, system: System, step: Step, start: Start, state: Array, rho: Array, here: Local
    ) -> tuple[Answer, Array]:
        """Return Γ_i = E[∇ℓ], κ from the moments ξ_b = E[∇ℓ q_b] of 𝓡(i, ·), and the next H."""
        H, memory, rows = state, system.memory, system.problem.rows
        slope, m = here.slope(here.r), system.problem.width * rows
        if rows > 1:
            rho = jnp.kron(rho, jnp.eye(rows))
        weighted = slope if here.expected is None else here.expected * slope
        delta = jnp.asarray(system.problem.sample_ratio, H.dtype)
        q = combine(-rho.astype(H.dtype) / delta, H)
        xi = jnp.einsum("oas,akcs->koc", weighted, q).astype(jnp.float64) / system.samples
        u = memory.new(step.memory, H.dtype)
        path = memory.shift(step.memory, q, 1) + (u[None, :, None] * jnp.eye(m, dtype=H.dtype)[:, None, :])[..., None]
        pushed = along(here.Z * slope, path)
        if not isinstance(memory, Dense):
            H = memory.shift(step.memory, H, 2)
        gamma = jnp.mean(weighted, axis=-1).astype(jnp.float64)  # eq:Gamma, eq:Gamma_planted
        equal = -jnp.einsum("acs,cbs->ab", slope, slope).astype(jnp.float64) / system.samples
        gamma, xi, equal = (part if rows == 1 else _over_rows(part, rows) for part in (gamma, xi, equal))
        answer = Answer(gamma, memory.dual(step.memory, xi), equal / system.problem.sample_ratio)
        return answer, memory.push(step.memory, H, pushed)


def _over_rows(matrices: Array, rows: int) -> Array:
    """Sum of the blocks (…, m, m) of every row with itself, from matrices over units of all rows."""
    m = matrices.shape[-1] // rows
    return jnp.einsum("...alcl->...ac", matrices.reshape(*matrices.shape[:-2], m, rows, m, rows))
