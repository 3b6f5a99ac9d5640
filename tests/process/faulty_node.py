"""A whole node with bugs that nobody has thought of: requests for certain names meet them, and each
service of the broker does twice, when it begins.

Run with the words of ``ledgermq``. All processes of the node have the bugs: they are forked.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# Before numpy is imported, as in `ProcessTable.load`: nobody forks beside threads of its library.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from ledgermq.broker.consumers.dead_letter_calls import DeadLetterCalls
from ledgermq.broker.deliveries.delay_service import DelayService
from ledgermq.broker.deliveries.moves import Moves
from ledgermq.broker.deliveries.timer_service import TimerService
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.pulls.query_service import QueryService
from ledgermq.broker.sinks.sink_service import SinkService
from ledgermq.broker.transactions.transaction_service import TransactionService
from ledgermq.cli.main import main

POISON = "poison"


def _with_bug(whole: Any) -> Any:
    def answer(self: Any, request_id: int, query: Any, *more: Any) -> Any:
        if getattr(query, "key", "") == POISON:
            raise ZeroDivisionError(POISON)
        return whole(self, request_id, query, *more)

    return answer


def _with_bug_in_scan(whole: Any) -> Any:
    def scan(self: Any, client: Any, held: Any, queue: Any, *more: Any, **rest: Any) -> Any:
        if queue.topic == POISON:
            raise KeyError(POISON)
        return whole(self, client, held, queue, *more, **rest)

    return scan


def _failing_at_first(whole: Any) -> Any:
    """A service whose first two turns as a leader fail: it rests a second, and then two."""
    left = [2]

    def turn(self: Any, *more: Any) -> Any:
        if self._log.is_settled and left[0]:
            left[0] -= 1
            raise LookupError(type(self).__name__)
        return whole(self, *more)

    return turn


SERVICES: tuple[Any, ...] = (
    DeadLetterCalls,
    DelayService,
    Moves,
    SinkService,
    TimerService,
    TransactionService,
)

if __name__ == "__main__":
    for service in SERVICES:
        service.turn = _failing_at_first(service.turn)
    changed: Any = QueryService
    changed.answer = _with_bug(changed.answer)
    changed = PullService
    changed._scan = _with_bug_in_scan(changed._scan)
    sys.exit(main(sys.argv[1:]))
