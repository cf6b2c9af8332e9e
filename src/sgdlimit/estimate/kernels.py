"""Two-time kernels from what the march kept of every step: C_θ, R_θ, R_ℓ at all pairs of recorded times."""

import numpy as np

from .._types import Array, Host, Tree
from ..dmft.memory import Memory
from ..dmft.system import Groups

KEPT = ("own", "rest", "along", "response", "equal")
"""Records that only serve kernels."""


def two_time(
    records: dict[str, Host], groups: Groups, kept: Memory, rows: Tree, dt: Array | Host, at: Host
) -> dict[str, Host]:
    """Return kernels, (replicas, times, earlier, m, m), at the steps `at`; at equal times retarded ones are limits.

    C_θ(i,k) = E[rest_i rest_kᵀ] + a_i a_kᵀ; R_θ(i,j) = Σ_b ρ_b φ_b(i,j); R_ℓ(i,j) = Σ_b κ_b φ_b(i,j)/γ_j.
    """
    rest, along = records["rest"][:, at].astype(np.float64), records["along"][:, at]
    share = np.asarray(groups.share)
    C = np.einsum("g,rigas,rkgbs->rikab", share, rest, rest) / rest.shape[-1]
    C = C + np.einsum("g,rigac,rkgbc->rikab", share, along, along)
    own = np.einsum("g,rignab->rinab", share, records["own"][:, at])
    R = kept.kernel(rows, own, at)[:, :, at].copy()
    R_ell = kept.kernel(rows, records["response"][:, at], at)[:, :, at] / dt[at][None, None, :, None, None]
    i = np.arange(len(at))
    R[:, i, i] = np.eye(R.shape[-1])
    R_ell[:, i, i] = records["equal"][:, at]
    return {"C_theta": C, "R_theta": R, "R_ell": R_ell}
