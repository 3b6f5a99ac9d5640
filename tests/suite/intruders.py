"""Threads that use a client which another one is using now."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ledgermq.client import LedgerError

IN_USE = "another thread uses this client now: each thread makes one of its own"


def refused(*calls: Callable[[], object]) -> list[str]:
    """Why each call was refused to another thread; an empty text for one that was not."""
    told: list[str] = []

    def intrude() -> None:
        for call in calls:
            try:
                call()
            except LedgerError as error:
                told.append(error.message)
            else:
                told.append("")

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    return told
