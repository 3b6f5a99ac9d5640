"""Hand-over of leadership before a leader stops, so that producers need not wait."""

from __future__ import annotations

import logging
import time

from ledgermq.daemon.health.health import others_can_lead
from ledgermq.ipc.cursor_page import CursorPage, PublishedRole
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.model.events import Event
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths

logger = logging.getLogger(__name__)

RESIGN_TIMEOUT_S = 0.5
"""Raft answers at once, or is in no state to hand anything over."""


class HandOver:
    """What the supervisor of one node does about it when it stops."""

    def __init__(self, page: CursorPage) -> None:
        self._page = page
        self._until_ns = 0

    def begin(self, settings: Settings) -> None:
        """Have raft find a leader; a failure is told, and the node stops as it is."""
        path = RuntimePaths(settings.listen.runtime_dir).raft_control
        try:
            if not others_can_lead(settings):
                return
            answer = control.ask(path, "resign", timeout_s=RESIGN_TIMEOUT_S)
        except LedgerError as error:
            logger.warning(
                "leadership not handed over: %s", error, extra={"event": Event.HAND_OVER_FAILED}
            )
            return
        logger.info(
            "leadership is handed over: to=%s",
            answer.get("target"),
            extra={"event": Event.LEADERSHIP_HANDED_OVER},
        )
        self._until_ns = time.monotonic_ns() + settings.raft.transfer_timeout_ms * 1_000_000

    def is_going_on(self, now_ns: int) -> bool:
        """Whether this node still leads, and another may be about to."""
        return now_ns < self._until_ns and self._page.read_grant().role is PublishedRole.LEADER
