"""The row of axes that a picture is drawn on."""

from typing import Any

import numpy as np

from ..errors import reject


def panels(axes: Any, count: int, what: str, width: float, height: float) -> tuple[Any, np.ndarray]:
    """The axes to return and the same as a flat array: the user's, or a new row of `count` (inches each)."""
    import matplotlib.pyplot as plt

    if axes is None:
        _, rows = plt.subplots(1, count, figsize=(width * count, height), squeeze=False, layout="constrained")
        axes = rows[0]
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(flat) != count:
        raise reject("axes", f"{len(flat)} axes", f"give one for each of the {count} {what}")
    return axes, flat
