"""Square roots of second moments, by their defining identities; singular matrices included."""

import jax
import numpy as np
import pytest

from sgdlimit._linalg import match, power, root, root_of

RNG = np.random.default_rng(0)


def singular(size, rank):
    factor = RNG.standard_normal((size, rank))
    return factor @ factor.T


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("function", [root, root_of])
@pytest.mark.parametrize(("size", "rank"), [(1, 1), (3, 3), (4, 2), (3, 0)])
def test_root(function, size, rank):
    matrix = singular(size, rank)
    found = np.asarray(function(matrix))
    np.testing.assert_allclose(found @ found, matrix, atol=1e-12)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    assert np.linalg.eigvalsh(found).min() > -1e-7
    below = matrix - 1e-15 * np.eye(size)
    assert np.all(np.isfinite(np.asarray(function(below))))
    batch = np.stack([matrix, 4 * matrix])
    np.testing.assert_allclose(np.asarray(function(batch)), np.stack([found, 2 * found]), atol=1e-7)
    assert np.asarray(function(np.zeros((0, 0)))).shape == (0, 0)


def test_negative_powers_leave_null_directions_null():
    matrix = singular(4, 2)
    np.testing.assert_allclose(power(matrix, -1.0), np.linalg.pinv(matrix, hermitian=True), atol=1e-10)
    np.testing.assert_allclose(power(matrix, 0.5), root_of(matrix), atol=1e-6)
    np.testing.assert_allclose(power(np.zeros((2, 2)), -0.5), 0.0)


@pytest.mark.parametrize("rank", [3, 2])
def test_match_gives_exact_second_moments(rank):
    gram = singular(3, rank)
    sample = RNG.standard_normal((50, 3)) @ root_of(gram)
    matched = np.asarray(match(sample, gram))
    np.testing.assert_allclose(matched.T @ matched / 50, gram, atol=1e-10)
