"""Parts of the march against dense linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_within
from scipy import stats

from sgdlimit.algorithms.minibatch import poisson
from sgdlimit.dmft import gaussian, history, noise, probes, response

BLOCKS, B = 3, 4
ROWS = BLOCKS * B


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def lower(rng, m, upto=ROWS):
    """A random kernel that vanishes on and above its diagonal, dense (rows, rows, m, m)."""
    kernel = rng.standard_normal((ROWS, ROWS, m, m)) * 0.3
    kernel *= np.tril(np.ones((ROWS, ROWS)), -1)[:, :, None, None]
    kernel[upto:] = 0
    return kernel


def blocked(dense, two_time=False):
    shape = (BLOCKS, B, BLOCKS, B) if two_time else (BLOCKS, B)
    return jnp.asarray(dense).reshape(*shape, *dense.shape[2 if two_time else 1 :])


def flat(row):
    return np.asarray(row).reshape(ROWS, *row.shape[2:])


@pytest.mark.parametrize("rows", [1, 5, 8, 12])
def test_history_sums_are_the_dense_ones(rows):
    rng, m, M = np.random.default_rng(0), 2, 7
    row = rng.standard_normal((ROWS, m, m))
    row[rows:] = 0
    past = rng.standard_normal((ROWS, m, M))
    past[rows:] = 0
    kernel = lower(rng, m, rows)
    x = rng.standard_normal((m, M))
    np.testing.assert_allclose(
        history.combine(blocked(row), blocked(past), rows), np.einsum("jab,jbs->as", row, past), atol=1e-12
    )
    np.testing.assert_allclose(
        flat(history.correlate(jnp.asarray(x), blocked(past), rows)), np.einsum("as,jbs->jab", x, past) / M, atol=1e-12
    )
    np.testing.assert_allclose(
        flat(history.chain(blocked(row), blocked(kernel, True), rows)),
        np.einsum("lac,ljcb->jab", row, kernel),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        flat(history.apply(blocked(kernel, True), blocked(row), rows)),
        np.einsum("lac,jlbc->jab", row, kernel),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        history.inner(blocked(row), blocked(row), rows), np.einsum("jab,jcb->ac", row, row), atol=1e-12
    )


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("rank", [3, 8, 30])
def test_rows_of_the_gaussian_rebuild_the_covariance(m, rank):
    """L Lᵀ is the covariance, also where it is singular: a pivot below the threshold leaves a zero column."""
    rng, count = np.random.default_rng(1), 10
    factor_of = rng.standard_normal((count * m, rank))
    covariance = (factor_of @ factor_of.T).reshape(count, m, count, m)
    state, rows = gaussian.start(BLOCKS, B, m), []
    for i in range(count):
        row = np.zeros((ROWS, m, m))
        row[:i] = covariance[i, :, :i].transpose(1, 0, 2)
        corner = covariance[i, :, i]
        state, new = gaussian.extend(
            state, i, blocked(row), jnp.asarray(corner), jnp.diagonal(jnp.asarray(corner)), 1e-7
        )
        rows.append(flat(new)[:count].transpose(1, 0, 2).reshape(m, count * m))
    L = np.concatenate(rows)
    assert np.allclose(np.triu(L, 1), 0)
    np.testing.assert_allclose(L @ L.T, covariance.reshape(count * m, count * m), atol=1e-6 * rank)
    assert int(state.clipped) == max(0, count * m - rank)
    assert np.all((np.diagonal(L) > 0).sum() == min(count * m, rank))


def test_probe_signs_are_orthogonal_in_a_group_and_unbiased_between_groups():
    group = np.asarray(probes.signs(0, probes.GROUP, 512, jnp.float64))
    np.testing.assert_array_equal(group @ group.T, 512 * np.eye(probes.GROUP))
    many = np.asarray(probes.signs(0, 3 * probes.GROUP, 4096, jnp.float64))
    between = (many[: probes.GROUP] @ many[probes.GROUP :].T).ravel() / np.sqrt(4096)
    # rows of two groups meet in only as many independent ways as a group has rows, and there are two other groups
    assert_within(np.mean(between**2) - 1, np.sqrt(2 / (2 * probes.GROUP)))
    assert np.abs(between).max() < 6


def tangents(R, local):
    """T = R − R (D/δ) T for one sample, dense: (rows·m, rows·m)."""
    rows, m = R.shape[0], R.shape[2]
    flat_R = R.transpose(0, 2, 1, 3).reshape(rows * m, rows * m)
    D = np.zeros_like(flat_R)
    for j in range(rows):
        D[j * m : (j + 1) * m, j * m : (j + 1) * m] = local[j]
    return np.linalg.solve(np.eye(rows * m) + flat_R @ D, flat_R).reshape(rows, m, rows, m).transpose(0, 2, 1, 3)


def fill(estimator, R, local, left, i, times_local, **more):
    """The row of an estimator at step i after all earlier steps were noted."""
    m, M = left.shape[1], left.shape[-1]
    state = estimator.init(BLOCKS, B, m, M, jnp.float64)
    note = estimator.note(BLOCKS, B, m, M, jnp.float64)
    kernel, out = blocked(R, True), None
    for j in range(i + 1):
        state = estimator.record(state, j, note)
        here = response.Here(jnp.asarray(left[j]), jnp.asarray(local[j]), *(part[j] for part in more.values()))
        out, note = estimator.row(state, j, kernel, blocked(R[j]), here, times_local)
    return flat(out)


@pytest.mark.parametrize("times_local", [True, False])
def test_responses_against_dense_tangents_for_two_units(times_local):
    """Non-commuting matrices: the order of the factors shows. Exact to rounding; probes to their sampling error."""
    rng, m, M, i = np.random.default_rng(2), 2, 1024, 10
    R = lower(rng, m)
    local = 0.5 + 0.3 * rng.standard_normal((ROWS, m, m, M))
    left = 1 + 0.5 * rng.standard_normal((ROWS, m, m, M))
    each = np.stack([tangents(R, local[..., s])[i] for s in range(M)], axis=-1)
    spec = "acs,jcds,jdbs->jabs" if times_local else "acs,jcbs->jabs"
    parts = (left[i], each, local) if times_local else (left[i], each)
    values = np.einsum(spec, *parts)
    exact = fill(response.Exact(), R, local, left, i, times_local)
    np.testing.assert_allclose(exact[:i], values.mean(axis=-1)[:i], atol=1e-10)
    probed = fill(response.Probes(control=False), R, local, left, i, times_local)
    # the noise of a probe is of the size of all the tangents of a row
    size = np.sqrt(np.mean(np.sum(values**2, axis=(0, 1, 2)))) / np.sqrt(M)
    assert_within(probed[:i] - exact[:i], np.full_like(exact[:i], 2 * size))


def test_controlled_probes_are_exact_for_constant_slopes():
    """Square loss: T varies with Z, but nothing is left to probe; the mean response is known."""
    rng, m, M, i, delta, dt = np.random.default_rng(3), 2, 256, 9, 2.0, 0.1
    R, slope = lower(rng, m), rng.standard_normal((m, m))
    Z = dt + 0.3 * rng.standard_normal((ROWS, M))
    local = slope[None, :, :, None] * Z[:, None, None, :] / delta
    left = np.broadcast_to(slope[None, :, :, None], local.shape)
    more = {
        "mean_left": [jnp.asarray(slope)] * ROWS,
        "share": jnp.asarray(Z / delta),
        "mean_share": [dt / delta] * ROWS,
    }
    found = fill(response.Probes(control=True), R, local, left, i, True, **more)
    T = tangents(R, np.broadcast_to(slope * dt / delta, (ROWS, m, m)))[i]
    np.testing.assert_allclose(found[:i], np.einsum("ac,jcd,db->jab", slope, T, slope * dt / delta)[:i], atol=1e-12)


def test_normals_are_orthonormal_and_coupled_between_grids():
    key, M = jax.random.key(0), 512
    basis = jnp.ones((1, M))
    fine = jnp.arange(100.0)

    def drawn(stride, blocks=2):
        normals = jnp.zeros((blocks, B, 1, M))
        for i in range(0, blocks * B, B):
            normals = noise.draw_block(key, noise.Grid(fine, stride), basis, normals, i)
        return np.asarray(normals).reshape(-1, M)

    for stride in (1, 2):
        rows = drawn(stride)
        np.testing.assert_allclose(rows @ rows.T / M, np.eye(len(rows)), atol=1e-9)
        np.testing.assert_allclose(rows.mean(axis=1), 0, atol=1e-9)
    one, two = drawn(1), drawn(2, 1)
    together = (one[0::2] + one[1::2]) / np.sqrt(2)
    assert np.all(np.einsum("is,is->i", together, two) / M > 0.95)  # both are orthogonalised, so not equal


@pytest.mark.parametrize("rate", [0.03, 1.0, 7.9, 20.0])
def test_poisson_numbers_follow_the_poisson_law(rate):
    count = np.asarray(poisson(jnp.asarray(rate), jax.random.key(4), (100_000,)))
    top = int(stats.poisson.isf(1e-3, rate))
    seen = np.append(np.bincount(np.minimum(count.astype(int), top + 1), minlength=top + 2), [])
    law = np.append(stats.poisson.pmf(np.arange(top + 1), rate), stats.poisson.sf(top, rate))
    keep = law * len(count) > 5
    assert stats.chisquare(seen[keep], law[keep] / law[keep].sum() * seen[keep].sum()).pvalue > 1e-4
