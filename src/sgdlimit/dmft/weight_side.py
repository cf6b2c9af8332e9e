"""One weight in the limit (`eq:dmft_disc_theta`; in continuous time `eq:theta`, with a teacher `eq:theta_planted`).

    θ_{i+1} = θ_i − γ_i [h_i(θ_i) + s (Γ_i θ_i + Σ_{j<i} 𝓡(i,j) θ_j + R*_i θ*)] + √s ΔU_i,
    Cov(ΔU_i, ΔU_j) = E[F_i F_jᵀ]/δ

for every group of coordinates, s its variance in the data (1 for iid entries). The class means of a mixture add
Σ_j E[ℓ_i means[c, j]] a_j to the bracket, a_j being θ*. `Linear`: h = Λ_t θ, and everything is
linear algebra: θ_i = a_i·start + √(s/δ) Q f_i with f_i = Σ_j R_θ(i,j) F_j. Any other h goes by `particles`.
A weight side gives, before a step, R_θ and the fresh pre-activation w; `advance` takes the data's averages to the next.
"""

import abc
from dataclasses import dataclass
from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from .._types import Array, Tree
from ..problem.mixture import Push
from . import noise
from .integrator import LinearStep, stiffness
from .memory import combine
from .response import Answer, Kicks
from .system import Start, Step, System, moments
from .training import Drive, normals


class View(NamedTuple):
    """The weights at step i as the data see them."""

    rho: Array
    """Coefficients of R_w(i, ·) = Σ_q p_q s_q R_θ^q(i, ·), (n, m, m)."""
    own: Array
    """Coefficients of every R_θ^q(i, ·), (g, n, m, m)."""
    rest: Array
    """What of the weights their start does not tell, (g, m, M): C_θ(i,k) = E[rest_i rest_kᵀ] + a_i a_kᵀ."""
    w: Array
    """Fresh pre-activations, (m, M)."""
    f: Array
    """Σ_j R_w(i,j) F_j, (m, M)."""
    norm: Array
    """C_θ^q(i, i), (g, m, m) (`eq:C_theta`)."""
    along: Array
    """a^q = E[θ startᵀ], (g, m, m+k)."""
    kicks: Kicks | None = None
    """The noise that drives w, where the response is found from it."""


class Averages(NamedTuple):
    """What the weights need from step i."""

    answer: Answer
    """What the force answers to the past: Γ_i and κ, or κ alone for both."""
    with_basis: Array
    """E[ℓ_i · coordinates of (w_0, w*)], (m, m+k)."""
    force: Array
    """F_i, (m, M): what the noise of the weights is mixed from."""
    push: Push
    """What moves the means of a mixture and an intercept."""
    drive: Drive
    """What else drives the weights."""


class WeightSide(abc.ABC):
    """How θ is marched. Every subclass is final and hashable; its state is its own."""

    @abc.abstractmethod
    def init(self, system: System, start: Start) -> Tree:
        """Return the state at θ_0 = θ⁰, before step 0."""

    @abc.abstractmethod
    def view(self, system: System, step: Step, start: Start, state: Tree, forces: Array) -> View:
        """Return what the data side needs at step i; `forces` are the moments of F."""

    @abc.abstractmethod
    def advance(self, system: System, step: Step, start: Start, state: Tree, view: View, averages: Averages) -> Tree:
        """Return the state after step i, from what the data's averages pull with."""

    @abc.abstractmethod
    def draw(self, system: System, start: Start, state: Tree, view: View) -> tuple[Array, Array]:
        """Return draws of θ_i (g, m, M) and θ* (g, k, M), the same paths at all times."""


def fresh(system: System, start: Start, along: Array, rest: Array) -> Array:
    """Return w = Σ_q √(p_q s_q) (a^q n_q + Q_q rest^q), what Q leaves being orthogonal to all that is known."""
    groups, dtype = system.groups, system.dtype
    left = jnp.sqrt(groups.share * groups.variance)[:, None, None].astype(dtype) * rest
    known, within = _split(system, along)
    if within is not None:
        left = left + jnp.einsum("gab,bs->gas", within.astype(dtype), start.within)
    return _with_known(system, start, known, noise.mix_together(start.signs[0], left))


def _with_known(system: System, start: Start, known: Array, mixed: Array) -> Array:
    """What is known of w, (m, m+k) of the coordinates of (w_0, w*), and noise that is orthogonal to it."""
    return _known_part(system, start, known) + noise.off(start.basis, mixed, system.problem.rows)


def _known_part(system: System, start: Start, known: Array) -> Array:
    return known.astype(system.dtype) @ start.basis[: system.problem.width + system.problem.k]


def _split(system: System, along: Array) -> tuple[Array, Array | None]:
    """Σ_q √(p_q s_q) a^q n_q as what the coordinates of (w_0, w*) tell, and the coefficients (g, m, m+k) of the rest.

    The rest is a vector as any other under Q_q. One group has none.
    """
    groups, g = system.groups, system.shape[0]
    own = jnp.sqrt(groups.share * groups.variance)[:, None, None] * along
    if g == 1:
        return own[0], None
    known = known_along(system, along)
    return known, own - jnp.einsum("ab,gbc->gac", known, groups.across)


def known_along(system: System, along: Array) -> Array:
    """Return E[w coordinatesᵀ] = Σ_q √(p_q s_q) a^q across_qᵀ, (m, m+k)."""
    groups = system.groups
    return jnp.einsum("g,gab,gcb->ac", jnp.sqrt(groups.share * groups.variance), along, groups.across)


def over_groups(system: System, rho: Array) -> Array:
    """Return Σ_q p_q s_q ρ^q, (n, m, m)."""
    return jnp.einsum("g,gnab->nab", system.groups.share * system.groups.variance, rho)


def teachers(system: System, start: Start) -> Array:
    """Return θ* of the particles, (g, k, M)."""
    m = system.problem.width
    return jnp.einsum("gab,gbs->gas", system.groups.root[:, m:].astype(system.dtype), start.coordinates)


def responded(system: System, step: Step, state: "LinearState", averages: Averages, pace: "Paced") -> "LinearState":
    """Return the response after step i.

    R_θ(i+1, ·) = after (before R_θ(i, ·) − γ s [Γ R_θ(i, ·) + Σ_l 𝓡(i,l) R_θ(l, ·)]), R_θ(i+1, i) = after. The bracket
    of one group, times s, is what the force answers to the noise that drives w. Where every coordinate has its own rate
    that multiplies bracket and noise; with a friction both drive the velocity.
    """
    memory, variance = system.memory, system.groups.variance[:, None, None, None]
    gamma, kappa = averages.answer.gamma, averages.answer.kappa
    if gamma is None:
        pulled, N = memory.moments(step.memory, kappa)[None], None
    else:
        remembered = jnp.einsum("loc,glcnb->gnob", kappa, state.N)
        pulled = variance * (jnp.einsum("oa,gnab->gnob", gamma, state.Y) + remembered)
        shifted = memory.shift(step.memory, state.Y, 1).transpose(0, 2, 1, 3)
        N = jax.vmap(lambda N, new: memory.push(step.memory, memory.shift(step.memory, N, 2), new))(state.N, shifted)
    gain = averages.drive.gain
    pulled = pulled if gain is None else gain[:, None, :, None] * pulled
    newest = pace.newest if gain is None else pace.newest * gain[:, None, :]
    Y, velocity = pace.moved(step.dt, state.Y, state.velocity, -step.dt * pulled)
    u = memory.new(step.memory, jnp.float64)
    Y = memory.shift(step.memory, Y, 1) + u[None, :, None, None] * newest[:, None]
    if velocity is not None:
        new = u[None, :, None, None] * pace.damp * jnp.eye(newest.shape[-1])
        velocity = memory.shift(step.memory, velocity, 1) + new
    return state._replace(Y=Y, N=N, velocity=velocity)


class Paced(NamedTuple):
    """How a step moves what is linear in θ, θ ← after (before θ + change), or by way of a velocity."""

    before: Array
    """(g, m, m)."""
    after: Array
    stiff: Array | None = None
    """Λ, (g, m, m), where there is a friction: it pulls at the velocity."""
    damp: Tree = 1.0
    """1/(1 + γκ)."""
    dt: Tree = 1.0

    @property
    def newest(self) -> Array:
        """What is left at the end of a step of a kick in it, (g, m, m)."""
        return self.after if self.stiff is None else self.dt * self.damp * self.after

    def moved(self, dt: Tree, x: Array, velocity: Array | None, change: Array) -> tuple[Array, Array | None]:
        """Return x, (g, …, m, b), and its velocity after the step."""
        if self.stiff is None or velocity is None:
            moved = jnp.einsum("goa,g...ab->g...ob", self.before, x) + change
            return jnp.einsum("goa,g...ab->g...ob", self.after, moved), None
        velocity = self.damp * (velocity + change - dt * jnp.einsum("goa,g...ab->g...ob", self.stiff, x))
        return jnp.einsum("goa,g...ab->g...ob", self.after, x + dt * velocity), velocity


def paced(
    system: System, step: Step, drive: Drive, linear: LinearStep | None = None, stiff: Array | None = None
) -> Paced:
    """Return the step of what is linear in θ; `linear` and `stiff`: of particles, on average."""
    g, m, one = system.shape[0], system.problem.width, jnp.eye(system.problem.width)
    scales = jnp.broadcast_to(jnp.asarray(drive.penalty), (g, m)) if jnp.ndim(drive.penalty) else None
    left = 1.0 if drive.decay is None else 1.0 / (1.0 + step.dt * drive.decay)
    if system.algorithm.discrete and drive.decay is not None:
        left = 1.0 - step.dt * drive.decay
    if drive.friction is not None:
        if stiff is None:
            stiff = jnp.broadcast_to(stiffness(system.problem, step.t, drive.penalty), (g, m, m))
        whole = jnp.broadcast_to(one, (g, m, m))
        return Paced(whole, left * whole, stiff, 1.0 / (1.0 + step.dt * drive.friction), step.dt)
    if linear is None and scales is not None:
        linear = jax.vmap(lambda scale: system.rule.linear(system.problem, step.t, step.dt, scale))(scales)
    elif linear is None:
        linear = system.rule.linear(system.problem, step.t, step.dt, drive.penalty)
    before, after = (jnp.broadcast_to(part, (g, m, m)) for part in linear)
    return Paced(before, after if drive.decay is None else left * after)


class LinearState(NamedTuple):
    """R_θ, what the memory of the past does to it, and the weights along their start."""

    Y: Array
    """Moments of R_θ^q(i, ·), (g, n, m, m)."""
    N: Array | None
    """Moments of R_θ^q(l, j) in both arguments, (g, n, m, n, m); None where the response is found from the noise."""
    along: Array
    """a^q, (g, m, m+k)."""
    past: Array | None = None
    """Moments of a^q_j, (g, n, m, m+k), of more groups than one."""
    kicks: Kicks | None = None
    """The noise that has driven w, where the response is found from it."""
    jumps: Array | None = None
    """Moments of the noise that a step adds itself, not yet mixed, (n, m, M)."""
    velocity: Array | None = None
    """Moments of the response of the velocity, as Y, where there is a friction."""
    speed: Array | None = None
    """The velocity along the start, (g, m, m+k)."""


@final
@dataclass(frozen=True)
class Linear(WeightSide):
    """h = Λ_t θ: no sampling of weights."""

    def init(self, system: System, start: Start) -> LinearState:
        """Return a response without a past, and the weights along their start, θ_0 = θ⁰."""
        (g, m, k, M), n, of_kicks = system.shape, system.memory.size, system.response.of_kicks
        none = Kicks(jnp.zeros((n, m, M), system.dtype), jnp.zeros((n, m, n, m), jnp.float64))
        how = system.algorithm.how
        moving = how.friction is not None
        return LinearState(
            Y=jnp.zeros((g, n, m, m), jnp.float64),
            N=None if of_kicks else jnp.zeros((g, n, m, n, m), jnp.float64),
            along=system.groups.root[:, :m],
            past=jnp.zeros((g, n, m, m + k), jnp.float64) if g > 1 else None,
            kicks=none if of_kicks else None,
            jumps=jnp.zeros((n, m, M), system.dtype) if how.noisy else None,
            velocity=jnp.zeros((g, n, m, m), jnp.float64) if moving else None,
            speed=jnp.zeros((g, m, m + k), jnp.float64) if moving else None,
        )

    def view(self, system: System, step: Step, start: Start, state: LinearState, forces: Array) -> View:
        """Return R_θ, w and f for θ_i = a_i·start + √(s/δ) Q f_i."""
        groups, g, dtype = system.groups, system.shape[0], system.dtype
        rho = jax.vmap(lambda Y: system.memory.dual(step.memory, Y))(state.Y)
        size = groups.variance / system.ratio
        past = jax.vmap(combine, in_axes=(0, None))(rho.astype(dtype), forces)
        rest = jnp.sqrt(size).astype(dtype)[:, None, None] * past
        if state.jumps is not None:
            rest = rest + jax.vmap(combine, in_axes=(0, None))(rho.astype(dtype), state.jumps)
        if g > 1:  # past and rest are then not computed, unless draws or kernels ask for them
            together, norm, w = over_groups(system, rho), *self._of_groups(system, start, state, forces, rho)
            return View(together, rho, rest, w, combine(together.astype(dtype), forces), norm, state.along)
        norm = size[:, None, None] * moments(past, past) if state.jumps is None else moments(rest, rest)
        norm = norm + jnp.einsum("gab,gcb->gac", state.along, state.along)
        together = over_groups(system, rho)
        if state.kicks is None:
            w = fresh(system, start, state.along, rest)
        else:  # the same noise, mixed as it came
            w = _known_part(system, start, _split(system, state.along)[0])
            w = w + combine(together.astype(dtype), state.kicks.moments)
        f = jnp.einsum("g,gas->as", (groups.share * groups.variance).astype(dtype), past)
        return View(together, rho, rest, w, f, norm, state.along, state.kicks)

    def _of_groups(
        self, system: System, start: Start, state: LinearState, forces: Array, rho: Array
    ) -> tuple[Array, Array]:
        """C_θ^q(i, i) and w, from the few moments of the forces that every f^q is a combination of."""
        groups, (g, m, _, M), n = system.groups, system.shape, system.memory.size
        size = groups.variance / system.ratio
        rows = rho.transpose(0, 2, 1, 3).reshape(g, m, n * m)
        flat, size = forces.reshape(n * m, M), jnp.sqrt(size)[:, None, None]
        if state.jumps is None:
            rows = size * rows
        else:
            rows, flat = jnp.concatenate([size * rows, rows], 2), jnp.concatenate([flat, state.jumps.reshape(n * m, M)])
        double = flat.astype(jnp.float64)  # the functions nearly cancel
        norm = jnp.einsum("gax,gbx->gab", rows @ moments(double, double), rows)
        norm = norm + jnp.einsum("gab,gcb->gac", state.along, state.along)
        known, within = _split(system, state.along)
        assert within is not None
        weight = jnp.sqrt(groups.share * groups.variance)[:, None, None]
        coefficients = jnp.concatenate([weight * rows, within], axis=2).astype(system.dtype)
        mixed = noise.mix_combined(start.signs[0], coefficients, jnp.concatenate([flat, start.within]))
        return norm, _with_known(system, start, known, mixed)

    def advance(
        self, system: System, step: Step, start: Start, state: LinearState, view: View, averages: Averages
    ) -> LinearState:
        """Return R_θ and a after the step: `eq:dmft_disc_rhotheta` on average (`eq:R_theta`; in continuous time
        `eq:rho_theta`, `eq:rho_theta_planted`).

        a' of one group needs no response: by Gaussian integration by parts Γa + Σ𝓡a + R*… = E[ℓ · coordinates]. Of
        several each has Γa + Σ𝓡a itself, and what then is left of E[ℓ · coordinates] is shared by all: an average for
        each of them would have noise that adds up to a bias of g/M.
        """
        groups, g, dt, drive = system.groups, system.shape[0], step.dt, averages.drive
        pace = paced(system, step, drive)
        left, pull, past = averages.with_basis, 0.0, None
        if g > 1:
            assert state.past is not None
            gamma, kappa = averages.answer.apart
            remembered = jax.vmap(combine, in_axes=(None, 0))(kappa, state.past)
            own = jnp.einsum("oa,gab->gob", gamma, state.along) + remembered
            left, pull = left - known_along(system, own), groups.variance[:, None, None] * own
            past = jax.vmap(lambda old, new: system.memory.push(step.memory, old, new))(state.past, state.along)
        scale = jnp.sqrt(groups.variance / groups.share)[:, None, None]
        pull = pull + scale * jnp.einsum("ab,gbc->gac", left, groups.across)
        if (means := averages.push.means) is not None:  # E[a_j startᵀ] is that of θ*
            pull = pull + jnp.einsum("ok,gkb->gob", means, groups.root[:, system.problem.width :])
        if drive.gain is not None:
            pull = drive.gain[:, :, None] * pull
        along, speed = pace.moved(dt, state.along, state.speed, -dt * pull)
        jump, jumps = None, state.jumps
        if jumps is not None and drive.sigma is not None:
            jump = drive.sigma.astype(system.dtype) * normals(start, step, averages.force.shape, system.dtype)
            jumps = system.memory.push(step.memory, jumps, jump)
        kicks = state.kicks and self._kicked(system, step, start, state.kicks, averages.force, jump)
        moved = responded(system, step, state, averages, pace)
        return moved._replace(along=along, past=past, kicks=kicks, jumps=jumps, speed=speed)

    def _kicked(self, system: System, step: Step, start: Start, past: Kicks, force: Array, jump: Array | None) -> Kicks:
        """The noise with its newest part, Q F_i/√δ off what is known, and its second moments: V ← E V + u ΔU.

        A jump that the step adds itself reaches w as √s of what a kick of the data, which is divided by √s, does.
        """
        delta = jnp.asarray(system.ratio, system.dtype)
        if jump is not None:
            force = force + jnp.sqrt(delta / system.groups.variance[0].astype(system.dtype)) * jump
        mixed = noise.mix_together(start.signs[0], force[None])
        new = noise.off(start.basis, mixed, system.problem.rows) / jnp.sqrt(delta)
        return past.pushed(system.memory, step.memory, new)

    def draw(self, system: System, start: Start, state: LinearState, view: View) -> tuple[Array, Array]:
        """Return a·start + √(s/δ) Q f and θ*, with starts drawn from their law."""
        mixed = noise.mix(start.signs[2], view.rest)
        rest = jax.vmap(noise.off)(start.coordinates, mixed)
        theta = jnp.einsum("gab,gbs->gas", state.along.astype(system.dtype), start.coordinates) + rest
        return theta, teachers(system, start)[:, : system.problem.read]
