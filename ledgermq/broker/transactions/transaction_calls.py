"""Calls about transactions: ends, checks, and lists."""

from __future__ import annotations

from ledgermq.broker.call_arguments import WAIT_MS_MAX, integer, text
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.transactions.transaction_service import END_MS, End, TransactionService
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.names.transactions import Decision
from ledgermq.model.rights import Right
from ledgermq.rules.messages.half_table import TransactionKey
from ledgermq.rules.messages.transactions import NAME_SIZE_MAX, Half
from ledgermq.verbs.needs import USER
from ledgermq.verbs.waiting import EndTransaction, ListTransactions

assert NAME_SIZE_MAX == 255  # what ``call_arguments.text`` takes


class TransactionCalls:
    """What changes something goes through the log, and is answered from there."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service
        self.verbs: Verbs = (
            answered(EndTransaction, self._end),
            AnsweredVerb("transaction_checks", self._checks, USER),
            answered(ListTransactions, self._list),
        )

    def _end(self, call: Call, asked: EndTransaction) -> Result | None:
        end = End(
            call.caller,
            TransactionKey(asked.group, asked.transaction),
            Decision(asked.decision),
            asked.messages,
            asked.offset,
            call.now_ms + END_MS,
            lambda topic: call.check_topic(topic, Right.PUB),
        )
        self._service.end(end)
        return None

    def _checks(self, call: Call) -> Result | None:
        group = text(call.arguments, "group")
        wait_ms = integer(call.arguments, "wait_ms", 0, WAIT_MS_MAX)
        self._service.wait_for_checks(
            call.caller, group, call.now_ms + wait_ms, lambda topic: call.may(topic, Right.PUB)
        )
        return None

    def _list(self, call: Call, asked: ListTransactions) -> Result:
        """The transactions that wait for their end, the oldest first."""
        table = self._service.table()
        found: dict[TransactionKey, list[Half]] = {}
        for half in table:
            key = TransactionKey(half.group, half.transaction)
            if key in found:
                found[key].append(half)
            elif len(found) < asked.count:
                found[key] = [half]
        return {
            "half_messages": len(table),
            "transactions": [
                _row(key, halves)
                for key, halves in found.items()
                if all(call.may(topic, Right.PUB) for topic in {half.topic for half in halves})
            ],
        }


def _row(key: TransactionKey, halves: list[Half]) -> dict[str, object]:
    return {
        "transaction": key.transaction,
        "group": key.group,
        "messages": len(halves),
        "offset": halves[-1].offset,
        "topics": sorted({half.topic for half in halves}),
        "born": halves[0].born_ms,
        "checks": max(half.checks for half in halves),
    }
