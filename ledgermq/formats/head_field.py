"""Field numbers of a record's head, shared by ``kernel.read_heads`` and ``_columns``."""

from __future__ import annotations

from enum import IntEnum


class HeadField(IntEnum):
    """The fields; places are offsets in the span, half-open, and a time is epoch ms.

    Hosts are 8 bytes of an IPv4 host, big-endian; nothing of use where one of the two is IPv6.
    ``ENTRY_INDEX`` and ``ENTRY_TERM`` are only set where records have an entry's header.
    """

    BODY_START = 0
    BODY_END = 1
    TOPIC_END = 2
    QUEUE_OFFSET = 3
    PHYSICAL_OFFSET = 4
    BORN_TIME = 5
    STORE_TIME = 6
    BORN_HOST = 7
    STORE_HOST = 8
    QUEUE_ID = 9
    FLAG = 10
    SYS_FLAG = 11
    BODY_CRC = 12
    RECONSUME_TIMES = 13
    ENTRY_INDEX = 14
    ENTRY_TERM = 15
    TOPIC_START = 16


class HeadFault(IntEnum):
    """Why something is no record."""

    SIZE = 1
    POSITION = 2
    OVERLAP = 3
    MAGIC = 4
    TOTAL_SIZE = 5
    PHYSICAL_OFFSET = 6
    BODY_SIZE = 7
    TOPIC_SIZE = 8
    PROPERTIES_SIZE = 9

    @property
    def field(self) -> str:
        """What is wrong, for an error."""
        if self is HeadFault.OVERLAP:
            return "overlap with the record before"
        return self.name.lower()
