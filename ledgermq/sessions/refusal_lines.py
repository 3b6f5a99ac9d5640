"""Rate limit of log lines whose number others choose: refusals, and the like."""

from __future__ import annotations

from typing import NamedTuple

LINES_MAX = 16
"""Most lines about one address within ``WINDOW_S``; the same refusal has one."""

WINDOW_S = 600.0

ADDRESSES_MAX = 256
"""Most addresses that are told of: of others nothing is told until one of these is silent for a
while."""


class _Told(NamedTuple):
    since: float
    what: set[str]


class RefusalLines:
    """What was told lately; bounded, whoever comes.

    Attributes:
        untold: refusals that had no line.
    """

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        """Nothing was told yet.

        Args:
            lines_max: of one address within ``WINDOW_S``.
        """
        self.untold = 0
        self._lines_max = lines_max
        self._told: dict[str, _Told] = {}

    def is_news(self, address: str, what: str, now: float) -> bool:
        """Whether that is to be told.

        Args:
            address: who is refused, as it cannot choose itself; or what else has lines of its own.
            now: seconds of a clock that never goes back.
        """
        is_news = self._note(address, what, now)
        self.untold += not is_news
        return is_news

    def _note(self, address: str, what: str, now: float) -> bool:
        told = self._told.get(address)
        if told is None or now - told.since >= WINDOW_S:
            if told is None and len(self._told) >= ADDRESSES_MAX and not self._forget(now):
                return False
            told = self._told[address] = _Told(now, set())
        if what in told.what or len(told.what) >= self._lines_max:
            return False
        told.what.add(what)
        return True

    def _forget(self, now: float) -> bool:
        over = [address for address, told in self._told.items() if now - told.since >= WINDOW_S]
        for address in over:
            del self._told[address]
        return bool(over)
