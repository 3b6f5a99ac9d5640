"""Codes that RocketMQ 5's slaves ask besides those for tables: timers, and modes of groups."""

from __future__ import annotations

from ledgermq.formats.timer_wheel import SLOT_MS, WHEEL_QUEUE, TimerCheck
from ledgermq.gateway.code_rights import USER
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.rules.consumers.request_modes import request_modes

LATE_MS = 3_000
"""A timer that was due for so long is delivered here."""


class SlaveCodes(PortPart):
    """Looks at the tables; keeps nothing."""

    def __init__(self, context: BrokerContext) -> None:
        """Answers for what the tables say."""
        self._tables = context.tables
        self._figures = context.figures
        self.codes = (
            Code(RequestCode.GET_TIMER_CHECK_POINT, self._timers, USER),
            Code(RequestCode.GET_TIMER_METRICS, _count_no_timers, USER),
            Code(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._modes, USER),
        )

    def _timers(self, asked: Asked) -> Command:
        """How far RocketMQ's wheel would be.

        Without that a slave that becomes the master would deliver again what its log has of the
        wheel's queue. What of it waits here, and is due later, its wheel has, too.
        """
        before_ms = (self._figures.epoch_ms() - LATE_MS) // SLOT_MS * SLOT_MS
        _, end = self._figures.bounds(WHEEL_QUEUE)
        return asked.command.reply(body=TimerCheck(before_ms, 0, end, end).told())

    def _modes(self, asked: Asked) -> Command:
        modes: dict[str, dict[str, object]] = {}
        for group, topic, mode in request_modes(self._tables.names):
            if mode.takes_singly:
                modes.setdefault(topic, {})[group] = {
                    "topic": topic,
                    "consumerGroup": group,
                    "mode": "POP",
                    "popShareQueueNum": mode.share_queues,
                }
        return asked.command.reply(body=encode_body({"messageRequestModeMap": modes}))


def _count_no_timers(asked: Asked) -> Command:
    """Figures by topic that RocketMQ shows of its wheel, and that nothing goes by."""
    version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    return asked.command.reply(body=encode_body({"dataVersion": version, "timingCount": {}}))
