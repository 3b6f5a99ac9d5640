"""Names of what RocketMQ 5 keeps in a store and no node goes on with.

An operator types them in ``store.leave_behind``: what is named there may stay behind.
"""

from __future__ import annotations

from enum import StrEnum


class StrangeUse(StrEnum):
    """What a directory of RocketMQ 5 may use, and would lose here.

    TABLES: topics, groups, offsets or queues in RocksDB. TIMERS: messages that wait in the timer
    wheel. POP: messages that POP has handed out, or not yet again. BATCH: queues of batches.
    COMPACTED: topics that keep the newest message of a key. STATIC: queues spread over brokers.
    ROCKSDB: messages or marks in ``rocksdbstore/`` or ``kvStore/``. UNCONFIRMED: a controller's log
    that lacks something that was confirmed; where it goes on behind that, nothing is lost.
    """

    TABLES = "tables"
    TIMERS = "timers"
    POP = "pop"
    BATCH = "batch"
    COMPACTED = "compacted"
    STATIC = "static"
    ROCKSDB = "rocksdb"
    UNCONFIRMED = "unconfirmed"


STRANGE_USES = tuple(str(use) for use in StrangeUse)
