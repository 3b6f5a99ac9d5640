"""Steady time for what is deleted: the machine's clock, as far as something else confirms it.

A clock that is set wrong by days would make all but the last files older than they may get, and
have them deleted for good. So two things do not count:

- what the clock has jumped ahead by since the process began, until it is started again;
- at a start, what the clock is ahead of the newest message by, where that is a day or more: the
  node may have been off, or nobody has sent anything; or the clock is wrong. For a day it is
  waited that somebody puts it right. Messages that come meanwhile with store times of long ago are
  another member's word against this clock, and renew the doubt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

JUMP_NS = 3_600_000_000_000
"""Smaller steps are a clock that is put right."""

DOUBT_MS = 86_400_000
DOUBT_NS = DOUBT_MS * 1_000_000
"""A clock that is ahead of the newest message by so much at a start is not believed for as long."""


def _since_boot_ns() -> int:
    # Goes on while the machine is suspended, as the time does.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def confirmed_ms(newest_ms: int) -> int:
    """The machine's time for who runs once and remembers nothing, epoch ms: where it is ahead of
    the newest record by a day or more, it is that of the record.

    Args:
        newest_ms: when the newest record was stored, epoch ms.
    """
    now_ms = time.time_ns() // 1_000_000
    return now_ms if now_ms - newest_ms < DOUBT_MS else newest_ms


class SteadyTime:
    """Invariant: it is never ahead of the machine's clock, and at most ``JUMP_NS`` ahead of what
    has passed since it was made.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        passed_ns: Callable[[], int] = _since_boot_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._passed_ns = passed_ns
        self._begin_ns = wall_ns() - passed_ns()
        self._is_told = False
        self._newest_ns = 0
        self._sure_ns = 0
        self._doubt_ends_ns: int | None = None

    def now_ms(self, newest_ms: int = 0) -> int:
        """Epoch ms.

        Args:
            newest_ms: when the newest message was stored, by whoever led; 0: none is known.
        """
        passed_ns = self._passed_ns()
        steady_ns = self._without_jumps(passed_ns)
        self._note_newest(newest_ms * 1_000_000, steady_ns, passed_ns)
        if self._doubt_ends_ns is not None:
            if passed_ns < self._doubt_ends_ns:
                return min(steady_ns, self._sure_ns + passed_ns) // 1_000_000
            self._doubt_ends_ns = None
        return steady_ns // 1_000_000

    def _without_jumps(self, passed_ns: int) -> int:
        wall_ns, expected_ns = self._wall_ns(), self._begin_ns + passed_ns
        ahead_ns = wall_ns - expected_ns
        if ahead_ns < JUMP_NS:
            self._is_told = False
            return wall_ns
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "clock has jumped ahead by %d s: old messages are kept for so much longer, until"
                " the node is started again",
                ahead_ns // 1_000_000_000,
            )
        return expected_ns

    def _note_newest(self, newest_ns: int, steady_ns: int, passed_ns: int) -> None:
        if newest_ns <= self._newest_ns:
            return
        is_first, self._newest_ns = self._newest_ns == 0, newest_ns
        if steady_ns - newest_ns < DOUBT_NS or not (is_first or self._doubt_ends_ns is not None):
            return
        self._sure_ns = newest_ns - passed_ns
        if is_first:
            logger.warning(
                "clock is %d s ahead of the newest message: until a day has passed, or as long as"
                " messages come that say so, nothing is older than that",
                (steady_ns - newest_ns) // 1_000_000_000,
            )
        self._doubt_ends_ns = passed_ns + DOUBT_NS
