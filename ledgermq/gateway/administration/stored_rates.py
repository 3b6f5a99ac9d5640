"""Rates of storing and reading, over RocketMQ's three windows."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

WINDOWS_S = (10, 60, 600)
KEPT_MS = 10_000
"""Samples are at least so far apart, once they are not among the newest."""


class Sample(NamedTuple):
    """Counts of messages at one time (monotonic ms)."""

    at_ms: int
    stored: int
    read: int


class StoredRates:
    """Keeps a sample for each ten seconds of the longest window.

    Invariant: samples are in the order of their times, and there are at most 62.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=62)

    def note(self, sample: Sample) -> None:
        """Take the counts as they are now; to be called now and then."""
        samples = self._samples
        if len(samples) > 1 and samples[-1].at_ms - samples[-2].at_ms < KEPT_MS:
            samples.pop()
        samples.append(sample)

    def stored(self, now: Sample) -> str:
        """Messages stored a second: three numbers with blanks between them, as tools cut them."""
        return " ".join(f"{self._rate(now, window, 1):.2f}" for window in WINDOWS_S)

    def read(self, now: Sample) -> str:
        """Messages read a second; see ``stored``."""
        return " ".join(f"{self._rate(now, window, 2):.2f}" for window in WINDOWS_S)

    def _rate(self, now: Sample, window_s: int, field: int) -> float:
        """Growth per second since the oldest sample in the window, or the last one before it."""
        begin = None
        for sample in reversed(self._samples):
            if sample.at_ms < now.at_ms:
                begin = sample
                if sample.at_ms <= now.at_ms - 1_000 * window_s:
                    break
        if begin is None:
            return 0.0
        return (now[field] - begin[field]) * 1_000 / (now.at_ms - begin.at_ms)
