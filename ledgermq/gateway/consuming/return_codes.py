"""Codes of retries: messages that RocketMQ's consumers give back (36)."""

from __future__ import annotations

from ledgermq.gateway.code_rights import group_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.model.errors import GroupUnknownError, LedgerError, NoPermissionError
from ledgermq.model.limits import LEVEL_MAX, TIMES_MAX
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import RETRIES_VERSION, Command
from ledgermq.remoting.fields import int32, int64, text


class ReturnCodes(PortPart):
    """Answered when the copy is in the log: RocketMQ says so before."""

    def __init__(self, context: BrokerContext) -> None:
        self._calls = context.calls
        self._tables = context.tables
        self.codes = (
            Code(RequestCode.CONSUMER_SEND_MSG_BACK, self._send_back, group_right("group")),
        )

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

        def refused(error: LedgerError) -> Command | None:
            is_about_group = error.details.get("group") == group
            is_unknown = is_about_group and self._tables.groups.get(group) is None
            if not (isinstance(error, NoPermissionError) and is_unknown):
                return None
            return refusal(command, GroupUnknownError(error.message, **error.details))

        self._calls.answer(asked, "send_back", arguments, refused=refused)
