"""A whole node with bugs that nobody has thought of: requests for certain names meet them.

Run with the words of ``ledgermq``. All processes of the node have the bugs: they are forked.
"""

from __future__ import annotations

import sys
from typing import Any

from ledgermq.cli.main import main
from ledgermq.serving.pull_service import PullService
from ledgermq.serving.query_service import QueryService

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


if __name__ == "__main__":
    changed: Any = QueryService
    changed.answer = _with_bug(changed.answer)
    changed = PullService
    changed._scan = _with_bug_in_scan(changed._scan)
    sys.exit(main(sys.argv[1:]))
