"""A progress bar that appears only after two seconds, and says "compiling" while nothing else happens yet."""

import sys
import threading
from types import TracebackType
from typing import Any

PATIENCE = 2.0
"""Seconds of silence: work shorter than this shows nothing."""


def _terminal() -> bool:
    """Whether somebody looks at stderr; it may be missing or closed."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


class Progress:
    """Counts work done; draws a bar on stderr if that is a terminal (or if told to), from any thread."""

    def __init__(self, label: str, total: float, show: bool | None = None) -> None:
        self._label, self._total, self._done, self._phase = label, total, 0.0, ""
        self._show = _terminal() if show is None else show
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._timer = threading.Timer(PATIENCE, self._appear)
        self._timer.daemon = True

    def __enter__(self) -> "Progress":
        if self._show:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._show = False
            if self._bar is not None:
                self._bar.stop()

    def phase(self, name: str) -> None:
        """Name what is going on, e.g. 'compiling'; an empty name is ordinary work."""
        with self._lock:
            self._phase = name
            self._refresh()

    def more(self, amount: float) -> None:
        """Further work is to be done."""
        with self._lock:
            self._total += amount
            self._refresh()

    def advance(self, amount: float = 1.0) -> None:
        """Count `amount` more of the total as done; the bar follows."""
        with self._lock:
            self._done += amount
            self._refresh()

    def _text(self) -> str:
        return f"{self._label}: {self._phase}" if self._phase else self._label

    def _refresh(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, total=self._total, completed=self._done, description=self._text())

    def _appear(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress
        except ImportError:
            return
        with self._lock:
            if not self._show:
                return
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._text(), total=self._total, completed=self._done)
            self._bar.start()
