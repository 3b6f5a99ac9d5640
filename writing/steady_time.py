"""The time by which messages get old: the machine's, but for jumps ahead.

A clock that is set wrong by days would make all but the last files older than they may get, and
have them deleted for good. So what the clock has jumped ahead by since the process began does not
count: files stay for so much longer, until the writer is started again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

JUMP_NS = 3_600_000_000_000
"""Smaller steps are a clock that is put right."""


def _since_boot_ns() -> int:
    # Goes on while the machine is suspended, as the time does.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


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

    def now_ms(self) -> int:
        """Epoch ms."""
        wall_ns, expected_ns = self._wall_ns(), self._begin_ns + self._passed_ns()
        ahead_ns = wall_ns - expected_ns
        if ahead_ns < JUMP_NS:
            self._is_told = False
            return wall_ns // 1_000_000
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "clock has jumped ahead by %d s: old messages are kept for so much longer, until"
                " the node is started again",
                ahead_ns // 1_000_000_000,
            )
        return expected_ns // 1_000_000
