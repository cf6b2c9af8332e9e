"""Rooms of the march, one by one: against dense sums, autodiff, simulation of the laws, and closed forms."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_paired, assert_within
from problems import logistic, square
from scipy import stats

import sgdlimit as sl
from sgdlimit import _random
from sgdlimit.algorithms.minibatch import poisson
from sgdlimit.dmft import march, memory, noise, planning
from sgdlimit.dmft.integrator import Explicit, Implicit
from sgdlimit.dmft.march import assemble
from sgdlimit.dmft.memory import Dense, Moments
from sgdlimit.dmft.response import Tangents
from sgdlimit.dmft.system import groups_of
from sgdlimit.estimate import extrapolation
from sgdlimit.exact.spectrum import marchenko_pastur
from sgdlimit.problem import fields


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


# --- memory ---

UNEVEN = np.concatenate([np.linspace(0.0, 1.0, 21), 1.0 + np.cumsum(np.geomspace(0.05, 0.4, 12))])
FUNCTIONS = {
    "real": Moments((0.1, 0.5, 2.0)),
    "negative": Moments((0.2, 1.0), (-0.15, -0.85)),
    "pairs": Moments((0.3,), (), ((0.2, 1.5), (0.4, 4.0))),
    "stiff": Moments((0.3, 2.0), (), ((0.2, 1.5),), 3.0),
}


def values_of(functions, times, i):
    """φ_b(i, j) for j < i from their definition, (n, i)."""
    lag, left = times[i] - times[1 : i + 1], 1 / (1 + functions.stiff * np.diff(times[: i + 1]))
    rows = [np.exp(-mu * lag) * left for mu in functions.rates]
    rows += [factor ** np.arange(i - 1, -1, -1.0) * left for factor in functions.factors]
    lag = times[i] - times[:i]
    for mu, omega in functions.pairs:
        rows += [np.exp(-mu * lag) * np.cos(omega * lag), np.exp(-mu * lag) * np.sin(omega * lag)]
    return np.stack(rows)


def row_of(rows, i):
    return jax.tree.map(lambda part: jnp.asarray(part[i]), rows)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_moments_are_dense_sums_and_their_dual_is_the_pseudo_inverse(kind):
    functions, rng = FUNCTIONS[kind], np.random.default_rng(0)
    rows = functions.rows(UNEVEN, "float64")
    x = rng.standard_normal((len(UNEVEN), 2, 5))
    running = jnp.zeros((functions.size, 2, 5))
    for i in range(len(UNEVEN) - 1):
        phi = values_of(functions, UNEVEN, i)
        np.testing.assert_allclose(running, np.einsum("bj,jas->bas", phi, x[:i]), atol=1e-12)
        gram, dual = phi @ phi.T, rows.dual[i]
        assert np.allclose(dual, dual.T)
        np.testing.assert_allclose(gram @ dual @ gram, gram, atol=1e-5 * max(1.0, np.abs(gram).max()))
        np.testing.assert_allclose(dual @ gram @ dual, dual, atol=1e-5 * max(1.0, np.abs(dual).max()))
        y = rng.standard_normal((functions.size, 2, 2))
        np.testing.assert_allclose(
            functions.dual(row_of(rows, i), jnp.asarray(y)), np.einsum("ab,bcd->acd", dual, y), rtol=1e-9, atol=1e-9
        )
        running = functions.push(row_of(rows, i), running, jnp.asarray(x[i]))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_shift_is_the_next_look_at_the_same_past_along_any_axis(kind):
    functions, i = FUNCTIONS[kind], 9
    rows = functions.rows(UNEVEN, "float64")
    now, later = (values_of(functions, UNEVEN, k) for k in (i, i + 1))
    np.testing.assert_allclose(functions.shift(row_of(rows, i), jnp.asarray(now)), later[:, :i], atol=1e-12)
    np.testing.assert_allclose(functions.new(row_of(rows, i), jnp.float64), later[:, i], atol=1e-12)
    turned = jnp.asarray(now.T[:, None, :])
    np.testing.assert_allclose(functions.shift(row_of(rows, i), turned, 2), later.T[:i, None, :], atol=1e-12)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_kernel_evaluates_the_functions(kind):
    functions, at = FUNCTIONS[kind], np.array([0, 3, 17, 31])
    rows = functions.rows(UNEVEN, "float64")
    coefficients = np.random.default_rng(1).standard_normal((6, len(at), functions.size, 2, 2))
    found = functions.kernel(rows, coefficients, at)
    assert found.shape == (6, len(at), at[-1] + 1, 2, 2)
    for k, i in enumerate(at):
        phi = values_of(functions, UNEVEN, i)
        np.testing.assert_allclose(found[:, k, :i], np.einsum("rbac,bj->rjac", coefficients[:, k], phi), atol=1e-11)
        assert np.all(found[:, k, i:] == 0)


def projected(functions, times, kernel):
    """Largest error of Σ ρ φ with ρ = P Σ_j φ K over all rows, relative to the kernel's largest value."""
    rows, worst = functions.rows(times, "float64"), 0.0
    for i in range(1, len(times) - 1):
        phi, wanted = values_of(functions, times, i), kernel(times[i] - times[1 : i + 1])
        worst = max(worst, np.max(np.abs(phi.T @ (rows.dual[i] @ (phi @ wanted)) - wanted)))
    return worst / np.max(np.abs(kernel(times)))


def test_kernels_are_reproduced():
    """Every function itself, up to the cut; the kernels of least squares, ∫ xⁱ e^{−xt} dμ, nearly so."""
    times = np.linspace(0.0, 10.0, 201)
    ladder = Moments(memory.ladder(10.0, 0.05))
    for rate in ladder.rates:
        assert projected(ladder, times, lambda lag, mu=rate: np.exp(-mu * lag)) < 5e-5
    for delta in (0.5, 1.0, 3.0):
        mu = marchenko_pastur(delta, 10.0)
        for weights in (mu.weights, mu.weights * mu.nodes):
            laplace = lambda lag, mu=mu, w=weights: np.exp(-np.multiply.outer(lag, mu.nodes)) @ w  # noqa: E731
            assert projected(ladder, times, laplace) < 5e-3, delta
            assert projected(memory.denser(ladder), times, laplace) < 2e-4, delta


def test_an_oscillating_kernel_needs_pairs():
    times = np.linspace(0.0, 20.0, 201)

    def kernel(lag):
        return np.exp(-0.1 * lag) * np.mean(np.cos(np.multiply.outer(lag, np.linspace(0.6, 1.7, 40))), axis=-1)

    omegas = 1.7 * (np.arange(8) + 0.5) / 8
    ladder = memory.ladder(20.0, 0.1)
    assert projected(Moments(ladder), times, kernel) > 0.01
    assert projected(Moments(ladder, (), tuple((0.1, float(w)) for w in omegas)), times, kernel) < 1e-3


def test_ladders_are_shared_within_a_range_of_lengths():
    assert memory.ladder(1.0, 0.05) == memory.ladder(memory.SHORTEST, 0.05)
    assert memory.ladder(memory.SHORTEST, 0.05) != memory.ladder(memory.SHORTEST + 1, 0.05)
    one = Moments(memory.ladder(3.0, 0.05))
    other = memory.shifted(one)
    assert one == other  # of one shape: one program
    assert hash(one) == hash(other)
    assert not np.any(np.isclose(one.rates, other.rates))
    assert memory.denser(one).size == 2 * one.size - 1


# --- noise ---


def mixed(x, seeds, role=0):
    """Q x for several draws of the signs."""
    out = []
    for seed in seeds:
        start = noise.draw(logistic(), groups_of(logistic()), x.shape[-1], seed, "float64", weights=False)
        once = noise.mix(jnp.asarray(start.signs[role]), jnp.asarray(x).reshape(1, -1, x.shape[-1]))
        out.append(np.asarray(once).reshape(x.shape))
    return np.stack(out)


@pytest.mark.parametrize("samples", [256, 512])
def test_mixing_is_orthogonal(samples):
    (Q,) = mixed(np.eye(samples), [3])
    np.testing.assert_allclose(Q @ Q.T, np.eye(samples), atol=1e-12)


@pytest.mark.parametrize("live", [1, 3, 512], ids=["one jump", "three jumps", "all"])
def test_mixed_samples_are_gaussian(live):
    """Even where one sample alone has jumped: fourth moment and distribution function of the entries of Q x."""
    samples, rng = 512, np.random.default_rng(0)
    x = np.zeros(samples)
    x[rng.choice(samples, live, replace=False)] = rng.exponential(size=live) + 0.5
    x *= np.sqrt(samples / np.sum(x**2))
    values = mixed(x, range(40)).ravel()
    assert np.mean(values**2) == pytest.approx(1.0)
    # entries of a row of Q are not quite independent: the fourth moment is off by O(1/√M)
    assert_within(np.mean(values**4) - 3, np.sqrt(96 / values.size) + 0.02)
    assert stats.kstest(values, "norm").statistic < 1.95 / np.sqrt(values.size) + 0.01


def test_roles_groups_and_seeds_mix_independently():
    samples, rng = 1024, np.random.default_rng(1)
    x = rng.standard_normal(samples)
    x *= np.sqrt(samples / np.sum(x**2))
    views = [*mixed(x, [1, 2]), mixed(x, [1], role=1)[0], mixed(x, [1], role=2)[0], x]
    together = np.array(views) @ np.array(views).T / samples
    off = together[~np.eye(len(views), dtype=bool)]
    assert_within(off, 1 / np.sqrt(samples))


def test_groups_mix_independently_and_together():
    """Of g groups: each of its own, Σ_q Q_q x_q in one mixing, and the same of combinations of few vectors."""
    problem, samples, rng = logistic(data=sl.PowerLaw(1.0, groups=5)), 1024, np.random.default_rng(3)
    start = noise.draw(problem, groups_of(problem), samples, 1, "float64", weights=False)
    vectors, coefficients = rng.standard_normal((3, samples)), rng.standard_normal((5, 2, 3))
    x = coefficients @ vectors
    signs = jnp.asarray(start.signs[0])
    each = np.asarray(noise.mix(signs, jnp.asarray(x)))
    np.testing.assert_allclose(np.sum(each**2, axis=-1), np.sum(x**2, axis=-1))
    for together in (noise.mix_together(signs, x), noise.mix_combined(signs, coefficients, vectors)):
        np.testing.assert_allclose(together, each.sum(axis=0), atol=1e-9)
    same = np.asarray(noise.mix(signs, jnp.asarray(vectors[None, :1])))[:, 0]
    products = same @ same.T / np.mean(vectors[0] ** 2) / samples
    assert_within(products[~np.eye(5, dtype=bool)], 1 / np.sqrt(samples))


def test_off_is_orthogonal_and_keeps_the_size_on_average():
    rng, samples = np.random.default_rng(2), 64
    basis = np.linalg.qr(rng.standard_normal((samples, 6)))[0].T * np.sqrt(samples)
    basis = np.concatenate([basis, np.zeros((1, samples))])  # a direction that is not there
    x = rng.standard_normal((20_000, samples))
    out = np.asarray(noise.off(jnp.asarray(basis), jnp.asarray(x)))
    np.testing.assert_allclose(out @ basis.T, 0, atol=1e-10)
    size = np.mean(out**2, axis=1)
    assert_within(size.mean() - 1, size.std() / np.sqrt(len(size)))


@pytest.mark.parametrize("law", [sl.Normal(0.3), sl.Normal(0.0), sl.Uniform(-0.2, 0.8), sl.Point(0.5)])
def test_draws_of_a_replica(law):
    """Coordinates of (w_0, w*) orthonormal, to 1 and z as well; exact moments of Gaussian z; (θ⁰, θ*) of their Gram."""
    problem = logistic(noise=law, init=sl.Normal(0.7), teacher=sl.SparseNormal(0.2, 2.0))
    groups, samples = groups_of(problem), 512
    start = noise.draw(problem, groups, samples, 7, "float64", weights=True)
    varies = np.std(start.z) > 1e-9
    size = np.ones(4)
    size[3] = varies
    np.testing.assert_allclose(start.basis @ start.basis.T / samples, np.diag(size), atol=1e-12)
    np.testing.assert_allclose(start.basis[2], 1.0, atol=1e-12)
    if varies:
        np.testing.assert_allclose(np.abs(np.corrcoef(start.basis[3], start.z)[0, 1]), 1.0, atol=1e-12)
    if isinstance(law, sl.Normal):
        np.testing.assert_allclose([start.z.mean(), np.mean(start.z**2)], [0.0, law.scale**2], atol=1e-12)
    weights = groups.root[0] @ start.coordinates[0]
    np.testing.assert_allclose(weights @ weights.T / samples, problem.gram(), atol=1e-10)
    np.testing.assert_allclose(np.mean(start.r_star**2), problem.gram()[1, 1], atol=1e-10)
    # still sparse, but for what is taken off to make them orthogonal
    assert np.mean(np.abs(weights[1]) < 0.15) == pytest.approx(0.8, abs=0.08)


def test_hashed_numbers():
    """Never 0 or 1, not in 2²⁸ draws either; uniform and normal; steps, keys and neighbours are independent."""
    size = 2**22
    ends = jax.jit(lambda key: (jnp.min(u := _random.uniform(key, (size,))), jnp.max(u)))
    keys = jax.random.split(jax.random.key(1), 64)
    low, high = np.array([ends(key) for key in keys]).T
    assert 0 < low.min() < 1e-6
    assert 1 - 1e-6 < high.max() < 1
    count = 100_000
    draws = [
        np.asarray(_random.uniform(jax.random.fold_in(jax.random.key(2), i), (count,)), dtype=float) for i in range(4)
    ]
    assert min(stats.kstest(u, "uniform").pvalue for u in draws) > 1e-4
    assert stats.kstest(np.asarray(_random.normal(jax.random.key(3), (count,))), "norm").pvalue > 1e-4
    pairs = [*itertools.pairwise(draws), *((u[:-lag], u[lag:]) for u in draws for lag in (1, 2, 512))]
    assert_within([np.corrcoef(a, b)[0, 1] for a, b in pairs], 1 / np.sqrt(count))


@pytest.mark.parametrize("bits", [6, 10, 14, 17])
def test_even_numbers_hit_every_cell_once(bits):
    count = 2**bits
    draw = jax.jit(lambda key: _random.even(key, (count,)))
    for seed in range(2000 >> max(bits - 10, 0)):
        u = np.asarray(draw(jax.random.key(seed)), dtype=float)
        assert 0 < u.min() <= u.max() < 1
        np.testing.assert_array_equal(np.sort((u * count).astype(int)), np.arange(count))


def test_even_numbers_are_uniform_and_pairs_of_them_independent():
    """Over many keys: one sample, pairs of samples at several distances, a sample at two steps; and two whole steps."""
    count, draws, side = 256, 20_000, 8
    keys = jax.random.split(jax.random.key(1), draws)
    both = [
        np.asarray(jax.jit(jax.vmap(lambda key, i=i: _random.even(jax.random.fold_in(key, i), (count,))))(keys), float)
        for i in (0, 1)
    ]
    now, later = both
    for i in (0, 1, 128, 255):
        assert stats.kstest(now[:, i], "uniform").pvalue > 1e-4
    pairs = [(now[:, 3], now[:, 3 + lag]) for lag in (1, 2, 16, 64, 127, 128, 252)] + [(now[:, 3], later[:, 3])]
    # two samples are never in one cell of 1/count: within a box of side 1/8 that takes one in count from a pair
    same = (count / side - np.eye(side)) / (count - 1) / side
    for k, (a, b) in enumerate(pairs):
        seen, _, _ = np.histogram2d(a, b, bins=side, range=[[0, 1], [0, 1]])
        law = np.full((side, side), 1 / side**2) if k == len(pairs) - 1 else same
        assert stats.chisquare(seen.ravel(), draws * law.ravel()).pvalue > 1e-4, k
    over = np.mean((now - 0.5) * (later - 0.5), axis=1) * 12  # the correlation of two random orders
    assert_within(over.mean(), over.std() / np.sqrt(draws))
    assert_within(over.std() * np.sqrt(count - 1) - 1, 1 / np.sqrt(2 * draws))


@pytest.mark.parametrize("shape", [(1,), (32,), (100,), (3, 128), (2**6 - 1,)])
def test_even_numbers_of_other_counts_are_plain_ones(shape):
    key = jax.random.key(7)
    np.testing.assert_array_equal(_random.even(key, shape), _random.uniform(key, shape))
    assert _random.even(key, (16, 8)).shape == (16, 8)


increments, step = jax.jit(noise.increments), jax.jit(march.step)


@jax.jit
def view_of(system, x, start, state):
    return system.weights.view(system, x, start, state.weights, state.forces)


def tiny(problem, algorithm, samples, steps, *, dt=0.1, linear=True, drawn=False, dtype="float64", **more):
    """A system that keeps the whole past and takes all tangents, its draws and its times, for marches by hand."""
    times = np.linspace(0.0, dt * steps, steps + 1)
    kept = Dense(steps + 2)
    system = assemble(problem, algorithm, samples, kept, linear=linear, response=Tangents(), dtype=dtype, **more)
    start = noise.draw(problem, system.groups, samples, 5, dtype, weights=drawn or not linear)
    return system, jax.tree.map(jnp.asarray, start), times


@pytest.mark.parametrize(
    "algorithm",
    [sl.GradientFlow(), sl.SGF(0.7), sl.SGD(0.7), sl.SGF(0.4, sl.PowerDecay(1.0, 1.0)), sl.ShuffledSGD(0.25)],
    ids=lambda a: type(a).__name__,
)
def test_increments_of_coarse_grids_add_up_the_fine_ones(algorithm):
    system, start, times = tiny(logistic(), algorithm, 256, 16)
    totals = {}
    for stride in (1, 2, 4):
        level = planning.level(times, stride, system.memory, "float64")
        state = march.init(system, start).increments
        rows = []
        for i in range(len(level.times)):
            state, Z, _ = increments(system, state, start, row_of(level.steps, i))
            rows.append(np.asarray(Z))
        totals[stride] = np.stack(rows)[: 16 // stride]
    for stride in (2, 4):
        added = totals[1].reshape(-1, stride, 256).sum(axis=1)
        np.testing.assert_allclose(totals[stride], added, rtol=1e-6, atol=1e-6)
    assert totals[1].mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("algorithm", [sl.ShuffledSGD(0.5), sl.PersistentSGD(0.3, 0.5)], ids=["shuffled", "persistent"])
def test_expected_is_the_mean_given_the_past(algorithm):
    """Z − E[Z | past] has mean zero whatever was expected and whatever happened before; over all, E Z = γ."""
    count, delta, dt = 200_000, 1.5, 0.1
    state = algorithm.start_increments(jax.random.key(0), (count,), delta)
    past = []
    for i in range(20):
        expected = np.asarray(algorithm.expected(state, i * dt, dt, delta), dtype=float)
        state, Z = algorithm.increments(state, jax.random.key(100 + i), i * dt, dt, delta)
        surprise = np.asarray(Z, dtype=float) - expected
        assert_within(surprise.mean(), surprise.std() / np.sqrt(count) + 1e-6)
        assert_within(expected.mean() - dt, expected.std() / np.sqrt(count) + 1e-6)
        for known in np.unique(np.round(expected, 5)):  # Markov: few different values
            these = surprise[np.abs(expected - known) < 1e-4]
            if len(these) > 1000:
                assert_within(these.mean(), these.std() / np.sqrt(len(these)) + 1e-4)
        for before in past[-4:]:
            product = surprise * before
            assert_within(product.mean(), product.std() / np.sqrt(count) + 1e-6)
        past.append(np.asarray(Z, dtype=float) - dt)


# --- the data side ---


def erf(x):
    return jax.scipy.special.erf(x / jnp.sqrt(2.0))


COMMITTEE = sl.Problem(
    loss=sl.TwoLayer(erf), labels=sl.TwoLayerLabels(erf), penalty=sl.Ridge(0.1), sample_ratio=1.5,
    teacher=sl.Normal(1.0), init=sl.Normal(0.6), width=2, teacher_width=2,
)  # fmt: skip


@pytest.mark.parametrize("algorithm", [sl.SGD(0.6), sl.ShuffledSGD(0.4)], ids=["fresh", "shuffled"])
def test_tangents_are_the_derivatives_of_every_sample(algorithm):
    """H and 𝓡 against jax.jacobian of r_i with respect to perturbations of all w_j, width 2, kernels not symmetric."""
    steps, M = 6, 16
    system, start, times = tiny(COMMITTEE, algorithm, M, steps, dt=0.3, kernels=True)
    level = planning.level(times, 1, system.memory, "float64")
    delta, state = COMMITTEE.sample_ratio, march.init(system, start)
    kept = []
    for i in range(steps + 1):
        x = row_of(level.steps, i)
        view = view_of(system, x, start, state)
        _, Z, expected = increments(system, state.increments, start, x)
        q = memory.combine(-view.rho / delta, state.response)  # (m, n, m, M)
        state, seen = step(system, start, state, x)
        weight = np.ones(M) if expected is None else np.asarray(expected)
        kept.append((view.w, np.asarray(view.rho), Z, np.asarray(q), np.asarray(seen["response"]), weight))
    w, rho, Z = (jnp.stack([row[k] for row in kept]) for k in range(3))

    def path(extra, s):
        """r and ℓ of sample s at all steps with w moved by `extra`, (steps, m)."""
        F, r, ell = [], [], []
        for i in range(steps + 1):
            past = sum((rho[i, j] @ F[j] for j in range(i)), start=jnp.zeros(2))
            here = w[i, :, s] + extra[i] - past / delta
            force = jax.grad(lambda v: fields.loss(COMMITTEE, v, start.r_star[:, s], start.z[s]))(here)
            r.append(here)
            ell.append(force)
            F.append(Z[i, s] * force)
        return jnp.stack(r), jnp.stack(ell)

    slopes = jax.jit(jax.vmap(jax.jacfwd(path), in_axes=(None, 0)))(jnp.zeros((steps + 1, 2)), jnp.arange(M))
    moved = [(slopes[0][s], slopes[1][s]) for s in range(M)]
    for i in range(1, steps + 1):
        for s in range(M):
            # ∂r_i/∂w_j, (m, j, m)
            np.testing.assert_allclose(kept[i][3][:, :i, :, s], moved[s][0][i][:, :i], atol=1e-10)
        mean = np.mean([kept[i][5][s] * np.asarray(moved[s][1][i][:, :i]) for s in range(M)], axis=0)
        np.testing.assert_allclose(kept[i][4][:i], mean.transpose(1, 0, 2), atol=1e-10)


def heavy_ball(friction=0.7):
    return sl.Problem(
        loss=sl.VectorField(
            lambda r, r_star, z: jnp.stack([0.0 * r[0], jnp.tanh(r[0] - r_star - z)]),
            loss=lambda r, y: 0.5 * (r[0] - y) ** 2, predict=lambda r: r[0],
        ),
        penalty=sl.VectorField(lambda theta: jnp.stack([-theta[1], friction * theta[1] + 0.01 * theta[0]])),
        sample_ratio=3.0, teacher=sl.Normal(1.0), noise=sl.Normal(0.3), width=2, teacher_width=1,
    )  # fmt: skip


CASES = {
    "gradient flow": (logistic(), sl.GradientFlow()),
    "SGF": (logistic(), sl.SGF(1.0)),
    "SGD": (logistic(0.7), sl.SGD(1.0)),
    "shuffled": (logistic(), sl.ShuffledSGD(0.6)),
    "proportional": (square(), sl.ProportionalSGD(0.4)),
    "persistent": (logistic(), sl.PersistentSGD(0.3, 0.5)),
    "width 3": (dataclasses.replace(COMMITTEE, width=3), sl.SGD(0.3)),
    "jumping schedule": (logistic(schedule=sl.Schedule(lambda t: jnp.where(t < 1.4, 1.0, 0.2))), sl.SGD(0.5)),
    "momentum": (heavy_ball(), sl.SGD(0.4)),
    "particles": (logistic(penalty=sl.SmoothL1(0.3, 0.2), teacher=sl.SparseNormal(0.2, 2.0)), sl.SGD(0.5)),
    "particles, shuffled": (logistic(penalty=sl.Quartic(0.3)), sl.ShuffledSGD(0.6)),
    "short epochs": (
        sl.Problem(loss=sl.Huber(0.84), penalty=sl.Ridge(0.017), sample_ratio=0.42, teacher=sl.Normal(0.64),
                   noise=sl.Normal(0.22), init=sl.Normal(0.25)),
        sl.ShuffledSGD(0.35),
    ),
}  # fmt: skip
QUICK = ("SGD", "proportional", "momentum", "particles")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in CASES])
def test_the_march_follows_all_tangents_and_the_whole_past(name):
    """The same random numbers in both: replica by replica the curves differ by noise, and by what memory is told to."""
    problem, algorithm = CASES[name]
    words = {"t_max": 3.0, "dt": 0.1, "samples": 8192, "replicas": 16, "extrapolate": None}
    if algorithm.discrete:
        words["dt"] = 0.5  # γ·curvature near 2
        words["t_max"] = 12.0
    if name == "short epochs":  # of 1.5 steps; what is forgotten shows late, when all samples are fitted
        words |= {"t_max": 16.0, "dt": 0.1, "extrapolate": False}
    found, whole = (function(problem, algorithm, **words) for function in (sl.solve, sl.references.tangents))
    assert (found.about["options"]["memory"], whole.about["options"]["memory"]) == ("moments", "dense")
    assert_paired(found, whole)


@pytest.mark.parametrize(
    ("problem", "dt"), [pytest.param(heavy_ball(0.2), 0.2, marks=pytest.mark.slow), (logistic(ridge=1.0), 0.1)]
)
def test_a_penalty_felt_within_one_step_does_not_escape_the_memory(problem, dt):
    """Kernels jump where the step changes; smooth functions missed more than 1e-3 of the norm, and told a tenth."""
    words = {"t_max": 3.0, "dt": dt, "samples": 8192, "seed": 1}
    found, whole = (function(problem, sl.SGD(0.1), **words) for function in (sl.solve, sl.references.tangents))
    assert_paired(found, whole, ("train_loss", "norm"), floor=4e-4)


# --- the weight side ---


def test_particles_respond_as_linear_weights_under_a_quadratic_penalty():
    """The regression of particles on their noise finds exactly the response of linear weights, step by step."""
    problem = logistic(ridge=0.4, init=sl.Normal(0.5))
    system, start, times = tiny(problem, sl.SGD(0.8), 256, 20, linear=False)
    level = planning.level(times, 1, system.memory, "float64")
    state, linear = march.init(system, start), None
    for i in range(21):
        x = row_of(level.steps, i)
        view = view_of(system, x, start, state)
        linear = system.memory.dual(x.memory, state.weights.mean.Y[0])
        np.testing.assert_allclose(view.own[0], linear, atol=1e-9)
        state, _ = step(system, start, state, x)
    assert np.asarray(linear)[0, 0, 0] < 0.9  # it has moved


def test_particles_and_linear_weights_agree_at_any_temperature():
    """Both sides on the same problem, many samples: norm and overlap."""
    problem, found = logistic(ridge=0.4, init=sl.Normal(0.5)), []
    for linear in (True, False):
        runs = []
        for seed in range(8):
            system, start, times = tiny(problem, sl.SGF(0.8), 512, 20, linear=linear, drawn=True, dtype="float32")
            start = noise.draw(problem, system.groups, 512, 50 + seed, "float32", weights=True)
            level = planning.level(times, 1, system.memory, "float32")
            seen = jax.jit(march.trace)(system, start, level.steps)
            runs.append([np.asarray(seen["norm"])[::5, 0, 0], np.asarray(seen["overlap"])[::5, 0, 0]])
        found.append(np.array(runs))
    (a, b), (e, f) = (np.mean(found, axis=1), np.std(found, axis=1, ddof=1) / np.sqrt(8))
    assert_within((a - b)[:, 1:], np.hypot(e, f)[:, 1:], trials=8)


# --- time steps ---


@pytest.mark.parametrize("gamma", [0.02, 0.5])
def test_integrator_on_a_linear_penalty(gamma):
    """Explicit 1 − γΛ, implicit (1 + γΛ)⁻¹ with Λ at the end of the step; particles take the same step."""
    stiff = np.array([[0.5, 0.3], [-0.2, 1.0]])
    field = sl.VectorField(lambda theta, t: (1 + t) * (jnp.asarray(stiff) @ theta))
    problem = dataclasses.replace(COMMITTEE, penalty=field)
    theta, change = np.random.default_rng(0).standard_normal((2, 2, 50))
    at, one = 0.4, np.eye(2)
    wanted = {
        Explicit(): (one - gamma * 1.4 * stiff, one),
        Implicit(): (one, np.linalg.inv(one + gamma * (1.4 + gamma) * stiff)),
    }
    for rule, (before, after) in wanted.items():
        linear = rule.linear(problem, at, gamma)
        np.testing.assert_allclose(linear.before, before, atol=1e-12)
        np.testing.assert_allclose(linear.after, after, atol=1e-12)
        moved, slopes = rule.move(problem, at, gamma, jnp.asarray(theta), jnp.asarray(change))
        np.testing.assert_allclose(moved, after @ (before @ theta + change), atol=1e-10)
        for s in (0, 49):
            np.testing.assert_allclose(np.broadcast_to(slopes.before, (2, 2, 50))[..., s], before, atol=1e-10)
            np.testing.assert_allclose(np.broadcast_to(slopes.after, (2, 2, 50))[..., s], after, atol=1e-10)


@pytest.mark.parametrize("gamma", [0.05, 0.5])
def test_integrator_on_a_nonlinear_penalty(gamma):
    """h = λθ³: θ − γλθ³ + c, and the real root of x + γλx³ = θ + c (Cardano); slopes are derivatives of the step."""
    strength = 0.4
    problem = logistic(penalty=sl.Quartic(strength))
    theta, change = np.random.default_rng(1).standard_normal((2, 1, 200))
    p, target = 1 / (gamma * strength), theta + change
    root = np.sqrt(target**2 * p**2 / 4 + p**3 / 27)
    exact = np.cbrt(target * p / 2 + root) + np.cbrt(target * p / 2 - root)
    moved, slopes = Implicit().move(problem, 0.0, gamma, jnp.asarray(theta), jnp.asarray(change))
    np.testing.assert_allclose(moved, exact, atol=1e-7)
    np.testing.assert_allclose(slopes.after[0], 1 / (1 + 3 * gamma * strength * exact**2), atol=1e-6)
    moved, slopes = Explicit().move(problem, 0.0, gamma, jnp.asarray(theta), jnp.asarray(change))
    np.testing.assert_allclose(moved, theta - gamma * strength * theta**3 + change, atol=1e-12)
    np.testing.assert_allclose(slopes.before[0], 1 - 3 * gamma * strength * theta**2, atol=1e-12)


def test_extrapolation_removes_two_orders():
    """f(γ) = f + c₁γ + c₂γ² with c's smooth in time: three grids give f, two leave −2c₂γ²."""
    fine = np.linspace(0.0, 4.0, 65)
    grids, gamma = [fine[::s] for s in (1, 2, 4)], 0.1

    def at(t, size):
        # the differences of grids are polynomials of degree ≤ 1 in time, which interpolation keeps
        return (np.sin(t) + (1 + t) * size + (2 - t) * size**2)[None] * np.array([[1.0], [2.0]])

    values = [at(grid, gamma * s) for grid, s in zip(grids, (1, 2, 4), strict=True)]
    record = np.array([0, 3, 10, 64])
    found = extrapolation.limit(values, grids, fine[record], record)
    exact = np.sin(fine[record])[None] * np.array([[1.0], [2.0]])
    np.testing.assert_allclose(found.best, exact, atol=1e-12)
    left = -2 * (2 - fine[record]) * gamma**2 * np.array([[1.0], [2.0]])
    np.testing.assert_allclose(found.lower - exact, left, atol=1e-12)
    np.testing.assert_allclose(extrapolation.limit(values[:2], grids[:2], fine[record], record).best, found.lower)
    alone = extrapolation.limit(values[:1], grids[:1], fine[record], record)
    assert np.array_equal(alone.best, alone.lower)


def test_step_error_covers_the_third_order():
    """f(γ) = f + c₁γ + c₂γ² + c₃γ³ with c's alike: what is left, 8c₃γ³, against the estimate."""
    fine, gamma, scale = np.linspace(0.0, 4.0, 65), 0.05, np.array([[1.0], [1.1], [0.9]])

    def at(t, size):
        orders = (1 + t) * size + (2 - 0.3 * t) * size**2 + (1 + 0.2 * t) * size**3
        return (np.sin(t) + orders)[None] * scale

    strides, record = (1, 2, 4), np.arange(0, 65, 4)
    values = [at(fine[::s], gamma * s) for s in strides]
    found = extrapolation.limit(values, [fine[::s] for s in strides], fine[record], record)
    left = np.abs(found.best.mean(axis=0) - np.sin(fine[record]))
    estimate = extrapolation.step_error(found)
    assert np.all(left <= 2 * estimate)
    assert np.max(estimate) <= np.max(np.abs(found.best - found.lower))
    plain = extrapolation.step_error(found, extrapolate=False)
    gap = np.abs(at(fine[record], gamma).mean(axis=0) - np.sin(fine[record]))
    np.testing.assert_allclose(plain[1:-1], gap[1:-1], rtol=0.1)


@pytest.mark.parametrize("rate", [0.03, 1.0, 7.9, 20.0])
def test_poisson_numbers_follow_the_poisson_law(rate):
    count = np.asarray(poisson(jnp.asarray(rate), jax.random.key(4), (100_000,)))
    top = int(stats.poisson.isf(1e-3, rate))
    seen = np.append(np.bincount(np.minimum(count.astype(int), top + 1), minlength=top + 2), [])
    law = np.append(stats.poisson.pmf(np.arange(top + 1), rate), stats.poisson.sf(top, rate))
    keep = law * len(count) > 5
    assert stats.chisquare(seen[keep], law[keep] / law[keep].sum() * seen[keep].sum()).pvalue > 1e-4


@pytest.mark.parametrize("count", [2, 3, 4, 40])
def test_what_is_carried_between_times_is_monotone_cubic(count: int) -> None:
    from scipy.interpolate import PchipInterpolator

    from sgdlimit.estimate.extrapolation import onto

    rng = np.random.default_rng(count)
    own = np.cumsum(1 + 0.45 * rng.random(count))
    values = rng.standard_normal((3, count, 2))
    values[0] = np.sort(values[0], axis=0)
    times = np.linspace(own[0], own[-1], 57)
    np.testing.assert_allclose(onto(values, own, times), PchipInterpolator(own, values, axis=1)(times), atol=1e-13)


def test_what_is_carried_between_times_has_a_kink_where_steps_change() -> None:
    """Parabolas that meet where steps become twice as long: each is carried as if it stood alone; a single interval
    between two kinks is straight."""
    from scipy.interpolate import PchipInterpolator

    from sgdlimit.estimate.extrapolation import onto

    own = np.concatenate([0.1 * np.arange(9), 0.8 + 0.2 * np.arange(1, 9), [3.2, 3.4]])
    values = np.where(own < 0.8, own**2, 0.64 + 3 * (own - 0.8) ** 2)[None]
    times = np.linspace(0.0, 3.4, 171)
    found = onto(values, own, times)[0]
    for part in (slice(0, 9), slice(8, 17)):
        here = (times >= own[part][0]) & (times <= own[part][-1])
        alone = PchipInterpolator(own[part], values[0, part])(times[here])
        np.testing.assert_allclose(found[here], alone, atol=1e-13)
    straight = times >= 2.4
    np.testing.assert_allclose(found[straight], np.interp(times[straight], own, values[0]), atol=1e-13)
