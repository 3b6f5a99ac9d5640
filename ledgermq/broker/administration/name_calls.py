"""Calls about name values, which tools keep at a name server."""

from __future__ import annotations

from collections.abc import Sequence

from ledgermq.broker.call_arguments import text
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.model.errors import ProtocolError
from ledgermq.rules.tables import name_values
from ledgermq.rules.tables.table_changes import Change, NamesSet
from ledgermq.verbs.needs import CHANGE


class NameCalls:
    """Changes go through the log."""

    def __init__(self, tables: BrokerTables, log: StateLog) -> None:
        self._tables = tables
        self._log = log
        self.verbs: Verbs = (AnsweredVerb("name_set", self._set, CHANGE),)

    def _set(self, call: Call) -> Result | None:
        """Have ``value`` at ``key`` of ``namespace``; without one have nothing there."""
        namespace, key = text(call.arguments, "namespace"), text(call.arguments, "key")
        value = call.arguments.get("value")
        if value is not None and not isinstance(value, str):
            raise ProtocolError("argument not a text", argument="value")

        def plan() -> Sequence[Change]:
            names = self._tables.names
            values = names.with_value(namespace, key, value)
            return [] if values == names.of(namespace) else [NamesSet(namespace, values or None)]

        self._log.check_leads()
        plan()  # refuses at once what cannot be made
        touches = frozenset({f"{name_values.FILE} {namespace}"})
        self._log.submit(StateRequest(call.caller, plan, touches, dict), call.now_ms)
        return None
