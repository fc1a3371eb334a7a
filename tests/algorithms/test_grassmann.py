"""Column spaces: orthonormal bases and chordal distances against SciPy's principal angles."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import subspace_angles

from fgl_bench.algorithms.fedssa import chordal_distances, orthonormal, overlaps


def spaces(count=4, rows=30, columns=5, seed=0):
    return torch.randn(2, count, rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def distances(x):
    return chordal_distances(overlaps(orthonormal(x)))


def test_bases_are_orthonormal_and_span_the_same_space():
    x = spaces()
    x[..., 3] *= 1e-3
    basis = orthonormal(x)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(5, dtype=torch.float64).expand(2, 4, 5, 5), rtol=0, atol=1e-13)
    torch.testing.assert_close(basis @ (basis.mT @ x), x)


def test_rank_is_revealed():
    x = spaces()
    x[0, 0, :, 4] = x[0, 0, :, 1] - 2 * x[0, 0, :, 0]
    x[0, 1, :, 2] = 0
    x[0, 2] = 0
    basis = orthonormal(x)
    assert torch.linalg.matrix_rank(basis)[0].tolist() == [4, 4, 0, 5]
    torch.testing.assert_close(basis @ (basis.mT @ x), x)
    wide = spaces(rows=3)
    torch.testing.assert_close(orthonormal(wide) @ orthonormal(wide).mT, torch.eye(3, dtype=torch.float64).expand(2, 4, 3, 3))


def test_chordal_distances_are_those_of_principal_angles():
    x = spaces()
    x[:, 3] = x[:, 2] + 0.05 * x[:, 3]
    found = distances(x)
    for s in range(2):
        for i in range(4):
            for j in range(4):
                angles = subspace_angles(x[s, i].numpy(), x[s, j].numpy())
                np.testing.assert_allclose(found[s, i, j], np.sqrt((np.sin(angles) ** 2).sum()), atol=1e-6)
                projectors = [b @ b.T for b in (orthonormal(x[s, i]), orthonormal(x[s, j]))]
                np.testing.assert_allclose(found[s, i, j], (projectors[0] - projectors[1]).norm() / 2**0.5, atol=1e-6)


def test_distances_are_symmetric_zero_on_the_diagonal_and_of_spaces_not_of_bases():
    x = spaces()
    found = distances(x)
    torch.testing.assert_close(found, found.mT)
    assert found.diagonal(dim1=-2, dim2=-1).abs().max() < 1e-6
    mixed = x @ torch.randn(2, 4, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(distances(mixed), found, rtol=0, atol=1e-6)


def test_as_many_columns_as_rows_span_everything():
    assert distances(spaces(rows=4)).abs().max() < 1e-6
