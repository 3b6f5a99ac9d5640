"""What the raft process counts, in the order of its counters in the cursor page."""

from __future__ import annotations

from enum import IntEnum, auto


class Counter(IntEnum):
    """Numbers of the counters; the last four are those of ``ScrubCounts``, in its order."""

    ELECTIONS = 0
    GRANTS = auto()
    COMMITS = auto()
    ORDERS_REFUSED = auto()
    MESSAGES_SENT = auto()
    MESSAGES_RECEIVED = auto()
    MESSAGES_UNSENT = auto()
    MESSAGES_REFUSED = auto()
    ENTRIES_SENT = auto()
    ENTRIES_RECEIVED = auto()
    SHIPPED_BYTES_SENT = auto()
    SHIPPED_BYTES_RECEIVED = auto()
    SCRUBBED_BYTES = auto()
    DAMAGED_ENTRIES = auto()
    REPAIRED_ENTRIES = auto()
    REPAIRED_BYTES = auto()


COUNTER_NAMES = tuple(counter.name.lower() for counter in Counter)
