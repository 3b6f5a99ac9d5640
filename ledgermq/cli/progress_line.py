"""Progress line on stderr, for terminals alone: what is done, how fast, how long it takes yet."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple, Self

from ledgermq.cli.seen_text import drawn, shown
from ledgermq.model.units import MIB

INTERVAL_S = 0.2

RATE_AFTER_S = 1.0
"""Before that a rate is a guess."""


class CountedWork(NamedTuple):
    """What is done by a time, of a whole that may be known."""

    at: float
    done: int
    total: int | None

    def goes_on(self, later: CountedWork) -> bool:
        """Whether ``later`` is further on the same way: else another step has begun."""
        return later.done >= self.done and later.total == self.total

    def told(self, later: CountedWork, what: str) -> str:
        """The line for ``later``, with rate and remaining time since this one."""
        text = f"{later.done:,}" if later.total is None else f"{later.done:,} of {later.total:,}"
        text = f"{text} {what}"
        seconds, more = later.at - self.at, later.done - self.done
        if seconds < RATE_AFTER_S or not more:
            return text
        rate = more / seconds
        text = f"{text}, {rate:,.0f}/s" if rate >= 10 else f"{text}, {rate:.1f}/s"
        if later.total is None or later.total <= later.done:
            return text
        return f"{text}, {clock_text((later.total - later.done) / rate)} left"


def clock_text(seconds: float) -> str:
    """Seconds as ``M:SS``, or ``H:MM:SS``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class ProgressLine:
    """A line that is written over itself, at most five times a second."""

    def __init__(self, what: str) -> None:
        """A line that counts ``what``."""
        self._what = what
        self._shown = sys.stderr.isatty()
        self._next_at = time.monotonic() + INTERVAL_S
        self._began: CountedWork | None = None
        self._size = 0

    def show(self, count: int, total: int | None = None) -> None:
        """Say that ``count`` are done, of ``total`` if that is known; less than before: anew."""
        if not self._shown:
            return
        now = CountedWork(time.monotonic(), count, total)
        if self._began is None or not self._began.goes_on(now):
            self._began = now
        if now.at < self._next_at:
            return
        self._next_at = now.at + INTERVAL_S
        self._write(self._began.told(now, self._what))

    def show_bytes(self, count: int, total: int) -> None:
        """Say of a line that counts MiB that so many bytes are done, of ``total``."""
        self.show(count // MIB, total // MIB)

    def note(self, text: str) -> None:
        """Say what is done where nothing can be counted; until the next ``show``."""
        if self._shown:
            self._write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._size:
            self._write("")

    def _write(self, text: str) -> None:
        line = shown(text)
        terminal = drawn(sys.stderr)
        terminal.write(f"\r{line:<{self._size}}" if line else f"\r{'':<{self._size}}\r")
        terminal.flush()
        self._size = len(text)
