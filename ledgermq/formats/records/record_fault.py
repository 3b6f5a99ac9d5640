"""Fault numbers of records, as the kernel reports them, with the field that each is about."""

from __future__ import annotations

from enum import IntEnum


class RecordFault(IntEnum):
    """Numbers shared with ``_stamp``; ``field`` names the part of the record."""

    NONE = 0
    SIZE = 1
    MAGIC = 2
    QUEUE_ID = 3
    SYS_FLAG = 4
    BODY_SIZE = 5
    TOPIC = 6
    PROPERTIES = 7
    BODY_CRC = 8
    PREPARED = 9
    ENTRY_MAGIC = 10
    ENTRY_INDEX = 11
    ENTRY_TERM = 12
    ENTRY_POSITION = 13
    ENTRY_BODY_CRC = 14
    ENTRY_CHAIN_CRC = 15
    PHYSICAL_OFFSET = 16
    END = 17
    ENTRY_CHANNEL = 18
    BLANK = 19

    @property
    def field(self) -> str:
        """Name of the field, in the words of docs/architecture.md."""
        return self.name.lower().replace("entry_", "entry ").replace("_", " ")
