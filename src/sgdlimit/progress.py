"""A progress bar that appears only after two seconds, and says "compiling" while nothing else happens yet."""

import contextlib
import sys
import threading
from typing import Any

PATIENCE = 2.0
"""Seconds of silence: work shorter than this shows nothing."""


class Progress:
    """Counts work done; draws a bar on stderr if that is a terminal (or if told to), from any thread."""

    def __init__(self, label: str, total: float, show: bool | None = None) -> None:
        self._label, self._bar = label, None
        with contextlib.suppress(AttributeError, ValueError):  # stderr is missing, or closed
            show = sys.stderr.isatty() if show is None else show
        if show:
            from rich import progress
            from rich.console import Console

            columns = *progress.Progress.get_default_columns(), progress.TimeElapsedColumn()
            self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(label, total=total)
            self._timer = threading.Timer(PATIENCE, self._bar.start)
            self._timer.daemon = True

    def __enter__(self) -> "Progress":
        if self._bar:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._timer.cancel()
            self._timer.join()  # lest it starts the bar after its end
            if self._bar.live.is_started:
                self._bar.stop()

    def phase(self, name: str) -> None:
        """Name what is going on, e.g. 'compiling'; an empty name is ordinary work."""
        self._update(description=f"{self._label}: {name}" if name else self._label)

    def more(self, amount: float) -> None:
        """Further work is to be done."""
        if self._bar:
            self._update(total=(self._bar.tasks[0].total or 0.0) + amount)

    def advance(self, amount: float = 1.0) -> None:
        """Count `amount` more of the total as done; the bar follows."""
        self._update(advance=amount)

    def _update(self, **changes: Any) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], **changes)
