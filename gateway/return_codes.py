"""Codes of retries: messages that RocketMQ's consumers give back (36)."""

from __future__ import annotations

from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.refusals import refusal
from ledgermq.gateway.requests import Asked, Codes, ReplyLater
from ledgermq.model.errors import GroupUnknownError, LedgerError, NoPermissionError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.fields import int32, int64, text
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.calls import Result
from ledgermq.serving.retry_calls import LEVEL_MAX, TIMES_MAX

RETRIES_VERSION = 121
"""``MQVersion`` from which a client's own limit of retries counts (V3_4_9)."""


class ReturnCodes:
    """Answered when the copy is in the log: RocketMQ says so before."""

    def __init__(self, calls: PortCalls, tables: BrokerTables, reply: ReplyLater) -> None:
        self._calls = calls
        self._tables = tables
        self._reply = reply
        self.codes: Codes = {RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back}

    def _send_back(self, asked: Asked) -> None:
        command = asked.command
        group = text(command.fields, "group")
        arguments: dict[str, object] = {
            "group": group,
            "position": int64(command.fields, "offset"),
            "delay_level": min(max(int32(command.fields, "delayLevel"), -1), LEVEL_MAX),
        }
        times = int32(command.fields, "maxReconsumeTimes", -1)
        if command.version >= RETRIES_VERSION and times >= 0:
            arguments["max_reconsume_times"] = min(times, TIMES_MAX)

        def take(outcome: Result | LedgerError) -> None:
            if not isinstance(outcome, LedgerError):
                self._reply(asked, command.reply())
                return
            is_about_group = outcome.details.get("group") == group
            is_unknown = is_about_group and self._tables.groups.get(group) is None
            if isinstance(outcome, NoPermissionError) and is_unknown:
                outcome = GroupUnknownError(outcome.message, **outcome.details)
            self._reply(asked, refusal(command, outcome))

        self._calls.ask(
            "send_back",
            arguments,
            asked.now_ms,
            take,
            check_topic=asked.check_topic,
            owner=asked.owner,
        )
