"""From arrays by name to variables and coordinates of a result."""

from collections.abc import Mapping

import numpy as np

from ..results.variables import Estimate, Variable, coordinates, dims, estimated, ordered

Labelled = tuple[dict[str, Variable], dict[str, np.ndarray]]


def labelled(found: Mapping[str, np.ndarray | Estimate], t: np.ndarray) -> Labelled:
    """Variables with the axes of their names, and coordinates, at these first of the times that were computed."""
    variables: dict[str, Variable] = {}
    for name in ordered(found):
        axes, here = dims(name), found[name]
        if isinstance(here, Estimate):
            variables |= estimated(name, here)
        else:
            cut = tuple(slice(len(t) if axis in ("time", "earlier") else None) for axis in axes)
            variables[name] = Variable(axes, here[cut])
    return variables, coordinates(variables, t)
