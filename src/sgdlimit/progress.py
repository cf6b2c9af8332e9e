"""A progress bar that appears only after two seconds, and says "compiling" while nothing else happens yet."""

import sys
import threading
from typing import Any

PATIENCE = 2.0
"""Seconds of silence: work shorter than this shows nothing."""


class Progress:
    """Counts work done; draws a bar on stderr if that is a terminal (or if told to), from any thread."""

    def __init__(self, label: str, total: float, show: bool | None = None) -> None:
        self._label, self._total, self._done, self._phase = label, total, 0.0, ""
        try:
            self._show = sys.stderr.isatty() if show is None else show
        except (AttributeError, ValueError):  # it is missing, or closed
            self._show = False
        self._lock = threading.Lock()
        self._bar: Any = None
        self._timer = threading.Timer(PATIENCE, self._appear)
        self._timer.daemon = True

    def __enter__(self) -> "Progress":
        if self._show:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._show = False
            if self._bar is not None:
                self._bar.stop()

    def phase(self, name: str) -> None:
        """Name what is going on, e.g. 'compiling'; an empty name is ordinary work."""
        self._update(phase=name)

    def more(self, amount: float) -> None:
        """Further work is to be done."""
        self._update(more=amount)

    def advance(self, amount: float = 1.0) -> None:
        """Count `amount` more of the total as done; the bar follows."""
        self._update(done=amount)

    def _update(self, done: float = 0.0, more: float = 0.0, phase: str | None = None) -> None:
        with self._lock:
            self._done, self._total = self._done + done, self._total + more
            self._phase = self._phase if phase is None else phase
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], **self._shown())

    def _shown(self) -> dict[str, Any]:
        text = f"{self._label}: {self._phase}" if self._phase else self._label
        return {"total": self._total, "completed": self._done, "description": text}

    def _appear(self) -> None:
        try:
            from rich import progress
            from rich.console import Console
        except ImportError:
            return
        with self._lock:
            if not self._show:
                return
            columns = *progress.Progress.get_default_columns(), progress.TimeElapsedColumn()
            self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(**self._shown())
            self._bar.start()
