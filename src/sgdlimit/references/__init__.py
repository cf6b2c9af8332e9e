"""What `sl.solve` is tested against, slow and certain: the same equations solved in other ways.

`tangents`: derivatives of every sample in place of a regression, and the whole past in place of functions of it.
`processes`: the paper's ρ_ℓ, D_ℓ and D_r. `fixed_point`: the paper's damped iteration over the whole time window.
"""

from .fixed_point import fixed_point
from .marched import processes, tangents

__all__ = ["fixed_point", "processes", "tangents"]
