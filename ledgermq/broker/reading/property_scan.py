"""Property scan: which of a queue's messages match an SQL expression, read from the log.

The one scan of the broker that costs time for each message: it is bounded by the pull and by the
turn (``pull_service``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ledgermq.formats.records.inner_batch import PACKED_MAX, is_packed, messages_in, one_of
from ledgermq.formats.records.message import Message, decode_message, properties_in
from ledgermq.formats.records.properties import decode_properties
from ledgermq.model.errors import FilterIllegalError
from ledgermq.rules.sql.sql_filter import SqlFilter, parse_sql
from ledgermq.store.log_view import LogView
from ledgermq.store.record_parts import sound_count

Poison = Callable[[int, Exception], None]
"""Told of a message whose properties the expression cannot be evaluated for: its position, why."""

Integers = npt.NDArray[np.int64]
Wanted = npt.NDArray[np.bool_]


def sql_filter(expression: str, *, is_enabled: bool) -> SqlFilter:
    """The filter of a subscription.

    Raises:
        FilterIllegalError: the expression is none, or the settings allow none.
    """
    if not is_enabled:
        raise FilterIllegalError(
            "filters by property are switched off",
            value=False,
            limit=True,
            setting="reads.enable_property_filter",
        )
    return parse_sql(expression)


def wanted_messages(
    log: LogView,
    positions: Integers,
    sizes: Integers,
    wanted: SqlFilter,
    *,
    count_max: int,
    size_max: int,
    poison: Poison,
    numbers: Integers | None = None,
) -> Wanted | None:
    """Which of the first messages are wanted: of those in one file, as far as it is worth it.

    The records are compared with the CRC that they were stored with, as when they are given out.
    What the expression fails for is not wanted, as in RocketMQ's ``ExpressionMessageFilter``: a
    message that was stored must not keep its consumers from all that is behind it.

    ``None`` when the first one was removed.

    Args:
        positions: ascending, in host order, and below the dispatched position; at least one.
        count_max: what was found is enough when it is more than so many messages,
        size_max: or more than so many bytes.
        poison: called for each message that the expression fails for.
        numbers: where records have several messages: which one of its record each message is.

    Raises:
        DamagedLogError: the first record is not what was written.
    """
    file = log.file_of(int(positions[0]))
    if file is None:
        return None
    inside = int(np.searchsorted(positions, file.end, "left"))
    places, firsts = np.unique(positions[:inside], return_index=True)
    # A unit whose record does not fit its file is damaged, and told as such.
    sound = sound_count(file, places, np.minimum(sizes[firsts], file.end - places))
    count = inside if sound == len(places) else int(firsts[sound])
    read = _PropertiesOf()
    at = (positions[:count] - file.start).tolist()
    found = np.zeros(count, np.bool_)
    matched = matched_size = 0
    for row, (begin, size) in enumerate(zip(at, sizes[:count].tolist(), strict=True)):
        if read.packed == PACKED_MAX and begin != read.begin:
            return found[:row]
        record = file.view[begin : begin + size]
        try:
            number = -1 if numbers is None else int(numbers[row])
            is_wanted = wanted.matches(decode_properties(read.of(record, begin, number)))
        except Exception as error:
            poison(int(positions[row]), error)
            continue
        if is_wanted:
            found[row] = True
            matched += 1
            matched_size += size
            if matched > count_max or matched_size > size_max:
                return found[: row + 1]
    return found


class _PropertiesOf:
    """Properties of messages, of which several may be in one record; that is taken apart once.

    Attributes:
        begin: where the record is that was taken apart last.
        packed: how many were that are compressed.
    """

    def __init__(self) -> None:
        self.begin = -1
        self.packed = 0
        self._messages: list[Message] = []

    def of(self, record: memoryview, begin: int, number: int) -> bytes | memoryview:
        """Those of a message.

        Args:
            begin: where the record is.
            number: of the message in the record; -1: the record is the message.
        """
        if number < 0:
            return properties_in(record)
        if begin != self.begin:
            message = decode_message(record)
            self.packed += is_packed(message.sys_flag)
            self._messages, self.begin = messages_in(message), begin
        return one_of(self._messages, self._messages[0].queue_offset + number).properties
