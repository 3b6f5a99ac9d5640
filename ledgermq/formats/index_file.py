"""Index file codec: a hash table with chains, from keys to messages.

Layout, big-endian (RocketMQ ``IndexFile``, ``IndexHeader``); S slots, M items:

    offset       size  field                   unit
    0            8     begin_timestamp         epoch ms, store time of the first message
    8            8     end_timestamp           epoch ms, store time of the last message
    16           8     begin_physical_offset   position of the first message
    24           8     end_physical_offset     position of the last message
    32           4     slot_count              slots in use
    36           4     index_count             number of the next item; 0 is written for 1
    40           4·S   slots                   number of the chain's newest item, 0 = none
    40+4·S       20·M  items

    an item:
    0            4     key_hash                0 to 2**31-1
    4            8     physical_offset         position of the message
    12           4     time_difference         seconds after begin_timestamp
    16           4     previous                number of the chain's next older item, 0 = none

Item 0 is never used, so a file holds M - 1 keys. A message is found by the hash alone: the caller
compares the key itself. Java measures before it sets the begin: in a file that follows a full one,
the first item's difference is the one from the full file's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.java_hash import index_key_hash
from ledgermq.model.errors import CorruptLogError, corrupt

_HEADER = Struct(">qqqqii")
_SLOT = Struct(">i")
_ITEM = Struct(">iqii")

HEADER_SIZE = _HEADER.size
SLOT_SIZE = _SLOT.size
ITEM_SIZE = _ITEM.size
SLOTS_DEFAULT = 5_000_000
ITEMS_DEFAULT = 20_000_000
QUERY_COUNT_MAX = 64
"""Most messages one query finds in RocketMQ (``maxMsgsNumBatch``)."""

TIME_DIFFERENCE_MAX = 0x7FFF_FFFF

assert (HEADER_SIZE, SLOT_SIZE, ITEM_SIZE) == (40, 4, 20)  # the on-disk format


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLayout:
    """Numbers of slots and items (``maxHashSlotNum``, ``maxIndexNum``); the file names neither."""

    slots: int = SLOTS_DEFAULT
    items: int = ITEMS_DEFAULT

    @property
    def file_size(self) -> int:
        """Bytes of a file."""
        return self.item_at(self.items)

    def slot_at(self, number: int) -> int:
        """Where slot ``number`` lies in the file."""
        return HEADER_SIZE + SLOT_SIZE * number

    def item_at(self, number: int) -> int:
        """Where item ``number`` lies in the file."""
        return HEADER_SIZE + SLOT_SIZE * self.slots + ITEM_SIZE * number


class IndexHeader(NamedTuple):
    """Header of an index file; ``index_count`` is never below 1."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    slot_count: int
    index_count: int


class IndexItem(NamedTuple):
    """One key of one message; ``time_difference`` in seconds."""

    key_hash: int
    physical_offset: int
    time_difference: int
    previous: int


def fresh_header(previous: IndexHeader | None = None) -> IndexHeader:
    """Header of a new file, which follows a full one that has the header ``previous``."""
    if previous is None:
        return IndexHeader(0, 0, 0, 0, 0, 1)
    timestamp, offset = max(previous.end_timestamp, 0), max(previous.end_physical_offset, 0)
    return IndexHeader(timestamp, timestamp, offset, offset, 0, 1)


def put_header(page: memoryview, header: IndexHeader) -> None:
    """Write ``header`` at the beginning of the file mapped at ``page``.

    Other processes read it meanwhile, each field as it was or as it is.
    """
    assert header.index_count >= 1, header
    # Java counts from 1 in memory and writes the count with the first key: 1 is never on disk.
    count = header.index_count if header.index_count > 1 else 0
    # In one copy: what is packed in place is all zeros first, and then comes octet by octet. A
    # reader of that moment would find a file without keys.
    page[:HEADER_SIZE] = _HEADER.pack(*header[:5], count)


def get_header(page: memoryview, layout: IndexLayout, *, file: str = "") -> IndexHeader:
    """The header of the file at ``page``.

    Raises:
        CorruptLogError: the file has another size, or counts what it cannot hold.
    """
    if len(page) != layout.file_size:
        raise CorruptLogError(
            "index file of another size",
            file=file,
            offset=0,
            field="size",
            value=len(page),
            expected=layout.file_size,
        )
    # Of a copy, which takes a field as a whole; one that is unpacked in place is read by octets.
    *stamps, slot_count, count = _HEADER.unpack(bytes(page[:HEADER_SIZE]))
    if not 0 <= slot_count <= layout.slots:
        raise corrupt("more slots than there are", file, 32, "slot_count", slot_count)
    if not 0 <= count <= layout.items:
        raise corrupt("more items than there are", file, 36, "index_count", count)
    begin_timestamp, end_timestamp, begin_offset, end_offset = stamps
    return IndexHeader(
        begin_timestamp, end_timestamp, begin_offset, end_offset, slot_count, max(count, 1)
    )


def get_item(page: memoryview, layout: IndexLayout, number: int) -> IndexItem:
    """Item ``number`` of the file at ``page``, unchecked."""
    assert 0 < number < layout.items, number
    return IndexItem(*_ITEM.unpack_from(page, layout.item_at(number)))


PASSED_MAX = 4_096
"""Items of other times than those wanted that a look passes in one file: some milliseconds."""


def query_key(
    page: memoryview,
    layout: IndexLayout,
    key: str,
    *,
    count_max: int = QUERY_COUNT_MAX,
    begin_timestamp: int = 0,
    end_timestamp: int = 0x7FFF_FFFF_FFFF_FFFF,
    clock_step_ms: int = 0,
    file: str = "",
) -> list[int]:
    """Physical offsets of messages that may carry ``key``, newest first.

    Stops where Java stops: at an item stored before ``begin_timestamp``, and at a slot or item
    that leads out of the file's used part or to itself, which a crash may leave behind.

    Args:
        begin_timestamp: oldest store time wanted, epoch ms; an item knows it by the second.
        end_timestamp: newest one wanted, itself included.
        clock_step_ms: also find what was stored before and after the clock was put back by so much,
            for who compares the records' own times. An item says no time before that of the file's
            first message, and the newer of two may be the earlier one. For that ``PASSED_MAX``
            items of other times are passed, and no more.
        file: named in the error.

    Raises:
        CorruptLogError: the header cannot be, or the chain leads to a newer item, which no
            crash can bring about and which could be a loop.
    """
    key_hash = index_key_hash(key)
    # The slot before the header: its writer counts an item before a slot names it, and a slot that
    # names more than is counted would hide the whole chain.
    at = layout.slot_at(key_hash % layout.slots)
    (number,) = _SLOT.unpack(bytes(page[at : at + SLOT_SIZE]))
    header = get_header(page, layout, file=file)
    found: list[int] = []
    newest = min(header.index_count, layout.items - 1)
    is_between = begin_timestamp <= header.end_timestamp and header.begin_timestamp <= end_timestamp
    passed = 0
    while 0 < number <= newest and len(found) < count_max:
        item = get_item(page, layout, number)
        if item.time_difference < 0:
            break
        timestamp = header.begin_timestamp + item.time_difference * 1_000
        # One of an earlier time than the file's first message says that one's, which itself may
        # say a later one.
        may_be_earlier = clock_step_ms > 0 and (item.time_difference == 0 or number == 1)
        is_in_time = timestamp <= end_timestamp or may_be_earlier
        if item.key_hash == key_hash and begin_timestamp <= timestamp and is_in_time:
            found.append(item.physical_offset)
        passed += timestamp < begin_timestamp or not is_between
        is_before_all = timestamp < begin_timestamp - clock_step_ms
        if is_before_all or passed > PASSED_MAX or item.previous in (0, number):
            break
        if number < item.previous <= newest:
            at = layout.item_at(number) + 16
            raise corrupt("chain leads to a newer item", file, at, "previous", item.previous)
        number = item.previous
    return found
