"""Names for the types of what functions take and return."""

from typing import Any

import jax
import numpy as np

Array = jax.Array
"""An array of jax, which it may be tracing."""
Host = np.ndarray
"""An array of numpy."""
Scalar = jax.Array | np.ndarray | float
"""One number, which jax may be tracing; or many, where a function is applied to each."""
Key = jax.Array
"""A key of `jax.random`."""
Tree = Any
"""Arrays in tuples, lists or dataclasses that jax looks into."""
