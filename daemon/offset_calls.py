"""Calls about what groups have consumed."""

from __future__ import annotations

from ledgermq.broker.holds import QueueName
from ledgermq.broker.state_commands import Change, GroupSet, OffsetsSet
from ledgermq.daemon.call_arguments import flag, offsets_by_queue, text
from ledgermq.daemon.calls import Call, Result, Verbs
from ledgermq.daemon.known_topics import KnownTopics
from ledgermq.daemon.state_log import Request, StateLog
from ledgermq.model.settings import TopicsSection


class OffsetCalls:
    """Changes go through the log."""

    def __init__(self, known: KnownTopics, rules: TopicsSection, log: StateLog) -> None:
        self._store = known.store
        self._tables = known.tables
        self._rules = rules
        self._log = log
        self._known = known
        self.verbs: Verbs = {
            "group_offset": self._committed,
            "group_commit": self._commit,
        }

    def _committed(self, call: Call) -> Result:
        self._log.check()
        arguments = call.arguments
        offsets = self._tables.offsets.offsets(text(arguments, "group"), text(arguments, "topic"))
        return {"offsets": {str(queue): offset for queue, offset in sorted(offsets.items())}}

    def _commit(self, call: Call) -> Result | None:
        name, topic = text(call.arguments, "group"), text(call.arguments, "topic")
        offsets = offsets_by_queue(call.arguments, "offsets")
        may_go_back = flag(call.arguments, "reset")

        def changes() -> list[Change]:
            ends: dict[int, int] = {}
            for queue_id in offsets:
                queue = QueueName(topic, queue_id)
                self._known.check_queue(queue)
                bounds = self._store.bounds(queue)
                ends[queue_id] = bounds.end + bounds.pending_max
            tables = self._tables
            group = tables.groups.plan_use(name, self._rules)
            found: list[Change] = []
            if tables.groups.get(name) is None:
                found.append(GroupSet(name, group.to_fields()))
            if tables.offsets.check(name, topic, offsets, ends=ends, may_go_back=may_go_back):
                found.append(OffsetsSet(name, topic, offsets))
            return found

        touches = {f"offset {name}@{topic}/{queue_id}" for queue_id in offsets}
        self._log.submit(Request(call.caller, changes, frozenset(touches), dict), call.now_ms)
        return None
