"""What a notebook shows of an object. The room that knows how lies below those whose objects it shows."""

import importlib
from typing import Any


def html(thing: Any) -> str:
    """Formulas, words and small curves."""
    return _notebook().html_of(thing)


def latex(thing: Any) -> str:
    """Formulas alone."""
    return _notebook().latex_of(thing)


class Shown:
    """What a notebook shows as formulas."""

    _repr_html_ = html
    _repr_latex_ = latex


def _notebook() -> Any:
    """Found by name when something is shown: rooms import only from rooms above."""
    return importlib.import_module(f"{__package__}.notebook")
