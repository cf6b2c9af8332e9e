"""Estimators of a mean response E[N_i T(i, j) …], T the resolvent of a random local kernel.

On the data side ∂r_i/∂w_j = −(1/δ) T(i, j) D_j for j < i, with D_j = Z_j∇ℓ_j and
    T(i, j) = R(i, j) − (1/δ) Σ_l R(i, l) D_l T(l, j),        R = R_θ;
on the side of the weights the same T, with γ_j(∇h_j − E∇h_j) for D_j/δ, is ∂θ_i/∂ΔU_j. An estimator holds what it
needs of the past (`init`, `record`; what it is to remember of the latest step travels as a note) and gives the row of
averages over the samples (`row`):
    E[N_i T(i, j) D_j/δ] (data side, `times_local=True`)  or  E[N_i T(i, j)] (weights), j < i.
The paper's processes (`Paper`) give the same row on the data side, for Gaussian increments.
"""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from . import history
from .probes import signs


class Here(NamedTuple):
    """What an estimator may know about the samples at step i."""

    left: Any
    """N_i: ∇ℓ_i (weighted by Z_i/γ_i for correlated increments), or ∇h_i − E∇h_i: (m, m, M)."""
    local: Any
    """D_i/δ, or γ_i(∇h_i − E∇h_i): (m, m, M)."""
    mean_left: Any = None
    """E N_i, (m, m)."""
    share: Any = None
    """Z_i/δ, (M,)."""
    mean_share: Any = None
    """γ_i/δ."""
    details: "Details | None" = None


class Details(NamedTuple):
    """What only the paper's processes ask for."""

    force: Any
    force_r: Any
    force_rr: Any
    Z: Any
    dt: Any
    temperature: Any
    sample_ratio: Any
    portion: Any
    """B(t)/B where the batch changes in time; None: all of it."""


class Estimator(abc.ABC):
    """How a mean response is estimated. Every subclass is final and hashable."""

    @abc.abstractmethod
    def init(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Any:
        """Nothing of the past yet."""

    @abc.abstractmethod
    def note(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Any:
        """An empty note."""

    @abc.abstractmethod
    def record(self, state: Any, i: Any, note: Any) -> Any:
        """Remember step i−1 from its note."""

    @abc.abstractmethod
    def row(self, state: Any, i: Any, R: Any, R_row: Any, here: Here, times_local: bool) -> tuple[Any, Any]:
        """The averages for j < i, shape (blocks, B, m, m), and the note of step i."""


class Control(NamedTuple):
    """A copy of the samples with mean slopes, whose response is known: T^c with Z_jΓ_j for D_j, and its mean."""

    answers: Any
    """(Z_jΓ_j/δ) q^c_j, q^c = T^c ε."""
    mean_local: Any
    """γ_jΓ_j/δ."""
    mean: Any
    """E T^c, a kernel: R with γ_jΓ_j for D_j, since the increments are independent."""


class Probed(NamedTuple):
    """Past of the probes."""

    local: Any
    """D_j/δ, flattened to (blocks, B, m², M)."""
    probed: Any
    """ε_jᵀ D_j/δ."""
    answers: Any
    """(D_j/δ) q_j, q = Tε."""
    control: Control | None


def _signs_at(b: Any, block: int, m: int, samples: int, dtype: Any) -> Any:
    return signs(b * block * m, block * m, samples, dtype).reshape(block, m, samples)


@final
@dataclass(frozen=True)
class Probes(Estimator):
    """The first order E[N_i R(i,j) D_j] exactly, the rest by one vector of signs for each sample: K²M.

    With `control`, for independent increments, only the difference to a copy of the samples with mean slopes is
    probed. There Z_j is independent of T^c(i, j), so that E[Γ_i T^c(i,j) D_j] = γ_j Γ_i E[T^c(i,j)] Γ_j is known; for
    the square loss nothing is left to probe.
    """

    control: bool

    def init(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Probed:
        """Zeros."""

        def vectors(width: int) -> Any:
            return history.empty(blocks, block, width, samples, dtype=dtype)

        control = None
        if self.control:
            control = Control(vectors(m), history.empty(blocks, block, m, m), history.empty_kernel(blocks, block, m))
        return Probed(vectors(m * m), vectors(m), vectors(m), control)

    def note(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Probed:
        """Zeros."""
        vector, control = jnp.zeros((m, samples), dtype), None
        if self.control:
            control = Control(vector, jnp.zeros((m, m)), history.empty(blocks, block, m, m))
        return Probed(jnp.zeros((m * m, samples), dtype), vector, vector, control)

    def record(self, state: Probed, i: Any, note: Probed) -> Probed:
        """Written into the histories."""
        return jax.tree.map(lambda past, new: history.put_previous(past, i, new), state, note)

    def row(self, state: Probed, i: Any, R: Any, R_row: Any, here: Here, times_local: bool) -> tuple[Any, Any]:
        """E[N R D] + E[N (T−R) ε εᵀ D], or E[N R] + E[N (T−R) ε εᵀ]."""
        blocks, B, m, _ = R_row.shape
        N, dtype = here.left, state.answers.dtype
        samples = N.shape[-1]
        free = self._free(R_row, i, samples, dtype)
        rest = -history.combine(R_row, state.answers, i)  # (T − R)ε = −Σ_l R(i,l) (D_l/δ) q_l
        pushed = jnp.einsum("acs,cs->as", N, rest)
        if not times_local:
            mean = jnp.einsum("ac,xjcb->xjab", jnp.mean(N, axis=-1).astype(jnp.float64), R_row)
            out = mean + self._against_signs(pushed, i, blocks, B, m)
            return out, self._note(i, here.local, free + rest, None)
        known, control = 0.0, None
        if state.control is not None:
            gamma = here.mean_left.astype(dtype)
            rest_c = -history.combine(R_row, state.control.answers, i)
            pushed = pushed - gamma @ rest_c
            N = N - gamma[:, :, None]
            weighted = jnp.einsum("xjac,xjcb->xjab", R_row, state.control.mean_local)
            mean_row = R_row - history.chain(weighted, state.control.mean, i)
            known = jnp.einsum("ac,xjcd,xjdb->xjab", here.mean_left, mean_row, state.control.mean_local)
            answer = here.share * (gamma @ (free + rest_c))
            control = Control(answer, here.mean_share * here.mean_left, mean_row)
        products = history.correlate(N.reshape(m * m, samples), state.local, i)
        first = jnp.einsum("xjcd,xjacdb->xjab", R_row, products.reshape(blocks, B, m, m, m, m))  # E[N_ac D_db]
        out = known + first + history.correlate(pushed, state.probed, i)
        return out, self._note(i, here.local, free + rest, control)

    def _note(self, i: Any, local: Any, answer: Any, control: Control | None) -> Probed:
        """D_i, ε_iᵀD_i and D_i q_i."""
        m, _, samples = local.shape
        sign = signs(i * m, m, samples, local.dtype)
        return Probed(
            local.reshape(m * m, samples),
            jnp.einsum("as,abs->bs", sign, local),
            jnp.einsum("abs,bs->as", local, answer),
            control,
        )

    def _free(self, R_row: Any, i: Any, samples: int, dtype: Any) -> Any:
        """Σ_j R(i,j) ε_j."""
        _, B, m, _ = R_row.shape

        def add(b: Any, total: Any) -> Any:
            row = history.at(R_row, b).astype(dtype)
            return total + jnp.einsum("jab,jbs->as", row, _signs_at(b, B, m, samples, dtype))

        return jax.lax.fori_loop(0, history.filled(R_row, i), add, jnp.zeros((m, samples), dtype))

    def _against_signs(self, pushed: Any, i: Any, blocks: int, B: int, m: int) -> Any:
        """E[pushed ε_jᵀ] for j < i."""
        samples = pushed.shape[-1]

        def fill(b: Any, row: Any) -> Any:
            values = jnp.einsum("as,jbs->jab", pushed / samples, _signs_at(b, B, m, samples, pushed.dtype))
            earlier = (b * B + jnp.arange(B) < i)[:, None, None]
            return jax.lax.dynamic_update_index_in_dim(row, jnp.where(earlier, values, 0.0).astype(row.dtype), b, 0)

        start = jnp.zeros((blocks, B, m, m), jnp.float64)
        return jax.lax.fori_loop(0, (i + B - 1) // B, fill, start)


@final
@dataclass(frozen=True)
class Exact(Estimator):
    """𝓡(i,j) = E[∂ℓ_i/∂w_j] (`eq:se_xi`) from all tangents of every sample (`eq:dell_dw_disc`).

    Backwards: t_j = N_i R(i,j) − Σ_{l>j} t_l (D_l/δ) R(l,j). K³M/6, memory KM.
    """

    def init(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Any:
        """D_j/δ."""
        return history.empty(blocks, block, m, m, samples, dtype=dtype)

    def note(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Any:
        """D/δ."""
        return jnp.zeros((m, m, samples), dtype)

    def record(self, state: Any, i: Any, note: Any) -> Any:
        """Written into the history."""
        return history.put_previous(state, i, note)

    def row(self, state: Any, i: Any, R: Any, R_row: Any, here: Here, times_local: bool) -> tuple[Any, Any]:
        """One triangular solve; what couples different blocks is a matrix product."""
        blocks, B, m, _ = R_row.shape
        dtype, count = state.dtype, history.filled(R_row, i)

        def one_block(step: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            pushed, out = carry  # pushed: t_l D_l/δ of the later blocks
            b = count - 1 - step
            t = jnp.einsum("acs,jcb->jabs", here.left, history.at(R_row, b).astype(dtype))

            def couple(c: Any, t: Any) -> Any:
                between = history.tile(R, c, b).astype(dtype)
                return t - jnp.einsum("lacs,ljcb->jabs", history.at(pushed, c), between)

            t = jax.lax.fori_loop(b + 1, count, couple, t)
            inside, local = history.tile(R, b, b).astype(dtype), history.at(state, b)

            def substitute(back: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
                t, u = carry
                last = B - 1 - back
                u_last = jnp.einsum("acs,cbs->abs", t[last], local[last])
                t = t - jnp.einsum("acs,jcb->jabs", u_last, inside[last])
                return t, u.at[last].set(u_last)

            t, u = jax.lax.fori_loop(0, B, substitute, (t, jnp.zeros_like(t)))
            wanted = jnp.mean(u if times_local else t, axis=-1).astype(jnp.float64)
            pushed = jax.lax.dynamic_update_index_in_dim(pushed, u, b, 0)
            return pushed, jax.lax.dynamic_update_index_in_dim(out, wanted, b, 0)

        start = (jnp.zeros_like(state), jnp.zeros((blocks, B, m, m), jnp.float64))
        return jax.lax.fori_loop(0, count, one_block, start)[1], here.local


class Processes(NamedTuple):
    """ρ_ℓ, D_ℓ and ∇ℓ·D_r of every earlier step k, times Z_k: (rows, rows, m, …, M); of every step ℓ, ∇ℓ, γ, B(t)/B."""

    rho: Any
    D_ell: Any
    D_r: Any
    force: Any
    force_r: Any
    dt: Any
    portion: Any


@final
@dataclass(frozen=True)
class Paper(Estimator):
    """R_ℓ = E[ρ_ℓ] + sqrt(τδ) E[D_ℓ] (`eq:R_ell`, `eq:R_ell_planted`, `eq:dmft_disc_func`), discretised. Memory K²M.

    The processes are `eq:dmft_disc_process`; with a teacher, ℓ and its derivatives see r* as well.
    """

    def init(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Processes:
        """Zeros."""
        rows = blocks * block
        return Processes(
            jnp.zeros((rows, rows, m, m, samples), dtype),
            jnp.zeros((rows, rows, m, m, samples), dtype),
            jnp.zeros((rows, rows, m, samples), dtype),
            jnp.zeros((rows, m, samples), dtype),
            jnp.zeros((rows, m, m, samples), dtype),
            jnp.zeros(rows, dtype),
            jnp.ones(rows, dtype),
        )

    def note(self, blocks: int, block: int, m: int, samples: int, dtype: Any) -> Processes:
        """Zeros."""
        return jax.tree.map(lambda part: jnp.zeros(part.shape[1:], dtype), self.init(blocks, block, m, samples, dtype))

    def record(self, state: Processes, i: Any, note: Processes) -> Processes:
        """Written into the processes."""
        return jax.tree.map(lambda past, new: past.at[jnp.maximum(i - 1, 0)].set(new), state, note)

    def row(self, state: Processes, i: Any, R: Any, R_row: Any, here: Here, times_local: bool) -> tuple[Any, Any]:
        """−γ_j R_ℓ(i, j), the average that the other estimators call E[N T D/δ]."""
        assert here.details is not None
        assert times_local
        blocks, B, m, _ = R_row.shape
        d = here.details
        R_i = R_row.reshape(blocks * B, m, m).astype(state.rho.dtype)
        # Itô, left point. eq:dmft_disc_rhor (eq:rho_r, eq:rho_r_planted)
        rho_r = -jnp.einsum("kac,kjcbs->jabs", R_i, state.rho) - jnp.einsum("jac,jcbs->jabs", R_i, state.force_r)
        rho_r = rho_r / d.sample_ratio
        # eq:dmft_disc_Dr (eq:D_r, eq:D_r_planted)
        kick = jnp.sqrt(d.temperature / d.sample_ratio)
        D_r = -jnp.einsum("kac,kjcs->jas", R_i, state.D_r) / d.sample_ratio
        D_r = D_r - kick * jnp.einsum("jac,jcs->jas", R_i, state.force)
        bracket = -jnp.einsum("kac,kjcbs->jabs", R_i, state.D_ell) / d.sample_ratio
        # eq:dmft_disc_rhol (eq:rho_ell, eq:rho_ell_planted), eq:dmft_disc_Drhol (eq:D_ell, eq:D_ell_planted)
        rho_ell = jnp.einsum("acs,jcbs->jabs", d.force_r, rho_r)
        bent = jnp.einsum("abcs,jcs->jabs", d.force_rr, D_r)
        D_ell = jnp.einsum("acs,jcbs->jabs", d.force_r, bracket) + jnp.einsum("jacs,jcbs->jabs", bent, rho_r)
        # D_ℓ is linear in the noise of step j, and so is what it multiplies: sqrt(τ(t_j)) twice.
        noisy = D_ell if d.portion is None else D_ell / state.portion[:, None, None, None]
        R_ell = jnp.mean(rho_ell + jnp.sqrt(d.temperature * d.sample_ratio) * noisy, axis=-1)
        out = -(state.dt[:, None, None] * R_ell).astype(jnp.float64)
        turned = jnp.einsum("acs,jcs->jas", d.force_r, D_r)
        dtype = state.rho.dtype
        portion = jnp.ones(()) if d.portion is None else d.portion
        note = (d.Z * rho_ell, d.Z * D_ell, d.Z * turned, d.force, d.force_r, d.dt, portion)
        return out.reshape(blocks, B, m, m), Processes(*(part.astype(dtype) for part in note))


def estimator(name: str, independent: bool) -> Estimator:
    """By the name that users give; probes know more about independent increments."""
    return {"probes": Probes(control=independent), "exact": Exact(), "paper": Paper()}[name]
