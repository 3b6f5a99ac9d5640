"""Progress line on stderr, for terminals alone."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from ledgermq.cli.seen_text import drawn, shown

INTERVAL_S = 0.2


class ProgressLine:
    """A line that is written over itself, at most five times a second."""

    def __init__(self, what: str) -> None:
        """A line that ends with ``what``."""
        self._what = what
        self._shown = sys.stderr.isatty()
        self._next_at = time.monotonic() + INTERVAL_S
        self._size = 0

    def show(self, count: int, total: int | None = None) -> None:
        """Say that ``count`` are done, of ``total`` if that is known."""
        if not self._shown or time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + INTERVAL_S
        text = f"{count:,}" if total is None else f"{count:,} of {total:,}"
        self._write(f"{text} {self._what}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._size:
            self._write("")

    def _write(self, text: str) -> None:
        line = shown(text)
        terminal = drawn(sys.stderr)
        terminal.write(f"\r{line:<{self._size}}" if line else f"\r{'':<{self._size}}\r")
        terminal.flush()
        self._size = len(text)
