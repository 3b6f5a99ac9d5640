"""Inquiries about what waits: messages for their time, and transactions for their end."""

from __future__ import annotations

from ledgermq.client.core import questions
from ledgermq.client.sending.transaction_requests import end_steps, list_steps
from ledgermq.model.names.transactions import Decision
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import ROWS_DEFAULT, Json, checked_limit


class TimerInquiries:
    """The leader answers."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, limit: int = ROWS_DEFAULT) -> Json:
        """As ``ledgermq timer list``: those that are due next, of topics that the caller may use;
        ``waiting`` is how many wait in all.
        """
        steps = questions.timers(checked_limit(limit))
        found = await self._inquirer.leader(lambda session: session.run(steps))
        return {"waiting": found.waiting, "timers": [row._asdict() for row in found.timers]}

    async def cancel(self, unique_id: str) -> Json:
        """As ``ledgermq timer cancel``; who may send to its topic may."""
        steps = questions.cancel_timer(unique_id)
        await self._inquirer.leader(lambda session: session.run(steps))
        return {"cancelled": unique_id}


class TransactionInquiries:
    """The leader answers."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def list(self, *, limit: int = ROWS_DEFAULT) -> Json:
        """As ``ledgermq transaction list``: the oldest, of topics that the caller may use."""
        steps = list_steps(checked_limit(limit))
        half_messages, found = await self._inquirer.leader(lambda session: session.run(steps))
        rows = [{**row._asdict(), "topics": list(row.topics)} for row in found]
        return {"half_messages": half_messages, "transactions": rows}

    async def end(
        self, group: str, transaction: str, decision: Decision, *, messages: int = 0
    ) -> Json:
        """As ``ledgermq transaction commit`` and ``rollback``; who may send to its topics may.

        Args:
            messages: how many it has; only of a commit.
        """
        steps = end_steps(group, transaction, decision, messages=messages, offset=-1)
        ended = await self._inquirer.leader(lambda session: session.run(steps))
        return {"decision": ended.decision.value, "messages": ended.messages}
